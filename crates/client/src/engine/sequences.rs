//! The at-most-once numbers of a session: the request slot of each, the low-water mark, and the
//! writes that wait for a number.
//!
//! # Invariants
//! Q1: every number below the low-water mark is settled; the number at the mark is not, unless it
//!     is `next`.
//! Q2: at most `window` numbers from the mark on are taken, and at most `number_max` in a session.

use std::collections::VecDeque;

use super::slots::{NONE, Slot};

#[derive(Debug)]
pub(super) struct Sequences {
    /// Slot by number; [`NONE`]: settled.
    ring: Vec<u32>,
    low_water: u32,
    next: u32,
    window: u32,
    /// How many numbers a session has.
    number_max: u32,
    /// Writes that wait for a number, by the numbers of their slots.
    waiting: VecDeque<u32>,
}

impl Sequences {
    pub fn new(window: u32, number_max: u32) -> Sequences {
        let (ring, waiting) = (Vec::new(), VecDeque::new());
        let mut sequences =
            Sequences { ring, low_water: 0, next: 0, window: 0, number_max, waiting };
        sequences.restart(window);
        sequences
    }

    /// Begins the numbers of a new session.
    pub fn restart(&mut self, window: u32) {
        self.window = window.max(1);
        self.ring.clear();
        self.ring.resize((self.window as usize).next_power_of_two(), NONE);
        (self.low_water, self.next) = (0, 0);
    }

    pub fn low_water(&self) -> u32 {
        self.low_water
    }

    /// Whether the session has no numbers left.
    pub fn are_used_up(&self) -> bool {
        self.next >= self.number_max
    }

    pub fn is_idle(&self) -> bool {
        self.low_water == self.next
    }

    fn place(&self, sequence: u32) -> usize {
        sequence as usize & (self.ring.len() - 1)
    }

    /// The number of free numbers.
    pub fn room(&self) -> u32 {
        self.window - (self.next - self.low_water)
    }

    /// The number of a write, or a new one for it; `None`: it has to wait for one.
    pub fn of(&mut self, slot: &mut Slot, index: u32) -> Option<u32> {
        if slot.sequence.is_none() {
            slot.sequence = self.take(index);
        }
        slot.sequence
    }

    /// Makes a write wait for a number.
    pub fn wait(&mut self, slot_number: u32) {
        self.waiting.push_back(slot_number);
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next write that waits for a number.
    pub fn next_waiting(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }

    pub fn clear_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Assigns a number to a slot; `None`: the window is full, or all numbers are used up.
    fn take(&mut self, slot: u32) -> Option<u32> {
        if self.are_used_up() || self.room() == 0 {
            return None;
        }
        let sequence = self.next;
        self.next += 1;
        let place = self.place(sequence);
        self.ring[place] = slot;
        Some(sequence)
    }

    pub fn find(&self, sequence: u32) -> Option<u32> {
        let is_known = (self.low_water..self.next).contains(&sequence);
        is_known.then(|| self.ring[self.place(sequence)]).filter(|slot| *slot != NONE)
    }

    pub fn settle(&mut self, sequence: u32) {
        if self.find(sequence).is_none() {
            return;
        }
        let place = self.place(sequence);
        self.ring[place] = NONE;
        while self.low_water < self.next && self.ring[self.place(self.low_water)] == NONE {
            self.low_water += 1;
        }
    }
}

#[cfg(test)]
impl Sequences {
    pub(crate) fn waiting_capacity(&self) -> usize {
        self.waiting.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_water_mark_is_the_lowest_that_is_not_settled() {
        let mut sequences = Sequences::new(4, u32::MAX);
        let taken: Vec<_> = (10..16).map(|slot| sequences.take(slot)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), Some(3), None, None]);
        sequences.settle(1);
        sequences.settle(2);
        assert_eq!(
            (sequences.low_water(), sequences.find(2), sequences.find(3)),
            (0, None, Some(13))
        );
        sequences.settle(0);
        sequences.settle(0);
        assert_eq!(sequences.low_water(), 3);
        assert_eq!((sequences.take(20), sequences.find(4)), (Some(4), Some(20)));
        assert_eq!((sequences.find(5), sequences.find(0)), (None, None));
        sequences.settle(3);
        sequences.settle(4);
        assert!(sequences.is_idle());
    }
}
