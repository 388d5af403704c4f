//! Random numbers from one seed: SplitMix64, with a separate stream for each purpose.

use base::hash::mix;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream for a purpose; it is independent of other purposes.
    pub fn new(seed: u64, purpose: u64) -> Dice {
        Dice(mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(purpose.wrapping_add(1))))
    }

    /// 64 bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One of `0..count`; 0 if there is none.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(count)) >> 64) as u64
    }

    /// One of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with this probability in parts of a million.
    pub fn happens(&mut self, per_million: u64) -> bool {
        self.below(1_000_000) < per_million
    }

    /// An index of a list that is not empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn streams_are_the_seeds_and_even() {
        let rolls = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            [dice.roll(), dice.roll()]
        };
        assert_eq!(rolls(1, 2), rolls(1, 2));
        assert_ne!(rolls(1, 2), rolls(1, 3));
        assert_ne!(rolls(1, 2), rolls(2, 2));
        let mut dice = Dice::new(7, 7);
        let count = (0..10_000).filter(|_| dice.happens(250_000)).count();
        assert!((2_300..2_700).contains(&count), "{count}");
        assert!((0..1000).all(|_| (3..=5).contains(&dice.between(3, 5))));
    }
}
