//! Installs entries decided by a primary, and walks the local entries of a shard.
//!
//! ```text
//!  install:  reserve ─▶ copy ─▶ lock chain ─▶ what is there is older? ─▶ header ─▶ slot
//!            ─▶ unlock with a version above the chain's and the entry's (R1 of replica.rs)
//!  sweep:    chain after chain, or key after key: entries of shards that are gone are unlinked
//! ```

use std::num::NonZeroU16;
use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use index::hash::IndexFull;
use index::hash::slot::{Slot, Tag};

use super::deletes::make_room_for_delete;
use super::durable::{note_published, write_delete};
use super::execute::{Call, NO_GUESS};
use super::find::{find_locked, find_ordered_entry};
use super::kept_room::Room;
use super::ordered::has_nodes_now;
use super::ordered_walk::collect_step;
use super::pace::reclaim_in_step;
use super::place::queue_for;
use super::resize::settle_chunk;
use super::several::{lock_keys, prefetch_likely_entry};
use super::{Local, Session};
use crate::entry::{Entry, Header, Kind, Meta, Shape, body_checksum};
use crate::inner::Inner;
use crate::log::{Appender, Purpose};
use crate::prefetch;
use crate::replica::{Installed, NotInstalled, Replica, ReplicaChange, ShardCounts};

/// The chains that one step of a sweep visits.
const SWEEP_HEADS: u32 = 128;

/// The progress of a walk over the whole index.
#[derive(Debug, Default)]
pub struct Sweep(Place);

#[derive(Debug, Default)]
enum Place {
    #[default]
    Start,
    Hash(KeyHash),
    Behind(Vec<u8>),
}

impl Sweep {
    /// The slots of the next chains or keys; false: there are no more.
    fn next_slots(&mut self, inner: &Inner, slots: &mut Vec<Slot>) -> bool {
        if let Some(tree) = &inner.tree {
            let last = match &self.0 {
                Place::Behind(key) => Some(key.as_slice()),
                _ => None,
            };
            let last = collect_step(inner, tree, last, slots);
            self.0 = last.map_or(Place::Start, Place::Behind);
        } else {
            let start = if let Place::Hash(hash) = self.0 { hash } else { KeyHash(0) };
            let mut next = Some(start);
            for _ in 0..SWEEP_HEADS {
                let Some(hash) = next else { break };
                next = inner.index.collect(hash, slots).next_hash(hash);
            }
            self.0 = next.map_or(Place::Start, Place::Hash);
        }
        !matches!(self.0, Place::Start)
    }
}

/// A value with its key and metadata.
#[derive(Clone, Copy)]
struct Put<'a> {
    key: &'a [u8],
    value: &'a [u8],
    meta: Meta,
    shard: NonZeroU16,
}

impl Session {
    /// Prefetches the memory that installing these keys soon will read: their buckets, and then the
    /// entries that are probably theirs. A hint: omitting it costs only time.
    pub fn foresee(&self, keys: &[(KeyHash, &[u8])]) {
        let Session { inner, local } = self;
        if inner.tree.is_some() {
            return;
        }
        for (hash, _) in keys {
            prefetch::line_by(local.prefetch, inner.index.address(inner.index.head_of(*hash)));
        }
        keys.iter().for_each(|(hash, key)| prefetch_likely_entry(inner, *hash, key));
    }

    /// Installs `replica`, unless the key has an entry with as high a version.
    ///
    /// # Errors
    /// There is no space, or the log cannot be written.
    pub fn install(
        &mut self,
        now: UnixMillis,
        replica: &Replica<'_>,
    ) -> Result<Installed, NotInstalled> {
        let Session { inner, local } = self;
        debug_assert!(local.held.is_empty(), "under locks it is `install_all`");
        let durable = inner.durable.clone();
        if let Some(durable) = &durable {
            if durable.is_refusing() {
                return Err(NotInstalled::Unwritable);
            }
            durable.begin(local.place);
        }
        let installed = install_one(local, inner, now, replica);
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
        settle_chunk(local, inner, 1);
        reclaim_in_step(local, inner, now);
        local.nodes.keep_few(inner);
        if let Some(durable) = &durable {
            durable.end(local.place);
        }
        local.publish_counts(inner);
        installed
    }

    /// Installs replicas of several keys, in their order, and reports the result of each as
    /// [`Session::install`] would. [`Session::read_snapshot`] sees all of them or none (K11):
    /// without room for all, none is installed. Only what the index has no place for, in a store
    /// that is full, follows behind the others by itself.
    pub fn install_all(
        &mut self,
        now: UnixMillis,
        replicas: &[Replica<'_>],
        mut report: impl FnMut(usize, Result<Installed, NotInstalled>),
    ) {
        let hashes: Vec<KeyHash> = replicas.iter().map(|replica| replica.hash).collect();
        // What only deletes is given the room of deletes.
        let is_put = |replica: &Replica<'_>| matches!(replica.change, ReplicaChange::Put { .. });
        let room = match replicas.iter().any(is_put) {
            true => Room::of(replicas.iter().map(Replica::entry_len_max_bytes)),
            false => Room::default(),
        };
        let mut locked = lock_keys(self, now, &hashes, room);
        let mut left = Vec::new();
        for (index, replica) in replicas.iter().enumerate() {
            match locked.install(now, replica) {
                Ok(installed) => report(index, Ok(installed)),
                Err(why) if !locked.has_room() => report(index, Err(why)),
                // It lacks a node of the index, which is made without the locks.
                Err(_) => left.push(index),
            }
        }
        drop(locked);
        for index in left {
            let replica = &replicas[index];
            // What a later delete of this key has left behind does not refuse it (R2).
            let later = replicas[index + 1..].iter().find(|later| later.key == replica.key);
            let installed = match later {
                Some(later) => Ok(Installed::Older { present: later.version }),
                None => self.install(now, replica),
            };
            report(index, installed);
        }
    }

    /// Does a bounded step of a walk that removes the entries for which `is_gone` returns true,
    /// given their shards and versions; true: there is more to walk. The removal is not recorded in
    /// a durable log: a caller that opens it again names the same shards
    /// ([`crate::durable::open_replicas`]), or sweeps again.
    pub fn sweep_step(&mut self, sweep: &mut Sweep, is_gone: impl Fn(u16, u64) -> bool) -> bool {
        let Session { inner, local } = self;
        let mut slots = Vec::new();
        let has_more = sweep.next_slots(inner, &mut slots);
        for slot in &slots {
            // SAFETY: the slot was read since this session's last quiescent point.
            let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
            if is_gone(entry.shard(), entry.version()) {
                remove_seen(local, inner, *slot, entry);
            }
        }
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
        local.retired.free_some(inner);
        local.publish_counts(inner);
        has_more
    }

    /// Counts items by shard from now on, for [`crate::Store::shard_item_count`]. No session writes
    /// meanwhile.
    pub fn count_shards(&mut self) {
        let Session { inner, local } = self;
        let counts = inner.shard_counts.get_or_init(ShardCounts::new);
        let (mut sweep, mut slots, mut has_more) = (Sweep::default(), Vec::new(), true);
        while has_more {
            slots.clear();
            has_more = sweep.next_slots(inner, &mut slots);
            for slot in &slots {
                // SAFETY: the slot was read since this session's last quiescent point.
                let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
                counts.add(entry.shard(), u64::from(entry.shard() != 0));
            }
            inner.epochs.quiesce(local.place);
        }
    }
}

/// Installs a replica, under a lock that the session holds or takes.
pub(super) fn install_one(
    local: &mut Local,
    inner: &Arc<Inner>,
    now: UnixMillis,
    replica: &Replica<'_>,
) -> Result<Installed, NotInstalled> {
    let Replica { key, hash, version, shard, .. } = *replica;
    let call = Call { inner, now, request_index: 0, guess: NO_GUESS };
    match replica.change {
        ReplicaChange::Put { value, client_flags, expires_at } => {
            let meta = Meta { version, client_flags, expires_at };
            install_put(local, call, hash, Put { key, value, meta, shard })
        }
        ReplicaChange::Delete => install_delete(local, inner, now, replica),
    }
}

fn install_put(
    local: &mut Local,
    call: Call<'_>,
    hash: KeyHash,
    put: Put<'_>,
) -> Result<Installed, NotInstalled> {
    loop {
        let installed = try_install(local, call, hash, put);
        if !local.nodes.is_short() || !has_nodes_now(local, call.inner, call.now) {
            return installed;
        }
    }
}

fn try_install(
    local: &mut Local,
    call: Call<'_>,
    hash: KeyHash,
    Put { key, value, meta, shard }: Put<'_>,
) -> Result<Installed, NotInstalled> {
    let Call { inner, now, .. } = call;
    let len_bytes = value.len();
    if !inner.fits(key.len(), len_bytes) {
        let max_bytes = inner.value_max_bytes(key.len());
        return Err(NotInstalled::TooLarge { len_bytes: len_bytes as u64, max_bytes });
    }
    let full = Err(NotInstalled::OutOfMemory { len_bytes });
    let expires = meta.expires_at.is_some();
    // Never in place: its version belongs to its value for good.
    let shape = Shape::new(key.len(), len_bytes, meta.client_flags, expires).at_rest();
    local.nodes.prepare(inner);
    let queue = queue_for(local, call, hash);
    let reserved = local
        .reserve_open(inner, shape.len_bytes(), queue)
        .or_else(|| local.reserve_with_room(inner, now, shape.len_bytes(), queue));
    let Some(reservation) = reserved else { return full };
    Appender::fill(&inner.log, &reservation, shape, key, value);
    let body_crc = body_checksum(shape, key, value);
    let tag = Tag::of(hash);
    let mut chain = local.held.lock_chain(inner, hash);
    let found = find_locked(inner, &chain, NO_GUESS, tag, key);
    let present = found.map_or(0, |(_, entry)| entry.version());
    if present >= meta.version {
        drop(chain);
        local.appenders.cancel(&inner.log, Some(reservation));
        return Ok(Installed::Older { present });
    }
    let header = Header::with_kind(Kind::Put, shape, meta, shard.get(), body_crc);
    Appender::write_header(&inner.log, &reservation, &header);
    match local.publish(inner, &mut chain, tag, found, &reservation, meta) {
        Ok(_) => {
            if let Some(counts) = inner.shard_counts.get() {
                counts.add(shard.get(), 1);
            }
            chain.finish_with(meta.version);
            Ok(Installed::Newest)
        }
        Err(IndexFull) => {
            drop(chain);
            local.appenders.cancel(&inner.log, Some(reservation));
            local.tally.counts.out_of_memory += 1;
            full
        }
    }
}

fn install_delete(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    replica: &Replica<'_>,
) -> Result<Installed, NotInstalled> {
    let Replica { key, hash, version, shard, .. } = *replica;
    let (mut chain, found) = loop {
        let chain = local.held.lock_chain(inner, hash);
        let found = find_locked(inner, &chain, NO_GUESS, Tag::of(hash), key);
        let present = found.map_or(0, |(_, entry)| entry.version());
        if present >= version {
            return Ok(Installed::Older { present });
        }
        // Written whether the key existed or not: an older entry may still come (R2).
        if write_delete(local, inner, key, (version, shard.get()), Purpose::Delete) {
            break (chain, found);
        }
        drop(chain);
        if !make_room_for_delete(local, inner, now, key.len()) {
            return Err(NotInstalled::OutOfMemory { len_bytes: 0 });
        }
    };
    if let Some((position, entry)) = found {
        local.unlink_bare(inner, &mut chain, position, entry);
        local.changes.changed(key);
    }
    chain.finish_with(version);
    Ok(Installed::Newest)
}

/// Removes the entry that `seen` named, if its key still has it.
fn remove_seen(local: &mut Local, inner: &Inner, seen: Slot, entry: Entry<'_>) {
    let hash = inner.hasher.hash(entry.key());
    let mut chain = local.held.lock_chain(inner, hash);
    let found = match &inner.tree {
        None => chain.find_entry(Tag::of(hash), seen.offset_bytes()),
        Some(tree) => find_ordered_entry(inner, tree, entry.key(), seen.offset_bytes()),
    };
    if let Some(position) = found {
        local.unlink_bare(inner, &mut chain, position, entry);
        local.changes.gone(entry.key());
        chain.finish();
    }
}
