//! One key as a sequential object, and the recorded history that is held against it.

use std::sync::atomic::{AtomicU64, Ordering};

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// What a thread asks of a key whose values are numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ask {
    Get,
    /// Get with the version (memcached's CAS token).
    Gets,
    Set(u64),
    Delete,
    /// Adds 1; an absent key becomes 1 (Redis).
    Increment,
    /// Adds 1; an absent key stays absent (memcached).
    IncrementExisting,
    /// Sets if the version is still this one.
    CompareAndSwap {
        version: u64,
        value: u64,
    },
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Value(Option<u64>),
    Versioned(Option<(u64, u64)>),
    Done,
    Existed(bool),
    Sum(Option<u64>),
    Swap(Swap),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Swap {
    Stored,
    Changed,
    Absent,
}

/// One key. Versions are the server's to choose, so the object learns the current one from the
/// first answer that names it; a version that was learnt of another state never matches.
#[derive(Clone, Debug, Default)]
pub struct Register {
    value: Option<u64>,
    version: Option<u64>,
}

impl Register {
    fn write(&mut self, value: Option<u64>) {
        *self = Register { value, version: None };
    }
}

impl SequentialSpec for Register {
    type Op = Ask;
    type Ret = Answer;

    /// The answer, with the version left open (`Gets` is judged by `is_valid_step`).
    fn invoke(&mut self, ask: &Ask) -> Answer {
        match *ask {
            Ask::Get => Answer::Value(self.value),
            Ask::Gets => Answer::Versioned(self.value.zip(self.version)),
            Ask::Set(value) => {
                self.write(Some(value));
                Answer::Done
            }
            Ask::Delete => {
                let existed = self.value.is_some();
                self.write(None);
                Answer::Existed(existed)
            }
            Ask::Increment => {
                self.write(Some(self.value.unwrap_or(0) + 1));
                Answer::Sum(self.value)
            }
            Ask::IncrementExisting => {
                if let Some(value) = self.value {
                    self.write(Some(value + 1));
                }
                Answer::Sum(self.value)
            }
            Ask::CompareAndSwap { version, value } => Answer::Swap(match self.value {
                None => Swap::Absent,
                Some(_) if self.version != Some(version) => Swap::Changed,
                Some(_) => {
                    self.write(Some(value));
                    Swap::Stored
                }
            }),
        }
    }

    fn is_valid_step(&mut self, ask: &Ask, answer: &Answer) -> bool {
        if let (Ask::Gets, Answer::Versioned(Some((value, version)))) = (ask, answer) {
            let is_same = self.version.is_none_or(|known| known == *version);
            self.version = Some(*version);
            return is_same && self.value == Some(*value);
        }
        self.invoke(ask) == *answer
    }
}

/// One operation of one thread on one key.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub thread: usize,
    pub key: usize,
    pub ask: Ask,
    pub answer: Answer,
    pub start_tick: u64,
    pub end_tick: u64,
}

/// Orders the starts and ends of all threads' operations.
#[derive(Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// Panics when no order of the operations on one key explains all answers.
#[track_caller]
pub fn check(records: &[Record]) {
    let mut keys: Vec<usize> = records.iter().map(|record| record.key).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let history: Vec<Record> =
            records.iter().filter(|record| record.key == key).copied().collect();
        assert!(is_linearizable(&history), "key {key}: no order explains {history:#?}");
    }
}

fn is_linearizable(history: &[Record]) -> bool {
    let starts = history.iter().map(|record| (record.start_tick, record, true));
    let ends = history.iter().map(|record| (record.end_tick, record, false));
    let mut events: Vec<(u64, &Record, bool)> = starts.chain(ends).collect();
    events.sort_unstable_by_key(|event| event.0);
    let mut tester = LinearizabilityTester::new(Register::default());
    for (_, record, is_start) in events {
        let taken = if is_start {
            tester.on_invoke(record.thread, record.ask)
        } else {
            tester.on_return(record.thread, record.answer)
        };
        taken.expect("a thread does one thing at a time");
    }
    tester.is_consistent()
}

fn record(thread: usize, ticks: (u64, u64), ask: Ask, answer: Answer) -> Record {
    Record { thread, key: 0, ask, answer, start_tick: ticks.0, end_tick: ticks.1 }
}

#[test]
fn a_lost_update_is_noticed() {
    let both_one = [
        record(0, (0, 2), Ask::Increment, Answer::Sum(Some(1))),
        record(1, (1, 3), Ask::Increment, Answer::Sum(Some(1))),
    ];
    assert!(!is_linearizable(&both_one));
    let in_turn = [both_one[0], record(1, (1, 3), Ask::Increment, Answer::Sum(Some(2)))];
    assert!(is_linearizable(&in_turn));
}

#[test]
fn a_read_of_what_was_overwritten_is_noticed() {
    let stale = [
        record(0, (0, 1), Ask::Set(1), Answer::Done),
        record(0, (2, 3), Ask::Set(2), Answer::Done),
        record(1, (4, 5), Ask::Get, Answer::Value(Some(1))),
    ];
    assert!(!is_linearizable(&stale));
    let overlapping = [stale[0], stale[1], Record { start_tick: 2, ..stale[2] }];
    assert!(!is_linearizable(&overlapping[1..]), "2 before any 1");
    assert!(is_linearizable(&[stale[0], stale[1], record(1, (1, 4), Ask::Get, stale[2].answer)]));
}

#[test]
fn a_swap_against_an_old_version_is_noticed() {
    let swap = Ask::CompareAndSwap { version: 9, value: 3 };
    let mut history = vec![
        record(0, (0, 1), Ask::Set(1), Answer::Done),
        record(1, (2, 3), Ask::Gets, Answer::Versioned(Some((1, 9)))),
        record(0, (4, 5), Ask::Set(2), Answer::Done),
        record(1, (6, 7), swap, Answer::Swap(Swap::Stored)),
    ];
    assert!(!is_linearizable(&history));
    history[3].answer = Answer::Swap(Swap::Changed);
    assert!(is_linearizable(&history));
    // One version, two values: the server named one state's version for another.
    let reused = record(1, (8, 9), Ask::Gets, Answer::Versioned(Some((1, 10))));
    assert!(!is_linearizable(&[history[0], history[1], reused]));
}
