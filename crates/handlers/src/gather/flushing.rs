//! Begins the flush that a command requests; `core::flushing` states the rules.

use runtime::core::flushing::{VISITED_AT_FIRST_MAX, advance};
use store::Flush;

use crate::gather::Gather;

impl<'a> Gather<'_, 'a> {
    /// Deletes everything. Returns false if the log cannot be written. The reply that is written
    /// after this call is sent once the flush is done.
    pub fn flush_store(&mut self, slot: usize) -> bool {
        let waiting = (slot, self.core.connections[slot].client.id);
        let Some(session) = self.engine.session() else {
            debug_assert!(false, "commands on all keys never run under locks");
            return false;
        };
        if self.core.flushing.is_on() {
            if session.is_refusing() {
                return false;
            }
            self.core.flushing.is_next_wanted = true;
            self.core.flushing.waiting_for_next.push(waiting);
            self.core.rest_until_flushed(slot);
            return true;
        }
        let Some(mut flush) = Flush::begin(session) else { return false };
        let work = advance(session, &mut flush, VISITED_AT_FIRST_MAX);
        self.core.charge(work);
        if !flush.is_over() {
            self.core.flushing.under_way = Some(flush);
            self.core.flushing.waiting.push(waiting);
            self.core.rest_until_flushed(slot);
        }
        true
    }
}
