//! The memory of the index: one-line buckets anywhere in the log's mapping, or a vector under the
//! model checker.
//!
//! # Concurrency
//! A line is accessed only through its atomics, and only while its block is taken from the arena.
//! The log writes the same memory only while it owns the segment (allocator.rs).

use std::ops::Index;

use super::bucket::Bucket;

/// All lines of the mapping, by number.
#[cfg(not(loom))]
pub struct Lines {
    start: std::ptr::NonNull<Bucket>,
    /// The number of lines, at most 2^32.
    line_count: u64,
    /// Keeps `start` mapped.
    _mapping: std::sync::Arc<crate::mapping::Mapping>,
}

#[cfg(not(loom))]
// SAFETY: a bucket is made of atomics; the pointer is into the mapping that this value keeps alive.
unsafe impl Send for Lines {}
#[cfg(not(loom))]
// SAFETY: as for Send.
unsafe impl Sync for Lines {}

#[cfg(not(loom))]
impl Lines {
    /// The lines of `mapping` that a 32-bit number can name: 256 GiB.
    pub fn over(mapping: std::sync::Arc<crate::mapping::Mapping>) -> Lines {
        let line_count = (mapping.len_bytes() / size_of::<Bucket>()) as u64;
        let start = std::ptr::NonNull::new(mapping.as_ptr().cast()).expect("a mapping's address");
        Lines { start, line_count: line_count.min(1 << u32::BITS), _mapping: mapping }
    }
}

#[cfg(not(loom))]
impl Index<u32> for Lines {
    type Output = Bucket;

    #[inline]
    fn index(&self, line: u32) -> &Bucket {
        assert!(u64::from(line) < self.line_count, "line numbers stay below the count");
        // SAFETY: the mapping holds `line_count` lines and this one is below (asserted).
        let bucket = unsafe { self.start.add(line as usize) };
        // SAFETY: any bytes are a valid bucket (only atomics); the mapping is aligned to a page
        // and lives as long as `self`; while the line is the index's, only atomics touch it.
        unsafe { bucket.as_ref() }
    }
}

/// Lines in a vector.
#[cfg(loom)]
pub struct Lines(Box<[Bucket]>);

#[cfg(loom)]
impl Lines {
    pub(crate) fn new(line_count: u32) -> Lines {
        Lines((0..line_count).map(|_| Bucket::empty()).collect())
    }

    /// Makes as many lines as the mapping has.
    pub fn over(mapping: std::sync::Arc<crate::mapping::Mapping>) -> Lines {
        Lines::new((mapping.len_bytes() / 64) as u32)
    }
}

#[cfg(loom)]
impl Index<u32> for Lines {
    type Output = Bucket;

    fn index(&self, line: u32) -> &Bucket {
        &self.0[line as usize]
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mapping::{HugePages, Mapping};

    #[test]
    fn the_last_line_that_a_number_can_name_is_there() {
        let bytes = (1 << u32::BITS) * size_of::<Bucket>();
        let mapping = Mapping::new(bytes, HugePages::Off).expect("address space");
        let lines = Lines::over(Arc::new(mapping));
        assert_eq!(lines[u32::MAX].word().version(), 0);
    }
}
