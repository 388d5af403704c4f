//! A dispatcher under `--dispatch steal`: it offers requests in its steal queues instead of sending
//! them.
//!
//! ```text
//!  request ─▶ ticket ─┬─▶ entry of the home's queue ─ publish ─▶ home or thief ─▶ done bit
//!                     ├─▶ behind another by `follower`, if that is not published
//!                     └─▶ parked, until that one is done
//! ```
//!
//! # Invariants
//! O1: of one connection's requests on one key, at most one entry is published and not done; the
//!     others stand behind it in its chain, or are parked (K10). Otherwise a worker that takes a
//!     later entry could execute it earlier.
//! O2: the dispatcher writes a request slot's `follower` before it publishes the entry that leads
//!     to that slot.

use std::sync::Arc;

use base::WorkerId;
use base::offers::{DoneSet, Offerer};
use dispatch::lanes::awaiting::NO_TICKET;
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::request_slot::REQUEST_SLOTS;
use dispatch::lanes::steal_queues::{CHAIN_MAX, StealQueue};
use runtime::core::Core;

use super::{Dispatcher, State};
use crate::forwarding::executor::call_thief;

/// A dispatcher's own side of its steal queue.
pub(super) struct Offering {
    /// By home; created when the first request goes there.
    offerers: Vec<Option<Offerer>>,
    /// By request slot: how it was offered last.
    offered: Vec<Offered>,
}

/// How a request slot was offered.
#[derive(Clone, Copy, Default)]
struct Offered {
    home: usize,
    /// The number of the entry that leads to it, in that home's queue.
    number: u64,
    /// Its position in its chain.
    place: usize,
}

impl Offering {
    /// `None` unless requests may be stolen.
    pub(super) fn new(fabric: &Fabric) -> Option<Box<Offering>> {
        fabric.steal_queues.as_ref()?;
        Some(Box::new(Offering {
            offerers: (0..fabric.thread_count()).map(|_| None).collect(),
            offered: vec![Offered::default(); REQUEST_SLOTS],
        }))
    }

    fn offerer(&mut self, steal_queue: &StealQueue, home: usize) -> &mut Offerer {
        self.offerers[home].get_or_insert_with(|| steal_queue.offerer(home))
    }

    /// Whether another request may be chained behind that one: no other worker has seen it yet
    /// (O2).
    fn may_follow(&self, leader: u32) -> bool {
        let Offered { home, number, place } = self.offered[leader as usize];
        let is_seen = self.offerers[home].as_ref().is_none_or(|own| own.is_published(number));
        !is_seen && place + 1 < CHAIN_MAX
    }
}

/// Offers a parked ticket to its home and to thieves. Returns false if it has to wait for an
/// earlier one (O1).
pub(super) fn offer(
    dispatcher: &mut Dispatcher,
    core: &mut Core,
    index: u32,
    worker: WorkerId,
) -> bool {
    let (slot, hash) = {
        let ticket = &dispatcher.tickets[index];
        (ticket.slot as usize, ticket.hash)
    };
    let leader = dispatcher.tickets.before(&core.connections[slot].awaiting, hash, index);
    let (Some(offering), Some(steal_queues)) =
        (&mut dispatcher.offering, &dispatcher.fabric.steal_queues)
    else {
        unreachable!("only a dispatcher that offers is asked to");
    };
    let home = dispatcher.plan.thread_of(worker.index());
    // SAFETY: the ticket was parked until now, so the dispatcher holds the request slot (I1).
    unsafe { (*dispatcher.tickets.request_slot(index)).follower = NO_TICKET };
    let (offered, worker) = match leader {
        Some(leader) if offering.may_follow(leader) => {
            // SAFETY: the entry that leads to this request slot is not published (O2), so the
            // dispatcher holds it (StealQueue's I1).
            unsafe { (*dispatcher.tickets.request_slot(leader)).follower = index };
            let Offered { home, number, place } = offering.offered[leader as usize];
            let worker = dispatcher.tickets[leader].worker;
            (Offered { home, number, place: place + 1 }, worker)
        }
        Some(_) => {
            core.counters().forwardings.held_elsewhere.add(1);
            return false;
        }
        None => {
            let steal_queue = steal_queues.of(dispatcher.own.index());
            let offerer = offering.offerer(steal_queue, home);
            let number = offerer.push([hash.0, u64::from(index)]);
            (Offered { home, number, place: 0 }, worker)
        }
    };
    offering.offered[index as usize] = offered;
    let ticket = &mut dispatcher.tickets[index];
    ticket.state = State::Sent;
    ticket.worker = worker;
    dispatcher.depths.add(worker);
    publish_if_full(dispatcher, core, offered.home);
    true
}

fn publish_if_full(dispatcher: &mut Dispatcher, core: &Core, home: usize) {
    let offerer =
        dispatcher.offering.as_ref().and_then(|offering| offering.offerers[home].as_ref());
    let batch = core.shared.config().batch as u64;
    if offerer.is_some_and(|offerer| offerer.unpublished_count() >= batch) {
        publish_offers(dispatcher, core, home);
    }
}

/// Publishes the offers for a home. Wakes the home if it sleeps, and a thief if the home has
/// more work than it can do soon.
pub(super) fn publish_offers(dispatcher: &mut Dispatcher, core: &Core, home: usize) {
    let (Some(offering), Some(steal_queues)) =
        (&mut dispatcher.offering, &dispatcher.fabric.steal_queues)
    else {
        return;
    };
    let Some(offerer) = &mut offering.offerers[home] else { return };
    let count = offerer.unpublished_count();
    if !offerer.publish() || home == dispatcher.own.index() {
        return; // Its executor half takes what it can at once, and wakes a thief.
    }
    core.counters().forwardings.sent.add(count);
    core.counters().forwardings.publications.add(1);
    let waiting_count = offerer.waiting_count();
    if dispatcher.fabric.bells[home].must_ring() {
        core.shared.wake(home);
    } else if steal_queues.is_at_length(home) || waiting_count >= core.shared.config().batch as u64
    {
        call_thief(
            &dispatcher.fabric,
            core,
            dispatcher.plan.first_executor..dispatcher.plan.threads,
        );
    }
}

/// Whether an offered request is done.
pub(super) fn has_offers_done(dispatcher: &Dispatcher) -> bool {
    let steal_queues = dispatcher.fabric.steal_queues.as_ref();
    steal_queues.is_some_and(|steal_queues| steal_queues.of(dispatcher.own.index()).done.has_any())
}

/// Takes back the offered requests that are done. Returns whether there were any.
pub(super) fn collect_offers(dispatcher: &mut Dispatcher, core: &mut Core) -> bool {
    if dispatcher.offering.is_none() || dispatcher.is_drained() {
        return false;
    }
    let fabric = Arc::clone(&dispatcher.fabric);
    let Some(steal_queues) = &fabric.steal_queues else { return false };
    let done = &steal_queues.of(dispatcher.own.index()).done;
    let mut has_any = false;
    for word in 0..done.word_count() {
        let mut bits = done.take(word);
        has_any |= bits != 0;
        while bits != 0 {
            let index = word as u32 * DoneSet::WORD_BITS + bits.trailing_zeros();
            bits &= bits - 1;
            dispatcher.complete(core, index);
        }
    }
    has_any
}
