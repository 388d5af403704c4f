//! A sink whose reply has no room for an old value keeps it from being replaced or deleted.

use std::convert::Infallible;

use base::UnixMillis;
use store::request::TOLD_BYTES_MIN;
use store::{
    Condition, Expiry, IndexKind, Item, Mode, Op, Outcome, Pins, Request, Set, Sink, Store, Update,
    Verdict,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1000);
const LONG: usize = TOLD_BYTES_MIN + 1;

/// What an update does to a key that is there.
#[derive(Clone, Copy)]
enum Change {
    Write,
    Delete,
    Touch,
    Nothing,
}

impl Update for Change {
    type Refusal = Infallible;

    fn apply(&self, _: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<Infallible> {
        match self {
            Change::Write => {
                value.extend_from_slice(b"new");
                Verdict::Write { client_flags: 0, expires_at: None }
            }
            Change::Delete => Verdict::Delete,
            Change::Touch => Verdict::Touch { expires_at: Some(UnixMillis(9_000)) },
            Change::Nothing => Verdict::Keep,
        }
    }
}

#[derive(Default)]
struct Replies {
    has_room: bool,
    asked_count: u32,
    untold_count: u32,
    found: Option<(usize, Option<UnixMillis>)>,
}

impl Sink<Infallible> for Replies {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Infallible>, _: Pins<'_>) {
        self.untold_count += u32::from(matches!(outcome, Outcome::Untold));
        if let Outcome::Hit(item) = outcome {
            self.found = Some((item.value.len(), item.expires_at));
        }
    }

    fn may_tell(&mut self, _: usize, old: &Item<'_>, _: Pins<'_>) -> bool {
        assert!(old.value.len() >= TOLD_BYTES_MIN);
        self.asked_count += 1;
        self.has_room
    }
}

fn set(value: &[u8], expiry: Expiry) -> Op<'_, Change> {
    Op::Set(Set { value, client_flags: 0, expiry, condition: Condition::Always })
}

#[track_caller]
fn check(index: IndexKind) {
    let store = Store::open(support::config(index, Mode::Clean)).unwrap();
    let mut session = store.session().unwrap();
    let mut run = |op: Op<'_, Change>, has_room: bool| {
        let request = Request { key: b"key", hash: store.key_hasher().hash(b"key"), op };
        let mut replies = Replies { has_room, ..Replies::default() };
        session.execute(NOW, &[request], &mut replies);
        replies
    };
    let changes = || {
        [
            set(b"new", Expiry::Never),
            set(b"new", Expiry::At(NOW)),
            Op::Delete,
            Op::Update(Change::Write),
            Op::Update(Change::Delete),
            Op::Update(Change::Touch),
        ]
    };
    let long = vec![7; LONG];
    run(set(&long, Expiry::Never), false);
    for (number, change) in changes().into_iter().enumerate() {
        let replies = run(change, false);
        assert_eq!((replies.asked_count, replies.untold_count), (1, 1), "change {number}");
        assert_eq!(run(Op::Get, false).found, Some((LONG, None)), "change {number}");
    }
    let kept = run(Op::Update(Change::Nothing), false);
    assert_eq!((kept.asked_count, kept.untold_count), (0, 0), "nothing is taken away");
    for (number, change) in changes().into_iter().enumerate() {
        run(set(&long, Expiry::Never), true);
        let replies = run(change, true);
        assert_eq!((replies.asked_count, replies.untold_count), (1, 0), "change {number}");
        assert_ne!(run(Op::Get, true).found, Some((LONG, None)), "change {number}");
    }
    run(set(&long[..TOLD_BYTES_MIN - 1], Expiry::Never), true);
    assert_eq!(run(Op::Delete, false).asked_count, 0, "a short value is told in any case");
    store.validate();
}

#[test]
fn a_value_that_no_reply_can_tell_stays_in_a_hash_index() {
    check(IndexKind::Hash);
}

#[test]
fn a_value_that_no_reply_can_tell_stays_in_a_tree() {
    check(IndexKind::Tree);
}
