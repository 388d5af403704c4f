//! The journal: what was decided lately, and why.
//!
//! ```text
//!  [ id 41 | id 42 | ... | id 296 ]    the oldest goes when a new one comes
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::UnixMillis;
use serde_json::{Map, Value, json};

use super::Decision;
use crate::shared::unix_now;

/// Decisions that are kept.
pub const ENTRIES_MAX: usize = 256;

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// A decision with its place in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Counts from 1.
    pub id: u64,
    /// Wall-clock time.
    pub at: UnixMillis,
    /// Who decided.
    pub controller: &'static str,
    /// What, and why.
    pub decision: Decision,
}

/// The last [`ENTRIES_MAX`] decisions. Only the manager adds; anybody may look.
#[derive(Debug, Default)]
pub struct Journal {
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

impl Journal {
    /// Keeps a decision, and says it in the log unless another was said just before.
    pub fn add(&self, controller: &'static str, decision: Decision) {
        let line = format!("{}: {}", decision.change, decision.reason);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.total += 1;
        for what in decision.what.iter().copied() {
            *inner.counts.entry(what).or_default() += 1;
        }
        let entry = Entry { id: inner.total, at: unix_now(), controller, decision };
        if inner.entries.len() == ENTRIES_MAX {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
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

    /// Oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.entries.iter().cloned().collect()
    }

    /// How often each thing was changed since the start.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }
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
            change: format!("{number}"),
            reason: "it was time".to_owned(),
            inputs: vec![("number_ratio", number as f64)],
        }
    }

    #[test]
    fn the_oldest_decisions_make_room_and_all_are_counted() {
        let journal = Journal::default();
        for number in 1..=ENTRIES_MAX as u64 + 3 {
            journal.add("test", decision(number));
        }
        let entries = journal.entries();
        assert_eq!(entries.len(), ENTRIES_MAX);
        assert_eq!((entries[0].id, entries[ENTRIES_MAX - 1].id), (4, ENTRIES_MAX as u64 + 3));
        assert_eq!(journal.counts().values().sum::<u64>(), ENTRIES_MAX as u64 + 3);
    }

    #[test]
    fn an_entry_tells_everything() {
        let journal = Journal::default();
        journal.add("test", decision(7));
        let json = journal.entries()[0].json();
        assert_eq!(
            (&json["controller"], &json["what"], &json["change"], &json["inputs"]["number_ratio"]),
            (&json!("test"), &json!(["odd"]), &json!("7"), &json!(7.0)),
        );
        assert!(json["at_ms"].as_u64().unwrap() > 0);
    }
}
