//! One row of the segment table.

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Holds nothing.
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
}

/// One segment's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRow {
    pub state: SegmentState,
    /// Segments in the run that this one heads; 1 for a single segment.
    pub run_len: u32,
    /// When it was taken, counted in segments: the smaller, the older.
    pub sequence: u64,
    /// Bytes of entries, known once it is closed.
    pub used_bytes: u64,
}

impl SegmentRow {
    pub(crate) const FREE: SegmentRow =
        SegmentRow { state: SegmentState::Free, run_len: 1, sequence: 0, used_bytes: 0 };
}
