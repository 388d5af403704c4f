//! One row of the segment table.

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
