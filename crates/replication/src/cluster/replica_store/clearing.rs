//! Clearing a shard: its entries leave the index step by step, while other shards are served (S2).
//!
//! ```text
//!  clear ─▶ next ─▶ now ─ a walk over the whole index ─▶ gone; waiting entries are installed
//!            └ its voiding is written down: one write for all shards of a configuration
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::record::Entry;
use cluster::{Installed, ShardId, Version};
use store::Sweep;

use super::State;

/// Shards whose entries are being removed.
#[derive(Default)]
pub(super) struct Clearing {
    sweep: Sweep,
    /// Shards that this walk removes from its beginning on, by their old numbers, ...
    now: BTreeMap<ShardId, u16>,
    /// ... and those that the next walk will remove.
    next: BTreeMap<ShardId, u16>,
    /// Shards of which only entries at or below a version are removed: in this walk, ...
    flushing_now: BTreeMap<ShardId, (u16, Version)>,
    /// ... and in the next one.
    flushing_next: BTreeMap<ShardId, (u16, Version)>,
    /// By number: up to which version this walk removes.
    gone: HashMap<u16, u64>,
    /// Entries that arrived for them meanwhile.
    pub(super) waiting: Vec<Arc<Entry>>,
    /// Some of these may be installed now.
    has_late: bool,
}

impl Clearing {
    pub(super) fn has(&self, shard: ShardId) -> bool {
        self.now.contains_key(&shard) || self.next.contains_key(&shard)
    }

    /// Whether no entry of the shard is left to remove, or to install late.
    pub(super) fn is_over(&self, shard: ShardId) -> bool {
        !self.has(shard) && self.waiting.iter().all(|entry| entry.shard != shard)
    }

    pub(super) fn is_flushing(&self, shard: ShardId) -> bool {
        self.flushing_now.contains_key(&shard) || self.flushing_next.contains_key(&shard)
    }

    pub(super) fn flush(&mut self, shard: ShardId, number: u16, version: Version) {
        self.flushing_next.insert(shard, (number, version));
    }

    /// Begins the next walk. Returns false if there is nothing to do.
    fn begin(&mut self) -> bool {
        self.now = std::mem::take(&mut self.next);
        self.flushing_now = std::mem::take(&mut self.flushing_next);
        let cleared = self.now.values().map(|number| (*number, u64::MAX));
        let flushed = self.flushing_now.values().map(|(number, it)| (*number, it.bits()));
        self.gone = flushed.chain(cleared).collect();
        !self.gone.is_empty()
    }
}

impl State {
    pub(super) fn clear(&mut self, shard: ShardId) {
        self.recall(shard);
        self.shards.remove(&shard);
        self.clearing.waiting.retain(|entry| entry.shard != shard);
        self.clearing.flushing_next.remove(&shard);
        if self.clearing.has(shard) {
            return; // Nothing was installed since.
        }
        let number = self.numbers.of(shard).get();
        let is_void = self.used.remove(&shard) && self.void(shard);
        // Relaxed: as for all numbers.
        let floor = self.numbers.1.get(shard.index());
        floor.into_iter().for_each(|floor| floor.store(0, Ordering::Relaxed));
        // A walk for a flush would remove the newly installed entries.
        let is_walked = self.clearing.flushing_now.contains_key(&shard);
        if is_void || is_walked || self.store.shard_item_count(number) > 0 {
            self.clearing.next.insert(shard, number);
        }
    }

    /// Makes all entries of a shard in the log void, once that is written down (S3). Returns false
    /// if nothing outlives this node.
    fn void(&mut self, shard: ShardId) -> bool {
        let Some(keeping) = &mut self.keeping else { return false };
        self.is_broken |= !self.kept.void(shard);
        self.void_change = keeping.change();
        let number = self.kept.number_of(shard);
        self.numbers.0[shard.index()].store(number, Ordering::Relaxed);
        true
    }

    pub(super) fn clear_step(&mut self) -> bool {
        let more = self.walk_step();
        if self.clearing.has_late {
            self.install_waiting();
        }
        more
    }

    fn walk_step(&mut self) -> bool {
        let is_kept = self.keeping.as_ref().is_none_or(|keeping| keeping.has(self.void_change));
        if self.clearing.gone.is_empty() && !(is_kept && self.clearing.begin()) {
            return false; // The completed write wakes this thread.
        }
        let Clearing { sweep, gone, .. } = &mut self.clearing;
        let is_gone =
            |number: u16, version| gone.get(&number).is_some_and(|through| version <= *through);
        if self.session.sweep_step(sweep, is_gone) {
            return true;
        }
        self.clearing.sweep = Sweep::default();
        self.clearing.gone.clear();
        self.clearing.now.clear();
        self.has_flushed |= !self.clearing.flushing_now.is_empty();
        self.clearing.flushing_now.clear();
        self.clearing.has_late = !self.clearing.waiting.is_empty();
        !self.clearing.next.is_empty() || !self.clearing.flushing_next.is_empty()
    }

    /// Installs the entries that arrived for shards that are cleared by now. They were
    /// acknowledged: from the first one without room on, they continue to wait (S4).
    fn install_waiting(&mut self) {
        let mut has_room = true;
        for entry in std::mem::take(&mut self.clearing.waiting) {
            has_room = has_room && (self.clearing.has(entry.shard) || self.install_late(&entry));
            if !has_room || self.clearing.has(entry.shard) {
                self.clearing.waiting.push(entry);
            }
        }
        self.clearing.has_late = !has_room;
    }

    /// Installs a late entry; returns whether there was room for it.
    fn install_late(&mut self, entry: &Arc<Entry>) -> bool {
        match entry.is_flush {
            true if entry.version <= self.floor(entry.shard) => true,
            true => self.flush(entry.shard, entry.version) != Installed::NoRoom,
            false => self.install(&entry.as_plain(), Some(&entry.key)) != Installed::NoRoom,
        }
    }
}
