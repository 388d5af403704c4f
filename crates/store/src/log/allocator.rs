//! Which segments are free, used, or waiting; and which one to reclaim next. Pure bookkeeping
//! under the log's mutex: no memory is touched here.
//!
//! # Invariants
//! I1: `free_count` is the number of rows in state Free.
//! I2: appends for users leave `reserve` segments to those who make room, so that reclaiming
//!     always has somewhere to copy to.
//!
//! # Limits
//! Choosing scans the table: thousands of rows once a segment's worth of writes.

use std::collections::VecDeque;

use super::table::{SegmentRow, SegmentState};

/// Who takes a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client's write: leaves the reserve alone (I2).
    Write,
    /// Making room, or finishing what holds locks: may use the reserve.
    Reserve,
}

/// A segment that a session has claimed for reclaiming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub segment: u32,
    pub used_bytes: u64,
    /// One large entry in a run of segments.
    pub is_run: bool,
}

pub(crate) struct Allocator {
    rows: Vec<SegmentRow>,
    free_count: u32,
    /// Where the search for a free segment starts; kept low, so that memory is touched in order.
    free_hint: usize,
    reserve: u32,
    next_sequence: u64,
    waiting: VecDeque<(u32, u64)>,
    reclaiming_count: u32,
    /// One past the highest segment ever taken.
    high_water: u32,
}

impl Allocator {
    pub(super) fn new(segment_count: u32) -> Allocator {
        Allocator {
            rows: vec![SegmentRow::FREE; segment_count as usize],
            free_count: segment_count,
            free_hint: 0,
            reserve: 0,
            next_sequence: 1,
            waiting: VecDeque::new(),
            reclaiming_count: 0,
            high_water: 0,
        }
    }

    /// Each session may need one segment while it makes room (I2).
    pub(crate) fn set_reserve(&mut self, segments: u32) {
        self.reserve = segments.min(self.rows.len() as u32 / 4);
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn high_water(&self) -> u32 {
        self.high_water
    }

    /// Segments that some session is emptying now.
    pub(crate) fn reclaiming_count(&self) -> u32 {
        self.reclaiming_count
    }

    /// Whether `take` would succeed.
    pub(crate) fn can_take(&self, run_len: u32, purpose: Purpose) -> bool {
        self.available(purpose) >= run_len && self.find_free_run(run_len as usize).is_some()
    }

    /// Free segments that a user's write may take.
    pub(crate) fn available(&self, purpose: Purpose) -> u32 {
        match purpose {
            Purpose::Write => self.free_count.saturating_sub(self.reserve),
            Purpose::Reserve => self.free_count,
        }
    }

    /// Takes `run_len` contiguous segments; the first one.
    pub(super) fn take(&mut self, run_len: u32, purpose: Purpose) -> Option<u32> {
        if self.available(purpose) < run_len {
            return None;
        }
        let first = self.find_free_run(run_len as usize)?;
        for row in &mut self.rows[first..first + run_len as usize] {
            debug_assert!(row.state == SegmentState::Free);
            *row = SegmentRow { state: SegmentState::RunTail, ..SegmentRow::FREE };
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.rows[first] =
            SegmentRow { state: SegmentState::Using, run_len, sequence, used_bytes: 0 };
        self.free_count -= run_len;
        if run_len == 1 {
            self.free_hint = first + 1;
        }
        self.high_water = self.high_water.max(first as u32 + run_len);
        Some(first as u32)
    }

    fn find_free_run(&self, run_len: usize) -> Option<usize> {
        let start = if run_len == 1 { self.free_hint.min(self.rows.len()) } else { 0 };
        let mut found = 0;
        for index in start..self.rows.len() {
            found = if self.rows[index].state == SegmentState::Free { found + 1 } else { 0 };
            if found == run_len {
                return Some(index + 1 - run_len);
            }
        }
        None
    }

    pub(super) fn close(&mut self, segment: u32, used_bytes: u64) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Using, "only its writer closes a segment");
        row.state = SegmentState::Used;
        row.used_bytes = used_bytes;
    }

    pub(super) fn give_back(&mut self, segment: u32) {
        assert!(self.rows[segment as usize].state == SegmentState::Using);
        self.free(segment);
    }

    pub(super) fn retire(&mut self, segment: u32, tag: u64) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Reclaiming, "retired by its reclaimer");
        row.state = SegmentState::Waiting;
        self.reclaiming_count -= 1;
        self.waiting.push_back((segment, tag));
    }

    /// Frees what nobody can hold any more; whether a grace period is still running. Segments
    /// that only a pin keeps do not count: a slow client decides when that ends.
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
                self.free(segment);
            } else {
                self.waiting.push_back((segment, tag));
            }
        }
        grace_runs
    }

    fn free(&mut self, segment: u32) {
        let first = segment as usize;
        let run_len = self.rows[first].run_len as usize;
        self.rows[first..first + run_len].fill(SegmentRow::FREE);
        self.free_count += run_len as u32;
        self.free_hint = self.free_hint.min(first);
    }

    fn claim(&mut self, segment: u32) -> Victim {
        let row = &mut self.rows[segment as usize];
        row.state = SegmentState::Reclaiming;
        self.reclaiming_count += 1;
        Victim { segment, used_bytes: row.used_bytes, is_run: row.run_len > 1 }
    }

    /// A claimed segment that could not be emptied is used again.
    pub(crate) fn unclaim(&mut self, segment: u32) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Reclaiming);
        row.state = SegmentState::Used;
        self.reclaiming_count -= 1;
    }

    /// A claimed segment gets a second life: it counts as the youngest.
    pub(crate) fn requeue(&mut self, segment: u32) {
        self.unclaim(segment);
        self.rows[segment as usize].sequence = self.next_sequence;
        self.next_sequence += 1;
    }

    fn used(&self) -> impl Iterator<Item = (u32, &SegmentRow)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.state == SegmentState::Used).map(|(i, row)| (i as u32, row))
    }

    /// Claims the oldest used segment (evict mode).
    pub(crate) fn claim_oldest(&mut self) -> Option<Victim> {
        let (segment, _) = self.used().min_by_key(|(_, row)| row.sequence)?;
        Some(self.claim(segment))
    }

    /// Claims the used segment with the smallest live share of those whose used bytes are live to
    /// less than `max_share_pct` (clean mode). Runs count once they are dead.
    pub(crate) fn claim_sparsest(
        &mut self,
        max_share_pct: u64,
        segment_bytes: u64,
        live_bytes: impl Fn(u32) -> u64,
    ) -> Option<Victim> {
        let share = |segment: u32, row: &SegmentRow| {
            live_bytes(segment) * 10_000 / (segment_bytes * u64::from(row.run_len))
        };
        // A run is one entry: it is live or dead, and moving it makes no room. Nor does moving what
        // is all alive, unless two such segments fit into one: the tail of a segment of long
        // entries stays empty wherever they lie.
        let is_worth_it = |(segment, row): &(u32, &SegmentRow)| match (live_bytes(*segment), row) {
            (0, _) => true,
            (live, SegmentRow { run_len: 1, used_bytes, .. }) => {
                live * 100 < max_share_pct * used_bytes || 2 * used_bytes < segment_bytes
            }
            _ => false,
        };
        let (segment, _) =
            self.used().filter(is_worth_it).min_by_key(|(segment, row)| share(*segment, row))?;
        Some(self.claim(segment))
    }

    /// Claims one used segment of the window of `run_len` that costs least to empty, so that a
    /// run becomes free there. `cost` of a used or waiting segment: age or live bytes; `None`: it
    /// cannot be had.
    pub(crate) fn claim_in_window(
        &mut self,
        run_len: u32,
        cost: impl Fn(u32, u64) -> Option<u64>,
    ) -> Option<Victim> {
        let run_len = run_len as usize;
        let best = (0..=self.rows.len().checked_sub(run_len)?)
            .filter_map(|first| Some((self.window_cost(first, run_len, &cost)?, first)))
            .min()?
            .1;
        // Runs that stick out of the window on the left are headed outside it.
        let heads = (0..best + run_len).filter(|first| {
            let row = &self.rows[*first];
            row.state == SegmentState::Used && first + row.run_len as usize > best
        });
        let segment = heads.min_by_key(|first| self.rows[*first].sequence)?;
        Some(self.claim(segment as u32))
    }

    /// The cost of emptying a window; `None` when something in it cannot be reclaimed now or
    /// is already on its way.
    fn window_cost(
        &self,
        first: usize,
        run_len: usize,
        cost: &impl Fn(u32, u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut total = 0_u64;
        let mut index = first;
        let mut head = first;
        while self.rows[head].state == SegmentState::RunTail {
            head -= 1;
        }
        if head < first {
            index = head;
        }
        while index < first + run_len {
            let row = &self.rows[index];
            match row.state {
                SegmentState::Free => {}
                SegmentState::Used | SegmentState::Waiting => {
                    total = total.checked_add(cost(index as u32, row.sequence)?)?;
                }
                _ => return None,
            }
            index += row.run_len as usize;
        }
        Some(total)
    }

    /// The age of a segment, for choosing a victim inside a bucket.
    pub(crate) fn sequence(&self, segment: u32) -> u64 {
        self.rows[segment as usize].sequence
    }

    /// Every segment with its state, for validation.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, SegmentState)> {
        self.rows.iter().enumerate().map(|(index, row)| (index as u32, row.state))
    }

    /// Recounts I1.
    pub(crate) fn validate(&self) {
        let free = self.rows.iter().filter(|row| row.state == SegmentState::Free).count();
        assert_eq!(free, self.free_count as usize, "I1");
        let hint = self.free_hint.min(self.rows.len());
        let below = self.rows[..hint].iter().any(|row| row.state == SegmentState::Free);
        assert!(!below, "no free segment below the hint");
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
