//! State shared by the threads of one torture test: the store, a clock, and the facts known of each
//! key.

use std::sync::atomic::{AtomicU64, Ordering};

use base::UnixMillis;
use store::{Mode, Store};

use super::worker::Worker;

/// Keys with an owner each; even ones are the first thread's.
pub const KEYS: u64 = 600;
/// Counters that both threads add to: odd ones have keys that keep them from being in place.
pub const COUNTERS: usize = 4;

/// The progress of a key's owner. Writes are numbered from 1.
#[derive(Default)]
pub struct Progress {
    /// The last write that may have begun.
    pub started: AtomicU64,
    /// The last write that took effect and is over.
    pub done: AtomicU64,
}

pub struct Shared<'s> {
    pub store: &'s Store,
    pub progress: Vec<Progress>,
    clock_ms: AtomicU64,
    /// The increments that the store reported as done.
    pub increments: Vec<AtomicU64>,
    /// The same for compare-and-swaps.
    pub swaps: Vec<AtomicU64>,
}

impl Shared<'_> {
    pub fn new(store: &Store) -> Shared<'_> {
        let zeroes = || (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Shared {
            store,
            progress: (0..KEYS).map(|_| Progress::default()).collect(),
            clock_ms: AtomicU64::new(1000),
            increments: zeroes(),
            swaps: zeroes(),
        }
    }

    /// Advances the clock by a millisecond; no thread has used a later time before.
    pub fn tick(&self) -> UnixMillis {
        UnixMillis(self.clock_ms.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// No thread's time is beyond this.
    pub fn latest(&self) -> UnixMillis {
        UnixMillis(self.clock_ms.load(Ordering::Acquire))
    }

    /// Whether the store may drop items.
    pub fn forgets(&self) -> bool {
        self.store.config().mode == Mode::Evict
    }

    /// After both threads have ended: a store's counters hold every increment, a cache's no more
    /// than these.
    pub fn check_counters(&self, worker: &mut Worker<'_>) {
        for index in 0..COUNTERS {
            for (counts, is_swap) in [(&self.increments, false), (&self.swaps, true)] {
                let counted = counts[index].load(Ordering::Relaxed);
                let found = worker.read_counter(index, is_swap);
                let is_right = if self.forgets() { found <= counted } else { found == counted };
                assert!(is_right, "counter {index}, swaps {is_swap}: {found} for {counted}");
            }
        }
    }
}

/// The key of a counter.
pub fn counter_key(index: usize, is_swap: bool) -> Vec<u8> {
    let name = if is_swap { "swaps" } else { "count" };
    let tail = if index % 2 == 1 { "-long" } else { "" };
    format!("{name}{index:03}{tail}").into_bytes()
}
