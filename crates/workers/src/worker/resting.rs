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

/// Ends the rests of connections whose groups were answered.
#[cold]
pub(super) fn end_answered<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    for (slot, client_id) in std::mem::take(&mut worker.core.waiting_groups) {
        let connection = worker.core.connections.get(slot);
        let connection = connection.filter(|connection| connection.client.id == client_id);
        match connection.and_then(|connection| connection.pending_group()) {
            Some(group) if group.has_answer() => {
                worker.core.end_rest(slot, client_id, Ending::Open);
            }
            Some(_) => drop(worker.core.waiting_groups.insert(slot, client_id)),
            None => {}
        }
    }
}

#[cold]
fn end_due_now<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    let until = if worker.is_draining { UnixMillis(u64::MAX) } else { worker.core.now };
    for (slot, client_id) in worker.core.resting.take_due(until) {
        worker.core.wake(slot, client_id, Ending::Open);
    }
}
