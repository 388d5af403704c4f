//! Flushing a shard: older entries leave the index step by step, and no read sees them meanwhile.
//!
//! ```text
//!  install flush V ─▶ floor of the shard = V ─▶ written down before it counts as durable
//!                       ├─▶ get, part, above, install: entries at or below V do not exist
//!                       ├─▶ workers: ask the control thread until the index is swept
//!                       └─▶ a walk over the index removes the entries at or below V
//! ```
//!
//! # Invariants
//! F1: a floor outlives the entries below it in the log: it is kept until the shard's number
//!     changes.
//! F2: until the walk is over, the shard [is being flushed](ServerReplicaStore::is_flushing);
//!     workers that walk the index themselves ask the view for the floor.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::record::Entry;
use cluster::{Installed, ShardId, Version};

use super::{ServerReplicaStore, State};

impl ServerReplicaStore {
    /// Whether older entries of a shard are still in the index.
    pub fn is_flushing(&self, shard: ShardId) -> bool {
        self.state.borrow().clearing.is_flushing(shard)
    }

    /// The version of a shard's last flush.
    pub fn floor(&self, shard: ShardId) -> Version {
        self.state.borrow().floor(shard)
    }

    /// Whether a flush was begun or has ended since the last call.
    pub fn take_flushed(&self) -> bool {
        std::mem::take(&mut self.state.borrow_mut().has_flushed)
    }

    /// Whether all floors are written down: the log is not synced before (F1).
    pub fn has_kept_floors(&self) -> bool {
        let state = self.state.borrow();
        state.keeping.as_ref().is_none_or(|keeping| keeping.has(state.floor_change))
    }
}

impl State {
    pub(super) fn floor(&self, shard: ShardId) -> Version {
        // Relaxed: as for all numbers, which the control thread writes.
        let floor = self.numbers.1.get(shard.index());
        let bits = floor.map_or(0, |floor| floor.load(Ordering::Relaxed));
        Version::from_bits(bits).unwrap_or_default()
    }

    /// The shard's last flush as an entry; none: there was none above a version.
    pub(super) fn flush_above(&self, shard: ShardId, version: Version) -> Option<Arc<Entry>> {
        let floor = self.floor(shard);
        let flush = || Entry { is_flush: true, ..Entry::delete_of(shard, Arc::default(), floor) };
        (floor > version).then(|| Arc::new(flush()))
    }

    pub(super) fn flush(&mut self, shard: ShardId, version: Version) -> Installed {
        if self.takes_nothing() {
            return Installed::NoRoom;
        }
        self.recall(shard);
        self.shards.entry(shard).or_default().flush(version);
        self.has_flushed = true;
        if let Some(keeping) = &mut self.keeping {
            self.used.insert(shard);
            self.kept.set_floor(shard, version);
            self.floor_change = keeping.change();
        }
        self.sweep_below(shard, version);
        Installed::Newest
    }

    /// Removes all entries of the shard at or below the version from the index.
    pub(super) fn sweep_below(&mut self, shard: ShardId, version: Version) {
        let number = self.numbers.of(shard).get();
        if self.store.shard_item_count(number) > 0 {
            self.clearing.flush(shard, number, version);
        }
        // Relaxed: as for all numbers.
        let floor = self.numbers.1.get(shard.index());
        floor.into_iter().for_each(|floor| {
            floor.fetch_max(version.bits(), Ordering::Relaxed);
        });
    }
}
