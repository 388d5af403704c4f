//! The arguments of bit commands: the bits of a value that they select.
//!
//! ```text
//!  value   byte 0    byte 1    byte 2
//!          01234567  89...     16...      bit 0 is the highest of byte 0
//!             ╰──╯                        BITFIELD GET u4 3: bits 3 to 6, the first is the highest
//! ```
//!
//! # Invariants
//! B1: a field is 1 to 64 bits wide, 63 if it is unsigned.

use super::args::ArgIter;
use super::error::ErrorReply;
use super::number::parse_i64;

/// The unit of a range's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitUnit {
    /// BYTE.
    #[default]
    Byte,
    /// BIT.
    Bit,
}

impl BitUnit {
    /// Reads BYTE or BIT.
    pub(super) fn read<'a>(word: &[u8]) -> Result<BitUnit, ErrorReply<'a>> {
        if word.eq_ignore_ascii_case(b"bit") {
            Ok(BitUnit::Bit)
        } else if word.eq_ignore_ascii_case(b"byte") {
            Ok(BitUnit::Byte)
        } else {
            Err(ErrorReply::Syntax)
        }
    }
}

/// The part of a value that BITCOUNT counts; both ends inclusive, negative from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRange {
    /// The first.
    pub start: i64,
    /// The last.
    pub end: i64,
    /// The unit of both.
    pub unit: BitUnit,
}

/// The bit that BITPOS searches for, and the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitSearch {
    /// 1 or 0.
    pub bit: bool,
    /// The start of the range.
    pub start: i64,
    /// The end of the range, if `has_end`.
    pub end: i64,
    /// Without an end, zeros are assumed to follow the value.
    pub has_end: bool,
    /// The unit of both.
    pub unit: BitUnit,
}

/// The operation of BITOP: which bits are set in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperation {
    /// Bits in every source.
    And,
    /// Bits in any source.
    Or,
    /// Bits in an odd number of sources.
    Xor,
    /// Bits not in the only source.
    Not,
    /// Bits in the first source and in none of the others.
    Diff,
    /// Bits in one of the others and not in the first.
    Diff1,
    /// Bits in the first source and in one of the others.
    AndOr,
    /// Bits in exactly one source.
    One,
}

impl BitOperation {
    const WORDS: [(&'static str, BitOperation); 8] = [
        ("AND", BitOperation::And),
        ("OR", BitOperation::Or),
        ("XOR", BitOperation::Xor),
        ("NOT", BitOperation::Not),
        ("DIFF", BitOperation::Diff),
        ("DIFF1", BitOperation::Diff1),
        ("ANDOR", BitOperation::AndOr),
        ("ONE", BitOperation::One),
    ];

    /// Parses the word, and checks the number of sources.
    pub(super) fn read<'a>(
        word: &[u8],
        source_count: usize,
    ) -> Result<BitOperation, ErrorReply<'a>> {
        let found = BitOperation::WORDS
            .into_iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        let (name, operation) = found.ok_or(ErrorReply::Syntax)?;
        let compares_first =
            matches!(operation, BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr);
        if operation == BitOperation::Not && source_count != 1 {
            Err(ErrorReply::OneSource)
        } else if compares_first && source_count < 2 {
            Err(ErrorReply::TwoSources(name))
        } else {
            Ok(operation)
        }
    }
}

/// A field of bits (B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// `i8`, not `u8`.
    pub is_signed: bool,
    /// Its width.
    pub width_bits: u8,
    /// The offset of its highest bit.
    pub offset_bits: u64,
}

/// The handling of a number that does not fit into its field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The number's low bits are written.
    #[default]
    Wrap,
    /// The nearest number that fits is written.
    Saturate,
    /// Nothing is written; the answer is null.
    Fail,
}

/// One action of BITFIELD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldAction {
    /// GET.
    Get,
    /// SET: answers the old number.
    Set(i64, Overflow),
    /// INCRBY: answers the new number.
    IncrementBy(i64, Overflow),
}

/// Walks the actions of BITFIELD: each is checked when it is reached.
#[derive(Clone, Copy, Debug)]
pub struct FieldActions<'a> {
    args: ArgIter<'a>,
    overflow: Overflow,
    value_max_bytes: u64,
}

impl<'a> FieldActions<'a> {
    /// The actions in `args`, on a value of at most that length.
    pub fn new(args: ArgIter<'a>, value_max_bytes: u64) -> FieldActions<'a> {
        FieldActions { args, overflow: Overflow::default(), value_max_bytes }
    }

    fn read(&mut self, word: &'a [u8]) -> Result<Option<(BitField, FieldAction)>, ErrorReply<'a>> {
        let left = self.args.len();
        let is =
            |name: &str, needs: usize| left >= needs && word.eq_ignore_ascii_case(name.as_bytes());
        if is("overflow", 1) {
            self.overflow = read_overflow(self.args.next().unwrap_or_default())?;
            return Ok(None);
        }
        let (is_get, is_set) = (is("get", 2), is("set", 3));
        if !is_get && !is_set && !is("incrby", 3) {
            return Err(ErrorReply::Syntax);
        }
        let (kind, offset) = (self.args.next(), self.args.next());
        let (is_signed, width_bits) = read_kind(kind.unwrap_or_default())?;
        let offset = offset.unwrap_or_default();
        let offset_bits = read_offset(offset, Some(width_bits), self.value_max_bytes)?;
        let field = BitField { is_signed, width_bits, offset_bits };
        if is_get {
            return Ok(Some((field, FieldAction::Get)));
        }
        let number = self.args.next().and_then(parse_i64).ok_or(ErrorReply::NotAnInteger)?;
        let action = match is_set {
            true => FieldAction::Set(number, self.overflow),
            false => FieldAction::IncrementBy(number, self.overflow),
        };
        Ok(Some((field, action)))
    }
}

impl<'a> Iterator for FieldActions<'a> {
    type Item = Result<(BitField, FieldAction), ErrorReply<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let word = self.args.next()?;
            match self.read(word) {
                Ok(None) => {}
                Ok(Some(action)) => return Some(Ok(action)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn read_overflow<'a>(word: &[u8]) -> Result<Overflow, ErrorReply<'a>> {
    if word.eq_ignore_ascii_case(b"wrap") {
        Ok(Overflow::Wrap)
    } else if word.eq_ignore_ascii_case(b"sat") {
        Ok(Overflow::Saturate)
    } else if word.eq_ignore_ascii_case(b"fail") {
        Ok(Overflow::Fail)
    } else {
        Err(ErrorReply::FieldOverflow)
    }
}

/// Parses `i8` or `u63`. A NUL ends it, as in Redis.
fn read_kind<'a>(word: &[u8]) -> Result<(bool, u8), ErrorReply<'a>> {
    let (is_signed, width) = match word {
        [b'i', width @ ..] => (true, width),
        [b'u', width @ ..] => (false, width),
        _ => return Err(ErrorReply::FieldKind),
    };
    let width = width.split(|byte| *byte == 0).next().and_then(parse_i64);
    let widest = if is_signed { 64 } else { 63 };
    match width {
        Some(width) if (1..=widest).contains(&width) => Ok((is_signed, width as u8)),
        _ => Err(ErrorReply::FieldKind),
    }
}

/// Parses the offset of a bit in a value of at most that length; for a field of so many bits `#2`
/// is the third one.
pub fn read_offset<'a>(
    word: &[u8],
    width_bits: Option<u8>,
    value_max_bytes: u64,
) -> Result<u64, ErrorReply<'a>> {
    let (digits, factor) = match (word, width_bits) {
        ([b'#', digits @ ..], Some(width_bits)) => (digits, i64::from(width_bits)),
        _ => (word, 1),
    };
    // A product that overflows is far out of range; Redis lets it wrap around.
    let offset = parse_i64(digits).and_then(|offset| offset.checked_mul(factor));
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset >> 3 < value_max_bytes).ok_or(ErrorReply::BitOffset)
}

/// `LCS left right [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LcsRequest<'a> {
    /// One key.
    pub left: &'a [u8],
    /// The other.
    pub right: &'a [u8],
    /// The form of the answer.
    pub wants: LcsWants,
    /// MINMATCHLEN: shorter matches are left out of IDX.
    pub match_min_bytes: u64,
    /// WITHMATCHLEN.
    pub with_lengths: bool,
}

/// The form of LCS's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LcsWants {
    /// The subsequence itself.
    Text,
    /// LEN.
    Length,
    /// IDX: the positions of its parts.
    Matches,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parsed;
    use crate::resp::{Limits, Parser};

    #[track_caller]
    fn check(line: &str, want: &[Result<(&str, FieldAction), ErrorReply<'static>>]) {
        let line = format!("{line}\r\n");
        let parsed = Parser::default().parse(line.as_bytes(), &Limits::default());
        let Parsed::Done { value: args, .. } = parsed else { panic!("not a command: {line}") };
        let found: Vec<_> = FieldActions::new(args.iter(), 100)
            .map(|action| action.map(|(field, action)| (shown(field), action)))
            .collect();
        let want: Vec<_> =
            want.iter().map(|it| it.map(|(field, action)| (field.to_owned(), action))).collect();
        assert_eq!(found, want);
    }

    fn shown(field: BitField) -> String {
        let sign = if field.is_signed { 'i' } else { 'u' };
        format!("{sign}{}@{}", field.width_bits, field.offset_bits)
    }

    #[test]
    fn actions_come_one_by_one() {
        let wrap = Overflow::Wrap;
        check("get u8 0", &[Ok(("u8@0", FieldAction::Get))]);
        check(
            "SET i5 #3 -2 OVERFLOW sat INCRBY u63 7 1 GET i64 9",
            &[
                Ok(("i5@15", FieldAction::Set(-2, wrap))),
                Ok(("u63@7", FieldAction::IncrementBy(1, Overflow::Saturate))),
                Ok(("i64@9", FieldAction::Get)),
            ],
        );
        check("", &[]);
    }

    #[test]
    fn what_is_wrong_is_said_once() {
        check("get u8", &[Err(ErrorReply::Syntax), Err(ErrorReply::Syntax)]);
        for kind in ["u64", "i65", "u0", "x8", "i", "u-1", "u08"] {
            check(&format!("get {kind} 0"), &[Err(ErrorReply::FieldKind)]);
        }
        for offset in ["-1", "800", "#-1", "#100", "x", "#", "#9223372036854775807"] {
            check(&format!("get u8 {offset}"), &[Err(ErrorReply::BitOffset)]);
        }
        check("overflow no", &[Err(ErrorReply::FieldOverflow)]);
        check("incrby u8 0 x", &[Err(ErrorReply::NotAnInteger)]);
        check("get u8 799", &[Ok(("u8@799", FieldAction::Get))]);
    }

    #[test]
    fn operations_know_how_many_sources_they_take() {
        let read = |word: &str, count| BitOperation::read(word.as_bytes(), count);
        assert_eq!(read("and", 1), Ok(BitOperation::And));
        assert_eq!(read("Not", 1), Ok(BitOperation::Not));
        assert_eq!(read("NOT", 2), Err(ErrorReply::OneSource));
        assert_eq!(read("diff", 1), Err(ErrorReply::TwoSources("DIFF")));
        assert_eq!(read("ANDOR", 2), Ok(BitOperation::AndOr));
        assert_eq!(read("one", 1), Ok(BitOperation::One));
        assert_eq!(read("nand", 2), Err(ErrorReply::Syntax));
    }
}
