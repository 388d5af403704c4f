//! Steal queues: requests that any worker may execute; under `--dispatch steal` idle workers steal
//! from them (Minos §5.2, HKH+WS).
//!
//! ```text
//!  queue of dispatcher 0   slots, done bits       queues:  home 0 [a][b][c]   home 1 [d]
//!  queue of dispatcher 1   slots, done bits       queues:  home 0 [e]         home 1 [f][g]
//!
//!  worker 0 takes from the queues of home 0; if these are empty it steals from those of home 1
//! ```
//!
//! The dispatcher offers a request in its queue for the request's *home*, the worker that the
//! router names. The home worker takes it, or a thief does; the worker that has executed it sets
//! its bit at the dispatcher.
//!
//! # Invariants
//! I1: an offered request slot belongs to its dispatcher until the entry that leads to it is
//!     published, from then on to the taker, and to its dispatcher again once its bit is set
//!     (request slot's I1).
//! I2: an entry leads to a request slot and, by [`RequestSlot::follower`], to those behind it:
//!     requests of the same connection on the same key, which the worker that takes the first one
//!     executes in order (K10).
//! I3: a steal queue belongs to its thread permanently, whatever roles the thread has, so no part
//!     of it is handed over or dropped when plans change.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use base::offers::{DoneSet, Offerer, Offers};
use base::ring::Entry;
use crossbeam_utils::CachePadded;

use super::awaiting::NO_TICKET;
use super::request_slot::{REQUEST_SLOTS, RequestSlot, RequestSlots};

/// Requests that one entry may chain, at most.
pub const CHAIN_MAX: usize = 16;

/// The offers of one dispatcher.
pub struct StealQueue {
    /// The dispatcher's request slots.
    pub request_slots: Arc<RequestSlots>,
    /// By request slot.
    pub done: DoneSet,
    /// By home; created when the first request goes there.
    queues: Box<[OnceLock<Arc<Offers>>]>,
}

impl StealQueue {
    fn new(thread_count: usize) -> StealQueue {
        StealQueue {
            request_slots: Arc::new(RequestSlots::default()),
            done: DoneSet::new(REQUEST_SLOTS),
            queues: (0..thread_count).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The dispatcher's end of its queue for a home.
    pub fn offerer(&self, home: usize) -> Offerer {
        Offerer::of(self.queues[home].get_or_init(|| Arc::new(Offers::new(REQUEST_SLOTS))))
    }

    /// The request slots of an entry, in order (I2). Only the worker that has taken it may call
    /// this (I1).
    pub fn chain(&self, [_, first]: Entry) -> impl Iterator<Item = (u32, *mut RequestSlot)> {
        let mut next = first as u32;
        std::iter::from_fn(move || {
            let index = (next != NO_TICKET).then_some(next)?;
            let request_slot = self.request_slots.at(index);
            // SAFETY: the taker holds the request slots of the entry (I1), and refers to none of
            // them now.
            next = unsafe { (*request_slot).follower };
            Some((index, request_slot))
        })
    }
}

/// The offers of all dispatchers.
pub struct StealQueues {
    by_dispatcher: Box<[CachePadded<StealQueue>]>,
    /// By thread: whether it executes a long request.
    at_length: Box<[CachePadded<AtomicBool>]>,
}

impl StealQueues {
    /// Without offers.
    pub fn new(thread_count: usize) -> StealQueues {
        let steal_queue = |_| CachePadded::new(StealQueue::new(thread_count));
        StealQueues {
            by_dispatcher: (0..thread_count).map(steal_queue).collect(),
            at_length: (0..thread_count).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The number of dispatchers, which is that of homes.
    pub fn thread_count(&self) -> usize {
        self.by_dispatcher.len()
    }

    /// The queue of a dispatcher.
    pub fn of(&self, dispatcher: usize) -> &StealQueue {
        &self.by_dispatcher[dispatcher]
    }

    /// The queues of all dispatchers for a home, from the dispatcher after `after` on.
    pub fn queues_of(&self, home: usize, after: usize) -> impl Iterator<Item = (usize, &Offers)> {
        let count = self.by_dispatcher.len();
        let dispatchers = (1..=count).map(move |step| (after + step) % count);
        dispatchers.filter_map(move |dispatcher| {
            let queue = self.by_dispatcher[dispatcher].queues[home].get()?;
            Some((dispatcher, &**queue))
        })
    }

    /// Requests that wait for a home.
    pub fn waiting_count(&self, home: usize) -> u64 {
        self.queues_of(home, 0).map(|(_, queue)| queue.waiting_count()).sum()
    }

    /// Notes that a thread begins or ends a long request. At least one of two threads sees the
    /// other: the one that begins sees that a request waits, or the dispatcher that publishes sees
    /// that it has begun.
    pub fn set_at_length(&self, thread: usize, is_at_length: bool) {
        self.at_length[thread].store(is_at_length, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether a thread executes a long request; call it after a SeqCst fence.
    pub fn is_at_length(&self, thread: usize) -> bool {
        self.at_length[thread].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_offered_what_every_dispatcher_has_for_it_in_turn() {
        let steal_queues = StealQueues::new(3);
        for (dispatcher, home, count) in [(0, 1, 2), (2, 1, 1), (2, 0, 1)] {
            let mut offerer = steal_queues.of(dispatcher).offerer(home);
            (0..count).for_each(|request_slot| _ = offerer.push([7, request_slot]));
            offerer.publish();
        }
        let dispatchers =
            |home, after| steal_queues.queues_of(home, after).map(|(dispatcher, _)| dispatcher);
        assert_eq!(dispatchers(1, 0).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(dispatchers(1, 2).collect::<Vec<_>>(), [0, 2]);
        assert_eq!([0, 1, 2].map(|home| steal_queues.waiting_count(home)), [1, 3, 0]);
    }

    #[test]
    fn an_entry_leads_to_all_that_follow_one_another() {
        let steal_queues = StealQueues::new(1);
        let steal_queue = steal_queues.of(0);
        for (request_slot, follower) in [(5, 9), (9, 2)] {
            // SAFETY: nothing is offered, so the test holds all request slots (I1).
            unsafe { (*steal_queue.request_slots.at(request_slot)).follower = follower };
        }
        let indexes =
            |first| steal_queue.chain([0, first]).map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!((indexes(5), indexes(2), indexes(3)), (vec![5, 9, 2], vec![2], vec![3]));
    }

    #[test]
    fn a_worker_at_a_long_request_is_known() {
        let steal_queues = StealQueues::new(2);
        steal_queues.set_at_length(1, true);
        assert_eq!([0, 1].map(|thread| steal_queues.is_at_length(thread)), [false, true]);
        steal_queues.set_at_length(1, false);
        assert!(!steal_queues.is_at_length(1));
    }
}
