//! Decimal numbers of many digits: finds the nearest 80-bit float without dividing all digits.
//!
//! ```text
//!  123...789|0123...  * 10^e        the first 38 digits, and those with 1 more at their end
//!   head     rest                    │
//!                                    ├─ the same float is nearest to both: it is the one
//!                                    └─ two floats side by side: all digits are compared with
//!                                       what lies halfway between them
//! ```
//!
//! # Invariants
//! L1: the number lies between the head and the head plus 1, so its float is one of their two.
//! L2: two integers of at most 24,000 bits are compared, whatever the text is.
//!
//! # Trade-offs
//! rustc_apfloat parses such numbers exactly, too. But for a number close to halfway it divides as
//! many bits as there are digits, one at a time: 11 ms for a text of 5,000 digits that is made for
//! it.

use std::cmp::Ordering;
use std::iter::repeat_n;

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};

use super::extended::parts;

/// The number of digits that 128 bits hold.
const HEAD_DIGITS: usize = 38;
/// A larger exponent makes no difference: the number is too large or too small by far.
const EXPONENT_MAX: i64 = 1_000_000;
/// Digits that a limb takes at once.
const LIMB_DIGITS: usize = 19;
/// 5^27, the highest power that a limb holds.
const FIVES: u64 = 5_u64.pow(FIVES_EXPONENT);
const FIVES_EXPONENT: u32 = 27;

/// The float nearest to a decimal number without a sign, infinity included; `None`: it has few
/// digits.
pub(super) fn read(text: &[u8]) -> Option<X87DoubleExtended> {
    let mark = text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
    let (mantissa, exponent) = text.split_at(mark.unwrap_or(text.len()));
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits = mantissa.iter().filter(|byte| **byte != b'.').map(|byte| byte - b'0');
    let digits = digits.skip_while(|digit| *digit == 0);
    let rest_digits = digits.clone().count().checked_sub(HEAD_DIGITS).filter(|rest| *rest > 0)?;
    let last_exponent = read_exponent(exponent) - mantissa.len().saturating_sub(point + 1) as i64;
    let head_exponent = last_exponent + rest_digits as i64;
    let head =
        digits.clone().take(HEAD_DIGITS).fold(0, |head, digit| head * 10 + u128::from(digit));
    let lower = nearest(head, head_exponent)?;
    let upper = nearest(head + 1, head_exponent)?;
    if lower.bitwise_eq(upper) {
        return Some(lower);
    }
    let (lower_mantissa, lower_exponent) = parts(lower);
    let half = u128::from(lower_mantissa) * 2 + 1;
    Some(match compare(digits, last_exponent, half, i64::from(lower_exponent) - 1) {
        Ordering::Less => lower,
        Ordering::Equal if lower_mantissa % 2 == 0 => lower,
        Ordering::Equal | Ordering::Greater => upper,
    })
}

/// The exponent after `e`, with an optional sign.
fn read_exponent(text: &[u8]) -> i64 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    let magnitude = digits.fold(0, |magnitude: i64, digit| {
        (magnitude * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX)
    });
    if text.get(1) == Some(&b'-') { -magnitude } else { magnitude }
}

fn nearest(number: u128, exponent: i64) -> Option<X87DoubleExtended> {
    let text = format!("{number}e{exponent}");
    let read = X87DoubleExtended::from_str_r(&text, Round::NearestTiesToEven);
    read.ok().map(|read| read.value)
}

/// Compares `digits * 10^tens` with `half * 2^twos`; both are of the size of a float, so the
/// exponents are bounded by the digits (L2).
fn compare(mut digits: impl Iterator<Item = u8>, tens: i64, half: u128, twos: i64) -> Ordering {
    let mut left = Vec::new();
    loop {
        let (mut chunk, mut scale) = (0, 1);
        for digit in digits.by_ref().take(LIMB_DIGITS) {
            chunk = chunk * 10 + u64::from(digit);
            scale *= 10;
        }
        if scale == 1 {
            break;
        }
        multiply_add(&mut left, scale, chunk);
    }
    let mut right = vec![half as u64, (half >> 64) as u64];
    let fives_side = if tens < 0 { &mut right } else { &mut left };
    multiply_fives(fives_side, tens.unsigned_abs());
    let twos_side = if tens < twos { &mut right } else { &mut left };
    shift(twos_side, tens.abs_diff(twos));
    trim(&mut left);
    trim(&mut right);
    left.len().cmp(&right.len()).then_with(|| left.iter().rev().cmp(right.iter().rev()))
}

/// Multiplies by `5^exponent`.
fn multiply_fives(limbs: &mut Vec<u64>, mut exponent: u64) {
    while exponent >= u64::from(FIVES_EXPONENT) {
        multiply_add(limbs, FIVES, 0);
        exponent -= u64::from(FIVES_EXPONENT);
    }
    multiply_add(limbs, 5_u64.pow(exponent as u32), 0);
}

/// Multiplies by `2^bits`.
fn shift(limbs: &mut Vec<u64>, bits: u64) {
    multiply_add(limbs, 1 << (bits % 64), 0);
    limbs.splice(..0, repeat_n(0, (bits / 64) as usize));
}

fn multiply_add(limbs: &mut Vec<u64>, factor: u64, addend: u64) {
    let mut carry = addend;
    for limb in limbs.iter_mut() {
        let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
        (*limb, carry) = (product as u64, (product >> 64) as u64);
    }
    if carry > 0 {
        limbs.push(carry);
    }
}

fn trim(limbs: &mut Vec<u64>) {
    let len = limbs.iter().rposition(|limb| *limb != 0).map_or(0, |at| at + 1);
    limbs.truncate(len);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with rustc_apfloat, which parses all digits at once.
    #[track_caller]
    fn check(text: &str) {
        let all = X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven);
        let read = read(text.as_bytes()).expect("it has many digits");
        assert!(read.bitwise_eq(all.expect("a number").value), "{text}: {read}");
    }

    /// `mantissa / 2^bits` with all its digits.
    fn binary(mantissa: u128, bits: usize) -> String {
        let mut digits: Vec<u8> = mantissa.to_string().bytes().map(|byte| byte - b'0').collect();
        for _ in 0..bits {
            let mut rest = 0;
            for digit in &mut digits {
                let ten = rest * 10 + *digit;
                (*digit, rest) = (ten / 2, ten % 2);
            }
            digits.push(5 * rest);
        }
        let text: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        format!("{text}e-{bits}")
    }

    #[test]
    fn numbers_of_many_digits_are_read_as_all_their_digits_say() {
        for exponent in [0, 1, -1, 17, -60, 4880, -4880, 4894, -5010, 99_999, -99_999] {
            for digits in ["123456789", "9", "5", "18446744073709551615"] {
                check(&format!("{}e{exponent}", digits.repeat(45 / digits.len() + 1)));
                check(&format!("0.000{}e{exponent}", digits.repeat(90 / digits.len() + 1)));
            }
        }
        check(&format!("00{}.{}E+5", "7".repeat(400), "3".repeat(300)));
        check(&format!("{}.", "7".repeat(4000)));
        check(&format!(".{}1{}", "0".repeat(4900), "2".repeat(45)));
    }

    #[test]
    fn halfway_goes_to_the_even_one_and_all_digits_count() {
        // (2^64 + 1, halfway from 2^64 to 2^64 + 2) and the next one, of an odd mantissa.
        for half in ["18446744073709551617", "18446744073709551619"] {
            for rest in ["0", "1", "00001"] {
                check(&format!("{half}.{}{rest}", "0".repeat(150)));
            }
            let below = half.parse::<u128>().unwrap() - 1;
            check(&format!("{below}.{}", "9".repeat(150)));
        }
    }

    #[test]
    fn halfway_between_small_numbers_is_exact() {
        for (mantissa, bits) in [(3 << 63 | 1, 65), (3 << 63 | 3, 300), ((1 << 64) + 1, 1000)] {
            let text = binary(mantissa, bits);
            let (digits, exponent) = text.split_once('e').unwrap();
            check(&text);
            check(&format!("{digits}.000001e{exponent}"));
            let (start, last) = digits.split_at(digits.len() - 1);
            assert_eq!(last, "5");
            check(&format!("{start}49999e{exponent}"));
        }
    }

    #[test]
    fn the_ends_of_the_range_are_found() {
        // Halfway from the highest float to 2^16384, and from 0 to the least one.
        let least = "1.8225997659412373012642029668097099081995254078467";
        let highest = "1.189731495357231765053511589829488667966254004695567218956499277562499";
        for (start, exponent) in [(least, -4951), (highest, 4932)] {
            for digits in 39..start.len() {
                for last in ["", "1", "9"] {
                    check(&format!("{}{last}e{exponent}", &start[..=digits]));
                }
            }
        }
    }
}
