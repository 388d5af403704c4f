//! Which segment to reclaim next.
//!
//! # Limits
//! Choosing scans the table under the log's mutex, in a cache twice, once a segment's worth of
//! writes: 0.12 ms at 16,384 segments (64 GiB of 4 MiB), 1 ms at 131,072. A run's window takes one
//! pass more, whatever the run's length.

use std::collections::VecDeque;

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
        let best = self.cheapest_window(run_len, cost)?;
        // Runs that stick out of the window on the left are headed outside it.
        let heads = (0..best + run_len).filter(|first| {
            let row = &self.rows[*first];
            row.state == SegmentState::Used && first + row.run_len as usize > best
        });
        let segment = heads.min_by_key(|first| self.rows[*first].sequence)?;
        Some(self.claim(segment as u32, Reason::Turn))
    }

    /// The first segment of the window of `run_len` that costs least to empty; `None`: in each of
    /// them something cannot be reclaimed now or is already on its way. One pass over the table.
    ///
    /// ```text
    ///  | run of 3 : : | 1 | 1 | run of 2 : | 1 |     inside: the runs that the window touches
    ///         [ window of 4   ] ─▶
    /// ```
    pub(super) fn cheapest_window(
        &self,
        run_len: usize,
        cost: impl Fn(u32, u64) -> Option<u64>,
    ) -> Option<usize> {
        let mut inside: VecDeque<(usize, Option<u64>)> = VecDeque::new();
        let (mut entered, mut total, mut blocked_count) = (0, 0_u64, 0_usize);
        let mut best: Option<(u64, usize)> = None;
        for first in 0..=self.rows.len().checked_sub(run_len)? {
            while entered < first + run_len {
                let row = &self.rows[entered];
                // Asked once: what is alive may die while this looks.
                let row_cost = match row.state {
                    SegmentState::Free => Some(0),
                    SegmentState::Used | SegmentState::Waiting => {
                        cost(entered as u32, row.sequence)
                    }
                    _ => None,
                };
                entered += row.run_len as usize;
                inside.push_back((entered, row_cost));
                total += row_cost.unwrap_or(0);
                blocked_count += usize::from(row_cost.is_none());
            }
            while let Some((_, row_cost)) = inside.pop_front_if(|(end, _)| *end <= first) {
                total -= row_cost.unwrap_or(0);
                blocked_count -= usize::from(row_cost.is_none());
            }
            if blocked_count == 0 && best.is_none_or(|(least, _)| total < least) {
                best = Some((total, first));
            }
        }
        best.map(|(_, first)| first)
    }
}
