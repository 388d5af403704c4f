//! The two words of an entry whose value is replaced in place (K12): version and value. They are
//! separate from the log's memory so that the model checker runs the very same code.
//!
//! ```text
//!  writer, under the key's lock:   value = new     Release ─┐
//!                                  version = new   Release ─┼─┐
//!  reader:                         version ◀ Acquire ───────┼─┘  new version ⇒ new value
//!                                  value   ◀ Relaxed ───────┘    new value, then an Acquire fence
//!                                                                ⇒ chain's word: locked or newer
//! ```
//!
//! # Invariants
//! I1: a reader never sees a version together with a value older than it: a CAS with that version
//!     would overwrite a write that its client has not seen. An older version with a newer value is
//!     possible; a CAS with it fails.
//! I2: a reader of several keys that has seen a new value finds the chain's word moved or locked
//!     (K11): the compare-and-swap of the lock happens before the store of the value.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic word: of the log's memory, or of the model checker.
pub trait Word {
    /// Reads the word.
    fn load(&self, ordering: Ordering) -> u64;
    /// Replaces the word.
    fn store(&self, word: u64, ordering: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        AtomicU64::load(self, ordering)
    }

    #[inline]
    fn store(&self, word: u64, ordering: Ordering) {
        AtomicU64::store(self, word, ordering);
    }
}

#[cfg(loom)]
impl Word for base::sync::AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        base::sync::AtomicU64::load(self, ordering)
    }

    fn store(&self, word: u64, ordering: Ordering) {
        base::sync::AtomicU64::store(self, word, ordering);
    }
}

/// The words of version (with the shard above it) and value.
#[derive(Clone, Copy)]
pub struct InPlace<'a, W> {
    /// The word of the version.
    pub version: &'a W,
    /// The word of the value.
    pub value: &'a W,
}

impl<W: Word> InPlace<'_, W> {
    /// Replaces both; the caller holds the key's lock.
    #[inline]
    pub fn replace(self, value: u64, version: u64) {
        self.value.store(value, Ordering::Release); // I2
        self.version.store(version, Ordering::Release); // I1
    }

    /// Reads version and value, in this order.
    #[cfg(all(test, loom))]
    pub fn see(self) -> (u64, u64) {
        (see_version(self.version), see_value(self.value))
    }
}

/// Reads the word with the version, first. Acquire pairs with [`InPlace::replace`] (I1).
#[inline]
pub fn see_version(version: &impl Word) -> u64 {
    version.load(Ordering::Acquire)
}

/// Reads the value, after the version.
#[inline]
pub fn see_value(value: &impl Word) -> u64 {
    value.load(Ordering::Relaxed)
}
