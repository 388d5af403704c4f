//! The event queue: pops events in time order, simultaneous ones in the order of their pushes.
//!
//! ```text
//!  push(at)            ┌ lane 0 ┐  delays that never change: already in order, a ring
//!  push_lane(lane, at) ├ lane 1 ┤
//!                      └ queue  ┘  any delay: a calendar of days, see `calendar`
//!                         └────▶ heads: the earliest of each ──▶ pop: the least head
//! ```
//!
//! Most delays of a queueing model are constants (a wire, a fixed cost), so their events are
//! already in order: a lane costs two ring operations where a heap costs a walk. No event allocates
//! memory once the rings have grown.
//!
//! # Invariants
//! I1: pops never go back in time.
//! I2: events of one lane, and simultaneous events of the queue, leave in the order they came;
//!     between lanes the lower number goes first, and the queue goes last.

mod calendar;

use std::collections::VecDeque;

use base::Instant;

pub use calendar::EventQueue;

/// Converts the engine's time to the policies', which is in whole nanoseconds.
pub fn instant(now_ns: f64) -> Instant {
    Instant { ns: now_ns as u64 }
}

/// Lanes of constant delay beside a queue for all others.
#[derive(Debug)]
pub struct Engine<E, const LANES: usize> {
    lanes: [VecDeque<(f64, E)>; LANES],
    queue: EventQueue<E>,
    /// The time of each lane's earliest event; infinite if it has none.
    heads: [f64; LANES],
    queue_head: f64,
}

impl<E, const LANES: usize> Default for Engine<E, LANES> {
    fn default() -> Self {
        Engine {
            lanes: std::array::from_fn(|_| VecDeque::new()),
            queue: EventQueue::default(),
            heads: [f64::INFINITY; LANES],
            queue_head: f64::INFINITY,
        }
    }
}

impl<E, const LANES: usize> Engine<E, LANES> {
    /// Adds an event at a time that is not in the past.
    #[inline]
    pub fn push(&mut self, at: f64, event: E) {
        self.queue.push(at, event);
        self.queue_head = self.queue_head.min(at);
    }

    /// Adds an event that is not before the last one of its lane.
    #[inline]
    pub fn push_lane(&mut self, lane: usize, at: f64, event: E) {
        let ring = &mut self.lanes[lane];
        debug_assert!(ring.back().is_none_or(|last| last.0 <= at), "I2: lane {lane} out of order");
        if ring.is_empty() {
            self.heads[lane] = at;
        }
        ring.push_back((at, event));
    }

    /// The earliest event's time; infinite if there is none.
    #[inline]
    pub fn next_at(&self) -> f64 {
        self.heads.iter().fold(self.queue_head, |least, head| least.min(*head))
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(f64, E)> {
        let mut least = self.queue_head;
        let mut from = LANES;
        for lane in (0..LANES).rev() {
            if self.heads[lane] <= least {
                (least, from) = (self.heads[lane], lane);
            }
        }
        if from == LANES {
            let popped = self.queue.pop();
            self.queue_head = self.queue.peek_at().unwrap_or(f64::INFINITY);
            return popped;
        }
        let popped = self.lanes[from].pop_front();
        self.heads[from] = self.lanes[from].front().map_or(f64::INFINITY, |head| head.0);
        popped
    }
}

#[cfg(test)]
mod tests {
    use super::Engine;

    #[test]
    fn lanes_and_queue_are_merged_in_time_order() {
        let mut engine: Engine<u32, 2> = Engine::default();
        assert_eq!((engine.pop(), engine.next_at()), (None, f64::INFINITY));
        engine.push_lane(1, 5.0, 51);
        engine.push_lane(0, 5.0, 50);
        engine.push(5.0, 52);
        engine.push(1.0, 10);
        engine.push_lane(0, 7.0, 70);
        engine.push(6.0, 60);
        let order: Vec<u32> = std::iter::from_fn(|| engine.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, [10, 50, 51, 52, 60, 70]);
    }
}
