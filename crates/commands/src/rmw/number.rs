//! INCR and INCRBYFLOAT: the value is the number's decimal text.

use store::request::{Item, Verdict};
use wire::resp::ErrorReply;
use wire::resp::number::{add_float, parse_i64};

use super::{Refusal, write_keeping};

/// Adds `delta` to an integer; an absent key counts as 0.
pub(super) fn increment(
    old: Option<&Item<'_>>,
    delta: i64,
    value: &mut Vec<u8>,
) -> Verdict<Refusal> {
    let Some(number) = old.map_or(Some(0), |old| parse_i64(old.value)) else {
        return Verdict::Refuse(Refusal::NotAnInteger);
    };
    let Some(sum) = number.checked_add(delta) else {
        return Verdict::Refuse(Refusal::IntegerOverflow);
    };
    value.extend_from_slice(itoa::Buffer::new().format(sum).as_bytes());
    write_keeping(old)
}

/// Adds a decimal number; an absent key counts as 0.
pub(super) fn increment_float(
    old: Option<&Item<'_>>,
    increment: &[u8],
    value: &mut Vec<u8>,
) -> Verdict<Refusal> {
    match add_float(old.map_or(b"0", |old| old.value), increment, value) {
        Ok(()) => write_keeping(old),
        Err(ErrorReply::FloatOverflow) => Verdict::Refuse(Refusal::FloatOverflow),
        Err(_) => Verdict::Refuse(Refusal::NotAFloat),
    }
}
