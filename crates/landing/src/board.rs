//! The board: shares one zone among several readers. It assigns each message to a reader and knows
//! when all are done with it.
//!
//! ```text
//!   numbers     0 1 2 3 4 5 6 7 8 9 ...
//!   reader      0 1 0 1 0 1 0 1 2 0 1 2        n = 2 below 8, n = 3 from 8 on
//!                   │   │       │ └ published
//!   cursors         1   0       └ the predefined slot of the change
//!                   └ released: no reader needs anything below
//! ```
//!
//! The thread that posts buffers publishes the messages that have landed. Reader `i` takes the
//! numbers `m` with `m mod n = i` (uTPS §3.2.1, K19) and does not wait for the others. `n` changes
//! at a predefined number (uTPS §3.5): the next one to be published, so that a reader knows of the
//! change before any message that it concerns exists.
//!
//! # Invariants
//! O1: each number is taken by exactly one reader, its owner under the `n` that holds there.
//! O2: a reader takes its numbers in increasing order.
//! O3: no message is released before its owner has given it back.
//! O4: the next change waits until all readers that the last one concerns have passed its number.
//!
//! # Concurrency
//! The [`Poster`] belongs to one thread, each [`Reader`] to one. `published` (Release) publishes
//! slots and plan to `take` (Acquire, P1); a cursor (Release) tells `released` (Acquire, P2) that
//! its reader is done with the bytes below.
//!
//! # Limits
//! 1023 readers; 2^53 messages.

use crossbeam_utils::CachePadded;

use base::sync::{Arc, AtomicU64, Ordering};

use crate::{Completion, Region, Sender, Zone};

/// The first number from `from` on that reader `index` of `reader_count` owns.
fn first_owned(from: u64, index: u64, reader_count: u64) -> u64 {
    let ahead = (index + reader_count - from % reader_count) % reader_count;
    from + ahead
}

/// The number of readers that share the numbers from `at` on.
///
/// ```text
///  63                     11 10         1 0
///  +------------------------+------------+--------+
///  | first number           | readers    | parity |
///  +------------------------+------------+--------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    at: u64,
    reader_count: u64,
    /// The parity of the change's own number: distinguishes a reader's cursor before the change
    /// from one after it.
    parity: u64,
}

/// The maximum number of readers in a plan.
const READERS_MAX: u64 = (1 << 10) - 1;

impl Plan {
    fn word(self) -> u64 {
        debug_assert!(self.at < 1 << 53 && self.reader_count <= READERS_MAX && self.parity <= 1);
        self.at << 11 | self.reader_count << 1 | self.parity
    }

    fn of_word(word: u64) -> Plan {
        Plan { at: word >> 11, reader_count: word >> 1 & READERS_MAX, parity: word & 1 }
    }
}

/// A reader without a number to wait for.
const IDLE: u64 = u64::MAX;

/// The position of a reader: the number that it has not given back yet, or that it will take next;
/// and the parity of the plan that it follows.
fn cursor_word(number: u64, parity: u64) -> u64 {
    number << 1 | parity
}

/// A completion, as words that another thread may read.
struct Slot([AtomicU64; 5]);

impl Slot {
    fn store(&self, completion: &Completion) {
        let [first, second, third] = completion.sender.words();
        let offset = completion.offset_bytes as u64;
        let words = [first, second, third, offset, u64::from(completion.len_bytes)];
        for (slot, word) in self.0.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    fn load(&self, number: u64) -> Completion {
        let [first, second, third, offset, len] =
            std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed));
        Completion {
            sender: Sender::of_words([first, second, third]),
            offset_bytes: offset as usize,
            len_bytes: len as u32,
            number,
        }
    }
}

/// Written by the poster, read by all readers at each `take`: one line.
struct Head {
    published: AtomicU64,
    plan: AtomicU64,
}

struct Board {
    head: CachePadded<Head>,
    /// Indexed by number modulo their count, which is a power of two.
    slots: Box<[Slot]>,
    /// Each written by its reader only.
    cursors: Box<[CachePadded<AtomicU64>]>,
    region: Arc<Region>,
}

impl Board {
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }
}

/// Makes a board with `reader_max` readers, of which the first `reader_count` are active, for a
/// zone from which nothing has been taken.
pub fn board(zone: &Zone, reader_max: u16, reader_count: u16) -> (Poster, Vec<Reader>) {
    let (all, active) = (u64::from(reader_max), u64::from(reader_count));
    assert!(all <= READERS_MAX, "a plan can name all readers");
    assert!(active >= 1 && active <= all, "at least one reader is active");
    assert_eq!(zone.released_below(), 0, "a board is made for a fresh zone");
    let plan = Plan { at: 0, reader_count: active, parity: 0 };
    let slot = |_| Slot(std::array::from_fn(|_| AtomicU64::new(0)));
    let cursor = |index: u64| {
        let word = if index < active { cursor_word(index, 0) } else { IDLE };
        CachePadded::new(AtomicU64::new(word))
    };
    let board = Arc::new(Board {
        head: CachePadded::new(Head {
            published: AtomicU64::new(0),
            plan: AtomicU64::new(plan.word()),
        }),
        slots: (0..zone.size().completions_max).map(slot).collect(),
        cursors: (0..all).map(cursor).collect(),
        region: zone.region(),
    });
    let reader = |index: u64| Reader {
        board: board.clone(),
        index,
        plan,
        next: if index < active { index } else { IDLE },
        oldest_held: None,
    };
    let readers = (0..all).map(reader).collect();
    (Poster { board, published: 0, before: active, plan }, readers)
}

/// The side of the thread that posts buffers.
pub struct Poster {
    board: Arc<Board>,
    published: u64,
    /// The number of readers before the plan.
    before: u64,
    plan: Plan,
}

/// The last change of readers is not finished: some have not reached its number yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("readers have not passed number {at} yet, where they change")]
pub struct ChangePending {
    /// The number of the last change.
    pub at: u64,
}

impl Poster {
    /// Passes landed messages on to the readers, and gives back to the zone those that all readers
    /// are done with. The zone is the one that the board was made for. Returns the number of
    /// messages passed on.
    pub fn pass_on(&mut self, zone: &mut Zone) -> usize {
        let before = self.published;
        while let Some(completion) = zone.take() {
            assert_eq!(completion.number(), self.published, "Z1: numbers are consecutive");
            self.board.slot(self.published).store(&completion);
            self.published += 1;
        }
        // Release: the slots, and a plan for numbers from here on, come before (P1).
        self.board.head.published.store(self.published, Ordering::Release);
        zone.release(self.released());
        (self.published - before) as usize
    }

    /// From the next message on, `reader_count` readers share the work. Returns the number of that
    /// message.
    pub fn change_readers(&mut self, reader_count: u16) -> Result<u64, ChangePending> {
        let reader_count = u64::from(reader_count);
        let is_possible = reader_count >= 1 && reader_count <= self.board.cursors.len() as u64;
        assert!(is_possible, "there are that many readers");
        if !self.is_settled() {
            return Err(ChangePending { at: self.plan.at });
        }
        self.before = self.plan.reader_count;
        self.plan = Plan { at: self.published, reader_count, parity: self.plan.parity ^ 1 };
        // Release: pairs with the load in `Reader::follow`; its numbers are published later (P1).
        self.board.head.plan.store(self.plan.word(), Ordering::Release);
        Ok(self.plan.at)
    }

    /// Whether all readers that the last change concerns have passed its number (O4).
    pub fn is_settled(&self) -> bool {
        let concerned = self.before.max(self.plan.reader_count);
        (0..concerned).all(|index| self.follows(index, self.cursor(index)))
    }

    /// The number below which no reader needs any message.
    fn released(&self) -> u64 {
        let concerned = self.before.max(self.plan.reader_count);
        (0..concerned)
            .map(|index| (index, self.cursor(index)))
            .map(|(index, cursor)| match cursor {
                IDLE if self.follows(index, cursor) => self.published,
                IDLE => self.plan.at,
                // A cursor of the previous plan skips numbers that belong to its reader from `at`
                // on.
                _ if !self.follows(index, cursor) => (cursor >> 1).min(self.plan.at),
                _ => cursor >> 1,
            })
            .fold(self.published, u64::min)
    }

    fn follows(&self, index: u64, cursor: u64) -> bool {
        let is_active = index < self.plan.reader_count;
        if is_active { cursor != IDLE && cursor & 1 == self.plan.parity } else { cursor == IDLE }
    }

    fn cursor(&self, index: u64) -> u64 {
        // Acquire: the reader's last reads of bytes come before their reuse (P2).
        self.board.cursors[index as usize].load(Ordering::Acquire)
    }
}

/// One reader's side.
pub struct Reader {
    board: Arc<Board>,
    index: u64,
    plan: Plan,
    /// The next number of its own; `IDLE` while it has none.
    next: u64,
    /// The oldest number that it took and has not given back.
    oldest_held: Option<u64>,
}

impl Reader {
    /// The next message of this reader, if it has landed.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        // Acquire: sees everything that the poster wrote before it published these numbers (P1).
        let published = self.board.head.published.load(Ordering::Acquire);
        self.follow();
        if self.next >= published {
            return None;
        }
        let completion = self.board.slot(self.next).load(self.next);
        self.oldest_held.get_or_insert(self.next);
        self.next += self.plan.reader_count;
        Some(completion)
    }

    /// Adopts a change of readers once its number is reached.
    fn follow(&mut self) {
        // Acquire: pairs with `change_readers`. A plan newer than `published` does no harm: it
        // begins at or after it.
        let word = self.board.head.plan.load(Ordering::Acquire);
        let plan = Plan::of_word(word);
        if plan == self.plan || self.next < plan.at {
            return;
        }
        let is_active = self.index < plan.reader_count;
        if !is_active && self.next == IDLE {
            return;
        }
        self.plan = plan;
        let next = || first_owned(plan.at, self.index, plan.reader_count);
        self.next = if is_active { next() } else { IDLE };
        self.tell();
    }

    /// The bytes of a message that this reader holds; empty for any other.
    pub fn bytes(&self, completion: &Completion) -> &[u8] {
        let number = completion.number();
        let is_held = self.oldest_held.is_some_and(|oldest| oldest <= number)
            && number < self.next
            && self.board.slot(number).load(number) == *completion;
        if !is_held {
            debug_assert!(false, "O3: the bytes of a message that was given back are gone");
            return &[];
        }
        // SAFETY: this reader's cursor is at `oldest_held`, not above the number, so the poster
        // releases none of these bytes (O3) before `release_taken`, which needs the reader
        // exclusively; unreleased bytes are not written (Z4).
        unsafe { self.board.region.bytes(completion.offset_bytes(), completion.len_bytes()) }
    }

    /// Gives back all messages that were taken.
    pub fn release_taken(&mut self) {
        if self.oldest_held.take().is_some() {
            self.tell();
        }
    }

    /// Whether no message is for this reader until the readers change.
    pub fn is_idle(&self) -> bool {
        self.next == IDLE
    }

    fn tell(&self) {
        let word = match self.oldest_held.unwrap_or(self.next) {
            IDLE => IDLE,
            number => cursor_word(number, self.plan.parity),
        };
        // Release: earlier reads of the returned bytes come before (P2).
        self.board.cursors[self.index as usize].store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
