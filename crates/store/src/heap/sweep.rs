//! A sweep: returns the free pages of its thread's heap to the kernel, in short steps.
//!
//! ```text
//!  take free blocks, the largest first ─▶ return their pages ─▶ keep them ─▶ ... ─▶ free them all
//!   from this thread's arena                if resident          so that each is taken once
//! ```
//!
//! Blocks that clients' requests grew in leave free pages between blocks in use, where glibc keeps
//! them for good. `malloc_trim` returns them, but holds the lock of an arena for 40 ms per 200 MB,
//! and its thread would wait. A sweep holds no lock longer than one allocation does.
//!
//! # Invariants
//! I1: only pages inside of blocks that the sweep has allocated are returned.
//! I2: blocks without resident pages are fresh memory, or were returned earlier. Few of these are
//!     taken, and as many more as earlier sweeps returned.
//!
//! # Limits
//! Free blocks below the smallest size stay. A sweep keeps at most 65,536 blocks.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Sizes of taken blocks, below the smallest threshold for blocks that glibc maps one by one.
const SIZES: [usize; 6] = [240 << 10, 120 << 10, 60 << 10, 30 << 10, 15 << 10, 15 << 9];
/// Taken blocks of each size that were not resident, at most: some at first, and others that were
/// returned before. Each costs a page for a moment.
const FRESH_BYTES_MIN: [usize; 6] = [16 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20];
const FRESH_BLOCKS_MAX: [usize; 6] = [4096, 512, 512, 512, 512, 512];
const BLOCKS_MAX: usize = 1 << 16;
/// glibc sorts freed blocks in the next allocation: one after so many, so that none sorts all.
const FREED_PER_SORT: usize = 64;
/// The fewest pages of a block.
const PAGE_BYTES_MIN: usize = 4096;
const PAGES_MAX: usize = SIZES[0] / PAGE_BYTES_MIN;

/// The sweeps of one thread's heap.
#[derive(Debug, Default)]
pub struct Sweep {
    /// The number of the last request.
    seen: u64,
    stage: Stage,
    blocks: Vec<Vec<u8>>,
    /// Bytes of each size that earlier sweeps returned, the recent ones above all.
    returned_bytes: [usize; SIZES.len()],
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// Taking blocks of a size.
    Taking {
        size: usize,
        fresh_bytes: usize,
        found_bytes: usize,
    },
    Freeing,
}

impl Sweep {
    /// Continues for about `limit`, or begins a sweep if the number of `requests` has changed.
    /// Returns whether there is more to do.
    pub fn step(&mut self, requests: u64, limit: Duration) -> bool {
        if matches!(self.stage, Stage::Idle) {
            if requests == self.seen {
                return false;
            }
            self.seen = requests;
            self.stage = Stage::Taking { size: 0, fresh_bytes: 0, found_bytes: 0 };
        }
        let began = Instant::now();
        while began.elapsed() < limit {
            match self.stage {
                Stage::Idle => return false,
                Stage::Taking { .. } => self.take(),
                Stage::Freeing => self.free_some(),
            }
        }
        true
    }

    fn take(&mut self) {
        let Stage::Taking { size, fresh_bytes, found_bytes } = &mut self.stage else { return };
        let at = *size;
        let mut block = Vec::new();
        if self.blocks.len() == BLOCKS_MAX || block.try_reserve_exact(SIZES[at]).is_err() {
            self.returned_bytes[at] = *found_bytes + self.returned_bytes[at] / 2;
            self.stage = Stage::Freeing;
            return;
        }
        let (resident, pages) = return_pages(block.spare_capacity_mut());
        self.blocks.push(block);
        // The first page of each is always touched, and may lie inside of the next time's block.
        if resident * 8 > pages {
            *found_bytes += SIZES[at];
            return;
        }
        *fresh_bytes += SIZES[at];
        let fresh_bytes_max =
            (FRESH_BYTES_MIN[at] + self.returned_bytes[at]).min(FRESH_BLOCKS_MAX[at] * SIZES[at]);
        if *fresh_bytes < fresh_bytes_max {
            return; // I2.
        }
        self.returned_bytes[at] = *found_bytes + self.returned_bytes[at] / 2;
        self.stage = match at + 1 {
            next if next < SIZES.len() => {
                Stage::Taking { size: next, fresh_bytes: 0, found_bytes: 0 }
            }
            _ => Stage::Freeing,
        };
    }

    fn free_some(&mut self) {
        let rest = self.blocks.len().saturating_sub(FREED_PER_SORT);
        self.blocks.truncate(rest);
        drop(std::hint::black_box(Vec::<u8>::with_capacity(SIZES[4])));
        if rest == 0 {
            self.blocks = Vec::new();
            self.stage = Stage::Idle;
        }
    }
}

/// Returns the whole pages inside of `block` to the kernel. Returns how many were resident, and how
/// many there are.
fn return_pages(block: &mut [MaybeUninit<u8>]) -> (usize, usize) {
    let page_bytes = page_bytes();
    let skipped_bytes = block.as_ptr().addr().wrapping_neg() % page_bytes;
    let Some(inner) = block.get_mut(skipped_bytes..) else { return (0, 0) };
    let page_count = (inner.len() / page_bytes).min(PAGES_MAX);
    if page_count == 0 {
        return (0, 0);
    }
    let pages = &mut inner[..page_count * page_bytes];
    let resident = resident_count(pages, page_count);
    if resident > 0 {
        discard(pages);
    }
    (resident, page_count)
}

#[cfg(not(miri))]
fn page_bytes() -> usize {
    rustix::param::page_size().max(PAGE_BYTES_MIN)
}

#[cfg(not(miri))]
fn resident_count(pages: &mut [MaybeUninit<u8>], page_count: usize) -> usize {
    let mut marks = [0_u8; PAGES_MAX];
    // SAFETY: whole mapped pages of a block that this thread owns, and a mark for each of them.
    let done = unsafe { libc::mincore(pages.as_mut_ptr().cast(), pages.len(), marks.as_mut_ptr()) };
    if done != 0 {
        return 0;
    }
    marks[..page_count].iter().filter(|&&mark| mark & 1 != 0).count()
}

#[cfg(not(miri))]
fn discard(pages: &mut [MaybeUninit<u8>]) {
    use rustix::mm::{Advice, madvise};
    // SAFETY: whole pages of a block that this thread owns (I1), whose bytes have no value yet.
    let _ = unsafe { madvise(pages.as_mut_ptr().cast(), pages.len(), Advice::LinuxDontNeed) };
}

/// Miri has no pages.
#[cfg(miri)]
fn page_bytes() -> usize {
    PAGE_BYTES_MIN
}

#[cfg(miri)]
fn resident_count(_pages: &mut [MaybeUninit<u8>], _page_count: usize) -> usize {
    0
}

#[cfg(miri)]
fn discard(_pages: &mut [MaybeUninit<u8>]) {}

#[cfg(test)]
#[cfg(all(target_env = "gnu", not(miri)))]
mod tests {
    use super::*;

    /// The resident bytes of what this range of freed memory was.
    fn resident_bytes(range: &std::ops::Range<usize>) -> usize {
        let page_bytes = page_bytes();
        let (first, end) = (range.start.next_multiple_of(page_bytes), range.end);
        let mut mark = 0;
        let pages = (first..end / page_bytes * page_bytes).step_by(page_bytes);
        let resident = pages.filter(|&page| {
            let page = std::ptr::without_provenance_mut(page);
            // SAFETY: it reads no memory, and fails for a page that is not mapped.
            let done = unsafe { libc::mincore(page, page_bytes, &raw mut mark) };
            done == 0 && mark & 1 != 0
        });
        resident.count() * page_bytes
    }

    /// Frees blocks of `block_bytes` with others between them, in a thread with its own arena.
    fn check(block_bytes: usize, left_part: usize) {
        let work = move || {
            let count = (32 << 20) / block_bytes;
            let pairs = (0..count).map(|_| (vec![1_u8; block_bytes], vec![1_u8; 64]));
            let blocks: Vec<_> = pairs.collect();
            let start = |block: &[u8]| block.as_ptr().addr();
            let ranges = blocks.iter().map(|(block, _)| start(block)..start(block) + block_bytes);
            let ranges: Vec<_> = ranges.collect();
            let between: Vec<_> = blocks.into_iter().map(|(_, between)| between).collect();
            let resident = || ranges.iter().map(resident_bytes).sum::<usize>();
            assert!(resident() > 24 << 20, "it stays resident: {}", resident());
            let mut sweep = Sweep::default();
            assert!(!sweep.step(0, Duration::MAX), "no request");
            for request in 1..=2 {
                let mut steps = 0_u32;
                while sweep.step(request, Duration::from_micros(100)) {
                    steps += 1;
                }
                assert!(steps > 0 && sweep.blocks.is_empty());
                assert!(!sweep.step(request, Duration::MAX), "once per request");
                let left = resident();
                assert!(left < (32 << 20) / left_part, "{left} left by {request}");
            }
            assert!(between.iter().all(|bytes| bytes.iter().all(|&byte| byte == 1)));
        };
        std::thread::spawn(work).join().unwrap();
    }

    #[test]
    fn free_pages_between_blocks_in_use_return_to_the_kernel() {
        check(120_000, 4);
        check(50_000, 4);
        check(20_000, 2);
    }
}
