//! The judge: checks an era once none of its requests is in flight, and keeps little of it.
//!
//! ```text
//!  era 0 ─ 12 s ─▶ 30 s later: every key is read, the era's history judged ─▶ kept: the last
//!  era 1 ─ 12 s ─▶ 30 s later: ...                                             values, and writes
//!                                            at the end: every key is read, the kept is judged
//! ```
//!
//! # Invariants
//! J1: the kept part of a key's history explains everything that may still be read of it: its last
//!     value, and each write whose outcome is unknown. Of values that expire nothing is kept.
//! J2: reads of an era that began before the final read of its keys are judged with it or not at
//!     all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use workload::linearizable::{self, Answer, Ask, Record, Verdict};

use super::history::{Half, History};
use super::keys::{self, Class, ERA, KEYS_PER_ERA};
use super::user::User;

/// The time limit of a request that follows redirections.
const SETTLED: Duration = Duration::from_secs(30);
/// The longest lifetime of an expiring value.
const LIFE_TIME_MAX: Duration = Duration::from_secs(3);
/// The time limit for reading all keys of an era.
const READING_TIME_MAX: Duration = Duration::from_secs(60);

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Eras that were judged.
    pub eras: usize,
    /// Requests that were judged.
    pub requests: usize,
    /// Eras with keys for which the search for an order was given up.
    pub undecided: usize,
    /// Halves seen of unanswered writes of pairs.
    pub halves: usize,
    /// Whether the cluster no longer answers.
    pub is_broken: bool,
    /// The histories that no order explains: a line, and the key's requests.
    pub violation: Option<(String, String)>,
}

/// See the module's page.
pub struct Judge {
    user: User,
    history: Arc<Mutex<History>>,
    findings: Arc<Mutex<Findings>>,
    /// The time when each judged era was read.
    read_ns: Vec<u64>,
    kept: Vec<Record>,
    started: Instant,
    /// Whether servers' logs may keep half of an unanswered write, because all servers may end
    /// between the two halves. Otherwise a pair lands as one frame.
    may_halve: bool,
}

impl Judge {
    /// The channel of the clients' records.
    pub fn new(
        user: User,
        history: Arc<Mutex<History>>,
        findings: Arc<Mutex<Findings>>,
        (started, may_halve): (Instant, bool),
    ) -> Judge {
        let (read_ns, kept) = (Vec::new(), Vec::new());
        Judge { user, history, findings, read_ns, kept, started, may_halve }
    }

    /// Judges era after era, and, once the clients have ended, the rest.
    pub fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let era = self.read_ns.len() as u32;
            if self.started.elapsed() > ERA * (era + 1) + SETTLED {
                self.judge_era();
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        // Expiring values are gone by then.
        std::thread::sleep(LIFE_TIME_MAX);
        let last = (self.started.elapsed().as_millis() / ERA.as_millis()) as usize;
        while self.read_ns.len() <= last {
            self.judge_era();
        }
        self.judge_kept(last + 1);
    }

    fn findings(&self) -> std::sync::MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reading_time_max(&self) -> Duration {
        if self.findings().is_broken { READING_TIME_MAX / 20 } else { READING_TIME_MAX }
    }

    /// Reads keys; at the end only those with a kept history.
    fn read(&mut self, keys: std::ops::Range<usize>, is_last: bool) {
        let deadline = Instant::now() + self.reading_time_max();
        let is_kept = |key: &usize| !is_last || keys::class(*key) != Class::Mortal;
        for key in keys.filter(is_kept) {
            while !self.user.ask(key, Ask::Get) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn judge_era(&mut self) {
        let era = self.read_ns.len();
        self.read(era * KEYS_PER_ERA..(era + 1) * KEYS_PER_ERA, false);
        let mut last = std::mem::take(&mut self.user.own.records);
        last.retain(|record| record.answer.is_some());
        let (mut records, halves) = self.taken(era);
        self.read_ns.push(self.started.elapsed().as_nanos() as u64);
        records.extend(last.iter().cloned());
        self.judge(&records);
        self.judge_halves(&halves, &records);
        self.keep(records, &last);
        self.forget_large(era);
        let mut findings = self.findings();
        findings.eras += 1;
    }

    /// Takes the records of an era; those of earlier ones are kept (J2).
    fn taken(&mut self, era: usize) -> (Vec<Record>, Vec<Half>) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.take(&mut self.user.own);
        let era_of = |key: usize| key / KEYS_PER_ERA;
        let own = history.records.extract_if(.., |record| era_of(record.key) == era).collect();
        let halves = history.halves.extract_if(.., |half| era_of(half.key) == era).collect();
        let read_ns = &self.read_ns;
        let late = history.records.extract_if(.., |record| era_of(record.key) < era);
        self.kept.extend(late.filter(|record| {
            let is_mortal = keys::class(record.key) == Class::Mortal;
            !is_mortal && record.start_ns > read_ns[era_of(record.key)]
        }));
        (own, halves)
    }

    fn judge(&self, records: &[Record]) {
        let verdict = linearizable::check(records);
        let mut findings = self.findings();
        findings.requests += records.len();
        match verdict {
            Verdict::Linearizable => {}
            Verdict::Unknown => findings.undecided += 1,
            Verdict::Broken { key, history } => {
                let line = format!("no order explains the answers of {}", keys::name(key));
                findings.violation.get_or_insert((line, history));
            }
        }
    }

    fn judge_halves(&self, halves: &[Half], records: &[Record]) {
        for half in halves {
            let mut findings = self.findings();
            if self.may_halve && History::is_of_unknown(half, records) {
                findings.halves += 1;
                continue;
            }
            let Half { key, seen: [one, other], end_ns } = half;
            let name = keys::name(*key);
            let line = format!("half of a write: {name} {one:?}, its other {other:?}, {end_ns} ns");
            let both = records.iter().filter(|record| record.key & !1 == half.key);
            let history = both.map(|record| format!("{record:?}\n")).collect();
            findings.violation.get_or_insert((line, history));
        }
    }

    /// The kept part: each key's last value, if it was read, and its unknown writes (J1).
    fn keep(&mut self, records: Vec<Record>, last: &[Record]) {
        let was_read: Vec<usize> = last.iter().map(|record| record.key).collect();
        let is_mortal = |record: &Record| keys::class(record.key) == Class::Mortal;
        self.kept.extend(records.into_iter().filter(|record| {
            let is_unknown = record.answer.is_none() && record.ask != Ask::Get;
            !is_mortal(record) && (is_unknown || !was_read.contains(&record.key))
        }));
        for record in last.iter().filter(|record| !is_mortal(record)) {
            if let Some(Answer::Value(Some(value))) = record.answer {
                let (ask, answer) = (Ask::Put(value), Some(Answer::Done));
                self.kept.push(Record { ask, answer, ..record.clone() });
            }
        }
    }

    /// Large values would fill the servers.
    fn forget_large(&mut self, era: usize) {
        let keys = era * KEYS_PER_ERA..(era + 1) * KEYS_PER_ERA;
        let deadline = Instant::now() + self.reading_time_max();
        for key in keys.filter(|key| keys::class(*key) == Class::Large) {
            while !self.user.ask(key, Ask::Delete) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.kept.append(&mut self.user.own.records);
    }

    fn judge_kept(&mut self, eras: usize) {
        self.read(0..eras * KEYS_PER_ERA, true);
        self.kept.append(&mut self.user.own.records);
        self.taken(eras);
        self.judge(&self.kept);
    }
}
