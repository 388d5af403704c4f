//! Segments of a durable log whose last writer has left room in them: a start finds them, and
//! sessions go on in them before they take free ones. Otherwise each start of a killed server would
//! leave some that are nearly empty, and a log without free segments has none to put them together.
//!
//! ```text
//!  restored: | entries ~~~~ | room ........ |  ─▶ unfilled ─▶ Using: a session appends behind them
//!                                                       └ claimed by cleaning first: no candidate
//! ```
//!
//! # Invariants
//! U1: a segment is only taken from here if its row still describes the same used segment, and it
//!     is as young then as one that was free: a search that has seen it before starts again.

use super::super::table::{Contents, Queue, SegmentState};
use super::Allocator;

/// A candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfilled {
    segment: u32,
    /// The sequence of its row (U1).
    sequence: u64,
    used_bytes: u64,
}

impl Allocator {
    /// Adds a used single segment, less full than all that were added before.
    pub(crate) fn add_unfilled(&mut self, segment: u32) {
        let row = self.table.row(segment as usize);
        debug_assert!(row.state == SegmentState::Used && row.run_len == 1);
        let (sequence, used_bytes) = (row.sequence, row.used_bytes);
        self.unfilled.push(Unfilled { segment, sequence, used_bytes });
    }

    /// Takes a segment of `queue` with room for an entry of `len_bytes`, of a region if it has one;
    /// returns its contents as well. `is_over` returns true for one that nothing is to be added to.
    pub(crate) fn take_unfilled(
        &mut self,
        (len_bytes, segment_bytes): (u64, u64),
        (queue, region): (Queue, usize),
        is_over: impl Fn(u32) -> bool,
    ) -> Option<(u32, Contents)> {
        let table = &self.table;
        self.unfilled.retain(|it| {
            let row = table.row(it.segment as usize);
            let is_same = row.state == SegmentState::Used && row.sequence == it.sequence;
            is_same && !is_over(it.segment)
        });
        let range = self.regions.range(region);
        let fits = |it: &Unfilled| {
            let is_of_queue = table.row(it.segment as usize).queue == queue;
            is_of_queue && it.used_bytes + len_bytes <= segment_bytes
        };
        let is_near = |it: &Unfilled| range.contains(&it.segment) && fits(it);
        let near = self.unfilled.iter().rposition(is_near);
        let at = near.or_else(|| self.unfilled.iter().rposition(fits))?;
        let Unfilled { segment, .. } = self.unfilled.remove(at);
        Some((segment, self.table.reopen(segment))) // U1
    }

    /// The segments of an earlier life in which a session could go on.
    pub(crate) fn unfilled_count(&self) -> u32 {
        self.unfilled.len() as u32
    }
}
