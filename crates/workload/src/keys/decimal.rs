//! Decimal keys: a bijection on the numbers below 2^31, written without leading zeros.
//!
//! ```text
//!  id ─▶ multiply, fold, multiply, fold (31 bits) ─▶ number ─▶ 1 to 10 digits
//! ```
//!
//! Every step is invertible, so the reader of a key in a scan can compute the value that belongs to
//! it.

/// The number of ids with distinct keys.
pub(super) const CAPACITY: u64 = 1 << 31;
/// Digits of the largest number.
pub const DECIMAL_LEN_MAX_BYTES: usize = 10;

const MASK: u64 = CAPACITY - 1;
/// At least half of the bits, so that a fold is its own inverse.
const FOLD_BITS: u32 = 16;
const ODD_FIRST: u64 = 0x9e37_79b9;
const ODD_SECOND: u64 = 0x85eb_ca6b;

/// The inverse of an odd number modulo 2^64 (each step of Newton's iteration doubles the correct
/// bits: 3, 6, 12, 24, 48, 96).
const fn inverse_of(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

const _: () = assert!(ODD_FIRST.wrapping_mul(inverse_of(ODD_FIRST)) == 1);
const _: () = assert!(ODD_SECOND.wrapping_mul(inverse_of(ODD_SECOND)) == 1);

/// Ids from 2^31 on have the keys of the first ones again.
#[inline]
fn number_of(id: u64) -> u64 {
    let first = id.wrapping_mul(ODD_FIRST) & MASK;
    let second = (first ^ (first >> FOLD_BITS)).wrapping_mul(ODD_SECOND) & MASK;
    second ^ (second >> FOLD_BITS)
}

/// Writes the key of `id` to the front of `key`; returns its length.
#[inline]
pub(super) fn write(id: u64, key: &mut [u8]) -> usize {
    let number = number_of(id) as u32;
    let len = number.max(1).ilog10() as usize + 1;
    let mut rest = number;
    for byte in key[..len].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    len
}

/// The id whose key [`write`] writes as `key`.
pub(super) fn id_of(key: &[u8]) -> Option<u64> {
    let is_number =
        (1..=DECIMAL_LEN_MAX_BYTES).contains(&key.len()) && key.iter().all(u8::is_ascii_digit);
    if !is_number {
        return None;
    }
    let number = key.iter().fold(0, |number, byte| number * 10 + u64::from(byte - b'0'));
    if number > MASK {
        return None;
    }
    let first = (number ^ (number >> FOLD_BITS)).wrapping_mul(inverse_of(ODD_SECOND)) & MASK;
    let folded = first ^ (first >> FOLD_BITS);
    Some(folded.wrapping_mul(inverse_of(ODD_FIRST)) & MASK)
}
