//! The hot set of a running server: dispatchers sample the requested keys, the manager counts the
//! samples and publishes which keys are hot, and a dispatcher under two layers reads those itself
//! (uTPS §3.2.2).
//!
//! ```text
//!  dispatcher 0 ─ 1 of 32 ─▶ [samples] ─┐                               every epoch:
//!  dispatcher 1 ─ 1 of 32 ─▶ [samples] ─┼─▶ HotEpochs: sketch, heap ─▶ Published ─▶ epoch id
//!                                       │   (the manager's thread)         │           │
//!  dispatcher 0 ◀── clones the Arc ─────┴── when the id has changed ◀──────┴───────────┘
//! ```
//!
//! Nothing is cached: the item stays where it is, and all threads use the same index entry, so a
//! dispatcher reads what an executor has written (K7, K9). The hot set only decides which thread
//! looks up a key, and, over a tree, where it looks first: the epoch also has the hot keys in a
//! sorted array, beside which each dispatcher's session remembers the key's place in the tree
//! (`store::HotArray`, decision 0042).
//!
//! # Invariants
//! H1: the hot set changes only which thread executes a read: dispatchers with different epochs
//!     work together correctly.
//! H2: publishing waits for no dispatcher's round, and no round waits for a publication: a
//!     dispatcher that finds the publisher at the lock takes the new epoch in its next round.
//! H3: samples that find their buffer full are dropped.
//! H4: without two layers samples are counted, for the tuner and for people, and no key is hot.
//!
//! If each worker executes the requests that it receives, no request is routed, and requests are
//! not sampled one by one: every few milliseconds a worker reads the bytes of a gathering again
//! ([`key_sampler`]). [`session`] counts for HOTKEYS START.
//!
//! # Limits
//! At most [`TRACKED_MAX`] hot keys. Keys are listed by their first [`SAMPLE_KEY_BYTES_MAX`] bytes;
//! longer hot keys are not in the sorted array, so each read of one walks the tree.
//!
//! # Trade-offs
//! Over a tree, too, the hashes decide whether a key is hot: most reads are not of hot keys, and
//! one cache line shows that (decision 0040).

mod epochs;
pub mod key_sampler;
pub mod session;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::KeyHash;
use base::hash::KeyHasher;
use crossbeam_channel::{Receiver, Sender};
use policy::hot_set::{Members, Sampler};
use policy::taxonomy::Popularity;
use store::{HotArray, IndexKind};

pub use epochs::HotEpochs;

use config::{Config, HotSetSize};

/// Keys that are tracked, and so the largest hot set (uTPS §3.2.2).
pub const TRACKED_MAX: usize = 10_000;

/// The number of hot keys before a tuner has chosen one: their marks take 16 KiB, half of a
/// first-level cache.
pub const ITEMS_DEFAULT: usize = 1000;

/// One access of this many is sampled: some 50 ns for a sample are then 1.5 ns per access.
const SAMPLE_EVERY: u32 = 32;

/// Waiting samples of one dispatcher: those of 65,000 accesses, which take at least 10 ms.
const SAMPLES_WAITING_MAX: usize = 2048;

/// The same, and the number of tracked keys, where samples are for people only.
const SAMPLES_SEEN_MAX: usize = 1024;
const TRACKED_FOR_PEOPLE: usize = 1000;

/// Bytes of a sampled key that are kept.
pub const SAMPLE_KEY_BYTES_MAX: usize = 52;

/// One sampled access.
#[derive(Clone, Copy, Debug)]
struct Sample {
    hash: KeyHash,
    key_len_bytes: u32,
    key: [u8; SAMPLE_KEY_BYTES_MAX],
}

const _: () = assert!(size_of::<Sample>() == 64);

impl Sample {
    fn new(hash: KeyHash, key: &[u8]) -> Sample {
        let mut head = [0; SAMPLE_KEY_BYTES_MAX];
        let head_len_bytes = key.len().min(SAMPLE_KEY_BYTES_MAX);
        head[..head_len_bytes].copy_from_slice(&key[..head_len_bytes]);
        Sample { hash, key_len_bytes: key.len() as u32, key: head }
    }

    fn head(&self) -> &[u8] {
        &self.key[..(self.key_len_bytes as usize).min(SAMPLE_KEY_BYTES_MAX)]
    }
}

/// A frequent key, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// Its first bytes.
    pub head: Arc<[u8]>,
    /// The length of the whole key.
    pub len_bytes: usize,
    /// The fraction of all accesses that goes to it, estimated from samples.
    pub share_ratio: f64,
}

/// The hot set of one epoch.
#[derive(Clone, Debug, Default)]
pub struct Published {
    members: Members,
    /// The same keys in sorted order, over an index that is sorted.
    array: Option<Arc<HotArray>>,
    share_ratio: f64,
    listed: Vec<HotKey>,
    zipf_exponent: Option<f64>,
    frequent_share_ratio: f64,
    is_sampled: bool,
}

impl Published {
    /// The number of keys that dispatchers read themselves.
    pub fn item_count(&self) -> usize {
        self.members.len()
    }

    /// The fraction of all sampled accesses that went to them.
    pub fn share_ratio(&self) -> f64 {
        self.share_ratio
    }

    /// The popularity of keys, estimated from the samples; `None`: too few were taken.
    pub fn popularity(&self) -> Option<Popularity> {
        let hottest = self.listed.first();
        self.is_sampled.then(|| Popularity {
            hottest_share_ratio: hottest.map_or(0.0, |key| key.share_ratio),
            zipf_exponent: self.zipf_exponent,
        })
    }

    /// The fraction of the accesses that went to the thousand most frequent keys, whatever the size
    /// is: the tuner observes it.
    pub fn frequent_share_ratio(&self) -> f64 {
        self.frequent_share_ratio
    }

    /// The most frequent keys, most frequent first, whether or not they are worth being read by
    /// dispatchers.
    pub fn listed(&self) -> &[HotKey] {
        &self.listed
    }
}

/// The state that dispatchers and manager share.
#[derive(Debug)]
pub struct HotKeys {
    size: AtomicUsize,
    /// Whether the index is sorted.
    is_ordered: bool,
    /// The size for which the last published set was chosen.
    size_in_force: AtomicUsize,
    /// Keys that are sampled often enough to be hot, if the size allows.
    eligible_count: AtomicUsize,
    /// Whether the tuner may choose the size.
    is_auto: AtomicBool,
    /// The number of publications.
    epoch_id: AtomicU64,
    published: Mutex<Arc<Published>>,
    /// The number of keys that are counted.
    tracked_max: usize,
    /// By thread.
    samples: Vec<(Sender<Sample>, Receiver<Sample>)>,
}

impl HotKeys {
    /// The hot keys at a server's start.
    pub fn of_server(config: &Config, is_routed: bool) -> Option<Arc<HotKeys>> {
        let is_ordered = config.index == IndexKind::Tree;
        HotKeys::new(config.hot_set, config.threads, is_ordered, is_routed)
    }

    /// The memory that counting and publishing take at most on such a server, beside the store.
    pub fn memory_bytes(config: &Config, is_routed: bool) -> u64 {
        if config.hot_set == HotSetSize::Off {
            return 0;
        }
        // A place of a buffer has a stamp too; the previous publication may still be in use.
        let place_bytes = config.threads * (size_of::<Sample>() + 8);
        if !is_routed {
            let counted_bytes = HotEpochs::memory_bytes(TRACKED_FOR_PEOPLE);
            return (SAMPLES_SEEN_MAX * place_bytes + counted_bytes) as u64;
        }
        let buffers_bytes = SAMPLES_WAITING_MAX * place_bytes;
        let published_bytes =
            2 * (Members::memory_bytes(TRACKED_MAX) + HotKeys::array_bytes(config));
        let places_bytes = match config.index {
            IndexKind::Tree => config.threads * TRACKED_MAX * store::HOT_PLACE_BYTES,
            IndexKind::Hash => 0,
        };
        (buffers_bytes + HotEpochs::memory_bytes(TRACKED_MAX) + published_bytes + places_bytes)
            as u64
    }

    /// Bytes of the sorted array of hot keys, which only a tree has.
    fn array_bytes(config: &Config) -> usize {
        match config.index {
            IndexKind::Tree => HotArray::memory_bytes_max(TRACKED_MAX, SAMPLE_KEY_BYTES_MAX),
            IndexKind::Hash => 0,
        }
    }

    /// Without hot keys yet; `None`: none is ever hot.
    pub fn new(
        size: HotSetSize,
        thread_count: usize,
        is_ordered: bool,
        is_routed: bool,
    ) -> Option<Arc<HotKeys>> {
        let is_auto = size == HotSetSize::Auto;
        let size = match size {
            HotSetSize::Off => return None,
            HotSetSize::Auto => ITEMS_DEFAULT,
            HotSetSize::Items(items) => items.min(TRACKED_MAX),
        };
        let (tracked_max, waiting_max) = match is_routed {
            true => (TRACKED_MAX, SAMPLES_WAITING_MAX),
            false => (TRACKED_FOR_PEOPLE, SAMPLES_SEEN_MAX),
        };
        let buffer = |_| crossbeam_channel::bounded(waiting_max);
        Some(Arc::new(HotKeys {
            size: AtomicUsize::new(size),
            is_ordered,
            size_in_force: AtomicUsize::new(0),
            eligible_count: AtomicUsize::new(0),
            is_auto: AtomicBool::new(is_auto),
            epoch_id: AtomicU64::new(0),
            published: Mutex::default(),
            tracked_max,
            samples: (0..thread_count).map(buffer).collect(),
        }))
    }

    /// Sets the largest number of hot keys, from the manager's next look on; 0: none.
    pub fn set_size(&self, items: usize) {
        self.size.store(items.min(TRACKED_MAX), Ordering::Relaxed);
    }

    /// Whether the published keys were chosen for the present size: each dispatcher has them from
    /// its next round on.
    pub fn is_in_force(&self, has_readers: bool) -> bool {
        self.size_in_force.load(Ordering::Acquire) == self.size_for(has_readers)
    }

    /// The largest number of hot keys, given whether there are threads that only poll: no other
    /// thread reads them (H4).
    fn size_for(&self, has_readers: bool) -> usize {
        if has_readers { self.size() } else { 0 }
    }

    /// The number of keys that would be hot at any size; 0: the load has none.
    pub fn eligible_count(&self) -> usize {
        self.eligible_count.load(Ordering::Relaxed)
    }

    /// Whether the tuner chooses the size (`--hot-set auto`).
    pub fn is_auto(&self) -> bool {
        self.is_auto.load(Ordering::Relaxed)
    }

    /// Sets the size as `--hot-set` does: under `auto` the tuner chooses it from now on, a number
    /// stays.
    pub fn choose(&self, size: HotSetSize) {
        let was_auto = self.is_auto.swap(size == HotSetSize::Auto, Ordering::Relaxed);
        match size {
            HotSetSize::Auto if was_auto => {}
            HotSetSize::Auto => self.set_size(ITEMS_DEFAULT),
            HotSetSize::Off => self.set_size(0),
            HotSetSize::Items(items) => self.set_size(items),
        }
    }

    /// The present setting.
    pub fn chosen_size(&self) -> HotSetSize {
        match self.size() {
            _ if self.is_auto() => HotSetSize::Auto,
            0 => HotSetSize::Off,
            items => HotSetSize::Items(items),
        }
    }

    /// The largest number of hot keys.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// The present hot set.
    pub fn now(&self) -> Arc<Published> {
        Arc::clone(&self.published.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, next: Published, size: usize) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        // Release: a thread that sees the id finds its publication, or a newer one.
        self.epoch_id.fetch_add(1, Ordering::Release);
        // Release: pairs with `is_in_force`; a thread that sees it finds at least this epoch.
        self.size_in_force.store(size, Ordering::Release);
    }
}

/// A dispatcher's side: takes samples and knows the hot keys.
pub struct HotTracker {
    keys: Arc<HotKeys>,
    samples: Sender<Sample>,
    sampler: Sampler,
    epoch_id: u64,
    seen: Arc<Published>,
}

impl HotTracker {
    /// The side of the dispatcher on that thread.
    pub fn new(keys: &Arc<HotKeys>, thread: usize) -> HotTracker {
        let samples = keys.samples[thread].0.clone();
        let sampler = Sampler::new(SAMPLE_EVERY, thread as u64);
        HotTracker { keys: Arc::clone(keys), samples, sampler, epoch_id: 0, seen: Arc::default() }
    }

    /// Notes an access to a key, which may be sampled.
    #[inline]
    pub fn note(&mut self, hash: KeyHash, key: &[u8]) {
        if self.sampler.wants() {
            self.take_sample(hash, key);
        }
    }

    /// Samples an access to a key.
    pub fn note_chosen(&self, hash: KeyHash, key: &[u8]) {
        let _ = self.samples.try_send(Sample::new(hash, key)); // H3.
    }

    /// Notes that a range began at a key.
    pub fn note_range(&mut self, hasher: &KeyHasher, key: &[u8]) {
        if self.sampler.wants() {
            self.take_sample(hasher.hash(key), key);
        }
    }

    #[cold]
    fn take_sample(&mut self, hash: KeyHash, key: &[u8]) {
        self.note_chosen(hash, key);
    }

    /// Whether a key of that hash is hot in the epoch that the last [`HotTracker::look`] saw.
    #[inline]
    pub fn is_hot(&self, hash: KeyHash) -> bool {
        !self.seen.members.is_empty() && self.seen.members.contains(hash)
    }

    /// The hot keys in sorted order, as the last [`HotTracker::look`] saw them.
    pub fn array(&self) -> Option<Arc<HotArray>> {
        self.seen.array.clone()
    }

    /// Takes the new epoch, if one has begun; returns whether it has. Called once a round.
    #[inline]
    pub fn look(&mut self) -> bool {
        self.keys.epoch_id.load(Ordering::Acquire) != self.epoch_id && self.take_epoch()
    }

    #[cold]
    fn take_epoch(&mut self) -> bool {
        // Before the lock: the set found is that epoch's or a later one's.
        let epoch_id = self.keys.epoch_id.load(Ordering::Acquire);
        let Ok(published) = self.keys.published.try_lock() else { return false }; // H2.
        self.seen = Arc::clone(&published);
        self.epoch_id = epoch_id;
        true
    }
}
