//! The process's heap: blocks of large values go back to the kernel when they are freed.
//!
//! glibc takes a block from the kernel if it is large, and raises what it calls large to the
//! largest block that was freed so far, up to 32 MiB. From then on each thread's arena keeps blocks
//! of that size: memory that no ledger counts. Fixed thresholds keep what an arena holds small.

/// Larger blocks are taken from the kernel one by one. Smaller ones are used again, which spares
/// their pages being cleared again.
const LARGE_BLOCK_BYTES_MAX: u64 = 4 << 20;
const LARGE_BLOCK_BYTES_MIN: u64 = 256 << 10;

/// What the arenas keep is small beside all memory of a process that may take so much.
fn large_block_bytes(memory_bytes: u64) -> i32 {
    (memory_bytes / 64).clamp(LARGE_BLOCK_BYTES_MIN, LARGE_BLOCK_BYTES_MAX) as i32
}

/// For the whole process; once, before it has threads of its own.
pub fn return_large_blocks(memory_bytes: u64) {
    let large_bytes = large_block_bytes(memory_bytes);
    #[cfg(all(target_env = "gnu", not(miri)))]
    for setting in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: `mallopt` changes numbers of the allocator, under its lock; it takes any value.
        let _ = unsafe { libc::mallopt(setting, large_bytes) };
    }
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    let _ = large_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_processes_keep_little() {
        let blocks = [0, 64 << 20, 256 << 20, 1 << 40].map(large_block_bytes);
        assert_eq!(blocks, [256 << 10, 1 << 20, 4 << 20, 4 << 20]);
    }
}
