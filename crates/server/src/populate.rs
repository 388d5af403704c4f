//! The populate thread: makes the log's memory resident ahead of the writers, and returns the pages
//! that a shrinking log frees to the kernel. After that it looks whether heaps keep too much.
//!
//! ```text
//!  is it to end? ─▶ has the machine memory to spare? ─▶ one segment ─▶ again, or wait
//!                                                       none: has the server shrunk, and is more
//!                                                       resident? ─▶ workers sweep their heaps
//! ```
//!
//! # Invariants
//! I1: between two segments it checks whether it has to end.
//! I2: it makes memory resident only as long as a reserve remains for the machine and the cgroup.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use store::Tended;

use crate::error::StartError;
use crate::memory_limits::MemoryLimits;
use crate::shared::Shared;

/// Log memory that is made resident ahead of the writers: a first touch in a write would cost it
/// several microseconds.
const AHEAD_BYTES: u64 = 64 << 20;
/// The memory made resident between two looks at the machine's memory.
const LOOK_EVERY_BYTES: u64 = 16 << 20;
/// The time it waits if there is nothing to do.
const REST: Duration = Duration::from_secs(60);
/// The time until it looks again at a machine without spare memory.
const SHORT_REST: Duration = Duration::from_secs(1);

/// The time between two sweeps of the heaps, and the longest if sweeps return little.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(64);
/// A sweep that returns less is one that returns little.
const LITTLE_BYTES: u64 = 1 << 20;

/// The interval of the checks whether it has ended.
const STOP_LOOK: Duration = Duration::from_millis(1);

/// The running thread.
pub(crate) struct Populate {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The memory that may be made resident until the next look.
#[derive(Debug, Default)]
struct Allowance {
    left_bytes: u64,
    /// The kernel cannot make memory resident ahead of its use.
    is_refused: bool,
    is_short: bool,
}

impl Allowance {
    /// Whether another segment may be made resident (I2); `spare_bytes` looks at the machine.
    fn allows(&mut self, segment_bytes: u64, spare_bytes: impl FnOnce() -> u64) -> bool {
        if self.is_refused {
            return false;
        }
        if self.left_bytes < segment_bytes {
            let spare_bytes = spare_bytes();
            let is_short = spare_bytes < LOOK_EVERY_BYTES.max(segment_bytes);
            if is_short && !self.is_short {
                tracing::warn!(
                    spare_bytes,
                    "memory: the machine or its cgroup has no more to spare; the log is not made \
                     resident ahead of its writers"
                );
            }
            self.is_short = is_short;
            self.left_bytes = if is_short { 0 } else { LOOK_EVERY_BYTES.max(segment_bytes) };
        }
        !self.is_short
    }
}

/// When the heaps are swept next.
#[derive(Debug)]
struct Sweeps {
    next_at: Instant,
    every: Duration,
    /// Resident memory at the last sweep.
    resident_bytes: u64,
}

impl Sweeps {
    fn new(now: Instant) -> Sweeps {
        Sweeps { next_at: now, every: SWEEP_EVERY, resident_bytes: u64::MAX }
    }

    /// Whether a sweep is due; `surplus` looks at resident memory if it is too much.
    fn is_due(&mut self, now: Instant, surplus: impl FnOnce() -> Option<u64>) -> bool {
        if now < self.next_at {
            return false;
        }
        let Some(resident_bytes) = surplus() else {
            *self = Sweeps { next_at: now + SWEEP_EVERY, ..Sweeps::new(now) };
            return false;
        };
        // Less again: it helps, or clients give up more. More again: there is more to find.
        let returned_little = self.resident_bytes.abs_diff(resident_bytes) < LITTLE_BYTES;
        self.every = match returned_little {
            true => (self.every * 2).min(SWEEP_EVERY_MAX),
            false => SWEEP_EVERY,
        };
        self.resident_bytes = resident_bytes;
        self.next_at = now + self.every;
        true
    }
}

impl Populate {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Populate, StartError> {
        let is_ended = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(shared), Arc::clone(&is_ended));
        let thread = std::thread::Builder::new()
            .name("populate".to_owned())
            .spawn(move || tend(&shared, &ended))
            .map_err(|source| StartError::System { what: "start a thread", source })?;
        Ok(Populate { is_ended, thread: Some(thread) })
    }

    pub(crate) fn stop(&mut self, shared: &Shared) {
        self.is_ended.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        // Repeatedly: the thread may be about to wait.
        while !thread.is_finished() {
            shared.store().wake_tender();
            std::thread::sleep(STOP_LOOK);
        }
        if thread.join().is_err() {
            tracing::error!("the populate thread panicked");
        }
    }
}

fn tend(shared: &Shared, is_ended: &AtomicBool) {
    let store = shared.store();
    let segment_bytes = store.limits().segment_bytes;
    let mut allowance = Allowance::default();
    let mut sweeps = Sweeps::new(Instant::now());
    // I1.
    while !is_ended.load(Ordering::Acquire) {
        let may = allowance.allows(segment_bytes, || MemoryLimits::detect().spare_bytes());
        let ahead_bytes = if may { AHEAD_BYTES } else { 0 };
        let is_watchful = allowance.is_short || shared.has_shrunk();
        let rest = if is_watchful { SHORT_REST } else { REST };
        match store.tend_memory(ahead_bytes, rest) {
            Tended::Populated => {
                allowance.left_bytes = allowance.left_bytes.saturating_sub(segment_bytes);
            }
            Tended::Refused => allowance.is_refused = true,
            Tended::Rested if sweeps.is_due(Instant::now(), || shared.surplus_resident_bytes()) => {
                shared.sweep_heaps();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_memory_to_spare_is_looked_at_again_and_none_is_taken() {
        let mut allowance = Allowance::default();
        assert!(!allowance.allows(4 << 20, || (16 << 20) - 1));
        assert!(allowance.allows(4 << 20, || 16 << 20));
        allowance.left_bytes -= 12 << 20;
        assert!(allowance.allows(4 << 20, || panic!("16 MiB are allowed by one look")));
        allowance.left_bytes -= 4 << 20;
        assert!(!allowance.allows(4 << 20, || 0));
    }

    #[test]
    fn heaps_are_swept_while_too_much_is_resident_and_seldom_once_sweeps_return_little() {
        let mut now = Instant::now();
        let mut sweeps = Sweeps::new(now);
        let mut at = |after_s: u64, resident_mib: Option<u64>| {
            now += Duration::from_secs(after_s);
            sweeps.is_due(now, || resident_mib.map(|mib| mib << 20))
        };
        assert!(at(0, Some(300)));
        assert!(at(1, Some(200)), "the last one has returned much");
        assert!(at(1, Some(200)), "this one returned little");
        assert!(!at(1, Some(300)), "it rests");
        assert!(at(1, Some(200)));
        assert!(!at(3, Some(200)));
        assert!(at(1, Some(150)), "clients have given up some");
        assert!(at(1, Some(150)));
        assert!(!at(2, None));
        assert!(at(1, Some(150)), "no longer too much, and again");
    }

    #[test]
    fn a_kernel_that_refuses_is_not_asked_again() {
        let mut allowance = Allowance { is_refused: true, ..Allowance::default() };
        assert!(!allowance.allows(4 << 20, || u64::MAX));
    }
}
