//! The executor half of a worker: takes batches from the rings of all dispatchers and runs them
//! against the store.
//!
//! ```text
//!  dispatcher 0 ═ring═▶ [a][b][c] ┐ up to a batch, the lanes in turn
//!  dispatcher 1 ═ring═▶ [d]       ┼─▶ prefetch buckets ─▶ slots ─▶ execute ─▶ answers ─▶ tails
//!  dispatcher 2 ═ring═▶           ┘
//! ```
//!
//! # Invariants
//! I1: a lane's requests on one key are executed in the order in which its dispatcher sent them; so
//!     are all its requests, except those that join a window of their key (`ahead`).
//! I2: between two batches the session is quiescent and this half holds no request slot.

mod helping;
mod sizing;
mod stealing;

use std::sync::Arc;

use arrayvec::ArrayVec;
use base::roles::RolePlan;
use base::{KeyHash, UnixMillis, WorkerId};
use budget::BufferBudget;
use commands::compaction::{Answering, Tells};
use commands::reply::{self, Reply, Tally};
use commands::rmw::{Refusal, Rmw};
use counters::WorkerCounters;
use dispatch::lanes::Turn;
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::lane::Lane;
use dispatch::lanes::request_slot::{RequestSlot, RequestSlotWriter};
use runtime::core::Core;
use runtime::engine::{Engine, RunToCompletion};
use store::pin::{PinnedValue, Pins};
use store::request::{Item, Outcome, Request, Sink};

use super::ahead::{self, Keys, REQUEST_SLOTS_MAX, RequestSlots};
use helping::Helper;
use sizing::{Judge, Sizing};
use stealing::Stealing;
pub(super) use stealing::call_thief;

/// A worker's executor half.
pub(super) struct Executor {
    fabric: Arc<Fabric>,
    lanes: Vec<Lane>,
    /// The lane with which the next batch begins.
    next_lane: usize,
    sizing: Sizing,
    stealing: Stealing,
    helper: Helper,
}

impl Executor {
    pub fn new(fabric: Arc<Fabric>) -> Executor {
        Executor {
            fabric,
            lanes: Vec::new(),
            next_lane: 0,
            sizing: Sizing::default(),
            stealing: Stealing::default(),
            helper: Helper::default(),
        }
    }

    pub fn adopt(&mut self, lane: Lane) {
        self.sizing.forget(lane.dispatcher);
        self.lanes.push(lane);
    }

    /// All threads have taken up the latest plan: drops lanes on which no request can arrive any
    /// more.
    pub fn settle(&mut self, core: &Core, plan: &RolePlan) {
        self.sizing.settle();
        let own = core.worker.index();
        let serves = |lane: &mut Lane| {
            let has_sender = lane.receiver.has_sender();
            let may_send = plan.is_executor(own) && plan.is_dispatcher(lane.dispatcher.index());
            debug_assert!(has_sender || lane.receiver.waiting_count() == 0, "sent, and left");
            debug_assert!(!has_sender || may_send || lane.epoch > plan.epoch, "settled too early");
            has_sender
        };
        self.lanes.retain_mut(serves);
        if self.lanes.is_empty() {
            core.counters().forwardings.queue_depth.set(0);
        }
    }

    /// Acts by another plan from now on.
    pub fn take_up(&mut self, turn: &Turn, own: WorkerId) {
        self.stop_helping();
        self.sizing.take_up(turn, own);
        self.stealing.take_up(&turn.plan, own);
    }

    /// Whether large items have workers of their own now.
    pub fn tells_sizes(&self) -> bool {
        self.sizing.tells_sizes()
    }

    /// Whether there is a request to execute.
    #[inline]
    pub fn has_work(&mut self, own: WorkerId) -> bool {
        if let Some(steal_queues) = &self.fabric.steal_queues {
            return self.stealing.has_work(steal_queues, own.index());
        }
        self.lanes.iter_mut().any(|lane| lane.waiting_count() > 0) || self.may_help()
    }

    /// Whether it has stolen since the last call.
    pub fn take_has_stolen(&mut self) -> bool {
        self.stealing.take_has_stolen()
    }

    /// Executes one batch; returns its length. `may_help`: with no request of its own, it may take
    /// one that is offered to idle large workers.
    pub fn serve(&mut self, home: &mut RunToCompletion, core: &Core, may_help: bool) -> usize {
        if let Some(steal_queues) = &self.fabric.steal_queues {
            return self.stealing.serve((&self.fabric, steal_queues), home, core);
        }
        let batch = core.shared.config().batch;
        let mut request_slots = RequestSlots::default();
        let lane_count = self.lanes.len();
        for step in 0..lane_count {
            let lane = &mut self.lanes[(self.next_lane + step) % lane_count];
            while request_slots.len() < batch
                && let Some([hash, index]) = lane.take()
            {
                home.prefetch(KeyHash(hash));
                request_slots.push(lane.request_slots.at(index as u32));
            }
        }
        if request_slots.is_empty() {
            return if may_help { self.help(home, core) } else { 0 };
        }
        self.stop_helping();
        // If requests may be returned, that has to happen in the order of the lanes.
        let is_sized = self.sizing.is_on(core);
        // A batch that is not full has emptied the queues.
        let is_cut = !is_sized
            && request_slots.len() == batch
            && self.look_ahead(home, core, &mut request_slots);
        self.next_lane = (self.next_lane + 1) % lane_count;
        if is_sized {
            self.sizing.execute(home, core, &request_slots);
        } else {
            let judge = self.sizing.judge_of_untold(core);
            execute(home, core, &request_slots, is_cut, judge);
        }
        self.complete(core);
        let waiting: u64 = self.lanes.iter_mut().map(Lane::waiting_count).sum();
        core.counters().forwardings.queue_depth.set(waiting);
        request_slots.len()
    }

    /// Lets queued requests join the batch's windows. Returns whether more requests wait than may
    /// be examined.
    #[inline]
    fn look_ahead(
        &mut self,
        home: &mut RunToCompletion,
        core: &Core,
        request_slots: &mut RequestSlots,
    ) -> bool {
        let Some(compaction) = &home.compaction else { return false };
        let Some(keys) = Keys::of(compaction.compacts(), request_slots) else { return false };
        let taken_count = request_slots.len();
        let is_cut = ahead::join(keys, &mut self.lanes, self.next_lane, request_slots);
        for request_slot in &request_slots[taken_count..] {
            // SAFETY: as in `execute`.
            home.prefetch(unsafe { &**request_slot }.request().hash);
        }
        core.counters().compaction.joined.add((request_slots.len() - taken_count) as u64);
        is_cut
    }

    /// Moves the tails, and wakes sleeping dispatchers.
    fn complete(&mut self, core: &Core) {
        for lane in &mut self.lanes {
            lane.pass_answered();
            let dispatcher = lane.dispatcher.index();
            if lane.receiver.complete()
                && dispatcher != core.worker.index()
                && self.fabric.bells[dispatcher].must_ring()
            {
                core.shared.wake(dispatcher);
            }
        }
    }
}

/// Executes the requests of `request_slots`, which this worker holds. `is_cut`: its windows closed
/// because no more queued requests may be examined.
fn execute(
    home: &mut RunToCompletion,
    core: &Core,
    request_slots: &[*mut RequestSlot],
    is_cut: bool,
    judge: Judge<'_>,
) {
    let mut requests: ArrayVec<Request<'_, Rmw<'_>>, REQUEST_SLOTS_MAX> = ArrayVec::new();
    // No dispatcher's clock is ahead of the batch's: a time to live never grows.
    let mut now = core.now;
    for request_slot in request_slots {
        // SAFETY: the entry that names the request slot was taken and is not completed, so it is
        // ours (Request slot's I1); what the request borrows stays as it is until then (Request
        // slot's I2).
        let request_slot = unsafe { &**request_slot };
        now = now.max(request_slot.now);
        requests.push(request_slot.request());
    }
    let counters = core.counters();
    counters.batches.add(1);
    counters.batch_requests.add(requests.len() as u64);
    counters.forwardings.batches.add(1);
    counters.forwardings.served.add(requests.len() as u64);
    home.execute(
        now,
        &requests,
        &mut RequestSlotSink { request_slots, core, now, judge, told: None },
    );
    let compacted = home.take_compacted();
    counters.compaction.add(compacted);
    if is_cut {
        counters.compaction.closed_full.add(compacted.windows);
    }
}

/// Encodes the outcomes of one batch into its request slots.
struct RequestSlotSink<'s> {
    request_slots: &'s [*mut RequestSlot],
    core: &'s Core,
    now: UnixMillis,
    judge: Judge<'s>,
    /// Keeps the old value in place until its outcome comes.
    told: Option<PinnedValue>,
}

impl RequestSlotSink<'_> {
    fn request_slot(&self, request_index: usize) -> &RequestSlot {
        // SAFETY: as in `execute`; no other thread refers to the request slot while its request is
        // asked about.
        unsafe { &*self.request_slots[request_index] }
    }
}

impl Answering for RequestSlotSink<'_> {
    fn tells(&self, request_index: usize) -> Tells {
        self.request_slot(request_index).shape.tells()
    }

    fn opened(&self, windows: usize) {
        self.core.counters().compaction.open.set(windows as u64);
    }

    fn connection(&self, request_index: usize) -> u64 {
        self.request_slot(request_index).connection
    }
}

impl Sink<Refusal> for RequestSlotSink<'_> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        // SAFETY: as in `execute`; the requests in flight borrow what the request slot keeps and
        // not the request slot itself, and this is the only reference to it.
        let request_slot = unsafe { &mut *self.request_slots[request_index] };
        if !self.judge.keeps(request_slot, &outcome) {
            return; // Another worker executes it.
        }
        let core = self.core;
        let books = (core.counters(), core.shared.buffer_budget());
        answer(request_slot, books, self.now, outcome, pins);
        if self.told.is_some() {
            self.told = None;
        }
    }

    #[cold]
    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        // SAFETY: as in `outcome`.
        let request_slot = unsafe { &mut *self.request_slots[request_index] };
        let budget = self.core.shared.buffer_budget();
        let (may_tell, told) = request_slot.may_tell(old, Some(pins), budget);
        self.told = told;
        may_tell
    }
}

/// Writes the answer to a request slot's request into the request slot.
#[inline]
pub(super) fn answer(
    request_slot: &mut RequestSlot,
    (counters, budget): (&WorkerCounters, &Arc<BufferBudget>),
    now: UnixMillis,
    outcome: Outcome<'_, Refusal>,
    pins: Pins<'_>,
) {
    let shape = request_slot.shape;
    reply::count(counters, request_slot.command, &outcome, shape);
    if !request_slot.is_quiet {
        let mut tally = Tally::default();
        let note = std::mem::take(&mut request_slot.note);
        let to = RequestSlotWriter { request_slot: &mut *request_slot, budget, goes_past: false };
        Reply { to, tally: &mut tally, notes: &note, pins, now }.answer(shape, outcome);
        request_slot.note = note;
    }
}
