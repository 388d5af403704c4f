//! Every read-modify-write on absent, fitting and unfitting values.

use base::UnixMillis;
use store::request::{Expiry, Item, Update, Verdict};
use wire::resp::{Compares, ExpireCondition};

use super::*;

const OLD_EXPIRY: UnixMillis = UnixMillis(5_000);
const KEPT: Verdict<Refusal> = Verdict::Write { client_flags: 7, expires_at: Some(OLD_EXPIRY) };
const FRESH: Verdict<Refusal> = Verdict::Write { client_flags: 0, expires_at: None };

fn item(value: &[u8]) -> Item<'_> {
    Item::of_stored(b"k", value, 7, 1, Some(OLD_EXPIRY))
}

#[track_caller]
fn check(update: Rmw<'_>, old: Option<&[u8]>, want: Verdict<Refusal>, want_value: &[u8]) {
    let old = old.map(item);
    let mut value = Vec::new();
    assert_eq!(update.apply(old.as_ref(), &mut value), want);
    assert_eq!(String::from_utf8_lossy(&value), String::from_utf8_lossy(want_value));
}

fn bounded(bytes: &[u8]) -> Bounded<'_> {
    Bounded { bytes, max_bytes: 10 }
}

fn refuse(refusal: Refusal) -> Verdict<Refusal> {
    Verdict::Refuse(refusal)
}

#[test]
fn increments_start_at_zero_and_keep_the_rest_of_the_item() {
    check(Rmw::IncrementBy(5), None, FRESH, b"5");
    check(Rmw::IncrementBy(-7), Some(b"5"), KEPT, b"-2");
}

#[test]
fn increments_refuse_what_is_no_integer_and_what_overflows() {
    for text in [&b"x"[..], b"", b" 1", b"1.0", b"9223372036854775808"] {
        check(Rmw::IncrementBy(1), Some(text), refuse(Refusal::NotAnInteger), b"");
    }
    check(Rmw::IncrementBy(1), Some(b"9223372036854775807"), refuse(Refusal::IntegerOverflow), b"");
}

#[test]
fn decimal_increments_are_exact() {
    check(Rmw::IncrementByFloat(b"0.1"), Some(b"10.50"), KEPT, b"10.6");
    check(Rmw::IncrementByFloat(b"0.2"), Some(b"0.1"), KEPT, b"0.3");
    check(Rmw::IncrementByFloat(b"2.5"), None, FRESH, b"2.5");
    check(Rmw::IncrementByFloat(b"1"), Some(b"abc"), refuse(Refusal::NotAFloat), b"");
}

#[test]
fn append_creates_and_is_bounded() {
    check(Rmw::Append(bounded(b"ab")), None, FRESH, b"ab");
    check(Rmw::Append(bounded(b"ab")), Some(b"12345678"), KEPT, b"12345678ab");
    check(Rmw::Append(bounded(b"ab")), Some(b"123456789"), refuse(Refusal::TooLong), b"");
}

#[test]
fn set_range_overwrites_extends_and_fills_with_zeros() {
    let set = |offset_bytes, bytes| Rmw::SetRange { offset_bytes, value: bounded(bytes) };
    check(set(1, b"XY"), Some(b"abcd"), KEPT, b"aXYd");
    check(set(3, b"XY"), Some(b"abcd"), KEPT, b"abcXY");
    check(set(2, b"X"), None, FRESH, b"\0\0X");
    check(set(8, b"XYZ"), Some(b"a"), refuse(Refusal::TooLong), b"");
    check(set(u64::MAX, b"X"), Some(b"a"), refuse(Refusal::TooLong), b"");
    check(set(100, b""), Some(b"a"), Verdict::Keep, b"");
}

#[test]
fn expiry_changes_only_keys_that_exist() {
    let at = UnixMillis(9_000);
    let expire = |condition| Rmw::Expire { at, condition };
    let touch = Verdict::Touch { expires_at: Some(at) };
    let any = ExpireCondition::default();
    check(expire(any), None, Verdict::Keep, b"");
    check(expire(any), Some(b"v"), touch, b"");
    check(expire(ExpireCondition { if_none: true, ..any }), Some(b"v"), Verdict::Keep, b"");
    check(expire(ExpireCondition { if_later: true, ..any }), Some(b"v"), touch, b"");
    check(expire(ExpireCondition { if_earlier: true, ..any }), Some(b"v"), Verdict::Keep, b"");
    check(Rmw::SetExpiry(Some(at)), None, Verdict::Keep, b"");
    check(Rmw::SetExpiry(Some(at)), Some(b"v"), Verdict::Touch { expires_at: Some(at) }, b"");
    check(Rmw::SetExpiry(None), Some(b"v"), Verdict::Touch { expires_at: None }, b"");
    check(Rmw::Persist, Some(b"v"), Verdict::Touch { expires_at: None }, b"");
    check(Rmw::Persist, None, Verdict::Keep, b"");
}

#[test]
fn persist_of_a_key_without_expiry_changes_nothing() {
    let old = Item { expires_at: None, ..item(b"v") };
    assert_eq!(Rmw::Persist.apply(Some(&old), &mut Vec::new()), Verdict::Keep);
}

#[test]
fn memcached_joins_only_what_exists() {
    check(Rmw::Join(bounded(b"ab"), Side::Behind), Some(b"12"), KEPT, b"12ab");
    check(Rmw::Join(bounded(b"ab"), Side::Before), Some(b"12"), KEPT, b"ab12");
    check(Rmw::Join(bounded(b"ab"), Side::Before), None, refuse(Refusal::Absent), b"");
}

#[test]
fn memcached_arithmetic_wraps_up_stops_at_zero_and_keeps_the_length() {
    check(Rmw::Increase(1), Some(b"18446744073709551615"), KEPT, b"0                   ");
    check(Rmw::Decrease(11), Some(b"10"), KEPT, b"0 ");
    check(Rmw::Decrease(1), Some(b"10"), KEPT, b"9 ");
    check(Rmw::Increase(1), Some(b"9 "), KEPT, b"10");
    check(Rmw::Increase(1), Some(b"99"), KEPT, b"100");
    check(Rmw::Increase(1), None, refuse(Refusal::Absent), b"");
    // As strtoull reads: blanks before it, a sign, and anything after a blank.
    for (text, want) in [
        (&b" 10"[..], &b"11 "[..]),
        (b"10 20", b"11   "),
        (b"+5", b"6 "),
        (b"-0", b"1 "),
        (b"1\0x", b"2  "),
        (b"12\r", b"13 "),
        (b"000000000000000000000005", b"6                       "),
    ] {
        check(Rmw::Increase(1), Some(text), KEPT, want);
    }
    for text in [&b"x"[..], b"", b" ", b"-1", b"+", b"1x", b"1+", b"18446744073709551616"] {
        check(Rmw::Increase(1), Some(text), refuse(Refusal::NotNumeric), b"");
    }
}

#[test]
fn bits_are_written_and_the_rest_is_kept() {
    let set = |offset_bits, bit| Rmw::SetBit { offset_bits, bit };
    check(set(7, true), None, FRESH, b"\x01");
    check(set(9, false), None, FRESH, b"\0\0");
    check(set(0, false), Some(b"\xff\xff"), KEPT, b"\x7f\xff");
    check(set(20, true), Some(b"a"), KEPT, b"a\0\x08");
    check(set(1, true), Some(b"a"), Verdict::Keep, b"");
    check(set(0, false), Some(b"a"), Verdict::Keep, b"");
}

fn comparison(compares: Compares, operand: &[u8]) -> Comparison<'_> {
    Comparison { compares, operand }
}

#[test]
fn a_set_with_a_comparison_writes_only_if_it_holds() {
    let set = |compares, operand| Rmw::SetIf {
        comparison: comparison(compares, operand),
        value: b"new",
        expiry: Expiry::Keep.into(),
    };
    let written = Verdict::Write { client_flags: 0, expires_at: Some(OLD_EXPIRY) };
    check(set(Compares::Equal, b"v"), Some(b"v"), written, b"new");
    check(set(Compares::Equal, b"w"), Some(b"v"), Verdict::Keep, b"");
    check(set(Compares::Equal, b""), None, Verdict::Keep, b"");
    check(set(Compares::NotEqual, b"w"), Some(b"v"), written, b"new");
    check(set(Compares::NotEqual, b"v"), Some(b"v"), Verdict::Keep, b"");
    check(set(Compares::NotEqual, b"v"), None, FRESH, b"new");
    // Redis documents this digest of `Hello world`.
    let digest = b"b6acb9d84a38ff74";
    assert_eq!(format!("{:016x}", compare::digest(b"Hello world")).as_bytes(), digest);
    check(set(Compares::DigestEqual, digest), Some(b"Hello world"), written, b"new");
    check(set(Compares::DigestEqual, b"B6ACB9D84A38FF74"), Some(b"Hello world"), written, b"new");
    check(set(Compares::DigestEqual, digest), Some(b"v"), Verdict::Keep, b"");
    check(set(Compares::DigestEqual, digest), None, Verdict::Keep, b"");
    check(set(Compares::DigestNotEqual, digest), Some(b"Hello world"), Verdict::Keep, b"");
    check(set(Compares::DigestNotEqual, digest), Some(b"v"), written, b"new");
    check(set(Compares::DigestNotEqual, digest), None, FRESH, b"new");
    let never = Rmw::SetIf {
        comparison: comparison(Compares::Equal, b"v"),
        value: b"new",
        expiry: Expiry::Never.into(),
    };
    check(never, Some(b"v"), FRESH, b"new");
}

#[test]
fn a_delete_with_a_comparison_never_creates() {
    let delete = |compares, operand| Rmw::DeleteIf(comparison(compares, operand));
    check(delete(Compares::Equal, b"v"), Some(b"v"), Verdict::Delete, b"");
    check(delete(Compares::Equal, b"w"), Some(b"v"), Verdict::Keep, b"");
    check(delete(Compares::NotEqual, b"w"), Some(b"v"), Verdict::Delete, b"");
    check(delete(Compares::NotEqual, b"w"), None, Verdict::Keep, b"");
    check(delete(Compares::DigestNotEqual, b"0000000000000000"), None, Verdict::Keep, b"");
}
