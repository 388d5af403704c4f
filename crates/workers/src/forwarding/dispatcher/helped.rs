//! A dispatcher that offers small requests to idle large workers: the last ones of a batch that is
//! long enough, and those that no small worker has room for.
//!
//! ```text
//!  batch [a][b][c] ... [w][x][y]          found no room
//!    │ executed here     │ the tail             │
//!    ▼                   └───────▶ offers ◀─────┘
//!  output                            │ ─▶ taken by a large worker ─▶ done bit
//!                                    └─▶ taken back at the next turn, and sent as usual
//! ```
//!
//! # Invariants
//! E1: only a batch's last requests are offered, at the end of a gathering: later commands of their
//!     connections are parsed in a later round.
//! E2: the batch that is executed meanwhile holds no request of the same connection on the same
//!     key, so it does not matter which of them is executed first (K10).

use std::ops::Range;
use std::sync::Arc;

use base::WorkerId;
use base::offers::{DoneSet, Offerer};
use base::ring::Bell;
use commands::reply::Answer;
use commands::reply::Pending;
use commands::rmw::Rmw;
use dispatch::lanes::awaiting::Awaiting;
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::help::Help;
use policy::{Access, Route, RouteRequest};
use runtime::core::Core;
use store::request::{Op, Request};

use super::{Dispatcher, Here, NO_TICKET, REQUEST_SLOTS_RESERVED, State, Ticket};

/// Requests executed before the first offered one, at least: together they take longer than an
/// offer.
const BEFORE_MIN: usize = 8;

/// Offers at a time, at most: more would come back untaken.
const OFFERS_MAX: usize = 16;

/// If no large worker is awake, this many offers are worth waking one.
const WAKING_MIN: usize = 8;

const FILTER_WORDS: usize = 64;

/// A dispatcher's own side of its offers.
pub(super) struct Helped {
    offerer: Offerer,
}

impl Helped {
    /// `None` unless large workers may take small requests.
    pub(super) fn new(fabric: &Fabric, own: WorkerId) -> Option<Box<Helped>> {
        let queue = fabric.help.as_ref()?.of(own.index());
        Some(Box::new(Helped { offerer: Offerer::of(&queue.offers) }))
    }
}

impl Dispatcher {
    /// Called before the last batch of a gathering is executed: offers its last requests and
    /// returns how many.
    #[inline]
    pub fn offer_tail(
        &mut self,
        core: &mut Core,
        here: &mut Here,
        requests: &[Request<'_, Rmw<'_>>],
        pendings: &[Pending],
    ) -> usize {
        if self.helped.is_none() || requests.len() <= BEFORE_MIN || !self.keeps_reads {
            return 0;
        }
        let tail_max = (requests.len() - BEFORE_MIN).div_ceil(2).min(OFFERS_MAX);
        self.offer_up_to(core, here, tail_max, (requests, pendings))
    }

    fn offer_up_to(
        &mut self,
        core: &mut Core,
        here: &mut Here,
        tail_max: usize,
        (requests, pendings): (&[Request<'_, Rmw<'_>>], &[Pending]),
    ) -> usize {
        let fabric = Arc::clone(&self.fabric);
        let Some(help) = &fabric.help else { return 0 };
        let has_large = self.size_plan().is_some_and(|plan| plan.large_workers() > 0);
        let is_worth_waking = tail_max >= WAKING_MIN;
        let may_offer = has_large && !here.has_parts() && !self.is_parked;
        if !may_offer || !(help.is_anyone_idle() || is_worth_waking) {
            return 0;
        }
        let count = self.tail_of(core, tail_max, requests, pendings);
        let first = requests.len() - count;
        for (request, pending) in requests[first..].iter().zip(&pendings[first..]) {
            self.offer_one(core, request, pending);
        }
        here.forget_kept(count as u64);
        if count > 0 {
            self.publish_help(core, help, count >= WAKING_MIN);
        }
        count
    }

    /// How many of the last requests any worker may execute at any time (E2): reads that were left
    /// here without asking the router, of connections that await no reply.
    fn tail_of(
        &self,
        core: &Core,
        tail_max: usize,
        requests: &[Request<'_, Rmw<'_>>],
        pendings: &[Pending],
    ) -> usize {
        let tail_max = tail_max.min(self.free.len().saturating_sub(REQUEST_SLOTS_RESERVED));
        let mut filter = [0_u64; FILTER_WORDS];
        let first = requests.len() - tail_max;
        let place_of = |request: &Request<'_, Rmw<'_>>| {
            let bits = request.hash.0 >> 20;
            (bits as usize / 64 % FILTER_WORDS, 1_u64 << (bits % 64))
        };
        let mut count = 0;
        for (at, (request, pending)) in requests.iter().zip(pendings).enumerate() {
            let (word, bit) = place_of(request);
            let is_alone = filter[word] & bit == 0;
            filter[word] |= bit;
            if at < first {
                continue;
            }
            let connection = &core.connections[pending.slot as usize];
            let may_be = is_alone
                && matches!(request.op, Op::Get)
                && connection.awaiting.is_empty()
                && !connection.is_large_reader;
            // Counts the run that reaches to the end.
            count = if may_be { count + 1 } else { 0 };
        }
        count
    }

    fn offer_one(&mut self, core: &mut Core, request: &Request<'_, Rmw<'_>>, pending: &Pending) {
        let slot = pending.slot as usize;
        let Pending { command, is_quiet, shape, .. } = *pending;
        let index = self.free.pop().expect("`tail_of` has counted the free slots");
        let origin = self.origin(core, Answer { slot, command, is_quiet, shape });
        // SAFETY: the ticket is free, so the dispatcher holds the request slot (I1).
        let request_slot = unsafe { &mut *self.request_slot(index) };
        request_slot.fill(request, None, &origin);
        request_slot.order = self.next_order;
        self.next_order += 1;
        let partition = request.hash.partition(self.partition_bits);
        self.tickets[index as usize] = Ticket {
            state: State::Parked,
            slot: slot as u32,
            next: NO_TICKET,
            worker: self.own,
            hash: request.hash,
            request: RouteRequest {
                partition,
                access: Access::Read,
                size_bytes: None,
                received_by: self.own_worker.unwrap_or(self.own),
            },
            booked_bytes: 0,
        };
        let awaiting = &mut core.connections[slot].awaiting;
        self.append(awaiting, index);
        awaiting.filter |= Awaiting::bit_of(request.hash);
        self.push_offer(index);
    }

    /// Offers a new ticket that no small worker has room for. Returns false if it has to wait: a
    /// ticket that came back untaken waits for room like all others, so that it is not offered in
    /// circles.
    pub(super) fn offer_new(&mut self, core: &Core, index: u32) -> bool {
        let fabric = Arc::clone(&self.fabric);
        let Some(help) = &fabric.help else { return false };
        let request = self.tickets[index as usize].request;
        let may_offer = self.helped.is_some()
            && help.of(self.own.index()).offers.waiting_count() < OFFERS_MAX as u64
            && self.size_plan().is_some_and(|plan| {
                plan.large_workers() > 0 && help.helping.may_be_taken(&request, plan)
            });
        if may_offer {
            self.push_offer(index);
            // Two batches wait at every small worker: that is worth waking a large one.
            self.publish_help(core, help, true);
        }
        may_offer
    }

    fn push_offer(&mut self, index: u32) {
        let ticket = &mut self.tickets[index as usize];
        ticket.state = State::Offered;
        if let Some(helped) = &mut self.helped {
            helped.offerer.push([ticket.hash.0, u64::from(index)]);
        }
    }

    fn publish_help(&mut self, core: &Core, help: &Help, may_wake: bool) {
        if let Some(helped) = &mut self.helped {
            helped.offerer.publish();
        }
        if may_wake && !help.is_anyone_idle() {
            let first = self.size_plan().map_or(self.plan.executors, |plan| plan.small_workers);
            let large = self.plan.first_executor + first..self.plan.threads;
            call_helper(&self.fabric, core, large);
        }
    }

    /// Whether a request that a large worker took is done.
    pub(super) fn has_help_done(&self) -> bool {
        let help = self.fabric.help.as_ref();
        help.is_some_and(|help| help.of(self.own.index()).done.has_any())
    }

    /// Takes back the requests that large workers have executed, and those that none of them took,
    /// which are routed as usual. Returns whether there were any.
    pub(super) fn collect_help(&mut self, core: &mut Core) -> bool {
        if self.helped.is_none() || self.is_drained() {
            return false;
        }
        let fabric = Arc::clone(&self.fabric);
        let Some(help) = &fabric.help else { return false };
        let queue = help.of(self.own.index());
        let mut has_any = false;
        for word in 0..queue.done.word_count() {
            let mut bits = queue.done.take(word);
            has_any |= bits != 0;
            while bits != 0 {
                let index = word as u32 * DoneSet::WORD_BITS + bits.trailing_zeros();
                bits &= bits - 1;
                self.complete(core, index);
            }
        }
        #[cfg(any(test, feature = "testing"))]
        if help.are_offers_held.load(std::sync::atomic::Ordering::Relaxed) {
            return has_any;
        }
        while let Some([_, index]) = queue.offers.take() {
            self.take_back(core, index as u32);
            has_any = true;
        }
        has_any
    }

    /// Sends an offer that no worker took, as if it had never been offered.
    fn take_back(&mut self, core: &mut Core, index: u32) {
        self.tickets[index as usize].state = State::Parked;
        let slot = self.tickets[index as usize].slot;
        if slot == super::NO_CONNECTION {
            return self.release(core, index);
        }
        let Ticket { hash, request, .. } = self.tickets[index as usize];
        let awaiting = &core.connections[slot as usize].awaiting;
        match self.route_again(awaiting, (index, hash), &request) {
            Route::To(worker) => self.enqueue(core, index, worker),
            // Not offered again: an idle large worker would have taken it.
            Route::Busy(_) => self.park_again(core, index),
        }
    }
}

/// Wakes one of the large workers, if one sleeps. Called after an offer.
#[cold]
fn call_helper(fabric: &Fabric, core: &Core, mut large: Range<usize>) {
    let bells = large.clone().map(|thread| &*fabric.bells[thread]);
    if let Some(thread) = Bell::must_ring_one(bells).and_then(|at| large.nth(at)) {
        core.shared.wake(thread);
    }
}
