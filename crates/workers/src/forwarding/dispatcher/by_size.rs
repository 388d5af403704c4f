//! Item sizes at a dispatcher: the epoch's size plan, and requests that come back unexecuted
//! because their item is large. Those keep their place in their connection's order and are routed
//! again.

use std::sync::Arc;

use dispatch::lanes::request_slot::Verdict;
use dispatch::sizes::{PlanReader, Sizes};
use policy::size_class::SizePlan;
use runtime::core::Core;

use super::{Dispatcher, NO_CONNECTION, State};

/// The size state of a dispatcher.
#[derive(Default)]
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

    /// Takes the new plan if there is one, and returns it.
    #[inline]
    pub fn renew(&mut self, sizes: &Sizes) -> Option<&Arc<SizePlan>> {
        let is_new = match &mut self.reader {
            Some(reader) => reader.renew(sizes),
            none => {
                *none = Some(PlanReader::new(sizes));
                true
            }
        };
        if is_new { self.plan() } else { None }
    }

    /// The plan that was taken last.
    #[inline]
    pub fn plan(&self) -> Option<&Arc<SizePlan>> {
        self.reader.as_ref().map(PlanReader::plan)
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

/// Whether a request that the tail has passed was not executed; it is then sent again, or
/// parked.
#[inline]
pub(super) fn is_handed_on(dispatcher: &mut Dispatcher, core: &mut Core, index: u32) -> bool {
    if dispatcher.by_size.is_none() {
        return false;
    }
    // SAFETY: the tail has passed the ticket's entry, so the dispatcher holds the request slot
    // (I1).
    let request_slot = unsafe { &mut *dispatcher.tickets.request_slot(index) };
    match std::mem::replace(&mut request_slot.verdict, Verdict::Answered) {
        Verdict::Answered => return false,
        Verdict::Behind => {}
        Verdict::Large { size_bytes } => {
            request_slot.is_sized = true;
            dispatcher.tickets[index].request.size_bytes = Some(size_bytes);
        }
    }
    hand_on(dispatcher, core, index);
    true
}

#[cold]
fn hand_on(dispatcher: &mut Dispatcher, core: &mut Core, index: u32) {
    let ticket = &mut dispatcher.tickets[index];
    ticket.state = State::Parked;
    let (slot, thread) = (ticket.slot, dispatcher.plan.thread_of(ticket.worker.index()));
    if let Some(by_size) = &mut dispatcher.by_size {
        by_size.count_returned(thread);
    }
    if slot == NO_CONNECTION {
        // The connection's later requests on that key come back as well, so none of a dead
        // client's writes is left out between two that are done.
        return dispatcher.tickets.release(core, index);
    }
    core.counters().forwardings.handed_on.add(1);
    if !dispatcher.place(core, index) {
        dispatcher.parked.push_again(core, &dispatcher.tickets, index);
    }
}
