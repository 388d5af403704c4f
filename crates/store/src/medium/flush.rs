//! Flushes of cache lines to persistent memory.
//!
//! ```text
//!  store ─▶ cache line ─clwb─▶ memory controller: what is there survives a loss of power
//!                              sfence: all lines that were flushed before are there
//! ```

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64 as arch;

/// The bytes that one instruction flushes, on every processor that has these instructions.
const LINE_BYTES: usize = 64;

/// The best instruction that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFlush {
    /// Writes the line back and keeps it.
    #[cfg_attr(any(miri, not(target_arch = "x86_64")), expect(dead_code, reason = "never found"))]
    WriteBack,
    /// Writes the line back and drops it.
    #[cfg_attr(any(miri, not(target_arch = "x86_64")), expect(dead_code, reason = "never found"))]
    Optimized,
    /// Writes the line back and drops it, serially: every x86-64 processor has it.
    #[cfg_attr(any(miri, not(target_arch = "x86_64")), expect(dead_code, reason = "never found"))]
    Plain,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl LineFlush {
    /// The best instruction; none: this processor is of another kind.
    pub(super) fn detect() -> Option<LineFlush> {
        const EXTENDED: u32 = 7;
        const CLFLUSHOPT_BIT: u32 = 1 << 23;
        const CLWB_BIT: u32 = 1 << 24;
        let has_extended = arch::__cpuid(0).eax >= EXTENDED;
        let bits = if has_extended { arch::__cpuid_count(EXTENDED, 0).ebx } else { 0 };
        Some(match bits {
            bits if bits & CLWB_BIT != 0 => LineFlush::WriteBack,
            bits if bits & CLFLUSHOPT_BIT != 0 => LineFlush::Optimized,
            _ => LineFlush::Plain,
        })
    }

    /// Flushes all lines of a range.
    ///
    /// # Safety
    /// The range is mapped.
    pub(super) unsafe fn flush(self, start: *mut u8, len_bytes: usize) {
        use std::arch::asm;
        let end = start.addr() + len_bytes;
        let mut line = start.map_addr(|address| address & !(LINE_BYTES - 1));
        while line.addr() < end {
            // A line with a byte of the range lies in a mapped page; no instruction changes memory,
            // registers or flags; `detect` has found this one. For the compiler they read and write
            // memory, so no store moves behind its flush.
            match self {
                LineFlush::WriteBack => {
                    // SAFETY: as above.
                    unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) };
                }
                LineFlush::Optimized => {
                    // SAFETY: as above.
                    unsafe {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    };
                }
                LineFlush::Plain => {
                    // SAFETY: as above.
                    unsafe {
                        asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags))
                    };
                }
            }
            line = line.wrapping_add(LINE_BYTES);
        }
    }

    /// Returns when all flushed lines are on the persistent memory.
    #[expect(clippy::unused_self, reason = "without a flush there is no fence")]
    pub(super) fn fence(self) {
        // SAFETY: every processor of this kind has the instruction.
        unsafe { arch::_mm_sfence() };
    }
}

#[cfg(any(miri, not(target_arch = "x86_64")))]
impl LineFlush {
    pub(super) fn detect() -> Option<LineFlush> {
        None
    }

    pub(super) unsafe fn flush(self, _start: *mut u8, _len_bytes: usize) {
        unreachable!("never found");
    }

    pub(super) fn fence(self) {
        unreachable!("never found");
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn flushing_leaves_memory_as_it_is() {
        let best = LineFlush::detect().expect("this kind has one");
        let mut bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for (start, len) in [(0, 1000), (0, 0), (63, 2), (129, 64)] {
            for flush in [best, LineFlush::Plain] {
                // SAFETY: a range of the vector.
                unsafe { flush.flush(bytes[start..].as_mut_ptr(), len) };
                flush.fence();
            }
        }
        assert!(bytes.iter().zip((0..=255).cycle()).all(|(found, wanted)| *found == wanted));
    }
}
