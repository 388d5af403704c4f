//! Another session writes the key between a group's look and its write: the group's write is left
//! out (I3 of `compaction`), whatever it was going to be.

use base::KeyHash;
use policy::window::Compacts;

use super::super::find::members;
use super::super::tests::{NOW, blind_set, store};
use super::super::{Answering, Tells};
use super::*;
use crate::rmw::Bounded;

/// All requests are one connection's, and their replies report nothing.
struct NoSink;

impl Sink<Refusal> for NoSink {
    fn outcome(&mut self, _: usize, _: Outcome<'_, Refusal>, _: Pins<'_>) {}
}

impl Answering for NoSink {
    fn tells(&self, _: usize) -> Tells {
        Tells::Nothing
    }
}

#[derive(Default)]
struct Found(Option<Vec<u8>>);

impl Sink<Refusal> for Found {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.0 = Some(item.value.to_vec());
        }
    }
}

fn run(session: &mut Session, hash: KeyHash, op: Op<'_, Rmw<'_>>) -> Option<Vec<u8>> {
    let mut found = Found::default();
    session.execute(NOW, &[Request { key: b"k", hash, op }], &mut found);
    found.0
}

/// A group of `ops` looks at the key, `meanwhile` happens, and then the group writes; returns the
/// final value of the key, and whether the group was given up.
fn interrupted(
    before: Option<&'static [u8]>,
    ops: &[Op<'static, Rmw<'static>>],
    meanwhile: Option<Op<'static, Rmw<'static>>>,
) -> (Option<Vec<u8>>, bool) {
    let store = store();
    let hash = store.key_hasher().hash(b"k");
    let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
    if let Some(value) = before {
        run(&mut session, hash, blind_set(value));
    }
    let requests: Vec<_> = ops.iter().map(|op| Request { key: b"k", hash, op: *op }).collect();
    let members = members(&requests, 0, NOW, &NoSink, Compacts::All).unwrap();
    let (mut scratch, mut value) = (Vec::new(), Vec::new());
    let mut replay = Replay::new(&mut session, NOW, &mut scratch, &mut value);
    let mut running = replay.load(&members[0]);
    if let Some(op) = meanwhile {
        run(&mut other, hash, op);
    }
    for member in &members {
        replay.replay(member, &mut running);
    }
    let operation = members.last().unwrap();
    let written = replay.write(FinalWrite::Value { operation, value: running });
    (run(&mut other, hash, Op::Get), written.is_err())
}

fn append(bytes: &'static [u8]) -> Op<'static, Rmw<'static>> {
    Op::Update(Rmw::Append(Bounded { bytes, max_bytes: 1000 }))
}

fn set_if(value: &'static [u8], condition: Condition) -> Op<'static, Rmw<'static>> {
    Op::Set(Set { value, client_flags: 0, expiry: Expiry::Never, condition })
}

#[track_caller]
fn check(before: Option<&'static [u8]>, ops: &[Op<'static, Rmw<'static>>], alone: Option<&[u8]>) {
    assert_eq!(interrupted(before, ops, None), (alone.map(<[u8]>::to_vec), false));
    let other = b"another's".as_slice();
    let (found, is_given_up) = interrupted(before, ops, Some(blind_set(other)));
    assert_eq!(found.as_deref(), Some(other), "what was written meanwhile is not overwritten");
    assert!(is_given_up);
}

#[test]
fn a_changed_value_is_stored_only_over_the_one_that_was_looked_at() {
    check(Some(b"a"), &[append(b"b"), append(b"c")], Some(b"abc"));
    check(None, &[append(b"b"), append(b"c")], Some(b"bc"));
    let increments = [Op::Update(Rmw::IncrementBy(1)); 3];
    check(Some(b"4"), &increments, Some(b"7"));
}

#[test]
fn a_set_on_condition_is_stored_only_if_the_condition_still_holds() {
    let absent = [set_if(b"x", Condition::IfAbsent); 2];
    check(None, &absent, Some(b"x"));
    let present = [set_if(b"x", Condition::IfPresent), set_if(b"y", Condition::IfPresent)];
    check(Some(b"a"), &present, Some(b"y"));
    let (found, is_given_up) = interrupted(Some(b"a"), &present, Some(Op::Delete));
    assert_eq!((found, is_given_up), (None, true), "what went meanwhile does not come back");
}

#[test]
fn a_delete_takes_only_what_was_looked_at() {
    check(Some(b"a"), &[append(b"b"), Op::Delete], None);
}

/// The conditions inside a group, which its single write does not contain.
#[test]
fn a_condition_that_fails_in_a_group_changes_nothing() {
    for (before, condition, want) in [
        (Some(b"a".as_slice()), Condition::IfAbsent, Some(b"a".as_slice())),
        (None, Condition::IfPresent, None),
        (Some(b"a"), Condition::IfVersion(u64::MAX), Some(b"a")),
        (None, Condition::IfVersion(1), None),
    ] {
        let ops = [set_if(b"x", condition), set_if(b"y", condition)];
        let (found, is_given_up) = interrupted(before, &ops, None);
        assert_eq!((found.as_deref(), is_given_up), (want, false), "{condition:?}");
    }
}
