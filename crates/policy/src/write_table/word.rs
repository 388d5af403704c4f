//! One entry of the write table, packed into a word.
//!
//! ```text
//!  63             37 36              21  20  19      17 16                 0
//!  +----------------+------------------+-----+----------+--------------------+
//!  | partition (27) | id (16)          | C   | rest (3) | count (17)         |
//!  +----------------+------------------+-----+----------+--------------------+
//!
//!  empty    all bits 0
//!  claimed  C = 1, count = 0, id = the dispatcher
//!  held     C = 0, count > 0, id = the worker
//!
//!  rest     in a set's first word only: how many of its other words are taken, or about to be
//! ```
//!
//! The *entry* of a word is all of it but `rest`.

use base::sync::{AtomicU64, Ordering};
use base::{PartitionId, WorkerId};

/// The state of a word's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Empty.
    Empty,
    /// A dispatcher is about to hold it.
    Claimed,
    /// A worker has this many outstanding writes.
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const EMPTY: Word = Word(0);
    pub(super) const PARTITION_MAX: u32 = (1 << Self::PARTITION_BITS) - 1;
    pub(super) const COUNT_MAX: u64 = (1 << Self::COUNT_BITS) - 1;

    const PARTITION_BITS: u32 = 27;
    const COUNT_BITS: u32 = 17;
    const REST_BITS: u32 = 3;
    const REST_ONE: u64 = 1 << Self::COUNT_BITS;
    const REST_MASK: u64 = ((1 << Self::REST_BITS) - 1) << Self::COUNT_BITS;
    const CLAIM_SHIFT: u32 = Self::COUNT_BITS + Self::REST_BITS;
    const ID_SHIFT: u32 = Self::CLAIM_SHIFT + 1;
    const PARTITION_SHIFT: u32 = Self::ID_SHIFT + u16::BITS;

    /// Sequentially consistent, see [`super`].
    #[inline]
    pub(super) fn load(atomic: &AtomicU64) -> Word {
        Word(atomic.load(Ordering::SeqCst))
    }

    /// The same load before a swap of the same word. Loom's own load would hide another thread's
    /// earlier one; an exchange that always fails does not (decision 0013).
    #[inline]
    pub(super) fn load_first(atomic: &AtomicU64) -> Word {
        #[cfg(not(loom))]
        return Word::load(atomic);
        #[cfg(loom)]
        match atomic.compare_exchange(u64::MAX, u64::MAX, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(bits) | Err(bits) => Word(bits),
        }
    }

    #[inline]
    pub(super) fn claimed(partition: PartitionId, dispatcher: WorkerId) -> Word {
        Word(Self::named(partition, dispatcher) | 1 << Self::CLAIM_SHIFT)
    }

    /// A held word with one write outstanding.
    #[inline]
    pub(super) fn held(partition: PartitionId, worker: WorkerId) -> Word {
        Word(Self::named(partition, worker) | 1)
    }

    #[inline]
    fn named(partition: PartitionId, id: WorkerId) -> u64 {
        u64::from(partition.0) << Self::PARTITION_SHIFT | u64::from(id.0) << Self::ID_SHIFT
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// The word without `rest`.
    #[inline]
    pub(super) fn entry(self) -> Word {
        Word(self.0 & !Self::REST_MASK)
    }

    /// This entry, with the `rest` of another word.
    #[inline]
    pub(super) fn beside(self, other: Word) -> Word {
        debug_assert!(self.0 & Self::REST_MASK == 0);
        Word(self.0 | other.0 & Self::REST_MASK)
    }

    #[inline]
    pub(super) fn state(self) -> State {
        match self.entry().0 {
            0 => State::Empty,
            word if word >> Self::CLAIM_SHIFT & 1 == 1 => State::Claimed,
            _ => State::Held,
        }
    }

    #[inline]
    pub(super) fn partition(self) -> PartitionId {
        PartitionId((self.0 >> Self::PARTITION_SHIFT) as u32)
    }

    /// Whether it is held by a write of `partition`: one comparison if it is not.
    #[inline]
    pub(super) fn holds(self, partition: PartitionId) -> bool {
        self.partition() == partition && self.state() == State::Held
    }

    /// The worker that holds, or the dispatcher that claims.
    #[inline]
    pub(super) fn id(self) -> WorkerId {
        WorkerId((self.0 >> Self::ID_SHIFT) as u16)
    }

    /// The word with one write more; `None`: the count is full.
    #[inline]
    pub(super) fn plus_one(self) -> Option<Word> {
        (self.0 & Self::COUNT_MAX != Self::COUNT_MAX).then_some(Word(self.0 + 1))
    }

    /// The word with one write less; with an empty entry, if it was the last.
    #[inline]
    pub(super) fn less_one(self) -> Word {
        debug_assert!(self.state() == State::Held);
        if self.0 & Self::COUNT_MAX == 1 {
            Word(self.0 & Self::REST_MASK)
        } else {
            Word(self.0 - 1)
        }
    }

    /// The word with one more of the other words taken; `None`: the count is full.
    #[inline]
    pub(super) fn rest_plus_one(self) -> Option<Word> {
        (self.0 & Self::REST_MASK != Self::REST_MASK).then(|| Word(self.0 + Self::REST_ONE))
    }

    /// The word with one less.
    #[inline]
    pub(super) fn rest_less_one(self) -> Word {
        debug_assert!(self.rest() > 0);
        Word(self.0 - Self::REST_ONE)
    }

    /// The number of the set's other words that are taken, or about to be.
    #[inline]
    pub(super) fn rest(self) -> usize {
        ((self.0 & Self::REST_MASK) >> Self::COUNT_BITS) as usize
    }
}

const _: () = {
    assert!(Word::PARTITION_SHIFT + Word::PARTITION_BITS == u64::BITS);
    assert!(Word::PARTITION_SHIFT == 37 && Word::ID_SHIFT == 21 && Word::CLAIM_SHIFT == 20);
    assert!(Word::REST_ONE == 1 << 17 && Word::REST_MASK == 7 << 17);
};
