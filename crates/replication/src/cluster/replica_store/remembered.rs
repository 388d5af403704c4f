//! What is remembered of a shard beside the store: which deletes still have to keep older entries
//! away, and which versions are not yet known to be on all copies.
//!
//! ```text
//!  version   5      7        8      9        12
//!            put a  del b    put c  put a    del d         CommitVer is 7
//!                   ^ guard: see `forget`                  ^ guard
//!                            └── recent: c, a, d ──┘       a promotion gathers these
//! ```
//!
//! # Invariants
//! M1: every delete above the version given to [`Remembered::forget`] has a guard, and so has every
//!     entry that may expire: once the index drops it, nothing there keeps older ones away (K2).
//! M2: every version above `recent_floor` that was installed is among the recent ones, unless the
//!     index is being walked for them (finding.rs).
//!
//! # Limits
//! Guards lie outside `--memory`, some 120 bytes and a key each. A full copy has as many as there
//! were deletes since the last CommitVer that it digested: at most those of one segment of landed
//! frames. A node that is being given a shard keeps all deletes of that time. Recent versions are
//! bounded, except those that a walk has found: a promotion needs all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cluster::Version;

use super::finding::Found;
use super::recent::Recent;

/// Bytes of recent keys of one shard; beyond that all of them are forgotten, and the index is
/// walked.
pub(super) const RECENT_MAX_BYTES: usize = 1 << 20;
/// Bytes of a recent version beside its key, roughly.
pub(super) const RECENT_BYTES: usize = 64;

/// What is remembered of one shard.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    guards: HashMap<Arc<[u8]>, Guard>,
    guards_by_version: BTreeMap<Version, Arc<[u8]>>,
    recent: Recent,
    /// See M2.
    recent_floor: Version,
    /// Above this version the index is being walked.
    finding: Option<Version>,
    /// Bytes that the findings of a walk may take beyond [`RECENT_MAX_BYTES`].
    found_bytes: usize,
    commit: Version,
    /// The version of the last flush: no entry at or below it exists.
    pub(super) floor: Version,
}

#[derive(Clone, Copy, Debug)]
struct Guard {
    version: Version,
    is_delete: bool,
}

impl Remembered {
    /// The version of a key that is not in the index, if it is known.
    pub(super) fn version_of(&self, key: &[u8]) -> Option<Version> {
        self.guard_of(key).map(|guard| guard.version)
    }

    /// The version of a key's delete.
    pub(super) fn delete_of(&self, key: &[u8]) -> Option<Version> {
        self.guard_of(key).filter(|guard| guard.is_delete).map(|guard| guard.version)
    }

    /// Most shards have none: then the key is not hashed.
    fn guard_of(&self, key: &[u8]) -> Option<&Guard> {
        if self.guards.is_empty() { None } else { self.guards.get(key) }
    }

    /// Notes an installed entry; `own_key`: the key, if the caller has it in an `Arc` already.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        own_key: Option<&Arc<[u8]>>,
        version: Version,
        why: Why,
    ) {
        if !self.guards.is_empty()
            && let Some(old) = self.guards.remove(key)
        {
            self.guards_by_version.remove(&old.version);
        }
        let is_delete = why == Why::Deleted;
        if is_delete || (why == Why::MayExpire && version > self.commit) {
            let own_key = own_key.map_or_else(|| Arc::from(key), Arc::clone);
            self.guards.insert(own_key.clone(), Guard { version, is_delete });
            self.guards_by_version.insert(version, own_key);
        }
        if version > self.finding.unwrap_or(self.recent_floor) {
            self.recent.add(version, key);
        }
        if self.recent_bytes() > RECENT_MAX_BYTES + self.found_bytes {
            self.lose_recent();
        }
    }

    fn recent_bytes(&self) -> usize {
        self.recent.key_bytes() + RECENT_BYTES * self.recent.count()
    }

    fn lose_recent(&mut self) {
        self.recent_floor = self.recent_floor.max(self.recent.last().unwrap_or_default());
        self.recent.clear();
        self.finding = None;
        self.found_bytes = 0;
    }

    /// The index is walked for versions above this one.
    pub(super) fn begin_finding(&mut self, floor: Version) {
        self.finding = Some(floor);
    }

    /// Whether the index is being walked.
    pub(super) fn is_finding(&self) -> bool {
        self.finding.is_some()
    }

    /// Ends the walk. Its findings are dropped if the recent versions were lost meanwhile.
    pub(super) fn end_finding(&mut self, mut found: Vec<Found>) {
        let Some(floor) = self.finding.take() else { return };
        let deletes = self.deletes_above(floor).map(|(version, key)| (version, Box::from(&**key)));
        found.extend(deletes);
        found.retain(|(version, _)| *version > floor);
        self.recent.merge(found);
        self.recent_floor = floor;
        self.found_bytes = self.recent_bytes();
    }

    /// Notes that entries up to this version exist that were not added here.
    pub(super) fn begin_above(&mut self, version: Version) {
        self.recent_floor = self.recent_floor.max(version);
    }

    /// Notes that all versions up to this one are on all copies.
    pub(super) fn commit(&mut self, version: Version) {
        self.commit = self.commit.max(version);
        self.recent.forget(version);
        self.recent_floor = self.recent_floor.max(version);
        self.finding = self.finding.map(|floor| floor.max(version));
        self.found_bytes = self.found_bytes.min(self.recent_bytes());
    }

    /// No entry older than guards up to this version will come.
    pub(super) fn forget(&mut self, through: Version) {
        while let Some(first) =
            self.guards_by_version.first_entry().filter(|first| *first.key() <= through)
        {
            self.guards.remove(&first.remove());
        }
    }

    /// Forgets all keys that have nothing newer than a flush.
    pub(super) fn flush(&mut self, version: Version) {
        self.floor = self.floor.max(version);
        self.forget(version);
    }

    /// Keys that may have entries above a version; none: only the index knows.
    pub(super) fn recent_above(
        &self,
        floor: Version,
    ) -> Option<impl Iterator<Item = (Version, &[u8])>> {
        let is_known = floor >= self.recent_floor && !self.is_finding();
        is_known.then(|| self.recent.above(floor))
    }

    /// Deletes above a version, in the order of their versions.
    pub(super) fn deletes_above(
        &self,
        floor: Version,
    ) -> impl Iterator<Item = (Version, &Arc<[u8]>)> {
        let above = (std::ops::Bound::Excluded(floor), std::ops::Bound::Unbounded);
        let guards = self.guards_by_version.range(above);
        let deletes = guards.filter(|(_, key)| self.delete_of(key).is_some());
        deletes.map(|(version, key)| (*version, key))
    }
}

/// Why a key is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is not known to be on all copies; the index has it until a newer entry comes.
    Recent,
    /// The index may drop it when it expires.
    MayExpire,
    /// It is not in the index.
    Deleted,
}
