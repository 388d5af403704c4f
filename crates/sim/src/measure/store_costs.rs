//! Measures the real store: GET and SET by item size, one at a time and in batches of 32.
//!
//! ```text
//!  open ─▶ touch all memory ─▶ for each size: empty, populate, { GET, SET } x { 1, 32 }
//!                                              call, call, ...: a sample = (call - clock) / batch
//! ```
//!
//! A GET copies its value into a buffer, as a server's reply does; a SET's value comes from one.
//! Keys are drawn uniformly from a data set that exceeds the first and second cache, so a small
//! item's row includes the misses on its bucket and its entry. The set has the same bytes at every
//! size: large items are few, and their buckets stay in the second cache. Keys are drawn before the
//! clock runs, and all memory is written once before the measurement, because the first touch of a
//! page costs far more than any SET.
//!
//! # Invariants
//! I1: a chunk of calls is discarded if the kernel gave the core to another thread meanwhile. A
//! table therefore needs no idle machine, only some undisturbed chunks.
//!
//! # Limits
//! In a virtual machine, time that the host takes away unseen shows in the upper classes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{KeyHash, UnixMillis};
use indicatif::ProgressBar;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{
    Condition, Eviction, Expiry, HugePages, Mode, NoUpdate, Op, Outcome, Pins, Request, Session,
    Set, Sink, Store, StoreConfig,
};

use crate::SimError;
use crate::measure::cost_table::{CostRow, Operation};

/// Which sizes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// From 8/8 to 8/1 MiB.
    All,
    /// Three of them, quickly: to see whether measuring works here.
    Few,
}

const KEY_BYTES: usize = 8;
const ALL_VALUE_BYTES: &[usize] =
    &[8, 64, 128, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const FEW_VALUE_BYTES: &[usize] = &[8, 4 << 10, 64 << 10];

/// How much is stored, and how long each row is timed.
#[derive(Clone, Copy)]
struct Effort {
    /// Key and value bytes in the store while one size is measured.
    data_bytes: usize,
    memory_bytes: u64,
    index_bytes: u64,
    /// With the core to itself.
    row_time: Duration,
}

impl Sizes {
    fn effort(self) -> Effort {
        match self {
            Sizes::All => Effort {
                data_bytes: 192 << 20,
                memory_bytes: 640 << 20,
                index_bytes: 64 << 20,
                row_time: Duration::from_millis(150),
            },
            Sizes::Few => Effort {
                data_bytes: 16 << 20,
                memory_bytes: 96 << 20,
                index_bytes: 16 << 20,
                row_time: Duration::from_millis(20),
            },
        }
    }
}

const ITEM_COUNT_MAX: usize = 1 << 20;
/// The time limit if the core was shared most of the time.
const ROW_TIME_MAX: Duration = Duration::from_millis(400);
/// The time between two reads of the kernel's accounts.
const CHUNK_TIME: Duration = Duration::from_millis(1);
const SEED: u64 = 0x5e41_11ce;

/// Measures all rows; advances `bar` by one for each.
pub fn measure(sizes: Sizes, bar: &ProgressBar) -> Result<Vec<CostRow>, SimError> {
    let value_lengths = match sizes {
        Sizes::All => ALL_VALUE_BYTES,
        Sizes::Few => FEW_VALUE_BYTES,
    };
    bar.set_length(value_lengths.len() as u64 * 4);
    let mut rows = Vec::new();
    bar.set_message("memory");
    let mut bench = Bench::open(sizes.effort())?;
    bench.touch_memory();
    for &value_bytes in value_lengths {
        bar.set_message(format!("items of {KEY_BYTES}/{value_bytes} bytes"));
        bench.populate(value_bytes);
        for access in [Operation::Get, Operation::Set] {
            for batch in [1, 32] {
                let classes = bench.time_row(access, batch).classes();
                rows.push(CostRow {
                    access,
                    batch: batch as u32,
                    key_bytes: KEY_BYTES as u32,
                    value_bytes: value_bytes as u32,
                    classes,
                });
                bar.inc(1);
            }
        }
    }
    Ok(rows)
}

/// A store with items of one size, and the requests that are made of it.
struct Bench {
    effort: Effort,
    store: Arc<Store>,
    session: Session,
    item_count: usize,
    value: Vec<u8>,
    reply: Reply,
    random: SmallRng,
}

/// Where GETs copy their values to.
struct Reply {
    buffer: Vec<u8>,
    used_bytes: usize,
}

impl Sink<NoUpdate> for Reply {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, NoUpdate>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            let room = &mut self.buffer[self.used_bytes..];
            let len_bytes = item.value.len().min(room.len());
            room[..len_bytes].copy_from_slice(&item.value[..len_bytes]);
            self.used_bytes += len_bytes;
        }
    }
}

const NOW: UnixMillis = UnixMillis(1_000_000);

impl Bench {
    fn open(effort: Effort) -> Result<Bench, SimError> {
        let failed = |reason: String| SimError::BadParameter {
            what: format!("the store to be measured cannot be opened: {reason}"),
        };
        let store = Store::open(StoreConfig {
            memory_bytes: effort.memory_bytes,
            index_bytes: effort.index_bytes,
            mode: Mode::Evict,
            eviction: Eviction::Fifo,
            index: store::IndexKind::Hash,
            lossy_index: false,
            session_max: 1,
            item_max_bytes: store::ITEM_MAX_BYTES,
            hash_seed: SEED,
            batch: 32,
            huge_pages: HugePages::Auto,
        })
        .map_err(|error| failed(error.to_string()))?;
        let session = store.session().map_err(|error| failed(error.to_string()))?;
        Ok(Bench {
            effort,
            store,
            session,
            item_count: 0,
            value: Vec::new(),
            reply: Reply { buffer: Vec::new(), used_bytes: 0 },
            random: SmallRng::seed_from_u64(SEED),
        })
    }

    /// Writes as many bytes as there are, and a little more.
    fn touch_memory(&mut self) {
        self.value = vec![0x5a; 64 << 10];
        let ids: Vec<u64> =
            (0..self.effort.memory_bytes * 5 / 4 / self.value.len() as u64).collect();
        for chunk in ids.chunks(32) {
            self.call(Operation::Set, &self.hashed(chunk));
        }
    }

    fn populate(&mut self, value_bytes: usize) {
        self.session.flush();
        self.item_count = (self.effort.data_bytes / (KEY_BYTES + value_bytes)).min(ITEM_COUNT_MAX);
        self.value = vec![0x5a; value_bytes];
        self.reply = Reply { buffer: vec![0x5a; value_bytes * 32], used_bytes: 0 };
        let ids: Vec<u64> = (0..self.item_count as u64).collect();
        for chunk in ids.chunks(32) {
            self.call(Operation::Set, &self.hashed(chunk));
        }
    }

    fn hashed(&self, ids: &[u64]) -> Vec<([u8; KEY_BYTES], KeyHash)> {
        let keys = ids.iter().map(|id| id.to_le_bytes());
        keys.map(|key| (key, self.store.key_hasher().hash(&key))).collect()
    }

    /// One call of the store, and how long it took.
    fn call(&mut self, access: Operation, keys: &[([u8; KEY_BYTES], KeyHash)]) -> Duration {
        let op = match access {
            Operation::Get => Op::Get,
            Operation::Set => Op::Set(Set {
                value: &self.value,
                client_flags: 0,
                expiry: Expiry::Never,
                condition: Condition::Always,
            }),
        };
        let requests: Vec<Request<'_, NoUpdate>> =
            keys.iter().map(|(key, hash)| Request { key, hash: *hash, op }).collect();
        self.reply.used_bytes = 0;
        let started = Instant::now();
        self.session.execute(NOW, black_box(&requests), &mut self.reply);
        let elapsed = started.elapsed();
        // Making room is not part of the measurement: a server does it between batches, when no
        // client waits.
        while self.session.wants_room() && self.session.maintain(NOW) {}
        elapsed
    }

    fn time_row(&mut self, access: Operation, batch: usize) -> Histogram {
        let clock_ns = clock_cost_ns();
        let mut kept = Histogram::default();
        let mut all = Histogram::default();
        let mut kept_time = Duration::ZERO;
        let started = Instant::now();
        while kept_time < self.effort.row_time && started.elapsed() < ROW_TIME_MAX {
            let chunk = self.time_chunk(access, batch, clock_ns);
            if chunk.is_whole {
                kept.merge(&chunk.histogram);
                kept_time += CHUNK_TIME;
            }
            all.merge(&chunk.histogram);
        }
        // Even if the core is never ours for a whole chunk, there is a table.
        if kept.is_empty() { all } else { kept }
    }

    fn time_chunk(&mut self, access: Operation, batch: usize, clock_ns: f64) -> Chunk {
        let mut histogram = Histogram::default();
        let waited_before = waited_for_core_ns();
        let started = Instant::now();
        while started.elapsed() < CHUNK_TIME {
            let ids: Vec<u64> =
                (0..batch).map(|_| self.random.random_range(0..self.item_count as u64)).collect();
            let elapsed = self.call(access, &self.hashed(&ids));
            let call_ns = (elapsed.as_nanos() as f64 - clock_ns).max(1.0);
            histogram.record(call_ns / batch as f64);
        }
        Chunk { histogram, is_whole: waited_for_core_ns() == waited_before }
    }
}

struct Chunk {
    histogram: Histogram,
    /// Whether the thread had its core all the time (I1).
    is_whole: bool,
}

/// The time this thread has waited for a core, by the kernel's accounts; 0 if it keeps none.
fn waited_for_core_ns() -> u64 {
    let accounts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    accounts.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The time of an empty call: the smallest of many, so that it is never subtracted twice.
fn clock_cost_ns() -> f64 {
    let once = || {
        let started = Instant::now();
        black_box(());
        started.elapsed().as_nanos() as f64
    };
    (0..10_000).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// Times in classes of a sixteenth of a factor of two, from 1 ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
}

const CLASSES_PER_DOUBLING: f64 = 16.0;

impl Histogram {
    pub(crate) fn record(&mut self, time_ns: f64) {
        let class = (time_ns.max(1.0).log2() * CLASSES_PER_DOUBLING) as usize;
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
    }

    fn merge(&mut self, other: &Histogram) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// `(low, high, count)` of each class that holds a sample, times to a tenth of a nanosecond.
    pub(crate) fn classes(&self) -> Vec<(f64, f64, u64)> {
        let bound =
            |class: usize| ((class as f64 / CLASSES_PER_DOUBLING).exp2() * 10.0).round() / 10.0;
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(class, count)| (bound(class), bound(class + 1), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn a_time_lies_in_its_class() {
        for time_ns in [0.2_f64, 1.0, 17.3, 1000.0, 123_456.7, 9e6] {
            let mut histogram = Histogram::default();
            histogram.record(time_ns);
            histogram.record(time_ns);
            let [(low_ns, high_ns, count)] = histogram.classes()[..] else { panic!() };
            let time_ns = time_ns.max(1.0);
            assert!(low_ns <= time_ns + 0.1 && time_ns <= high_ns + 0.1, "{time_ns}");
            assert!(high_ns / low_ns < 1.2);
            assert_eq!(count, 2);
        }
    }

    #[test]
    fn merged_histograms_count_both() {
        let (mut left, mut right) = (Histogram::default(), Histogram::default());
        left.record(10.0);
        right.record(10.0);
        right.record(5000.0);
        left.merge(&right);
        let counts: Vec<u64> = left.classes().iter().map(|class| class.2).collect();
        assert_eq!(counts, [2, 1]);
    }
}
