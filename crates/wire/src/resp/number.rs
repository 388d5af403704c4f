//! Numbers in arguments, parsed exactly as strictly as in Redis.

mod decimal;
mod extended;
mod long;

use super::error::ErrorReply;
use extended::Reading;

/// Parses a decimal `i64`: no `+`, no leading zeros, no spaces, no `-0`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let starts_with_zero = *digits.first()? == b'0';
    if digits.len() > 19 || (starts_with_zero && text.len() > 1) {
        return None;
    }
    let mut magnitude = 0_u64; // 19 digits cannot overflow it.
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Adds two decimal numbers and appends the sum to `out` as INCRBYFLOAT writes it: no exponent,
/// at most 17 digits after the point, no trailing zeros.
///
/// Both are 80-bit floats, as in Redis on x86-64: beyond some 19 significant digits the sum is not
/// exact.
///
/// An absent key is `b"0"`. On an error nothing is appended.
pub fn add_float(
    old: &[u8],
    increment: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ErrorReply<'static>> {
    match (extended::read(old), extended::read(increment)) {
        (Reading::Invalid, _) | (_, Reading::Invalid) => Err(ErrorReply::NotAFloat),
        (Reading::Finite(old), Reading::Finite(increment)) => {
            extended::write(extended::add(old, increment).ok_or(ErrorReply::FloatOverflow)?, out);
            Ok(())
        }
        _ => Err(ErrorReply::FloatOverflow),
    }
}

/// Whether INCRBYFLOAT accepts this as a number. Infinity is one; adding it then overflows.
pub fn is_float(text: &[u8]) -> bool {
    !matches!(extended::read(text), Reading::Invalid)
}

/// The cost of parsing a decimal number, in digits: those of its text, and as many as its exponent
/// stands for.
pub fn float_digits(text: &[u8]) -> usize {
    // The highest exponent of a float; beyond it nothing is computed.
    const EXPONENT_MAX: usize = 5_000;
    let mark = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let exponent = mark.map_or(&[][..], |at| &text[at + 1..]);
    let exponent = exponent.iter().filter(|byte| byte.is_ascii_digit());
    let exponent = exponent
        .fold(0, |sum: usize, byte| (sum * 10 + usize::from(byte - b'0')).min(EXPONENT_MAX));
    text.len() + exponent
}

/// A double as RESP3 writes it: the shortest form that reads back, `inf`, `-inf`, `nan`.
pub fn double_text(value: f64) -> String {
    // Up to here every integer has its own double and its digits are its shortest form.
    const INTEGER_MAX: f64 = 1e15;
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else if value.fract() == 0.0 && value.abs() < INTEGER_MAX {
        format!("{value:.0}")
    } else {
        format!("{value:?}")
    }
}

#[cfg(test)]
mod tests;
