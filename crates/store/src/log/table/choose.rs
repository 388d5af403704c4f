//! The choice of the segment to reclaim next.
//!
//! ```text
//!  table:   | row 0 | row 1 | ...   seen   ...  | ^ next_row      not seen yet       |
//!  Search:   the best of what was seen: dead space, oldest of each queue, sparsest
//! ```
//!
//! # Invariants
//! I1: a segment that a finished search names is claimed only if its row still describes the same
//!     used segment; otherwise the search restarts. The live bytes of a used segment only shrink,
//!     so it is no worse than when the search saw it.
//!
//! # Limits
//! A step looks at [`SEARCH_ROWS`] rows under the log's mutex, some 10 us. The whole table is
//! searched once per segment's worth of writes, in steps: 1 ms at 131,072 segments (512 GiB of 4
//! MiB). Only a write that must make room by itself takes all steps at once. A run's window takes
//! one pass, whatever the run's length.

use std::collections::VecDeque;

use base::UnixMillis;

use super::{Queue, Reason, SegmentRow, SegmentState, SegmentTable, Victim};

/// The small queue's share of the live bytes (Yang et al., SOSP 2023, §4.1).
const SMALL_SHARE_PCT: u64 = 10;
/// Rows that one step of a search looks at.
pub(crate) const SEARCH_ROWS: u32 = 1024;

/// The kind of segment wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// First choice: a segment in which nothing is alive, or everything has expired, or less than
    /// this percent of the entry bytes is alive. Of these, the one with the least to copy; of
    /// several, the oldest. A run is either alive or not: moving it makes no room.
    pub copy_below_pct: u64,
    /// The second choice.
    pub then: Then,
}

/// The second choice of an [`Aim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The segment whose turn it is (evict mode): the oldest of the small queue while that holds
    /// more than its share of the live bytes, else the oldest of main.
    Turn,
    /// The segment with the smallest live share of those whose used bytes are live to less than
    /// `below_pct` (clean mode). Runs count once they are dead.
    Sparsest {
        /// A segment with a higher live share is not worth cleaning.
        below_pct: u64,
        /// The size of a segment that is not in a run.
        segment_bytes: u64,
    },
}

/// A search through the table for the next victim, some rows at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    aim: Aim,
    next_row: u32,
    /// Bytes to copy, sequence, segment.
    dead: Option<(u64, u64, u32)>,
    /// Sequence and segment, of main and of the small queue.
    oldest: [Option<(u64, u32)>; 2],
    /// Live share, sequence, segment.
    sparsest: Option<(u64, u64, u32)>,
    small_bytes: u64,
    all_bytes: u64,
}

/// The result of a step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Rows are left, or the segment found has changed since.
    NotYet,
    /// A victim was claimed.
    Victim(Victim),
    /// No segment is worth it.
    Nothing,
}

impl Search {
    pub(crate) fn new(aim: Aim) -> Search {
        Search {
            aim,
            next_row: 0,
            dead: None,
            oldest: [None; 2],
            sparsest: None,
            small_bytes: 0,
            all_bytes: 0,
        }
    }

    pub(crate) fn aim(&self) -> Aim {
        self.aim
    }

    /// Looks at the next rows; once all were seen, claims the segment found (I1).
    pub(crate) fn step(
        &mut self,
        table: &mut SegmentTable,
        now: UnixMillis,
        live_bytes: impl Fn(u32) -> u64,
    ) -> Found {
        let end = (table.top as u32).min(self.next_row + SEARCH_ROWS);
        for segment in self.next_row..end {
            let row = &table.rows[segment as usize];
            if row.has_entries() {
                self.look_at(segment, row, live_bytes(segment), now);
            }
        }
        self.next_row = end;
        if (end as usize) < table.top {
            return Found::NotYet;
        }
        let choice = self.choice();
        *self = Search::new(self.aim);
        let Some((segment, sequence, reason)) = choice else { return Found::Nothing };
        let row = &table.rows[segment as usize];
        match row.state == SegmentState::Used && row.sequence == sequence {
            true => Found::Victim(table.claim(segment, reason)),
            false => Found::NotYet,
        }
    }

    /// All steps of a search at once.
    pub(crate) fn all(
        table: &mut SegmentTable,
        aim: Aim,
        now: UnixMillis,
        live_bytes: impl Fn(u32) -> u64,
    ) -> Option<Victim> {
        let mut search = Search::new(aim);
        loop {
            match search.step(table, now, &live_bytes) {
                // The lock is held, so the segment found is unchanged.
                Found::NotYet => {}
                Found::Victim(victim) => return Some(victim),
                Found::Nothing => return None,
            }
        }
    }

    fn look_at(&mut self, segment: u32, row: &SegmentRow, live_bytes: u64, now: UnixMillis) {
        let is_small = row.queue == Queue::Small;
        self.all_bytes += live_bytes;
        self.small_bytes += if is_small { live_bytes } else { 0 };
        if row.state != SegmentState::Used {
            return;
        }
        let to_copy = match live_bytes {
            _ if row.latest_expiry_ms <= now.0 => Some(0),
            0 => Some(0),
            live if row.run_len == 1 && live * 100 < self.aim.copy_below_pct * row.used_bytes => {
                Some(live)
            }
            _ => None,
        };
        let at = |cost: u64| (cost, row.sequence, segment);
        self.dead = least(self.dead, to_copy.map(at));
        let age = (row.sequence, segment);
        let oldest = &mut self.oldest[usize::from(is_small)];
        *oldest = least(*oldest, Some(age));
        self.sparsest = least(self.sparsest, self.share(row, live_bytes).map(at));
    }

    /// The live share of a segment worth cleaning.
    fn share(&self, row: &SegmentRow, live_bytes: u64) -> Option<u64> {
        let Then::Sparsest { below_pct, segment_bytes } = self.aim.then else { return None };
        // A run is one entry: it is live or dead, and moving it makes no room. Nor does moving a
        // fully live segment, unless two such segments fit into one: the tail of a segment of long
        // entries stays empty wherever they lie.
        let is_worth_it = match row {
            _ if live_bytes == 0 => true,
            SegmentRow { run_len: 1, used_bytes, .. } => {
                live_bytes * 100 < below_pct * used_bytes || 2 * used_bytes < segment_bytes
            }
            _ => false,
        };
        is_worth_it.then(|| live_bytes * 10_000 / (segment_bytes * u64::from(row.run_len)))
    }

    /// The segment to claim, once all rows were seen, with its sequence.
    fn choice(&self) -> Option<(u32, u64, Reason)> {
        if let Some((_, sequence, segment)) = self.dead {
            return Some((segment, sequence, Reason::DeadSpace));
        }
        let (sequence, segment) = match self.aim.then {
            Then::Sparsest { .. } => {
                self.sparsest.map(|(_, sequence, segment)| (sequence, segment))
            }
            Then::Turn => {
                let [main, small] = self.oldest;
                match self.small_bytes * 100 > SMALL_SHARE_PCT * self.all_bytes {
                    true => small.or(main),
                    false => main.or(small),
                }
            }
        }?;
        Some((segment, sequence, Reason::Turn))
    }
}

fn least<T: Ord>(left: Option<T>, right: Option<T>) -> Option<T> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}

impl SegmentTable {
    /// Claims one used segment of the window of `run_len` that costs least to empty, so that a
    /// run becomes free there. `cost` of a used or waiting run, of which it gets the first segment
    /// and how much younger than the oldest all its segments are: these or live bytes; `None`: it
    /// cannot be had.
    pub(crate) fn claim_in_window(
        &mut self,
        run_len: u32,
        cost: impl Fn(u32, u64) -> Option<u64>,
    ) -> Option<Victim> {
        let run_len = run_len as usize;
        let best = self.cheapest_window(run_len, cost)?;
        // A run that extends beyond the window on the left has its head outside.
        let heads = (0..best + run_len).filter(|first| {
            let row = &self.rows[*first];
            row.state == SegmentState::Used && first + row.run_len as usize > best
        });
        let segment = heads.min_by_key(|first| self.rows[*first].sequence)?;
        Some(self.claim(segment as u32, Reason::Turn))
    }

    /// The first segment of the window of `run_len` that costs least to empty; `None`: in each of
    /// them something cannot be reclaimed now or is already on its way. Two passes over the table:
    /// ages count from the oldest, for in a log of long standing all sequences are about the same.
    ///
    /// ```text
    ///  | run of 3 : : | 1 | 1 | run of 2 : | 1 |     inside: the runs that the window touches
    ///         [ window of 4   ] ─▶
    /// ```
    pub(in crate::log) fn cheapest_window(
        &self,
        run_len: usize,
        cost: impl Fn(u32, u64) -> Option<u64>,
    ) -> Option<usize> {
        let is_filled =
            |row: &&SegmentRow| matches!(row.state, SegmentState::Used | SegmentState::Waiting);
        let sequences = self.rows[..self.top].iter().filter(is_filled).map(|row| row.sequence);
        let oldest = sequences.min().unwrap_or(0);
        let mut inside: VecDeque<(usize, Option<u64>)> = VecDeque::new();
        let (mut entered, mut total, mut blocked_count) = (0, 0_u64, 0_usize);
        let mut best: Option<(u64, usize)> = None;
        for first in 0..=self.top.checked_sub(run_len)? {
            while entered < first + run_len {
                let row = &self.rows[entered];
                // Read once: live entries may die meanwhile.
                let row_cost = match row.state {
                    SegmentState::Free => Some(0),
                    SegmentState::Used | SegmentState::Waiting => {
                        // Each segment of a run is as old as the run.
                        let age = row.sequence.saturating_sub(oldest) + 1;
                        cost(entered as u32, age.saturating_mul(u64::from(row.run_len)))
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

    /// Claims the full single segment for which `age` is least, if that age `is_due`.
    pub(crate) fn claim_oldest(
        &mut self,
        age: impl Fn(u32) -> u64,
        is_due: impl FnOnce(u64) -> bool,
    ) -> Option<Victim> {
        let is_single = |row: &SegmentRow| row.state == SegmentState::Used && row.run_len == 1;
        let full = self.rows.iter().enumerate().filter(|(_, row)| is_single(row));
        let oldest = full.map(|(segment, _)| segment as u32).min_by_key(|segment| age(*segment))?;
        is_due(age(oldest)).then(|| self.claim(oldest, Reason::DeadSpace))
    }
}
