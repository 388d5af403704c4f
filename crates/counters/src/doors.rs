//! Each worker's counters of clients that a door refuses.

use super::{Cell, WorkerCounters};

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

/// Summed over the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorTotals {
    /// Connections and hellos from beyond loopback, at a door without a password.
    pub protected: u64,
    /// Connections and hellos at a door that is closed.
    pub closed: u64,
    /// Delayed answers to logins.
    pub logins_slowed: u64,
    /// Attempts to log in that were refused without checking the password.
    pub logins_refused: u64,
}

impl DoorCells {
    /// Counts a client that is refused, by a closed door or in protected mode.
    pub fn turn_away(&self, is_closed: bool) {
        if is_closed { self.closed.add(1) } else { self.protected.add(1) }
    }
}

impl DoorTotals {
    /// Of all workers.
    pub(super) fn sum<'a>(workers: impl Iterator<Item = &'a WorkerCounters> + Clone) -> DoorTotals {
        let sum = |pick: fn(&DoorCells) -> &Cell| {
            workers.clone().map(|worker| pick(&worker.doors).get()).sum::<u64>()
        };
        DoorTotals {
            protected: sum(|doors| &doors.protected),
            closed: sum(|doors| &doors.closed),
            logins_slowed: sum(|doors| &doors.logins_slowed),
            logins_refused: sum(|doors| &doors.logins_refused),
        }
    }
}
