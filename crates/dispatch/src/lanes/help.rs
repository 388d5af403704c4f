//! Offers of small requests that idle large workers may take, one at a time (Minos §6.1's
//! alternative).
//!
//! ```text
//!  dispatcher 0   executes [a][b][c]...  offers [x][y][z] ◀─ one ─ large worker, while it is idle
//!  dispatcher 1   executes [d]         offers                     │ executes, sets the done bit
//!            ▲ takes back at its next turn what no other took     ▼
//!            └────────────────────────── bell ◀───────────────────┘
//! ```
//!
//! # Invariants
//! I1: an offered request slot belongs to its dispatcher until the offer is published, from then on
//!     to the taker, and to its dispatcher again once its bit is set (request slot's I1). The
//!     dispatcher takes back its own offers in the same way as other takers.
//! I2: an offered request is alone: no other request of its connection on its key is in flight or
//!     in the batch that its dispatcher executes meanwhile, and a later one waits until it is done
//!     (K10).
//! I3: a help queue belongs to its thread permanently, whatever roles the thread has.
//!
//! # References
//! Minos §6.1; `policy::Helping`; decision 0048.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::offers::{DoneSet, Offers};
use crossbeam_utils::CachePadded;

use super::request_slot::{REQUEST_SLOTS, RequestSlots};

/// The offers of one dispatcher.
pub struct HelpQueue {
    /// The dispatcher's request slots.
    pub request_slots: Arc<RequestSlots>,
    /// By request slot.
    pub done: DoneSet,
    /// Which of them other workers may execute.
    pub offers: Arc<Offers>,
}

/// The offers of all dispatchers.
pub struct Help {
    by_dispatcher: Box<[CachePadded<HelpQueue>]>,
    /// Large workers that are awake and look for a request to take.
    idle_count: CachePadded<AtomicUsize>,
    /// As if every dispatcher still executed the requests before its offers: it takes none back.
    #[cfg(any(test, feature = "testing"))]
    pub are_offers_held: std::sync::atomic::AtomicBool,
}

impl Help {
    /// Without offers.
    pub fn new(thread_count: usize) -> Help {
        let queue = |_| {
            CachePadded::new(HelpQueue {
                request_slots: Arc::new(RequestSlots::default()),
                done: DoneSet::new(REQUEST_SLOTS),
                offers: Arc::new(Offers::new(REQUEST_SLOTS)),
            })
        };
        let by_dispatcher = (0..thread_count).map(queue).collect();
        Help {
            by_dispatcher,
            idle_count: CachePadded::new(AtomicUsize::new(0)),
            #[cfg(any(test, feature = "testing"))]
            are_offers_held: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The queue of a dispatcher.
    pub fn of(&self, dispatcher: usize) -> &HelpQueue {
        &self.by_dispatcher[dispatcher]
    }

    /// The queues in the order in which a thread looks at them, from the one after `after` on.
    pub fn queues(&self, after: usize) -> impl Iterator<Item = (usize, &HelpQueue)> {
        let count = self.by_dispatcher.len();
        (1..=count)
            .map(move |step| (after + step) % count)
            .map(|dispatcher| (dispatcher, self.of(dispatcher)))
    }

    /// Whether any dispatcher offers a request.
    pub fn has_any(&self) -> bool {
        self.by_dispatcher.iter().any(|queue| queue.offers.waiting_count() > 0)
    }

    /// A large worker begins or ends to look for requests.
    pub fn set_idle(&self, is_idle: bool) {
        // Relaxed: a hint; offers are published by their own means.
        match is_idle {
            true => self.idle_count.fetch_add(1, Ordering::Relaxed),
            false => self.idle_count.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Whether a large worker looks for requests.
    #[inline]
    pub fn is_anyone_idle(&self) -> bool {
        self.idle_count.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help() -> Help {
        Help::new(3)
    }

    #[test]
    fn stands_are_looked_at_in_a_ring() {
        let dispatchers =
            |after| help().queues(after).map(|(dispatcher, _)| dispatcher).collect::<Vec<_>>();
        assert_eq!((dispatchers(0), dispatchers(2)), (vec![1, 2, 0], vec![0, 1, 2]));
    }

    #[test]
    fn what_is_offered_is_seen_until_it_is_taken() {
        let help = help();
        assert!(!help.has_any());
        let mut offerer = base::offers::Offerer::of(&help.of(1).offers);
        offerer.push([7, 3]);
        offerer.publish();
        assert!(help.has_any());
        assert_eq!(help.of(1).offers.take(), Some([7, 3]));
        assert!(!help.has_any());
    }

    #[test]
    fn idle_workers_are_counted() {
        let help = help();
        help.set_idle(true);
        help.set_idle(true);
        help.set_idle(false);
        assert!(help.is_anyone_idle());
        help.set_idle(false);
        assert!(!help.is_anyone_idle());
    }
}
