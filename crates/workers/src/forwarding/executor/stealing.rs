//! An executor under `--dispatch steal`: it takes requests from its own queues, a few at a time,
//! and if those are empty it steals one from another worker's (Minos §5.2, HKH+WS).
//!
//! ```text
//!  own queues  [a][b][c] ... ─ up to 8 ─▶ execute ─▶ done bits, bells    the rest can be stolen
//!  all empty ─▶ the next worker's in a ring that has some ─ 1 ─▶ execute
//!  a whole batch left behind, or a long request begun ─▶ wake one that sleeps
//! ```
//!
//! # Invariants
//! T1: requests that were taken are executed in the order of their queue, and each chain by one
//!     worker (K10).
//! T2: a thread that sleeps has raised its bell and then seen all queues empty. A thread that
//!     leaves a long queue, or makes one wait behind a long request, rings one bell afterwards.
//!     Otherwise less than a batch waits, and its home worker is awake.

use std::ops::Range;

use arrayvec::ArrayVec;
use base::WorkerId;
use base::offers::DoneSet;
use base::ring::Bell;
use base::roles::RolePlan;
use dispatch::lanes::fabric::Fabric;
use dispatch::lanes::steal_queues::{CHAIN_MAX, StealQueues};
use policy::routers::Steal;
use runtime::core::Core;
use runtime::engine::{Engine, RunToCompletion};

use super::execute;
use super::sizing::Judge;
use crate::forwarding::ahead::{REQUEST_SLOTS_MAX, RequestSlots};

/// Requests that a home takes at a time: enough for some cache misses in parallel, and few enough
/// that requests behind a long one can be stolen.
const OWN_MAX: usize = 8;

const _: () =
    assert!(OWN_MAX - 1 + CHAIN_MAX <= REQUEST_SLOTS_MAX, "a batch has room for the last chain");

/// State that an executor keeps between two batches.
#[derive(Default)]
pub(super) struct Stealing {
    /// The dispatcher with which the last batch ended.
    last_dispatcher: usize,
    /// The threads that execute under the plan, whether or not this one does.
    executors: Range<usize>,
    /// Whether the plan lets this thread execute requests of other homes.
    may_steal: bool,
    /// Whether it has stolen since the last call.
    has_stolen: bool,
}

/// The fabric between the workers, and its steal queues.
type Between<'b> = (&'b Fabric, &'b StealQueues);

/// The requests of one batch.
#[derive(Default)]
struct Taken {
    request_slots: RequestSlots,
    /// Dispatcher and request slot of each request.
    names: ArrayVec<(usize, u32), REQUEST_SLOTS_MAX>,
    /// The last one takes long.
    is_long: bool,
}

impl Stealing {
    /// Acts by another plan from now on.
    pub fn take_up(&mut self, plan: &RolePlan, own: WorkerId) {
        self.executors = plan.first_executor..plan.threads;
        self.may_steal = plan.is_executor(own.index());
    }

    /// Whether it has stolen since the last call.
    pub fn take_has_stolen(&mut self) -> bool {
        std::mem::take(&mut self.has_stolen)
    }

    /// Whether there is a request that this thread may execute.
    pub fn has_work(&self, steal_queues: &StealQueues, own: usize) -> bool {
        let has_any = |home| steal_queues.waiting_count(home) > 0;
        has_any(own) || (self.may_steal && victims(own, steal_queues.thread_count()).any(has_any))
    }

    /// Executes up to a batch of its own, or one request of another home; returns how many.
    pub fn serve(
        &mut self,
        between: Between<'_>,
        home: &mut RunToCompletion,
        core: &Core,
    ) -> usize {
        let (_, steal_queues) = between;
        let (own, batch) = (core.worker.index(), core.shared.config().batch);
        let mut served_count = 0;
        while served_count < batch {
            let taken = self.take(steal_queues, home, own, OWN_MAX.min(batch));
            if taken.request_slots.is_empty() {
                break;
            }
            served_count += taken.request_slots.len();
            self.run(between, home, core, (own, taken));
        }
        if served_count == 0 && self.may_steal {
            served_count = self.steal(between, home, core);
        }
        core.counters().forwardings.queue_depth.set(steal_queues.waiting_count(own));
        served_count
    }

    /// Takes one request, or one chain, of the next worker that has any.
    fn steal(&mut self, between: Between<'_>, home: &mut RunToCompletion, core: &Core) -> usize {
        let (_, steal_queues) = between;
        for victim in victims(core.worker.index(), steal_queues.thread_count()) {
            let taken = self.take(steal_queues, home, victim, 1);
            let count = taken.request_slots.len();
            if count > 0 {
                core.counters().forwardings.stolen.add(count as u64);
                self.has_stolen = true;
                self.run(between, home, core, (victim, taken));
                return count;
            }
        }
        0
    }

    /// Takes from the queues of `victim` until there are `count_max` requests, or one takes long.
    fn take(
        &mut self,
        steal_queues: &StealQueues,
        home: &mut RunToCompletion,
        victim: usize,
        count_max: usize,
    ) -> Taken {
        let mut taken = Taken::default();
        for (dispatcher, queue) in steal_queues.queues_of(victim, self.last_dispatcher) {
            while taken.request_slots.len() < count_max
                && !taken.is_long
                && let Some(entry) = queue.take()
            {
                for (index, request_slot) in steal_queues.of(dispatcher).chain(entry) {
                    // SAFETY: the entry is taken, so its request slots are this worker's
                    // (StealQueue's I1).
                    let held = unsafe { &*request_slot };
                    home.prefetch(held.request().hash);
                    taken.is_long |= held.is_long();
                    taken.request_slots.push(request_slot);
                    taken.names.push((dispatcher, index));
                }
                self.last_dispatcher = dispatcher;
            }
        }
        taken
    }

    /// Executes requests taken from a worker, and completes them.
    fn run(
        &self,
        (fabric, steal_queues): Between<'_>,
        home: &mut RunToCompletion,
        core: &Core,
        (victim, taken): (usize, Taken),
    ) {
        let own = core.worker.index();
        if taken.is_long {
            steal_queues.set_at_length(own, true);
        }
        let left_count = steal_queues.waiting_count(victim);
        let waits_long = taken.is_long && left_count + steal_queues.waiting_count(own) > 0;
        if waits_long || left_count >= core.shared.config().batch as u64 {
            call_thief(fabric, core, self.executors.clone());
        }
        execute(home, core, &taken.request_slots, false, Judge::counts_only(None));
        if taken.is_long {
            steal_queues.set_at_length(own, false);
        }
        complete((fabric, steal_queues), core, &taken.names);
    }
}

/// The threads that a thread may steal from, in the policy's order.
fn victims(own: usize, thread_count: usize) -> impl Iterator<Item = usize> {
    Steal::victims(WorkerId(own as u16), thread_count).map(WorkerId::index)
}

/// Sets the done bits, and wakes sleeping dispatchers.
fn complete((fabric, steal_queues): Between<'_>, core: &Core, names: &[(usize, u32)]) {
    let word_of =
        |(dispatcher, index): (usize, u32)| (dispatcher, (index / DoneSet::WORD_BITS) as usize);
    for group in names.chunk_by(|one, next| word_of(*one) == word_of(*next)) {
        let (dispatcher, word) = word_of(group[0]);
        let bits =
            group.iter().fold(0, |bits, (_, index)| bits | 1 << (index % DoneSet::WORD_BITS));
        steal_queues.of(dispatcher).done.set(word, bits);
    }
    for group in names.chunk_by(|(one, _), (next, _)| one == next) {
        let dispatcher = group[0].0;
        if dispatcher != core.worker.index() && fabric.bells[dispatcher].must_ring() {
            core.shared.wake(dispatcher);
        }
    }
}

/// Wakes one of the threads that may steal, if one sleeps.
#[cold]
pub(in crate::forwarding) fn call_thief(fabric: &Fabric, core: &Core, mut executors: Range<usize>) {
    let bells = executors.clone().map(|thread| &*fabric.bells[thread]);
    if let Some(thread) = Bell::must_ring_one(bells).and_then(|at| executors.nth(at)) {
        core.shared.wake(thread);
    }
}
