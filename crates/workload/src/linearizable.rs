//! The judge of histories: searches for one order of a key's requests that explains all answers.
//!
//! ```text
//!  client 0   [Put 1 ─────────]      [Get ▶ 2 ──]          ─▶ time
//!  client 1        [Put 2 ───────────────────────────────? no answer: whenever, or never
//! ```
//!
//! The search is Wing and Gong's with Lowe's memory: a state is a set of taken requests and the
//! value that they led to, and each state is visited once. A request can be taken next if it began
//! before every remaining request ended, and if its answer is right.
//!
//! # Limits
//! The search is exponential at worst: after `STEPS_MAX` sets the verdict is "unknown", which is
//! counted and is not a pass.

use std::collections::{BTreeMap, HashSet};

/// The limit of states; no history of a simulated cluster has needed a tenth of it.
const STEPS_MAX: usize = 2_000_000;

/// A request, with the numbers that values stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Reads the value.
    Get,
    /// Writes the value.
    Put(i64),
    /// Removes the key.
    Delete,
    /// Adds to the value.
    Increment(i64),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer to a get.
    Value(Option<i64>),
    /// The answer to a put, or to a delete of all keys.
    Done,
    /// The answer to a delete.
    Deleted(bool),
    /// The answer to an increment.
    Sum(i64),
    /// The answer to an increment without a number to add to; nothing was created.
    NotThere,
    /// The answer to a put with the condition that this was the value before.
    Swapped(i64),
    /// The answer to a delete that no client sent: this value, if it was still there, was to end by
    /// then.
    Expired(i64),
}

/// One request of one client.
#[derive(Clone, Debug)]
pub struct Record {
    /// The client.
    pub client: u64,
    /// The key.
    pub key: usize,
    /// The request.
    pub ask: Ask,
    /// The answer; `None`: it is unknown whether the request was, or will be, executed.
    pub answer: Option<Answer>,
    /// When it was first sent.
    pub start_ns: u64,
    /// When it was answered; `u64::MAX` if it never was.
    pub end_ns: u64,
}

/// The verdict of the checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order was found for every key.
    Linearizable,
    /// No order explains this key's requests, which are listed.
    Broken {
        /// The key.
        key: usize,
        /// All its requests.
        history: String,
    },
    /// The search was given up.
    Unknown,
}

/// Judges all keys.
pub fn check(records: &[Record]) -> Verdict {
    let mut keys: BTreeMap<usize, Vec<&Record>> = BTreeMap::new();
    for record in records {
        // A get without an answer says nothing.
        if record.answer.is_some() || record.ask != Ask::Get {
            keys.entry(record.key).or_default().push(record);
        }
    }
    let mut verdict = Verdict::Linearizable;
    for (key, mut history) in keys {
        history.sort_by_key(|record| record.start_ns);
        match search(&history) {
            Some(true) => {}
            Some(false) => return Verdict::Broken { key, history: show(&history) },
            None => verdict = Verdict::Unknown,
        }
    }
    verdict
}

/// The value after a request, if its answer fits.
fn step(value: Option<i64>, record: &Record) -> Option<Option<i64>> {
    match (record.ask, record.answer) {
        (Ask::Increment(_), Some(Answer::NotThere)) => return value.is_none().then_some(None),
        (Ask::Put(new), Some(Answer::Swapped(old))) => {
            return (value == Some(old)).then_some(Some(new));
        }
        // This is for all keys at once: the answer does not say which were there.
        (Ask::Delete, Some(Answer::Done)) => return Some(None),
        (Ask::Delete, Some(Answer::Expired(old))) => {
            return Some(value.filter(|value| *value != old));
        }
        _ => {}
    }
    let (next, answer) = match record.ask {
        Ask::Get => (value, Answer::Value(value)),
        Ask::Put(new) => (Some(new), Answer::Done),
        Ask::Delete => (None, Answer::Deleted(value.is_some())),
        Ask::Increment(by) => {
            let sum = value.unwrap_or(0) + by;
            (Some(sum), Answer::Sum(sum))
        }
    };
    record.answer.is_none_or(|given| given == answer).then_some(next)
}

/// The set of taken requests: all before `floor`, and those of the bits from there on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Taken {
    bits: Vec<u64>,
}

impl Taken {
    fn has(&self, index: usize) -> bool {
        self.bits[index / 64] >> (index % 64) & 1 == 1
    }

    fn with(&self, index: usize) -> Taken {
        let mut bits = self.bits.clone();
        bits[index / 64] |= 1 << (index % 64);
        Taken { bits }
    }
}

/// `None`: given up.
fn search(history: &[&Record]) -> Option<bool> {
    let none = Taken { bits: vec![0; history.len().div_ceil(64)] };
    let mut waiting = vec![(none, None)];
    let mut seen: HashSet<(Taken, Option<i64>)> = HashSet::new();
    while let Some((taken, value)) = waiting.pop() {
        if !seen.insert((taken.clone(), value)) {
            continue;
        }
        if seen.len() > STEPS_MAX {
            return None;
        }
        let left = || (0..history.len()).filter(|index| !taken.has(*index));
        let Some(first_end_ns) = left()
            .filter(|index| history[*index].answer.is_some())
            .map(|index| history[index].end_ns)
            .min()
        else {
            return Some(true);
        };
        let next = left().take_while(|index| history[*index].start_ns <= first_end_ns);
        let steps = next.filter_map(|index| Some((index, step(value, history[index])?)));
        let mut steps: Vec<_> = steps.collect();
        // A read that fits blocks no other step.
        if let Some(read) = steps.iter().find(|(index, _)| history[*index].ask == Ask::Get) {
            steps = vec![*read];
        }
        // The request that ends first is tried first.
        steps.sort_by_key(|(index, _)| std::cmp::Reverse(history[*index].end_ns));
        waiting.extend(steps.into_iter().map(|(index, value)| (taken.with(index), value)));
    }
    Some(false)
}

fn show(history: &[&Record]) -> String {
    let line = |record: &&Record| {
        let Record { client, ask, answer, start_ns, end_ns, .. } = record;
        let end = if *end_ns == u64::MAX { "?".to_owned() } else { end_ns.to_string() };
        match answer {
            Some(answer) => format!("{start_ns:>11} {end:>11} c{client} {ask:?} > {answer:?}\n"),
            None => format!("{start_ns:>11} {end:>11} c{client} {ask:?} > ?\n"),
        }
    };
    history.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(client: u64, ask: Ask, answer: Option<Answer>, start_ns: u64, end_ns: u64) -> Record {
        Record { client, key: 0, ask, answer, start_ns, end_ns }
    }

    #[track_caller]
    fn expect(is_good: bool, records: &[Record]) {
        let verdict = check(records);
        assert_eq!(verdict == Verdict::Linearizable, is_good, "{verdict:?}");
    }

    fn get(value: Option<i64>, start_ns: u64, end_ns: u64) -> Record {
        record(9, Ask::Get, Some(Answer::Value(value)), start_ns, end_ns)
    }

    fn put(value: i64, start_ns: u64, end_ns: u64) -> Record {
        let answer = (end_ns != u64::MAX).then_some(Answer::Done);
        record(1, Ask::Put(value), answer, start_ns, end_ns)
    }

    #[test]
    fn a_read_sees_the_last_write_that_ended() {
        expect(true, &[put(1, 0, 10), get(Some(1), 11, 12)]);
        expect(false, &[put(1, 0, 10), get(None, 11, 12)]);
        expect(true, &[put(1, 0, 10), get(None, 5, 12)]);
        expect(false, &[put(1, 0, 10), put(2, 11, 20), get(Some(1), 21, 22)]);
        expect(false, &[put(1, 0, 9), put(2, 1, 30), get(Some(2), 10, 11), get(Some(1), 12, 13)]);
    }

    #[test]
    fn a_write_without_an_answer_happens_whenever_or_never() {
        let lost = put(1, 0, u64::MAX);
        expect(true, &[lost.clone(), get(None, 5, 6), get(Some(1), 50, 60)]);
        expect(true, &[lost.clone(), get(None, 5, 6), get(None, 50, 60)]);
        expect(false, &[lost, get(Some(1), 5, 6), get(None, 50, 60)]);
    }

    #[test]
    fn what_is_demanded_of_the_value_before_holds() {
        let swap = record(1, Ask::Put(2), Some(Answer::Swapped(1)), 11, 20);
        expect(true, &[put(1, 0, 10), swap.clone(), get(Some(2), 21, 22)]);
        expect(false, &[put(3, 0, 10), swap]);
        let grow = record(1, Ask::Increment(1), Some(Answer::NotThere), 11, 20);
        expect(true, &[grow.clone(), put(1, 21, 30)]);
        expect(false, &[put(1, 0, 10), grow]);
    }

    #[test]
    fn what_expires_is_gone_in_time_and_nothing_else_is() {
        let end = record(1, Ask::Delete, Some(Answer::Expired(1)), 40, 50);
        expect(true, &[put(1, 0, 10), end.clone(), get(Some(1), 45, 46), get(None, 51, 52)]);
        expect(false, &[put(1, 0, 10), end.clone(), get(Some(1), 51, 52)]);
        expect(false, &[put(1, 0, 10), end.clone(), get(None, 20, 30)]);
        expect(true, &[put(1, 0, 10), put(2, 11, 12), end, get(Some(2), 51, 52)]);
    }

    #[test]
    fn a_number_is_added_once() {
        let add = |sum, start_ns, end_ns| {
            record(1, Ask::Increment(1), Some(Answer::Sum(sum)), start_ns, end_ns)
        };
        expect(true, &[add(1, 0, 10), add(2, 0, 10), get(Some(2), 11, 12)]);
        expect(false, &[add(1, 0, 10), add(3, 11, 20)]);
        let gone = record(1, Ask::Delete, Some(Answer::Deleted(true)), 11, 20);
        expect(true, &[add(1, 0, 10), gone.clone(), add(1, 21, 30)]);
        expect(false, &[gone, add(1, 21, 30)]);
    }
}
