//! `Decimal`: exact decimal numbers, as many digits as a client wrote.
//!
//! ```text
//!  -12.345e1  =  negative, digits 1 2 3 4 5, point 3     value = 0.12345 * 10^3, sign apart
//! ```
//!
//! # Invariants
//! D1: `digits` has neither leading nor trailing zeros; zero has none at all and `point` 0.
//!
//! # Limits
//! The range of an 80-bit float, which is what the command is specified with: magnitudes from
//! 1e-4950 to below 1e4932; hexadecimal numbers only those of a 64-bit float, for they take work
//! that grows with the square of the exponent. Texts to 5119 bytes. So a sum has at most some
//! 15,000 digits.
//!
//! # Trade-offs
//! Digits are bytes in vectors: INCRBYFLOAT is rare, and this is short enough to be read.

/// Longer texts are not numbers.
const TEXT_MAX_BYTES: usize = 5119;
/// A number whose first digit stands left of this place overflows.
const POINT_MAX: i64 = 4932;
/// A number whose first digit stands right of this place underflows.
const POINT_MIN: i64 = -4949;
/// Hexadecimal digits before and after the point.
const HEX_MAX_DIGITS: usize = 64;
/// Of the exponent of two, once the point stands behind the last hexadecimal digit.
const HEX_EXPONENT_MAX: i64 = 1100;
/// Digits after the point in the answer.
const FRACTION_MAX_DIGITS: usize = 17;

/// What a text means.
#[derive(Debug)]
pub(super) enum Reading {
    Finite(Decimal),
    Infinite,
    Invalid,
}

/// A finite number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    /// Values 0 to 9, the most significant first.
    digits: Vec<u8>,
    /// How many digits stand before the point; may be negative or more than there are.
    point: i64,
}

impl Decimal {
    /// Reads `[+-]digits[.digits][e[+-]digits]`, `[+-]0xdigits[.digits][p[+-]digits]` or a
    /// spelling of infinity.
    pub(super) fn read(text: &[u8]) -> Reading {
        if text.len() > TEXT_MAX_BYTES {
            return Reading::Invalid;
        }
        let (negative, rest) = split_sign(text);
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Reading::Infinite;
        }
        let unsigned = match rest {
            [b'0', b'x' | b'X', hex @ ..] => Decimal::read_hex(hex),
            decimal => Decimal::read_unsigned(decimal),
        };
        let Some(mut number) = unsigned else {
            return Reading::Invalid;
        };
        number.negative = negative;
        if number.is_in_range() { Reading::Finite(number) } else { Reading::Invalid }
    }

    fn read_unsigned(text: &[u8]) -> Option<Decimal> {
        let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = match exponent_at {
            Some(at) => (&text[..at], read_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point_at = mantissa.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point_at {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let both = whole.iter().chain(fraction);
        let digits: Vec<u8> = both.map(|byte| byte.wrapping_sub(b'0')).collect();
        if digits.iter().any(|digit| *digit > 9) {
            return None;
        }
        let point = exponent.saturating_add(whole.len() as i64);
        Some(Decimal { negative: false, digits, point }.normalized())
    }

    /// Reads what stands behind `0x`, as C's `strtold` does. The exponent is one of two.
    fn read_hex(text: &[u8]) -> Option<Decimal> {
        let exponent_at = text.iter().position(|byte| matches!(byte, b'p' | b'P'));
        let (mantissa, exponent) = match exponent_at {
            Some(at) => (&text[..at], read_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point_at = mantissa.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point_at {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &[][..]),
        };
        let digit_count = whole.len() + fraction.len();
        let exponent = exponent - 4 * fraction.len() as i64;
        if !(1..=HEX_MAX_DIGITS).contains(&digit_count) || exponent.abs() > HEX_EXPONENT_MAX {
            return None;
        }
        let mut digits = Vec::new();
        for byte in whole.iter().chain(fraction) {
            multiply_add(&mut digits, 16, char::from(*byte).to_digit(16)?);
        }
        // A half is five tenths.
        let factor = if exponent < 0 { 5 } else { 2 };
        for _ in 0..exponent.abs() {
            multiply_add(&mut digits, factor, 0);
        }
        let point = digits.len() as i64 + exponent.min(0);
        Some(Decimal { negative: false, digits, point }.normalized())
    }

    /// Restores D1.
    fn normalized(mut self) -> Decimal {
        let leading = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..leading);
        self.point = self.point.saturating_sub(leading as i64);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.point = 0;
        }
        self
    }

    /// Whether an 80-bit float could hold its magnitude.
    pub(super) fn is_in_range(&self) -> bool {
        self.digits.is_empty() || (POINT_MIN..=POINT_MAX).contains(&self.point)
    }

    /// The exact sum. Both numbers are in range; the sum may be out of it by one place.
    pub(super) fn add(&self, other: &Decimal) -> Option<Decimal> {
        // Common places: one more before the point for a carry, all that either has after it.
        let point = self.point.max(other.point).checked_add(1)?;
        let mine = self.aligned(point, other)?;
        let theirs = other.aligned(point, self)?;
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, add_digits(mine, &theirs))
        } else if mine >= theirs {
            (self.negative, subtract_digits(mine, &theirs))
        } else {
            (other.negative, subtract_digits(theirs, &mine))
        };
        Some(Decimal { negative, digits, point }.normalized())
    }

    /// The digits from `point` places before the point to the last place of either number.
    fn aligned(&self, point: i64, other: &Decimal) -> Option<Vec<u8>> {
        let last_place = |number: &Decimal| number.digits.len() as i64 - number.point;
        let fraction = last_place(self).max(last_place(other)).max(-point);
        let mut digits = vec![0; usize::try_from(point + fraction).ok()?];
        if !self.digits.is_empty() {
            let start = usize::try_from(point - self.point).ok()?;
            digits.get_mut(start..start + self.digits.len())?.copy_from_slice(&self.digits);
        }
        Some(digits)
    }

    /// Rounds to [`FRACTION_MAX_DIGITS`] and appends the digits.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let rounded = self.rounded();
        if rounded.negative && !rounded.digits.is_empty() {
            out.push(b'-');
        }
        let whole_count = usize::try_from(rounded.point).unwrap_or(0);
        let digit_at = |place: usize| b'0' + rounded.digits.get(place).copied().unwrap_or(0);
        if whole_count == 0 {
            out.push(b'0');
        }
        out.extend((0..whole_count).map(digit_at));
        if rounded.digits.len() > whole_count || rounded.point < 0 {
            out.push(b'.');
            out.extend((rounded.point..0).map(|_| b'0'));
            out.extend((whole_count..rounded.digits.len()).map(digit_at));
        }
    }

    /// Half to even at the last digit that is written.
    fn rounded(mut self) -> Decimal {
        let keep = self.point + FRACTION_MAX_DIGITS as i64;
        if self.digits.len() as i64 <= keep {
            return self;
        }
        let Ok(keep) = usize::try_from(keep) else {
            return Decimal { negative: false, digits: Vec::new(), point: 0 };
        };
        let (kept, cut) = self.digits.split_at(keep);
        let is_odd = kept.last().is_some_and(|digit| digit % 2 == 1);
        // D1: a cut-off part of more than the digit 5 is more than a half.
        let rounds_up = cut[0] > 5 || (cut[0] == 5 && (cut.len() > 1 || is_odd));
        self.digits.truncate(keep);
        if rounds_up {
            self.digits.insert(0, 0);
            self.point += 1;
            let unit = [vec![0; self.digits.len() - 1], vec![1]].concat();
            self.digits = add_digits(self.digits, &unit);
        }
        self.normalized()
    }
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

/// The number after `e`. Exponents beyond any range saturate, they need not be told apart.
fn read_exponent(text: &[u8]) -> Option<i64> {
    const SATURATED: i64 = 1 << 40;
    let (negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let mut exponent = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        exponent = (exponent * 10 + i64::from(digit)).min(SATURATED);
    }
    Some(if negative { -exponent } else { exponent })
}

/// Multiplies digit by digit and adds a number.
fn multiply_add(digits: &mut Vec<u8>, factor: u32, number: u32) {
    let mut carry = number;
    for digit in digits.iter_mut().rev() {
        let product = u32::from(*digit) * factor + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    while carry > 0 {
        digits.insert(0, (carry % 10) as u8);
        carry /= 10;
    }
}

/// Adds digit by digit. Both are equally long and the sum fits.
fn add_digits(mut left: Vec<u8>, right: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    for (digit, other) in left.iter_mut().zip(right).rev() {
        let sum = *digit + other + carry;
        *digit = sum % 10;
        carry = sum / 10;
    }
    left
}

/// Subtracts digit by digit. Both are equally long and `left` is not less.
fn subtract_digits(mut left: Vec<u8>, right: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    for (digit, other) in left.iter_mut().zip(right).rev() {
        let difference = *digit + 10 - other - borrow;
        *digit = difference % 10;
        borrow = 1 - difference / 10;
    }
    left
}
