//! A calendar queue: a ring of days with a handful of events each, and a heap for events far ahead.
//!
//! ```text
//!            first (today)
//!               ▼
//!  days   [ ][ ][2][1][ ][3][ ] ...  DAYS of them; day of an event = floor(at / width)
//!  occupied 0  0  1  1  0  1  0      one bit per day: the next day with events is a bit scan
//!  far     heap of events from first + DAYS on; they move into days as `first` goes on
//! ```
//!
//! The width of a day adapts to about one event a day, estimated from the pops. An event costs some
//! ten nanoseconds whatever the number of waiting events (R. Brown, "Calendar queues", CACM 31(10),
//! 1988).
//!
//! # Invariants
//! I1: the ring holds the days `first .. first + DAYS`; every event of an earlier day has left.
//! I2: every event in `far` is of day `first + DAYS` or later.
//! I3: the order of pops does not depend on the width.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

const DAYS: u64 = 512;
const WORDS: usize = (DAYS / 64) as usize;

/// The width is reconsidered after this many pops, then after twice as many, up to the maximum.
const TUNE_AFTER_MIN: u64 = 64;
const TUNE_AFTER_MAX: u64 = 1 << 16;

/// Events by time. Times are in the model's own unit, finite, and not before the last pop.
#[derive(Debug)]
pub struct EventQueue<E> {
    days: Vec<Vec<Entry<E>>>,
    occupied: [u64; WORDS],
    far: BinaryHeap<Entry<E>>,
    /// Today's number.
    first: u64,
    days_per_unit: f64,
    pushed: u64,
    len: usize,
    now: f64,
    /// The time of the last reconsideration, the pops since then, and the pops until the next.
    tuned_at: f64,
    pops_since: u64,
    tune_after: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: f64,
    order: u64,
    event: E,
}

impl<E> Entry<E> {
    fn is_before(&self, other: &Entry<E>) -> bool {
        self.at < other.at || (self.at == other.at && self.order < other.order)
    }
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
    /// The earliest is the greatest, as a `BinaryHeap` gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue {
            days: (0..DAYS).map(|_| Vec::new()).collect(),
            occupied: [0; WORDS],
            far: BinaryHeap::new(),
            first: 0,
            days_per_unit: 1.0,
            pushed: 0,
            len: 0,
            now: 0.0,
            tuned_at: 0.0,
            pops_since: 0,
            tune_after: TUNE_AFTER_MIN,
        }
    }
}

impl<E> EventQueue<E> {
    /// The number of waiting events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event.
    ///
    /// # Panics
    /// When its time is before the last pop's, or no number.
    #[inline]
    pub fn push(&mut self, at: f64, event: E) {
        assert!(at >= self.now, "an event in the past: {at} before {}", self.now);
        self.pushed += 1;
        self.len += 1;
        self.place(Entry { at, order: self.pushed, event });
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(f64, E)> {
        let day = self.next_day()?;
        if day != self.first {
            self.first = day;
            self.fetch_far();
        }
        let slot = (day % DAYS) as usize;
        let entries = &mut self.days[slot];
        let mut least = 0;
        for index in 1..entries.len() {
            if entries[index].is_before(&entries[least]) {
                least = index;
            }
        }
        let entry = entries.swap_remove(least);
        if entries.is_empty() {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
        self.len -= 1;
        self.now = entry.at;
        self.pops_since += 1;
        if self.pops_since >= self.tune_after {
            self.tune();
        }
        Some((entry.at, entry.event))
    }

    /// The earliest event's time.
    #[inline]
    pub fn peek_at(&self) -> Option<f64> {
        let Some(day) = self.next_near_day() else { return self.far.peek().map(|far| far.at) };
        let entries = &self.days[(day % DAYS) as usize];
        entries.iter().map(|entry| entry.at).reduce(f64::min)
    }

    fn day_of(&self, at: f64) -> u64 {
        (at * self.days_per_unit) as u64
    }

    fn place(&mut self, entry: Entry<E>) {
        let day = self.day_of(entry.at);
        if day - self.first < DAYS {
            let slot = (day % DAYS) as usize;
            self.days[slot].push(entry);
            self.occupied[slot / 64] |= 1 << (slot % 64);
        } else {
            self.far.push(entry);
        }
    }

    /// The first day with events; `None` when there are none at all.
    fn next_day(&mut self) -> Option<u64> {
        if let Some(day) = self.next_near_day() {
            return Some(day);
        }
        // I1 and I2 hold again after the jump: the ring is empty.
        self.first = self.day_of(self.far.peek()?.at);
        self.fetch_far();
        Some(self.first)
    }

    fn next_near_day(&self) -> Option<u64> {
        let start = (self.first % DAYS) as usize;
        let (word, bit) = (start / 64, start % 64);
        let today = self.occupied[word] >> bit;
        if today != 0 {
            return Some(self.first + u64::from(today.trailing_zeros()));
        }
        // The words after the first one, and at last the first one's lower bits.
        for step in 1..=WORDS {
            let bits = self.occupied[(word + step) % WORDS];
            if bits != 0 {
                let ahead = step as u64 * 64 - bit as u64 + u64::from(bits.trailing_zeros());
                return Some(self.first + ahead);
            }
        }
        None
    }

    /// Moves events that have come near into the ring (I2).
    fn fetch_far(&mut self) {
        while self.far.peek().is_some_and(|far| self.day_of(far.at) - self.first < DAYS) {
            if let Some(entry) = self.far.pop() {
                self.place(entry);
            }
        }
    }

    /// Chooses the width anew: as many days as pops since the last time, within a factor of two.
    fn tune(&mut self) {
        let per_unit = self.pops_since as f64 / (self.now - self.tuned_at);
        self.tune_after = (self.tune_after * 2).min(TUNE_AFTER_MAX);
        self.pops_since = 0;
        self.tuned_at = self.now;
        let ratio = per_unit / self.days_per_unit;
        // If all events are at one time, or so late that days cannot be counted, the width stays.
        let is_usable = per_unit.is_finite() && self.now * per_unit < (1_u64 << 52) as f64;
        if !is_usable || (0.5..=2.0).contains(&ratio) {
            return;
        }
        let mut entries: Vec<Entry<E>> = self.far.drain().collect();
        for slot in &mut self.days {
            entries.append(slot);
        }
        self.occupied = [0; WORDS];
        self.days_per_unit = per_unit;
        self.first = self.day_of(self.now);
        for entry in entries {
            self.place(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::EventQueue;

    /// Pops in the order of (time, push), for delays of that size and spread.
    #[track_caller]
    fn check(seed: u64, delay: impl Fn(&mut SmallRng) -> f64) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut queue = EventQueue::default();
        let mut model: Vec<(f64, u64)> = Vec::new();
        let (mut now, mut pushed) = (0.0, 0);
        for step in 0..20_000 {
            if model.len() < 2 || (random.random_bool(0.5) && step < 15_000) {
                let at = now + delay(&mut random);
                queue.push(at, pushed);
                model.push((at, pushed));
                pushed += 1;
            } else {
                let least = model.iter().copied().reduce(|a, b| if b < a { b } else { a });
                assert_eq!(queue.peek_at(), least.map(|least| least.0));
                let popped = queue.pop();
                assert_eq!(popped, least);
                model.retain(|entry| Some(*entry) != popped);
                now = popped.map_or(now, |popped| popped.0);
            }
            assert_eq!(queue.len(), model.len());
        }
    }

    #[test]
    fn events_leave_in_time_order_whatever_their_spread() {
        check(1, |random| random.random_range(0.0..100.0));
        check(2, |random| random.random_range(0.0_f64..1.0).powi(20) * 1e9);
        check(3, |random| f64::from(random.random_range(0..3_u32)));
        check(4, |random| random.random_range(0.0..1e-6));
        check(5, |_| 0.0);
    }

    #[test]
    fn an_empty_queue_has_nothing() {
        let mut queue: EventQueue<u8> = EventQueue::default();
        assert_eq!((queue.pop(), queue.peek_at(), queue.is_empty()), (None, None, true));
    }
}
