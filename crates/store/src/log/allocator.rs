//! The segment allocator: records which segments are free, used or waiting, and picks the next one
//! to reclaim. Pure bookkeeping under the log's mutex: it touches no segment's memory.
//!
//! # Invariants
//! I1: `free_count` is the number of rows in state Free.
//! I2: appends for users leave `reserve` segments to sessions that make room, so that reclaiming
//!     always has a segment to copy to.
//! I3: `free` has exactly the rows in state Free.

mod choose;
mod free;
mod keep;
mod lend;
mod park;
mod restore;
mod unfilled;

use std::collections::VecDeque;
use std::ops::Range;

use crate::counters::LogSpace;

use super::table::{Contents, Queue, SegmentRow, SegmentState};
pub(crate) use choose::{Aim, Found, SEARCH_ROWS, Search, Then};
use free::FreeSet;
use index::placement::Regions;
pub(crate) use park::Chore;
use park::Parking;

/// The purpose for which a segment is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client's write: leaves the reserve alone (I2).
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

/// A segment that a session has claimed for reclaiming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub segment: u32,
    pub used_bytes: u64,
    /// Whether it is one large entry in a run of segments.
    pub is_run: bool,
    pub queue: Queue,
    pub reason: Reason,
}

/// The reason for emptying a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its turn has come: the policy decides which entries survive.
    Turn,
    /// Most of it is dead or expired: its live entries are copied, whatever the policy.
    DeadSpace,
}

pub(crate) struct Allocator {
    rows: Vec<SegmentRow>,
    free_count: u32,
    /// The lowest free segment of a region is taken first, so that memory is touched in order.
    free: FreeSet,
    regions: Regions,
    reserve: u32,
    kept: Vec<keep::Kept>,
    /// The part of the reserve lent to writes.
    lent_max: u32,
    /// The part of the reserve that deletes may use.
    deletes_max: u32,
    next_sequence: u64,
    waiting: VecDeque<(u32, u64)>,
    /// The one with most room comes last.
    unfilled: Vec<unfilled::Unfilled>,
    reclaiming_count: u32,
    /// Grows whenever a segment changes state.
    change_count: u64,
    lending: lend::Lending,
    parking: Parking,
    /// Rows from here on are parked: no search looks at them.
    top: usize,
}

impl Allocator {
    /// All segments of `regions` are free.
    pub(super) fn new(regions: Regions) -> Allocator {
        let region_count = regions.count();
        let segment_count = regions.range(region_count - 1).end;
        Allocator {
            rows: vec![SegmentRow::FREE; segment_count as usize],
            free_count: segment_count,
            free: FreeSet::all(segment_count as usize),
            regions,
            reserve: 0,
            kept: Vec::new(),
            lent_max: 0,
            deletes_max: 0,
            next_sequence: 1,
            waiting: VecDeque::new(),
            unfilled: Vec::new(),
            reclaiming_count: 0,
            change_count: 0,
            lending: lend::Lending::none(region_count),
            parking: Parking::new(segment_count as usize),
            top: segment_count as usize,
        }
    }

    /// Sets the reserve: each session may need some segments while it makes room (I2).
    pub(crate) fn set_reserve(&mut self, wanted: Reserve) {
        self.reserve = wanted.segments.min(self.usable_count() / 4);
        self.lent_max = wanted.lent_max.min(self.reserve / 2);
        self.deletes_max = wanted.deletes_max.min(self.reserve / 2);
    }

    /// Whether deletes have begun to use the segments kept for them.
    pub(crate) fn has_lent_to_deletes(&self) -> bool {
        self.deletes_max > 0 && self.free_count < self.reserve
    }

    #[cfg(all(test, not(loom)))]
    fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// A number that differs from an earlier one if a segment was taken, closed, given up or freed
    /// since.
    pub(crate) fn change_count(&self) -> u64 {
        self.change_count
    }

    /// The number of segments that sessions are emptying now.
    pub(crate) fn reclaiming_count(&self) -> u32 {
        self.reclaiming_count
    }

    /// Whether `take` would succeed.
    pub(crate) fn can_take(&self, run_len: u32, purpose: Purpose) -> bool {
        let all = 0..self.rows.len();
        self.available(purpose) >= run_len && self.free.lowest_run(run_len as usize, all).is_some()
    }

    /// The number of free segments that a user's write may take.
    pub(crate) fn available(&self, purpose: Purpose) -> u32 {
        match purpose {
            Purpose::Write => self.free_count.saturating_sub(self.reserve),
            Purpose::Ahead => self.free_count.saturating_sub(self.reserve - self.lent_max),
            Purpose::Delete => self.free_count.saturating_sub(self.reserve - self.deletes_max),
            Purpose::Touch => self.free_count.saturating_sub(self.reserve.saturating_sub(1)),
            Purpose::Reserve | Purpose::Held(_) => self.free_count,
        }
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
        let runs = in_grace.map(|(segment, _)| (*segment, self.rows[*segment as usize].run_len));
        let coming_count: u32 = runs.clone().map(|(_, run_len)| run_len).sum();
        let left_count = (self.free_count + coming_count).saturating_sub(self.reserve);
        if coming_count == 0 || left_count < wanted.max(run_len) {
            return false;
        }
        if run_len == 1 {
            return true;
        }
        let mut free = self.free.clone();
        runs.for_each(|(segment, run_len)| free.insert(segment as usize, run_len as usize));
        free.lowest_run(run_len as usize, 0..self.rows.len()).is_some()
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
        let near = || self.free.lowest_run(run_len as usize, start as usize..end as usize);
        let anywhere = || self.free.lowest_run(run_len as usize, 0..self.rows.len());
        let kept = kept.map(|first| first as usize);
        let first = kept.or_else(near).or_else(anywhere)?;
        self.free.remove(first, run_len as usize);
        for row in &mut self.rows[first..first + run_len as usize] {
            debug_assert!(row.state == SegmentState::Free);
            *row = SegmentRow { state: SegmentState::RunTail, ..SegmentRow::FREE };
        }
        self.change_count += 1;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.rows[first] =
            SegmentRow { state: SegmentState::Using, run_len, sequence, ..SegmentRow::FREE };
        self.free_count -= run_len;
        self.note_touched(first, run_len as usize);
        Some(first as u32)
    }

    pub(super) fn close(&mut self, segment: u32, contents: Contents) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Using, "only its writer closes a segment");
        self.change_count += 1;
        row.state = SegmentState::Used;
        row.used_bytes = contents.used_bytes;
        row.latest_expiry_ms = contents.latest_expiry_ms;
        row.is_long = contents.is_long;
    }

    /// The queue of a segment that was taken or is claimed.
    pub(super) fn set_queue(&mut self, segment: u32, queue: Queue) {
        self.rows[segment as usize].queue = queue;
    }

    pub(super) fn give_back(&mut self, segment: u32) {
        assert!(self.rows[segment as usize].state == SegmentState::Using);
        self.make_free(segment);
    }

    pub(super) fn retire(&mut self, segment: u32, tag: u64) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Reclaiming, "retired by its reclaimer");
        row.state = SegmentState::Waiting;
        self.reclaiming_count -= 1;
        self.change_count += 1;
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

    /// The number of segments of the run with this head.
    pub(crate) fn run_len(&self, segment: u32) -> u32 {
        self.rows[segment as usize].run_len
    }

    /// The segments that wait to become free.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().map(|(segment, _)| *segment)
    }

    fn make_free(&mut self, segment: u32) {
        let first = segment as usize;
        let run_len = self.rows[first].run_len as usize;
        self.change_count += 1;
        self.rows[first..first + run_len].fill(SegmentRow::FREE);
        self.free_count += run_len as u32;
        self.free.insert(first, run_len);
        self.settle();
        (first..first + run_len).for_each(|segment| self.keep_parked_high(segment));
    }

    fn claim(&mut self, segment: u32, reason: Reason) -> Victim {
        let row = &mut self.rows[segment as usize];
        row.state = SegmentState::Reclaiming;
        self.reclaiming_count += 1;
        let SegmentRow { used_bytes, run_len, queue, .. } = *row;
        Victim { segment, used_bytes, is_run: run_len > 1, queue, reason }
    }

    /// Returns a claimed segment that could not be emptied to state Used.
    pub(crate) fn unclaim(&mut self, segment: u32) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Reclaiming);
        row.state = SegmentState::Used;
        self.reclaiming_count -= 1;
    }

    /// Makes a claimed segment the youngest, instead of emptying it.
    pub(super) fn requeue(&mut self, segment: u32) {
        self.unclaim(segment);
        self.rows[segment as usize].sequence = self.next_sequence;
        self.next_sequence += 1;
    }

    /// The age of a segment, for choosing a victim inside a bucket.
    pub(crate) fn sequence(&self, segment: u32) -> u64 {
        self.rows[segment as usize].sequence
    }

    /// Every segment with its row, including the tails of runs.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &SegmentRow)> {
        self.rows.iter().enumerate().map(|(index, row)| (index as u32, row))
    }

    /// Adds the byte counts of some segments to `space`.
    pub(super) fn add_space(
        &self,
        space: &mut LogSpace,
        segments: Range<u32>,
        segment_bytes: u64,
        live_bytes: impl Fn(u32) -> u64,
    ) {
        for segment in segments {
            let row = &self.rows[segment as usize];
            let bytes = segment_bytes * u64::from(row.run_len);
            let live_bytes = live_bytes(segment);
            let is_small = row.queue == Queue::Small;
            space.small_live_bytes += if is_small { live_bytes } else { 0 };
            match row.state {
                SegmentState::Free => space.free_bytes += bytes,
                SegmentState::Using => space.open_bytes += bytes,
                SegmentState::Waiting => space.waiting_bytes += bytes,
                SegmentState::Used | SegmentState::Reclaiming => {
                    let tail_bytes = bytes - row.used_bytes;
                    space.live_bytes += live_bytes;
                    // Entries may die while this runs.
                    space.dead_bytes += row.used_bytes.saturating_sub(live_bytes);
                    space.tail_bytes += tail_bytes;
                    space.long_tail_bytes += if row.is_long { tail_bytes } else { 0 };
                }
                SegmentState::RunTail | SegmentState::Index | SegmentState::Parked => {}
            }
        }
    }

    /// Recounts I1.
    pub(crate) fn validate(&self) {
        self.validate_lending();
        self.validate_parking();
        let free = self.rows.iter().filter(|row| row.state == SegmentState::Free).count();
        assert_eq!(free, self.free_count as usize, "I1");
        let agrees = |(at, row): (usize, &SegmentRow)| {
            self.free.contains(at) == (row.state == SegmentState::Free)
        };
        assert!(self.rows.iter().enumerate().all(agrees), "I3");
        self.free.validate();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
