//! A histogram of request sizes: one worker's counts, in log-linear classes of fixed memory.
//!
//! ```text
//!  size   0 1 2 ... 63 | 64 66 68 ... 126 | 128 132 ... 252 | 256 264 ...        4 GiB and above
//!  class  0 1 2 ... 63 | 64 65 66 ...  95 |  96  97 ... 127 | 128 129 ...               one class
//!           exact      |  32 classes for each doubling: a class's sizes differ by at most 3.2 %
//! ```
//!
//! # Concurrency
//! One worker counts; any thread reads. Counts only grow (and wrap), so a reader learns the
//! increase by subtracting the counts it saw last, and no count is ever reset while the worker
//! runs.

use base::sync::{AtomicU32, Ordering};

/// The number of sub-classes of a doubling, as a power of two.
const DOUBLING_BITS: u32 = 5;
/// Sizes with more bits than this share the last class.
const SIZE_BITS_MAX: u32 = 32;
/// The number of classes.
pub(super) const CLASS_COUNT: usize =
    (((SIZE_BITS_MAX - DOUBLING_BITS) << DOUBLING_BITS) + (1 << DOUBLING_BITS)) as usize + 1;

const _: () = assert!(CLASS_COUNT == 897);

/// The class of `size_bytes`.
#[inline]
pub(super) fn class_of(size_bytes: u64) -> usize {
    let shift = (u64::BITS - size_bytes.leading_zeros()).saturating_sub(DOUBLING_BITS + 1);
    let class = (u64::from(shift) << DOUBLING_BITS) + (size_bytes >> shift);
    (class as usize).min(CLASS_COUNT - 1)
}

/// The smallest size in `class`.
pub(super) fn size_min_of(class: usize) -> u64 {
    let shift = (class >> DOUBLING_BITS).saturating_sub(1);
    ((class - (shift << DOUBLING_BITS)) as u64) << shift
}

/// The largest size in `class`; the last one has no end.
pub(super) fn size_max_of(class: usize) -> u64 {
    if class + 1 >= CLASS_COUNT { u64::MAX } else { size_min_of(class + 1) - 1 }
}

/// The size that represents a class in cost calculations.
pub(super) fn size_middle_of(class: usize) -> u64 {
    let (low, high) = (size_min_of(class), size_max_of(class));
    if high == u64::MAX { low } else { low + (high - low) / 2 }
}

/// The number of requests for items in one class of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeCount {
    /// The smallest size of the class.
    pub size_min_bytes: u64,
    /// The largest size; the last class has no end.
    pub size_max_bytes: u64,
    /// The number of requests since the start; wraps.
    pub requests: u32,
}

/// One worker's counts: 3.6 kB.
#[derive(Debug)]
pub struct WorkerSizes {
    counts: Box<[AtomicU32]>,
    /// One of this many requests is counted (Minos §6.2: "sampling only a subset").
    sample_every: u32,
    until_sample: AtomicU32,
}

impl WorkerSizes {
    /// An empty histogram. One of `sample_every` requests will be counted: 1 counts all, 0 none.
    pub fn new(sample_every: u32) -> WorkerSizes {
        WorkerSizes {
            counts: (0..CLASS_COUNT).map(|_| AtomicU32::new(0)).collect(),
            sample_every,
            until_sample: AtomicU32::new(1),
        }
    }

    /// Counts a request for an item of `size_bytes`. Only the worker that owns this may call it.
    #[inline]
    pub fn record(&self, size_bytes: u64) {
        // Relaxed throughout: one writer; a reader needs no order between classes.
        let until_sample = self.until_sample.load(Ordering::Relaxed);
        if until_sample != 1 {
            self.until_sample.store(until_sample.wrapping_sub(1), Ordering::Relaxed);
            return;
        }
        if self.sample_every == 0 {
            return;
        }
        self.until_sample.store(self.sample_every, Ordering::Relaxed);
        let count = &self.counts[class_of(size_bytes)];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The counts so far, by class; classes without requests are left out.
    pub fn counted(&self) -> impl Iterator<Item = SizeCount> {
        let counts = self.counts.iter().enumerate();
        let counted = counts.map(|(class, count)| SizeCount {
            size_min_bytes: size_min_of(class),
            size_max_bytes: size_max_of(class),
            requests: count.load(Ordering::Relaxed), // As in `record`.
        });
        counted.filter(|class| class.requests > 0)
    }

    /// Adds the counts since `seen` was taken to `sums`, and brings `seen` up to date.
    pub(super) fn add_news(&self, seen: &mut [u32], sums: &mut [u64]) {
        for ((count, seen), sum) in self.counts.iter().zip(seen).zip(sums) {
            let now = count.load(Ordering::Relaxed); // As in `record`.
            *sum += u64::from(now.wrapping_sub(*seen));
            *seen = now;
        }
    }
}
