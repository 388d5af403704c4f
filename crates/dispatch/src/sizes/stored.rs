//! Sizes of stored items, from a few items that are sampled at each look.
//!
//! ```text
//!  admin port: /stats ─▶ ask ─▶ each worker's mailbox ─▶ 64 random items ─▶ ring of 8,192 sizes
//!                  ◀──────── histogram of the ring: one look behind ◀───────────┘
//! ```
//!
//! # Invariants
//! S1: a server whose `/stats` is not read samples nothing.
//! S2: a look waits for no worker: it sees the samples of earlier looks.
//! S3: each worker has at most one look pending, and one look visits a bounded number of buckets
//!     (K28).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use policy::size_class::{SizeCount, WorkerSizes};

/// Items that each worker samples per look: some ten microseconds between two batches.
pub const DRAWN_PER_LOOK: usize = 64;

/// The number of latest samples that are kept.
const KEPT: usize = 8192;

/// The sizes that were sampled recently.
#[derive(Debug, Default)]
pub struct StoredSizes {
    ring: Mutex<Ring>,
    /// Workers that have been asked and have not sampled yet.
    asked_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Ring {
    /// Keys and values in bytes.
    sizes_bytes: Vec<u64>,
    next: usize,
}

impl StoredSizes {
    /// Whether that many workers are to be asked now: not while some have still to sample.
    pub fn begin_asked(&self, workers: usize) -> bool {
        let (asked, order) = (&self.asked_count, Ordering::Relaxed);
        asked.compare_exchange(0, workers, order, order).is_ok()
    }

    /// One of them has sampled.
    pub fn end_asked(&self) {
        self.asked_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a worker's samples. Without any, there are no items, or too few to find one: then the
    /// earlier samples are dropped.
    pub fn add(&self, drawn: &[u64]) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if drawn.is_empty() {
            *ring = Ring::default();
        }
        for size in drawn {
            let next = ring.next;
            match ring.sizes_bytes.get_mut(next) {
                Some(oldest) => *oldest = *size,
                None => ring.sizes_bytes.push(*size),
            }
            ring.next = (next + 1) % KEPT;
        }
    }

    /// The number of sampled items of each size.
    pub fn histogram(&self) -> Vec<SizeCount> {
        let counts = WorkerSizes::new(1);
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        for size in &ring.sizes_bytes {
            counts.record(*size);
        }
        counts.counted().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sizes: &StoredSizes) -> u32 {
        sizes.histogram().iter().map(|class| class.requests).sum()
    }

    #[test]
    fn the_latest_are_kept() {
        let sizes = StoredSizes::default();
        sizes.add(&[10; 5000]);
        sizes.add(&[1_000_000; 5000]);
        assert_eq!(drawn(&sizes), KEPT as u32);
        let histogram = sizes.histogram();
        assert_eq!(histogram.len(), 2, "{histogram:?}");
        assert!(histogram[0].size_max_bytes < 1000 && histogram[1].size_max_bytes >= 1_000_000);
        assert_eq!((histogram[0].requests, histogram[1].requests), (KEPT as u32 - 5000, 5000));
        sizes.add(&[1_000_000; KEPT]);
        assert_eq!(sizes.histogram().len(), 1);
    }

    #[test]
    fn an_empty_store_has_no_sizes() {
        let sizes = StoredSizes::default();
        sizes.add(&[7]);
        sizes.add(&[]);
        assert_eq!(drawn(&sizes), 0);
    }
}
