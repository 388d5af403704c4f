//! Integers of thousands of digits, for the largest 80-bit floats.
//!
//! ```text
//!  mantissa * 2^shift  =  2^(504 k)         * 2^63 ... * 2^rest * mantissa
//!                         from a table        at most 8 passes    one pass
//!
//!  limbs, the lowest first: | 19 digits | 19 digits | ...
//! ```
//!
//! # Invariants
//! D1: every limb is below 10^19, and the last one is not 0.
//! D2: [`divide`] is exact: its estimate is at most one too low or one too high, and both are
//!     corrected.
//!
//! # Trade-offs
//! The table has 33 powers, 34 KB, and is made on its first use; with one power for each shift it
//! would take 17 MB.

use std::sync::LazyLock;

/// Digits of a limb.
const LIMB_DIGITS: usize = 19;
/// The base of a limb. Its highest bit is set, as [`divide`] requires.
const BASE: u64 = 10_u64.pow(LIMB_DIGITS as u32);
/// 2^128 / `BASE`, without its highest bit, which is 2^64.
const INVERSE: u64 = (u128::MAX / BASE as u128) as u64;

/// A pass multiplies by at most 2^63.
const PASS_BITS: u32 = 63;
/// The distance in bits between powers of the table.
const STEP_BITS: u32 = 8 * PASS_BITS;
/// The highest shift of an 80-bit float.
const SHIFT_MAX: u32 = 0x7ffe - (16_383 + 63);

/// 2^(`STEP_BITS` k), for all k that a float may need.
static POWERS: LazyLock<Vec<Box<[u64]>>> = LazyLock::new(|| {
    let mut limbs = vec![1];
    let mut powers = Vec::with_capacity((SHIFT_MAX / STEP_BITS) as usize + 1);
    for _ in 0..=SHIFT_MAX / STEP_BITS {
        powers.push(limbs.clone().into_boxed_slice());
        shift(&mut limbs, STEP_BITS);
    }
    powers
});

/// Appends `mantissa * 2^bits` in decimal digits.
pub(super) fn write(mantissa: u64, bits: u32, out: &mut Vec<u8>) {
    let power = POWERS.get((bits / STEP_BITS) as usize);
    let (Some(power), false) = (power, mantissa == 0) else {
        // No float is larger.
        debug_assert_eq!(mantissa, 0);
        return out.push(b'0');
    };
    let mut limbs = Vec::with_capacity(power.len() + (STEP_BITS as usize).div_ceil(63) + 2);
    limbs.extend_from_slice(power);
    shift(&mut limbs, bits % STEP_BITS);
    multiply(&mut limbs, mantissa);
    out.reserve(limbs.len() * LIMB_DIGITS);
    let mut digits = itoa::Buffer::new();
    for (at, limb) in limbs.iter().rev().enumerate() {
        let digits = digits.format(*limb).as_bytes();
        let zeros = if at == 0 { 0 } else { LIMB_DIGITS.saturating_sub(digits.len()) };
        out.resize(out.len() + zeros, b'0');
        out.extend_from_slice(digits);
    }
}

/// Multiplies by `2^bits`.
fn shift(limbs: &mut Vec<u64>, mut bits: u32) {
    while bits > 0 {
        let pass = bits.min(PASS_BITS);
        multiply(limbs, 1 << pass);
        bits -= pass;
    }
}

/// Multiplies by a factor that is not 0 (D1).
fn multiply(limbs: &mut Vec<u64>, factor: u64) {
    let mut carry = 0;
    for limb in limbs.iter_mut() {
        // At most (`BASE` - 1) * `factor` + `factor` - 1: its upper half is below `BASE`.
        let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
        (carry, *limb) = divide(product);
    }
    if carry >= BASE {
        limbs.extend([carry % BASE, carry / BASE]);
    } else if carry > 0 {
        limbs.push(carry);
    }
}

/// `number / BASE` and the remainder, for a number whose upper half is below `BASE` (D2).
///
/// Möller and Granlund, "Improved division by invariant integers": two multiplications, where a
/// division of 128 bits costs several times as much.
#[inline]
fn divide(number: u128) -> (u64, u64) {
    let (high, low) = ((number >> 64) as u64, number as u64);
    // Both are below 2^64 * `BASE`, and so is their sum below 2^128.
    let estimate = u128::from(INVERSE) * u128::from(high) + number;
    let mut quotient = ((estimate >> 64) as u64).wrapping_add(1);
    let mut rest = low.wrapping_sub(quotient.wrapping_mul(BASE));
    if rest > estimate as u64 {
        quotient = quotient.wrapping_sub(1);
        rest = rest.wrapping_add(BASE);
    }
    if rest >= BASE {
        quotient += 1;
        rest -= BASE;
    }
    (quotient, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One digit after another: the algorithm that this module replaces.
    fn write_slowly(mantissa: u64, bits: u32, out: &mut Vec<u8>) {
        let mut digits: Vec<u8> =
            mantissa.to_string().bytes().rev().map(|byte| byte - b'0').collect();
        for _ in 0..bits {
            let mut carry = 0;
            for digit in &mut digits {
                let doubled = 2 * *digit + carry;
                (*digit, carry) = (doubled % 10, doubled / 10);
            }
            if carry > 0 {
                digits.push(carry);
            }
        }
        out.extend(digits.iter().rev().map(|digit| b'0' + digit));
    }

    #[track_caller]
    fn check(mantissa: u64, bits: u32) {
        let (mut written, mut want) = (Vec::new(), Vec::new());
        write(mantissa, bits, &mut written);
        write_slowly(mantissa, bits, &mut want);
        assert_eq!(String::from_utf8(written), String::from_utf8(want), "{mantissa} * 2^{bits}");
    }

    #[test]
    fn integers_are_those_that_one_digit_after_another_gives() {
        let mantissas = [1, 1 << 63, u64::MAX, BASE, BASE - 1, BASE + 1, 0x8765_4321_0fed_cba9];
        let around = [STEP_BITS, 2 * STEP_BITS, 5 * STEP_BITS];
        let near = around.iter().flat_map(|bits| [bits - 1, *bits, bits + 1]);
        for bits in (0..=130).chain(near).chain([62, 63, 64, 1000, 3333]) {
            for mantissa in mantissas {
                check(mantissa, bits);
            }
        }
        for bits in [9999, SHIFT_MAX - 1, SHIFT_MAX] {
            for mantissa in [1 << 63, u64::MAX, 0x8765_4321_0fed_cba9] {
                check(mantissa, bits);
            }
        }
    }

    #[test]
    fn divisions_are_exact_at_every_edge() {
        let edges = [0, 1, 2, BASE / 2, BASE - 2, BASE - 1];
        let lows = [0, 1, BASE - 1, BASE, BASE + 1, u64::MAX - 1, u64::MAX, 1 << 63];
        let mut state = 1_u64;
        let random = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state % BASE, state.rotate_left(29))
        });
        let pairs = edges.iter().flat_map(|high| lows.map(|low| (*high, low)));
        for (high, low) in pairs.chain(random.take(100_000)) {
            let number = u128::from(high) << 64 | u128::from(low);
            let (quotient, rest) = divide(number);
            let base = u128::from(BASE);
            assert_eq!(u128::from(quotient), number / base, "{number}");
            assert_eq!(u128::from(rest), number % base, "{number}");
        }
    }

    #[test]
    fn nothing_times_a_power_is_nothing() {
        let mut out = Vec::new();
        write(0, SHIFT_MAX, &mut out);
        assert_eq!(out, b"0");
    }
}
