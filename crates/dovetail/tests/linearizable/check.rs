//! The linearizability checker: searches for one order of a key's requests that explains all
//! answers.
//!
//! ```text
//!  connection 0   [Set 1 ─────────]      [Get ▶ 2 ──]        ─▶ time
//!  connection 1        [Set 2 ──────────?                     its client died: perhaps never
//!                └ each step takes the next request of one connection (K10: in its order), if it
//!                  began before everything that is left has ended, and its answer is right
//! ```
//!
//! The search is Wing and Gong's with Lowe's memory: a state is a set of taken requests and the
//! value that they led to, and each state is visited once. Each connection's requests are taken in
//! order, so such a set is one number per connection.
//!
//! # Invariants
//! I1: a request without an answer may be left out, and then all later ones of its connection are
//!     left out too: the server reads what a connection sent in order.
//! I2: a read that the state explains is taken at once: it blocks no other request.
//!
//! # Limits
//! At worst the search is exponential in the number of connections with concurrent requests. After
//! [`STEPS_MAX`] steps it panics instead of giving a wrong verdict.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::linearizable::model::{Answer, Ask, Register};

/// No history of these tests has needed a thousandth of it.
const STEPS_MAX: usize = 50_000_000;

/// One request of one connection on one key.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub connection: usize,
    pub key: usize,
    pub ask: Ask,
    /// None: it is unknown, whether for want of a reply or because the client died.
    pub answer: Option<Answer>,
    pub start_tick: u64,
    /// `u64::MAX` without an answer.
    pub end_tick: u64,
}

/// Orders the starts and ends of all connections' requests.
#[derive(Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// What a history was like: one in which nothing met anything proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub request_count: usize,
    /// Requests that began while another connection's on the same key had not ended.
    pub overlap_count: usize,
    pub unanswered_count: usize,
}

/// The history of the first key that no order explains. Records of one connection stand in the
/// order in which it sent them.
pub fn check(records: &[Record]) -> Result<Found, String> {
    let mut keys: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
    for record in records {
        keys.entry(record.key).or_default().push(*record);
    }
    let mut found = Found::default();
    for (key, history) in keys {
        is_linearizable(&history).map_err(|reached| shown(key, &history, reached))?;
        found.request_count += history.len();
        found.overlap_count += overlap_count(&history);
        found.unanswered_count += history.iter().filter(|one| one.answer.is_none()).count();
    }
    Ok(found)
}

fn overlap_count(history: &[Record]) -> usize {
    let is_met = |one: &&Record| {
        history.iter().any(|other| {
            other.connection != one.connection
                && other.start_tick < one.start_tick
                && other.end_tick > one.start_tick
                && other.answer.is_some()
        })
    };
    history.iter().filter(is_met).count()
}

fn shown(key: usize, history: &[Record], reached: usize) -> String {
    use std::fmt::Write;
    let mut history = history.to_vec();
    history.sort_by_key(|record| record.start_tick);
    let mut text = format!(
        "key {key}: no order explains these {} requests, but at most {reached} of them\n",
        history.len()
    );
    for Record { connection, ask, answer, start_tick, end_tick, .. } in history {
        let line = match answer {
            Some(answer) => {
                format!("{start_tick:>8} to {end_tick:<8} {connection:>4}  {ask:?} ▶ {answer:?}")
            }
            None => format!("{start_tick:>8} to ?        {connection:>4}  {ask:?} ▶ ?"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

/// How many requests of each connection were taken, and what that led to.
type Place = (Vec<u32>, Register);

/// `Err`: how many requests the best order explains.
fn is_linearizable(history: &[Record]) -> Result<(), usize> {
    let mut connections: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
    for record in history {
        connections.entry(record.connection).or_default().push(*record);
    }
    let connections: Vec<Vec<Record>> = connections.into_values().collect();
    let mut waiting: Vec<Place> = vec![(vec![0; connections.len()], Register::default())];
    let mut seen: HashSet<Place> = HashSet::new();
    let mut reached = 0;
    while let Some((mut taken, mut register)) = waiting.pop() {
        take_reads(&connections, &mut taken, &mut register);
        if !seen.insert((taken.clone(), register)) {
            continue;
        }
        assert!(seen.len() < STEPS_MAX, "the history is too long to be judged");
        reached = reached.max(taken.iter().sum::<u32>() as usize);
        let mut left = taken.iter().zip(&connections).flat_map(|(at, list)| &list[*at as usize..]);
        if left.all(|one| one.answer.is_none()) {
            return Ok(());
        }
        for connection in 0..connections.len() {
            if let Some(next) = next_of(&connections, &taken, connection)
                && let Some(after) = register.step(next.ask, next.answer)
            {
                let mut taken = taken.clone();
                taken[connection] += 1;
                waiting.push((taken, after));
            }
        }
    }
    Err(reached)
}

/// The connection's next request, if everything that is left ended after it began.
fn next_of(connections: &[Vec<Record>], taken: &[u32], connection: usize) -> Option<Record> {
    let next = connections[connection].get(taken[connection] as usize)?;
    // A later request of a connection does not end before an answered earlier one, and one
    // without an answer hides nothing: what follows it is looked at too.
    let is_early_enough = connections.iter().zip(taken).all(|(list, at)| {
        let left = &list[*at as usize..];
        let first_answered = left.iter().find(|one| one.answer.is_some());
        first_answered.is_none_or(|one| one.end_tick > next.start_tick)
    });
    is_early_enough.then_some(*next)
}

/// I2.
fn take_reads(connections: &[Vec<Record>], taken: &mut [u32], register: &mut Register) {
    let mut has_any = true;
    while has_any {
        has_any = false;
        for connection in 0..connections.len() {
            while let Some(next) = next_of(connections, taken, connection)
                && Register::is_pure(next.ask)
                && register.step(next.ask, next.answer).is_some()
            {
                taken[connection] += 1;
                has_any = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
