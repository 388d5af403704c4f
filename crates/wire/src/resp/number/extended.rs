//! 80-bit floats, by which INCRBYFLOAT is specified: parsed, added and formatted as Redis does it
//! on x86-64.
//!
//! ```text
//!  text ─▶ nearest float, 64 bits of mantissa ─▶ sum, rounded again ─▶ 17 digits behind the point,
//!          zeros at the end cut off
//! ```
//!
//! # Trade-offs
//! Parsing and adding use rustc_apfloat, the port of LLVM's that compilers rely on; [`long`] and
//! [`decimal`] bound the cost of thousands of digits. Formatting is short: below 2^64 a float times
//! 10^17 fits into 128 bits, and above it has no fraction.

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round, Status};

use super::{decimal, long};

/// Longer texts are not numbers.
const TEXT_MAX_BYTES: usize = 5119;
/// Digits after the point in the answer.
const FRACTION_DIGITS: usize = 17;
/// 10^17.
const FRACTION: u128 = 100_000_000_000_000_000;
/// The bias of a float's exponent, for the lowest bit of its mantissa.
const EXPONENT_BIAS: i32 = 16_383 + 63;

/// The meaning of a text.
pub(super) enum Reading {
    Finite(X87DoubleExtended),
    Infinite,
    Invalid,
}

/// Parses `[+-]digits[.digits][e[+-]digits]`, `[+-]0xdigits[.digits][p[+-]digits]` or a spelling of
/// infinity, as C's `strtold` does.
pub(super) fn read(text: &[u8]) -> Reading {
    if text.len() > TEXT_MAX_BYTES {
        return Reading::Invalid;
    }
    let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if [&b"inf"[..], b"infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word)) {
        return Reading::Infinite;
    }
    let hex = unsigned.strip_prefix(b"0x").or(unsigned.strip_prefix(b"0X"));
    let is_well_formed = match hex {
        Some(digits) => is_number(digits, b'p', u8::is_ascii_hexdigit),
        None => is_number(unsigned, b'e', u8::is_ascii_digit),
    };
    let Some(text) = std::str::from_utf8(text).ok().filter(|_| is_well_formed) else {
        return Reading::Invalid;
    };
    let has_exponent = text.contains(['p', 'P']);
    if hex.is_none()
        && let Some(read) = long::read(unsigned)
    {
        // It has digits other than 0.
        let is_lost = read.is_zero() || !read.is_finite();
        let signed = if text.starts_with('-') { -read } else { read };
        return if is_lost { Reading::Invalid } else { Reading::Finite(signed) };
    }
    let read = if hex.is_some() && !has_exponent {
        X87DoubleExtended::from_str_r(&format!("{text}p0"), Round::NearestTiesToEven)
    } else {
        X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven)
    };
    let Ok(read) = read else { return Reading::Invalid };
    let is_lost = read.value.is_zero() && read.status.intersects(Status::INEXACT);
    if is_lost || !read.value.is_finite() { Reading::Invalid } else { Reading::Finite(read.value) }
}

/// Whether there are digits, at most one point, and digits in the exponent if there is one.
fn is_number(text: &[u8], exponent_mark: u8, is_digit: fn(&u8) -> bool) -> bool {
    let mark = text.iter().position(|byte| byte.to_ascii_lowercase() == exponent_mark);
    let (mantissa, exponent) = match mark {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let points = mantissa.iter().filter(|byte| **byte == b'.').count();
    let digits = mantissa.iter().filter(|byte| is_digit(byte)).count();
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+"));
        let digits = digits.unwrap_or(exponent);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    });
    digits > 0 && points <= 1 && points + digits == mantissa.len() && exponent_is_good
}

/// The sum; `None`: it is not finite.
pub(super) fn add(left: X87DoubleExtended, right: X87DoubleExtended) -> Option<X87DoubleExtended> {
    let sum = left.add_r(right, Round::NearestTiesToEven).value;
    sum.is_finite().then_some(sum)
}

/// The mantissa of a finite number and the exponent of its lowest bit.
pub(super) fn parts(number: X87DoubleExtended) -> (u64, i32) {
    let bits = number.to_bits();
    let biased = (bits >> 64) as i32 & 0x7fff;
    // Subnormal numbers have the exponent of the smallest normal one.
    (bits as u64, biased.max(1) - EXPONENT_BIAS)
}

/// Appends a finite number.
pub(super) fn write(number: X87DoubleExtended, out: &mut Vec<u8>) {
    let (mantissa, exponent) = parts(number);
    let start = out.len();
    if number.is_negative() {
        out.push(b'-');
    }
    if exponent >= 0 {
        decimal::write(mantissa, exponent.unsigned_abs(), out);
    } else {
        write_fraction(mantissa, exponent.unsigned_abs(), out);
    }
    if out[start..] == *b"-0" {
        out.remove(start);
    }
}

/// Appends `mantissa / 2^shift`.
fn write_fraction(mantissa: u64, shift: u32, out: &mut Vec<u8>) {
    let scaled = rounded_shift(u128::from(mantissa) * FRACTION, shift);
    let text = (scaled / FRACTION).to_string();
    out.extend_from_slice(text.as_bytes());
    let fraction = format!("{:0width$}", scaled % FRACTION, width = FRACTION_DIGITS);
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    }
}

/// `number / 2^shift`, half to even.
fn rounded_shift(number: u128, shift: u32) -> u128 {
    if shift >= u128::BITS {
        return 0; // The number has 121 bits at most.
    }
    let floor = number >> shift;
    let rest = number - (floor << shift);
    let half = 1_u128 << (shift - 1);
    floor + u128::from(rest > half || (rest == half && floor % 2 == 1))
}
