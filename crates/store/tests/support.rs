//! What several modules begin with: the settings of a small store, and random numbers.

use store::durable::{self, DataError, NewData, Opened};
use store::medium::Medium;
use store::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Set, StoreConfig, Tuning,
};

/// A small store for one session; a test names the settings that matter to it.
pub fn config(index: IndexKind, mode: Mode) -> StoreConfig {
    StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 1 << 20,
        index,
        mode,
        eviction: Eviction::default(),
        lossy_index: false,
        session_max: 1,
        item_max_bytes: 1 << 20,
        hash_seed: 3,
        batch: 32,
        huge_pages: HugePages::Off,
    }
}

/// A small store that keeps its items on a medium.
pub fn durable_config(index: IndexKind, memory_bytes: u64) -> StoreConfig {
    let (index_bytes, hash_seed, batch) = (64 << 10, 77, 8);
    StoreConfig { memory_bytes, index_bytes, hash_seed, batch, ..config(index, Mode::Clean) }
}

/// Opens a durable store without any of the options.
pub fn open_durable<M: Medium>(
    medium: M,
    config: StoreConfig,
    new: NewData,
) -> Result<Opened<M>, DataError> {
    durable::open(medium, config, (Tuning::default(), &[]), new, &mut |_, _| {})
}

/// The index that the name of a copy of a suite stands for.
pub fn index_kind(module: &str) -> IndexKind {
    match module.ends_with("with_tree") {
        true => IndexKind::Tree,
        false => IndexKind::Hash,
    }
}

/// A write without flags, expiry or condition.
pub fn set(value: &[u8]) -> Op<'_, NoUpdate> {
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    Op::Set(Set { value, client_flags: 0, expiry, condition })
}

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
