//! Kills all servers of a cluster that writes to disks at once, again and again: measures the time
//! until all shards are served, and checks that every acknowledged write is there.
//!
//! ```text
//!  write all keys ─▶ write them anew ─ kill -9 of all, in the middle ─▶ start all
//!    ─▶ a write of each shard is acknowledged: the time since the kill
//!    ─▶ read all keys: what was acknowledged last, or what was sent after that
//! ```
//!
//! # Invariants
//! A1: the writer of a key knows the last number that was acknowledged and the last that was sent:
//!     any number found lies between the two.
//! A2: a round begins with a whole cluster.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::crew::Crew;
use super::dice::Dice;
use super::failover::Polled;
use super::pipe::Pipe;
use super::place::Spot;
use super::resp::{Reply, slot_of};
use super::{Args, whole};

/// The time limit after the kill until all shards are served.
const SERVED_LIMIT: Duration = Duration::from_secs(15);
/// The time limit for writing or reading all keys, on a busy machine.
const KEYS_TIME_MAX: Duration = Duration::from_secs(180);
/// The number of requests in one pipeline.
const BATCH: usize = 256;
/// Pause between two attempts while a shard is not served.
const PAUSE: Duration = Duration::from_millis(10);
/// Most wrong keys to print.
const TOLD_MAX: usize = 5;

/// The keys of one writer, and their known numbers (A1).
struct Part {
    first: usize,
    told: Vec<u64>,
    sent: Vec<u64>,
    pipe: Pipe,
}

/// Kills all servers `rounds` times; returns true if each round kept the limit and every key.
pub fn run(crew: &mut Crew, rounds: usize, args: &Args, seed: u64) -> Result<bool> {
    ensure!(crew.plan().is_durable, "--kill-all: give --durability fsync, or nothing survives");
    let (mut dice, mut seconds, mut is_good) = (Dice::new(seed), Vec::new(), true);
    let mut parts = divide(crew, args.keys, args.clients as usize);
    for round in 1..=rounds {
        let number = 2 * round as u64;
        let began = Instant::now();
        let all = AtomicUsize::new(0);
        write(&mut parts, number - 1, &all, || args.keys);
        ensure!(all.into_inner() >= args.keys, "not all keys are written after {KEYS_TIME_MAX:?}");
        let written = began.elapsed().as_secs_f64();
        let (at, again) = (dice.below(args.keys as u64) as usize, AtomicUsize::new(0));
        let mut killed = Ok(Instant::now());
        write(&mut parts, number, &again, || {
            until(KEYS_TIME_MAX, || again.load(Ordering::Relaxed) >= at);
            killed = kill(crew);
            0
        });
        let killed = killed?;
        (0..crew.plan().servers).try_for_each(|index| crew.start_one(Spot::Server(index)))?;
        let served = Polled::start(crew).wait(Instant::now()).map(|at| at - killed);
        let wrong = match &served {
            Ok(_) => check(&mut parts),
            Err(_) => 0,
        };
        let served = served.inspect_err(|_| crew.keep_evidence())?;
        println!(
            "round {round}/{rounds}: {} keys written in {written:.1} s, {} of them again; all {} \
             shards served {:.2} s after the kill; {wrong} keys are wrong",
            args.keys,
            again.load(Ordering::Relaxed),
            crew.plan().shards,
            served.as_secs_f64(),
        );
        seconds.push(served.as_secs_f64());
        is_good &= served <= SERVED_LIMIT && wrong == 0;
        whole::wait(crew)?; // A2
    }
    seconds.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (seconds.first(), seconds.last()) {
        let median = seconds[seconds.len() / 2];
        println!("{rounds} rounds: least {least:.2} s, median {median:.2} s, most {most:.2} s");
    }
    if !is_good {
        crew.keep_evidence();
        println!("FAILED: a shard took more than {SERVED_LIMIT:?}, or a key is wrong");
    }
    Ok(is_good)
}

/// Equal parts of the keys, one a writer.
fn divide(crew: &Crew, keys: usize, writers: usize) -> Vec<Part> {
    let (addresses, len) = (crew.addresses().resp, keys.div_ceil(writers.max(1)).max(1));
    let part = |first: usize| {
        let count = len.min(keys - first);
        let pipe = Pipe::new(&addresses);
        Part { first, told: vec![0; count], sent: vec![0; count], pipe }
    };
    (0..keys).step_by(len).map(part).collect()
}

/// All writers write the number to their keys until the acknowledgements reach the count that
/// `enough` returns.
fn write(
    parts: &mut [Part],
    number: u64,
    acknowledged: &AtomicUsize,
    enough: impl FnOnce() -> usize,
) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for part in parts {
            let is_over = &is_over;
            scope.spawn(move || part.write(number, acknowledged, is_over));
        }
        let enough = enough();
        until(KEYS_TIME_MAX, || acknowledged.load(Ordering::Relaxed) >= enough);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Waits for the process, but no longer than this.
fn until(limit: Duration, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Like a power cut: all processes get the signal before any is waited for. Returns the time.
fn kill(crew: &mut Crew) -> Result<Instant> {
    let servers: Vec<Spot> = (0..crew.plan().servers).map(Spot::Server).collect();
    let killed = Instant::now();
    servers.iter().try_for_each(|spot| crew.signal(*spot, "KILL"))?;
    servers.iter().try_for_each(|spot| crew.end(*spot, "KILL"))?;
    Ok(killed)
}

/// Reads all keys; returns the number of wrong ones (A1).
fn check(parts: &mut [Part]) -> usize {
    std::thread::scope(|scope| {
        let readers: Vec<_> = parts.iter_mut().map(|part| scope.spawn(|| part.check())).collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(1)).sum()
    })
}

impl Part {
    fn key(&self, index: usize) -> String {
        format!("key:{}", self.first + index)
    }

    fn write(&mut self, number: u64, acknowledged: &AtomicUsize, is_over: &AtomicBool) {
        let mut left: Vec<usize> = (0..self.told.len()).rev().collect();
        while !left.is_empty() && !is_over.load(Ordering::Relaxed) {
            let batch = left.split_off(left.len().saturating_sub(BATCH));
            let value = format!("{number:064}");
            let requests = batch.iter().map(|index| {
                let key = self.key(*index);
                (slot_of(&key), format!("SET {key} {value}\r\n"))
            });
            let requests: Vec<_> = requests.collect();
            batch.iter().for_each(|index| self.sent[*index] = number);
            let mut done = 0;
            for (index, reply) in batch.into_iter().zip(self.pipe.ask(&requests)) {
                match reply {
                    Some(Reply::Simple(_)) => {
                        self.told[index] = number;
                        done += 1;
                    }
                    _ => left.push(index),
                }
            }
            acknowledged.fetch_add(done, Ordering::Relaxed);
            if done == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Reads each key until it is answered; returns the number of wrong or never answered ones.
    fn check(&mut self) -> usize {
        let (began, mut wrong) = (Instant::now(), 0);
        let mut left: Vec<usize> = (0..self.told.len()).rev().collect();
        while !left.is_empty() && began.elapsed() < KEYS_TIME_MAX {
            let batch = left.split_off(left.len().saturating_sub(BATCH));
            let requests = batch.iter().map(|index| {
                let key = self.key(*index);
                (slot_of(&key), format!("GET {key}\r\n"))
            });
            let requests: Vec<_> = requests.collect();
            let before = left.len() + batch.len();
            for (index, reply) in batch.into_iter().zip(self.pipe.ask(&requests)) {
                match reply {
                    Some(Reply::Bulk(value)) => wrong += self.judge(index, value, wrong),
                    _ => left.push(index),
                }
            }
            if left.len() == before {
                std::thread::sleep(PAUSE);
            }
        }
        wrong + left.len()
    }

    /// Returns 1 if the number is wrong. The number found counts from now on.
    fn judge(&mut self, index: usize, value: Option<Vec<u8>>, wrong: usize) -> usize {
        let text = value.and_then(|bytes| String::from_utf8(bytes).ok());
        let found = text.and_then(|text| text.parse().ok()).unwrap_or(0);
        let (told, sent) = (self.told[index], self.sent[index]);
        (self.told[index], self.sent[index]) = (found, found);
        if (told..=sent).contains(&found) {
            return 0;
        }
        if wrong < TOLD_MAX {
            println!("{} has {found}, and {told} was acknowledged, {sent} sent", self.key(index));
        }
        1
    }
}
