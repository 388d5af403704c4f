//! Messages to other workers: bytes in mailboxes, beside the ledger.

use std::sync::atomic::{AtomicU64, Ordering};

use super::BufferBudget;

/// The part of the client buffers for lines that are under way.
const UNDER_WAY_PART: u64 = 32;

/// Bytes that wait in mailboxes, because a busy worker takes none.
#[derive(Debug, Default)]
pub struct UnderWay(AtomicU64);

impl UnderWay {
    /// The most that may be under way.
    pub fn bytes_max(budget: &BufferBudget) -> u64 {
        budget.limit_bytes() / UNDER_WAY_PART
    }

    /// Adds a message's bytes, unless more than a part of the client buffers would be under way.
    pub fn try_add(&self, budget: &BufferBudget, bytes: usize) -> bool {
        let bytes_max = UnderWay::bytes_max(budget);
        // Relaxed: a sum that is read by itself.
        let before = self.0.fetch_add(bytes as u64, Ordering::Relaxed);
        let fits = before + bytes as u64 <= bytes_max;
        if !fits {
            self.remove(bytes);
        }
        fits
    }

    /// The message has arrived.
    pub fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}
