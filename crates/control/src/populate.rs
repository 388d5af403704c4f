//! The populate thread: makes the log's memory resident ahead of the writers, and returns the pages
//! that a shrinking log frees to the kernel.
//!
//! ```text
//!  is it to end? ─▶ has the machine memory to spare? ─▶ one segment ─▶ again, or wait
//! ```
//!
//! # Invariants
//! I1: between two segments it checks whether it has to end.
//! I2: it makes memory resident only as long as a reserve remains for the machine and the cgroup.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use config::StartError;
use host::memory_limits::MemoryLimits;
use runtime::shared::Shared;
use store::Tended;

/// Log memory that is made resident ahead of the writers: a first touch in a write would cost it
/// several microseconds.
const AHEAD_BYTES: u64 = 64 << 20;
/// The memory made resident between two looks at the machine's memory.
const LOOK_EVERY_BYTES: u64 = 16 << 20;
/// The time it waits if there is nothing to do.
const REST: Duration = Duration::from_secs(60);
/// The time until it looks again at a machine without spare memory.
const SHORT_REST: Duration = Duration::from_secs(1);

/// The interval of the checks whether it has ended.
const STOP_LOOK: Duration = Duration::from_millis(1);

/// The running thread.
pub struct Populate {
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

impl Populate {
    /// Starts the thread.
    pub fn start(shared: &Arc<Shared>) -> Result<Populate, StartError> {
        let is_ended = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(shared), Arc::clone(&is_ended));
        let thread = std::thread::Builder::new()
            .name("populate".to_owned())
            .spawn(move || tend(&shared, &ended))
            .map_err(|source| StartError::System { what: "start a thread", source })?;
        Ok(Populate { is_ended, thread: Some(thread) })
    }

    /// Ends it, and waits until it has ended.
    pub fn stop(&mut self, shared: &Shared) {
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
    // I1.
    while !is_ended.load(Ordering::Acquire) {
        let may = allowance.allows(segment_bytes, || MemoryLimits::detect().spare_bytes());
        let ahead_bytes = if may { AHEAD_BYTES } else { 0 };
        let rest = if allowance.is_short { SHORT_REST } else { REST };
        match store.tend_memory(ahead_bytes, rest) {
            Tended::Populated => {
                allowance.left_bytes = allowance.left_bytes.saturating_sub(segment_bytes);
            }
            Tended::Refused => allowance.is_refused = true,
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
    fn a_kernel_that_refuses_is_not_asked_again() {
        let mut allowance = Allowance { is_refused: true, ..Allowance::default() };
        assert!(!allowance.allows(4 << 20, || u64::MAX));
    }
}
