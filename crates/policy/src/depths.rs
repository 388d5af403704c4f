//! The depth of each worker's queue: the number of requests sent to it and not yet acknowledged.
//!
//! ```text
//!  counts   worker 0: 2   worker 1: 0   worker 2: 1   worker 3: 0
//!
//!  levels   depth 0  ..1.1.  bit w set: worker w holds that many (bit 0 on the right)
//!           depth 1  ..1..   lowest = 0, so the shortest is the first bit of depth 0: worker 1
//!           depth 2  ....1
//!            ...
//!           DEEP     .....   this many or more; among these one must count
//! ```
//!
//! A level is as many 64-bit words as the workers need, so finding the shortest queue takes one
//! load and one count of trailing zeros for 64 workers, and at most four of each for 240.
//!
//! # Invariants
//! I1: worker w's bit is set at level `min(counts[w], DEEP)` and nowhere else.
//! I2: `lowest` is the first level with a bit set.
//! I3: of workers with equal depths, the one with the lowest index counts as the shortest.
//!
//! # Concurrency
//! One dispatcher's own view: nothing is shared.
//!
//! # Limits
//! At most 65,536 workers. When every worker is at `DEEP` or above, a scan finds the shortest; the
//! queues are then so long that the scan does not matter.

use std::ops::Range;

use base::WorkerId;

/// Depths from here on share one level.
#[cfg(not(test))]
const DEEP: u32 = 4096;
#[cfg(test)]
const DEEP: u32 = 5;

/// The number of levels searched one by one for a subset of the workers before their counts are
/// scanned.
const LEVELS_TRIED_MAX: u32 = 4;

const WORD_BITS: usize = u64::BITS as usize;

/// One dispatcher's view of its workers' queues.
#[derive(Clone, Debug)]
pub struct Depths {
    counts: Vec<u32>,
    levels: Vec<u64>,
    words_per_level: usize,
    lowest: u32,
}

impl Depths {
    /// `worker_count` empty queues.
    pub fn new(worker_count: usize) -> Depths {
        assert!(worker_count <= usize::from(u16::MAX) + 1, "a worker's id has 16 bits");
        let words_per_level = worker_count.div_ceil(WORD_BITS);
        let mut levels = vec![0; words_per_level * (DEEP as usize + 1)];
        for worker in 0..worker_count {
            levels[worker / WORD_BITS] |= 1 << (worker % WORD_BITS);
        }
        Depths { counts: vec![0; worker_count], levels, words_per_level, lowest: 0 }
    }

    /// The number of workers.
    #[inline]
    pub fn worker_count(&self) -> usize {
        self.counts.len()
    }

    /// The depth of `worker`'s queue.
    #[inline]
    pub fn of(&self, worker: WorkerId) -> u32 {
        self.counts[worker.index()]
    }

    /// Adds a request sent to `worker`.
    #[inline]
    pub fn add(&mut self, worker: WorkerId) {
        let count = self.counts[worker.index()];
        self.counts[worker.index()] = count + 1;
        if count >= DEEP {
            return;
        }
        self.flip(worker, count);
        self.flip(worker, count + 1);
        // The worker itself is at the next level, so if it was the last of this one, that level
        // satisfies I2.
        if count == self.lowest && self.level(count).iter().all(|word| *word == 0) {
            self.lowest = count + 1;
        }
    }

    /// Removes a request that `worker` has answered.
    #[inline]
    pub fn remove(&mut self, worker: WorkerId) {
        self.remove_many(worker, 1);
    }

    /// Removes `count` requests that `worker` has answered.
    #[inline]
    pub fn remove_many(&mut self, worker: WorkerId, answered: u32) {
        let count = self.counts[worker.index()];
        assert!(count >= answered, "{worker:?} has answered more than it was sent");
        let left = count - answered;
        self.counts[worker.index()] = left;
        if answered == 0 || left >= DEEP {
            return;
        }
        self.flip(worker, count.min(DEEP));
        self.flip(worker, left);
        self.lowest = self.lowest.min(left);
    }

    /// The worker with the smallest depth; of several the lowest id. There must be a worker.
    #[inline]
    pub fn shortest(&self) -> WorkerId {
        self.shortest_below(u32::MAX).expect("there is a worker")
    }

    /// The worker with the smallest depth, if that is below `bound`.
    #[inline]
    pub fn shortest_below(&self, bound: u32) -> Option<WorkerId> {
        if self.lowest >= DEEP {
            return self.scan(0..self.counts.len()).filter(|worker| self.of(*worker) < bound);
        }
        if self.lowest >= bound {
            return None;
        }
        let level = self.level(self.lowest);
        let index = level.iter().position(|word| *word != 0)?;
        Some(WorkerId((index * WORD_BITS) as u16 + level[index].trailing_zeros() as u16))
    }

    /// The shortest among the workers of `range` that holds less than `bound`.
    #[inline]
    pub fn shortest_of(&self, range: Range<u16>, bound: u32) -> Option<WorkerId> {
        let range = usize::from(range.start)..usize::from(range.end).min(self.counts.len());
        if range.len() == self.counts.len() {
            return self.shortest_below(bound);
        }
        let last = bound.min(DEEP).min(self.lowest + LEVELS_TRIED_MAX);
        let near = (self.lowest..last).find_map(|level| self.first_at(level, range.clone()));
        if near.is_some() || last == bound {
            return near;
        }
        self.scan(range).filter(|worker| self.of(*worker) < bound)
    }

    /// The first worker behind `after`, in a ring, with a depth above 0; never `after` itself.
    pub fn next_busy(&self, after: WorkerId) -> Option<WorkerId> {
        let (start, end) = (after.index() + 1, self.counts.len());
        let busy = self.first_busy(start..end).or_else(|| self.first_busy(0..after.index()))?;
        Some(WorkerId(busy as u16))
    }

    /// Whether no worker has a depth below `bound`.
    #[inline]
    pub fn all_at_least(&self, bound: u32) -> bool {
        if bound <= DEEP {
            return self.lowest >= bound;
        }
        self.counts.iter().all(|count| *count >= bound)
    }

    /// Recounts everything.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn validate(&self) {
        for (worker, count) in self.counts.iter().enumerate() {
            for level in 0..=DEEP {
                let bit = self.level(level)[worker / WORD_BITS] >> (worker % WORD_BITS) & 1;
                assert_eq!(bit == 1, level == (*count).min(DEEP), "I1: worker {worker} at {level}");
            }
        }
        let bits: u32 = self.levels.iter().map(|word| word.count_ones()).sum();
        assert_eq!(bits as usize, self.counts.len(), "I1: no bit but the workers'");
        let lowest = self.counts.iter().min().map_or(0, |count| (*count).min(DEEP));
        assert_eq!(self.lowest, lowest, "I2");
    }

    #[inline]
    fn level(&self, level: u32) -> &[u64] {
        let start = level as usize * self.words_per_level;
        &self.levels[start..start + self.words_per_level]
    }

    #[inline]
    fn flip(&mut self, worker: WorkerId, level: u32) {
        let start = level as usize * self.words_per_level;
        self.levels[start + worker.index() / WORD_BITS] ^= 1 << (worker.index() % WORD_BITS);
    }

    /// The first worker of `range` at a level.
    #[inline]
    fn first_at(&self, level: u32, range: Range<usize>) -> Option<WorkerId> {
        for (index, word) in self.level(level).iter().enumerate().skip(range.start / WORD_BITS) {
            let start = index * WORD_BITS;
            let before = range.start.saturating_sub(start);
            let word = word >> before << before;
            if word != 0 {
                let worker = start + word.trailing_zeros() as usize;
                return (worker < range.end).then_some(WorkerId(worker as u16));
            }
        }
        None
    }

    fn first_busy(&self, range: Range<usize>) -> Option<usize> {
        for (index, idle) in self.level(0).iter().enumerate().skip(range.start / WORD_BITS) {
            let start = index * WORD_BITS;
            let before = range.start.saturating_sub(start);
            let busy = !idle >> before << before;
            if busy != 0 {
                let worker = start + busy.trailing_zeros() as usize;
                return (worker < range.end).then_some(worker);
            }
        }
        None
    }

    #[cold]
    fn scan(&self, range: Range<usize>) -> Option<WorkerId> {
        let worker = range.min_by_key(|worker| self.counts[*worker])?;
        Some(WorkerId(worker as u16))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
