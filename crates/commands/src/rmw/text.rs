//! APPEND, the native prepend, and SETRANGE.

use store::Pieces;
use store::request::{Item, Verdict};

use super::{Bounded, Refusal, Side, write_keeping};

/// Adds bytes on one side of the value; an absent key counts as empty.
pub(super) fn join<'v>(
    old: Option<&Item<'v>>,
    part: Bounded<'v>,
    side: Side,
    pieces: &mut Pieces<'v>,
) -> Verdict<Refusal> {
    let old_value = old.map_or(&b""[..], |old| old.value);
    if (old_value.len() + part.bytes.len()) as u64 > part.max_bytes {
        return Verdict::Refuse(Refusal::TooLong);
    }
    (pieces.before, pieces.after[0]) = match side {
        Side::Behind => (old_value, part.bytes),
        Side::Before => (part.bytes, old_value),
    };
    write_keeping(old)
}

/// The number of zero bytes before a range; also 0 if the range is not written.
pub(super) fn gap_before_range(old_len: usize, offset_bytes: u64, part: Bounded<'_>) -> usize {
    let end = offset_bytes.saturating_add(part.bytes.len() as u64);
    let is_written = !part.bytes.is_empty() && end <= part.max_bytes;
    if is_written { (offset_bytes as usize).saturating_sub(old_len) } else { 0 }
}

/// Overwrites from an offset on; zero bytes fill a gap. An empty range changes nothing.
pub(super) fn set_range<'v>(
    old: Option<&Item<'v>>,
    offset_bytes: u64,
    part: Bounded<'v>,
    pieces: &mut Pieces<'v>,
) -> Verdict<Refusal> {
    if part.bytes.is_empty() {
        return Verdict::Keep;
    }
    let end = offset_bytes.saturating_add(part.bytes.len() as u64);
    if end > part.max_bytes {
        return Verdict::Refuse(Refusal::TooLong);
    }
    let old_value = old.map_or(&b""[..], |old| old.value);
    let gap = gap_before_range(old_value.len(), offset_bytes, part);
    // Both fit a usize: they are at most `max_bytes`, the size of a buffer in memory.
    let (start, end) = (offset_bytes as usize, end as usize);
    pieces.before = &old_value[..start.min(old_value.len())];
    pieces.made.resize(gap, 0);
    pieces.after = [part.bytes, old_value.get(end..).unwrap_or_default()];
    write_keeping(old)
}
