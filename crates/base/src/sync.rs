//! Atomics and locks for every lock-free structure: `std` normally, `loom` when model-checked.
//!
//! Structures that a loom test covers take their atomics only from here.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Arc, Mutex, MutexGuard};

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::{Arc, Mutex, MutexGuard};

/// Waiting for another thread, step by step: spins a few rounds, then yields the core.
///
/// Two spinning threads on one core cost a whole time slice at each hand-over, so no wait in
/// Dovetail spins without end.
#[derive(Default)]
pub struct Backoff {
    #[cfg_attr(loom, allow(dead_code))]
    step: u32,
}

impl Backoff {
    /// A fresh wait.
    pub fn new() -> Backoff {
        Backoff::default()
    }

    /// Waits a little, longer with each call.
    pub fn snooze(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        {
            if self.step < 6 {
                for _ in 0..(1 << self.step) {
                    std::hint::spin_loop();
                }
            } else {
                std::thread::yield_now();
            }
            self.step = self.step.saturating_add(1);
        }
    }
}
