//! The segment table: the state of each segment, the free ones, the order in which they were taken.
//!
//! ```text
//!  Free ─▶ Using ─▶ Used ─▶ Reclaiming ─▶ Waiting ─▶ Free         Free ⇄ Index    Free ⇄ Parked
//!                    ▲ └──────┘ claim      └ grace period
//!                    └ unclaim
//! ```
//!
//! The table makes each step of a segment; the allocator decides which segment takes it.
//!
//! # Invariants
//! I1: `free_count` is the number of rows in state Free.
//! I2: `free` has exactly the rows in state Free.
//! I3: every row from `top` on is parked.

mod choose;
mod free;

use std::ops::Range;

use crate::counters::LogSpace;

pub(crate) use choose::{Aim, Found, SEARCH_ROWS, Search, Then};
pub(super) use free::FreeSet;

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Empty.
    Free,
    /// One session appends to it.
    Using,
    /// Full; its live entries are read, and it may be reclaimed.
    Used,
    /// A session is moving its live entries away.
    Reclaiming,
    /// Has no live entry; readers or pins may still hold its bytes.
    Waiting,
    /// Inside a run that another segment heads.
    RunTail,
    /// Lent to the index: neither taken nor reclaimed until it comes back.
    Index,
    /// Beyond the present size of the log; holds nothing.
    Parked,
}

/// The queue that a segment's entries are in (S3-FIFO); policies with one queue have Main only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Entries on trial.
    Small,
    /// Entries that were read again.
    Main,
}

/// The contents of a closed segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Bytes of entries.
    pub used_bytes: u64,
    /// The expiry of the entry that expires last; [`NEVER_MS`] if one has none.
    pub latest_expiry_ms: u64,
    /// Whether it has entries of more than a quarter of a segment, whose tails stay empty.
    pub is_long: bool,
}

/// The latest expiry of a segment with an entry that never expires.
pub(crate) const NEVER_MS: u64 = u64::MAX;

/// One segment's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRow {
    pub state: SegmentState,
    /// Segments in the run that this one heads; 1 for a single segment.
    pub run_len: u32,
    /// Drawn when it was taken, counted in segments: the smaller, the older.
    pub sequence: u64,
    /// Bytes of entries, known once it is closed.
    pub used_bytes: u64,
    /// Every entry in it has expired by then; known once it is closed.
    pub latest_expiry_ms: u64,
    /// Whether it has entries of more than a quarter of a segment; known once it is closed.
    pub is_long: bool,
    pub queue: Queue,
}

impl SegmentRow {
    /// Whether some of its entries may be alive.
    pub(crate) fn has_entries(&self) -> bool {
        use SegmentState::{Reclaiming, Used, Using};
        matches!(self.state, Using | Used | Reclaiming)
    }

    pub(crate) const FREE: SegmentRow = SegmentRow {
        state: SegmentState::Free,
        run_len: 1,
        sequence: 0,
        used_bytes: 0,
        latest_expiry_ms: NEVER_MS,
        is_long: false,
        queue: Queue::Main,
    };
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

/// The rows of all segments of a log.
pub(crate) struct SegmentTable {
    rows: Vec<SegmentRow>,
    free_count: u32,
    /// The lowest free segment of a region is taken first, so that memory is touched in order.
    free: FreeSet,
    next_sequence: u64,
    reclaiming_count: u32,
    /// Grows whenever a segment changes state.
    change_count: u64,
    /// Rows from here on are parked: no search looks at them.
    top: usize,
}

impl SegmentTable {
    /// All segments are free.
    pub(super) fn new(segment_count: u32) -> SegmentTable {
        SegmentTable {
            rows: vec![SegmentRow::FREE; segment_count as usize],
            free_count: segment_count,
            free: FreeSet::all(segment_count as usize),
            next_sequence: 1,
            reclaiming_count: 0,
            change_count: 0,
            top: segment_count as usize,
        }
    }

    /// The number of segments, parked ones included.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn row(&self, segment: usize) -> &SegmentRow {
        &self.rows[segment]
    }

    /// Every segment with its row, including the tails of runs.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, &SegmentRow)> {
        self.rows.iter().enumerate().map(|(index, row)| (index as u32, row))
    }

    pub(super) fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(super) fn free(&self) -> &FreeSet {
        &self.free
    }

    /// The first row from which on all are parked (I3).
    pub(super) fn top(&self) -> u32 {
        self.top as u32
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

    /// The number of segments of the run with this head.
    pub(super) fn run_len(&self, segment: u32) -> u32 {
        self.rows[segment as usize].run_len
    }

    /// The age of a segment, for choosing a victim inside a bucket.
    pub(crate) fn sequence(&self, segment: u32) -> u64 {
        self.rows[segment as usize].sequence
    }

    fn draw_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Free segments become a run that one session writes.
    pub(super) fn take(&mut self, first: usize, run_len: u32) {
        self.free.remove(first, run_len as usize);
        for row in &mut self.rows[first..first + run_len as usize] {
            debug_assert!(row.state == SegmentState::Free);
            *row = SegmentRow { state: SegmentState::RunTail, ..SegmentRow::FREE };
        }
        self.change_count += 1;
        let (state, sequence) = (SegmentState::Using, self.draw_sequence());
        self.rows[first] = SegmentRow { state, run_len, sequence, ..SegmentRow::FREE };
        self.free_count -= run_len;
    }

    /// A session goes on in a used segment, which becomes the youngest; returns its contents.
    pub(super) fn reopen(&mut self, segment: u32) -> Contents {
        let sequence = self.draw_sequence();
        let row = &mut self.rows[segment as usize];
        row.state = SegmentState::Using;
        row.sequence = sequence;
        self.change_count += 1;
        let SegmentRow { used_bytes, latest_expiry_ms, is_long, .. } = *row;
        Contents { used_bytes, latest_expiry_ms, is_long }
    }

    /// The writer of a segment is done with it.
    pub(crate) fn close(&mut self, segment: u32, contents: Contents) {
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
        self.rows[segment as usize].sequence = self.draw_sequence();
    }

    /// The grace period of a claimed segment begins.
    pub(super) fn retire(&mut self, segment: u32) {
        let row = &mut self.rows[segment as usize];
        assert!(row.state == SegmentState::Reclaiming, "retired by its reclaimer");
        row.state = SegmentState::Waiting;
        self.reclaiming_count -= 1;
        self.change_count += 1;
    }

    /// The same, for a restored segment.
    pub(super) fn retire_restored(&mut self, segment: u32) {
        self.rows[segment as usize].state = SegmentState::Waiting;
    }

    /// Frees a run; returns its segments.
    pub(super) fn free_run(&mut self, segment: u32) -> Range<usize> {
        let first = segment as usize;
        let run_len = self.rows[first].run_len as usize;
        self.change_count += 1;
        self.rows[first..first + run_len].fill(SegmentRow::FREE);
        self.free_count += run_len as u32;
        self.free.insert(first, run_len);
        first..first + run_len
    }

    /// Cuts a run in two, the first of which has `run_len` segments.
    pub(super) fn split_run(&mut self, first: u32, run_len: u32) {
        let (row, end) = (self.rows[first as usize], first + run_len);
        self.rows[end as usize] = SegmentRow { run_len: row.run_len - run_len, ..row };
        self.rows[first as usize].run_len = run_len;
    }

    /// A free segment goes to the index.
    pub(super) fn lend(&mut self, segment: usize) {
        self.free.remove(segment, 1);
        self.free_count -= 1;
        self.rows[segment] = SegmentRow { state: SegmentState::Index, ..SegmentRow::FREE };
    }

    /// A free segment is parked.
    pub(super) fn park(&mut self, segment: usize) {
        self.free.remove(segment, 1);
        self.free_count -= 1;
        self.rows[segment] = SegmentRow { state: SegmentState::Parked, ..SegmentRow::FREE };
        self.change_count += 1;
        while self.top > 0 && self.rows[self.top - 1].state == SegmentState::Parked {
            self.top -= 1;
        }
    }

    /// A parked segment becomes free.
    pub(super) fn unpark(&mut self, segment: usize) {
        self.rows[segment] = SegmentRow::FREE;
        self.free.insert(segment, 1);
        self.free_count += 1;
        self.change_count += 1;
        self.top = self.top.max(segment + 1);
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

    /// Recounts all invariants.
    pub(super) fn validate(&self) {
        let free = self.rows.iter().filter(|row| row.state == SegmentState::Free).count();
        assert_eq!(free, self.free_count as usize, "I1");
        let agrees = |(at, row): (usize, &SegmentRow)| {
            self.free.contains(at) == (row.state == SegmentState::Free)
        };
        assert!(self.rows.iter().enumerate().all(agrees), "I2");
        self.free.validate();
        let is_parked = |row: &SegmentRow| row.state == SegmentState::Parked;
        assert!(self.rows[self.top..].iter().all(is_parked), "I3");
    }
}
