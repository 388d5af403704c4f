//! The clock that leases are measured by: monotonic, and it counts time in suspension (K3).

use base::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine's start.
#[inline]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Instant { ns: seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default() }
}
