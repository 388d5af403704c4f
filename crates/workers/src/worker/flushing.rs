//! Continues the flush of this worker; `core::flushing` states the rules.

use host::poller::Poller;
use runtime::connection::Ending;
use runtime::core::flushing::{VISITED_MAX, Waiting, advance};
use runtime::engine::Home;
use store::Flush;

use super::Worker;

/// Executes a `flush_all` that has become due. Returns false if the log cannot be written.
pub(super) fn begin_later<E: Home, P: Poller>(worker: &mut Worker<E, P>) -> bool {
    if worker.engine.own_session().is_refusing() {
        return false;
    }
    worker.core.flushing.is_next_wanted = true;
    true
}

/// Continues the present flush.
#[inline]
pub(super) fn go_on<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    if worker.core.flushing.is_on() {
        let visited_max = if worker.is_draining { u64::MAX } else { VISITED_MAX };
        step(worker, visited_max);
    }
}

/// Completes the present flush (F2).
pub(super) fn end_all<E: Home, P: Poller>(worker: &mut Worker<E, P>) {
    while worker.core.flushing.is_on() {
        step(worker, u64::MAX);
    }
}

#[cold]
fn step<E: Home, P: Poller>(worker: &mut Worker<E, P>, visited_max: u64) {
    let session = worker.engine.own_session();
    let flushing = &mut worker.core.flushing;
    if flushing.under_way.is_none() {
        flushing.is_next_wanted = false;
        flushing.waiting.append(&mut flushing.waiting_for_next);
        flushing.under_way = Flush::begin(session);
        if flushing.under_way.is_none() {
            // The log has failed since: the promised reply is not sent.
            tracing::error!("not flushed: the log cannot be written");
            let waiting = std::mem::take(&mut flushing.waiting);
            return end_waiting(worker, waiting, Ending::Now);
        }
    }
    let Some(flush) = &mut flushing.under_way else { return };
    let work = advance(session, flush, visited_max);
    let is_over = flush.is_over();
    worker.core.charge(work);
    if is_over {
        let flushing = &mut worker.core.flushing;
        flushing.under_way = None;
        let waiting = std::mem::take(&mut flushing.waiting);
        end_waiting(worker, waiting, Ending::Open);
    }
}

fn end_waiting<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    waiting: Vec<Waiting>,
    ending: Ending,
) {
    for (slot, client_id) in waiting {
        worker.core.end_rest(slot, client_id, ending);
    }
}
