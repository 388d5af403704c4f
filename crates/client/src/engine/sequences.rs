//! The at-most-once numbers of a session: the request slot of each, and the low-water mark.
//!
//! # Invariants
//! Q1: every number below the low-water mark is settled; the number at the mark is not, unless it
//!     is `next`.

use super::slots::NONE;

#[derive(Debug)]
pub(super) struct Sequences {
    /// Slot by number; [`NONE`]: settled.
    ring: Vec<u32>,
    low_water: u32,
    next: u32,
    window: u32,
}

impl Sequences {
    pub fn new(window: u32) -> Sequences {
        Sequences {
            ring: vec![NONE; (window.max(1) as usize).next_power_of_two()],
            low_water: 0,
            next: 0,
            window: window.max(1),
        }
    }

    pub fn low_water(&self) -> u32 {
        self.low_water
    }

    pub fn next(&self) -> u32 {
        self.next
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

    /// Assigns a number to a slot; `None`: the window is full.
    pub fn take(&mut self, slot: u32) -> Option<u32> {
        if self.room() == 0 {
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
mod tests {
    use super::*;

    #[test]
    fn the_low_water_mark_is_the_lowest_that_is_not_settled() {
        let mut sequences = Sequences::new(4);
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
