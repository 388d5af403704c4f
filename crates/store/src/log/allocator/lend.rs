//! Segments lent to the index. They come from the top, so that the log's own runs stay together
//! below. With several regions they come from the top of each region in turn, which spreads the
//! index over the NUMA nodes.
//!
//! # Invariants
//! I1: `count` is the number of rows in state Index. None is lent beyond `max`, which a shrinking
//!     log lowers.
//! I2: lending leaves the reserve to sessions that make room.

use std::ops::Range;

use super::super::table::SegmentState;
use super::{Allocator, Purpose};

/// The state of lending to the index.
pub(super) struct Lending {
    count: u32,
    max: u32,
    /// One past the highest segment that may be lent.
    end: u32,
    /// Whether a region has ever lent a segment.
    has_lent: Vec<bool>,
    /// The region whose turn it is.
    next_region: usize,
}

impl Lending {
    pub(super) fn none(region_count: usize) -> Lending {
        Lending { count: 0, max: 0, end: 0, has_lent: vec![false; region_count], next_region: 0 }
    }
}

impl Allocator {
    /// Allows up to `max` segments below `end` to be lent from now on.
    pub(crate) fn set_lending(&mut self, end: u32, max: u32) {
        self.lending.max = max;
        self.lending.end = end;
    }

    /// Like `set_lending`, with the same `end`.
    pub(crate) fn set_lending_max(&mut self, max: u32) {
        self.lending.max = max;
    }

    /// The number of segments lent to the index.
    pub(crate) fn lent_count(&self) -> u32 {
        self.lending.count
    }

    /// The segment that a region which has lent some would lend next.
    pub(super) fn next_lent(&self, region: usize) -> Option<usize> {
        let has_lent = self.lending.has_lent[region];
        has_lent.then(|| self.table.free().highest(self.lendable(region))).flatten()
    }

    fn lendable(&self, region: usize) -> Range<usize> {
        let Range { start, end } = self.regions.range(region);
        let end = end.min(self.lending.end).min(self.table.top());
        start as usize..(end as usize).max(start as usize)
    }

    /// Lends the highest free segment of the region whose turn it is, or of the next that has one.
    pub(crate) fn lend(&mut self) -> Option<u32> {
        if self.lending.count >= self.lending.max || self.available(Purpose::Write) == 0 {
            return None;
        }
        let region_count = self.regions.count();
        let turns = (0..region_count).map(|turn| (self.lending.next_region + turn) % region_count);
        let (region, segment) = turns
            .filter_map(|region| Some((region, self.table.free().highest(self.lendable(region))?)))
            .next()?;
        self.lending.next_region = (region + 1) % region_count;
        self.table.lend(segment);
        self.lending.count += 1;
        self.lending.has_lent[region] = true;
        self.note_touched(segment, 1);
        Some(segment as u32)
    }

    /// Takes a lent segment back: no thread can reach its lines any more.
    pub(crate) fn take_back(&mut self, segment: u32) {
        assert!(self.table.row(segment as usize).state == SegmentState::Index, "it was lent");
        self.lending.count -= 1;
        self.make_free(segment);
    }

    /// Recounts I1.
    pub(super) fn validate_lending(&self) {
        let lent = self.table.rows().filter(|(_, row)| row.state == SegmentState::Index).count();
        assert_eq!(lent, self.lending.count as usize, "I1");
    }
}
