//! memcached's incr, decr, append and prepend: they never create an absent key.

use store::Pieces;
use store::request::{Item, Verdict};

use super::meta::unmarked;
use super::{Bounded, Refusal, Side, text};

/// Adds bytes on one side of the value; flags and expiry stay.
pub(super) fn join<'v>(
    old: Option<&Item<'v>>,
    part: Bounded<'v>,
    side: Side,
    pieces: &mut Pieces<'v>,
) -> Verdict<Refusal> {
    match old {
        None => Verdict::Refuse(Refusal::Absent),
        Some(_) => text::join(old, part, side, pieces),
    }
}

/// Replaces a decimal number. A shorter result is padded with spaces to the old length, as in
/// memcached.
pub(super) fn arithmetic(
    old: Option<&Item<'_>>,
    value: &mut Vec<u8>,
    change: impl FnOnce(u64) -> u64,
) -> Verdict<Refusal> {
    let Some(item) = old else { return Verdict::Refuse(Refusal::Absent) };
    let Some(number) = parse_decimal(item.value) else {
        return Verdict::Refuse(Refusal::NotNumeric);
    };
    let client_flags = pad(item, change(number), value);
    Verdict::Write { client_flags, expires_at: item.expires_at }
}

/// Writes a number in place of an item's value, at least as long as the old value; returns the
/// item's new client flags. A number that fits keeps the marks, as in memcached, which writes it in
/// place.
pub(super) fn pad(item: &Item<'_>, number: u64, value: &mut Vec<u8>) -> u64 {
    value.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    let fits = value.len() <= item.value.len();
    value.resize(value.len().max(item.value.len()), b' ');
    if fits { item.client_flags } else { unmarked(item.client_flags) }
}

/// A longer value is not a number: memcached has such a limit too, of half a megabyte. Each
/// increment of a chain reads the whole value all the same.
const NUMBER_BYTES_MAX: usize = 1024;

/// Parses a number as C's `strtoull` does: blanks and a sign before it, and anything after a blank
/// or a NUL. A minus is only accepted before zero.
pub fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.len() > NUMBER_BYTES_MAX {
        return None;
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let rest = &text[start..];
    let end = rest.iter().position(|byte| is_blank(byte) || *byte == 0).unwrap_or(rest.len());
    let (is_negative, digits) = match &rest[..end] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })?;
    (!is_negative || number == 0).then_some(number)
}
