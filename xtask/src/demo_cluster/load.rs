//! Concurrent clients, and the record of what they asked and were answered.
//!
//! Keys are numbers of an era of a few seconds, so that no key's history grows beyond what can be
//! judged; one read of ten asks for a key of an earlier era.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use workload::linearizable::{Answer, Ask, Record};

use super::dice::Dice;
use super::resp::{Client, Reply, Told};

const KEYS_PER_ERA: u64 = 48;
const ERA: Duration = Duration::from_secs(12);
/// Between two requests of a client: histories must stay short enough to be judged.
const THINKING: Duration = Duration::from_micros(1500);
/// After a refusal.
const PAUSE: Duration = Duration::from_millis(5);

/// What the clients have recorded.
#[derive(Debug, Default)]
pub struct History {
    /// What was or may have been executed.
    pub records: Vec<Record>,
    /// Answered requests by when, since the start.
    pub answered_ns: Vec<u64>,
    /// What else was said, and how often.
    pub refusals: std::collections::BTreeMap<String, u64>,
    /// The highest key.
    keys: usize,
}

/// All clients.
pub struct Load {
    servers: Vec<String>,
    started: Instant,
    is_over: Arc<AtomicBool>,
    history: Arc<Mutex<History>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins; times count from `started`.
    pub fn start(servers: &[String], clients: u64, seed: u64, started: Instant) -> Load {
        let (is_over, history) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let mut load =
            Load { servers: servers.to_vec(), started, is_over, history, threads: vec![] };
        for index in 0..clients {
            let (servers, is_over) = (load.servers.clone(), Arc::clone(&load.is_over));
            let history = Arc::clone(&load.history);
            load.threads.push(std::thread::spawn(move || {
                let mut user = User::new(index, seed, &servers, started);
                while !is_over.load(Ordering::Relaxed) {
                    user.turn();
                    if user.own.records.len() >= 64 {
                        user.hand_over(&history);
                    }
                }
                user.hand_over(&history);
            }));
        }
        load
    }

    /// Answered so far.
    pub fn answered(&self) -> usize {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).answered_ns.len()
    }

    /// Ends the clients, reads every key once more, and gives the record.
    pub fn end(self) -> History {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                println!("a client panicked");
            }
        }
        let mut history =
            std::mem::take(&mut *self.history.lock().unwrap_or_else(PoisonError::into_inner));
        let mut user = User::new(u64::MAX, 0, &self.servers, self.started);
        let deadline = Instant::now() + Duration::from_secs(20);
        for key in 0..=history.keys {
            while !user.ask(key, Ask::Get) && Instant::now() < deadline {}
        }
        history.take(&mut user.own);
        history
    }
}

impl History {
    fn take(&mut self, other: &mut History) {
        self.records.append(&mut other.records);
        self.answered_ns.append(&mut other.answered_ns);
        self.keys = self.keys.max(other.keys);
        for (line, count) in std::mem::take(&mut other.refusals) {
            *self.refusals.entry(line).or_default() += count;
        }
    }
}

struct User {
    index: u64,
    dice: Dice,
    client: Client,
    started: Instant,
    asked: i64,
    own: History,
}

impl User {
    fn new(index: u64, seed: u64, servers: &[String], started: Instant) -> User {
        let dice = Dice::new(seed ^ index.wrapping_mul(0x9e37_79b9));
        let client = Client::new(servers, index as usize % servers.len());
        User { index, dice, client, started, asked: 0, own: History::default() }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn turn(&mut self) {
        let era = self.started.elapsed().as_millis() as u64 / ERA.as_millis() as u64;
        let key = era * KEYS_PER_ERA + self.dice.below(KEYS_PER_ERA);
        // Sums of different sequences stay apart.
        let number = (self.index as i64 + 1) * 1_000_000_000_000 + self.asked * 1000;
        self.asked += 1;
        let was_answered = match self.dice.below(100) {
            0..5 => self.ask(self.dice.clone().below(key + 1) as usize, Ask::Get),
            5..45 => self.ask(key as usize, Ask::Get),
            45..72 => self.ask(key as usize, Ask::Put(number)),
            72..90 => self.ask(key as usize, Ask::Increment(1)),
            _ => self.ask(key as usize, Ask::Delete),
        };
        std::thread::sleep(if was_answered { THINKING } else { PAUSE });
    }

    /// Whether it was answered.
    fn ask(&mut self, key: usize, ask: Ask) -> bool {
        let name = format!("key{key}");
        let start_ns = self.now_ns();
        let told = match ask {
            Ask::Get => self.client.ask(&["GET", &name]),
            Ask::Put(number) => self.client.ask(&["SET", &name, &number.to_string()]),
            Ask::Delete => self.client.ask(&["DEL", &name]),
            Ask::Increment(by) => self.client.ask(&["INCRBY", &name, &by.to_string()]),
        };
        let end_ns = self.now_ns();
        let answer = match told {
            Told::Reply(reply) => {
                self.own.answered_ns.push(end_ns);
                let answer = answer(ask, &reply);
                if answer.is_none() {
                    self.own.note(&format!("{ask:?} was answered by {reply:?}"));
                }
                answer
            }
            Told::Refused(line) => {
                self.own.note(&line);
                return false;
            }
            Told::Unknown(line) => {
                self.own.note(&line);
                None
            }
        };
        let end_ns = if answer.is_some() { end_ns } else { u64::MAX };
        self.own.keys = self.own.keys.max(key);
        self.own.records.push(Record { client: self.index, key, ask, answer, start_ns, end_ns });
        answer.is_some()
    }

    fn hand_over(&mut self, history: &Mutex<History>) {
        history.lock().unwrap_or_else(PoisonError::into_inner).take(&mut self.own);
    }
}

impl History {
    /// Without what differs from time to time.
    fn note(&mut self, line: &str) {
        let line = match line.split_once(' ') {
            Some(("MOVED", _)) => "MOVED, again and again",
            _ => line,
        };
        *self.refusals.entry(line.to_owned()).or_default() += 1;
    }
}

fn answer(ask: Ask, reply: &Reply) -> Option<Answer> {
    match (ask, reply) {
        (Ask::Get, Reply::Bulk(None)) => Some(Answer::Value(None)),
        (Ask::Get, Reply::Bulk(Some(bytes))) => {
            let number = std::str::from_utf8(bytes).ok()?.parse().ok()?;
            Some(Answer::Value(Some(number)))
        }
        (Ask::Put(_), Reply::Simple(_)) => Some(Answer::Done),
        (Ask::Delete, Reply::Integer(count)) => Some(Answer::Deleted(*count == 1)),
        (Ask::Increment(_), Reply::Integer(sum)) => Some(Answer::Sum(*sum)),
        _ => None,
    }
}
