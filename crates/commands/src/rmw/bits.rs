//! The bits of a value: the update of SETBIT, and the results of GETBIT, BITCOUNT, BITPOS, BITOP
//! and BITFIELD.
//!
//! Bit 0 is the highest bit of byte 0. Bits beyond the end of the value count as zeros.

use store::Pieces;
use store::request::{Item, Verdict};
use wire::resp::{
    BitField, BitOperation, BitRange, BitSearch, BitUnit, FieldAction, FieldActions, Overflow,
};

use super::{Refusal, write_keeping};

/// Bytes that a field of 64 bits can touch, and more.
const WINDOW_BYTES: usize = 16;

/// Writes one bit; a value that is too short is filled up with zeros.
pub(super) fn set<'v>(
    old: Option<&Item<'v>>,
    offset_bits: u64,
    bit: bool,
    pieces: &mut Pieces<'v>,
) -> Verdict<Refusal> {
    let len = made_len(old, offset_bits, bit);
    if len == 0 {
        return Verdict::Keep;
    }
    let old_value = old.map_or(&b""[..], |old| old.value);
    // It fits a usize: the offset was checked against the longest value.
    let byte = (offset_bits / 8) as usize;
    pieces.before = &old_value[..byte.min(old_value.len())];
    pieces.made.resize(len, 0);
    let mask = 0x80 >> (offset_bits % 8);
    let before = old_value.get(byte).copied().unwrap_or(0);
    pieces.made[len - 1] = if bit { before | mask } else { before & !mask };
    pieces.after[0] = old_value.get(byte + 1..).unwrap_or_default();
    write_keeping(old)
}

/// The number of bytes up to the bit's, counting zeros that the value lacks; 0: it is not written.
pub(super) fn made_len(old: Option<&Item<'_>>, offset_bits: u64, bit: bool) -> usize {
    let old_value = old.map_or(&b""[..], |old| old.value);
    let byte = (offset_bits / 8) as usize;
    let is_kept = byte < old_value.len() && self::bit(old_value, offset_bits) == bit;
    if is_kept { 0 } else { byte.saturating_sub(old_value.len()) + 1 }
}

/// One bit.
pub fn bit(value: &[u8], offset_bits: u64) -> bool {
    let byte = usize::try_from(offset_bits / 8).ok().and_then(|byte| value.get(byte));
    byte.is_some_and(|byte| byte & (0x80 >> (offset_bits % 8)) != 0)
}

/// BITCOUNT.
pub fn count(value: &[u8], range: Option<BitRange>) -> u64 {
    let Some(BitRange { start, end, unit }) = range else { return ones(value) };
    if start < 0 && end < 0 && start > end {
        return 0;
    }
    let Some((first, last)) = clamp(value.len(), start, end, unit) else { return 0 };
    let (first_byte, last_byte) = ((first / 8) as usize, (last / 8) as usize);
    let before = value[first_byte] & !(0xff >> (first % 8));
    let behind = value[last_byte] & low_bits(7 - last % 8);
    let outside = before.count_ones() + behind.count_ones();
    ones(&value[first_byte..=last_byte]) - u64::from(outside)
}

fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words: u64 =
        words.iter().map(|it| u64::from(u64::from_ne_bytes(*it).count_ones())).sum();
    in_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

fn low_bits(count: u64) -> u8 {
    ((1_u16 << count) - 1) as u8
}

/// The first and the last bit of a range, both inside the value; `None`: it is empty.
fn clamp(len_bytes: usize, start: i64, end: i64, unit: BitUnit) -> Option<(u64, u64)> {
    let len = i64::try_from(len_bytes).unwrap_or(i64::MAX / 8);
    let total = if unit == BitUnit::Bit { len * 8 } else { len };
    let from_start = |place: i64| if place < 0 { (place + total).max(0) } else { place };
    let (start, end) = (from_start(start), from_start(end).min(total - 1));
    if start > end {
        return None;
    }
    // Neither is negative now.
    let (start, end) = (start.cast_unsigned(), end.cast_unsigned());
    Some(if unit == BitUnit::Bit { (start, end) } else { (start * 8, end * 8 + 7) })
}

/// BITPOS: -1 if there is no such bit. `None` is a key that does not exist.
pub fn position(value: Option<&[u8]>, search: BitSearch) -> i64 {
    let Some(value) = value else { return if search.bit { -1 } else { 0 } };
    let Some((first, last)) = clamp(value.len(), search.start, search.end, search.unit) else {
        return -1;
    };
    match find(value, search.bit, first, last) {
        Some(place) => place.cast_signed(),
        // Without an end, zeros follow.
        None if !search.bit && !search.has_end => (last + 1).cast_signed(),
        None => -1,
    }
}

/// The first bit of that kind from `first` to `last`.
fn find(value: &[u8], bit: bool, first: u64, last: u64) -> Option<u64> {
    // Set in the bits that are searched for.
    let flip = if bit { 0 } else { 0xff };
    let (first_byte, last_byte) = ((first / 8) as usize, (last / 8) as usize);
    let candidates = |byte: usize| {
        let mut candidates = value[byte] ^ flip;
        if byte == first_byte {
            candidates &= 0xff >> (first % 8);
        }
        if byte == last_byte {
            candidates &= !low_bits(7 - last % 8);
        }
        candidates
    };
    let in_byte = |byte: usize| {
        let candidates = candidates(byte);
        (candidates != 0).then(|| byte as u64 * 8 + u64::from(candidates.leading_zeros()))
    };
    let in_middle = || {
        let middle = value.get(first_byte + 1..last_byte)?;
        // Words first: most of a long value is skipped.
        let (words, _) = middle.as_chunks::<8>();
        let same = words.iter().position(|word| *word != [flip; 8]).unwrap_or(words.len()) * 8;
        let skipped = same + middle[same..].iter().position(|byte| byte ^ flip != 0)?;
        in_byte(first_byte + 1 + skipped)
    };
    in_byte(first_byte).or_else(in_middle).or_else(|| in_byte(last_byte))
}

/// A BITOP being computed: sources are added one by one, each read in place. The result is as long
/// as the longest source; missing bytes of the others count as zeros.
pub struct Combined {
    operation: BitOperation,
    has_first: bool,
    result: Vec<u8>,
    /// The first source, if it is compared with all the others at the end; for ONE, the bits that
    /// several sources have.
    aside: Vec<u8>,
}

impl Combined {
    /// A BITOP without sources yet.
    pub fn new(operation: BitOperation) -> Combined {
        Combined { operation, has_first: false, result: Vec::new(), aside: Vec::new() }
    }

    /// The memory it takes for sources of that length.
    pub fn held_bytes(operation: BitOperation, len_max_bytes: usize) -> u64 {
        let has_aside =
            matches!(operation, BitOperation::Diff1 | BitOperation::AndOr | BitOperation::One);
        len_max_bytes as u64 * if has_aside { 2 } else { 1 }
    }

    /// Adds the next source.
    pub fn take(&mut self, source: &[u8]) {
        if !std::mem::replace(&mut self.has_first, true) {
            return self.take_first(source);
        }
        if self.result.len() < source.len() {
            self.result.resize(source.len(), 0);
        }
        let result = &mut self.result[..];
        match self.operation {
            BitOperation::And => {
                each(result, source, |word, other| word & other);
                result[source.len()..].fill(0);
            }
            BitOperation::Or | BitOperation::Diff1 | BitOperation::AndOr => {
                each(result, source, |word, other| word | other);
            }
            BitOperation::Xor => each(result, source, |word, other| word ^ other),
            BitOperation::Diff => each(result, source, |word, other| word & !other),
            BitOperation::One => {
                self.aside.resize(result.len(), 0);
                each_of_two(&mut self.aside, result, source);
                each(result, source, |word, other| word | other);
            }
            // It has one source.
            BitOperation::Not => {}
        }
    }

    fn take_first(&mut self, source: &[u8]) {
        match self.operation {
            BitOperation::Diff1 | BitOperation::AndOr => {
                self.aside = source.to_vec();
                self.result = vec![0; source.len()];
            }
            _ => self.result = source.to_vec(),
        }
    }

    /// The result.
    pub fn finish(mut self) -> Vec<u8> {
        let result = &mut self.result[..];
        match self.operation {
            BitOperation::Not => {
                let (words, rest) = result.as_chunks_mut::<8>();
                words
                    .iter_mut()
                    .for_each(|word| *word = (!u64::from_ne_bytes(*word)).to_ne_bytes());
                rest.iter_mut().for_each(|byte| *byte = !*byte);
            }
            BitOperation::Diff1 | BitOperation::One => {
                each(result, &self.aside, |word, other| word & !other);
            }
            BitOperation::AndOr => {
                each(result, &self.aside, |word, other| word & other);
                result[self.aside.len()..].fill(0);
            }
            _ => {}
        }
        self.result
    }
}

/// Combines words of both, up to the shorter length.
#[inline]
fn each(result: &mut [u8], source: &[u8], combine: impl Fn(u64, u64) -> u64) {
    let len = result.len().min(source.len());
    let (words, rest) = result[..len].as_chunks_mut::<8>();
    let (others, other_rest) = source[..len].as_chunks::<8>();
    for (word, other) in words.iter_mut().zip(others) {
        *word = combine(u64::from_ne_bytes(*word), u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in rest.iter_mut().zip(other_rest) {
        *byte = combine(u64::from(*byte), u64::from(*other)) as u8;
    }
}

/// Adds to `several` the bits that both others have.
fn each_of_two(several: &mut [u8], one: &[u8], other: &[u8]) {
    let len = one.len().min(other.len());
    let (words, rest) = several[..len].as_chunks_mut::<8>();
    let (ones, one_rest) = one[..len].as_chunks::<8>();
    let (others, other_rest) = other[..len].as_chunks::<8>();
    for ((word, one), other) in words.iter_mut().zip(ones).zip(others) {
        let both = u64::from_ne_bytes(*one) & u64::from_ne_bytes(*other);
        *word = (u64::from_ne_bytes(*word) | both).to_ne_bytes();
    }
    for ((byte, one), other) in rest.iter_mut().zip(one_rest).zip(other_rest) {
        *byte |= one & other;
    }
}

/// The new value and the answers of BITFIELD.
pub struct Fields {
    /// The new value; `None`: nothing is written.
    pub value: Option<Vec<u8>>,
    /// One answer for each action.
    pub answers: Vec<Option<i64>>,
}

/// The length of a value that the actions have written; 0: they only read. The actions have been
/// checked.
pub fn written_bytes(actions: FieldActions<'_>) -> u64 {
    let ends = actions.filter_map(Result::ok).map(|(field, action)| match action {
        FieldAction::Get => 0,
        _ => (field.offset_bits + u64::from(field.width_bits) - 1) / 8 + 1,
    });
    ends.max().unwrap_or(0)
}

/// The answers of a BITFIELD that only reads.
pub fn look(actions: FieldActions<'_>, value: &[u8]) -> Vec<Option<i64>> {
    actions.filter_map(Result::ok).map(|(field, _)| Some(read(value, field))).collect()
}

/// BITFIELD on the bytes of the old value. The actions have been checked.
pub fn act(actions: FieldActions<'_>, mut value: Vec<u8>) -> Fields {
    // It fits: offsets were checked against the longest value.
    let len = value.len().max(written_bytes(actions) as usize);
    let mut has_changed = len > value.len();
    value.resize(len, 0);
    let answers = actions
        .filter_map(Result::ok)
        .map(|(field, action)| {
            let old = read(&value, field);
            let (answer, written) = apply(old, field, action)?;
            if let Some(number) = written.filter(|number| *number != old) {
                write(&mut value, field, number);
                has_changed = true;
            }
            Some(answer)
        })
        .collect();
    Fields { value: Some(value).filter(|_| has_changed), answers }
}

/// The answer and the written number; `None`: it overflows and must not.
fn apply(old: i64, field: BitField, action: FieldAction) -> Option<(i64, Option<i64>)> {
    match action {
        FieldAction::Get => Some((old, None)),
        FieldAction::Set(number, overflow) => {
            // As in Redis: for an unsigned field -1 is a very large number, and so is, for a signed
            // one, a number too far below the greatest.
            let is_far_below = field.is_signed
                && overflow == Overflow::Saturate
                && field.width_bits < 64
                && mask(field.width_bits - 1).cast_signed().checked_sub(number).is_none();
            let number = match field.is_signed {
                true if is_far_below => i128::from(i64::MAX),
                true => i128::from(number),
                false => i128::from(number.cast_unsigned()),
            };
            Some((old, Some(fitted(number, field, overflow)?)))
        }
        FieldAction::IncrementBy(delta, overflow) => {
            let new = fitted(i128::from(old) + i128::from(delta), field, overflow)?;
            Some((new, Some(new)))
        }
    }
}

/// The number as the field can hold it.
fn fitted(number: i128, field: BitField, overflow: Overflow) -> Option<i64> {
    let width = field.width_bits;
    let (least, greatest) = match field.is_signed {
        true => (-(1_i128 << (width - 1)), (1_i128 << (width - 1)) - 1),
        false => (0, (1_i128 << width) - 1),
    };
    if (least..=greatest).contains(&number) {
        return Some(number as i64);
    }
    match overflow {
        Overflow::Fail => None,
        Overflow::Saturate => Some(number.clamp(least, greatest) as i64),
        Overflow::Wrap => Some(extended(number as u64 & mask(width), field)),
    }
}

/// A mask of so many low bits, also for none; below 64.
fn mask(width_bits: u8) -> u64 {
    u64::MAX.checked_shr(64 - u32::from(width_bits)).unwrap_or(0)
}

/// The bits of a field as a number.
fn extended(bits: u64, field: BitField) -> i64 {
    let unused = 64 - field.width_bits;
    if field.is_signed { (bits << unused).cast_signed() >> unused } else { bits.cast_signed() }
}

/// The bytes that contain a field, padded with zeros, and the field's distance from their lowest
/// bit.
fn window(value: &[u8], field: BitField) -> (u128, u32) {
    let start = usize::try_from(field.offset_bits / 8).unwrap_or(usize::MAX);
    let mut bytes = [0; WINDOW_BYTES];
    let there = value.get(start..).unwrap_or_default();
    let count = there.len().min(WINDOW_BYTES);
    bytes[..count].copy_from_slice(&there[..count]);
    let shift = u128::BITS - (field.offset_bits % 8) as u32 - u32::from(field.width_bits);
    (u128::from_be_bytes(bytes), shift)
}

fn read(value: &[u8], field: BitField) -> i64 {
    let (window, shift) = window(value, field);
    extended((window >> shift) as u64 & mask(field.width_bits), field)
}

/// Writes a number that fits into a field that lies in the value.
fn write(value: &mut [u8], field: BitField, number: i64) {
    let (window, shift) = window(value, field);
    let mask = mask(field.width_bits);
    let bits = u128::from(number.cast_unsigned() & mask) << shift;
    let bytes = (window & !(u128::from(mask) << shift) | bits).to_be_bytes();
    for (byte, new) in value.iter_mut().skip((field.offset_bits / 8) as usize).zip(bytes) {
        *byte = new;
    }
}

#[cfg(test)]
mod tests;
