//! Every meta update on absent, fitting, stale and won items.

use base::UnixMillis;
use store::request::{Item, STALE, Update, Use, Verdict, WON};

use super::*;
use crate::rmw::Rmw;

const END: UnixMillis = UnixMillis(50_000);

fn item(value: &[u8], marks: u64) -> Item<'_> {
    Item::of_stored(b"k", value, 7 | marks, 10, Some(END))
}

/// The CAS token of that key at a version.
fn token(version: u64) -> u64 {
    store::token_base(b"k") + version
}

#[track_caller]
fn check(update: Rmw<'_>, old: Option<Item<'_>>, want: Verdict<Refusal>, want_value: &[u8]) {
    let mut value = Vec::new();
    assert_eq!(update.apply(old.as_ref(), &mut value), want);
    assert_eq!(value, want_value);
    let keeps = matches!(want, Verdict::Keep);
    assert!(!update.reads(old.as_ref()) || (keeps && update.may_read()), "a read keeps the key");
}

fn write(client_flags: u64, expires_at: Option<UnixMillis>) -> Verdict<Refusal> {
    Verdict::Write { client_flags, expires_at }
}

const GET: MetaGet = MetaGet {
    vivify: NewExpiry::KEPT,
    touch: NewExpiry::KEPT,
    recache: NewExpiry::KEPT,
    is_touched_first: false,
    regard: Regard::Read,
};

fn at(ms: u64) -> NewExpiry {
    NewExpiry::at(Some(UnixMillis(ms)))
}

#[test]
fn mg_reads_what_no_client_has_to_make_anew() {
    let get = Rmw::MetaGet(GET);
    check(get, None, Verdict::Keep, b"");
    check(get, Some(item(b"v", 0)), Verdict::Keep, b"");
    check(get, Some(item(b"v", STALE | WON)), Verdict::Keep, b"");
    check(get, Some(item(b"v", STALE)), write(7 | STALE | WON, Some(END)), b"v");
    assert!(get.reads(None) && !get.reads(Some(&item(b"v", STALE))));
}

#[test]
fn mg_makes_touches_and_wins() {
    let vivify = Rmw::MetaGet(MetaGet { vivify: NewExpiry::NEVER, ..GET });
    check(vivify, None, write(WON, None), b"");
    check(vivify, Some(item(b"v", 0)), Verdict::Keep, b"");
    let touch = MetaGet { touch: at(70_000), ..GET };
    let touched = Verdict::Touch { expires_at: Some(UnixMillis(70_000)) };
    check(Rmw::MetaGet(touch), Some(item(b"v", 0)), touched, b"");
    let recache = |ms| MetaGet { recache: at(ms), ..GET };
    check(Rmw::MetaGet(recache(50_000)), Some(item(b"v", 0)), Verdict::Keep, b"");
    check(Rmw::MetaGet(recache(51_000)), Some(item(b"v", 0)), write(7 | WON, Some(END)), b"v");
    check(Rmw::MetaGet(recache(51_000)), Some(item(b"v", WON)), Verdict::Keep, b"");
    let endless = Item { expires_at: None, ..item(b"v", 0) };
    check(Rmw::MetaGet(recache(51_000)), Some(endless), Verdict::Keep, b"");
    let both = MetaGet { touch: at(70_000), is_touched_first: true, ..recache(51_000) };
    check(Rmw::MetaGet(both), Some(item(b"v", 0)), touched, b"");
}

#[test]
fn an_older_token_leaves_a_stale_value() {
    let store = |version| {
        let (value, client_flags) = (b"new", 1);
        let (expiry, guard) = (at(90_000), Guard::SameOrOlderToken);
        Rmw::MetaStore(MetaStore { value, client_flags, expiry, guard, version })
    };
    check(store(10), None, Verdict::Keep, b"");
    let same = Some(item(b"v", STALE));
    check(store(token(10)), same, write(1, Some(UnixMillis(90_000))), b"new");
    let older = Some(item(b"v", WON));
    check(store(token(9)), older, write(1 | STALE | WON, Some(END)), b"new");
    for version in [0, token(11)] {
        let refused = Verdict::Refuse(Refusal::OtherVersion(token(10)));
        check(store(version), Some(item(b"v", 0)), refused, b"");
    }
}

#[test]
fn a_write_with_a_token_gives_it_to_the_item() {
    let own = |token| Item { token: Some(token), ..item(b"1", 0) };
    let with =
        |client_flags, expires_at, token| Verdict::WriteToken { client_flags, expires_at, token };
    let check_named = |update, old, want, want_value: &[u8]| {
        check(Rmw::Named(&Named { update, token: 500 }), old, want, want_value);
    };
    let store = |guard, version| {
        let (value, client_flags, expiry) = (b"new", 1, NewExpiry::NEVER);
        Rmw::MetaStore(MetaStore { value, client_flags, expiry, guard, version })
    };
    let written = with(1, None, 500);
    let other = |token| Verdict::Refuse(Refusal::OtherVersion(token));
    check_named(store(Guard::None, 0), None, written, b"new");
    check_named(store(Guard::None, 0), Some(own(9)), written, b"new");
    check_named(store(Guard::Absent, 0), None, written, b"new");
    check_named(store(Guard::Absent, 0), Some(own(9)), Verdict::Refuse(Refusal::Present), b"");
    check_named(store(Guard::Present, 0), None, Verdict::Refuse(Refusal::Absent), b"");
    check_named(store(Guard::Present, 0), Some(item(b"v", 0)), written, b"new");
    check_named(store(Guard::SameToken, 9), Some(own(9)), written, b"new");
    check_named(store(Guard::SameToken, 10), Some(own(9)), other(9), b"");
    check_named(store(Guard::SameToken, 10), None, Verdict::Keep, b"");
    let stale = with(1 | STALE, Some(END), 500);
    check_named(store(Guard::SameOrOlderToken, 8), Some(own(9)), stale, b"new");
    check_named(store(Guard::SameOrOlderToken, 10), Some(own(9)), other(9), b"");
    check(Rmw::DeleteToken(9), Some(own(9)), Verdict::Delete, b"");
    check(Rmw::DeleteToken(10), Some(own(9)), other(9), b"");
    check(Rmw::DeleteVersion(10), Some(own(9)), Verdict::Delete, b"");

    let (touch, removes_value) = (NewExpiry::KEPT, false);
    let (version, makes_stale) = (Some(9), true);
    let marked = MetaInvalidate { version, touch, makes_stale, removes_value };
    let stale = with(7 | STALE, Some(END), 500);
    check_named(Rmw::MetaInvalidate(marked), Some(own(9)), stale, b"1");
    let (delta, version, vivify, initial) = (1, 9, NewExpiry::NEVER, 5);
    let count = MetaCount { delta, version, vivify, initial, touch };
    check_named(Rmw::MetaIncrease(count), Some(own(9)), with(7, Some(END), 500), b"2");
    check_named(Rmw::MetaIncrease(count), Some(own(8)), other(8), b"");
    check_named(Rmw::MetaDecrease(count), None, with(0, None, 500), b"5");
    let (bytes, max_bytes, client_flags) = (b"x", 10, 3);
    let join = MetaJoin { bytes, max_bytes, version: 9, vivify, client_flags };
    check_named(Rmw::MetaAppend(join), Some(own(9)), with(7, Some(END), 500), b"1x");
    check_named(Rmw::MetaPrepend(join), None, with(3, None, 500), b"x");
    let made = Rmw::MetaGet(MetaGet { vivify, ..GET });
    check_named(made, None, with(WON, None, 500), b"");
    // A mark beside the same value changes no token, and a new value removes the mark.
    let old = Item { token: Some(9), ..item(b"v", STALE) };
    check_named(made, Some(old), with(7 | STALE | WON, Some(END), 9), b"v");
    check_named(made, Some(item(b"v", STALE)), write(7 | STALE | WON, Some(END)), b"v");
    check(Rmw::MetaIncrease(count), Some(own(9)), write(7, Some(END)), b"2");
}

#[test]
fn md_marks_or_empties() {
    let base = MetaInvalidate {
        version: None,
        touch: NewExpiry::KEPT,
        makes_stale: true,
        removes_value: false,
    };
    check(Rmw::MetaInvalidate(base), None, Verdict::Keep, b"");
    let marked = write(7 | STALE, Some(END));
    check(Rmw::MetaInvalidate(base), Some(item(b"v", WON)), marked, b"v");
    let emptied = MetaInvalidate { removes_value: true, ..base };
    check(Rmw::MetaInvalidate(emptied), Some(item(b"v", 0)), write(STALE, None), b"");
    let guarded = MetaInvalidate { version: Some(9), ..base };
    let refused = Verdict::Refuse(Refusal::OtherVersion(token(10)));
    check(Rmw::MetaInvalidate(guarded), Some(item(b"v", 0)), refused, b"");
}

#[test]
fn joins_and_counts_make_what_is_missing_only_if_asked() {
    let (vivify, client_flags) = (NewExpiry::KEPT, 3);
    let (bytes, max_bytes) = (b"x", 10);
    let join = MetaJoin { bytes, max_bytes, version: 0, vivify, client_flags };
    check(Rmw::MetaAppend(join), None, Verdict::Refuse(Refusal::Absent), b"");
    let made = MetaJoin { vivify: NewExpiry::NEVER, ..join };
    check(Rmw::MetaAppend(made), None, write(3, None), b"x");
    check(Rmw::MetaAppend(made), Some(item(b"v", STALE)), write(7, Some(END)), b"vx");
    let (delta, initial, touch) = (5, 40, NewExpiry::KEPT);
    let count = MetaCount { delta, version: 0, vivify, initial, touch };
    check(Rmw::MetaIncrease(count), None, Verdict::Refuse(Refusal::Absent), b"");
    let made = MetaCount { vivify: at(60_000), ..count };
    check(Rmw::MetaIncrease(made), None, write(0, Some(UnixMillis(60_000))), b"40");
    check(Rmw::MetaIncrease(count), Some(item(b"10", STALE)), write(7 | STALE, Some(END)), b"15");
    check(Rmw::MetaIncrease(count), Some(item(b"97", STALE)), write(7, Some(END)), b"102");
    let guarded = MetaCount { version: 9, ..count };
    let refused = Verdict::Refuse(Refusal::OtherVersion(token(10)));
    check(Rmw::MetaIncrease(guarded), Some(item(b"1", 0)), refused, b"");
}

#[test]
fn a_look_neither_wins_nor_counts_as_a_read() {
    let stale = item(b"v", STALE);
    assert!(MetaGet::LOOK.reads(Some(&stale)) && MetaGet::LOOK.reads(None));
    let unnoted = MetaGet { regard: Regard::Unnoted, ..MetaGet::LOOK };
    assert!(unnoted.wins(&stale) && !MetaGet::LOOK.wins(&stale));
    let read = MetaGet { regard: Regard::Read, ..MetaGet::LOOK };
    let usages = [MetaGet::LOOK, unnoted, read].map(|get| Rmw::MetaGet(get).usage());
    assert_eq!(usages, [Use::NoRead, Use::NoRead, Use::Read]);
}
