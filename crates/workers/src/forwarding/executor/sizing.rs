//! Item sizes at an executor: it counts them. At a small worker it does not execute a request whose
//! item is large, but returns it with the verdict *large*, and the dispatcher sends it on.
//!
//! ```text
//!  ring: [GET a][SET b][GET c][SET a]        a is large, and both `a` are one connection's
//!            │ found: large
//!            ▼ not executed                      dispatcher               large worker
//!  verdicts: Large   answered  answered  Behind ──▶ GET a, SET a ──ring──▶ executed, in order
//! ```
//!
//! # Invariants
//! I1: a request that is returned has had no effect, and its request slot holds no part of an
//!     answer.
//! I2: of one connection and key, every request that was sent behind a returned one is returned
//!     too, until the dispatcher has learnt of the first return (K10). The dispatcher writes into
//!     each request slot how many requests it has received back from this worker so far
//!     ([`RequestSlot::returned_seen`]). A request that comes a second time may find that some
//!     behind it were returned: [`RequestSlot::order`] says which are behind it.
//! I3: a request that was sent here because of its size is executed here, so no request is handed
//!     on forever.
//!
//! # Trade-offs
//! A read is executed as far as its item's header, which costs nothing more, and the verdict
//! replaces its reply. A change is looked up before it is executed, because inside the store it is
//! too late to leave it undone; only changes that copy the value are looked up.
//!
//! # References
//! Minos §3; rule K10; decision 0039.

use base::{UnixMillis, WorkerId};
use commands::compaction::Answering;
use commands::reply::size_of;
use commands::rmw::{Refusal, Rmw, may_be_read};
use dispatch::lanes::Turn;
use dispatch::lanes::request_slot::Verdict;
use dispatch::sizes::PlanReader;
use policy::Helping;
use policy::size_class::{COUNTED_BATCH, SizePlan, WorkerSizes};
use runtime::core::Core;
use runtime::engine::{Engine, RunToCompletion};
use store::pin::Pins;
use store::request::{Op, Outcome, Request, Sink};

use super::{RequestSlot, execute};
use crate::forwarding::ahead::RequestSlots;

/// One executor's size state; empty unless the dispatch considers sizes.
#[derive(Default)]
pub(super) struct Sizing {
    tells_sizes: bool,
    /// Which small requests idle large workers may take.
    helping: Option<Helping>,
    reader: Option<PlanReader>,
    /// The router's number for this worker, and how many workers it knows.
    worker: Option<WorkerId>,
    worker_count: usize,
    /// By dispatcher: requests returned to it so far.
    returned_counts: Vec<u64>,
    /// Of these, the ones that their dispatchers may not know of yet (I2).
    recent: Vec<Returned>,
    /// Batches so far that were not told apart by size.
    untold_count: u64,
}

/// A request that was returned.
struct Returned {
    dispatcher: u16,
    /// Its number among those of its dispatcher, from 0 on.
    number: u64,
    /// [`RequestSlot::order`].
    order: u64,
    connection: u64,
    hash: u64,
}

impl Sizing {
    /// Acts by another division of the threads, or other policies.
    pub fn take_up(&mut self, turn: &Turn, own: WorkerId) {
        (self.tells_sizes, self.helping) = (turn.tells_sizes, turn.helping);
        let plan = &turn.plan;
        let worker =
            own.index().checked_sub(plan.first_executor).filter(|_| plan.is_executor(own.index()));
        self.worker = worker.map(|worker| WorkerId(worker as u16));
        self.worker_count = plan.executors;
    }

    /// Whether large items have workers of their own now.
    pub fn tells_sizes(&self) -> bool {
        self.tells_sizes
    }

    /// All threads act by the latest turn: requests that were sent before it are done.
    pub fn settle(&mut self) {
        if !self.tells_sizes {
            self.recent.clear();
        }
    }

    /// A dispatcher begins a new lane: it counts from 0, and none of its earlier requests is in
    /// flight.
    pub fn forget(&mut self, dispatcher: WorkerId) {
        if let Some(count) = self.returned_counts.get_mut(dispatcher.index()) {
            *count = 0;
        }
        self.recent.retain(|returned| returned.dispatcher != dispatcher.0);
    }

    /// Whether requests may be returned; brings the plan up to date.
    #[inline]
    pub fn is_on(&mut self, core: &Core) -> bool {
        if !self.tells_sizes {
            // Until dispatchers have learnt of the last returns (I2).
            return self.has_returned();
        }
        let Some(sizes) = core.shared.sizes() else { return false };
        match &mut self.reader {
            Some(reader) => {
                reader.renew(sizes);
            }
            None => self.reader = Some(PlanReader::new(sizes)),
        }
        true
    }

    fn has_returned(&self) -> bool {
        !self.recent.is_empty()
    }

    /// For a batch in which sizes do not matter: counts those of one in [`COUNTED_BATCH`].
    #[inline]
    pub fn judge_of_untold<'c>(&mut self, core: &'c Core) -> Judge<'c> {
        self.untold_count += 1;
        let is_counted = self.untold_count.is_multiple_of(COUNTED_BATCH);
        Judge::counts_only(core.counters().sizes.as_ref().filter(|_| is_counted))
    }

    /// Whether this worker may take a small request, if it has no large one to serve.
    pub fn may_take(&self) -> bool {
        let (Some(helping), Some(reader), Some(worker)) =
            (&self.helping, &self.reader, self.worker)
        else {
            return false;
        };
        let is_ours = reader.plan().worker_count == self.worker_count;
        is_ours && helping.may_take(reader.plan(), worker, false)
    }

    /// Executes the requests that belong here, and returns the others.
    pub fn execute(
        &mut self,
        home: &mut RunToCompletion,
        core: &Core,
        request_slots: &[*mut RequestSlot],
    ) {
        let Some(reader) = &self.reader else {
            return execute(home, core, request_slots, false, Judge::counts_only(None));
        };
        let worker = self.worker.filter(|_| self.tells_sizes);
        let above_bytes = worker.map_or(u64::MAX, |worker| self.limit_of(reader.plan(), worker));
        let judge = Judge { counts: core.counters().sizes.as_ref(), above_bytes };
        let mut first = 0;
        for at in 1..request_slots.len() {
            if above_bytes < u64::MAX
                && follows_a_read(&request_slots[first..at], request_slots[at])
            {
                self.execute_part(home, core, &request_slots[first..at], judge);
                first = at;
            }
        }
        self.execute_part(home, core, &request_slots[first..], judge);
    }

    /// The size above which `worker` does not serve items.
    fn limit_of(&self, plan: &SizePlan, worker: WorkerId) -> u64 {
        let is_ours = plan.worker_count == self.worker_count;
        let serves_large = !plan.is_small(worker) || plan.standby == Some(worker);
        if is_ours && !serves_large { plan.threshold_bytes } else { u64::MAX }
    }

    /// Executes requests of which none depends on the verdict on another.
    fn execute_part(
        &mut self,
        home: &mut RunToCompletion,
        core: &Core,
        request_slots: &[*mut RequestSlot],
        judge: Judge<'_>,
    ) {
        let mut here = RequestSlots::default();
        for request_slot in request_slots {
            // SAFETY: the executor holds all request slots of the batch (Request slot's I1), and
            // this is the only reference to this one.
            let held = unsafe { &mut **request_slot };
            if self.is_behind(held) {
                self.give_back(held, Verdict::Behind);
            } else if let Some(size_bytes) = judge.looks_large(home, core.now, held) {
                self.give_back(held, Verdict::Large { size_bytes });
            } else {
                here.push(*request_slot);
            }
        }
        if here.is_empty() {
            return;
        }
        execute(home, core, &here, false, judge);
        for request_slot in here {
            // SAFETY: as above.
            let held = unsafe { &mut *request_slot };
            if held.verdict != Verdict::Answered {
                self.give_back(held, held.verdict);
            }
        }
    }

    /// Whether a request is behind one that was returned (I2).
    #[inline]
    fn is_behind(&mut self, request_slot: &RequestSlot) -> bool {
        if self.recent.is_empty() {
            return false;
        }
        let (dispatcher, seen) = (request_slot.dispatcher(), request_slot.returned_seen);
        self.recent.retain(|returned| returned.dispatcher != dispatcher || returned.number >= seen);
        let (connection, hash) = (request_slot.connection, request_slot.request().hash.0);
        self.recent.iter().any(|returned| {
            returned.connection == connection
                && returned.hash == hash
                && returned.order < request_slot.order
        })
    }

    #[cold]
    fn give_back(&mut self, request_slot: &mut RequestSlot, verdict: Verdict) {
        request_slot.verdict = verdict;
        let dispatcher = request_slot.dispatcher();
        if self.returned_counts.len() <= usize::from(dispatcher) {
            self.returned_counts.resize(usize::from(dispatcher) + 1, 0);
        }
        let count = &mut self.returned_counts[usize::from(dispatcher)];
        let (number, hash) = (*count, request_slot.request().hash.0);
        let RequestSlot { order, connection, .. } = *request_slot;
        self.recent.push(Returned { dispatcher, number, order, connection, hash });
        *count += 1;
    }
}

/// Whether the part holds a read of the same connection and key, whose verdict has to be known
/// before this request is executed (I2).
#[inline]
fn follows_a_read(part: &[*mut RequestSlot], request_slot: *mut RequestSlot) -> bool {
    // SAFETY: the executor holds all request slots of the batch (Request slot's I1); no thread
    // changes them here.
    let request_slot = unsafe { &*request_slot };
    let hash = request_slot.request().hash;
    part.iter().any(|before| {
        // SAFETY: as above.
        let before = unsafe { &**before };
        before.request().hash == hash
            && before.connection == request_slot.connection
            && !before.is_sized
            && may_be_read(&before.request().op)
    })
}

/// Decides which requests of one batch are executed here.
#[derive(Clone, Copy)]
pub(super) struct Judge<'s> {
    /// Where sizes are counted, if they are.
    counts: Option<&'s WorkerSizes>,
    /// Items above this size are large, and not served here.
    above_bytes: u64,
}

impl<'s> Judge<'s> {
    /// For servers where each worker executes the requests that it has.
    pub fn counts_only(counts: Option<&'s WorkerSizes>) -> Judge<'s> {
        Judge { counts, above_bytes: u64::MAX }
    }
}

impl Judge<'_> {
    /// Before execution: the size of the value that a change would copy, if it is too large for
    /// this worker.
    #[inline]
    fn looks_large(
        &self,
        home: &mut RunToCompletion,
        now: UnixMillis,
        request_slot: &RequestSlot,
    ) -> Option<u64> {
        if request_slot.is_sized || self.above_bytes == u64::MAX {
            return None;
        }
        let request = request_slot.request();
        let Op::Update(update) = &request.op else { return None };
        update
            .copies_value()
            .then(|| size_of_stored(home, now, &request))?
            .filter(|size_bytes| *size_bytes > self.above_bytes)
    }

    /// Whether the outcome is the answer; counts its size. Otherwise the verdict is in the request
    /// slot (I1).
    #[inline]
    pub fn keeps(&self, request_slot: &mut RequestSlot, outcome: &Outcome<'_, Refusal>) -> bool {
        let Some(counts) = self.counts else { return true };
        let Some(size_bytes) = size_of(request_slot.shape, &request_slot.request(), outcome) else {
            return true;
        };
        if size_bytes > self.above_bytes
            && !request_slot.is_sized
            && matches!(outcome, Outcome::Hit(_))
        {
            request_slot.verdict = Verdict::Large { size_bytes };
            return false;
        }
        counts.record(size_bytes);
        true
    }
}

/// The size of the stored item of a request's key.
#[cold]
fn size_of_stored(
    home: &mut RunToCompletion,
    now: UnixMillis,
    request: &Request<'_, Rmw<'_>>,
) -> Option<u64> {
    let mut sink = SizeSink::default();
    home.execute(now, &[Request { op: Op::Get, ..*request }], &mut sink);
    sink.size_bytes
}

/// A sink that takes the size of the item found.
#[derive(Default)]
struct SizeSink {
    size_bytes: Option<u64>,
}

impl Sink<Refusal> for SizeSink {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.size_bytes = Some((item.key.len() + item.value.len()) as u64);
        }
    }
}

/// One request: there is nothing to compact.
impl Answering for SizeSink {}

#[cfg(test)]
mod tests {
    use base::KeyHash;
    use base::roles::{Executing, RolePlan};
    use commands::reply::{Answer, Shape};
    use counters::CommandIndex;
    use dispatch::lanes::request_slot::Origin;
    use wire::resp::Protocol;

    use super::*;

    fn turn(tells_sizes: bool) -> Turn {
        let plan = RolePlan::new(1, 2, 2, Executing::Others).unwrap();
        Turn { plan, is_routing: true, tells_sizes, helping: None, decider: None }
    }

    /// A GET of one connection and key, sent as the request of that order.
    fn sent(order: u64) -> RequestSlot {
        let answer = Answer {
            slot: 0,
            command: CommandIndex::UNKNOWN_RESP,
            is_quiet: false,
            shape: Shape::Value,
        };
        let origin = Origin {
            answer,
            notes: b"",
            protocol: Protocol::Resp2,
            is_tls: false,
            connection: 7,
            now: UnixMillis(1),
        };
        let mut request_slot = RequestSlot::default();
        let request = Request { key: b"key", hash: KeyHash(9), op: Op::Get };
        request_slot.fill(&request, None, &origin);
        request_slot.order = order;
        request_slot
    }

    #[test]
    fn requests_behind_a_returned_one_are_returned_after_the_policies_have_changed() {
        let mut sizing = Sizing::default();
        sizing.take_up(&turn(true), WorkerId(1));
        sizing.give_back(&mut sent(4), Verdict::Large { size_bytes: 1 << 20 });
        sizing.settle();
        sizing.take_up(&turn(false), WorkerId(1));
        assert!(sizing.has_returned(), "sent before the dispatcher had learnt of the return");
        assert!(sizing.is_behind(&sent(5)) && !sizing.is_behind(&sent(3)));
        sizing.settle();
        assert!(!sizing.has_returned(), "nothing that was sent under the old policies is left");
    }
}
