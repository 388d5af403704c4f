//! APPEND, the native prepend, and SETRANGE.

use store::request::{Item, Verdict};

use super::{Bounded, Refusal, Side, write_keeping};

/// Adds bytes on one side of the value; an absent key counts as empty.
pub(super) fn join(
    old: Option<&Item<'_>>,
    part: Bounded<'_>,
    side: Side,
    value: &mut Vec<u8>,
) -> Verdict<Refusal> {
    let old_value = old.map_or(&b""[..], |old| old.value);
    if (old_value.len() + part.bytes.len()) as u64 > part.max_bytes {
        return Verdict::Refuse(Refusal::TooLong);
    }
    let (first, second) = match side {
        Side::Behind => (old_value, part.bytes),
        Side::Before => (part.bytes, old_value),
    };
    value.extend_from_slice(first);
    value.extend_from_slice(second);
    write_keeping(old)
}

/// How long the value is with a range; 0: it is not written.
pub(super) fn len_with_range(old_len: usize, offset_bytes: u64, part: Bounded<'_>) -> usize {
    let end = offset_bytes.saturating_add(part.bytes.len() as u64);
    let is_written = !part.bytes.is_empty() && end <= part.max_bytes;
    if is_written { old_len.max(end as usize) } else { 0 }
}

/// Overwrites from an offset on; zero bytes fill a gap. No bytes change nothing.
pub(super) fn set_range(
    old: Option<&Item<'_>>,
    offset_bytes: u64,
    part: Bounded<'_>,
    value: &mut Vec<u8>,
) -> Verdict<Refusal> {
    if part.bytes.is_empty() {
        return Verdict::Keep;
    }
    let end = offset_bytes.saturating_add(part.bytes.len() as u64);
    if end > part.max_bytes {
        return Verdict::Refuse(Refusal::TooLong);
    }
    // Both fit a usize: they are at most `max_bytes`, the size of something in memory.
    let (start, end) = (offset_bytes as usize, end as usize);
    let old_value = old.map_or(&b""[..], |old| old.value);
    value.extend_from_slice(old_value);
    if value.len() < end {
        value.resize(end, 0);
    }
    value[start..end].copy_from_slice(part.bytes);
    write_keeping(old)
}
