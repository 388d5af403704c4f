//! Cache simulation by trace: the real store, exact policies and Belady's bound on the same
//! requests.
//!
//! ```text
//!  trace or cluster ─▶ Requests ─┬─▶ Store::open(memory): GET, on a miss SET  ─┐
//!                                ├─▶ LRU, FIFO, CLOCK, S3-FIFO, exact         ─┼─▶ Row, Row, ...
//!                                └─▶ Belady, by the next access               ─┘
//! ```
//!
//! The client is look-aside: it looks a key up and stores it on a miss. Writes of the trace store
//! the key, deletes remove it; only look-ups count as hits and misses. Times are the trace's: an
//! item past its TTL is a miss.
//!
//! # Invariants
//! I1: at no time does an exact cache hold more than its capacity.
//! I2: one trace gives one result, on any number of threads.
//!
//! # Limits
//! All requests are held in memory, 36 bytes each: every policy and size passes over them, and
//! Belady needs future accesses.
//!
//! # References
//! L. Belady, IBM Systems Journal 5(2), 1966; J. Yang et al., SOSP 2023 (S3-FIFO); MICA §4.1.

mod belady;
mod by_use;
mod queues;
mod real;
pub mod report;
mod s3_fifo;
mod sizing;
mod trace;

use workload::cache_trace::{Access, CacheRequest};

use crate::SimError;

pub use sizing::CacheSize;
pub use trace::Trace;
pub use workload::cache_trace;

use belady::Belady;
use by_use::ByUse;
use s3_fifo::S3Fifo;

/// The cache under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The store of this project, opened with the size as its memory.
    Store(store::Eviction),
    /// A plain model of a policy, without any overhead.
    Exact(Exact),
}

/// The policies, as in their papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exact {
    /// Evicts the least recently used item.
    Lru,
    /// Evicts the oldest item.
    Fifo,
    /// Evicts the oldest item, unless it was used since the last check.
    Clock,
    /// A small and a main queue, and a list of ghosts; more than one access leads to the main one.
    S3Fifo,
    /// The same; one access leads to the main queue.
    S3FifoEager,
    /// Evicts the item whose next use is furthest away: no policy has fewer misses if all items
    /// weigh alike.
    Belady,
}

/// A policy as named by the user.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The name of the policy.
    pub name: &'static str,
    /// The kind of cache that runs it.
    pub engine: Engine,
}

/// All policies, in the order of the table.
pub const POLICIES: &[Named] = &[
    Named { name: "fifo", engine: Engine::Store(store::Eviction::Fifo) },
    Named { name: "lru", engine: Engine::Store(store::Eviction::Lru) },
    Named { name: "lru-approx", engine: Engine::Store(store::Eviction::LruApprox) },
    Named { name: "s3-fifo", engine: Engine::Store(store::Eviction::S3Fifo) },
    Named { name: "fifo", engine: Engine::Exact(Exact::Fifo) },
    Named { name: "lru", engine: Engine::Exact(Exact::Lru) },
    Named { name: "clock", engine: Engine::Exact(Exact::Clock) },
    Named { name: "s3-fifo", engine: Engine::Exact(Exact::S3Fifo) },
    Named { name: "s3-fifo-eager", engine: Engine::Exact(Exact::S3FifoEager) },
    Named { name: "belady", engine: Engine::Exact(Exact::Belady) },
];

impl Engine {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Store(_) => "store",
            Engine::Exact(_) => "exact",
        }
    }
}

/// The policies that `text` names: `all`, `none`, or names after commas, each with `store:` or
/// `exact:` before it where only one of the two is wanted.
pub fn policies(text: &str) -> Result<Vec<Named>, SimError> {
    match text {
        "all" => return Ok(POLICIES.to_vec()),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut found: Vec<Named> = Vec::new();
    for word in text.split(',').map(str::trim) {
        let (engine, name) = word.split_once(':').map_or((None, word), |(e, name)| (Some(e), name));
        let name = if name == "s3fifo" { "s3-fifo" } else { name };
        let is_meant = |named: &&Named| {
            named.name == name && engine.is_none_or(|engine| engine == named.engine.name())
        };
        let meant: Vec<&Named> = POLICIES.iter().filter(is_meant).collect();
        if meant.is_empty() {
            return Err(SimError::BadParameter {
                what: format!("`{word}` is no policy: write all or some of {}", policy_names()),
            });
        }
        found.extend(meant);
    }
    Ok(found)
}

/// Every name once.
pub fn policy_names() -> String {
    let mut names: Vec<&str> = POLICIES.iter().map(|named| named.name).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// The unit of a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weigh {
    /// Every item is one.
    Objects,
    /// Bytes of key and value.
    Bytes,
}

impl Weigh {
    fn of(self, request: &CacheRequest) -> u64 {
        match self {
            Weigh::Objects => 1,
            Weigh::Bytes => request.item_bytes(),
        }
    }
}

/// An item, as passed to a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub key: u64,
    pub weight: u64,
    /// [`NEVER`]: it does not.
    pub expires_at_ms: u64,
    /// Index of this request.
    pub at: u64,
    /// The next look-up that a copy kept from now on would serve.
    pub next_use: Option<NextUse>,
}

/// The next look-up of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextUse {
    /// Its index.
    pub at: u64,
    /// Its time.
    pub time_ms: u64,
}

/// Stands for "no time".
pub(crate) const NEVER: u64 = u64::MAX;

/// An exact cache. It does not keep items larger than its whole capacity.
pub(crate) trait Cache {
    /// Returns whether the key is there at this time; counts as a use of it.
    fn look(&mut self, item: &Item, now_ms: u64) -> bool;
    /// Stores the item, replacing an older one of its key.
    fn store(&mut self, item: &Item, now_ms: u64);
    /// Forgets the key.
    fn remove(&mut self, key: u64);
    /// The present contents.
    fn held(&self) -> Held;
    /// Number of evicted items.
    fn evictions(&self) -> u64;
}

/// Contents of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Items.
    pub objects: u64,
    /// Their weight, in the cache's unit.
    pub weight: u64,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Look-ups.
    pub looks: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Bytes of key and value of look-ups.
    pub look_bytes: u64,
    /// The bytes of these that were missed.
    pub miss_bytes: u64,
    /// Number of evicted items.
    pub evictions: u64,
    /// Items held, on average since the first eviction; the maximum if there was none.
    pub objects: f64,
    /// Bytes of keys and values held, the same way.
    pub bytes: f64,
}

impl Tally {
    /// Misses of look-ups, 0 to 1.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.looks.max(1) as f64
    }

    /// The same by bytes.
    pub fn byte_miss_ratio(&self) -> f64 {
        self.miss_bytes as f64 / self.look_bytes.max(1) as f64
    }

    fn count_look(&mut self, request: &CacheRequest, is_hit: bool) {
        let bytes = request.item_bytes();
        self.looks += 1;
        self.look_bytes += bytes;
        if !is_hit {
            self.misses += 1;
            self.miss_bytes += bytes;
        }
    }
}

/// The average contents while a cache is full, or the maximum if it never is.
#[derive(Debug, Default)]
struct Means {
    samples: u64,
    objects: u64,
    bytes: u64,
    most: (u64, u64),
}

/// How often contents are sampled, in requests.
const SAMPLE_EVERY: usize = 64;

impl Means {
    fn sample(&mut self, is_full: bool, objects: u64, bytes: u64) {
        if is_full {
            self.samples += 1;
            self.objects += objects;
            self.bytes += bytes;
        } else {
            self.most = self.most.max((objects, bytes));
        }
    }

    /// Objects and bytes.
    fn found(&self) -> (f64, f64) {
        if self.samples == 0 {
            return (self.most.0 as f64, self.most.1 as f64);
        }
        let mean = |sum: u64| sum as f64 / self.samples as f64;
        (mean(self.objects), mean(self.bytes))
    }
}

/// One point: a policy at a size.
#[derive(Clone, Debug)]
pub struct Row {
    /// `store`, `exact` or `server`.
    pub engine: &'static str,
    /// The policy's name, or the server's address.
    pub policy: String,
    /// The size as the user wrote it.
    pub size: String,
    /// Whether the capacity counts objects; bytes otherwise.
    pub is_objects: bool,
    /// The size in that unit.
    pub capacity: u64,
    /// The result.
    pub tally: Tally,
}

/// Replays the trace for every policy and size, several at once.
pub fn run(
    trace: &Trace,
    policies: &[Named],
    sizes: &[CacheSize],
    threads: usize,
) -> Result<Vec<Row>, SimError> {
    let pairs = sizes.iter().flat_map(|size| policies.iter().map(move |named| (named, size)));
    let points: Vec<(&Named, &CacheSize)> = pairs.collect();
    let rows = crate::parallel::map("replaying", threads, &points, |(named, size)| {
        let capacity = size.capacity(trace);
        let tally = match named.engine {
            Engine::Store(eviction) => real::replay(trace, eviction, size, capacity)?,
            Engine::Exact(exact) => replay_exact(trace, exact, size.weigh(), capacity),
        };
        Ok(Row {
            engine: named.engine.name(),
            policy: named.name.to_owned(),
            size: size.to_string(),
            is_objects: size.is_objects(),
            capacity,
            tally,
        })
    });
    rows.into_iter().collect()
}

/// Replays the trace through an exact policy.
pub(crate) fn replay_exact(trace: &Trace, exact: Exact, weigh: Weigh, capacity: u64) -> Tally {
    match exact {
        Exact::Lru | Exact::Fifo | Exact::Clock => {
            replay(trace, weigh, ByUse::new(exact, capacity))
        }
        Exact::S3Fifo => replay(trace, weigh, S3Fifo::new(capacity, 2)),
        Exact::S3FifoEager => replay(trace, weigh, S3Fifo::new(capacity, 1)),
        Exact::Belady => replay(trace, weigh, Belady::new(capacity)),
    }
}

fn replay(trace: &Trace, weigh: Weigh, mut cache: impl Cache) -> Tally {
    let mut tally = Tally::default();
    let mut means = Means::default();
    for (index, request) in trace.requests().iter().enumerate() {
        let item = Item {
            key: request.key,
            weight: weigh.of(request),
            expires_at_ms: expires_at_ms(request).unwrap_or(NEVER),
            at: index as u64,
            next_use: trace.next_use(index),
        };
        match request.access {
            Access::Look => {
                let is_hit = cache.look(&item, request.time_ms);
                tally.count_look(request, is_hit);
                if !is_hit {
                    cache.store(&item, request.time_ms);
                }
            }
            Access::Write => cache.store(&item, request.time_ms),
            Access::Delete => cache.remove(item.key),
        }
        if index % SAMPLE_EVERY == 0 || index + 1 == trace.requests().len() {
            let held = cache.held();
            means.sample(cache.evictions() > 0, held.objects, held.weight);
        }
    }
    tally.evictions = cache.evictions();
    (tally.objects, tally.bytes) = means.found();
    if weigh == Weigh::Objects {
        tally.bytes = f64::NAN; // They were not weighed.
    }
    tally
}

/// The expiry of the item stored by this request; `None`: never.
pub(crate) fn expires_at_ms(request: &CacheRequest) -> Option<u64> {
    (request.ttl_s > 0).then(|| request.time_ms + u64::from(request.ttl_s) * 1000)
}

#[cfg(test)]
mod tests;
