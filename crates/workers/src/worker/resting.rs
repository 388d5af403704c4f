//! Ends the rests of connections whose time has come; `core::resting` states the rules.

use base::UnixMillis;
use host::poller::Poller;
use runtime::connection::Ending;
use runtime::engine::Home;

use super::Worker;

/// Ends the rests that are over; all of them, if the server stops.
#[inline]
pub(super) fn end_due<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let is_due = |at| at <= worker.core.now || worker.is_draining;
    if worker.core.resting.next_at().is_some_and(is_due) {
        end_due_now(worker);
    }
}

#[cold]
fn end_due_now<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let until = if worker.is_draining { UnixMillis(u64::MAX) } else { worker.core.now };
    for (slot, client_id) in worker.core.resting.take_due(until) {
        worker.core.wake(slot, client_id, Ending::Open);
    }
}
