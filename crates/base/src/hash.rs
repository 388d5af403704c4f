//! The key hash: rapidhash v3, seeded per server or data set (K26); and a 64-bit mixing function.
//!
//! The `v3` functions promise the same output across versions and platforms, so hashes may be
//! persisted. They resist collision attacks only minimally, and only while the seed is secret: no
//! client learns the index's seed (K26). The hashes by which native clients steer, and by which CAS
//! tokens differ, have seeds of their own and order nothing.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use crate::ids::KeyHash;

/// Hashes keys under one seed. Built once per store; shared by reference.
#[derive(Clone)]
pub struct KeyHasher {
    seed: u64,
    secrets: RapidSecrets,
}

impl KeyHasher {
    /// A hasher for `seed`; equal seeds give equal hashes on every machine.
    pub fn new(seed: u64) -> KeyHasher {
        KeyHasher { seed, secrets: RapidSecrets::seed(seed) }
    }

    /// The seed that this hasher was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_micro_inline::<true, false>(key, &self.secrets))
    }
}

impl std::fmt::Debug for KeyHasher {
    /// Omits the seed: a client that knows it can aim at one bucket.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyHasher")
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection on 64 bits. Every
/// input bit affects every output bit.
#[inline]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change_between_releases() {
        let hasher = KeyHasher::new(7);
        let found = [&b""[..], b"a", b"user:1000", &[0xff; 100]].map(|key| hasher.hash(key).0);
        assert_eq!(found, HASHES_OF_SEED_7);
    }

    const HASHES_OF_SEED_7: [u64; 4] =
        [11861565263087308663, 16916676164894794039, 13033583745053690736, 6017508554112091948];

    #[test]
    fn another_seed_gives_other_hashes() {
        assert_ne!(KeyHasher::new(1).hash(b"key"), KeyHasher::new(2).hash(b"key"));
    }
}
