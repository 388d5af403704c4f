//! Every meta update on absent, fitting, stale and won items.

use base::UnixMillis;
use store::request::{Item, LastUse, STALE, Update, Use, Verdict, WON};

use super::*;
use crate::rmw::Rmw;

const END: UnixMillis = UnixMillis(50_000);

fn item(value: &[u8], marks: u64) -> Item<'_> {
    let client_flags = 7 | marks;
    Item {
        key: b"k",
        value,
        client_flags,
        version: 10,
        shard: 0,
        expires_at: Some(END),
        last_use: LastUse::UNKNOWN,
    }
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
fn mg_reads_what_nobody_has_to_make_anew() {
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
        let expiry = at(90_000);
        Rmw::MetaStore(MetaStore { value: b"new", client_flags: 1, expiry, version })
    };
    check(store(10), None, Verdict::Keep, b"");
    check(store(10), Some(item(b"v", STALE)), write(1, Some(UnixMillis(90_000))), b"new");
    check(store(9), Some(item(b"v", WON)), write(1 | STALE | WON, Some(END)), b"new");
    for version in [0, 11] {
        let refused = Verdict::Refuse(Refusal::OtherVersion(10));
        check(store(version), Some(item(b"v", 0)), refused, b"");
    }
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
    let refused = Verdict::Refuse(Refusal::OtherVersion(10));
    check(Rmw::MetaInvalidate(guarded), Some(item(b"v", 0)), refused, b"");
}

#[test]
fn joins_and_counts_make_what_is_missing_only_if_asked() {
    let (vivify, client_flags) = (NewExpiry::KEPT, 3);
    let join = MetaJoin { bytes: b"x", max_bytes: 10, version: 0, vivify, client_flags };
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
    let refused = Verdict::Refuse(Refusal::OtherVersion(10));
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
