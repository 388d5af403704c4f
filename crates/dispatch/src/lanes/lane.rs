//! The receiving end of a ring, some of whose entries may be executed before their turn.
//!
//! ```text
//!  ring      ... | taken | 0 | 1 | 2 | 3 | ...      places count from the next entry to be taken
//!  answered               0   1   0   1   0 0 0     bit i: entry i was executed before its turn
//! ```

use std::fmt;
use std::sync::Arc;

use base::WorkerId;
use base::ring::{Entry, Receiver};

use super::request_slot::RequestSlots;

/// Places of a lane that may be executed ahead of their turn, at most.
pub const PLACES_AHEAD_MAX: usize = u32::BITS as usize;

/// The requests that one dispatcher sends to one executor. The lane is at the executor, or on its
/// way there.
pub struct Lane {
    /// The worker that sends.
    pub dispatcher: WorkerId,
    /// The plan under which it was opened.
    pub epoch: u64,
    /// The dispatcher's request slots, which the ring's entries name.
    pub request_slots: Arc<RequestSlots>,
    /// The ring's end at the executor.
    pub receiver: Receiver,
    /// Entries that were executed ahead of their turn and wait for the tail to pass them.
    answered: u32,
}

impl fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lane(from {:?})", self.dispatcher)
    }
}

impl Lane {
    /// A lane over a ring from which nothing was taken yet.
    pub fn new(
        dispatcher: WorkerId,
        epoch: u64,
        request_slots: Arc<RequestSlots>,
        receiver: Receiver,
    ) -> Lane {
        Lane { dispatcher, epoch, request_slots, receiver, answered: 0 }
    }

    /// Takes the next entry that is not executed yet.
    #[inline]
    pub fn take(&mut self) -> Option<Entry> {
        loop {
            let entry = self.receiver.take()?;
            let is_answered = self.answered & 1 != 0;
            self.answered >>= 1;
            if !is_answered {
                return Some(entry);
            }
        }
    }

    /// The entry at a place, unless it is executed already.
    pub fn peek(&self, place: usize) -> Option<Entry> {
        let is_answered = self.answered & (1 << place) != 0;
        if is_answered { None } else { self.receiver.peek(place as u64) }
    }

    /// Notes that the entry at a place is executed before those in front of it.
    pub fn answer_ahead(&mut self, place: usize) {
        debug_assert!(self.peek(place).is_some(), "published, and not executed yet");
        self.answered |= 1 << place;
    }

    /// Moves past executed entries, so that the tail can: no request in front of them waits.
    #[inline]
    pub fn pass_answered(&mut self) {
        while self.answered & 1 != 0 {
            let passed = self.receiver.take();
            debug_assert!(passed.is_some(), "only published entries are executed");
            self.answered >>= 1;
        }
    }

    /// How many entries wait to be executed.
    #[inline]
    pub fn waiting_count(&mut self) -> u64 {
        self.receiver.waiting_count() - u64::from(self.answered.count_ones())
    }
}

#[cfg(test)]
mod tests;
