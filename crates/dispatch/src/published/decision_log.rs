//! The decision log: recent decisions and their reasons.
//!
//! ```text
//!  [ id 41 | id 42 | id 97, 512 times | ... | id 296 ]    by when each happened last;
//!                                                         the oldest goes when a new one comes
//! ```
//!
//! A swinging load repeats the same decisions, and would push everything else out within the hour.
//! So decisions of one shape (which controller decided, and the words without their numbers) have
//! at most [`ALIKE_MAX`] entries: from then on the last of them counts the repetitions and shows
//! the latest. There are only as many shapes as controllers have words, so the log keeps decisions
//! that happened once.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::UnixMillis;
use host::process::unix_now;
use serde_json::{Map, Value, json};

use crate::controller::Decision;

/// The number of decisions that are kept.
pub const ENTRIES_MAX: usize = 256;

/// Entries for decisions that differ in their numbers only, at most.
const ALIKE_MAX: usize = 3;

/// Time between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// A decision and its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its number, from 1.
    pub id: u64,
    /// Wall-clock time; of the latest, if it happened several times.
    pub at: UnixMillis,
    /// When it happened first.
    pub first_at: UnixMillis,
    /// How often it happened.
    pub count: u64,
    /// The controller that decided.
    pub controller: &'static str,
    /// The decision and its reason; the latest, if it happened several times.
    pub decision: Decision,
    shape: u64,
}

/// The last [`ENTRIES_MAX`] decisions. Only the manager adds; any thread may read.
#[derive(Debug, Default)]
pub struct DecisionLog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    /// By [`Decision::what`].
    counts: BTreeMap<&'static str, u64>,
    total: u64,
    logged_at: Option<Instant>,
    unlogged_count: u64,
}

impl DecisionLog {
    /// Keeps a decision, and logs it unless another was logged just before.
    pub fn add(&self, controller: &'static str, decision: Decision) {
        self.add_at(controller, decision, unix_now());
    }

    fn add_at(&self, controller: &'static str, decision: Decision, at: UnixMillis) {
        let line = format!("{}: {}", decision.change, decision.reason);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.total += 1;
        for what in decision.what.iter().copied() {
            *inner.counts.entry(what).or_default() += 1;
        }
        inner.keep(controller, decision, at);
        let is_due = inner.logged_at.is_none_or(|at| at.elapsed() >= LOG_EVERY);
        if !is_due {
            inner.unlogged_count += 1;
            return;
        }
        inner.logged_at = Some(Instant::now());
        let unlogged_count = std::mem::take(&mut inner.unlogged_count);
        drop(inner);
        tracing::info!(controller, unlogged_count, "{line}");
    }

    /// The entries by when each happened last, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.entries.iter().cloned().collect()
    }

    /// How often each thing was changed since the start.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }
}

impl Inner {
    /// Keeps it as an entry of its own, or counts it with an entry like it.
    fn keep(&mut self, controller: &'static str, decision: Decision, at: UnixMillis) {
        let shape = shape_of(controller, &decision);
        let is_alike = |entry: &Entry| entry.shape == shape;
        let alike_count = self.entries.iter().filter(|entry| is_alike(entry)).count();
        let last = self.entries.iter().rposition(is_alike);
        let counting = last.filter(|_| alike_count >= ALIKE_MAX);
        let entry = match counting.and_then(|place| self.entries.remove(place)) {
            Some(before) => Entry { at, count: before.count + 1, decision, ..before },
            None => {
                Entry { id: self.total, at, first_at: at, count: 1, controller, decision, shape }
            }
        };
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}

/// A hash of a decision without its numbers.
fn shape_of(controller: &str, decision: &Decision) -> u64 {
    let mut hasher = DefaultHasher::new();
    (controller, &decision.what).hash(&mut hasher);
    for text in [&decision.change, &decision.reason] {
        let mut was_number = false;
        for letter in text.chars() {
            let is_number = letter.is_ascii_digit() || (was_number && letter == '.');
            if !(is_number && was_number) {
                if is_number { '#' } else { letter }.hash(&mut hasher);
            }
            was_number = is_number;
        }
    }
    hasher.finish()
}

impl Entry {
    /// As `/stats` shows it.
    pub fn json(&self) -> Value {
        let inputs = self.decision.inputs.iter();
        let inputs: Map<_, _> =
            inputs.map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "id": self.id,
            "at_ms": self.at.0,
            "first_at_ms": self.first_at.0,
            "count": self.count,
            "controller": self.controller,
            "what": self.decision.what,
            "change": self.decision.change,
            "reason": self.decision.reason,
            "inputs": inputs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(number: u64) -> Decision {
        Decision {
            what: vec![if number.is_multiple_of(2) { "even" } else { "odd" }],
            // Each has words of its own.
            change: "x".repeat(number as usize),
            reason: "it was time".to_owned(),
            inputs: vec![("number_ratio", number as f64)],
        }
    }

    #[test]
    fn the_oldest_decisions_make_room_and_all_are_counted() {
        let decision_log = DecisionLog::default();
        for number in 1..=ENTRIES_MAX as u64 + 3 {
            decision_log.add("test", decision(number));
        }
        let entries = decision_log.entries();
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!((entries[0].id, entries[ENTRIES_MAX - 1].id), (4, ENTRIES_MAX as u64 + 3));
        assert_eq!(decision_log.counts().values().sum::<u64>(), ENTRIES_MAX as u64 + 3);
    }

    #[test]
    fn decisions_that_differ_in_numbers_only_share_an_entry_from_the_third_on() {
        let decision_log = DecisionLog::default();
        decision_log.add_at("test", decision(5), UnixMillis(1));
        for at in 2..=1000 {
            let what = vec!["threads"];
            let change = format!("from {at} to {}.5", at + 7);
            let swing = Decision { what, change, reason: "r".to_owned(), inputs: Vec::new() };
            decision_log.add_at("test", swing.clone(), UnixMillis(at));
            decision_log.add_at("other", Decision { what: Vec::new(), ..swing }, UnixMillis(at));
        }
        let entries = decision_log.entries();
        assert_eq!(entries.len(), 7, "one that came once, and three of each that came often");
        assert_eq!(entries[0].decision, decision(5));
        let last = &entries[6];
        assert_eq!(
            (last.controller, last.count, last.first_at.0, last.at.0),
            ("other", 997, 4, 1000)
        );
        assert_eq!(last.decision.change, "from 1000 to 1007.5");
        assert_eq!(decision_log.counts()["threads"], 999, "each is counted");
        let json = last.json();
        assert_eq!((&json["count"], &json["first_at_ms"]), (&json!(997), &json!(4)));
    }

    #[test]
    fn an_entry_tells_everything() {
        let decision_log = DecisionLog::default();
        decision_log.add("test", decision(7));
        let json = decision_log.entries()[0].json();
        assert_eq!(
            (&json["controller"], &json["what"], &json["change"], &json["inputs"]["number_ratio"]),
            (&json!("test"), &json!(["odd"]), &json!("xxxxxxx"), &json!(7.0)),
        );
        assert!(json["at_ms"].as_u64().unwrap() > 0);
    }
}
