//! Cleaning passes over a whole log, oldest segment first, so that deletes can be dropped.
//!
//! ```text
//!  sequence:  | 4: emptied | 5: open, closed by its session | 6: its turn | 7 | ... | 31 |  32 ...
//!                                                            ^ at                        ^ end
//! ```
//!
//! A delete stays as long as a segment exists that was opened before the delete was written (D5).
//! If cleaning always took the sparsest segment, then in a log whose segments are nearly full of
//! live entries the oldest would never be emptied, and no delete would ever be dropped.
//!
//! # Invariants
//! P1: a pass ends at the sequence that was the next one when the pass began: the copies that it
//!     makes are not part of it.
//! P2: a pass begins only if deletes were written or dropped since the last one began, or if a
//!     segment that had kept some was closed since. Otherwise it would find the same deletes again.

use base::sync::{AtomicU64, Ordering};

/// The progress of the passes. All accesses are Relaxed: a lost race costs one pass more or fewer.
pub(super) struct Passes {
    /// The pass covers segments taken before this sequence (P1).
    end: AtomicU64,
    /// Segments up to this sequence have been handled.
    at: AtomicU64,
    /// Bytes of deletes that were written and dropped.
    changed_bytes: AtomicU64,
    /// The value of `changed_bytes` when the last pass began (P2).
    begun_bytes: AtomicU64,
}

impl Default for Passes {
    fn default() -> Passes {
        Passes {
            end: AtomicU64::new(0),
            at: AtomicU64::new(0),
            changed_bytes: AtomicU64::new(0),
            // The first pass waits for no delete.
            begun_bytes: AtomicU64::new(u64::MAX),
        }
    }
}

impl Passes {
    pub(super) fn changed(&self, len_bytes: u64) {
        self.changed_bytes.fetch_add(len_bytes, Ordering::Relaxed);
    }

    pub(super) fn passes_over(&self, sequence: u64, changed_min_bytes: u64, next: u64) -> bool {
        if sequence >= self.end.load(Ordering::Relaxed) {
            let changed_bytes = self.changed_bytes.load(Ordering::Relaxed);
            let since_bytes = changed_bytes.wrapping_sub(self.begun_bytes.load(Ordering::Relaxed));
            if since_bytes < changed_min_bytes {
                return false;
            }
            self.begun_bytes.store(changed_bytes, Ordering::Relaxed);
            self.end.store(next, Ordering::Relaxed);
        }
        self.at.fetch_max(sequence, Ordering::Relaxed);
        true
    }

    pub(super) fn has_passed(&self, sequence: u64) -> bool {
        sequence < self.at.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_where_it_began_and_the_next_one_waits_for_deletes() {
        let passes = Passes::default();
        assert!(passes.passes_over(3, 1, 9) && !passes.has_passed(3));
        assert!(passes.passes_over(8, 1, 12) && passes.has_passed(7));
        assert!(!passes.passes_over(9, 1, 12), "P2");
        passes.changed(40);
        assert!(!passes.passes_over(9, 41, 12) && passes.passes_over(9, 40, 12));
        assert!(passes.passes_over(11, 1, 15) && !passes.passes_over(12, 1, 15), "P1");
    }
}
