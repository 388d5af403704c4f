//! The segment allocator: decides which free segment is taken, which are kept, lent or parked, and
//! when a reclaimed one is free again. The segments' states are in the table (table.rs). Pure
//! bookkeeping under the log's mutex: it touches no segment's memory.
//!
//! # Invariants
//! I1: appends for users leave the reserve to sessions that make room, so that reclaiming always
//!     has a segment to copy to.

mod keep;
mod lend;
mod park;
mod unfilled;

use std::collections::VecDeque;
use std::ops::Range;

use index::placement::Regions;

use super::table::{SegmentState, SegmentTable};
pub(crate) use park::Chore;
use park::Parking;

/// The purpose for which a segment is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client's write: leaves the reserve alone (I1).
    Write,
    /// A client's write whose session reclaims in step: may use the part of the reserve that is
    /// lent.
    Ahead,
    /// A new expiry of an existing entry, which frees about as much room as it takes: may use
    /// segments that no session needs to make room.
    Touch,
    /// A delete in a durable log, after which room comes back: may use the part of the reserve for
    /// deletes, and leaves the rest to sessions that make room.
    Delete,
    /// Making room: may use the reserve.
    Reserve,
    /// Completing writes under locks, by the session of a place: takes the segments kept for it,
    /// and may use the reserve.
    Held(usize),
}

/// Segments kept free for sessions that make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub segments: u32,
    /// The number of these that may go to writes ahead of reclaiming.
    pub lent_max: u32,
    /// The number of these that deletes may use.
    pub deletes_max: u32,
}

pub(crate) struct Allocator {
    pub(crate) table: SegmentTable,
    regions: Regions,
    reserve: Reserve,
    kept: Vec<keep::Kept>,
    waiting: VecDeque<(u32, u64)>,
    /// The one with most room comes last.
    unfilled: Vec<unfilled::Unfilled>,
    lending: lend::Lending,
    parking: Parking,
}

impl Allocator {
    /// All segments of `regions` are free.
    pub(super) fn new(regions: Regions) -> Allocator {
        let region_count = regions.count();
        let segment_count = regions.range(region_count - 1).end;
        Allocator {
            table: SegmentTable::new(segment_count),
            regions,
            reserve: Reserve::default(),
            kept: Vec::new(),
            waiting: VecDeque::new(),
            unfilled: Vec::new(),
            lending: lend::Lending::none(region_count),
            parking: Parking::new(segment_count as usize),
        }
    }

    /// Sets the reserve: each session may need some segments while it makes room (I1).
    pub(crate) fn set_reserve(&mut self, wanted: Reserve) {
        let segments = wanted.segments.min(self.usable_count() / 4);
        let lent_max = wanted.lent_max.min(segments / 2);
        let deletes_max = wanted.deletes_max.min(segments / 2);
        self.reserve = Reserve { segments, lent_max, deletes_max };
    }

    /// Whether deletes have begun to use the segments kept for them.
    pub(crate) fn has_lent_to_deletes(&self) -> bool {
        self.reserve.deletes_max > 0 && self.table.free_count() < self.reserve.segments
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Whether `take` would succeed.
    pub(crate) fn can_take(&self, run_len: u32, purpose: Purpose) -> bool {
        let has_run = || self.table.free().lowest_run(run_len as usize, 0..self.table.len());
        self.available(purpose) >= run_len && has_run().is_some()
    }

    /// The number of free segments that a user's write may take.
    pub(crate) fn available(&self, purpose: Purpose) -> u32 {
        let Reserve { segments, lent_max, deletes_max } = self.reserve;
        let left = match purpose {
            Purpose::Write => segments,
            Purpose::Ahead => segments - lent_max,
            Purpose::Delete => segments - deletes_max,
            Purpose::Touch => segments.saturating_sub(1),
            Purpose::Reserve | Purpose::Held(_) => 0,
        };
        self.table.free_count().saturating_sub(left)
    }

    /// Whether a write could take a run of `run_len`, of `wanted` free segments, once the present
    /// grace periods are over. Segments held only by a pin do not count.
    pub(crate) fn will_have_run(
        &self,
        run_len: u32,
        wanted: u32,
        is_pinned: impl Fn(u32) -> bool,
    ) -> bool {
        let in_grace = self.waiting.iter().filter(|(segment, _)| !is_pinned(*segment));
        let runs = in_grace.map(|(segment, _)| (*segment, self.table.run_len(*segment)));
        let coming_count: u32 = runs.clone().map(|(_, run_len)| run_len).sum();
        let left_count =
            (self.table.free_count() + coming_count).saturating_sub(self.reserve.segments);
        if coming_count == 0 || left_count < wanted.max(run_len) {
            return false;
        }
        if run_len == 1 {
            return true;
        }
        let mut free = self.table.free().clone();
        runs.for_each(|(segment, run_len)| free.insert(segment as usize, run_len as usize));
        free.lowest_run(run_len as usize, 0..self.table.len()).is_some()
    }

    /// Takes `run_len` contiguous segments, of a region if it has as many; returns the first one.
    pub(super) fn take(&mut self, run_len: u32, purpose: Purpose, region: usize) -> Option<u32> {
        let kept = match purpose {
            Purpose::Held(place) => self.free_kept(place, run_len),
            _ => None,
        };
        if self.available(purpose) < run_len {
            return None;
        }
        let Range { start, end } = self.regions.range(region);
        let free = self.table.free();
        let near = || free.lowest_run(run_len as usize, start as usize..end as usize);
        let anywhere = || free.lowest_run(run_len as usize, 0..self.table.len());
        let kept = kept.map(|first| first as usize);
        let first = kept.or_else(near).or_else(anywhere)?;
        self.table.take(first, run_len);
        self.note_touched(first, run_len as usize);
        Some(first as u32)
    }

    /// Takes a segment, or a run, that was used before the store was opened. False: it does not
    /// exist, or is not free.
    pub(crate) fn restore(&mut self, segment: u32, run_len: u32) -> bool {
        let (first, len) = (segment as usize, run_len as usize);
        let end = first.saturating_add(len);
        let is_free = |segment| self.table.row(segment).state == SegmentState::Free;
        if len == 0 || end > self.table.len() || !(first..end).all(is_free) {
            return false;
        }
        self.table.take(first, run_len);
        self.note_resident(first, len);
        true
    }

    pub(super) fn give_back(&mut self, segment: u32) {
        assert!(self.table.row(segment as usize).state == SegmentState::Using);
        self.make_free(segment);
    }

    /// The grace period of a claimed segment begins with `tag`.
    pub(super) fn retire(&mut self, segment: u32, tag: u64) {
        self.table.retire(segment);
        self.waiting.push_back((segment, tag));
    }

    /// Retires a restored segment of which no entry is kept in place.
    pub(crate) fn retire_restored(&mut self, segment: u32, tag: u64) {
        self.table.retire_restored(segment);
        self.waiting.push_back((segment, tag));
    }

    /// Frees the segments that no session can hold any more; returns whether a grace period is
    /// still running. Segments held only by a pin do not count: a slow client decides when the pin
    /// ends.
    pub(super) fn free_waiting(
        &mut self,
        is_safe: impl Fn(u64) -> bool,
        is_pinned: impl Fn(u32) -> bool,
    ) -> bool {
        let mut grace_runs = false;
        for _ in 0..self.waiting.len() {
            let Some((segment, tag)) = self.waiting.pop_front() else { break };
            let safe = is_safe(tag);
            grace_runs |= !safe;
            if safe && !is_pinned(segment) {
                self.make_free(segment);
            } else {
                self.waiting.push_back((segment, tag));
            }
        }
        grace_runs
    }

    /// The segments that wait to become free.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().map(|(segment, _)| *segment)
    }

    fn make_free(&mut self, segment: u32) {
        let run = self.table.free_run(segment);
        self.settle();
        run.for_each(|segment| self.keep_parked_high(segment));
    }

    /// Recounts all invariants.
    pub(crate) fn validate(&self) {
        self.validate_lending();
        self.validate_parking();
        self.table.validate();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
