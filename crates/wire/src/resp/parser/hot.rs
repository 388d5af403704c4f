//! The fast path for GET and for SET without options, framed as every client frames them.
//!
//! ```text
//!  byte  0        8      14
//!        *2..$3.. GET..$ 2 CRLF k1 CRLF        `.` is CR or LF; two 8-byte compares, the second
//!        └ word 0 ┘└ ────┘                     one from byte 6: `..GET..$` with the case folded
//! ```
//!
//! Any unusual, incomplete or malformed command returns `None` and takes the general path.

use crate::resp::command::Command;
use crate::resp::commands::{Expiry, SetCommand, SetCondition, StringCommand};
use crate::resp::limits::Limits;

const GET_FRAME: u64 = u64::from_le_bytes(*b"*2\r\n$3\r\n");
const SET_FRAME: u64 = u64::from_le_bytes(*b"*3\r\n$3\r\n");
const GET_NAME: u64 = u64::from_le_bytes(*b"\r\nget\r\n$");
const SET_NAME: u64 = u64::from_le_bytes(*b"\r\nset\r\n$");
/// Sets the lower-case bit of the three letters.
const CASE_FOLD: u64 = u64::from_le_bytes([0, 0, 0x20, 0x20, 0x20, 0, 0, 0]);
/// The offset of the digits of the key's length.
const KEY_LEN_AT: usize = 14;
/// The shortest hot command: a GET of a key of one byte.
const HOT_MIN_BYTES: usize = 20;
/// Longer length fields take the general path.
const LEN_DIGITS_MAX: usize = 9;

/// A whole GET or plain SET at the front of `input`, and its length.
#[inline]
pub fn parse_hot<'a>(input: &'a [u8], limits: &Limits) -> Option<(Command<'a>, usize)> {
    let head = input.first_chunk::<HOT_MIN_BYTES>()?;
    let frame = word_at(head, 0);
    let name = word_at(head, 6) | CASE_FOLD;
    if frame == GET_FRAME && name == GET_NAME {
        let (key, end) = bulk(input, KEY_LEN_AT, limits)?;
        return Some((Command::String(StringCommand::Get { key }), end));
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
        return Some((Command::String(StringCommand::Set(set)), end));
    }
    None
}

#[inline]
fn word_at(head: &[u8; HOT_MIN_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]))
}

/// Parses `len CRLF bytes CRLF` at `at`; returns the bytes and the index after them.
#[inline]
pub(super) fn bulk<'a>(input: &'a [u8], at: usize, limits: &Limits) -> Option<(&'a [u8], usize)> {
    // Lengths of one and two digits are parsed without a loop: nearly every key has one of these.
    let digits = input.get(at..)?.first_chunk::<3>()?;
    let first = digits[0].wrapping_sub(b'0');
    let second = digits[1].wrapping_sub(b'0');
    if first == 0 || first > 9 {
        return None; // Empty, or something that is no number.
    }
    let (len_bytes, start) = if digits[1] == b'\r' {
        (usize::from(first), at + 3)
    } else if second <= 9 && digits[2] == b'\r' {
        (usize::from(first) * 10 + usize::from(second), at + 4)
    } else {
        long_length(input, at)?
    };
    if len_bytes > limits.hot_bulk_max_bytes() {
        return None;
    }
    let end = start + len_bytes + 2;
    Some((input.get(start..end)?.get(..len_bytes)?, end))
}

/// A length of any number of digits, and the start of the bytes.
#[inline(never)]
fn long_length(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut len_bytes = 0;
    for (digit_count, byte) in input.get(at..)?.iter().take(LEN_DIGITS_MAX + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (*byte == b'\r' && digit_count > 0)
                .then_some((len_bytes, at + digit_count + 2));
        }
        len_bytes = len_bytes * 10 + usize::from(digit);
    }
    None
}
