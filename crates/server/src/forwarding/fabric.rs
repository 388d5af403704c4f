//! What lies between the workers: every worker's bell, and how many may still send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::ring::Bell;
use crossbeam_utils::CachePadded;
use policy::size_class::Helping;

use super::help::Help;
use super::request_slot::RequestSlots;
use super::steal_queues::StealQueues;

/// Whether idle workers take what waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stealing {
    /// Requests are offered.
    On,
    /// Requests are sent.
    Off,
}

/// Shared by all workers of a server that routes; lives as long as the last of them.
pub struct Fabric {
    /// By thread.
    pub(super) bells: Vec<CachePadded<Bell>>,
    /// What a request slot's buffers keep.
    pub(super) kept_bytes_max: usize,
    /// Where requests may be stolen.
    pub(super) steal_queues: Option<StealQueues>,
    /// Where idle large workers take small requests.
    pub(super) help: Option<Help>,
    /// Threads that may still send something.
    senders_open: AtomicUsize,
}

impl Fabric {
    /// Nothing is on the way between so many threads.
    pub fn new(
        thread_count: usize,
        kept_bytes_max: usize,
        stealing: Stealing,
        helping: Option<Helping>,
    ) -> Fabric {
        Fabric {
            bells: (0..thread_count).map(|_| CachePadded::new(Bell::new())).collect(),
            kept_bytes_max,
            steal_queues: (stealing == Stealing::On).then(|| StealQueues::new(thread_count)),
            help: helping.map(|helping| Help::new(helping, thread_count)),
            senders_open: AtomicUsize::new(thread_count),
        }
    }

    /// The request slots of a thread's dispatcher: where others take from a steal queue, those of
    /// that.
    pub(super) fn request_slots_of(&self, thread: usize) -> Arc<RequestSlots> {
        match (&self.steal_queues, &self.help) {
            (Some(steal_queues), _) => Arc::clone(&steal_queues.of(thread).request_slots),
            (None, Some(help)) => Arc::clone(&help.of(thread).request_slots),
            (None, None) => Arc::new(RequestSlots::new()),
        }
    }

    /// As a thread does before it sleeps, for tests of which thread wakes it.
    #[cfg(test)]
    pub(crate) fn lay_down(&self, thread: usize) {
        self.bells[thread].raise();
    }

    /// As if a thread executed something long.
    #[cfg(test)]
    pub(crate) fn set_at_length(&self, thread: usize, is_at_length: bool) {
        if let Some(steal_queues) = &self.steal_queues {
            steal_queues.set_at_length(thread, is_at_length);
        }
    }

    /// How many threads there are.
    pub(super) fn thread_count(&self) -> usize {
        self.bells.len()
    }

    /// A thread will send nothing more, and everything it sent is done; whether it was the last.
    pub(super) fn close_sender(&self) -> bool {
        // AcqRel: a thread that sees none left sees all that they did.
        self.senders_open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether nothing more can be sent to anybody.
    pub(super) fn are_senders_closed(&self) -> bool {
        self.senders_open.load(Ordering::Acquire) == 0
    }
}
