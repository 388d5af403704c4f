//! Minos's controller: decides which sizes are small, how many cores serve them, and which cores
//! serve the large ones.
//!
//! ```text
//!  worker 0: WorkerSizes ─┐ (counts only grow)   each epoch, 1 s
//!  worker 1: WorkerSizes ─┼──▶ SizeController ──▶ SizePlan ──▶ every worker's router
//!  worker n: WorkerSizes ─┘   0.9 new + 0.1 old
//!
//!  SizePlan of 8 workers:
//!    sizes    0 ....... threshold ...... 96 KiB ...... 210 KiB ...... largest
//!    workers  0  1  2  3       | 4            | 5             | 6, 7
//!             small: any of them  large: one contiguous range of sizes each, of equal cost
//! ```
//!
//! # Invariants
//! I1: every size belongs to exactly one class: small, or one large range.
//! I2: small workers come first, then large ones, in the order of their sizes. Every worker has a
//!     part, and there is always a worker for large requests.
//! I3: when all workers are small, the last one stands by: it serves small requests until a large
//!     one arrives (Minos §3).
//!
//! # Concurrency
//! A plan never changes; the controller makes the next one, and the driver publishes it. A worker
//! counts into its own [`WorkerSizes`], which the controller reads without stopping it.
//!
//! # Trade-offs
//! Rounding the number of small workers up leaves the large ones with less than their share, so
//! large requests wait longer than they would among all workers (Minos §6.1 and Fig. 4: up to 2x).
//! Where one size alone costs more than one worker can serve, no cut between sizes helps. Such a
//! range is shared by several workers, and the key chooses one of them. The paper, whose sizes are
//! spread, has no such case.
//!
//! # References
//! Minos §3 (threshold, shares, ranges, standby), §6.2 (sampling, static threshold).

mod controller;
mod cost;
mod histogram;
mod pollers;

pub use controller::{SizeController, SizeOptions, Threshold};
pub use cost::{Cost, PACKET_PAYLOAD_MAX_BYTES};
pub use histogram::{SizeCount, WorkerSizes};
pub use pollers::{HandOver, Pollers};

use base::{PartitionId, WorkerId};

/// Where sizes do not matter yet, those of one batch in so many are counted: for the plan with
/// which a trial of size-aware policies begins.
pub const COUNTED_BATCH: u64 = 16;

/// The assignment of sizes to workers, until the next epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizePlan {
    /// The largest size that is small.
    pub threshold_bytes: u64,
    /// The number of all workers, small and large.
    pub worker_count: usize,
    /// Workers `0..small_workers` serve small requests and read the network's queues.
    pub small_workers: usize,
    /// The large workers' ranges, by size; the last one has no upper end. Empty on standby.
    pub large: Vec<LargeRange>,
    /// The small worker to which large requests go when all are small (I3).
    pub standby: Option<WorkerId>,
}

/// A contiguous range of large sizes, and the workers that own it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeRange {
    /// The largest size in the range; the smallest follows the previous range.
    pub size_max_bytes: u64,
    /// Its first worker.
    pub first: WorkerId,
    /// The number of workers that share it: 1 unless one size class costs more than a worker's
    /// share.
    pub workers: usize,
}

/// The class of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// Served by the small worker that read the request.
    Small,
    /// Served by the workers of this range of [`SizePlan::large`]; on standby the index is 0 and
    /// the standby worker serves it.
    Large {
        /// The index in [`SizePlan::large`].
        range_index: usize,
    },
}

impl SizePlan {
    /// The plan before any counts: all workers small, the last one standing by.
    ///
    /// # Panics
    /// Without workers.
    pub fn all_small(worker_count: usize, threshold_bytes: u64) -> SizePlan {
        assert!(worker_count > 0, "a plan needs a worker");
        SizePlan {
            threshold_bytes,
            worker_count,
            small_workers: worker_count,
            large: Vec::new(),
            standby: Some(WorkerId((worker_count - 1) as u16)),
        }
    }

    /// The class of `size_bytes` (I1).
    #[inline]
    pub fn class_of(&self, size_bytes: u64) -> SizeClass {
        if size_bytes <= self.threshold_bytes {
            return SizeClass::Small;
        }
        let before = self.large.partition_point(|range| range.size_max_bytes < size_bytes);
        SizeClass::Large { range_index: before.min(self.large.len().saturating_sub(1)) }
    }

    /// The worker that serves `size_bytes`; `None`: small, so the worker that read the request
    /// does.
    ///
    /// The key's partition chooses among the workers of a shared range, so that writes of one large
    /// key meet at one worker (Minos §4.2).
    #[inline]
    pub fn core_for(&self, size_bytes: u64, partition: PartitionId) -> Option<WorkerId> {
        match self.class_of(size_bytes) {
            SizeClass::Small => None,
            SizeClass::Large { range_index } => match self.large.get(range_index) {
                None => self.standby,
                Some(range) => {
                    Some(WorkerId(range.first.0 + (partition.index() % range.workers) as u16))
                }
            },
        }
    }

    /// Whether `worker` reads small requests from the network's queues; on standby all do.
    pub fn is_small(&self, worker: WorkerId) -> bool {
        worker.index() < self.small_workers
    }

    /// Whether `worker` reads requests from the network's queues now; a worker that does not leaves
    /// its own to the small workers. `holds_large`: it has large requests queued, in work, or not
    /// yet sent. A standby worker that has them counts as large until the last of their packets has
    /// left, because small replies behind those would wait as long as small requests behind the
    /// work.
    #[inline]
    pub fn reads_network(&self, worker: WorkerId, holds_large: bool) -> bool {
        self.is_small(worker) && !(holds_large && self.standby == Some(worker))
    }

    /// The number of workers that serve only large requests.
    pub fn large_workers(&self) -> usize {
        self.worker_count - self.small_workers
    }

    /// The number of requests that a small worker takes from each large worker's queue in the round
    /// in which it takes `batch_max` from its own: all queues then drain alike (Minos §3).
    pub fn large_queue_batch(&self, batch_max: usize) -> usize {
        batch_max.div_ceil(self.small_workers)
    }

    /// Recounts everything that I1 to I3 say.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub fn validate(&self) {
        assert!(self.small_workers >= 1, "I2: someone reads the network");
        assert_eq!(self.standby.is_some(), self.small_workers == self.worker_count, "I3");
        assert_eq!(self.large.is_empty(), self.standby.is_some(), "I2: someone serves large");
        let mut next_worker = self.small_workers;
        let mut size_before = self.threshold_bytes;
        for range in &self.large {
            assert!(range.size_max_bytes > size_before, "I1: ranges follow each other");
            assert_eq!(range.first.index(), next_worker, "I2: workers follow each other");
            assert!(range.workers >= 1, "I2: a range has a worker");
            (size_before, next_worker) = (range.size_max_bytes, next_worker + range.workers);
        }
        assert!(self.large.is_empty() || size_before == u64::MAX, "I1: no upper end");
        if self.standby.is_none() {
            assert_eq!(next_worker, self.worker_count, "I2: every worker has a part");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
