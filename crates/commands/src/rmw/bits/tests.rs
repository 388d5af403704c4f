//! Bits checked against a model that holds one truth value for each.

use wire::Parsed;
use wire::resp::{Limits, Parser};

use super::*;

/// Numbers that depend on the seed alone.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Often all zeros or all ones, so that searches go far.
    fn value(&mut self) -> Vec<u8> {
        let len = self.below(40);
        let kind = self.below(4);
        let byte = |draws: &mut Draws| match kind {
            0 => 0,
            1 => 0xff,
            2 if draws.below(6) > 0 => 0,
            _ => draws.below(256) as u8,
        };
        (0..len).map(|_| byte(self)).collect()
    }
}

fn bits_of(value: &[u8]) -> Vec<bool> {
    (0..value.len() * 8).map(|at| value[at / 8] & (0x80 >> (at % 8)) != 0).collect()
}

/// The positions of a range, as Redis's documentation defines them.
fn places(bits: usize, range: BitRange) -> std::ops::RangeInclusive<i64> {
    let total = if range.unit == BitUnit::Bit { bits as i64 } else { bits as i64 / 8 };
    let from_start = |at: i64| if at < 0 { (at + total).max(0) } else { at };
    let (start, end) = (from_start(range.start), from_start(range.end).min(total - 1));
    match range.unit {
        BitUnit::Bit => start..=end,
        BitUnit::Byte => start * 8..=end * 8 + 7,
    }
}

#[test]
fn counts_and_positions_are_those_of_the_model() {
    let mut draws = Draws(11);
    for _ in 0..20_000 {
        let value = draws.value();
        let bits = bits_of(&value);
        let unit = if draws.below(2) == 0 { BitUnit::Bit } else { BitUnit::Byte };
        let span = if unit == BitUnit::Bit { 340 } else { 45 };
        let place = |draws: &mut Draws| draws.below(2 * span) as i64 - span as i64;
        let (start, end) = (place(&mut draws), place(&mut draws));
        let range = BitRange { start, end, unit };
        let places = places(bits.len(), range);
        let want = places.clone().filter(|at| bits[*at as usize]).count() as u64;
        let is_crossed = start < 0 && end < 0 && start > end;
        assert_eq!(count(&value, Some(range)), if is_crossed { 0 } else { want }, "{range:?}");
        assert_eq!(count(&value, None), bits.iter().filter(|bit| **bit).count() as u64);
        let bit = draws.below(2) == 0;
        let search = BitSearch { bit, start, end, has_end: true, unit };
        let want = places.clone().find(|at| bits[*at as usize] == bit).unwrap_or(-1);
        assert_eq!(position(Some(&value), search), want, "{search:?} {value:?}");
    }
}

#[test]
fn without_an_end_zeros_follow() {
    let unit = BitUnit::Byte;
    let search = |bit, start| BitSearch { bit, start, end: -1, has_end: false, unit };
    assert_eq!(position(Some(b"\xff\xff"), search(false, 0)), 16);
    assert_eq!(position(Some(b"\xff\xff"), search(false, 1)), 16);
    assert_eq!(position(Some(b"\xff\xff"), search(false, 2)), -1);
    assert_eq!(position(Some(b"\0\0"), search(true, 0)), -1);
    assert_eq!(position(Some(b""), search(false, 0)), -1);
    assert_eq!(position(None, search(false, 0)), 0);
    assert_eq!(position(None, search(true, 0)), -1);
    let closed = BitSearch { has_end: true, ..search(false, 0) };
    assert_eq!(position(Some(b"\xff\xff"), closed), -1);
}

fn combine(operation: BitOperation, sources: &[&[u8]]) -> Vec<u8> {
    let mut combined = Combined::new(operation);
    sources.iter().for_each(|source| combined.take(source));
    combined.finish()
}

#[test]
fn operations_are_those_of_the_model() {
    let mut draws = Draws(5);
    let operations = [
        BitOperation::And,
        BitOperation::Or,
        BitOperation::Xor,
        BitOperation::Diff,
        BitOperation::Diff1,
        BitOperation::AndOr,
        BitOperation::One,
    ];
    for _ in 0..3000 {
        let values: Vec<Vec<u8>> = (0..1 + draws.below(4)).map(|_| draws.value()).collect();
        let sources: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
        let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
        for operation in operations {
            let result = combine(operation, &sources);
            assert_eq!(result.len(), len, "{operation:?}");
            for at in 0..len as u64 * 8 {
                let first = bit(sources[0], at);
                let others = sources[1..].iter().filter(|source| bit(source, at)).count();
                let want = match operation {
                    BitOperation::And => first && others == sources.len() - 1,
                    BitOperation::Or => first || others > 0,
                    BitOperation::Xor => (usize::from(first) + others) % 2 == 1,
                    BitOperation::Not => !first,
                    BitOperation::Diff => first && others == 0,
                    BitOperation::Diff1 => !first && others > 0,
                    BitOperation::AndOr => first && others > 0,
                    BitOperation::One => usize::from(first) + others == 1,
                };
                assert_eq!(bit(&result, at), want, "{operation:?} {at} {sources:?}");
            }
        }
        let inverse = combine(BitOperation::Not, &sources[..1]);
        assert!((0..inverse.len() as u64 * 8).all(|at| bit(&inverse, at) != bit(sources[0], at)));
    }
}

#[track_caller]
fn check(line: &str, old: &[u8], want: &[Option<i64>], want_value: Option<&[u8]>) {
    let line = format!("{line}\r\n");
    let parsed = Parser::default().parse(line.as_bytes(), &Limits::default());
    let Parsed::Done { value: args, .. } = parsed else { panic!("not a command: {line}") };
    let actions = FieldActions::new(args.iter(), 1000);
    assert!(actions.clone().all(|action| action.is_ok()), "{line}");
    let Fields { value, answers } = act(actions, old.to_vec());
    assert_eq!((answers.as_slice(), value.as_deref()), (want, want_value), "{line}");
}

#[test]
fn fields_are_read_and_written() {
    check(
        "GET u8 0 GET i8 0 GET u4 4 GET u63 2",
        b"\xfe",
        &[Some(254), Some(-2), Some(14), Some(0x7c00_0000_0000_0000)],
        None,
    );
    check("SET u8 0 65 SET i8 #1 -1", b"", &[Some(0), Some(0)], Some(b"A\xff"));
    check("SET u1 15 1 GET u16 0", b"", &[Some(0), Some(1)], Some(b"\0\x01"));
    check("INCRBY i64 3 -1", b"", &[Some(-1)], Some(b"\x1f\xff\xff\xff\xff\xff\xff\xff\xe0"));
    check("INCRBY u8 0 0", b"a", &[Some(97)], None);
}

#[test]
fn overflow_wraps_saturates_or_fails() {
    check("INCRBY u8 0 10", b"\xff", &[Some(9)], Some(b"\x09"));
    check("INCRBY i8 0 1", b"\x7f", &[Some(-128)], Some(b"\x80"));
    check(
        "OVERFLOW SAT INCRBY i8 0 1 INCRBY i8 0 -300",
        b"\x7f",
        &[Some(127), Some(-128)],
        Some(b"\x80"),
    );
    check("OVERFLOW FAIL INCRBY u8 0 1 INCRBY u8 0 -256", b"\xff", &[None, None], None);
    check("OVERFLOW SAT SET u8 0 -1", b"a", &[Some(97)], Some(b"\xff"));
    check("SET i4 0 8", b"\0", &[Some(0)], Some(b"\x80"));
    // Redis 7.0.15 answers this: its check of the lower end overflows.
    let least = i64::MIN.to_string();
    check(&format!("OVERFLOW SAT SET i5 #1 {least}"), b"", &[Some(0)], Some(b"\x03\xc0"));
    check(&format!("OVERFLOW SAT SET i64 0 {least}"), b"", &[Some(0)], Some(b"\x80\0\0\0\0\0\0\0"));
    check(&format!("OVERFLOW SAT SET i1 0 {least}"), b"", &[Some(0)], Some(b"\0"));
    check("OVERFLOW SAT SET i5 0 -17", b"", &[Some(0)], Some(b"\x80"));
    // A value that grows is written, even if no number fits.
    check("OVERFLOW FAIL SET u1 9 5", b"", &[None], Some(b"\0\0"));
    let most = i64::MAX.to_string();
    check(
        &format!("OVERFLOW SAT INCRBY i64 0 {most} INCRBY i64 0 {most}"),
        b"\0",
        &[Some(i64::MAX), Some(i64::MAX)],
        Some(b"\x7f\xff\xff\xff\xff\xff\xff\xff"),
    );
}
