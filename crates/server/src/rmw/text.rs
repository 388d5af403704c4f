//! APPEND and SETRANGE.

use store::request::{Item, Verdict};

use super::{Bounded, Refusal, write_keeping};

/// Adds bytes behind the value; an absent key counts as empty.
pub(super) fn append(
    old: Option<&Item<'_>>,
    tail: Bounded<'_>,
    value: &mut Vec<u8>,
) -> Verdict<Refusal> {
    let old_value = old.map_or(&b""[..], |old| old.value);
    if (old_value.len() + tail.bytes.len()) as u64 > tail.max_bytes {
        return Verdict::Refuse(Refusal::TooLong);
    }
    value.extend_from_slice(old_value);
    value.extend_from_slice(tail.bytes);
    write_keeping(old)
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
