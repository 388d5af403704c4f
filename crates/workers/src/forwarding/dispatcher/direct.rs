//! The direct path: a request that this worker may execute itself joins the batch in the making,
//! without a copy, a ring or another worker.
//!
//! ```text
//!                 ┌ hot read, or the router leaves it here ─▶ batch ─┬─▶ output
//!  parse ─▶ ask ──┤                                                  └─▶ place in awaiting ─▶ out
//!                 └ else ─▶ slot ─▶ ring ─▶ ... ─▶ slot ─▶ output        if others come first
//! ```
//!
//! Two kinds of requests stay: those that the router leaves with the receiving worker, and, under
//! two layers, where the router never does so, reads of hot keys (K7). Hot writes go to the
//! partition's holder like other writes.
//!
//! # Invariants
//! D1: a request that the router left here counts in this worker's depths until the batch is
//!     executed, so that a depth bound sees it. Hot reads, and requests that the router would leave
//!     here whatever the depths are, are not counted: the router was not asked about them.
//! D2: the router's `finish` is called once for each write that it left here, after the reply is
//!     written (K6).
//! D3: if a request's connection awaits no reply when the request joins the batch, its reply goes
//!     into the output; otherwise the request has a ticket in the connection's list, and its reply
//!     goes into its request slot (K10). Requests that are sent later stand behind both, because
//!     replies from other workers are delivered only after the batch.
//! D4: if the connection has an earlier request on the same key, the new one follows it: to the
//!     worker that has it, or into the batch. If it may not join the batch, the batch is executed
//!     first (K10).
//! D5: where sizes matter, a change that copies the present value gets a request slot, because a
//!     large worker may have to execute it (`executor::sizing`). A large read costs only its reply,
//!     which is lent.
//!
//! # References
//! uTPS §3.2.3; rules K6, K7, K9, K10; decisions 0033 and 0040.

use std::sync::Arc;

use arrayvec::ArrayVec;
use base::hash::KeyHasher;
use base::{KeyHash, WorkerId};
use commands::compaction::{Answering, Tells};
use commands::reply::size_of;
use commands::rmw::{Refusal, Rmw, copies_value};
use commands::work::BATCH_REQUESTS_MAX;
use dispatch::hot::HotTracker;
use dispatch::lanes::request_slot::RequestSlots;
use dispatch::sizes::LENT_BYTES_MIN;
use policy::size_class::{COUNTED_BATCH, WorkerSizes};
use policy::{Access, Route, RouteRequest};
use runtime::core::Core;
use runtime::engine::{Asked, Asking, Away};
use runtime::reply_sink::ReplySink;
use store::HotArray;
use store::pin::{PinnedValue, Pins};
use store::request::{Item, Op, Outcome, Request, Sink};

use super::{Dispatcher, NO_TICKET, State, Ticket, deliver, replicated};
use crate::forwarding::executor;

const FILTER_WORDS: usize = 8;

/// The dispatcher's state of the batch in the making.
#[derive(Default)]
pub struct Here {
    /// Requests that the router left here.
    asked_count: u32,
    /// The router's questions for the writes among them.
    questions: ArrayVec<RouteRequest, BATCH_REQUESTS_MAX>,
    /// Connection and key of each request that the router was asked about.
    keys: ArrayVec<(u32, KeyHash), BATCH_REQUESTS_MAX>,
    /// If its bit is set, a key may be among them. With this number of bits, a search in a full
    /// batch is in vain for one key in five.
    filter: [u64; FILTER_WORDS],
    /// Requests that have a ticket, in the order of the batch.
    places: ArrayVec<Place, BATCH_REQUESTS_MAX>,
    hot_count: u64,
    /// Reads that stay here without asking the router.
    kept_count: u64,
    /// The batch holds requests that the router was not asked about.
    has_unasked: bool,
    /// Requests that are not routed, such as parts of commands on several keys.
    joined_count: u64,
    /// Batches so far.
    batch_count: u64,
}

impl Here {
    /// Adds a request to the batch without asking the router.
    pub(in crate::forwarding) fn join(&mut self) {
        self.has_unasked = true;
        self.joined_count += 1;
    }

    /// Whether the batch holds requests that the router was not asked about.
    pub(super) fn has_unasked(&self) -> bool {
        self.has_unasked
    }

    /// Adds a request to the batch.
    #[inline]
    pub(super) fn enter(&mut self, slot: usize, hash: KeyHash) {
        let (word, bit) = bit_of(hash);
        self.filter[word] |= bit;
        self.keys.push((slot as u32, hash));
    }

    /// Whether the batch has a request of that connection on that key.
    #[inline]
    fn has(&self, slot: usize, hash: KeyHash) -> bool {
        let (word, bit) = bit_of(hash);
        self.filter[word] & bit != 0 && self.keys.contains(&(slot as u32, hash))
    }

    /// Whether the batch holds parts of commands on several keys.
    pub(super) fn has_parts(&self) -> bool {
        self.joined_count > 0
    }

    /// Whether nothing was asked about the batch.
    pub(in crate::forwarding) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts a batch.
    pub(in crate::forwarding) fn count_batch(&mut self) {
        self.batch_count += 1;
    }

    /// Whether sizes are counted in this batch, where they do not matter yet.
    pub(in crate::forwarding) fn counts_sizes(&self) -> bool {
        self.batch_count.is_multiple_of(COUNTED_BATCH)
    }

    /// The number of requests.
    fn len(&self) -> usize {
        self.keys.len() + (self.kept_count + self.joined_count) as usize
    }

    /// Subtracts reads that stayed here without asking the router, but go to another worker after
    /// all.
    pub(super) fn forget_kept(&mut self, count: u64) {
        self.kept_count -= count;
    }

    fn forget(&mut self) {
        self.count_batch();
        self.joined_count = 0;
        self.keys.clear();
        self.filter = [0; FILTER_WORDS];
        self.has_unasked = false;
    }
}

/// A key's word of the filter, and its bit there.
#[inline]
fn bit_of(hash: KeyHash) -> (usize, u64) {
    ((hash.0 >> 6) as usize % FILTER_WORDS, 1 << (hash.0 & 63))
}

/// The place of a batch's request in its connection's order: where its reply goes.
#[derive(Clone, Copy)]
struct Place {
    request_index: usize,
    ticket: u32,
}

/// Where the connection's last unexecuted request on a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    NoWorker,
    /// It is in the batch in the making.
    Here,
    /// It was sent, or waits to be sent.
    Away,
}

impl Dispatcher {
    /// Samples a requested key.
    #[inline]
    pub fn note(&mut self, hash: KeyHash, key: &[u8]) {
        if let Some(hot) = &mut self.hot {
            hot.note(hash, key);
        }
    }

    /// Samples the keys of a batch.
    pub fn note_all(&mut self, requests: &[Request<'_, Rmw<'_>>]) {
        if let Some(hot) = &mut self.hot {
            requests.iter().for_each(|request| hot.note(request.hash, request.key));
        }
    }

    /// Decides where a request goes; one that stays here joins the batch.
    #[inline]
    pub fn ask(&mut self, core: &mut Core, here: &mut Here, asking: Asking<'_>) -> Asked {
        if self.replicated.is_some() {
            return replicated::ask_cluster(self, core, here, asking);
        }
        let Asking { request, answer, batch_len } = asking;
        self.note(request.hash, request.key);
        if self.keeps_reads
            && matches!(request.op, Op::Get)
            && core.connections[answer.slot].awaiting.is_empty()
        {
            here.kept_count += 1;
            here.has_unasked = true;
            return Asked::Here;
        }
        let question = self.question(request);
        let leader = self.leader(core, here, answer.slot, request.hash);
        let away = |route, settles| Asked::Away(Away { question, route, settles });
        let route = match (leader, self.own_worker) {
            (Leader::Away, _) => {
                let awaiting = &core.connections[answer.slot].awaiting;
                let route = self.route(awaiting, request.hash, NO_TICKET, &question);
                return away(route, false);
            }
            (_, None) if self.is_hot_read(&question, request.hash) => None,
            (Leader::Here, Some(own)) => Some(self.decider.follow(&question, own, &self.depths)),
            _ => Some(self.decider.route(&question, &self.depths)),
        };
        match (route, self.own_worker) {
            (None, _) => here.hot_count += 1,
            (Some(Route::To(worker)), Some(own)) if worker == own && self.keeps(request) => {
                self.depths.add(own); // D1.
                here.asked_count += 1;
                if question.access == Access::Write {
                    here.questions.push(question);
                }
            }
            (Some(route), _) => {
                return away(route, here.has_unasked || leader == Leader::Here); // D4.
            }
        }
        here.enter(answer.slot, request.hash);
        if !core.connections[answer.slot].awaiting.is_empty() {
            self.take_place(core, here, &asking, question);
        }
        debug_assert!(here.keys.len() <= batch_len + 1, "one of each request that was asked about");
        Asked::Here
    }

    /// Finishes the batch, after it was executed and its replies were written.
    #[inline]
    pub fn finish(&mut self, core: &mut Core, here: &mut Here) {
        let counters = &core.counters().forwardings;
        let asked_count = std::mem::take(&mut here.asked_count);
        counters.direct.add(u64::from(asked_count) + std::mem::take(&mut here.kept_count));
        counters.hot_hits.add(std::mem::take(&mut here.hot_count));
        here.forget();
        if let Some(own) = self.own_worker {
            self.depths.remove_many(own, asked_count); // D1.
            for question in here.questions.drain(..) {
                self.decider.finish(&question, own); // D2.
            }
        }
        for Place { ticket: index, .. } in here.places.drain(..) {
            let ticket = &mut self.tickets[index];
            ticket.state = State::Done;
            let slot = ticket.slot as usize;
            if core.connections[slot].awaiting.first == index {
                deliver::deliver(self, core, slot);
            }
        }
    }

    /// Stores what the router decides about all requests alike, until it or its plan changes.
    pub(super) fn ask_once(&mut self) {
        self.keeps_reads = self.own_worker.is_some_and(|own| self.decider.keeps_reads(own));
    }

    /// Takes the new hot set if there is one, and returns whether there was. Called once a round.
    #[inline]
    pub fn look_at_hot_set(&mut self) -> bool {
        self.hot.as_mut().is_some_and(HotTracker::look)
    }

    /// The hot keys in sorted order, under two layers.
    pub fn hot_array(&self) -> Option<Arc<HotArray>> {
        if self.own_worker.is_some() { None } else { self.hot.as_ref()?.array() }
    }

    /// Samples the key at which a range begins.
    pub fn note_range(&mut self, hasher: &KeyHasher, key: &[u8]) {
        if let Some(hot) = &mut self.hot {
            hot.note_range(hasher, key);
        }
    }

    /// Whether the batch consists of reads of hot keys only.
    #[inline]
    pub fn is_all_hot(&self, here: &Here) -> bool {
        self.own_worker.is_none() && !here.has_unasked
    }

    /// Whether a request that the router leaves here may be executed here (D5).
    #[inline]
    fn keeps(&self, request: &Request<'_, Rmw<'_>>) -> bool {
        // A request that may be stolen has to wait where other workers see it.
        self.offering.is_none() && (!self.tells_sizes || !copies_value(&request.op))
    }

    #[inline]
    pub(super) fn is_hot_read(&self, question: &RouteRequest, hash: KeyHash) -> bool {
        question.access == Access::Read && self.hot.as_ref().is_some_and(|hot| hot.is_hot(hash))
    }

    /// Where the connection's last unexecuted request on that key is.
    #[inline]
    pub(super) fn leader(&self, core: &Core, here: &Here, slot: usize, hash: KeyHash) -> Leader {
        let connection = &core.connections[slot];
        // A request in the batch is later than any that was sent: sending settles the batch first
        // (D4).
        if connection.batch_id == core.batch_id && here.has(slot, hash) {
            return Leader::Here;
        }
        let awaiting = &connection.awaiting;
        if awaiting.is_empty() {
            return Leader::NoWorker;
        }
        if self.tickets.before(awaiting, hash, NO_TICKET).is_some() {
            Leader::Away
        } else {
            Leader::NoWorker
        }
    }

    /// Gives a request of the batch a ticket behind the replies that its connection awaits (D3).
    #[inline]
    pub(super) fn take_place(
        &mut self,
        core: &mut Core,
        here: &mut Here,
        asking: &Asking<'_>,
        question: RouteRequest,
    ) {
        let slot = asking.answer.slot;
        let index = self.tickets.take();
        let origin = self.origin(core, asking.answer);
        // SAFETY: the ticket is free, so the dispatcher holds the request slot (I1).
        let request_slot = unsafe { &mut *self.tickets.request_slot(index) };
        request_slot.address(&origin);
        self.tickets[index] = Ticket {
            state: State::Here,
            slot: slot as u32,
            next: NO_TICKET,
            worker: self.own,
            hash: asking.request.hash,
            request: question,
            booked_bytes: 0,
        };
        self.tickets.append(&mut core.connections[slot].awaiting, index);
        here.places.push(Place { request_index: asking.batch_len, ticket: index });
    }

    /// The worker that counts as the receiver of a request.
    #[inline]
    pub(super) fn receiver(&mut self) -> WorkerId {
        self.own_worker.unwrap_or_else(|| {
            // Under two layers no receiving thread executes: the executors take turns.
            self.next_receiver = (self.next_receiver + 1) % self.plan.executors as u16;
            WorkerId(self.next_receiver)
        })
    }

    /// The question for the router.
    #[inline]
    pub(super) fn question(&mut self, request: &Request<'_, Rmw<'_>>) -> RouteRequest {
        let (access, size_bytes) = match &request.op {
            Op::Get => (Access::Read, None),
            Op::Set(set) => (Access::Write, Some((request.key.len() + set.value.len()) as u64)),
            Op::Delete | Op::Update(_) => (Access::Write, None),
        };
        let received_by = self.receiver();
        let partition = request.hash.partition(self.partition_bits);
        RouteRequest { partition, access, size_bytes, received_by }
    }
}

/// Encodes the outcomes of the batch: into each connection's output, or into the request slots of
/// those requests that have a place. Counts sizes where they matter; values that may be large are
/// not copied then, because their socket is lent.
pub struct HereSink<'s, 'r> {
    direct: ReplySink<'s>,
    requests: &'s [Request<'r, Rmw<'r>>],
    sizes: Option<&'s WorkerSizes>,
    /// Large replies are lent.
    tells_sizes: bool,
    request_slots: &'s RequestSlots,
    /// Places still to come.
    places: &'s [Place],
    /// Keeps the old value of a request with a place in place until its outcome comes.
    told: Option<PinnedValue>,
}

impl<'s, 'r> HereSink<'s, 'r> {
    /// `dispatcher` has gathered the batch.
    pub(in crate::forwarding) fn new(
        direct: ReplySink<'s>,
        requests: &'s [Request<'r, Rmw<'r>>],
        dispatcher: &'s Dispatcher,
        here: &'s Here,
    ) -> HereSink<'s, 'r> {
        debug_assert!(
            here.is_empty() || here.len() == requests.len(),
            "gather I5: one batch at a time"
        );
        let tells_sizes = dispatcher.tells_sizes;
        let sizes = direct.counters.sizes.as_ref();
        HereSink {
            direct,
            requests,
            sizes: sizes.filter(|_| tells_sizes || here.counts_sizes()),
            tells_sizes,
            request_slots: dispatcher.request_slots(),
            places: &here.places,
            told: None,
        }
    }
}

impl Answering for HereSink<'_, '_> {
    fn tells(&self, request_index: usize) -> Tells {
        self.direct.tells(request_index)
    }

    fn opened(&self, windows: usize) {
        self.direct.counters.compaction.open.set(windows as u64);
    }

    fn connection(&self, request_index: usize) -> u64 {
        self.direct.connection(request_index)
    }
}

impl Sink<Refusal> for HereSink<'_, '_> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        if let Some(sizes) = self.sizes {
            let shape = self.direct.pendings[request_index].shape;
            if let Some(size_bytes) = size_of(shape, &self.requests[request_index], &outcome) {
                sizes.record(size_bytes);
            }
        }
        match self.places.split_first() {
            Some((place, rest)) if place.request_index == request_index => {
                self.places = rest;
                // SAFETY: the ticket is here, so this dispatcher holds the request slot (I1), and
                // nothing else refers to it while the batch is executed.
                let request_slot = unsafe { &mut *self.request_slots.at(place.ticket) };
                let books = (self.direct.counters, self.direct.room.ledger.budget());
                executor::answer(request_slot, books, self.direct.now, outcome, pins);
                if self.told.is_some() {
                    self.told = None;
                }
            }
            _ if self.tells_sizes => {
                self.direct.answer(request_index, outcome, pins, LENT_BYTES_MIN);
            }
            _ => self.direct.outcome(request_index, outcome, pins),
        }
    }

    #[cold]
    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        match self.places.first() {
            Some(place) if place.request_index == request_index => {
                // SAFETY: as in `outcome`.
                let request_slot = unsafe { &mut *self.request_slots.at(place.ticket) };
                let budget = self.direct.room.ledger.budget();
                let (may_tell, told) = request_slot.may_tell(old, Some(pins), budget);
                self.told = told;
                may_tell
            }
            _ => self.direct.may_tell(request_index, old, pins),
        }
    }
}
