//! Sampling of accesses: one of `every` on average, at random distances.
//!
//! A fixed distance would see only some keys of a workload that repeats itself in step with it. An
//! access that is not sampled costs one subtraction.

use base::hash::mix;

/// One worker's sampler.
#[derive(Clone, Debug)]
pub struct Sampler {
    every: u32,
    skip_count: u32,
    state: u64,
}

impl Sampler {
    /// Samples one access of `every`; 1 samples all.
    pub fn new(every: u32, seed: u64) -> Sampler {
        assert!(every > 0, "one of none is no rate");
        let mut sampler = Sampler { every, skip_count: 0, state: seed };
        sampler.skip_count = sampler.next_distance() - 1;
        sampler
    }

    /// Whether this access is sampled.
    #[inline]
    pub fn wants(&mut self) -> bool {
        if self.skip_count > 0 {
            self.skip_count -= 1;
            return false;
        }
        self.skip_count = self.next_distance() - 1;
        true
    }

    /// Uniform from 1 to `2 * every - 1`: the mean is `every`.
    fn next_distance(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let span = 2 * u64::from(self.every) - 1;
        1 + ((u128::from(mix(self.state)) * u128::from(span)) >> 64) as u32
    }
}
