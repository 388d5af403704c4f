//! Item sizes at a dispatcher: the epoch's size plan, and requests that come back unexecuted
//! because their item is large. Those keep their place in their connection's order and are routed
//! again.

use base::WorkerId;
use dispatch::lanes::request_slot::Verdict;
use dispatch::sizes::PlanReader;
use policy::size_class::SizePlan;
use runtime::core::Core;

use super::{Dispatcher, NO_CONNECTION, State};

/// The size state of a dispatcher.
pub(super) struct BySize {
    /// None until the plan for this dispatcher's role has arrived.
    reader: Option<PlanReader>,
    /// By thread: requests that came back from it (the executor's `sizing`, I2), during one lane's
    /// time.
    returned_seen: Vec<u64>,
}

impl BySize {
    #[inline]
    pub(super) fn returned_seen(&self, thread: usize) -> u64 {
        self.returned_seen.get(thread).copied().unwrap_or(0)
    }

    /// Begins a new lane, on which no request has come back yet.
    pub(super) fn begin_lane(&mut self, thread: usize) {
        if let Some(seen) = self.returned_seen.get_mut(thread) {
            *seen = 0;
        }
    }

    fn count_returned(&mut self, thread: usize) {
        if self.returned_seen.len() <= thread {
            self.returned_seen.resize(thread + 1, 0);
        }
        self.returned_seen[thread] += 1;
    }

    /// Forgets the plan, because the dispatcher has another router, which knows no plan yet.
    pub(super) fn forget_plan(&mut self) {
        self.reader = None;
    }
}

impl Dispatcher {
    /// Takes the new plan if there is one. Called once a round.
    #[inline]
    pub fn renew_plan(&mut self, core: &Core) {
        let Some(sizes) = core.shared.sizes() else { return };
        let empty = || BySize { reader: None, returned_seen: Vec::new() };
        let by_size = self.by_size.get_or_insert_with(empty);
        let is_new = match &mut by_size.reader {
            Some(reader) => reader.renew(sizes),
            none => {
                *none = Some(PlanReader::new(sizes));
                true
            }
        };
        let Some(reader) = by_size.reader.as_ref().filter(|_| is_new) else { return };
        if reader.plan().worker_count == self.plan.executors {
            self.decider.set_plan(reader.plan());
            self.ask_once();
        }
    }

    /// The thread behind a worker number of the router.
    pub fn thread_of(&self, worker: WorkerId) -> usize {
        self.plan.thread_of(worker.index())
    }

    /// The plan of this dispatcher's epoch.
    #[inline]
    pub fn size_plan(&self) -> Option<&SizePlan> {
        let plan = self.by_size.as_ref()?.reader.as_ref()?.plan();
        // Otherwise it is for another division of the threads, which has not reached this one yet.
        (plan.worker_count == self.plan.executors).then_some(&**plan)
    }

    /// Whether a request that the tail has passed was not executed; it is then sent again, or
    /// parked.
    #[inline]
    pub(super) fn is_handed_on(&mut self, core: &mut Core, index: u32) -> bool {
        if self.by_size.is_none() {
            return false;
        }
        // SAFETY: the tail has passed the ticket's entry, so the dispatcher holds the request slot
        // (I1).
        let request_slot = unsafe { &mut *self.request_slot(index) };
        match std::mem::replace(&mut request_slot.verdict, Verdict::Answered) {
            Verdict::Answered => return false,
            Verdict::Behind => {}
            Verdict::Large { size_bytes } => {
                request_slot.is_sized = true;
                self.tickets[index as usize].request.size_bytes = Some(size_bytes);
            }
        }
        self.hand_on(core, index);
        true
    }

    #[cold]
    fn hand_on(&mut self, core: &mut Core, index: u32) {
        let ticket = &mut self.tickets[index as usize];
        ticket.state = State::Parked;
        let (slot, thread) = (ticket.slot, self.plan.thread_of(ticket.worker.index()));
        if let Some(by_size) = &mut self.by_size {
            by_size.count_returned(thread);
        }
        if slot == NO_CONNECTION {
            // The connection's later requests on that key come back as well, so none of a dead
            // client's writes is left out between two that are done.
            return self.release(core, index);
        }
        core.counters().forwardings.handed_on.add(1);
        if !self.place(core, index) {
            self.park_again(core, index);
        }
    }
}
