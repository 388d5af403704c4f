//! Forgetting a shard: its entries leave the index step by step, while others are served (S2).
//!
//! ```text
//!  clear ─▶ next ─▶ now ─ a walk over the whole index ─▶ gone; what waited is installed
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::ShardId;
use cluster::record::Entry;
use store::Sweep;

use super::State;

/// Shards whose entries are being removed.
#[derive(Default)]
pub(super) struct Clearing {
    sweep: Sweep,
    /// Those that this walk removes from its beginning on, by the numbers that they had, ...
    now: BTreeMap<ShardId, u16>,
    /// ... and those that the next one will.
    next: BTreeMap<ShardId, u16>,
    /// What came for them meanwhile.
    pub(super) waiting: Vec<Arc<Entry>>,
}

impl Clearing {
    pub(super) fn has(&self, shard: ShardId) -> bool {
        self.now.contains_key(&shard) || self.next.contains_key(&shard)
    }
}

impl State {
    pub(super) fn clear(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.clearing.waiting.retain(|entry| entry.shard != shard);
        if self.clearing.has(shard) {
            return; // Nothing was installed since.
        }
        let number = self.numbers.of(shard).get();
        if self.used.remove(&shard) {
            self.void(shard);
        }
        if self.store.shard_item_count(number) > 0 {
            self.clearing.next.insert(shard, number);
        }
    }

    /// Whatever the log has of a shard does not count any more.
    fn void(&mut self, shard: ShardId) {
        let Some(keep) = &mut self.keep else { return };
        self.is_broken |= !self.kept.void(shard);
        // A disk that is full has room again later: `StoreShelf::keep` is tried each second.
        self.is_unkept |= keep(&self.kept.encode()).is_err();
        let number = self.kept.number_of(shard);
        self.numbers.0[shard.index()].store(number, Ordering::Relaxed);
    }

    pub(super) fn clear_step(&mut self) -> bool {
        if self.clearing.now.is_empty() {
            self.clearing.now = std::mem::take(&mut self.clearing.next);
        }
        if self.clearing.now.is_empty() {
            return false;
        }
        let Clearing { sweep, now, .. } = &mut self.clearing;
        let is_gone = |number: u16| now.values().any(|gone| *gone == number);
        if self.session.sweep_step(sweep, is_gone) {
            return true;
        }
        self.clearing.sweep = Sweep::default();
        self.clearing.now.clear();
        let (next, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.clearing.waiting)
            .into_iter()
            .partition(|entry| self.clearing.has(entry.shard));
        self.clearing.waiting = next;
        for entry in waiting {
            self.install(&entry.as_plain(), Some(&entry.key));
        }
        !self.clearing.next.is_empty()
    }
}
