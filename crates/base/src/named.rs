//! The memory that an entry of a queue names, for loom tests.

use loom::cell::UnsafeCell;

/// Plain memory that the threads write in turn.
pub(crate) struct Named(UnsafeCell<u64>);

// SAFETY: the thread that holds the entry naming it has exclusive access; loom reports it if not.
unsafe impl Sync for Named {}
// SAFETY: as for Sync.
unsafe impl Send for Named {}

impl Named {
    pub(crate) fn new() -> Named {
        Named(UnsafeCell::new(0))
    }

    pub(crate) fn get(&self) -> u64 {
        // SAFETY: the caller holds the entry.
        self.0.with(|value| unsafe { *value })
    }

    pub(crate) fn set(&self, new: u64) {
        // SAFETY: the caller holds the entry.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}
