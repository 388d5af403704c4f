//! The recorded requests and answers of the clients that are not judged yet.

use std::collections::BTreeMap;

use workload::linearizable::{Ask, Record};

/// The length of the windows in which answers are counted.
pub const WINDOW_NS: u64 = 10_000_000;

/// A read of a pair that returned two different numbers.
#[derive(Clone, Debug)]
pub struct Half {
    /// The first key of the pair.
    pub key: usize,
    /// The values of both keys.
    pub seen: [Option<i64>; 2],
    /// The time of the answer.
    pub end_ns: u64,
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct History {
    /// The requests that were or may have been executed.
    pub records: Vec<Record>,
    /// Reads that returned half of a write.
    pub halves: Vec<Half>,
    /// Requests answered in each window.
    pub windows: Vec<u32>,
    /// The times of further answers, which no window counts yet.
    answered_ns: Vec<u64>,
    /// The number of answers by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// Other messages, and their number.
    pub refusals: BTreeMap<String, u64>,
    /// Answers that no order explains: values that no client wrote.
    pub complaints: Vec<String>,
    /// Requests whose outcome is unknown.
    pub unknown: u64,
}

impl History {
    /// Adds another history.
    pub fn take(&mut self, other: &mut History) {
        self.records.append(&mut other.records);
        self.halves.append(&mut other.halves);
        self.complaints.append(&mut other.complaints);
        self.unknown += std::mem::take(&mut other.unknown);
        for end_ns in other.answered_ns.drain(..) {
            let window = (end_ns / WINDOW_NS) as usize;
            if self.windows.len() <= window {
                self.windows.resize(window + 1, 0);
            }
            self.windows[window] += 1;
        }
        for (kind, count) in std::mem::take(&mut other.counts) {
            *self.counts.entry(kind).or_default() += count;
        }
        for (line, count) in std::mem::take(&mut other.refusals) {
            *self.refusals.entry(line).or_default() += count;
        }
    }

    /// The number of all answers.
    pub fn answered(&self) -> u64 {
        self.counts.values().sum()
    }

    /// An answer.
    pub fn count(&mut self, kind: &'static str, end_ns: u64) {
        *self.counts.entry(kind).or_default() += 1;
        self.answered_ns.push(end_ns);
    }

    /// The message without the parts that vary.
    pub fn note(&mut self, line: &str) {
        let line = match line.split_once(' ') {
            Some(("MOVED", _)) => "MOVED, again and again",
            _ => line,
        };
        *self.refusals.entry(line.to_owned()).or_default() += 1;
    }

    /// Whether the half of a pair comes from an unanswered request.
    pub fn is_of_unknown(half: &Half, records: &[Record]) -> bool {
        records.iter().any(|record| {
            record.key & !1 == half.key
                && record.answer.is_none()
                && record.ask != Ask::Get
                && record.start_ns < half.end_ns
        })
    }
}
