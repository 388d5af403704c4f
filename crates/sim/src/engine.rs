//! The event queue: what happens next, in time order; of simultaneous events, the first pushed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by time. Times are `f64` in the model's own unit, finite and not before the last pop.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
    now: f64,
}

#[derive(Debug)]
struct Entry<E> {
    at: f64,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { heap: BinaryHeap::new(), pushed: 0, now: 0.0 }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event.
    pub fn push(&mut self, at: f64, event: E) {
        debug_assert!(at >= self.now, "an event in the past");
        self.pushed += 1;
        self.heap.push(Entry { at, order: self.pushed, event });
    }

    /// Takes the earliest event.
    pub fn pop(&mut self) -> Option<(f64, E)> {
        let entry = self.heap.pop()?;
        self.now = entry.at;
        Some((entry.at, entry.event))
    }

    /// The earliest event's time.
    pub fn peek_at(&self) -> Option<f64> {
        self.heap.peek().map(|entry| entry.at)
    }
}
