//! Random numbers from a seed: splitmix64.

/// A sequence.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// The same seed, the same sequence.
    pub fn new(seed: u64) -> Dice {
        Dice { state: seed }
    }

    /// From 0 on, less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    /// One of them; the first of none is a mistake of the caller, which gets a default.
    pub fn of<T: Copy + Default>(&mut self, all: &[T]) -> T {
        all.get(self.below(all.len() as u64) as usize).copied().unwrap_or_default()
    }
}
