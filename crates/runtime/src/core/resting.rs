//! Resting connections: their answer waits for a login, the disk or a flush. Until then they are
//! neither read nor sent to.
//!
//! # Invariants
//! I1: a connection whose ending is [`Ending::Resting`] has an entry here, or is on its way to
//!     another worker, which ends its rest.
//! I2: there is at most one entry for each place of a connection.

use std::collections::BTreeMap;

use base::UnixMillis;
use sessions::logins::{Origin, Pace};

use super::Core;
use crate::connection::Ending;

/// The connections that rest, and until when.
#[derive(Debug, Default)]
pub struct Resting {
    /// By the connection's slot: the end of its rest, and its client.
    by_slot: BTreeMap<usize, (UnixMillis, u64)>,
    /// Not later than the earliest end; `None`: no connection rests.
    next_at: Option<UnixMillis>,
}

impl Resting {
    /// When the next rest ends.
    pub fn next_at(&self) -> Option<UnixMillis> {
        self.next_at
    }

    fn take(&mut self, slot: usize, client_id: u64) -> bool {
        let is_there = self.by_slot.get(&slot).is_some_and(|(_, known)| *known == client_id);
        if is_there {
            self.by_slot.remove(&slot);
            // It is kept while others rest: thousands may end together.
            self.next_at = self.next_at.filter(|_| !self.by_slot.is_empty());
        }
        is_there
    }

    fn add(&mut self, slot: usize, client_id: u64, until: UnixMillis) {
        self.by_slot.insert(slot, (until, client_id));
        self.next_at = Some(self.next_at.map_or(until, |next| next.min(until)));
    }

    /// Takes out the connections whose rest is over.
    pub fn take_due(&mut self, now: UnixMillis) -> Vec<(usize, u64)> {
        let due = self.by_slot.extract_if(.., |_, (until, _)| *until <= now);
        let due = due.map(|(slot, (_, client_id))| (slot, client_id)).collect();
        self.next_at = self.by_slot.values().map(|(until, _)| *until).min();
        due
    }
}

impl Core {
    /// Whether a login attempt is refused without checking its password.
    pub fn refuses_logins(&self, origin: Origin) -> bool {
        let is_refused = self.shared.acl().logins.refuses(origin, self.now);
        if is_refused {
            self.counters().doors.logins_refused.add(1);
        }
        is_refused
    }

    /// Paces the answer to a login attempt: it leaves now, or when the client's address may have
    /// it.
    pub fn pace_login(&mut self, slot: usize, origin: Origin, is_right: bool) {
        match self.shared.acl().logins.pace(origin, is_right, self.now) {
            Pace::Now => {}
            Pace::At(until) => {
                if self.rest(slot, until) {
                    self.counters().doors.logins_slowed.add(1);
                }
            }
        }
    }

    /// Makes the reply in the making wait, unless the connection ends; returns whether it waits.
    #[cold]
    pub fn rest(&mut self, slot: usize, until: UnixMillis) -> bool {
        let connection = &mut self.connections[slot];
        let is_open = connection.ending == Ending::Open;
        if is_open {
            connection.ending = Ending::Resting;
            let client_id = connection.client.id;
            self.resting.add(slot, client_id, until);
            self.touch(slot);
        }
        is_open
    }

    /// Ends a connection's rest: it is sent to and read again, or it is closed.
    pub fn end_rest(&mut self, slot: usize, client_id: u64, ending: Ending) {
        if self.resting.take(slot, client_id) {
            self.wake(slot, client_id, ending);
        }
    }

    /// Ends a rest that is no longer listed.
    pub fn wake(&mut self, slot: usize, client_id: u64, ending: Ending) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.client.id == client_id && connection.ending == Ending::Resting {
            connection.ending = ending;
            connection.end_turned_away();
            self.touch(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_end_in_their_order_and_a_place_has_one() {
        let mut resting = Resting::default();
        resting.add(3, 30, UnixMillis(50));
        resting.add(1, 10, UnixMillis(20));
        resting.add(3, 31, UnixMillis(40));
        assert_eq!(resting.next_at(), Some(UnixMillis(20)));
        assert_eq!(resting.take_due(UnixMillis(19)), []);
        assert_eq!(resting.take_due(UnixMillis(20)), [(1, 10)]);
        assert_eq!(resting.next_at(), Some(UnixMillis(40)));
        resting.add(4, 33, UnixMillis(u64::MAX));
        assert!(!resting.take(4, 34) && resting.take(4, 33), "of that client alone");
        assert_eq!(resting.take_due(UnixMillis(99)), [(3, 31)]);
        assert_eq!(resting.next_at(), None);
    }
}
