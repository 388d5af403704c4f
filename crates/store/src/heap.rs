//! Settings of the process's heap: the blocks of large values return to the kernel when freed.
//!
//! glibc allocates a block directly from the kernel if it is large, and raises its threshold for
//! "large" to the largest block freed so far, up to 32 MiB. From then on each thread's arena keeps
//! blocks of that size, memory that no ledger counts. Fixed thresholds keep the arenas small.
//! Smaller blocks that many clients held at once are returned by a [`Sweep`].

mod sweep;

pub use sweep::Sweep;

/// Larger blocks are allocated from the kernel one by one. Smaller ones are reused, which avoids
/// clearing their pages again.
const LARGE_BLOCK_BYTES_MAX: u64 = 4 << 20;
const LARGE_BLOCK_BYTES_MIN: u64 = 256 << 10;

/// A thread's arena keeps blocks up to this part of all memory that the process may take.
const KEPT_PART: u64 = 64;

/// The same part if values also pass through threads for links and copies.
const KEPT_PART_OF_MANY_HANDS: u64 = 256;

fn large_block_bytes(memory_bytes: u64, passes_many_hands: bool) -> i32 {
    let part = if passes_many_hands { KEPT_PART_OF_MANY_HANDS } else { KEPT_PART };
    (memory_bytes / part).clamp(LARGE_BLOCK_BYTES_MIN, LARGE_BLOCK_BYTES_MAX) as i32
}

/// Sets the thresholds for the whole process, before it starts threads and as its memory changes.
/// If large values pass through many threads, smaller blocks return to the kernel as well.
pub fn return_large_blocks(memory_bytes: u64, passes_many_hands: bool) {
    let large_bytes = large_block_bytes(memory_bytes, passes_many_hands);
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
        let caps = [0, 64 << 20, 256 << 20, 1 << 40];
        let alone = caps.map(|bytes| large_block_bytes(bytes, false));
        assert_eq!(alone, [256 << 10, 1 << 20, 4 << 20, 4 << 20]);
        let of_many = caps.map(|bytes| large_block_bytes(bytes, true));
        assert_eq!(of_many, [256 << 10, 256 << 10, 1 << 20, 4 << 20]);
    }
}
