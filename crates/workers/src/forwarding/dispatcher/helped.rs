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

use super::{Dispatcher, Here, NO_TICKET, REQUEST_SLOTS_RESERVED, State, Ticket, pins};

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

/// Offers the last requests of a batch that is long enough, and returns how many.
pub(super) fn offer_tail(
    dispatcher: &mut Dispatcher,
    core: &mut Core,
    here: &mut Here,
    (requests, pendings): (&[Request<'_, Rmw<'_>>], &[Pending]),
) -> usize {
    if requests.len() <= BEFORE_MIN {
        return 0;
    }
    let tail_max = (requests.len() - BEFORE_MIN).div_ceil(2).min(OFFERS_MAX);
    let fabric = Arc::clone(&dispatcher.fabric);
    let Some(help) = &fabric.help else { return 0 };
    let has_large = dispatcher.size_plan().is_some_and(|plan| plan.large_workers() > 0);
    let is_worth_waking = tail_max >= WAKING_MIN;
    let may_offer = has_large && !here.has_parts() && !dispatcher.is_parked;
    if !may_offer || !(help.is_anyone_idle() || is_worth_waking) {
        return 0;
    }
    let count = tail_of(dispatcher, core, tail_max, requests, pendings);
    let first = requests.len() - count;
    for (request, pending) in requests[first..].iter().zip(&pendings[first..]) {
        offer_one(dispatcher, core, request, pending);
    }
    here.forget_kept(count as u64);
    if count > 0 {
        publish_help(dispatcher, core, help, count >= WAKING_MIN);
    }
    count
}

/// How many of the last requests any worker may execute at any time (E2): reads that were left
/// here without asking the router, of connections that await no reply.
fn tail_of(
    dispatcher: &Dispatcher,
    core: &Core,
    tail_max: usize,
    requests: &[Request<'_, Rmw<'_>>],
    pendings: &[Pending],
) -> usize {
    let tail_max =
        tail_max.min(dispatcher.tickets.free_count().saturating_sub(REQUEST_SLOTS_RESERVED));
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

fn offer_one(
    dispatcher: &mut Dispatcher,
    core: &mut Core,
    request: &Request<'_, Rmw<'_>>,
    pending: &Pending,
) {
    let slot = pending.slot as usize;
    let Pending { command, is_quiet, shape, .. } = *pending;
    let index = dispatcher.tickets.take();
    let origin = dispatcher.origin(core, Answer { slot, command, is_quiet, shape });
    // SAFETY: the ticket is free, so the dispatcher holds the request slot (I1).
    let request_slot = unsafe { &mut *dispatcher.tickets.request_slot(index) };
    request_slot.fill(request, None, &origin);
    request_slot.order = dispatcher.tickets.take_order();
    let partition = request.hash.partition(dispatcher.partition_bits);
    dispatcher.tickets[index] = Ticket {
        state: State::Parked,
        slot: slot as u32,
        next: NO_TICKET,
        worker: dispatcher.own,
        hash: request.hash,
        request: RouteRequest {
            partition,
            access: Access::Read,
            size_bytes: None,
            received_by: dispatcher.own_worker.unwrap_or(dispatcher.own),
        },
        booked_bytes: 0,
    };
    let awaiting = &mut core.connections[slot].awaiting;
    dispatcher.tickets.append(awaiting, index);
    awaiting.filter |= Awaiting::bit_of(request.hash);
    push_offer(dispatcher, index);
}

/// Offers a new ticket that no small worker has room for. Returns false if it has to wait: a
/// ticket that came back untaken waits for room like all others, so that it is not offered in
/// circles.
pub(super) fn offer_new(dispatcher: &mut Dispatcher, core: &Core, index: u32) -> bool {
    let fabric = Arc::clone(&dispatcher.fabric);
    let (Some(help), Some(helping)) = (&fabric.help, dispatcher.helping) else { return false };
    let request = dispatcher.tickets[index].request;
    let may_offer = dispatcher.helped.is_some()
        && help.of(dispatcher.own.index()).offers.waiting_count() < OFFERS_MAX as u64
        && dispatcher
            .size_plan()
            .is_some_and(|plan| plan.large_workers() > 0 && helping.may_be_taken(&request, plan));
    if may_offer {
        push_offer(dispatcher, index);
        // Two batches wait at every small worker: that is worth waking a large one.
        publish_help(dispatcher, core, help, true);
    }
    may_offer
}

fn push_offer(dispatcher: &mut Dispatcher, index: u32) {
    let ticket = &mut dispatcher.tickets[index];
    ticket.state = State::Offered;
    if let Some(helped) = &mut dispatcher.helped {
        helped.offerer.push([ticket.hash.0, u64::from(index)]);
    }
}

fn publish_help(dispatcher: &mut Dispatcher, core: &Core, help: &Help, may_wake: bool) {
    if let Some(helped) = &mut dispatcher.helped {
        helped.offerer.publish();
    }
    if may_wake && !help.is_anyone_idle() {
        let first =
            dispatcher.size_plan().map_or(dispatcher.plan.executors, |plan| plan.small_workers);
        let large = dispatcher.plan.first_executor + first..dispatcher.plan.threads;
        call_helper(&dispatcher.fabric, core, large);
    }
}

/// Whether a request that a large worker took is done.
pub(super) fn has_help_done(dispatcher: &Dispatcher) -> bool {
    let help = dispatcher.fabric.help.as_ref();
    help.is_some_and(|help| help.of(dispatcher.own.index()).done.has_any())
}

/// Takes back the requests that large workers have executed, and those that none of them took,
/// which are routed as usual. Returns whether there were any.
pub(super) fn collect_help(dispatcher: &mut Dispatcher, core: &mut Core) -> bool {
    if dispatcher.helped.is_none() || dispatcher.is_drained() {
        return false;
    }
    let fabric = Arc::clone(&dispatcher.fabric);
    let Some(help) = &fabric.help else { return false };
    let queue = help.of(dispatcher.own.index());
    let mut has_any = false;
    for word in 0..queue.done.word_count() {
        let mut bits = queue.done.take(word);
        has_any |= bits != 0;
        while bits != 0 {
            let index = word as u32 * DoneSet::WORD_BITS + bits.trailing_zeros();
            bits &= bits - 1;
            dispatcher.complete(core, index);
        }
    }
    #[cfg(any(test, feature = "testing"))]
    if help.are_offers_held.load(std::sync::atomic::Ordering::Relaxed) {
        return has_any;
    }
    while let Some([_, index]) = queue.offers.take() {
        take_back(dispatcher, core, index as u32);
        has_any = true;
    }
    has_any
}

/// Sends an offer that no worker took, as if it had never been offered.
fn take_back(dispatcher: &mut Dispatcher, core: &mut Core, index: u32) {
    dispatcher.tickets[index].state = State::Parked;
    let slot = dispatcher.tickets[index].slot;
    if slot == super::NO_CONNECTION {
        return dispatcher.tickets.release(core, index);
    }
    let Ticket { hash, request, .. } = dispatcher.tickets[index];
    let awaiting = &core.connections[slot as usize].awaiting;
    match pins::route_again(dispatcher, awaiting, (index, hash), &request) {
        Route::To(worker) => dispatcher.enqueue(core, index, worker),
        // Not offered again: an idle large worker would have taken it.
        Route::Busy(_) => dispatcher.parked.push_again(core, &dispatcher.tickets, index),
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
