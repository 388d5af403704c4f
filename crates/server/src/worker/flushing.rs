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
use store::{Flush, Session};

use super::Worker;
use crate::connection::Ending;
use crate::core::Core;
use crate::engine::{Engine, Home};
use crate::gather::Gather;
use crate::poller::Poller;
use crate::work::{TURN_UNITS, VISITED_KEY_UNITS, Work};

/// Keys that a flush visits per turn: a quarter of the turn's work.
const VISITED_MAX: u64 = TURN_UNITS / 4 / VISITED_KEY_UNITS;

/// The same for its first turn, which completes the flush of a small store.
const VISITED_AT_FIRST_MAX: u64 = 2 * VISITED_MAX;

/// A connection, by its slot and its client's number.
type Waiting = (usize, u64);

/// A worker's present flush, and the next one.
#[derive(Debug, Default)]
pub struct Flushing {
    under_way: Option<Flush>,
    waiting: Vec<Waiting>,
    is_next_wanted: bool,
    waiting_for_next: Vec<Waiting>,
}

impl Flushing {
    /// Whether a flush is under way.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.under_way.is_some() || self.is_next_wanted
    }
}

/// Does some steps, or all.
fn advance(session: &mut Session, flush: &mut Flush, visited_max: u64) -> Work {
    let mut visited = 0;
    while !flush.is_over() && visited < visited_max {
        visited += u64::from(session.flush_step(flush));
    }
    Work::visited(visited as usize)
}

impl Core {
    /// Makes the reply in the making wait for a flush.
    fn rest_until_flushed(&mut self, slot: usize) {
        self.rest(slot, UnixMillis(u64::MAX));
    }
}

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Deletes everything. Returns false if the log cannot be written. The reply that is written
    /// after this call is sent once the flush is done.
    pub(crate) fn flush_store(&mut self, slot: usize) -> bool {
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
        let Some(mut flush) = session.begin_flush() else { return false };
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
            flushing.under_way = session.begin_flush();
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
