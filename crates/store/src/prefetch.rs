//! Prefetches one cache line as the switches say; counted in tests.

pub(crate) use index::prefetch::LINE_BYTES;

use crate::tuning::{Prefetch, Way, took};

/// Prefetches the line at `address` into all cache levels. Never faults.
#[inline(always)]
pub(crate) fn line(address: *const u8) {
    took(Way::Near);
    index::prefetch::line(address);
}

/// Prefetches the line at `address` into the nearest cache, to be evicted first. Never faults.
#[inline(always)]
fn line_non_temporal(address: *const u8) {
    took(Way::NonTemporal);
    index::prefetch::line_non_temporal(address);
}

/// Prefetches the line at `address` as `how` says, with a branch that is always predicted right.
#[inline(always)]
pub(crate) fn line_by(how: Prefetch, address: *const u8) {
    match how {
        Prefetch::On => line(address),
        Prefetch::NonTemporal => line_non_temporal(address),
        Prefetch::Off => {}
    }
}

/// [`line_by`], for code that is compiled once for each way.
pub(crate) trait Hint {
    /// Prefetches the line at `address`.
    fn line(address: *const u8);
}

/// [`Prefetch::On`].
pub(crate) struct Near;
/// [`Prefetch::NonTemporal`].
pub(crate) struct NonTemporal;
/// [`Prefetch::Off`].
pub(crate) struct Nothing;

impl Hint for Near {
    #[inline(always)]
    fn line(address: *const u8) {
        line(address);
    }
}

impl Hint for NonTemporal {
    #[inline(always)]
    fn line(address: *const u8) {
        line_non_temporal(address);
    }
}

impl Hint for Nothing {
    #[inline(always)]
    fn line(_address: *const u8) {}
}

/// Prefetches the line at `address` for writing. Never faults.
#[inline(always)]
pub(crate) fn line_for_write(address: *const u8) {
    took(Way::ForWrite);
    index::prefetch::line_for_write(address);
}
