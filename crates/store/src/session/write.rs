//! Sets and deletes: append first, publish under the key's bucket lock.
//!
//! ```text
//!  reserve space ─▶ copy key and value ─▶ lock chain ─▶ condition holds?
//!     no:  unlock, give the space back
//!     yes: header with the new version ─▶ slot ─▶ unlock with that version
//! ```
//!
//! The copy happens before the lock is taken, so that a large value keeps no other session waiting.
//! A value of at most eight bytes that replaces one of the same length is stored in place (K12).

use base::KeyHash;
use index::hash::slot::{Slot, Tag};
use index::hash::{Chain, IndexFull, Position};

use super::Local;
use super::deletes::make_room_for_delete;
use super::execute::Call;
use super::expire::meet_expired;
use super::find::{entry_of, find, find_locked, point, see_live};
use super::ordered::has_nodes_now;
use super::place::queue_for;
use crate::entry::{Entry, Header, Meta, Seen, Shape};
use crate::inner::Inner;
use crate::log::{Appender, Reservation};
use crate::pin::Pins;
use crate::request::{Condition, Expiry, Item, LastUse, Outcome, Set, Sink, TOLD_BYTES_MIN};

/// The entry of a key, and its position.
pub(super) type Found<'a> = Option<(Position, Entry<'a>)>;

/// The reason why a Set got no space.
enum NoSpace {
    OutOfMemory,
    /// Its condition does not hold.
    NotNeeded,
}

impl Local {
    pub(super) fn set<R, S: Sink<R>>(
        &mut self,
        call: Call<'_>,
        key: &[u8],
        hash: KeyHash,
        set: &Set<'_>,
        sink: &mut S,
    ) {
        let replaces = call.inner.tuning.replaces_in_place;
        if replaces && self.set_word(call, key, set, sink) {
            return;
        }
        loop {
            let mut old = None;
            let outcome =
                self.set_outcome(call, (key, hash), set, &mut old, &mut asker(call, sink));
            if !self.nodes.is_short() {
                sink.outcome(call.request_index, outcome, Pins(call.inner));
                return;
            }
            if !has_nodes_now(self, call.inner, call.now) {
                sink.outcome(call.request_index, Outcome::OutOfMemory, Pins(call.inner));
                return;
            }
        }
    }

    /// The fastest path of a write: a plain Set of a short value whose entry stage 2 has found, in
    /// place. False: it is another kind of write, and nothing was done.
    #[inline]
    fn set_word<R, S: Sink<R>>(
        &mut self,
        call: Call<'_>,
        key: &[u8],
        set: &Set<'_>,
        sink: &mut S,
    ) -> bool {
        let Call { inner, request_index, guess, .. } = call;
        let is_short = matches!(set.value.len(), 1..=8) && key.len() <= 255;
        let is_plain = set.condition == Condition::Always && set.expiry == Expiry::Never;
        if !is_short || !is_plain || set.client_flags != 0 || !self.held.is_empty() {
            return false;
        }
        let Some(seen) = guess.in_head() else { return false };
        let Some(chain) = inner.index.lock_head(seen.bucket) else { return false };
        let Some(position) = chain.still_there(seen) else { return false };
        let entry = entry_of(inner, position);
        if !entry.has_key_in_place(key, set.value.len()) {
            return false;
        }
        let mut word = Default::default();
        let old = entry.read(&mut word);
        let written = LastUse::written(call.now);
        let version = replace_in_place(inner, chain, (position, entry), set.value, written);
        self.changes.changed(key);
        sink.outcome(request_index, Outcome::Stored { version, old: Some(old) }, Pins(inner));
        true
    }

    /// Executes a Set; `seen` keeps the key's previous entry.
    fn set_outcome<'a, 's, R>(
        &mut self,
        call: Call<'a>,
        (key, hash): (&[u8], KeyHash),
        set: &Set<'_>,
        seen: &'s mut Option<Seen<'a>>,
        ask: Ask<'_>,
    ) -> Outcome<'s, R> {
        let Call { inner, now, guess, .. } = call;
        if !inner.fits(key.len(), set.value.len()) {
            return too_large(inner, key, set.value.len() as u64);
        }
        // Only the lock shows whether there is an expiry to keep, so room for one is reserved.
        let may_expire = set.expiry != Expiry::Never;
        let mut shape = Shape::new(key.len(), set.value.len(), set.client_flags, may_expire);
        let tag = Tag::of(hash);
        if shape.is_in_place() && !inner.tuning.replaces_in_place {
            shape = shape.at_rest();
        } else if shape.is_in_place() {
            let chain = self.held.lock_chain(inner, hash);
            let found = find_locked(inner, &chain, guess, tag, key);
            if let Some((position, entry)) = found.filter(|(_, entry)| entry.takes_in_place(shape))
            {
                let outcome = set_in_place(call, chain, (position, entry), set, seen);
                if let Outcome::Stored { .. } = &outcome {
                    self.changes.changed(key);
                }
                return outcome;
            }
        }
        self.nodes.prepare(inner);
        if matches!(set.expiry, Expiry::At(at) if at <= now) {
            return self.set_dead(call, (key, hash), set, seen, ask);
        }
        // Used in place: moving it would read with one wide load the bytes that two narrow stores
        // just wrote, and wait for them (-7 % of 16/64 half and half).
        let reserved = self.reserve_for_set(call, (key, hash), set, shape, seen);
        let reservation = match &reserved {
            Ok(reservation) => reservation,
            Err(NoSpace::OutOfMemory) => return Outcome::OutOfMemory,
            Err(NoSpace::NotNeeded) => {
                let old = seen.as_ref().map(Seen::item);
                return set.condition.refusal(old).expect("just asked, of the same item");
            }
        };
        Appender::fill(&inner.log, reservation, shape, key, set.value);
        let body_crc = inner.sum_body(shape, key, set.value);
        let mut chain = self.held.lock_chain(inner, hash);
        let found = find_locked(inner, &chain, guess, tag, key);
        *seen = see_live(found.map(|(_, entry)| entry), now);
        let old = seen.as_ref().map(Seen::item);
        let untold = || (!may_tell(ask, old.as_ref())).then_some(Outcome::Untold);
        if let Some(outcome) = set.condition.refusal(old).or_else(untold) {
            drop(chain);
            self.appenders.cancel(&inner.log, reserved.ok());
            return outcome;
        }
        let meta = meta_of(set, chain.next_version(), old);
        let header = Header::noting(shape, meta, body_crc, LastUse::written(now));
        Appender::write_header(&inner.log, reservation, &header);
        match self.publish(inner, &mut chain, tag, found, reservation, meta) {
            Ok(_) => {
                chain.finish();
                Outcome::Stored { version: meta.version, old }
            }
            Err(IndexFull) => {
                drop(chain);
                self.appenders.cancel(&inner.log, reserved.ok());
                self.tally.counts.out_of_memory += 1;
                Outcome::OutOfMemory
            }
        }
    }

    /// Executes a Set whose expiry has passed already: deletes the key's entry.
    #[cold]
    fn set_dead<'a, 's, R>(
        &mut self,
        call: Call<'a>,
        (key, hash): (&[u8], KeyHash),
        set: &Set<'_>,
        seen: &'s mut Option<Seen<'a>>,
        ask: Ask<'_>,
    ) -> Outcome<'s, R> {
        let Call { inner, now, guess, .. } = call;
        loop {
            let chain = self.held.lock_chain(inner, hash);
            let found = find_locked(inner, &chain, guess, Tag::of(hash), key);
            *seen = see_live(found.map(|(_, entry)| entry), now);
            if is_refused(set, seen) {
                break;
            }
            if !may_tell(ask, seen.as_ref().map(Seen::item).as_ref()) {
                return Outcome::Untold;
            }
            let version = chain.next_version();
            if found.is_none() {
                // A version that a client was told must not also be the next item's (K1).
                chain.finish();
            } else if !self.delete_locked(inner, chain, found) {
                match make_room_for_delete(self, inner, now, key.len()) {
                    true => continue,
                    false => return Outcome::OutOfMemory,
                }
            }
            return Outcome::Stored { version, old: seen.as_ref().map(Seen::item) };
        }
        let old = seen.as_ref().map(Seen::item);
        set.condition.refusal(old).expect("just asked, of the same item")
    }

    /// Space for a Set of `shape`, with room made for it if its condition holds.
    #[inline]
    fn reserve_for_set<'a>(
        &mut self,
        call: Call<'a>,
        (key, hash): (&[u8], KeyHash),
        set: &Set<'_>,
        shape: Shape,
        seen: &mut Option<Seen<'a>>,
    ) -> Result<Reservation, NoSpace> {
        let Call { inner, now, .. } = call;
        let queue = queue_for(self, call, hash);
        if let Some(reservation) = self.reserve_open(inner, shape.len_bytes(), queue) {
            return Ok(reservation);
        }
        if self.is_refused_before_room(call, key, hash, set, seen) {
            return Err(NoSpace::NotNeeded);
        }
        let reservation = self.reserve_with_room(inner, now, shape.len_bytes(), queue);
        reservation.ok_or(NoSpace::OutOfMemory)
    }

    /// Whether the condition does not hold as of now: then no room has to be made, and a full store
    /// answers a SET NX of an existing key.
    #[cold]
    fn is_refused_before_room<'a>(
        &mut self,
        call: Call<'a>,
        key: &[u8],
        hash: KeyHash,
        set: &Set<'_>,
        seen: &mut Option<Seen<'a>>,
    ) -> bool {
        let Call { inner, now, .. } = call;
        // A read without the lock would wait for ever for a chain that this session has locked.
        if set.condition == Condition::Always || !self.held.is_empty() {
            return false;
        }
        let found = find(inner, inner.index.head_of(hash), hash, key);
        *seen = see_live(found.map(|(_, entry)| entry), now);
        if seen.is_none() && found.is_some() {
            meet_expired(self, inner, now, hash, key);
        }
        is_refused(set, seen)
    }

    /// Points the key's slot at a complete entry. If the index is full, the caller gives the space
    /// back.
    #[inline]
    pub(super) fn publish<'a>(
        &mut self,
        inner: &'a Inner,
        chain: &mut Chain<'_>,
        tag: Tag,
        found: Found<'_>,
        reservation: &Reservation,
        meta: Meta,
    ) -> Result<Entry<'a>, IndexFull> {
        let slot = Slot::entry(tag, reservation.offset_bytes);
        let len_bytes = reservation.len_bytes;
        if let Some((position, old)) = found {
            // An item that was read before stays worth keeping.
            let slot = slot.with_marks(position.slot.marks());
            point(inner, chain, position, old.key(), slot);
            self.tally.remove(inner, position, old);
        } else {
            self.insert(inner, chain, slot)?;
        }
        let appender = self.appenders.by_role(reservation.role);
        appender.published(&inner.log, reservation, meta.expires_at);
        self.tally.add(len_bytes, meta.expires_at.is_some());
        // SAFETY: just published by this session, which does not quiesce inside a request.
        let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
        if self.changes.is_on() {
            self.changes.changed(entry.key());
        }
        Ok(entry)
    }

    /// Adds a slot; a cache drops another entry of the bucket when no overflow bucket is left.
    #[inline]
    pub(super) fn insert(
        &mut self,
        inner: &Inner,
        chain: &mut Chain<'_>,
        slot: Slot,
    ) -> Result<(), IndexFull> {
        if let Some(tree) = &inner.tree {
            // SAFETY: the entry was completed by this session, which publishes it now.
            let key = unsafe { inner.log.entry(slot.offset_bytes()) }.key();
            return self.nodes.insert(inner, tree, key, slot);
        }
        if chain.insert(slot).is_ok() {
            return Ok(());
        }
        self.insert_by_eviction(inner, chain, slot)
    }

    /// MICA's lossy index (§4.1), and the last resort of a cache whose index is full: drops the
    /// oldest entry of the chain, an unread one first.
    #[cold]
    fn insert_by_eviction(
        &mut self,
        inner: &Inner,
        chain: &mut Chain<'_>,
        slot: Slot,
    ) -> Result<(), IndexFull> {
        let drops = inner.config.lossy_index || inner.config.mode == crate::Mode::Evict;
        if !drops {
            // Under locks of several keys a session waits for nothing (I2).
            self.nodes.set_shortage(usize::from(self.held.is_empty()));
            return Err(IndexFull);
        }
        let mut oldest: Option<((u64, u64), Position)> = None;
        {
            let allocator = inner.log.allocator();
            chain.entries(|position| {
                let segment = inner.log.segment_of(position.slot.offset_bytes());
                let age = (position.slot.marks(), allocator.table.sequence(segment));
                if oldest.is_none_or(|(best, _)| age < best) {
                    oldest = Some((age, position));
                }
            });
        }
        let (_, position) = oldest.ok_or(IndexFull)?;
        let entry = entry_of(inner, position);
        self.tally.counts.evicted_by_index += 1;
        self.evictions.note(entry);
        self.tally.counts.evicted_unread += u64::from(position.slot.marks() == 0);
        chain.replace(position, slot);
        self.changes.gone(entry.key());
        self.tally.remove(inner, position, entry);
        Ok(())
    }

    pub(super) fn delete<R, S: Sink<R>>(
        &mut self,
        call: Call<'_>,
        key: &[u8],
        hash: KeyHash,
        sink: &mut S,
    ) {
        let Call { inner, now, request_index, guess } = call;
        loop {
            let chain = self.held.lock_chain(inner, hash);
            let found = find_locked(inner, &chain, guess, Tag::of(hash), key);
            let seen = see_live(found.map(|(_, entry)| entry), now);
            let old = seen.as_ref().map(Seen::item);
            if !may_tell(&mut asker(call, sink), old.as_ref()) {
                drop(chain);
                return sink.outcome(request_index, Outcome::Untold, Pins(inner));
            }
            let outcome = match (self.delete_locked(inner, chain, found), &seen) {
                (true, Some(seen)) => Outcome::Deleted { old: Some(seen.item()) },
                (true, None) => Outcome::Miss,
                (false, _) if make_room_for_delete(self, inner, now, key.len()) => continue,
                (false, _) => Outcome::OutOfMemory,
            };
            sink.outcome(request_index, outcome, Pins(inner));
            return;
        }
    }

    /// Removes the entry found, if any, and ends the change; without an entry nothing changes.
    /// False: it could not be removed.
    pub(super) fn delete_locked(
        &mut self,
        inner: &Inner,
        mut chain: Chain<'_>,
        found: Found<'_>,
    ) -> bool {
        let Some((position, entry)) = found else { return true };
        let is_unlinked = self.unlink(inner, &mut chain, position, entry);
        if is_unlinked {
            self.changes.changed(entry.key());
            chain.finish();
        }
        is_unlinked
    }
}

/// [`Sink::may_tell`] of a request's sink. A write is compiled once, not for each sink: that saves
/// 100 instructions a SET.
pub(super) type Ask<'k> = &'k mut dyn FnMut(&Item<'_>) -> bool;

#[inline]
pub(super) fn asker<'k, R, S: Sink<R>>(
    call: Call<'k>,
    sink: &'k mut S,
) -> impl FnMut(&Item<'_>) -> bool + use<'k, R, S> {
    let Call { inner, request_index, .. } = call;
    move |old| sink.may_tell(request_index, old, Pins(inner))
}

/// Whether a change may replace or delete the old item.
#[inline(always)]
pub(super) fn may_tell(ask: Ask<'_>, old: Option<&Item<'_>>) -> bool {
    match old {
        Some(old) if old.value.len() >= TOLD_BYTES_MIN => ask(old),
        _ => true,
    }
}

pub(super) fn too_large<'a, R>(inner: &Inner, key: &[u8], len_bytes: u64) -> Outcome<'a, R> {
    Outcome::TooLarge { len_bytes, max_bytes: inner.value_max_bytes(key.len()) }
}

/// A Set whose key has an entry that takes the new value in place (K12): no space, no checksum, no
/// slot.
#[inline]
fn set_in_place<'a, 's, R>(
    call: Call<'_>,
    chain: Chain<'_>,
    (position, entry): (Position, Entry<'a>),
    set: &Set<'_>,
    seen: &'s mut Option<Seen<'a>>,
) -> Outcome<'s, R> {
    // An entry in place has no expiry, so it is alive.
    let old = Some(seen.insert(entry.see()).item());
    if let Some(outcome) = set.condition.refusal(old) {
        return outcome;
    }
    let written = LastUse::written(call.now);
    let version = replace_in_place(call.inner, chain, (position, entry), set.value, written);
    Outcome::Stored { version, old }
}

/// Replaces the value of an entry that takes it, and ends the change; returns its version.
#[inline]
fn replace_in_place(
    inner: &Inner,
    chain: Chain<'_>,
    (position, entry): (Position, Entry<'_>),
    value: &[u8],
    written: LastUse,
) -> u64 {
    let version = chain.next_version();
    entry.replace_value(value, version);
    entry.note_use(written);
    // It keeps its old position in the log, so only its mark of use keeps it from eviction.
    inner.mark(position);
    chain.finish();
    version
}

/// The contents of the new header.
#[inline]
fn meta_of(set: &Set<'_>, version: u64, old: Option<Item<'_>>) -> Meta {
    let expires_at = set.expiry.after(old.and_then(|item| item.expires_at));
    Meta { version, client_flags: set.client_flags, expires_at }
}

/// Whether a Set's condition does not hold.
#[inline]
fn is_refused(set: &Set<'_>, seen: &Option<Seen<'_>>) -> bool {
    set.condition.unmet(seen.as_ref().map(Seen::item).as_ref()).is_some()
}
