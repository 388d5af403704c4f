//! A queue that one thread fills and any thread empties, and a set of bits that mark finished work.
//!
//! ```text
//!  entries   ...[ taken, by whomever ][ published ][ pushed ].......
//!                                     ^ taken      ^ head    ^ pushed
//!                                (takers: one      (owner     (owner)
//!                                 step by CAS)      stores)
//!  done      one bit for what each entry names: takers set it, the owner clears it
//! ```
//!
//! The owner pushes entries and publishes them together by one store of `head`. An idle taker takes
//! the oldest entry by moving `taken` past it, works on the thing that the entry names, and sets
//! its bit in the owner's [`DoneSet`]. So a slow taker delays no other: their work becomes visible
//! before its own. The thing belongs to the taker once the entry is taken, and to the owner again
//! once its bit is set.
//!
//! # Invariants
//! I1: `taken <= head <= pushed <= taken + capacity`. All count entries since the beginning; an
//!     entry's place is its number modulo the capacity.
//! I2: each entry is taken once: `taken` moves by ones, and the taker that moves it has the entry.
//! I3: only the owner writes a place, and only when its last entry is taken.
//!
//! # Concurrency
//! One owner at a time, any number of takers. The owner's Release store of `head` (P1) pairs with a
//! taker's Acquire load (T1): entries, and the things they name, are complete before a taker sees
//! them. The taker's Release of a bit (D1) pairs with the owner's Acquire (D2): the work is done
//! before it becomes visible, and the place was read before it is written again. `taken` itself
//! publishes nothing, so it is moved Relaxed: it only counts up, so a taker that was overtaken
//! fails, whatever it has read.
//!
//! # Limits
//! The capacity is a power of two. The owner never has more entries waiting. It meets this limit if
//! entries name things from a set of at most that size, and if it pushes an entry only for a thing
//! that is not on its way.
//!
//! # Trade-offs
//! A ring with one receiver (`ring`) needs no CAS, and one tail reports a whole batch; but its
//! entries belong to one thread. Here each entry costs a CAS, and each word of done bits an RMW.
//!
//! # References
//! Minos §5.2 (HKH+WS); decision 0043.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crossbeam_utils::CachePadded;

use crate::ring::Entry;
use crate::sync::{Arc, AtomicU64, Ordering};

/// The queue, as takers use it.
#[derive(Debug)]
pub struct Offers {
    places: Box<[[AtomicU64; 2]]>,
    /// The number of published entries; the owner stores it.
    head: CachePadded<AtomicU64>,
    /// The number of taken entries; takers move it.
    taken: CachePadded<AtomicU64>,
}

impl Offers {
    /// A queue of `capacity` entries, a power of two.
    ///
    /// # Panics
    /// If the capacity is not a power of two.
    pub fn new(capacity: usize) -> Offers {
        assert!(capacity.is_power_of_two(), "a place is found by a mask");
        let place = |_| [AtomicU64::new(0), AtomicU64::new(0)];
        Offers {
            places: (0..capacity).map(place).collect(),
            head: CachePadded::new(AtomicU64::new(0)),
            taken: CachePadded::new(AtomicU64::new(0)),
        }
    }

    #[inline]
    fn place(&self, number: u64) -> &[AtomicU64; 2] {
        &self.places[number as usize & (self.places.len() - 1)]
    }

    /// How many entries can be taken; other takers may take them first.
    #[inline]
    pub fn waiting_count(&self) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.head.load(Ordering::Acquire).saturating_sub(taken) // T1
    }

    /// Takes the oldest entry. The thing that it names is the caller's until the caller sets its
    /// bit.
    #[inline]
    pub fn take(&self) -> Option<Entry> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            if self.head.load(Ordering::Acquire) <= taken {
                return None; // T1
            }
            // Read before `taken` moves past it, because the place may be overwritten afterwards.
            // If another taker has moved `taken` already, the CAS fails.
            let [first, second] = self.place(taken);
            let entry = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)];
            let next = taken + 1;
            // Relaxed: T1 and D1 provide the ordering.
            let order = Ordering::Relaxed;
            match self.taken.compare_exchange(taken, next, order, order) {
                Ok(_) => return Some(entry), // I2
                Err(now) => taken = now,
            }
        }
    }
}

/// The owner's end: it pushes and publishes.
#[derive(Debug)]
pub struct Offerer {
    offers: Arc<Offers>,
    pushed: u64,
    published: u64,
}

impl Offerer {
    /// The owner's end of a queue. There is one at a time; a later one continues where the last one
    /// ended.
    pub fn of(offers: &Arc<Offers>) -> Offerer {
        let published = offers.head.load(Ordering::Acquire);
        Offerer { offers: Arc::clone(offers), pushed: published, published }
    }

    /// Appends an entry and returns its number; takers see it only after [`Offerer::publish`].
    #[inline]
    pub fn push(&mut self, entry: Entry) -> u64 {
        debug_assert!(
            self.pushed - self.offers.taken.load(Ordering::Relaxed)
                < self.offers.places.len() as u64,
            "I1: no more entries wait than there are places"
        );
        for (word, value) in self.offers.place(self.pushed).iter().zip(entry) {
            word.store(value, Ordering::Relaxed); // Published by P1.
        }
        self.pushed += 1;
        self.pushed - 1
    }

    /// The number of pushed entries that are not published.
    #[inline]
    pub fn unpublished_count(&self) -> u64 {
        self.pushed - self.published
    }

    /// Whether takers may have seen the entry of that number.
    #[inline]
    pub fn is_published(&self, number: u64) -> bool {
        number < self.published
    }

    /// Publishes the pushed entries; returns whether there were any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published == self.pushed {
            return false;
        }
        self.published = self.pushed;
        self.offers.head.store(self.pushed, Ordering::Release); // P1
        true
    }

    /// The number of published entries that are not taken.
    #[inline]
    pub fn waiting_count(&self) -> u64 {
        self.offers.waiting_count()
    }
}

/// One bit for each of a number of things: set by the taker that worked on it, cleared by the
/// owner.
#[derive(Debug)]
pub struct DoneSet {
    words: Box<[AtomicU64]>,
}

impl DoneSet {
    /// Bits of one word.
    pub const WORD_BITS: u32 = u64::BITS;

    /// A set for `count` things, none of which is done.
    pub fn new(count: usize) -> DoneSet {
        let words = count.div_ceil(Self::WORD_BITS as usize);
        DoneSet { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Marks the things of `bits` in a word as done: they are their owner's again.
    #[inline]
    pub fn set(&self, word: usize, bits: u64) {
        let before = self.words[word].fetch_or(bits, Ordering::Release); // D1
        debug_assert!(before & bits == 0, "done once");
    }

    /// The number of words.
    #[inline]
    pub fn word_count(&self) -> usize {
        self.words.len()
    }

    /// Whether any thing is done that the owner has not taken yet.
    #[inline]
    pub fn has_any(&self) -> bool {
        // Relaxed: an owner that acts on the answer calls `take`, which acquires (D2).
        self.words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes and clears the done bits of a word; called by the owner.
    #[inline]
    pub fn take(&self, word: usize) -> u64 {
        let word = &self.words[word];
        // If there is nothing, the cache line stays with the takers.
        if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Acquire) } // D2
    }
}
