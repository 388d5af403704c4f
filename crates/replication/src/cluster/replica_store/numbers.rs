//! Shard numbers, for threads other than the control thread: a shard's key count and the keys of a
//! slot.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use base::UnixMillis;
use cluster::{ShardId, Slot};
use store::{Session, Store};

use super::SCAN_ITEMS;

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

    /// At most `key_max` keys of a slot, by a walk over the whole store (CLUSTER GETKEYSINSLOT);
    /// the total number comes first (CLUSTER COUNTKEYSINSLOT).
    pub fn keys_in_slot(
        &self,
        session: &mut Session,
        now: UnixMillis,
        (slot, shard): (Slot, ShardId),
        key_max: usize,
    ) -> (u64, Vec<Vec<u8>>) {
        let number = self.of(shard).get();
        let floor = self.1.get(shard.index()).map_or(0, |floor| floor.load(Ordering::Relaxed));
        let (mut cursor, mut count, mut keys) = (0, 0, BTreeSet::new());
        loop {
            let next = session.scan(now, cursor, SCAN_ITEMS, |item| {
                if item.shard == number && item.version > floor && Slot::of(item.key) == slot {
                    count += 1;
                    if keys.len() < key_max {
                        keys.insert(item.key.to_vec());
                    }
                }
            });
            match next {
                Ok(0) | Err(_) => return (count, keys.into_iter().collect()),
                Ok(next) => cursor = next,
            }
        }
    }
}
