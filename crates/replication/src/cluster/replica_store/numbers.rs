//! Shard numbers, for threads other than the control thread: a shard's key count.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use cluster::ShardId;
use store::Store;

/// The number by which the store knows each shard, for any thread. The second field: the version up
/// to which all of a shard was flushed.
pub struct ShardNumbers(pub(super) Box<[AtomicU16]>, pub(super) Box<[AtomicU64]>);

impl ShardNumbers {
    pub(super) fn of(&self, shard: ShardId) -> NonZeroU16 {
        // Relaxed: the callers only count with it.
        let number = self.0.get(shard.index()).map_or(1, |number| number.load(Ordering::Relaxed));
        NonZeroU16::new(number).unwrap_or(NonZeroU16::MIN)
    }

    /// The number of keys of a shard, including expired ones that are still in the index (DBSIZE).
    pub fn key_count(&self, store: &Store, shard: ShardId) -> u64 {
        store.shard_item_count(self.of(shard).get())
    }
}
