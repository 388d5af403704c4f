//! Which segment to reclaim next.
//!
//! # Limits
//! Choosing scans the table: thousands of rows once a segment's worth of writes.

use base::UnixMillis;

use super::{Allocator, Reason, Victim};
use crate::log::table::{Queue, SegmentRow, SegmentState};

/// The small queue's share of what is alive (Yang et al., SOSP 2023, §4.1).
const SMALL_SHARE_PCT: u64 = 10;

impl Allocator {
    fn used(&self) -> impl Iterator<Item = (u32, &SegmentRow)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.state == SegmentState::Used).map(|(i, row)| (i as u32, row))
    }

    /// Claims a used segment in which nothing is alive, or all has expired, or of whose entries
    /// less than `max_live_pct` is alive by bytes: the one with the least to copy, of several the
    /// oldest. Runs are alive or not: moving them makes no room.
    pub(crate) fn claim_dead_space(
        &mut self,
        now: UnixMillis,
        max_live_pct: u64,
        live_bytes: impl Fn(u32) -> u64,
    ) -> Option<Victim> {
        let to_copy = |segment: u32, row: &SegmentRow| match live_bytes(segment) {
            _ if row.latest_expiry_ms <= now.0 => Some(0),
            0 => Some(0),
            live if row.run_len == 1 && live * 100 < max_live_pct * row.used_bytes => Some(live),
            _ => None,
        };
        let worth_it = self.used().filter_map(|(segment, row)| {
            to_copy(segment, row).map(|copied_bytes| (copied_bytes, row.sequence, segment))
        });
        let (_, _, segment) = worth_it.min()?;
        Some(self.claim(segment, Reason::DeadSpace))
    }

    /// Claims the segment whose turn it is (evict mode): the oldest of the small queue while that
    /// holds more than its share of what is alive, else the oldest of main.
    pub(crate) fn claim_turn(&mut self, live_bytes: impl Fn(u32) -> u64) -> Option<Victim> {
        let (mut small_bytes, mut all_bytes) = (0, 0);
        let mut oldest: [Option<(u64, u32)>; 2] = [None; 2];
        for (segment, row) in self.rows() {
            let is_small = row.queue == Queue::Small;
            match row.state {
                SegmentState::Used => {
                    let best = &mut oldest[usize::from(is_small)];
                    let age = (row.sequence, segment);
                    *best = Some(best.map_or(age, |best| best.min(age)));
                }
                SegmentState::Using | SegmentState::Reclaiming => {}
                _ => continue,
            }
            let live_bytes = live_bytes(segment);
            all_bytes += live_bytes;
            small_bytes += if is_small { live_bytes } else { 0 };
        }
        let [main, small] = oldest;
        let (first, second) = match small_bytes * 100 > SMALL_SHARE_PCT * all_bytes {
            true => (small, main),
            false => (main, small),
        };
        let (_, segment) = first.or(second)?;
        Some(self.claim(segment, Reason::Turn))
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
        Some(self.claim(segment, Reason::Turn))
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
        Some(self.claim(segment as u32, Reason::Turn))
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
}
