//! Counters of a dispatcher's part of the write table. They are added to its worker's counters once
//! a round, so that no request writes to memory that other threads read.
//!
//! # Invariants
//! P1: a write counts as one conflict at most, even if it first waits because of a table entry and
//!     then goes to another worker because of one.

use base::KeyHash;
use dispatch::lanes::awaiting::Awaiting;
use policy::{Busy, PinCounts, Route, RouteRequest};
use runtime::core::Core;

use super::{Dispatcher, REQUEST_SLOTS};

const WORDS: usize = REQUEST_SLOTS / u64::BITS as usize;

/// The published counts, and the writes to leave out of the next ones.
#[derive(Default)]
pub(super) struct Pins {
    shown: PinCounts,
    /// Tickets that were counted when they began to wait, a bit for each.
    waited: [u64; WORDS],
    /// Of these, those that the router has counted as well since the last publication.
    counted_twice: u64,
}

impl Pins {
    /// Publishes the router's counts. Called once a round.
    #[inline]
    pub fn show(&mut self, now: PinCounts, core: &Core) {
        let shown = std::mem::replace(&mut self.shown, now);
        if now == shown {
            return;
        }
        let forwardings = &core.counters().forwardings;
        forwardings.pins.add(now.pins - shown.pins);
        let twice = std::mem::take(&mut self.counted_twice);
        forwardings.pin_conflicts.add(now.diverted - shown.diverted - twice);
        // One worker's counter may fall below 0, the sum over all workers never.
        forwardings.pins_opened.set(now.opened as u64);
    }

    /// Publishes the last counts of a router that is dropped; its table is empty by now, whichever
    /// dispatcher freed the entries that this one had opened.
    pub fn end(&mut self, last: Option<PinCounts>, core: &Core) {
        if let Some(last) = last {
            self.show(last, core);
        }
        self.shown = PinCounts::default();
        core.counters().forwardings.pins_opened.set(0);
    }

    /// Counts a request that found no worker at its first question.
    pub fn note_wait(&mut self, core: &Core, ticket: u32, route: Route) {
        let waits = matches!(route, Route::Busy(Busy::WriteTableFull | Busy::HeldElsewhere));
        if waits {
            core.counters().forwardings.pin_conflicts.add(1);
        }
        self.note(ticket, waits);
    }

    fn note(&mut self, ticket: u32, has_waited: bool) {
        let (word, bit) = (ticket as usize / 64, 1 << (ticket % 64));
        self.waited[word] =
            if has_waited { self.waited[word] | bit } else { self.waited[word] & !bit };
    }

    fn has_waited(&self, ticket: u32) -> bool {
        self.waited[ticket as usize / 64] & 1 << (ticket % 64) != 0
    }
}

/// The route of a waiting ticket (P1).
pub(super) fn route_again(
    dispatcher: &mut Dispatcher,
    awaiting: &Awaiting,
    (ticket, hash): (u32, KeyHash),
    question: &RouteRequest,
) -> Route {
    let diverted =
        |dispatcher: &Dispatcher| dispatcher.decider.pin_counts().map(|counts| counts.diverted);
    let before = diverted(dispatcher);
    let route = dispatcher.route(awaiting, hash, ticket, question);
    let is_twice = dispatcher.pins.has_waited(ticket) && diverted(dispatcher) > before;
    dispatcher.pins.counted_twice += u64::from(is_twice);
    if matches!(route, Route::To(_)) {
        dispatcher.pins.note(ticket, false);
    }
    route
}
