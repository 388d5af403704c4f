//! The short way for GET and for SET without options, framed as every client frames them.
//!
//! ```text
//!  byte  0        8      14
//!        *2..$3.. GET..$ 2 CRLF k1 CRLF        `.` is CR or LF; two 8-byte compares, the second
//!        └ word 0 ┘└ ────┘                     one from byte 6: `..GET..$` with the case folded
//! ```
//!
//! Everything that is unusual, incomplete or wrong answers `None` and goes the long way.

use crate::resp::command::{Command, Expiry, SetCommand, SetCondition};
use crate::resp::limits::Limits;

const GET_FRAME: u64 = u64::from_le_bytes(*b"*2\r\n$3\r\n");
const SET_FRAME: u64 = u64::from_le_bytes(*b"*3\r\n$3\r\n");
const GET_NAME: u64 = u64::from_le_bytes(*b"\r\nget\r\n$");
const SET_NAME: u64 = u64::from_le_bytes(*b"\r\nset\r\n$");
/// Sets the lower-case bit of the three letters.
const CASE_FOLD: u64 = u64::from_le_bytes([0, 0, 0x20, 0x20, 0x20, 0, 0, 0]);
/// Where the digits of the key's length start.
const KEY_LEN_AT: usize = 14;
/// Longer length fields go the long way.
const LEN_DIGITS_MAX: usize = 7;

/// A whole GET or plain SET at the front of `input`, and its length.
#[inline]
pub fn parse_hot<'a>(input: &'a [u8], limits: &Limits) -> Option<(Command<'a>, usize)> {
    let frame = u64::from_le_bytes(*input.first_chunk::<8>()?);
    let name = u64::from_le_bytes(*input.get(6..14)?.first_chunk::<8>()?) | CASE_FOLD;
    if frame == GET_FRAME && name == GET_NAME {
        let (key, end) = bulk(input, KEY_LEN_AT, limits)?;
        return Some((Command::Get { key }, end));
    }
    if frame == SET_FRAME && name == SET_NAME {
        let (key, value_at) = bulk(input, KEY_LEN_AT, limits)?;
        if *input.get(value_at)? != b'$' {
            return None;
        }
        let (value, end) = bulk(input, value_at + 1, limits)?;
        let set = SetCommand {
            key,
            value,
            expiry: Expiry::Never,
            condition: SetCondition::Always,
            returns_old: false,
        };
        return Some((Command::Set(set), end));
    }
    None
}

/// Reads `len CRLF bytes CRLF` at `at`; answers the bytes and the index after them.
#[inline]
fn bulk<'a>(input: &'a [u8], at: usize, limits: &Limits) -> Option<(&'a [u8], usize)> {
    let digits = input.get(at..)?;
    let first = digits.first()?.wrapping_sub(b'0');
    if first == 0 || first > 9 {
        return None; // Empty, or something that is no number.
    }
    let mut len_bytes = usize::from(first);
    let mut digit_count = 1;
    loop {
        let byte = *digits.get(digit_count)?;
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            if byte != b'\r' {
                return None;
            }
            break;
        }
        if digit_count == LEN_DIGITS_MAX {
            return None;
        }
        len_bytes = len_bytes * 10 + usize::from(digit);
        digit_count += 1;
    }
    if len_bytes > limits.hot_bulk_max_bytes() {
        return None;
    }
    let start = at + digit_count + 2;
    let end = start + len_bytes + 2;
    if end > input.len() {
        return None;
    }
    Some((&input[start..end - 2], end))
}
