//! The orderings and fences of the shared rings by name, so that a model check can remove one.
//!
//! A passing test shows little until it has been seen to fail. So each place that orders memory
//! accesses has a name here; the loom tests weaken these places one after another and expect a
//! failure. Outside those tests every place is as strong as it is written.

use base::sync::{Ordering, fence};

/// A place that orders memory accesses. The names are those of ring.rs and channel.rs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    W1,
    A1,
    W2,
    A2,
    P2,
    D2,
}

#[cfg(loom)]
thread_local! {
    /// Loom runs the threads of a model on the thread of its test.
    static WEAK: std::cell::Cell<Option<Place>> = const { std::cell::Cell::new(None) };
}

/// The ordering of this place.
#[inline(always)]
pub(crate) fn ordering(place: Place, strong: Ordering) -> Ordering {
    if is_weak(place) { Ordering::Relaxed } else { strong }
}

/// The sequentially consistent fence of this place.
#[inline(always)]
pub(crate) fn fence_at(place: Place) {
    if !is_weak(place) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(loom))]
#[inline(always)]
fn is_weak(_: Place) -> bool {
    false
}

#[cfg(loom)]
fn is_weak(place: Place) -> bool {
    WEAK.get() == Some(place)
}

/// Until it is dropped, a place has no ordering on this thread.
#[cfg(all(test, loom))]
pub(crate) struct Weakened;

#[cfg(all(test, loom))]
impl Weakened {
    pub fn at(place: Place) -> Weakened {
        WEAK.set(Some(place));
        Weakened
    }
}

#[cfg(all(test, loom))]
impl Drop for Weakened {
    fn drop(&mut self) {
        WEAK.set(None);
    }
}
