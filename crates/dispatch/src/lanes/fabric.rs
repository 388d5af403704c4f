//! The fabric between the workers: every worker's bell, ring ends in transit, and how many workers
//! may still send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::ring::Bell;
use crossbeam_utils::CachePadded;

use super::help::Help;
use super::request_slot::RequestSlots;
use super::steal_queues::StealQueues;

/// Whether idle workers take requests that wait for others.
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
    pub bells: Vec<CachePadded<Bell>>,
    /// Bytes that a request slot's buffers keep.
    pub kept_bytes_max: usize,
    /// Set under `--dispatch steal`.
    pub steal_queues: Option<StealQueues>,
    /// Set if idle large workers may take small requests.
    pub help: Option<Help>,
    /// Threads that may still send something.
    senders_open: AtomicUsize,
}

impl Fabric {
    /// A fabric between that many threads, with no request in flight.
    pub fn new(
        thread_count: usize,
        kept_bytes_max: usize,
        stealing: Stealing,
        has_help: bool,
    ) -> Fabric {
        Fabric {
            bells: (0..thread_count).map(|_| CachePadded::new(Bell::new())).collect(),
            kept_bytes_max,
            steal_queues: (stealing == Stealing::On).then(|| StealQueues::new(thread_count)),
            help: has_help.then(|| Help::new(thread_count)),
            senders_open: AtomicUsize::new(thread_count),
        }
    }

    /// The request slots of a thread's dispatcher: those of its steal queue, if other workers take
    /// from one.
    pub fn request_slots_of(&self, thread: usize) -> Arc<RequestSlots> {
        match (&self.steal_queues, &self.help) {
            (Some(steal_queues), _) => Arc::clone(&steal_queues.of(thread).request_slots),
            (None, Some(help)) => Arc::clone(&help.of(thread).request_slots),
            (None, None) => Arc::new(RequestSlots::default()),
        }
    }

    /// Acts as a thread does before it sleeps, for tests of which thread wakes it.
    #[cfg(any(test, feature = "testing"))]
    pub fn lay_down(&self, thread: usize) {
        self.bells[thread].raise();
    }

    /// Acts as if a thread executed a long request.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_at_length(&self, thread: usize, is_at_length: bool) {
        if let Some(steal_queues) = &self.steal_queues {
            steal_queues.set_at_length(thread, is_at_length);
        }
    }

    /// Acts as if dispatchers still executed the requests before their offers: large workers may
    /// take these, and dispatchers take none back.
    #[cfg(any(test, feature = "testing"))]
    pub fn hold_offers(&self, is_held: bool) {
        if let Some(help) = &self.help {
            help.are_offers_held.store(is_held, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// The number of threads.
    pub fn thread_count(&self) -> usize {
        self.bells.len()
    }

    /// Notes that a thread will send nothing more and that all its requests are done. Returns
    /// whether it was the last.
    pub fn close_sender(&self) -> bool {
        // AcqRel: a thread that sees none left sees all that they did.
        self.senders_open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether no thread can send anything more.
    pub fn are_senders_closed(&self) -> bool {
        self.senders_open.load(Ordering::Acquire) == 0
    }
}
