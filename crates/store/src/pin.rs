//! Pins: they keep an item's bytes in place after the batch that found it (K12).

use std::collections::HashSet;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::inner::Inner;
use crate::item::Item;
use crate::log::Log;

/// Creates pins during a sink's call.
#[derive(Clone, Copy)]
pub struct Pins<'a>(pub(crate) &'a Arc<Inner>);

/// A value's bytes, kept in place until this is dropped.
///
/// While it lives, its segment is not reused: holders bound how many bytes they pin.
pub struct PinnedValue(Held);

enum Held {
    /// Up to eight bytes may be replaced in place (K12), and are cheap to copy.
    Copied { bytes: [u8; 8], len_bytes: usize },
    InLog {
        store: Arc<Inner>,
        segment: u32,
        /// The number of segments of the entry's run, 1 if it shares a segment.
        run_len: u32,
        start: *const u8,
        len_bytes: usize,
    },
}

// SAFETY: the bytes are immutable and the segment's pin count is atomic, so that the value may be
// read and dropped on any thread.
unsafe impl Send for PinnedValue {}
// SAFETY: as for Send; shared access only reads.
unsafe impl Sync for PinnedValue {}

impl Pins<'_> {
    /// Pins `item.value`. `None` if it does not lie in the log, or if half of the log is pinned
    /// already, so that slow clients cannot stop writes to the log. A segment that is pinned
    /// already may be pinned again: that holds no further one.
    pub fn try_pin(self, item: &Item<'_>) -> Option<PinnedValue> {
        let log = &self.0.log;
        let is_in_log = log.holds(item.key) && log.holds(item.value);
        (is_in_log && log.may_pin(self.offset_of(item))).then(|| self.pin(item))
    }

    /// Whether the plan has room for the item's value, which it adds.
    pub fn plan(self, item: &Item<'_>, plan: &mut PinPlan) -> bool {
        let log = &self.0.log;
        if !(log.holds(item.key) && log.holds(item.value)) {
            return false;
        }
        let segment = log.segment_of(self.offset_of(item));
        if plan.segments.contains(&segment) || log.is_pinned(segment) {
            return true;
        }
        let is_added = plan.add(self.run_len_of(item));
        if is_added {
            plan.segments.insert(segment);
        }
        is_added
    }

    /// The number of segments that a pin of the item's value takes.
    fn run_len_of(self, item: &Item<'_>) -> u32 {
        let log = &self.0.log;
        let end = item.value.as_ptr().addr() + item.value.len() - log.address(0).addr();
        log.run_len(end as u64 - log.segment_start(log.segment_of(self.offset_of(item))))
    }

    /// Whether callers should take no more pins: a quarter of the log is pinned.
    pub fn are_full(self) -> bool {
        self.0.log.is_pin_share_reached()
    }

    /// Whether less than half of the log is pinned, so that any item of it may be.
    pub fn have_room(self) -> bool {
        let (pinned_count, count_max) = self.0.log.pinned_and_max();
        pinned_count < count_max
    }

    /// An offset in the segment where the entry starts, that of its key: key and header lie in that
    /// segment even if the value is long.
    fn offset_of(self, item: &Item<'_>) -> u64 {
        (item.key.as_ptr().addr() - self.0.log.address(0).addr()) as u64
    }

    /// Pins `item.value`, without a limit; `item` is the sink's argument.
    ///
    /// # Panics
    /// If the item is from another source.
    pub fn pin(self, item: &Item<'_>) -> PinnedValue {
        let len_bytes = item.value.len();
        let mut bytes = [0; 8];
        if let Some(copy) = bytes.get_mut(..len_bytes) {
            copy.copy_from_slice(item.value);
            return PinnedValue(Held::Copied { bytes, len_bytes });
        }
        let log = &self.0.log;
        assert!(log.holds(item.key) && log.holds(item.value), "an item of this store");
        let run_len = self.run_len_of(item);
        PinnedValue(Held::InLog {
            store: Arc::clone(self.0),
            segment: log.pin(self.offset_of(item), run_len),
            run_len,
            start: item.value.as_ptr(),
            len_bytes,
        })
    }
}

/// How many values could be pinned, one after the other, if no other reply pinned any meanwhile.
pub struct PinPlan {
    pinned_count: u32,
    count_max: u32,
    segment_bytes: u64,
    /// Of those that it pins.
    segments: HashSet<u32>,
}

impl PinPlan {
    pub(crate) fn new(log: &Log) -> PinPlan {
        let (pinned_count, count_max) = log.pinned_and_max();
        let segment_bytes = log.segment_bytes();
        PinPlan { pinned_count, count_max, segment_bytes, segments: HashSet::new() }
    }

    /// Whether so many values of that length have room wherever they lie.
    pub fn has_room_for(&self, count: usize, len_bytes: u64) -> bool {
        let runs = (count as u64).saturating_mul(len_bytes / self.segment_bytes + 2);
        u64::from(self.pinned_count).saturating_add(runs) <= u64::from(self.count_max)
    }

    /// Adds a value of that length that is to be written.
    pub fn add_fresh(&mut self, len_bytes: u64) -> bool {
        self.add(u32::try_from(len_bytes / self.segment_bytes + 1).unwrap_or(u32::MAX))
    }

    fn add(&mut self, run_len: u32) -> bool {
        let has_room = self.pinned_count < self.count_max;
        if has_room {
            self.pinned_count = self.pinned_count.saturating_add(run_len);
        }
        has_room
    }
}

impl PinnedValue {
    /// Narrows the value to a part of it; all of it stays in place.
    ///
    /// # Panics
    /// If the value is shorter than the end of `part`, or `part` ends before it begins.
    pub fn narrow(&mut self, part: Range<usize>) {
        let len = self.len();
        assert!(part.start <= part.end && part.end <= len, "{part:?} of {len} bytes");
        match &mut self.0 {
            Held::Copied { bytes, len_bytes } => {
                bytes.copy_within(part.clone(), 0);
                *len_bytes = part.len();
            }
            Held::InLog { start, len_bytes, .. } => {
                *start = start.wrapping_add(part.start);
                *len_bytes = part.len();
            }
        }
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Copied { bytes, len_bytes } => &bytes[..*len_bytes],
            Held::InLog { start, len_bytes, .. } => {
                // SAFETY: the bytes were a published value when the pin was taken, inside a batch;
                // the pin keeps the segment from reuse and the mapping lives as long as `store`.
                unsafe { std::slice::from_raw_parts(*start, *len_bytes) }
            }
        }
    }
}

impl Drop for PinnedValue {
    fn drop(&mut self) {
        if let Held::InLog { store, segment, run_len, .. } = &self.0 {
            store.log.unpin(*segment, *run_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_copied_value_is_that_part() {
        let mut value = PinnedValue(Held::Copied { bytes: *b"abcdef\0\0", len_bytes: 6 });
        value.narrow(1..5);
        assert_eq!(*value, *b"bcde");
        value.narrow(2..2);
        assert!(value.is_empty());
    }
}
