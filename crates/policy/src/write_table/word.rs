//! One entry of the write table, packed into a word.
//!
//! ```text
//!  63                34 33              18  17   16                 0
//!  +-------------------+------------------+-----+--------------------+
//!  | partition (30)    | id (16)          | C   | count (17)         |
//!  +-------------------+------------------+-----+--------------------+
//!
//!  empty    all bits 0
//!  claimed  C = 1, count = 0, id = the dispatcher
//!  held     C = 0, count > 0, id = the worker
//! ```

use base::sync::{AtomicU64, Ordering};
use base::{PartitionId, WorkerId};

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Empty,
    /// A dispatcher is about to hold it.
    Claimed,
    /// A worker has this many writes.
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const EMPTY: Word = Word(0);
    pub(super) const PARTITION_MAX: u32 = (1 << Self::PARTITION_BITS) - 1;
    pub(super) const COUNT_MAX: u64 = (1 << Self::COUNT_BITS) - 1;

    const PARTITION_BITS: u32 = 30;
    const COUNT_BITS: u32 = 17;
    const CLAIM_SHIFT: u32 = Self::COUNT_BITS;
    const ID_SHIFT: u32 = Self::CLAIM_SHIFT + 1;
    const PARTITION_SHIFT: u32 = Self::ID_SHIFT + u16::BITS;

    /// Sequentially consistent, see [`super`].
    #[inline]
    pub(super) fn load(atomic: &AtomicU64) -> Word {
        Word(atomic.load(Ordering::SeqCst))
    }

    /// The same before a swap of the same word. Loom's own load would hide another thread's earlier
    /// one from it; an exchange that always fails does not (decision 0013).
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

    /// With one write outstanding.
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

    #[inline]
    pub(super) fn state(self) -> State {
        match self.0 {
            0 => State::Empty,
            word if word >> Self::CLAIM_SHIFT & 1 == 1 => State::Claimed,
            _ => State::Held,
        }
    }

    #[inline]
    pub(super) fn partition(self) -> PartitionId {
        PartitionId((self.0 >> Self::PARTITION_SHIFT) as u32)
    }

    /// The worker that holds, or the dispatcher that claims.
    #[inline]
    pub(super) fn id(self) -> WorkerId {
        WorkerId((self.0 >> Self::ID_SHIFT) as u16)
    }

    /// `None`: the count is full.
    #[inline]
    pub(super) fn plus_one(self) -> Option<Word> {
        (self.0 & Self::COUNT_MAX != Self::COUNT_MAX).then_some(Word(self.0 + 1))
    }

    /// Empty, if it was the last.
    #[inline]
    pub(super) fn less_one(self) -> Word {
        debug_assert!(self.state() == State::Held);
        if self.0 & Self::COUNT_MAX == 1 { Word::EMPTY } else { Word(self.0 - 1) }
    }
}

const _: () = {
    assert!(Word::PARTITION_SHIFT + Word::PARTITION_BITS == u64::BITS);
    assert!(Word::PARTITION_SHIFT == 34 && Word::ID_SHIFT == 18 && Word::CLAIM_SHIFT == 17);
};
