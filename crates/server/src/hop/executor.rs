//! The executor half of a worker: takes batches from the rings of all dispatchers and runs them
//! against the store.
//!
//! ```text
//!  dispatcher 0 ═ring═▶ [a][b][c] ┐ up to a batch, the lanes in turn
//!  dispatcher 1 ═ring═▶ [d]       ┼─▶ prefetch buckets ─▶ cells ─▶ execute ─▶ answers ─▶ tails
//!  dispatcher 2 ═ring═▶           ┘
//! ```
//!
//! # Invariants
//! I1: a lane's requests on one key are executed in the order in which its dispatcher sent them,
//!     and so are all its requests but those that join a window of their key (`ahead`).
//! I2: between two batches the session quiesces and this half holds no cell.

mod helping;
mod sizing;
mod stealing;

use std::sync::Arc;

use arrayvec::ArrayVec;
use base::roles::RolePlan;
use base::{KeyHash, UnixMillis, WorkerId};
use store::pin::Pins;
use store::request::{Outcome, Request, Sink};

use super::ahead::{self, CELLS_MAX, Cells, Keys};
use super::cell::{Cell, CellWriter};
use super::fabric::Fabric;
use super::lane::Lane;
use crate::budget::BufferBudget;
use crate::compaction::{Answering, Tells};
use crate::core::{Core, Tally};
use crate::counters::WorkerCounters;
use crate::engine::{Engine, RunToCompletion};
use crate::reply::{self, Reply};
use crate::rmw::{Refusal, Rmw};
use helping::Helper;
use sizing::{Judge, Sizing};
use stealing::Stealing;
pub(super) use stealing::call_thief;

/// A worker's executor half.
pub(super) struct Executor {
    fabric: Arc<Fabric>,
    lanes: Vec<Lane>,
    /// The lane that the next batch begins with.
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

    /// All threads have taken up the latest plan: lanes by which nothing can come any more go.
    pub fn settle(&mut self, core: &Core, plan: &RolePlan) {
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
            core.counters().hops.queue_depth.set(0);
        }
    }

    /// Acts by another plan from now on.
    pub fn take_up(&mut self, plan: &RolePlan, own: WorkerId) {
        self.stop_helping();
        self.sizing.take_up(plan, own);
        self.stealing.take_up(plan, own);
    }

    /// Whether there is something to execute.
    #[inline]
    pub fn has_work(&mut self, own: WorkerId) -> bool {
        if let Some(steal_queues) = &self.fabric.steal_queues {
            return self.stealing.has_work(steal_queues, own.index());
        }
        self.lanes.iter_mut().any(|lane| lane.waiting_count() > 0) || self.may_help()
    }

    /// Whether it has stolen since it was last asked.
    pub fn take_has_stolen(&mut self) -> bool {
        self.stealing.take_has_stolen()
    }

    /// Executes one batch; how many requests. `may_help`: with nothing to execute, it may take what
    /// others offer to an idle large worker.
    pub fn serve(&mut self, home: &mut RunToCompletion, core: &Core, may_help: bool) -> usize {
        if let Some(steal_queues) = &self.fabric.steal_queues {
            return self.stealing.serve((&self.fabric, steal_queues), home, core);
        }
        let batch = core.shared.config().batch;
        let mut cells = Cells::new();
        let lane_count = self.lanes.len();
        for step in 0..lane_count {
            let lane = &mut self.lanes[(self.next_lane + step) % lane_count];
            while cells.len() < batch
                && let Some([hash, index]) = lane.take()
            {
                home.prefetch(KeyHash(hash));
                cells.push(lane.cells.at(index as u32));
            }
        }
        if cells.is_empty() {
            return if may_help { self.help(home, core) } else { 0 };
        }
        self.stop_helping();
        // Where requests may be given back, that has to happen in the order of the lanes.
        let is_sized = self.sizing.is_on(core);
        // A batch that is not full has emptied the queues.
        let is_cut = !is_sized && cells.len() == batch && self.look_ahead(home, core, &mut cells);
        self.next_lane = (self.next_lane + 1) % lane_count;
        if is_sized {
            self.sizing.execute(home, core, &cells);
        } else {
            execute(home, core, &cells, is_cut, Judge::keeps_all());
        }
        self.complete(core);
        let waiting: u64 = self.lanes.iter_mut().map(Lane::waiting_count).sum();
        core.counters().hops.queue_depth.set(waiting);
        cells.len()
    }

    /// What belongs to the batch's windows joins it; whether more waits than may be looked at.
    #[inline]
    fn look_ahead(&mut self, home: &mut RunToCompletion, core: &Core, cells: &mut Cells) -> bool {
        let Some(compaction) = &home.compaction else { return false };
        let Some(keys) = Keys::of(compaction.compacts(), cells) else { return false };
        let taken_count = cells.len();
        let is_cut = ahead::join(keys, &mut self.lanes, self.next_lane, cells);
        for cell in &cells[taken_count..] {
            // SAFETY: as in `execute`.
            home.prefetch(unsafe { &**cell }.request().hash);
        }
        core.counters().compaction.joined.add((cells.len() - taken_count) as u64);
        is_cut
    }

    /// The tails move, and dispatchers that sleep are woken.
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

/// Executes the requests of `cells`, which this worker holds.
/// `is_cut`: its windows closed because no more of the queues may be looked at.
fn execute(
    home: &mut RunToCompletion,
    core: &Core,
    cells: &[*mut Cell],
    is_cut: bool,
    judge: Judge<'_>,
) {
    let mut requests: ArrayVec<Request<'_, Rmw<'_>>, CELLS_MAX> = ArrayVec::new();
    // No dispatcher's clock is ahead of the batch's: a time to live never grows.
    let mut now = core.now;
    for cell in cells {
        // SAFETY: the entry that names the cell was taken and is not completed, so it is ours
        // (Cell's I1); what the request borrows stays as it is until then (Cell's I2).
        let cell = unsafe { &**cell };
        now = now.max(cell.now);
        requests.push(cell.request());
    }
    let counters = core.counters();
    counters.batches.add(1);
    counters.batch_requests.add(requests.len() as u64);
    counters.hops.batches.add(1);
    counters.hops.served.add(requests.len() as u64);
    home.execute(now, &requests, &mut CellSink { cells, core, now, judge });
    let compacted = home.take_compacted();
    counters.compaction.add(compacted);
    if is_cut {
        counters.compaction.closed_full.add(compacted.windows);
    }
}

/// Encodes the outcomes of one batch into its cells.
struct CellSink<'s> {
    cells: &'s [*mut Cell],
    core: &'s Core,
    now: UnixMillis,
    judge: Judge<'s>,
}

impl CellSink<'_> {
    fn cell(&self, request_index: usize) -> &Cell {
        // SAFETY: as in `execute`; no other thread refers to the cell while its request is asked
        // about.
        unsafe { &*self.cells[request_index] }
    }
}

impl Answering for CellSink<'_> {
    fn tells(&self, request_index: usize) -> Tells {
        self.cell(request_index).shape.tells()
    }

    fn opened(&self, windows: usize) {
        self.core.counters().compaction.open.set(windows as u64);
    }

    fn connection(&self, request_index: usize) -> u64 {
        self.cell(request_index).connection
    }
}

impl Sink<Refusal> for CellSink<'_> {
    #[inline]
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        // SAFETY: as in `execute`; the requests in flight borrow what the cell keeps and not the
        // cell itself, and this is the only reference to it.
        let cell = unsafe { &mut *self.cells[request_index] };
        if !self.judge.keeps(cell, &outcome) {
            return; // Somebody else executes it.
        }
        let core = self.core;
        let books = (core.counters(), core.shared.buffer_budget());
        answer(cell, books, self.now, outcome, pins);
    }
}

/// Puts the answer to a cell's request into the cell.
#[inline]
pub(super) fn answer(
    cell: &mut Cell,
    (counters, budget): (&WorkerCounters, &Arc<BufferBudget>),
    now: UnixMillis,
    outcome: Outcome<'_, Refusal>,
    pins: Pins<'_>,
) {
    let shape = cell.shape;
    reply::count(counters, cell.command, &outcome, shape);
    if !cell.is_quiet {
        let mut tally = Tally::default();
        let note = std::mem::take(&mut cell.note);
        let to = CellWriter { cell: &mut *cell, budget, goes_past: false };
        Reply { to, tally: &mut tally, notes: &note, pins, now }.answer(shape, outcome);
        cell.note = note;
    }
}
