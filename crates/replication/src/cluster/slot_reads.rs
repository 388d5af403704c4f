//! The reads that one worker has executed, by slots.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::Slot;
use cluster::slot::SLOT_COUNT;

/// Reads that one worker has executed, by slots; only that worker writes them.
pub struct SlotReads(Box<[AtomicU64]>);

/// Slots that are counted together.
pub const SLOTS_PER_COUNT: u16 = 16;

impl Default for SlotReads {
    fn default() -> SlotReads {
        SlotReads((0..SLOT_COUNT / SLOTS_PER_COUNT).map(|_| AtomicU64::new(0)).collect())
    }
}

impl SlotReads {
    /// Counts one read.
    #[inline]
    pub fn count(&self, slot: Slot) {
        let cell = &self.0[usize::from(slot.0 / SLOTS_PER_COUNT)];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The reads of the slots from `first` to `last`; counts at the edges are shared with their
    /// neighbours.
    pub fn sum(&self, first: Slot, last: Slot) -> u64 {
        let (first, last) = (first.0 / SLOTS_PER_COUNT, last.0 / SLOTS_PER_COUNT);
        let cells = &self.0[usize::from(first)..=usize::from(last)];
        cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_summed_over_a_shards_slots() {
        let reads = SlotReads::default();
        for slot in [0, 255, 256, 511, 512] {
            reads.count(Slot(slot));
        }
        assert_eq!(reads.sum(Slot(0), Slot(255)), 2);
        assert_eq!(reads.sum(Slot(256), Slot(511)), 2);
        assert_eq!(reads.sum(Slot(0), Slot(SLOT_COUNT - 1)), 5);
    }
}
