//! The replica store: the node's store of the entries of its shards, an index over its logs.
//!
//! ```text
//!  install ─▶ newest of each key ─▶ get, part         what clients and joining nodes are given
//!                  │
//!                  └ above CommitVer ─▶ above         what a promotion gathers
//!  commit, forget_deletes: CommitVer has grown, so less has to be kept for that
//! ```
//!
//! The server's replica store is the store crate; this module has one in plain maps, for tests and
//! simulation.
//!
//! A replica store may hand landed entries to threads of its own, which install them later:
//!
//! ```text
//!  take_in ─▶ Later ─▶ in the index ─▶ take_done: Done ─▶ acknowledged
//!                        ▲ other requests of the shard are answered behind this
//! ```
//!
//! # Invariants
//! S1: of a key's entries the one with the highest version counts, deletes among them, until
//!     [`ReplicaStore::forget_deletes`] is told that no older entry can come (K2).
//! S2: a walk by [`ReplicaStore::part`] returns every key that is present from beginning to end
//!     (K9).
//! S3: once a flush entry is installed, no entry of its shard with a lower version is there, and
//!     none is installed until the shard is cleared. The flush is among the entries that
//!     [`ReplicaStore::above`] returns, and is never forgotten.
//! S4: entries answered [later](Installed::Later) are installed in the order in which they came,
//!     within a shard. Every other request for that shard sees them installed, or refused.
//! S5: an entry that follows another one of its frame is refused if that one was: it may have been
//!     computed on it, and no copy has the later one alone (N5 of the node).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{ShardId, Version};
use crate::message::{Hold, Lane};
use crate::record::{BlockId, Entry, Plain, Session};

/// Entries by shard and key (S1).
pub trait ReplicaStore {
    /// The newest entry of a key.
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>>;

    /// Adds an entry unless a newer one of its key is there.
    fn install(&mut self, entry: Arc<Entry>) -> Installed;

    /// Like [`ReplicaStore::install`], for the entries of a group, in their order: readers of
    /// several keys see all of them or none (K11). `NoRoom`: some may be missing, and all are
    /// installed again later.
    fn install_all(&mut self, entries: &[Arc<Entry>]) -> Installed {
        let mut installed = entries.iter().map(|entry| self.install(entry.clone()));
        installed.find(|one| *one == Installed::NoRoom).unwrap_or(Installed::Newest)
    }

    /// Like [`ReplicaStore::install`], for a borrowed entry that no other caller needs.
    fn install_plain(&mut self, plain: &Plain<'_>) -> Installed {
        self.install(Arc::new(plain.to_entry()))
    }

    /// Like [`ReplicaStore::install_plain`], for an entry of the block that landed as described.
    /// Only this and [`ReplicaStore::take_in_entry`] may answer [`Installed::Later`].
    fn take_in(&mut self, _landed: Landed, plain: &Plain<'_>) -> Installed {
        self.install_plain(plain)
    }

    /// Like [`ReplicaStore::install`], for an entry that the landed block completed.
    fn take_in_entry(&mut self, _landed: Landed, entry: &Arc<Entry>) -> Installed {
        self.install(entry.clone())
    }

    /// Waits until all deferred installs are finished.
    fn finish(&mut self) {}

    /// The deferred installs that have finished since the last call.
    fn take_done(&mut self, _done: &mut Vec<Done>) {}

    /// Whether this replica store is the node's log: an installed entry is on the medium with the
    /// next requested sync, and the node appends nothing of its own. In this case an entry is
    /// acknowledged once it is installed, so the replica store may refuse entries that it has no
    /// room for.
    fn is_log(&self) -> bool {
        false
    }

    /// Remembers an answer to a client; only called if the replica store is the log (K24).
    fn remember(&mut self, _session: &Session) {}

    /// Entries of a shard above a version, in the order of their versions, about `entry_max` of
    /// them; cheap if the version is the last one passed to `commit`. None: the replica store has
    /// to look for them first, between the node's inputs, and the node asks again.
    fn above(&self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above>;

    /// About `entry_max` entries of a shard from a cursor on, which is 0 for the beginning;
    /// remembered deletes are among them. The part may be empty although there are more.
    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> Part;

    /// Drops all entries of a shard.
    fn clear(&mut self, shard: ShardId);

    /// Whether everything that a `clear` of the shard dropped is gone: before that a node takes no
    /// copy of it.
    fn is_ready(&self, _shard: ShardId) -> bool {
        true
    }

    /// Everything of a shard up to this version is on all copies: [`ReplicaStore::above`] will not
    /// be called with a lower version, except by a node that restarts.
    fn commit(&mut self, shard: ShardId, version: Version);

    /// Books the memory for assembling an entry of this length; none: there is no room, and the
    /// landed block is not acknowledged, so that its sender lands it again.
    fn try_hold(&self, _bytes: u64) -> Option<Hold> {
        Some(Hold::default())
    }

    /// Allows deletes of a shard up to this version to be forgotten: no older entry will be
    /// installed.
    fn forget_deletes(&mut self, shard: ShardId, through: Version);
}

/// The result of installing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The entry is now the newest of its key.
    Newest,
    /// The key has a newer entry.
    Older,
    /// The entry is not installed, for lack of space. Only if the replica store is the log.
    NoRoom,
    /// Another thread installs it; [`ReplicaStore::take_done`] reports the result.
    Later,
}

/// How an entry landed: the block of it that came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The lane.
    pub lane: Lane,
    /// The block.
    pub block: BlockId,
    /// Whether the replica store was given another entry of the same frame just before (S5).
    pub follows: bool,
}

/// The result of a [deferred](Installed::Later) install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// How the entry landed.
    pub landed: Landed,
    /// The entry, if it came with bytes of its own.
    pub entry: Option<Arc<Entry>>,
    /// Whether the replica store has the entry, or a newer one; otherwise it had no room.
    pub is_there: bool,
}

/// Entries above a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Above {
    /// The entries, in the order of their versions.
    pub entries: Vec<Arc<Entry>>,
    /// There may be more entries above this version; none: these are all.
    pub next: Option<Version>,
}

/// A part of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its entries.
    pub entries: Vec<Arc<Entry>>,
    /// The cursor of the next part; none: this is the last.
    pub next: Option<u64>,
}

/// A replica store of plain maps.
#[derive(Clone, Debug, Default)]
pub struct MemoryReplicaStore {
    shards: BTreeMap<ShardId, BTreeMap<Place, Arc<Entry>>>,
    /// The last flush of each shard (S3).
    flushes: BTreeMap<ShardId, Arc<Entry>>,
}

/// A key's place in the order of parts.
type Place = (u64, Arc<[u8]>);

impl MemoryReplicaStore {
    /// Replaces the key's entry by this one, whatever the versions: for tests that break
    /// invariants.
    pub fn replace(&mut self, entry: Arc<Entry>) {
        self.shards.entry(entry.shard).or_default().insert(place_of(&entry.key), entry);
    }

    /// All entries of a shard above a version, in the order of their versions.
    pub fn all_above(&self, shard: ShardId, floor: Version) -> Vec<Arc<Entry>> {
        let keys = self.shards.get(&shard).into_iter().flat_map(|keys| keys.values());
        let all = keys.chain(self.flushes.get(&shard));
        let mut above: Vec<_> = all.filter(|entry| entry.version > floor).cloned().collect();
        above.sort_by_key(|entry| entry.version);
        above
    }

    /// Forgets a shard's flush but keeps its keys: for tests that break invariants.
    pub fn forget_flush(&mut self, shard: ShardId) {
        self.flushes.remove(&shard);
    }

    /// Applies a flush (S3).
    fn flush(&mut self, flush: Arc<Entry>) -> Installed {
        if let Some(keys) = self.shards.get_mut(&flush.shard) {
            keys.retain(|_, entry| entry.version > flush.version);
        }
        self.flushes.insert(flush.shard, flush);
        Installed::Newest
    }
}

impl ReplicaStore for MemoryReplicaStore {
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.shards.get(&shard)?.get(&place_of(&key.into())).cloned()
    }

    fn install(&mut self, entry: Arc<Entry>) -> Installed {
        let flush = self.flushes.get(&entry.shard);
        if flush.is_some_and(|flush| flush.version >= entry.version) {
            return Installed::Older;
        }
        if entry.is_flush {
            return self.flush(entry);
        }
        let keys = self.shards.entry(entry.shard).or_default();
        let place = place_of(&entry.key);
        if keys.get(&place).is_some_and(|present| present.version >= entry.version) {
            return Installed::Older;
        }
        keys.insert(place, entry);
        Installed::Newest
    }

    fn above(&self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above> {
        let mut entries = self.all_above(shard, floor);
        let is_cut = entries.len() > entry_max.max(1);
        entries.truncate(entry_max.max(1));
        let next = entries.last().filter(|_| is_cut).map(|last| last.version);
        Some(Above { entries, next })
    }

    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        let mut part = Part::default();
        let start: Place = (cursor, Arc::default());
        let keys = self.shards.get(&shard).into_iter();
        for ((order, _), entry) in keys.flat_map(|keys| keys.range(start.clone()..)) {
            // Keys with the same order value stay together: a cursor cannot stand between them.
            let is_same = part.entries.last().is_some_and(|last| order_of(&last.key) == *order);
            if part.entries.len() >= entry_max.max(1) && !is_same {
                part.next = Some(*order);
                break;
            }
            part.entries.push(entry.clone());
        }
        if cursor == 0 {
            part.entries.extend(self.flushes.get(&shard).cloned());
        }
        part
    }

    fn clear(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.flushes.remove(&shard);
    }

    fn commit(&mut self, _shard: ShardId, _version: Version) {}

    fn forget_deletes(&mut self, shard: ShardId, through: Version) {
        if let Some(keys) = self.shards.get_mut(&shard) {
            keys.retain(|_, entry| entry.value.is_some() || entry.version > through);
        }
    }
}

fn place_of(key: &Arc<[u8]>) -> Place {
    (order_of(key), key.clone())
}

/// FNV-1a: an order that is unrelated to the keys, like that of an index by hash.
fn order_of(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClientId;
    use crate::record::Answered;

    const SHARD: ShardId = ShardId(3);

    fn entry(key: &str, version: u64, value: Option<&str>) -> Arc<Entry> {
        Arc::new(Entry {
            shard: SHARD,
            version: Version::from_bits(version).unwrap(),
            client: ClientId(0),
            sequence: 0,
            answered: Answered::Done,
            key: key.as_bytes().into(),
            value: value.map(|value| value.as_bytes().into()),
            is_flush: false,
            client_flags: 0,
            expires_at: None,
        })
    }

    #[test]
    fn a_walk_by_parts_returns_what_stays_though_other_keys_come_and_go() {
        let mut replica_store = MemoryReplicaStore::default();
        for number in 0..100 {
            replica_store.install(entry(&format!("stays {number}"), number + 1, Some("v")));
        }
        let (mut cursor, mut seen) = (0, std::collections::BTreeSet::new());
        for step in 0.. {
            let part = replica_store.part(SHARD, cursor, 7);
            seen.extend(part.entries.iter().map(|entry| entry.key.clone()));
            replica_store.install(entry(&format!("comes {step}"), 1_000 + step, Some("v")));
            match part.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let stays = seen.iter().filter(|key| key.starts_with(b"stays")).count();
        assert_eq!(stays, 100);
    }

    #[test]
    fn a_delete_keeps_what_is_older_away_until_it_is_forgotten() {
        let mut replica_store = MemoryReplicaStore::default();
        assert_eq!(replica_store.install(entry("k", 7, None)), Installed::Newest);
        assert_eq!(replica_store.install(entry("k", 5, Some("old"))), Installed::Older);
        replica_store.forget_deletes(SHARD, Version::from_bits(6).unwrap());
        assert!(replica_store.get(SHARD, b"k").is_some());
        replica_store.forget_deletes(SHARD, Version::from_bits(7).unwrap());
        assert_eq!(replica_store.get(SHARD, b"k"), None);
    }
}
