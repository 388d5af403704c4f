//! The heap of a server's process: jemalloc, of whose free pages few stay resident.
//!
//! ```text
//!  large block freed ─▶ counted; a quarter of the limit? ─▶ free pages above the limit?
//!                                                           yes: all return to the kernel
//!  free pages below it ─▶ reused ─▶ a second later, by a thread of jemalloc: returned
//! ```
//!
//! What clients send and read lies in the heap, and only its blocks in use are in a ledger. Free
//! pages are resident beside `--memory`, so they have a limit too (decision 0101): without it, each
//! worker's arena keeps the blocks of one length that clients have sent, while others come.
//!
//! # Invariants
//! P1: when a large block is freed, free pages of the heap are at most a quarter above the limit,
//!     but for pages that small blocks have left since the last look.
//! P2: large blocks that are freed in steady exchange for others cost no system call while the
//!     free pages stay below the limit; else the pages return at most once for each quarter of the
//!     limit that is freed.

#[cfg(not(miri))]
pub use limited::keep_free;

/// Miri has a heap of its own.
#[cfg(miri)]
pub fn keep_free(_: u64) {}

#[cfg(not(miri))]
mod limited {
    use std::alloc::{GlobalAlloc, Layout};
    use std::ffi::CStr;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use tikv_jemalloc_sys::mallctl;
    use tikv_jemallocator::Jemalloc;

    /// Blocks of this length and more have pages of their own.
    const LARGE_BYTES: usize = 16 << 10;
    const PAGE_BYTES: u64 = 4096;

    /// The allocator of every process that has a server.
    #[global_allocator]
    static HEAP: Heap = Heap;

    /// Read by jemalloc before its first allocation. Threads keep no blocks above 4 KiB for
    /// themselves, and at most 32 of each length.
    #[used]
    // SAFETY: jemalloc expects the address of a text that ends with a zero under this name, which
    // is the first word of a reference to bytes, and nothing else defines it.
    #[unsafe(export_name = "_rjem_malloc_conf")]
    static SETTINGS: &[u8] =
        b"background_thread:true,max_background_threads:1,dirty_decay_ms:1000,muzzy_decay_ms:0,\
          lg_tcache_max:12,tcache_nslots_small_max:32\0";

    /// See [`keep_free`].
    static KEPT_FREE_BYTES: AtomicU64 = AtomicU64::new(8 << 20);
    /// Bytes of large blocks that were freed since the last look.
    static FREED_BYTES: AtomicU64 = AtomicU64::new(0);
    static IS_LOOKING: AtomicBool = AtomicBool::new(false);

    /// Sets how many bytes of free pages may stay resident.
    pub fn keep_free(bytes: u64) {
        // Relaxed, here and below: the numbers guard no other memory.
        KEPT_FREE_BYTES.store(bytes, Ordering::Relaxed);
    }

    /// jemalloc, which counts large blocks as they are freed.
    struct Heap;

    // SAFETY: every call goes to jemalloc unchanged; what is counted beside it allocates nothing.
    unsafe impl GlobalAlloc for Heap {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promises are the callee's, here and below.
            unsafe { Jemalloc.alloc(layout) }
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: see above.
            unsafe { Jemalloc.alloc_zeroed(layout) }
        }

        #[inline]
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: see above.
            unsafe { Jemalloc.dealloc(block, layout) };
            if layout.size() >= LARGE_BYTES {
                count_freed(layout.size());
            }
        }

        #[inline]
        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: see above.
            let moved = unsafe { Jemalloc.realloc(block, layout, size) };
            if layout.size() >= LARGE_BYTES {
                count_freed(layout.size());
            }
            moved
        }
    }

    fn count_freed(bytes: usize) {
        let freed = FREED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if freed >= KEPT_FREE_BYTES.load(Ordering::Relaxed) / 4 {
            look();
        }
    }

    /// Returns the free pages if they are above the limit. One thread at a time looks.
    #[cold]
    fn look() {
        if !IS_LOOKING.swap(true, Ordering::Acquire) {
            FREED_BYTES.store(0, Ordering::Relaxed);
            if free_bytes() > KEPT_FREE_BYTES.load(Ordering::Relaxed) {
                return_free();
            }
            IS_LOOKING.store(false, Ordering::Release);
        }
    }

    /// Bytes of free pages that are resident, of all arenas (`MALLCTL_ARENAS_ALL` is 4096).
    fn free_bytes() -> u64 {
        let (mut now, mut pages) = (1_u64, 0_usize);
        control(c"epoch", ptr::null_mut::<u64>(), &raw mut now);
        control(c"stats.arenas.4096.pdirty", &raw mut pages, ptr::null_mut::<usize>());
        pages as u64 * PAGE_BYTES
    }

    fn return_free() {
        let none = ptr::null_mut::<u64>();
        control(c"arena.4096.purge", none, none);
    }

    /// Reads or writes a value of jemalloc, where the pointer is not null. An unknown name changes
    /// nothing, and the test below would see it.
    fn control<T>(name: &CStr, old: *mut T, new: *mut T) {
        let mut size = size_of::<T>();
        let old_bytes = if old.is_null() { ptr::null_mut() } else { &raw mut size };
        let new_bytes = if new.is_null() { 0 } else { size_of::<T>() };
        // SAFETY: the name ends with a zero; `old` and `new` are null, or point to a value of the
        // size given beside them, which jemalloc compares with its own.
        let error = unsafe { mallctl(name.as_ptr(), old.cast(), old_bytes, new.cast(), new_bytes) };
        debug_assert_eq!(error, 0, "{name:?}");
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Blocks of one length in the place of others leave pages between them.
        #[test]
        fn few_free_pages_stay_after_large_blocks_are_freed() {
            const MIB: usize = 1 << 20;
            let blocks = |bytes: usize| -> Vec<Vec<u8>> {
                (0..64 * MIB / bytes).map(|_| vec![1; bytes]).collect()
            };
            for bytes in [MIB, 20_000, 200_000, 60_000] {
                drop(blocks(bytes));
                let free = free_bytes();
                assert!(free < 24 << 20, "{free} bytes free after blocks of {bytes}");
            }
            let held = blocks(MIB);
            drop(held);
            return_free();
            assert!(free_bytes() < 8 << 20, "{}", free_bytes());
        }
    }
}
