//! Requests on several keys at once (K11): consistent reads, and writes under all their locks.
//!
//! # Invariants
//! I1: locks are taken in ascending order of bucket, so that two sessions never wait for each
//!     other. If a chain has moved, the session starts over; a locked chain does not move.
//! I2: room is made before the first lock is taken; under the locks the session uses only free
//!     space.
//! I3: the room made is kept for the session until it gives the locks back (kept_room.rs): entries
//!     that are no longer than announced find their places. Without the room none is written.

use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use index::hash::slot::Tag;

use super::deletes::have_room_for_deletes;
use super::durable::note_published;
use super::execute::{Call, NO_GUESS, prefetch_entry};
use super::expire::meet_expired;
use super::find::{find, find_locked, see_live};
use super::kept_room::{HasRoom, Room, keep_room};
use super::ordered::have_nodes_for;
use super::pace::quiesce_after_reads;
use super::replica::install_one;
use super::resize::settle_chunk;
use super::{Changes, Session};
use crate::entry::{HEADER_BYTES, Seen};
use crate::inner::Inner;
use crate::pin::Pins;
use crate::prefetch::Near;
use crate::replica::{Installed, NotInstalled, Replica};
use crate::request::{LastUse, Op, Outcome, Request, Sink, Update};

/// Optimistic attempts before the locks are taken.
const ATTEMPTS_MAX: usize = 16;
/// Keys whose cache misses overlap.
const PREFETCHED_KEYS: usize = 32;

/// Reads all keys as of one moment. The sink gets only `Hit` and `Miss`.
pub(super) fn read_snapshot<R, S: Sink<R>>(
    session: &mut Session,
    now: UnixMillis,
    keys: &[(KeyHash, &[u8])],
    sink: &mut S,
) {
    let Session { inner, local } = session;
    let inner: &Arc<Inner> = inner;
    let mut found = Vec::with_capacity(keys.len());
    let mut is_snapshot = false;
    for _ in 0..ATTEMPTS_MAX {
        if read_optimistically(inner, keys, &mut found) {
            is_snapshot = true;
            break;
        }
    }
    if !is_snapshot {
        read_locked(inner, keys, &mut found);
    }
    let read_now = LastUse::read(now);
    for (request_index, seen) in found.iter().enumerate() {
        let live = seen.as_ref().filter(|seen| !seen.is_expired(now));
        let outcome = live.map_or(Outcome::Miss, |seen| Outcome::Hit(seen.item()));
        sink.outcome(request_index, outcome, Pins(inner));
        live.inspect(|seen| seen.note_use(read_now));
        if seen.is_some() && live.is_none() {
            let (hash, key) = keys[request_index];
            meet_expired(local, inner, now, hash, key);
        }
    }
    quiesce_after_reads(local, inner, now);
}

/// Makes room for entries, then locks the chains of all keys (I1). Without room for all of them
/// the locked session answers every write that needs some with `OutOfMemory`.
pub(super) fn lock_keys<'s>(
    session: &'s mut Session,
    now: UnixMillis,
    hashes: &[KeyHash],
    room: Room,
) -> LockedSession<'s> {
    let Session { inner, local } = session;
    if room.bytes() > 0 {
        have_nodes_for(local, inner, now, hashes.len());
    }
    debug_assert!(local.held.is_empty());
    // First: it may close open segments.
    have_room_for_deletes(local, inner, now, hashes.len());
    let has_room = keep_room(local, inner, now, &room);
    // An insert under the locks takes missing nodes without making room.
    local.nodes.prepare(inner);
    local.held.lock_all(inner, hashes);
    LockedSession { session, has_room }
}

/// Reads all keys once; true if no chain changed meanwhile.
fn read_optimistically<'a>(
    inner: &'a Inner,
    keys: &[(KeyHash, &[u8])],
    found: &mut Vec<Option<Seen<'a>>>,
) -> bool {
    found.clear();
    let word_of = |hash: KeyHash| inner.index.word(hash);
    let mut words = Vec::with_capacity(keys.len());
    for chunk in keys.chunks(PREFETCHED_KEYS) {
        for (hash, _) in chunk {
            inner.index.prefetch(inner.index.head_of(*hash));
        }
        for (hash, key) in chunk {
            words.push(word_of(*hash));
            prefetch_likely_entry(inner, *hash, key);
        }
        for (hash, key) in chunk {
            let entry = find(inner, inner.index.head_of(*hash), *hash, key);
            // Copied before the words are checked again: a value in place may change later.
            found.push(entry.map(|(_, entry)| entry.see()));
        }
    }
    if words.iter().any(|word| word.is_locked()) {
        base::sync::Backoff::new().snooze();
        return false;
    }
    base::sync::fence(base::sync::Ordering::Acquire);
    keys.iter().zip(&words).all(|((hash, _), word)| word_of(*hash) == *word)
}

/// Stage 2 of the executor, for one key.
pub(super) fn prefetch_likely_entry(inner: &Inner, hash: KeyHash, key: &[u8]) {
    if inner.tree.is_some() {
        return;
    }
    if let Some(position) = inner.index.guess(inner.index.head_of(hash), Tag::of(hash)) {
        prefetch_entry::<Near>(inner, position.slot, HEADER_BYTES + key.len());
    }
}

/// Reads all keys under their locks: this ends a race against steady writers.
#[cold]
fn read_locked<'a>(inner: &'a Inner, keys: &[(KeyHash, &[u8])], found: &mut Vec<Option<Seen<'a>>>) {
    let mut heads = Vec::with_capacity(keys.len());
    inner.index.lock_all(keys.iter().map(|(hash, _)| *hash), &mut heads);
    found.clear();
    for (hash, key) in keys {
        let chain = inner.index.locked(inner.index.head_of(*hash));
        let entry = find_locked(inner, &chain, NO_GUESS, Tag::of(*hash), key);
        found.push(entry.map(|(_, entry)| entry.see()));
    }
    for head in heads {
        inner.index.unlock_raw(head);
    }
}

/// A session that holds the locks of some keys; dropping it releases them.
pub struct LockedSession<'s> {
    session: &'s mut Session,
    /// The room for its writes (I3).
    has_room: HasRoom,
}

impl LockedSession<'_> {
    /// Whether there is room for the writes that were announced. Otherwise none is executed.
    pub fn has_room(&self) -> bool {
        self.has_room != HasRoom::No
    }

    /// Executes requests on the locked keys, in order; together they are one atomic step.
    ///
    /// # Panics
    /// If a key's lock is not held: that is a bug of the caller.
    pub fn execute<U: Update, S: Sink<U::Refusal>>(
        &mut self,
        now: UnixMillis,
        requests: &[Request<'_, U>],
        sink: &mut S,
    ) {
        let has_room = self.has_room();
        let Session { inner, local } = &mut *self.session;
        let mut is_refusing = false;
        if let Some(durable) = &inner.durable {
            is_refusing = durable.is_refusing();
            let writes = requests.iter().any(|request| !matches!(request.op, Op::Get));
            if writes && !is_refusing {
                durable.begin(local.place);
            }
        }
        for (request_index, request) in requests.iter().enumerate() {
            let head = inner.index.head_of(request.hash);
            assert!(local.held.has(head), "K11: the key was not locked");
            let call = Call { inner, now, request_index, guess: NO_GUESS };
            match &request.op {
                Op::Set(_) | Op::Delete | Op::Update(_) if is_refusing => {
                    sink.outcome(request_index, Outcome::Unwritable, Pins(inner));
                }
                Op::Set(_) | Op::Update(_) if !has_room => {
                    sink.outcome(request_index, Outcome::OutOfMemory, Pins(inner));
                }
                Op::Get => {
                    let chain = inner.index.locked(head);
                    let tag = Tag::of(request.hash);
                    let found = find_locked(inner, &chain, NO_GUESS, tag, request.key);
                    let seen = see_live(found.map(|(_, entry)| entry), now);
                    let item = seen.as_ref().map(Seen::item);
                    let outcome = item.map_or(Outcome::Miss, Outcome::Hit);
                    sink.outcome(request_index, outcome, Pins(inner));
                    seen.inspect(|seen| seen.note_use(LastUse::read(now)));
                }
                Op::Set(set) => local.set(call, request.key, request.hash, set, sink),
                Op::Delete => local.delete(call, request.key, request.hash, sink),
                Op::Update(update) => {
                    local.update(call, request.key, request.hash, update, sink);
                }
            }
        }
    }

    /// Installs a replica of a locked key, if there is room for all that was announced.
    ///
    /// # Panics
    /// If the key's lock is not held: that is a bug of the caller.
    pub(super) fn install(
        &mut self,
        now: UnixMillis,
        replica: &Replica<'_>,
    ) -> Result<Installed, NotInstalled> {
        let has_room = self.has_room();
        let Session { inner, local } = &mut *self.session;
        assert!(local.held.has(inner.index.head_of(replica.hash)), "K11: the key was not locked");
        if let Some(durable) = &inner.durable {
            if durable.is_refusing() {
                return Err(NotInstalled::Unwritable);
            }
            durable.begin(local.place);
        }
        match has_room {
            true => install_one(local, inner, now, replica),
            false => Err(NotInstalled::OutOfMemory { len_bytes: replica.value_len_bytes() }),
        }
    }

    /// The changes made under these locks; as [`Session::take_changes`].
    pub fn take_changes(&mut self, empty: &mut Changes) {
        self.session.take_changes(empty);
    }
}

impl Drop for LockedSession<'_> {
    fn drop(&mut self) {
        let Session { inner, local } = &mut *self.session;
        let held_count = local.held.release(inner);
        if self.has_room == HasRoom::Kept {
            inner.log.end_keep(local.place);
        }
        note_published(local, inner);
        if let Some(durable) = &inner.durable {
            durable.end(local.place);
        }
        inner.epochs.quiesce(local.place);
        local.nodes.keep_few(inner);
        settle_chunk(local, inner, held_count);
        local.publish_counts(inner);
    }
}
