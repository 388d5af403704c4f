//! The hot set: the keys that the cache-resident layer serves itself, chosen anew in each epoch.
//!
//! ```text
//!  workers                          manager                                       workers
//!  access ─▶ Sampler ─▶ sampled key ─▶ CountMin ─ estimate ─▶ Top (min-heap of K)
//!            1 of n                     halved each epoch            │ switch_epoch(size)
//!                                                                    ▼
//!                                              Snapshot: sorted keys, share ─▶ published, read
//! ```
//!
//! # Invariants
//! I1: a snapshot's keys are sorted and distinct, and they are the most frequent of the tracked
//!     ones.
//! I2: every key outside the heap has an estimate no higher than every key in it.
//! I3: an estimate is never below the number of samples (halved once for each epoch that passed).
//!
//! # Concurrency
//! One `Sampler` per worker, one `HotSet` on the manager's thread. A snapshot is plain data: the
//! driver swaps the old for the new in one step, and readers keep the one they hold (uTPS §3.2.2).
//!
//! # Limits
//! Tracks `key_max` keys (uTPS: 10,000). Two keys with one 64-bit hash count as one: a key that is
//! wrongly called hot is served by another worker than it might be, and no worse (K7).
//!
//! # Trade-offs
//! Halving forgets: after a shift of the workload a newly hot key overtakes an old one after about
//! two epochs. A key that is hot for less than an epoch may never be noticed.
//!
//! # References
//! uTPS §3.2.2 and its reference to Nap; K7.

use base::KeyHash;

mod heavy;
mod members;
mod sampler;
mod sketch;
mod top;
pub mod worth;

pub use heavy::{Heaviest, Heavy};
pub use members::Members;
pub use sampler::Sampler;
pub use sketch::CountMin;
pub use top::Top;
pub use worth::Worth;

/// The hot keys that readers use during one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot<Key> {
    /// The number of switches so far; 0 before the first.
    pub epoch_id: u64,
    /// The keys, sorted.
    keys: Vec<Key>,
    /// The share of all sampled accesses that went to these keys.
    share_ratio: f64,
}

impl<Key> Default for Snapshot<Key> {
    fn default() -> Self {
        Snapshot { epoch_id: 0, keys: Vec::new(), share_ratio: 0.0 }
    }
}

impl<Key: Ord> Snapshot<Key> {
    /// Whether the key is hot in this epoch.
    #[inline]
    pub fn contains<Wanted: Ord + ?Sized>(&self, key: &Wanted) -> bool
    where
        Key: std::borrow::Borrow<Wanted>,
    {
        self.keys.binary_search_by(|hot| hot.borrow().cmp(key)).is_ok()
    }

    /// The hot keys in order: for an ordered index this is the sorted array itself.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The share of all sampled accesses that went to these keys; 0 while nothing was sampled.
    pub fn share_ratio(&self) -> f64 {
        self.share_ratio
    }
}

/// Counters in each row of the sketch for each tracked key.
const COLUMNS_PER_KEY: usize = 8;

/// Counts sampled keys and keeps the most frequent ones.
///
/// `Key` is the form that a reader looks up: the hash for a hash index, the key's bytes for an
/// ordered one.
#[derive(Debug)]
pub struct HotSet<Key> {
    sketch: CountMin,
    top: Top<Key>,
    /// The number of samples, halved together with the counts.
    sampled_count: u64,
    epoch_id: u64,
    ranked: Vec<(u32, usize)>,
}

impl<Key: Ord + Clone> HotSet<Key> {
    /// Tracks up to `key_max` keys. Each row of the sketch has eight counters for each of them, so
    /// that a random key collides in all four rows with one of the hot ones in 1 of 4,000 cases.
    pub fn new(key_max: usize, seed: u64) -> HotSet<Key> {
        assert!(key_max > 0, "a hot set of no keys finds none");
        HotSet {
            sketch: CountMin::new(key_max.saturating_mul(COLUMNS_PER_KEY), seed),
            top: Top::new(key_max),
            sampled_count: 0,
            epoch_id: 0,
            ranked: Vec::with_capacity(key_max),
        }
    }

    /// Its maximum memory, including a snapshot of as many keys, without the memory that keys point
    /// to.
    pub fn memory_bytes(key_max: usize) -> usize {
        CountMin::memory_bytes(key_max.saturating_mul(COLUMNS_PER_KEY))
            + Top::<Key>::memory_bytes(key_max)
            + key_max * (size_of::<(u32, usize)>() + size_of::<Key>())
    }

    /// Counts one sampled access. `key` is called only if the key becomes a tracked one.
    pub fn sample(&mut self, hash: KeyHash, key: impl FnOnce() -> Key) {
        self.sampled_count += 1;
        let estimate = self.sketch.add(hash);
        self.top.offer(hash, estimate, key);
    }

    /// Ends the epoch: writes the `size` most frequent keys into `snapshot`, reusing its memory,
    /// and halves all counts.
    pub fn switch_epoch(&mut self, size: usize, snapshot: &mut Snapshot<Key>) {
        self.epoch_id += 1;
        self.select(size, snapshot);
        self.sketch.halve();
        self.top.halve();
        self.sampled_count /= 2;
    }

    /// Writes the `size` most frequent keys as of now into `snapshot`; the epoch continues.
    pub fn select(&mut self, size: usize, snapshot: &mut Snapshot<Key>) {
        self.rank();
        self.ranked.truncate(size);
        let hot_count: u64 = self.ranked.iter().map(|(count, _)| u64::from(*count)).sum();
        snapshot.epoch_id = self.epoch_id;
        snapshot.share_ratio = ratio(hot_count, self.sampled_count);
        snapshot.keys.clear();
        snapshot.keys.extend(self.ranked.iter().map(|(_, place)| self.top.key_at(*place).clone()));
        snapshot.keys.sort_unstable();
    }

    /// The share of the sampled accesses that went to all tracked keys. Unlike a snapshot's share
    /// it does not change with the size of the cache, so the tuner uses it.
    pub fn tracked_share_ratio(&self) -> f64 {
        ratio(self.top.counts().map(u64::from).sum(), self.sampled_count)
    }

    /// Estimated counts of the tracked keys, most frequent first: the popularity's exponent is
    /// fitted to these.
    pub fn counts(&mut self) -> impl ExactSizeIterator<Item = u32> {
        self.rank();
        self.ranked.iter().map(|(count, _)| *count)
    }

    /// The tracked keys with their estimated counts, most frequent first.
    pub fn ranked(&mut self) -> impl ExactSizeIterator<Item = (u32, &Key)> {
        self.rank();
        self.ranked.iter().map(|(count, place)| (*count, self.top.key_at(*place)))
    }

    /// The number of samples that the counts are from.
    pub fn sampled_count(&self) -> u64 {
        self.sampled_count
    }

    fn rank(&mut self) {
        self.ranked.clear();
        self.ranked.extend(self.top.counts().enumerate().map(|(place, count)| (count, place)));
        self.ranked.sort_unstable_by(|one, other| other.cmp(one));
    }
}

/// The ratio, at most 1: collisions can push the sum of estimates above the samples.
fn ratio(hot_count: u64, sampled_count: u64) -> f64 {
    if sampled_count == 0 { 0.0 } else { (hot_count as f64 / sampled_count as f64).min(1.0) }
}

#[cfg(test)]
mod tests;
