//! The index's memory: segments borrowed from the log and split into blocks of lines (a buddy
//! allocator).
//!
//! ```text
//!  mapping:   | log | log | log | ...            ... | segment 62 | segment 63 | lent from there
//!  a segment: |           free, 2^3 lines            |  free 2^2  | f. | in use|
//!             0                                      8           12   14       16
//! ```
//!
//! A block of 2^n lines starts at a multiple of 2^n; its buddy is the other half of the block of
//! 2^(n+1). A block that is given back joins its buddy if that is free too; a whole free segment
//! returns to the log. A block's id is the number of its first line in the mapping.
//!
//! # Invariants
//! I1: a line is in use or in exactly one free block.
//! I2: two buddies are never both free, and no whole segment is free.
//! I3: no reader can still hold a block that is given back: the caller waited (epoch.rs).
//!
//! # Concurrency
//! One mutex, taken once for each block: once in some fifty inserts, when a chain gets an overflow
//! bucket.
//!
//! # Limits
//! Line numbers are 32 bits, so only the first 256 GiB of the mapping can be lent.
//!
//! # References
//! Knuth, The Art of Computer Programming 1, §2.5 (the buddy system).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard};

/// The lender of segments: the log, or a few lines under test.
pub trait Lender: Send + Sync {
    /// The lines of one segment, as a power of two.
    fn segment_log2_lines(&self) -> u32;
    /// Lends a segment and returns its first line; `None` if there is none to lend now.
    fn lend(&self) -> Option<u32>;
    /// Takes a lent segment back.
    fn take_back(&self, first_line: u32);
}

/// A block of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first line.
    pub first_line: u32,
    /// Its number of lines, as a power of two.
    pub log2_lines: u32,
}

impl Block {
    /// The block of one bucket.
    #[inline]
    pub fn line(line: u32) -> Block {
        Block { first_line: line, log2_lines: 0 }
    }

    /// Its number of lines.
    #[inline]
    pub fn line_count(self) -> u64 {
        1 << self.log2_lines
    }
}

/// Blocks of lines for all indexes of a store, in segments that the log lends.
pub struct Arena {
    lender: Arc<dyn Lender>,
    segment_log2_lines: u32,
    state: Mutex<State>,
}

struct State {
    /// Free blocks by size; I2 keeps the last one empty.
    free: Vec<BTreeSet<u32>>,
    used_lines: u64,
    segment_count: u32,
}

impl Arena {
    pub(crate) fn new(lender: Arc<dyn Lender>) -> Arena {
        let segment_log2_lines = lender.segment_log2_lines();
        let free = vec![BTreeSet::new(); segment_log2_lines as usize + 1];
        let state = Mutex::new(State { free, used_lines: 0, segment_count: 0 });
        Arena { lender, segment_log2_lines, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code that holds this lock panics")
    }

    /// The largest block that can be allocated.
    pub(crate) fn log2_lines_max(&self) -> u32 {
        self.segment_log2_lines
    }

    /// Takes a block of 2^`log2_lines` lines, with their old contents; returns the first line, or
    /// `None` if out of memory.
    pub(crate) fn take(&self, log2_lines: u32) -> Option<u32> {
        if log2_lines > self.segment_log2_lines {
            return None;
        }
        let mut state = self.state();
        let sizes = log2_lines..=self.segment_log2_lines;
        let found = sizes.clone().find_map(|size| {
            // The lowest block: used blocks gather, so that whole segments become free.
            state.free[size as usize].pop_first().map(|first| (first, size))
        });
        let (first, mut size) = match found {
            Some(found) => found,
            None => {
                let first = self.lender.lend()?;
                state.segment_count += 1;
                (first, self.segment_log2_lines)
            }
        };
        while size > log2_lines {
            size -= 1;
            state.free[size as usize].insert(first + (1 << size));
        }
        state.used_lines += 1 << log2_lines;
        Some(first)
    }

    /// Returns a block of [`Arena::take`] that no session holds any more (I3).
    pub(crate) fn give(&self, line: u32, log2_lines: u32) {
        let (mut first, mut size) = (line, log2_lines);
        assert!(first.is_multiple_of(1 << size), "a block starts at a multiple of its size");
        let mut state = self.state();
        state.used_lines -= 1 << size;
        while size < self.segment_log2_lines
            && state.free[size as usize].remove(&(first ^ 1 << size))
        {
            first &= !(1 << size);
            size += 1;
        }
        if size < self.segment_log2_lines {
            let is_new = state.free[size as usize].insert(first);
            assert!(is_new, "I1: a block is given back once");
            return;
        }
        state.segment_count -= 1;
        drop(state);
        self.lender.take_back(first);
    }

    /// The number of lines in taken blocks.
    pub(crate) fn used_lines(&self) -> u64 {
        self.state().used_lines
    }

    /// The number of lines in all lent segments.
    pub(crate) fn lent_lines(&self) -> u64 {
        u64::from(self.state().segment_count) << self.segment_log2_lines
    }

    /// Recounts I1 and I2.
    pub(crate) fn validate(&self) {
        let state = self.state();
        let mut free_lines = 0;
        for (size, blocks) in state.free.iter().enumerate() {
            free_lines += (blocks.len() as u64) << size;
            for first in blocks {
                assert!(first.is_multiple_of(1 << size), "I1: block {first} of 2^{size} lines");
                assert!(!blocks.contains(&(first ^ 1 << size)), "I2: buddies of {first} are free");
            }
        }
        let is_empty = state.free[self.segment_log2_lines as usize].is_empty();
        assert!(is_empty, "I2: no whole segment is free");
        let lent_lines = u64::from(state.segment_count) << self.segment_log2_lines;
        assert_eq!(free_lines + state.used_lines, lent_lines, "I1");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Lends segments of a few lines, and counts.
    pub(crate) struct FewLines {
        segment_log2_lines: u32,
        free: Mutex<Vec<u32>>,
    }

    impl FewLines {
        pub(crate) fn new(segment_log2_lines: u32, segments: u32) -> Arc<FewLines> {
            let free = (0..segments).rev().map(|segment| segment << segment_log2_lines).collect();
            Arc::new(FewLines { segment_log2_lines, free: Mutex::new(free) })
        }
    }

    impl Lender for FewLines {
        fn segment_log2_lines(&self) -> u32 {
            self.segment_log2_lines
        }

        fn lend(&self) -> Option<u32> {
            self.free.lock().unwrap().pop()
        }

        fn take_back(&self, first_line: u32) {
            self.free.lock().unwrap().push(first_line);
        }
    }

    #[cfg(not(loom))]
    mod without_loom {
        use proptest::collection::vec;
        use proptest::prelude::*;

        use super::*;

        const STEPS_MAX: usize = if cfg!(miri) { 40 } else { 200 };

        proptest! {
            #[test]
            fn blocks_never_overlap_and_all_memory_comes_back(
                steps in vec((any::<bool>(), 0_u32..5, any::<prop::sample::Index>()), 1..STEPS_MAX),
            ) {
                let lender = FewLines::new(4, 6);
                let arena = Arena::new(lender.clone());
                let mut taken: Vec<Block> = Vec::new();
                for (is_take, log2_lines, place) in steps {
                    if is_take {
                        let Some(first_line) = arena.take(log2_lines) else { continue };
                        let block = Block { first_line, log2_lines };
                        let end = |block: &Block| block.first_line + (1 << block.log2_lines);
                        let overlaps = taken.iter().any(|other| {
                            block.first_line < end(other) && other.first_line < end(&block)
                        });
                        prop_assert!(!overlaps, "{block:?} among {taken:?}");
                        taken.push(block);
                    } else if !taken.is_empty() {
                        let block = taken.swap_remove(place.index(taken.len()));
                        arena.give(block.first_line, block.log2_lines);
                    }
                    arena.validate();
                    let used: u64 = taken.iter().map(|block| block.line_count()).sum();
                    prop_assert_eq!(arena.used_lines(), used);
                }
                for block in taken {
                    arena.give(block.first_line, block.log2_lines);
                }
                prop_assert_eq!((arena.used_lines(), arena.lent_lines()), (0, 0));
                prop_assert_eq!(lender.free.lock().unwrap().len(), 6);
            }
        }

        #[test]
        fn a_block_larger_than_a_segment_cannot_be_had() {
            let arena = Arena::new(FewLines::new(2, 1));
            assert_eq!(arena.take(3), None);
            assert_eq!(arena.take(2), Some(0));
            assert_eq!(arena.take(0), None);
        }
    }
}
