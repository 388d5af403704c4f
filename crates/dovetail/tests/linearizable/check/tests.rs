//! Tests of the checker with histories that are known to be good or bad.

use super::*;
use crate::linearizable::model::Swap;
use crate::linearizable::value::Value;

/// A request of one key; an answer of `None` comes never.
fn record(
    connection: usize,
    (start_tick, end_tick): (u64, u64),
    ask: Ask,
    answer: impl Into<Option<Answer>>,
) -> Record {
    let answer = answer.into();
    let end_tick = if answer.is_some() { end_tick } else { u64::MAX };
    Record { connection, key: 0, ask, answer, start_tick, end_tick }
}

fn number(number: u64) -> Value {
    Value::number(number)
}

fn set(value: u64) -> Ask {
    Ask::Set(number(value))
}

fn value(found: u64) -> Answer {
    Answer::Value(Some(number(found)))
}

fn sum(found: u64) -> Answer {
    Answer::Sum(Some(found))
}

#[track_caller]
fn accepts(history: &[Record]) {
    assert_eq!(check(history).map(|found| found.request_count), Ok(history.len()));
}

#[track_caller]
fn rejects(history: &[Record]) {
    let message = check(history).expect_err("no order explains it");
    assert!(message.contains("no order explains"), "{message}");
    assert_eq!(message.lines().count(), 1 + history.len(), "{message}");
}

#[test]
fn a_lost_update_is_noticed() {
    let both_one =
        [record(0, (0, 2), Ask::Increment, sum(1)), record(1, (1, 3), Ask::Increment, sum(1))];
    rejects(&both_one);
    accepts(&[both_one[0], record(1, (1, 3), Ask::Increment, sum(2))]);
    // Lost without a trace in the answers: only a read tells.
    let sets = [
        record(0, (0, 1), set(1), Answer::Done),
        record(1, (2, 3), Ask::Append(Value::of(b"x")), Answer::Length(2)),
    ];
    rejects(&[sets[0], sets[1], record(0, (4, 5), Ask::Get, value(1))]);
    accepts(&[sets[0], sets[1], record(0, (4, 5), Ask::Get, found(b"1x"))]);
}

fn found(bytes: &[u8]) -> Answer {
    Answer::Value(Some(Value::of(bytes)))
}

#[test]
fn an_increment_that_happened_twice_is_noticed() {
    let twice = [record(0, (0, 1), Ask::Increment, sum(1)), record(0, (2, 3), Ask::Get, value(2))];
    rejects(&twice);
    rejects(&[twice[0], record(1, (2, 3), Ask::Increment, sum(3))]);
    // One that died may have been the other, once.
    let died = record(2, (0, 0), Ask::Increment, None);
    accepts(&[twice[0], twice[1], died]);
    rejects(&[twice[0], record(0, (2, 3), Ask::Get, value(3)), died]);
}

#[test]
fn a_read_of_what_was_overwritten_is_noticed() {
    let stale = [
        record(0, (0, 1), set(1), Answer::Done),
        record(0, (2, 3), set(2), Answer::Done),
        record(1, (4, 5), Ask::Get, value(1)),
    ];
    rejects(&stale);
    let overlapping = Record { start_tick: 2, ..stale[2] };
    rejects(&[stale[1], overlapping]);
    accepts(&[stale[0], stale[1], record(1, (1, 4), Ask::Get, value(1))]);
}

#[test]
fn reads_that_go_back_in_time_are_noticed() {
    let write = [record(0, (0, 1), set(1), Answer::Done), record(0, (2, 9), set(2), Answer::Done)];
    let reads = |first, second| {
        [record(1, (3, 4), Ask::Get, value(first)), record(2, (5, 6), Ask::Get, value(second))]
    };
    accepts(&[write, reads(1, 2)].concat());
    accepts(&[write, reads(2, 2)].concat());
    rejects(&[write, reads(2, 1)].concat());
}

/// The requests of one pipeline all begin before the first of them ends (K10).
#[test]
fn a_pipeline_that_was_reordered_is_noticed() {
    let pipeline =
        |read| [record(0, (0, 10), set(1), Answer::Done), record(0, (1, 11), Ask::Get, read)];
    accepts(&pipeline(value(1)));
    rejects(&pipeline(Answer::Value(None)));
    // Two connections at the same time could have it so.
    let apart = [
        record(0, (0, 10), set(1), Answer::Done),
        record(1, (1, 11), Ask::Get, Answer::Value(None)),
    ];
    accepts(&apart);
    let swapped = [
        record(0, (0, 10), set(1), Answer::Done),
        record(0, (1, 11), set(2), Answer::Done),
        record(1, (12, 13), Ask::Get, value(1)),
    ];
    rejects(&swapped);
}

#[test]
fn what_a_dead_client_asked_last_happened_once_or_never() {
    let before = record(0, (0, 1), set(1), Answer::Done);
    let died = record(1, (2, 0), set(2), None);
    let read = |start_tick, found| record(2, (start_tick, start_tick + 1), Ask::Get, value(found));
    accepts(&[before, died, read(10, 1)]);
    accepts(&[before, died, read(10, 2)]);
    accepts(&[before, died, read(10, 1), read(20, 2)]);
    rejects(&[before, died, read(10, 1), read(20, 2), read(30, 1)]);
    rejects(&[before, record(1, (5, 0), set(2), None), read(2, 2)]);
    // Of its pipeline, only a beginning.
    let later = record(1, (3, 0), set(3), None);
    accepts(&[before, died, later, read(10, 2), read(20, 3)]);
    accepts(&[before, died, later, read(10, 3)]);
    rejects(&[before, died, later, read(10, 3), read(20, 2)]);
}

/// A write without a reply is still before what its connection does next.
#[test]
fn a_quiet_write_that_was_dropped_is_noticed() {
    let quiet = record(0, (0, 0), set(1), None);
    accepts(&[quiet, record(0, (1, 2), Ask::Get, value(1))]);
    rejects(&[quiet, record(0, (1, 2), Ask::Get, Answer::Value(None))]);
    accepts(&[quiet, record(1, (1, 2), Ask::Get, Answer::Value(None))]);
    // It does not hide that what follows it has ended.
    let after = record(0, (1, 2), set(2), Answer::Done);
    rejects(&[quiet, after, record(1, (3, 4), Ask::Get, Answer::Value(None))]);
}

#[test]
fn a_swap_against_an_old_version_is_noticed() {
    let swap = Ask::CompareAndSwap { version: 9, value: number(3) };
    let mut history = vec![
        record(0, (0, 1), set(1), Answer::Done),
        record(1, (2, 3), Ask::Gets, Answer::Versioned(Some((number(1), 9)))),
        record(0, (4, 5), set(2), Answer::Done),
        record(1, (6, 7), swap, Answer::Swap(Swap::Stored)),
    ];
    rejects(&history);
    history[3].answer = Some(Answer::Swap(Swap::Changed));
    accepts(&history);
    // One version, two values: the server named one state's version for another.
    let reused = record(1, (8, 9), Ask::Gets, Answer::Versioned(Some((number(1), 10))));
    rejects(&[history[0], history[1], reused]);
    // Two swaps against one version, both stored.
    let again = record(2, (4, 8), swap, Answer::Swap(Swap::Stored));
    rejects(&[history[0], history[1], again, record(1, (4, 8), swap, again.answer)]);
    accepts(&[history[0], history[1], again]);
}

#[test]
fn what_was_there_before_is_part_of_the_answer() {
    let first = record(0, (0, 1), Ask::Add(number(1)), Answer::Stored(true));
    let exchange = |old| record(1, (2, 3), Ask::Exchange(number(2)), Answer::Value(old));
    accepts(&[first, exchange(Some(number(1)))]);
    rejects(&[first, exchange(None)]);
    let take = record(0, (4, 5), Ask::Take, value(2));
    accepts(&[first, exchange(Some(number(1))), take]);
    rejects(&[first, take]);
    let add_again = record(2, (6, 7), Ask::Add(number(3)), Answer::Stored(false));
    rejects(&[first, exchange(Some(number(1))), take, add_again]);
    accepts(&[first, add_again]);
}

#[test]
fn numbers_and_texts_are_told_apart() {
    let text = record(0, (0, 1), Ask::Set(Value::of(b"abc")), Answer::Done);
    accepts(&[text, record(0, (2, 3), Ask::Increment, Answer::NotANumber)]);
    rejects(&[text, record(0, (2, 3), Ask::Increment, sum(1))]);
    accepts(&[record(0, (2, 3), Ask::IncrementExisting, Answer::Sum(None))]);
    accepts(&[record(0, (2, 3), Ask::AppendExisting(number(1)), Answer::Stored(false))]);
}

/// Eight connections that all write at once are judged in no time.
#[test]
fn many_at_once_are_judged() {
    let mut history = Vec::new();
    for connection in 0..8 {
        for turn in 0..8 {
            let answer = Answer::Length(1 + turn * 8 + connection as u64);
            history.push(record(connection, (turn, 100), Ask::Append(Value::of(b"x")), answer));
        }
    }
    accepts(&history);
    history[63].answer = Some(Answer::Length(63));
    rejects(&history);
}
