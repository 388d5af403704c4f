//! Prefetching one cache line; nothing on machines without the instruction.

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks for the line at `address` in all cache levels. Never faults.
#[inline(always)]
pub(crate) fn line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing the program can see and is defined for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the line at `address` to be written soon. Never faults.
#[inline(always)]
pub(crate) fn line_for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing the program can see and is defined for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
