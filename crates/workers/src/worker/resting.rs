//! Ends the rests of connections whose time has come; `core::resting` states the rules.

use base::UnixMillis;
use host::poller::Poller;
use runtime::connection::Ending;
use runtime::engine::Home;

use super::Worker;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Ends the rests that are over; all of them, if the server stops.
    #[inline]
    pub(super) fn end_rests(&mut self) {
        let is_due = |at| at <= self.core.now || self.is_draining;
        if self.core.resting.next_at().is_some_and(is_due) {
            self.end_due_rests();
        }
    }

    #[cold]
    fn end_due_rests(&mut self) {
        let until = if self.is_draining { UnixMillis(u64::MAX) } else { self.core.now };
        for (slot, client_id) in self.core.resting.take_due(until) {
            self.core.wake(slot, client_id, Ending::Open);
        }
    }
}
