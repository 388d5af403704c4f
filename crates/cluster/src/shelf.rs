//! Where a node keeps the entries of its shards: an index over its logs.
//!
//! The server's shelf is the store; this module has one in plain maps, for tests and simulation.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::ids::{ShardId, Version};
use crate::record::Entry;

/// Entries by shard and key: the newest of each key, deletes among them (K2).
pub trait Shelf {
    /// The newest entry of a key.
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>>;

    /// Adds an entry unless a newer one of its key is there; whether it was added.
    fn install(&mut self, entry: Arc<Entry>) -> bool;

    /// All entries of a shard above a version.
    fn above(&self, shard: ShardId, floor: Version) -> Vec<Arc<Entry>>;

    /// At most so many entries of a shard, in a fixed order, from after that key.
    fn part(&self, shard: ShardId, after: Option<&[u8]>, entry_max: usize) -> Vec<Arc<Entry>>;

    /// Forgets a shard.
    fn clear(&mut self, shard: ShardId);
}

/// A shelf of plain maps.
#[derive(Clone, Debug, Default)]
pub struct MemoryShelf {
    shards: BTreeMap<ShardId, BTreeMap<Arc<[u8]>, Arc<Entry>>>,
}

impl MemoryShelf {
    /// Puts an entry in the place of its key's, whatever the versions: for tests that break things.
    pub fn replace(&mut self, entry: Arc<Entry>) {
        self.shards.entry(entry.shard).or_default().insert(entry.key.clone(), entry);
    }
}

impl Shelf for MemoryShelf {
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.shards.get(&shard)?.get(key).cloned()
    }

    fn install(&mut self, entry: Arc<Entry>) -> bool {
        let keys = self.shards.entry(entry.shard).or_default();
        let is_newer = keys.get(&entry.key).is_none_or(|present| present.version < entry.version);
        if is_newer {
            keys.insert(entry.key.clone(), entry);
        }
        is_newer
    }

    fn above(&self, shard: ShardId, floor: Version) -> Vec<Arc<Entry>> {
        let Some(keys) = self.shards.get(&shard) else { return Vec::new() };
        keys.values().filter(|entry| entry.version > floor).cloned().collect()
    }

    fn part(&self, shard: ShardId, after: Option<&[u8]>, entry_max: usize) -> Vec<Arc<Entry>> {
        let Some(keys) = self.shards.get(&shard) else { return Vec::new() };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = keys.range::<[u8], _>((start, Bound::Unbounded));
        range.take(entry_max).map(|(_, entry)| entry.clone()).collect()
    }

    fn clear(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
    }
}
