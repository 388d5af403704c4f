//! A large value that is assembled from parts, which arrive in any order, with repeats.
//!
//! ```text
//!  bytes  |################|########........|........########|####   |   total
//!  units  | 1 1 1 1 1 1 1 1| 1 1 1 1 0 0 0 0| 0 0 0 0 1 1 1 1| 1 1 0 |   one bit per 64 bytes
//! ```
//!
//! # Invariants
//! I1: a part begins at a multiple of a unit and ends at one, or at the value's end. So a unit is
//!     complete or missing, and repeats and overlaps need no special care.
//! I2: `missing_units` is the number of zero bits below the value's end.

use thiserror::Error;

use super::request::Part;

/// Offsets and lengths of parts are multiples of this.
pub const PART_UNIT_BYTES: usize = 64;

/// A value while its parts arrive.
#[derive(Clone, Debug)]
pub struct Assembly {
    bytes: Vec<u8>,
    have: Vec<u64>,
    missing_units: usize,
}

/// The part cannot belong to the value.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadPart {
    /// It does not begin and end at multiples of a unit (I1), or is empty.
    #[error("a part of {len_bytes} bytes at {offset} does not cover whole units of 64 bytes")]
    NotWholeUnits {
        /// Where it begins.
        offset: u32,
        /// How long it is.
        len_bytes: usize,
    },
    /// It belongs to a value of another length, or is beyond the value's end.
    #[error("a part of a value of {total} bytes came for one of {want_total}")]
    OtherValue {
        /// The total in this part.
        total: u32,
        /// The total in the first part.
        want_total: u32,
    },
}

impl Assembly {
    /// An empty assembly for a value of this length.
    pub fn new(total: u32) -> Assembly {
        let unit_count = (total as usize).div_ceil(PART_UNIT_BYTES);
        Assembly {
            // The kernel provides zeroed pages when they are written, so a length alone costs next
            // to nothing.
            bytes: vec![0; total as usize],
            have: vec![0; unit_count.div_ceil(64)],
            missing_units: unit_count,
        }
    }

    /// The memory of a value of this length while it is assembled.
    pub fn cost_bytes(total: u32) -> u64 {
        u64::from(total) + u64::from(total).div_ceil(PART_UNIT_BYTES as u64 * 64) * 8
    }

    /// The value's length.
    pub fn total(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Adds a part; repeats have no effect.
    pub fn put(&mut self, part: Part, value: &[u8]) -> Result<(), BadPart> {
        check_part(part, value.len())?;
        let start = part.offset as usize;
        let want_total = self.total();
        let place = self.bytes.get_mut(start..start + value.len());
        let Some(place) = place.filter(|_| part.total == want_total) else {
            return Err(BadPart::OtherValue { total: part.total, want_total });
        };
        place.copy_from_slice(value);
        let first = start / PART_UNIT_BYTES;
        let end = (start + value.len()).div_ceil(PART_UNIT_BYTES);
        self.mark(first, end);
        Ok(())
    }

    /// Whether all parts have arrived.
    pub fn is_complete(&self) -> bool {
        self.missing_units == 0
    }

    /// The number of missing bytes, with the last unit counted as a whole one.
    pub fn missing_bytes(&self) -> u64 {
        self.missing_units as u64 * PART_UNIT_BYTES as u64
    }

    /// The value; zeros in place of missing parts.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn mark(&mut self, first: usize, end: usize) {
        let mut unit = first;
        while unit < end {
            let bit = unit % 64;
            let count = (64 - bit).min(end - unit);
            let mask = (u64::MAX >> (64 - count)) << bit;
            let word = &mut self.have[unit / 64];
            self.missing_units -= (mask & !*word).count_ones() as usize;
            *word |= mask;
            unit += count;
        }
    }
}

/// Refuses parts that violate I1 or lie outside the value they name.
pub(super) fn check_part(part: Part, len_bytes: usize) -> Result<(), BadPart> {
    let end = u64::from(part.offset) + len_bytes as u64;
    let is_last = end == u64::from(part.total);
    let is_whole = (part.offset as usize).is_multiple_of(PART_UNIT_BYTES)
        && (is_last || len_bytes.is_multiple_of(PART_UNIT_BYTES));
    if len_bytes == 0 || !is_whole || end > u64::from(part.total) {
        return Err(BadPart::NotWholeUnits { offset: part.offset, len_bytes });
    }
    Ok(())
}
