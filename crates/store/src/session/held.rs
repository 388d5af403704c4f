//! The locks of several keys that a session holds across requests (K11).
//!
//! # Invariants
//! H1: heads are ascending and distinct, and each is locked by this session.

use base::KeyHash;
use index::hash::Chain;

use crate::inner::Inner;

/// Heads whose lock the session holds.
#[derive(Default)]
pub(super) struct Held(Vec<u32>);

impl Held {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it holds the lock of a head.
    #[inline]
    pub(super) fn has(&self, head: u32) -> bool {
        self.0.binary_search(&head).is_ok()
    }

    /// Takes the locks of all chains of `hashes`.
    pub(super) fn lock_all(&mut self, inner: &Inner, hashes: &[KeyHash]) {
        inner.index.lock_all(hashes.iter().copied(), &mut self.0);
    }

    /// Releases all locks; returns their number.
    pub(super) fn release(&mut self, inner: &Inner) -> usize {
        let count = self.0.len();
        for head in self.0.drain(..) {
            inner.index.unlock_raw(head);
        }
        count
    }

    /// Locks a chain, unless this session holds the lock already.
    #[inline]
    pub(super) fn lock_chain<'a>(&self, inner: &'a Inner, hash: KeyHash) -> Chain<'a> {
        if !self.0.is_empty() {
            let head = inner.index.head_of(hash);
            if self.has(head) {
                return inner.index.locked(head);
            }
        }
        inner.index.lock(hash)
    }
}
