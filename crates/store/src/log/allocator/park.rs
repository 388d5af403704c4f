//! Segments beyond the present size of the log: they are parked, and their pages returned to the
//! kernel.
//!
//! ```text
//!            ┌─ shrink ──▶ parked, resident ──discard──▶ parked ─┐
//!  free ─────┤                                                   ├── grow ──▶ free
//!            └─ (wanted - parked: the shortage) ◀────────────────┘
//! ```
//!
//! A shrinking log parks its free segments at once and the others as they become free, and leaves a
//! few segments to writes. This module also records which segments are resident, for the thread
//! that makes memory resident ahead of the writers.
//!
//! # Invariants
//! P1: `parked` has exactly the rows in state Parked, and `parked_count` counts them.
//! P2: a parked segment leaves that state only while its pages are not being discarded.

use super::super::table::{FreeSet, SegmentRow, SegmentState};
use super::{Allocator, Purpose};

/// The most segments that one call parks or unparks, under the log's mutex: some 50 us.
const SETTLE_MAX: u32 = 4096;

/// Which segments are parked, and which are resident.
pub(super) struct Parking {
    parked: FreeSet,
    parked_count: u32,
    wanted_count: u32,
    /// The free segments left to writes while the log shrinks.
    spare: u32,
    /// The same, for the runs that sessions are making room for now.
    run_spare: u32,
    discarding: Option<u32>,
    /// Whether a parked segment may be resident.
    is_discard_due: bool,
    resident: FreeSet,
    /// Segments taken before they were resident.
    cold: Vec<u32>,
}

/// The next task of the thread for the log's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Return the pages of a parked segment; [`Allocator::end_discard`] follows.
    Discard(u32),
    /// Make a segment resident.
    Populate(u32),
}

impl Parking {
    pub(super) fn new(segment_count: usize) -> Parking {
        Parking {
            parked: FreeSet::none(segment_count),
            parked_count: 0,
            wanted_count: 0,
            spare: 1,
            run_spare: 0,
            discarding: None,
            is_discard_due: false,
            resident: FreeSet::none(segment_count),
            cold: Vec::new(),
        }
    }
}

impl Allocator {
    /// The number of segments that the log may use.
    pub(crate) fn usable_count(&self) -> u32 {
        self.table.len() as u32 - self.parking.wanted_count
    }

    /// The number of segments that are not parked.
    pub(crate) fn unparked_count(&self) -> u32 {
        self.table.len() as u32 - self.parking.parked_count
    }

    /// The number of segments that the log still has to give up.
    pub(crate) fn shortage(&self) -> u32 {
        self.parking.wanted_count.saturating_sub(self.parking.parked_count)
    }

    /// Whether the thread for the log's memory has pages to return.
    pub(crate) fn is_discard_due(&self) -> bool {
        self.parking.is_discard_due
    }

    /// Sets the log's size to `usable` segments. While it shrinks, `spare` stay for writes.
    pub(crate) fn resize(&mut self, usable: u32, spare: u32) {
        self.parking.wanted_count = self.table.len() as u32 - usable;
        self.parking.spare = spare;
        self.settle();
    }

    /// Notes that a session makes room for a run of `segments`.
    pub(crate) fn want_run(&mut self, segments: u32) {
        self.parking.run_spare = self.parking.run_spare.saturating_add(segments);
    }

    /// See [`Allocator::want_run`].
    pub(crate) fn end_want_run(&mut self, segments: u32) {
        self.parking.run_spare = self.parking.run_spare.saturating_sub(segments);
    }

    /// Parks or unparks as many segments as possible now.
    pub(crate) fn settle(&mut self) {
        self.settle_down_to(self.parking.spare.saturating_add(self.parking.run_spare));
    }

    /// Parks all free segments, because nothing can be reclaimed; writes then find none.
    pub(crate) fn park_spare(&mut self) {
        self.settle_down_to(0);
    }

    fn settle_down_to(&mut self, spare: u32) {
        for _ in 0..SETTLE_MAX {
            if self.shortage() > 0 && self.available(Purpose::Write) > spare {
                let Some(segment) = self.table.free().highest(0..self.table.top() as usize) else {
                    return;
                };
                self.park(segment);
            } else if self.parking.parked_count > self.parking.wanted_count {
                let Some(segment) = self.lowest_parked() else { return };
                self.unpark(segment);
            } else {
                return;
            }
        }
    }

    /// Called after `segment` became free: parks at the top, so that runs are found below.
    pub(super) fn keep_parked_high(&mut self, segment: usize) {
        if segment >= self.usable_count() as usize
            && self.table.row(segment).state == SegmentState::Free
            && let Some(low) = self.lowest_parked().filter(|low| *low < segment)
        {
            self.unpark(low);
            self.park(segment);
        }
    }

    /// The lowest parked segment whose pages are not being discarded (P2).
    fn lowest_parked(&self) -> Option<usize> {
        let parked = &self.parking.parked;
        let low = parked.lowest_run(1, 0..self.table.len())?;
        match self.parking.discarding {
            Some(segment) if segment as usize == low => {
                parked.lowest_run(1, low + 1..self.table.len())
            }
            _ => Some(low),
        }
    }

    fn park(&mut self, segment: usize) {
        self.table.park(segment);
        self.parking.parked.insert(segment, 1);
        self.parking.parked_count += 1;
        self.parking.is_discard_due |= self.parking.resident.contains(segment);
    }

    fn unpark(&mut self, segment: usize) {
        self.parking.parked.remove(segment, 1);
        self.parking.parked_count -= 1;
        self.table.unpark(segment);
    }

    /// Notes that a segment, or run, is written from now on, which makes it resident.
    pub(super) fn note_touched(&mut self, first: usize, len: usize) {
        for segment in first..first + len {
            if !self.parking.resident.contains(segment) {
                self.parking.resident.insert(segment, 1);
                self.parking.cold.push(segment as u32);
            }
        }
    }

    /// Notes that a segment, or run, holds data read from a medium.
    pub(super) fn note_resident(&mut self, first: usize, len: usize) {
        self.parking.resident.insert(first, len);
    }

    /// The next task for the log's memory. It keeps resident the next `ahead` segments that writes
    /// of each region will take, and the next one of the index; with 0 nothing is populated.
    pub(crate) fn next_chore(&mut self, ahead: usize) -> Option<Chore> {
        self.settle();
        let Parking { parked, resident, .. } = &self.parking;
        if let Some(segment) = parked.lowest_common(resident) {
            self.parking.discarding = Some(segment as u32);
            return Some(Chore::Discard(segment as u32));
        }
        self.parking.is_discard_due = false;
        if ahead == 0 {
            return None;
        }
        while let Some(segment) = self.parking.cold.pop() {
            if self.table.row(segment as usize).state != SegmentState::Parked {
                return Some(Chore::Populate(segment));
            }
        }
        let resident = &self.parking.resident;
        let next_cold = |region: usize| {
            let range = self.regions.range(region);
            let range = range.start as usize..range.end as usize;
            let next_lent = self.next_lent(region).filter(|next| !resident.contains(*next));
            next_lent.or_else(|| self.table.free().lowest_without(resident, range, ahead))
        };
        let segment = (0..self.regions.count()).find_map(next_cold)?;
        self.parking.resident.insert(segment, 1);
        Some(Chore::Populate(segment as u32))
    }

    /// Notes that the pages of a parked segment were returned.
    pub(crate) fn end_discard(&mut self, segment: u32) {
        debug_assert_eq!(self.parking.discarding, Some(segment));
        self.parking.discarding = None;
        self.parking.resident.remove(segment as usize, 1);
        self.settle();
    }

    /// Recounts P1.
    pub(super) fn validate_parking(&self) {
        let is_parked = |row: &SegmentRow| row.state == SegmentState::Parked;
        let count = self.table.rows().filter(|(_, row)| is_parked(row)).count();
        assert_eq!(count, self.parking.parked_count as usize, "P1");
        let agrees = |(at, row)| self.parking.parked.contains(at as usize) == is_parked(row);
        assert!(self.table.rows().all(agrees), "P1");
    }
}
