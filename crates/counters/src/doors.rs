//! Each worker's counters of clients that a door refuses.

use super::Cell;
use super::totals::totals;

/// One worker's counters.
#[derive(Debug, Default)]
pub struct DoorCells {
    /// Connections and hellos from beyond loopback, at a door without a password.
    pub protected: Cell,
    /// Connections and hellos at a door that is closed.
    pub closed: Cell,
    /// Delayed answers to logins.
    pub logins_slowed: Cell,
    /// Attempts to log in that were refused without checking the password.
    pub logins_refused: Cell,
}

totals! {
    /// Summed over the workers.
    pub struct DoorTotals of DoorCells;
    counters {
        /// Connections and hellos from beyond loopback, at a door without a password.
        protected = protected,
        /// Connections and hellos at a door that is closed.
        closed = closed,
        /// Delayed answers to logins.
        logins_slowed = logins_slowed,
        /// Attempts to log in that were refused without checking the password.
        logins_refused = logins_refused,
    }
    arrays {}
    others {}
}

impl DoorCells {
    /// Counts a client that is refused, by a closed door or in protected mode.
    pub fn turn_away(&self, is_closed: bool) {
        if is_closed { self.closed.add(1) } else { self.protected.add(1) }
    }
}
