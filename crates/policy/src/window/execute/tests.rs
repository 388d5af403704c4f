//! Tests of closed windows against the same operations executed one by one.

use proptest::prelude::*;

use super::*;
use crate::window::sample::{Answer, Command, Operation, Store, operation};

const TOKEN: u64 = 1;
const OLD_TOKEN: u64 = 999;

fn store_with(value: Option<&'static str>) -> Store {
    // The version of the present value; tokens were assigned before.
    let mut store = Store { next_version: TOKEN - 1, ..Store::default() };
    if let Some(bytes) = value {
        store.run(&operation(0, 0, Command::SetExpiring(bytes)));
    }
    Store { next_version: TOKEN, write_count: 0, ..store }
}

fn plan_of(commands: &[Command]) -> Plan<Operation> {
    let numbered = commands.iter().enumerate();
    Plan::of(numbered.map(|(id, command)| operation(id, 0, command.clone())).collect())
}

/// Checks replies, loads and writes of a window over `before`.
#[track_caller]
fn check(before: Option<&'static str>, steps: &[(Command, Answer)], loads: usize, writes: usize) {
    let commands: Vec<_> = steps.iter().map(|(command, _)| command.clone()).collect();
    let mut store = store_with(before);
    let mut replies = Vec::new();
    plan_of(&commands).execute(&mut store, &mut replies).expect("there is room");
    let want: Vec<_> = steps.iter().map(|(_, answer)| answer.clone()).enumerate().collect();
    assert_eq!(replies, want);
    assert_eq!((store.load_count, store.write_count), (loads, writes), "loads and writes");
}

fn bytes(text: &str) -> Answer {
    Answer::Bytes(text.into())
}

#[test]
fn blind_sets_collapse_to_the_last_one() {
    let sets = ["1", "2", "3"].map(|value| (Command::Set(value), Answer::Ok));
    check(Some("0"), &sets, 0, 1);
}

#[test]
fn increments_are_answered_one_after_another_and_stored_once() {
    let increments = [10, 11, 12].map(|sum| (Command::Incr, Answer::Integer(sum)));
    check(Some("9"), &increments, 1, 1);
}

#[test]
fn an_increment_of_a_word_fails_alone() {
    check(
        Some("word"),
        &[
            (Command::Incr, Answer::NotAnInteger),
            (Command::Append("s"), Answer::Integer(5)),
            (Command::Incr, Answer::NotAnInteger),
            (Command::Set("41"), Answer::Ok),
            (Command::Incr, Answer::Integer(42)),
        ],
        1,
        1,
    );
}

#[test]
fn operations_that_all_fail_write_nothing() {
    let failures = [(Command::Incr, Answer::NotAnInteger), (Command::SetNx("1"), Answer::Nil)];
    check(Some("word"), &failures, 1, 0);
}

#[test]
fn a_token_matches_only_until_the_first_write() {
    check(
        Some("0"),
        &[
            (Command::Cas { token: OLD_TOKEN, bytes: "1" }, Answer::Exists),
            (Command::Cas { token: TOKEN, bytes: "2" }, Answer::Ok),
            (Command::Cas { token: TOKEN, bytes: "3" }, Answer::Exists),
            (Command::Get, bytes("2")),
        ],
        1,
        1,
    );
    check(None, &[(Command::Cas { token: TOKEN, bytes: "1" }, Answer::NotFound)], 1, 0);
    let behind_a_set = [
        (Command::Set("1"), Answer::Ok),
        (Command::Cas { token: TOKEN, bytes: "2" }, Answer::Exists),
    ];
    check(Some("0"), &behind_a_set, 0, 1);
}

#[test]
fn conditions_look_at_what_earlier_operations_left() {
    check(
        None,
        &[
            (Command::SetXx("1"), Answer::Nil),
            (Command::SetNx("2"), Answer::Ok),
            (Command::SetNx("3"), Answer::Nil),
            (Command::SetXx("4"), Answer::Ok),
            (Command::SetGet("5"), bytes("4")),
            (Command::GetDel, bytes("5")),
        ],
        1,
        1,
    );
}

#[test]
fn a_delete_says_what_it_found_without_a_look_at_the_store() {
    check(
        Some("0"),
        &[
            (Command::Set("1"), Answer::Ok),
            (Command::Del, Answer::Integer(1)),
            (Command::Del, Answer::Integer(0)),
            (Command::Get, Answer::Nil),
        ],
        0,
        1,
    );
}

#[test]
fn a_delete_that_comes_first_looks_at_the_store() {
    check(Some("0"), &[(Command::Del, Answer::Integer(1))], 1, 1);
    check(None, &[(Command::Del, Answer::Integer(0)), (Command::Del, Answer::Integer(0))], 1, 0);
}

#[test]
fn a_read_sees_the_writes_before_it_and_not_those_behind() {
    check(
        Some("0"),
        &[
            (Command::Get, bytes("0")),
            (Command::Set("1"), Answer::Ok),
            (Command::Get, bytes("1")),
            (Command::Set("2"), Answer::Ok),
        ],
        1,
        1,
    );
}

#[test]
fn without_room_nothing_is_answered() {
    let mut store = Store { is_full: true, ..store_with(Some("0")) };
    let mut replies = vec![(77, Answer::Ok)];
    let plan = plan_of(&[Command::Set("1"), Command::Incr]);
    assert_eq!(plan.execute(&mut store, &mut replies), Err(()));
    assert_eq!(replies, [(77, Answer::Ok)], "the replies of others stay");
}

fn any_command() -> impl Strategy<Value = Command> {
    let bytes = || prop::sample::select(vec!["", "7", "x", "9223372036854775807"]);
    prop_oneof![
        Just(Command::Get),
        bytes().prop_map(Command::Set),
        bytes().prop_map(Command::SetExpiring),
        bytes().prop_map(Command::SetNx),
        bytes().prop_map(Command::SetXx),
        bytes().prop_map(Command::SetGet),
        bytes().prop_map(Command::SetKeepTtl),
        Just(Command::Del),
        Just(Command::GetDel),
        Just(Command::Incr),
        bytes().prop_map(Command::Append),
        (prop::sample::select(vec![TOKEN, OLD_TOKEN]), bytes())
            .prop_map(|(token, bytes)| Command::Cas { token, bytes }),
    ]
}

proptest! {
    /// I1 to I4 of the plan.
    #[test]
    fn a_window_answers_and_leaves_what_the_operations_would_one_by_one(
        before in prop::sample::select(vec![None, Some("5"), Some("word")]),
        commands in prop::collection::vec(any_command(), 1..12),
    ) {
        let plan = plan_of(&commands);
        let mut one_by_one = store_with(before);
        let want: Vec<_> =
            plan.operations().iter().map(|one| (one.id, one_by_one.run(one))).collect();

        let mut windowed = store_with(before);
        let mut replies = Vec::new();
        plan.execute(&mut windowed, &mut replies).expect("there is room");

        prop_assert_eq!(replies, want);
        prop_assert_eq!(windowed.contents(), one_by_one.contents());
        prop_assert!(windowed.load_count <= 1 && windowed.write_count <= 1);
        prop_assert!(windowed.write_count <= one_by_one.write_count);
    }
}
