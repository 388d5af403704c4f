//! The process's heap: blocks of large values go back to the kernel when they are freed.
//!
//! glibc takes a block from the kernel if it is large, and raises what it calls large to the
//! largest block that was freed so far, up to 32 MiB. From then on each thread's arena keeps blocks
//! of that size: memory that no ledger counts. Fixed thresholds keep what an arena holds small.

/// Larger blocks are taken from the kernel one by one. Smaller ones are used again, which spares
/// their pages being cleared again.
const LARGE_BLOCK_BYTES: i32 = 4 << 20;

/// For the whole process; once, before it has threads.
pub fn return_large_blocks() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: `mallopt` changes numbers of the allocator, under its lock; it takes any value.
        let _ = unsafe { libc::mallopt(setting, LARGE_BLOCK_BYTES) };
    }
}
