//! A ring between two threads: requests travel in batches, and the tail shows which ones are done.
//!
//! ```text
//!  entries   ...[done][done][ taken, being executed ][ published ][ pushed ].......
//!               ^ reclaimed  ^ tail                   ^ taken      ^ head    ^ pushed
//!                 (sender)     (receiver stores)        (receiver)   (sender   (sender)
//!                                                                     stores)
//!  entry     two words: 16 bytes, four to a cache line
//! ```
//!
//! The sender pushes entries and publishes them together by one store of `head`. The receiver takes
//! some, works on them and completes them together by one store of `tail`. No message comes back:
//! the sender finds in its own entries which ones the tail has passed (uTPS §3.4). The memory that
//! an entry names belongs to the receiver from the publication on, and to the sender again once the
//! tail has passed the entry.
//!
//! # Invariants
//! I1: `reclaimed <= tail <= taken <= head <= pushed <= reclaimed + capacity`. All count entries
//!     since the beginning; an entry's place is its number modulo the capacity.
//! I2: only the sender writes a place, and only while no published entry stands in it.
//! I3: the tail passes an entry once, after the receiver has worked on all entries up to it.
//!
//! # Concurrency
//! One sender and one receiver, each on one thread at a time. The sender's Release store of `head`
//! (P1) pairs with the receiver's Acquire load (T1): entries, and the memory they name, are
//! complete before the receiver sees them. The receiver's Release store of `tail` (C1) pairs with
//! the sender's Acquire load (R1): the work is done before the sender sees it as done. [`Bell`]
//! adds sleeping.
//!
//! # Limits
//! The capacity is a power of two. The sender must avoid filling the ring ([`Sender::has_room`]).
//!
//! # Trade-offs
//! uTPS gives every slot of its ring room for a whole batch. Here a batch is the entries between
//! two publications, so that a half-filled batch takes no more room than its entries, and a
//! receiver may take two small ones together. Head and tail still move once a batch, not once a
//! request.
//!
//! # References
//! uTPS §3.4; rules K15, K16.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, fence};

/// An entry of a ring.
pub type Entry = [u64; 2];

#[derive(Debug)]
struct Ring {
    places: Box<[[AtomicU64; 2]]>,
    /// The number of published entries; the sender stores it.
    head: CachePadded<AtomicU64>,
    /// The number of entries done; the receiver stores it.
    tail: CachePadded<AtomicU64>,
}

impl Ring {
    #[inline]
    fn place(&self, number: u64) -> &[AtomicU64; 2] {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    #[inline]
    fn read(&self, number: u64) -> Entry {
        // Relaxed: head and tail order these reads (P1, T1, C1, R1).
        let [first, second] = self.place(number);
        [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)]
    }
}

/// A ring of `capacity` entries, a power of two, and its two ends.
///
/// # Panics
/// If the capacity is not a power of two.
pub fn ring(capacity: usize) -> (Sender, Receiver) {
    assert!(capacity.is_power_of_two(), "a place is found by a mask");
    let place = |_| [AtomicU64::new(0), AtomicU64::new(0)];
    let ring = Arc::new(Ring {
        places: (0..capacity).map(place).collect(),
        head: CachePadded::new(AtomicU64::new(0)),
        tail: CachePadded::new(AtomicU64::new(0)),
    });
    let sender =
        Sender { ring: Arc::clone(&ring), pushed: 0, published: 0, reclaimed: 0, tail_seen: 0 };
    (sender, Receiver { ring, taken: 0, completed: 0, head_seen: 0 })
}

/// The end that pushes entries and learns which are done.
#[derive(Debug)]
pub struct Sender {
    ring: Arc<Ring>,
    pushed: u64,
    published: u64,
    reclaimed: u64,
    tail_seen: u64,
}

impl Sender {
    /// Whether another entry can be pushed. Places come back by [`Sender::reclaim`].
    #[inline]
    pub fn has_room(&self) -> bool {
        self.pushed - self.reclaimed < self.ring.places.len() as u64
    }

    /// Appends an entry; the receiver sees it only after [`Sender::publish`].
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        assert!(self.has_room(), "I1: a ring holds no more than its capacity");
        for (word, value) in self.ring.place(self.pushed).iter().zip(entry) {
            word.store(value, Ordering::Relaxed); // Published by P1.
        }
        self.pushed += 1;
    }

    /// The number of pushed entries that are not published.
    #[inline]
    pub fn unpublished_count(&self) -> u64 {
        self.pushed - self.published
    }

    /// Publishes the pushed entries; returns whether there were any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published == self.pushed {
            return false;
        }
        self.published = self.pushed;
        self.ring.head.store(self.pushed, Ordering::Release); // P1
        true
    }

    /// The next entry that is done, in the order of pushing. Its place is free again.
    #[inline]
    pub fn reclaim(&mut self) -> Option<Entry> {
        if self.reclaimed == self.tail_seen && !self.has_done() {
            return None;
        }
        let entry = self.ring.read(self.reclaimed); // Its own writing.
        self.reclaimed += 1;
        Some(entry)
    }

    /// Whether any entry is done and not reclaimed.
    #[inline]
    pub fn has_done(&mut self) -> bool {
        if self.reclaimed == self.published {
            return false; // Nothing is out, and the line stays with the receiver.
        }
        if self.reclaimed == self.tail_seen {
            self.tail_seen = self.ring.tail.load(Ordering::Acquire); // R1
            debug_assert!(self.tail_seen <= self.published, "I1");
        }
        self.reclaimed < self.tail_seen
    }

    /// The number of entries that are pushed and not reclaimed.
    #[inline]
    pub fn outstanding_count(&self) -> u64 {
        self.pushed - self.reclaimed
    }
}

/// The end that takes entries and reports when they are done.
#[derive(Debug)]
pub struct Receiver {
    ring: Arc<Ring>,
    taken: u64,
    completed: u64,
    head_seen: u64,
}

impl Receiver {
    /// How many entries can be taken.
    #[inline]
    pub fn waiting_count(&mut self) -> u64 {
        self.head_seen = self.ring.head.load(Ordering::Acquire); // T1
        debug_assert!(self.taken <= self.head_seen, "I1");
        self.head_seen - self.taken
    }

    /// Takes the next entry. The memory that it names is the receiver's until
    /// [`Receiver::complete`].
    #[inline]
    pub fn take(&mut self) -> Option<Entry> {
        if self.taken == self.head_seen && self.waiting_count() == 0 {
            return None;
        }
        let entry = self.ring.read(self.taken);
        self.taken += 1;
        Some(entry)
    }

    /// Whether the sender still exists.
    pub fn has_sender(&self) -> bool {
        Arc::strong_count(&self.ring) > 1
    }

    /// The entry that is taken after `ahead` others, if it was published when this end last looked
    /// ([`Receiver::waiting_count`] looks). The entry and the memory it names belong to the
    /// receiver already.
    #[inline]
    pub fn peek(&self, ahead: u64) -> Option<Entry> {
        let number = self.taken + ahead;
        (number < self.head_seen).then(|| self.ring.read(number))
    }

    /// Reports all taken entries as done (I3); returns whether there were any.
    #[inline]
    pub fn complete(&mut self) -> bool {
        if self.completed == self.taken {
            return false;
        }
        self.completed = self.taken;
        self.ring.tail.store(self.taken, Ordering::Release); // C1
        true
    }
}

/// Wakes a sleeping thread for which something may be published at any moment.
///
/// ```text
///  sleeper     raise the flag ─ fence ─ look at every ring ─▶ something: lower it, go on
///                                                          └▶ nothing: sleep in the kernel
///  publisher   publish ─ fence ─ look at the flag ─▶ raised: lower it, wake the sleeper
/// ```
///
/// # Invariants
/// I1: of a sleeper's look and a publisher's look, both behind their fences, at least one sees the
///     other side's store before its fence. So no thread goes to sleep and stays asleep while
///     something is published for it.
#[derive(Debug, Default)]
pub struct Bell {
    is_raised: AtomicBool,
}

impl Bell {
    /// A bell for which no thread waits.
    pub fn new() -> Bell {
        Bell { is_raised: AtomicBool::new(false) }
    }

    /// Called before the sleeper's last look: from now on publishers ring.
    #[inline]
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // I1
    }

    /// Called when the sleeper is awake.
    #[inline]
    pub fn lower(&self) {
        self.is_raised.store(false, Ordering::Relaxed);
    }

    /// Called after publishing: returns whether the caller has to wake the sleeper.
    #[inline]
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst); // I1
        self.is_rung()
    }

    /// Called after publishing something that any of several sleepers may see: returns the one that
    /// the caller has to wake.
    #[inline]
    pub fn must_ring_one<'b>(bells: impl IntoIterator<Item = &'b Bell>) -> Option<usize> {
        fence(Ordering::SeqCst); // I1
        bells.into_iter().position(Bell::is_rung)
    }

    #[inline]
    fn is_rung(&self) -> bool {
        // The swap lets only one of several publishers ring.
        self.is_raised.load(Ordering::Relaxed) && self.is_raised.swap(false, Ordering::Relaxed)
    }
}
