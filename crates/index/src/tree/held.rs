//! Loads of a node's words: plain ones, except that the model checker must see those of a writer.
//!
//! Loom remembers one last access of each atomic. A writer's own plain load would hide an earlier
//! load of a reader, and loom would never try the interleaving in which the writer's store comes
//! first (decision 0013). So under loom a thread that holds a lock loads by an exchange that always
//! fails, which loom does track.

use base::sync::{AtomicU32, AtomicU64, Ordering};

/// Loads of a node's word.
pub(super) trait Load {
    /// The type of its bits.
    type Bits;

    /// A load for readers, and for writers that hold a lock.
    fn load_at(&self, ordering: Ordering) -> Self::Bits;

    /// A Relaxed load by a thread that holds a lock or is about to take it.
    fn load_held(&self) -> Self::Bits;
}

#[cfg(loom)]
loom::thread_local! {
    /// The number of node locks that this thread holds.
    static LOCKS_HELD: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

/// Counts a lock that this thread has taken.
#[inline]
pub(super) fn lock_taken() {
    #[cfg(loom)]
    LOCKS_HELD.with(|held| held.set(held.get() + 1));
}

/// Counts a lock that this thread has released.
#[inline]
pub(super) fn lock_freed() {
    #[cfg(loom)]
    LOCKS_HELD.with(|held| held.set(held.get().saturating_sub(1)));
}

macro_rules! load_of {
    ($atomic:ty, $bits:ty) => {
        impl Load for $atomic {
            type Bits = $bits;

            #[inline(always)]
            fn load_at(&self, ordering: Ordering) -> $bits {
                #[cfg(loom)]
                if LOCKS_HELD.with(|held| held.get()) > 0 {
                    return self.load_held();
                }
                self.load(ordering)
            }

            #[inline(always)]
            fn load_held(&self) -> $bits {
                #[cfg(not(loom))]
                return self.load(Ordering::Relaxed);
                #[cfg(loom)]
                return self
                    .compare_exchange(
                        <$bits>::MAX - 1,
                        <$bits>::MAX - 1,
                        Ordering::Relaxed,
                        Ordering::Acquire,
                    )
                    .unwrap_or_else(|found| found);
            }
        }
    };
}

load_of!(AtomicU32, u32);
load_of!(AtomicU64, u64);
