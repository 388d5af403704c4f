//! Continues the flush of this worker; `core::flushing` states the rules.

use host::poller::Poller;
use runtime::connection::Ending;
use runtime::core::flushing::{VISITED_MAX, Waiting, advance};
use runtime::engine::Home;
use store::Flush;

use super::Worker;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Executes a `flush_all` that has become due. Returns false if the log cannot be written.
    pub(super) fn flush_later(&mut self) -> bool {
        if self.engine.own_session().is_refusing() {
            return false;
        }
        self.core.flushing.is_next_wanted = true;
        true
    }

    /// Continues the present flush.
    #[inline]
    pub(super) fn flush_on(&mut self) {
        if self.core.flushing.is_on() {
            let visited_max = if self.is_draining { u64::MAX } else { VISITED_MAX };
            self.flush_some(visited_max);
        }
    }

    /// Completes the present flush (F2).
    pub(super) fn end_flushes(&mut self) {
        while self.core.flushing.is_on() {
            self.flush_some(u64::MAX);
        }
    }

    #[cold]
    fn flush_some(&mut self, visited_max: u64) {
        let session = self.engine.own_session();
        let flushing = &mut self.core.flushing;
        if flushing.under_way.is_none() {
            flushing.is_next_wanted = false;
            flushing.waiting.append(&mut flushing.waiting_for_next);
            flushing.under_way = Flush::begin(session);
            if flushing.under_way.is_none() {
                // The log has failed since: the promised reply is not sent.
                tracing::error!("not flushed: the log cannot be written");
                let waiting = std::mem::take(&mut flushing.waiting);
                return self.end_waiting(waiting, Ending::Now);
            }
        }
        let Some(flush) = &mut flushing.under_way else { return };
        let work = advance(session, flush, visited_max);
        let is_over = flush.is_over();
        self.core.charge(work);
        if is_over {
            let flushing = &mut self.core.flushing;
            flushing.under_way = None;
            let waiting = std::mem::take(&mut flushing.waiting);
            self.end_waiting(waiting, Ending::Open);
        }
    }

    fn end_waiting(&mut self, waiting: Vec<Waiting>, ending: Ending) {
        for (slot, client_id) in waiting {
            self.core.end_rest(slot, client_id, ending);
        }
    }
}
