//! FLUSHALL and flush_all: all entries are deleted in steps, in a part of each turn (K28).
//!
//! ```text
//!  FLUSHALL ─▶ some steps ─┬─ over ─▶ OK
//!                          └─ not yet: the connection rests, its OK unsent   Flushing
//!  each round ─▶ some steps ─ over ─▶ the waiting connections continue
//! ```
//!
//! # Invariants
//! F1: a client reads its OK once everything that existed at its request is gone. A client that
//!     asks while a flush is under way waits for the end of the next one, which serves all waiting
//!     clients.
//! F2: a worker that ends, or gives connections away, deletes the rest at once.
//!
//! # Trade-offs
//! In EXEC the flush is one step: the group's other commands do not wait.

use base::UnixMillis;
use commands::work::{TURN_UNITS, VISITED_KEY_UNITS, Work};
use store::{Flush, Session};

use super::Core;

/// Keys that a flush visits per turn: a quarter of the turn's work.
pub const VISITED_MAX: u64 = TURN_UNITS / 4 / VISITED_KEY_UNITS;

/// The same for its first turn, which completes the flush of a small store.
pub const VISITED_AT_FIRST_MAX: u64 = 2 * VISITED_MAX;

/// A connection, by its slot and its client's number.
pub type Waiting = (usize, u64);

/// A worker's present flush, and the next one.
#[derive(Debug, Default)]
pub struct Flushing {
    /// The present flush.
    pub under_way: Option<Flush>,
    /// Connections that wait for its end.
    pub waiting: Vec<Waiting>,
    /// Another one follows.
    pub is_next_wanted: bool,
    /// Connections that wait for the end of that.
    pub waiting_for_next: Vec<Waiting>,
}

impl Flushing {
    /// Whether a flush is under way.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.under_way.is_some() || self.is_next_wanted
    }
}

/// Does some steps, or all.
pub fn advance(session: &mut Session, flush: &mut Flush, visited_max: u64) -> Work {
    let mut visited = 0;
    while !flush.is_over() && visited < visited_max {
        visited += u64::from(flush.step(session));
    }
    Work::visited(visited as usize)
}

impl Core {
    /// Makes the reply in the making wait for a flush.
    pub fn rest_until_flushed(&mut self, slot: usize) {
        self.rest(slot, UnixMillis(u64::MAX));
    }
}
