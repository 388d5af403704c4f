//! A session's counts: items and their bytes, for statistics, for reclaiming and for the index's
//! size.
//!
//! ```text
//!  entry published ─▶ add      counts ─publish─▶ the session's place in `Inner::counts`
//!  entry unlinked ──▶ remove   items ──settle──▶ the index, which grows or shrinks
//! ```
//!
//! # Invariants
//! C1: an item that comes or goes is reported to the index once: `unsettled` has what was published
//!     and not yet reported, `counts` the rest.

use index::hash::Position;

use crate::counters::Counts;
use crate::entry::Entry;
use crate::inner::Inner;
use crate::log::Lane;

/// What one session counts.
pub(super) struct Tally {
    /// The lane in which it counts live bytes.
    pub lane: Lane,
    /// The counts since they were last published.
    pub counts: Counts,
    /// Items added minus those removed since the index was told, except those in `counts` (C1).
    unsettled: i64,
}

impl Tally {
    pub(super) fn new(lane: Lane) -> Tally {
        Tally { lane, counts: Counts::default(), unsettled: 0 }
    }

    /// Counts a published entry.
    #[inline]
    pub(super) fn add(&mut self, len_bytes: usize, has_expiry: bool) {
        self.counts.items = self.counts.items.wrapping_add(1);
        self.counts.entry_bytes = self.counts.entry_bytes.wrapping_add(len_bytes as u64);
        if has_expiry {
            self.counts.items_with_expiry = self.counts.items_with_expiry.wrapping_add(1);
        }
    }

    /// Counts an entry that has left the index.
    #[inline]
    pub(super) fn remove(&mut self, inner: &Inner, position: Position, entry: Entry<'_>) {
        let len_bytes = entry.len_bytes();
        inner.log.sub_live(self.lane, position.slot.offset_bytes(), len_bytes);
        self.counts.items = self.counts.items.wrapping_sub(1);
        self.counts.entry_bytes = self.counts.entry_bytes.wrapping_sub(len_bytes as u64);
        if entry.has_expiry() {
            self.counts.items_with_expiry = self.counts.items_with_expiry.wrapping_sub(1);
        }
        if entry.shard() != 0
            && let Some(counts) = inner.shard_counts.get()
        {
            counts.remove(entry.shard());
        }
    }

    /// Publishes the counts for the session of a place.
    #[inline]
    pub(super) fn publish(&mut self, inner: &Inner, place: usize) {
        self.unsettled = self.unsettled.wrapping_add(self.counts.items.cast_signed());
        inner.counts[place].publish(&mut self.counts);
    }

    /// The items of which the index does not know yet.
    #[inline]
    pub(super) fn unsettled_items(&self) -> i64 {
        self.unsettled.wrapping_add(self.counts.items.cast_signed())
    }

    /// The same, of those that were published.
    pub(super) fn unsettled_published(&self) -> i64 {
        self.unsettled
    }

    /// Reports the changed number of items to the index; returns whether it should be resized.
    pub(super) fn settle(&mut self, inner: &Inner) -> bool {
        let net = self.unsettled_items();
        // The changes in `counts` are added again when they are published.
        self.unsettled = self.counts.items.cast_signed().wrapping_neg();
        inner.index.count_items(net)
    }
}
