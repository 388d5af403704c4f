//! Segments that a medium held when the store was opened, and the oldest segment present.

use super::super::table::{Contents, SegmentRow, SegmentState};
use super::{Allocator, Reason, Victim};

impl Allocator {
    /// Takes a segment, or a run, that was used before. False: it does not exist, or is not free.
    pub(crate) fn restore(&mut self, segment: u32, run_len: u32) -> bool {
        let (first, len) = (segment as usize, run_len as usize);
        let Some(rows) = self.rows.get_mut(first..first.saturating_add(len)) else { return false };
        if len == 0 || rows.iter().any(|row| row.state != SegmentState::Free) {
            return false;
        }
        rows.fill(SegmentRow { state: SegmentState::RunTail, ..SegmentRow::FREE });
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        rows[0] = SegmentRow { state: SegmentState::Using, run_len, sequence, ..SegmentRow::FREE };
        self.free.remove(first, len);
        self.free_count -= run_len;
        self.note_resident(first, len);
        true
    }

    /// Records the contents of a restored segment.
    pub(crate) fn end_restore(&mut self, segment: u32, contents: Contents) {
        self.close(segment, contents);
    }

    /// Retires a restored segment of which no entry is kept in place.
    pub(crate) fn retire_restored(&mut self, segment: u32, tag: u64) {
        self.rows[segment as usize].state = SegmentState::Waiting;
        self.waiting.push_back((segment, tag));
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
