//! A fixed shuffle of 0..n, so that popular keys are spread over the key space.
//!
//! YCSB hashes the rank and takes the remainder, which merges some keys and skips others. Here
//! every step is a bijection on the next power of two. A value outside 0..n is mapped again until
//! it falls inside (at most two steps on average), so the shuffle loses no key.

pub use base::hash::mix;

/// A bijection on `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Scramble {
    count: u64,
    mask: u64,
    shift: u32,
    offset: u64,
}

impl Scramble {
    /// The shuffle of `0..count` for `seed`.
    ///
    /// # Panics
    /// When `count` is 0 or above 2^62.
    pub fn new(count: u64, seed: u64) -> Scramble {
        assert!(count > 0 && count <= 1 << 62, "a shuffle needs 1 to 2^62 values");
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        let mask = (1 << bits) - 1;
        Scramble { count, mask, shift: bits.div_ceil(2), offset: mix(seed) & mask }
    }

    /// The image of `value`.
    pub fn apply(&self, value: u64) -> u64 {
        debug_assert!(value < self.count);
        let mut spread = value;
        loop {
            spread = self.round(spread, 0x9e37_79b9_7f4a_7c15);
            spread = self.round(spread, 0xbf58_476d_1ce4_e5b9);
            spread = self.round(spread, 0x94d0_49bb_1331_11eb);
            if spread < self.count {
                return spread;
            }
        }
    }

    /// Each step is invertible on the masked bits: add, multiply by an odd number, fold down.
    fn round(&self, value: u64, odd: u64) -> u64 {
        let moved = value.wrapping_add(self.offset).wrapping_mul(odd) & self.mask;
        moved ^ (moved >> self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_up_once() {
        for count in [1, 2, 3, 5, 64, 1000, 65_537] {
            let scramble = Scramble::new(count, 9);
            let mut seen = vec![false; count as usize];
            for value in 0..count {
                let place = scramble.apply(value) as usize;
                assert!(!seen[place], "{count}: {place} twice");
                seen[place] = true;
            }
        }
    }

    #[test]
    fn the_hottest_hundred_fall_into_all_quarters() {
        let count = 1_000_000;
        let scramble = Scramble::new(count, 1);
        let mut quarters = [0; 4];
        for rank in 0..100 {
            quarters[(scramble.apply(rank) * 4 / count) as usize] += 1;
        }
        assert!(quarters.iter().all(|found| (10..=45).contains(found)), "{quarters:?}");
    }

    #[test]
    fn another_seed_is_another_shuffle() {
        let (one, two) = (Scramble::new(1 << 20, 1), Scramble::new(1 << 20, 2));
        let same = (0..1000).filter(|value| one.apply(*value) == two.apply(*value)).count();
        assert!(same < 10, "{same} of 1000 in the same place");
    }
}
