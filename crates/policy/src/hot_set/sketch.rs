//! A count-min sketch with conservative update: an upper bound on how often a key was seen.
//!
//! ```text
//!            column = mix(hash, seed of the row)
//!  row 0   │ 3 │ 0 │ 9 │ 1 │ ...      a key has one counter in each row;
//!  row 1   │ 0 │ 5 │ 4 │ 4 │ ...      others may share it, so that each counter
//!  row 2   │ 4 │ 7 │ 0 │ 2 │ ...      is at least the key's own count:
//!  row 3   │ 6 │ 1 │ 4 │ 0 │ ...      the smallest of the four is the estimate
//! ```
//!
//! Conservative update raises only those of the four counters that are below the new estimate. The
//! others are already too high because of other keys; raising them too would only spoil those keys'
//! estimates. The estimate is still never too low: each of the key's counters is raised to it.
//!
//! # Invariants
//! I1: an estimate is at least the key's true count.
//! I2: halving keeps I1 for counts that are halved too: rounding down keeps order.

use base::KeyHash;
use base::hash::mix;

const ROW_COUNT: usize = 4;

/// Four rows of counters.
#[derive(Debug)]
pub struct CountMin {
    counters: Vec<u32>,
    column_mask: usize,
    row_seeds: [u64; ROW_COUNT],
}

impl CountMin {
    /// At least `column_count` counters in each row, rounded up to a power of two.
    pub fn new(column_count: usize, seed: u64) -> CountMin {
        let column_count = column_count.max(1).next_power_of_two();
        CountMin {
            counters: vec![0; ROW_COUNT * column_count],
            column_mask: column_count - 1,
            row_seeds: std::array::from_fn(|row| mix(seed.wrapping_add(row as u64 + 1))),
        }
    }

    /// The memory for `column_count` columns.
    pub fn memory_bytes(column_count: usize) -> usize {
        ROW_COUNT * column_count.max(1).next_power_of_two() * size_of::<u32>()
    }

    /// Counts one access and returns the new estimate.
    pub fn add(&mut self, hash: KeyHash) -> u32 {
        let places = self.places(hash);
        let estimate = self.smallest(places).saturating_add(1);
        for place in places {
            self.counters[place] = self.counters[place].max(estimate);
        }
        estimate
    }

    /// An upper bound on how often the key was counted.
    pub fn estimate(&self, hash: KeyHash) -> u32 {
        self.smallest(self.places(hash))
    }

    /// Halves all counters.
    pub fn halve(&mut self) {
        for counter in &mut self.counters {
            *counter /= 2;
        }
    }

    fn smallest(&self, places: [usize; ROW_COUNT]) -> u32 {
        places.map(|place| self.counters[place]).into_iter().fold(u32::MAX, u32::min)
    }

    fn places(&self, hash: KeyHash) -> [usize; ROW_COUNT] {
        let column_count = self.column_mask + 1;
        std::array::from_fn(|row| {
            let column = mix(hash.0 ^ self.row_seeds[row]) as usize & self.column_mask;
            row * column_count + column
        })
    }
}
