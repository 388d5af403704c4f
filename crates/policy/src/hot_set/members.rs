//! Membership test for hot keys, cheap enough for every request: a set of hashes in a few cache
//! lines.
//!
//! ```text
//!  hash ─ low bits ─▶ bucket: one cache line of sixteen words
//!       ─ high half ─▶ its mark; a mark among the sixteen: the key is hot
//! ```
//!
//! All sixteen marks are always compared, which the compiler does with a few vector instructions
//! and no branch to predict. 1,000 keys take 16 KiB, 10,000 take 256 KiB.
//!
//! # Invariants
//! I1: every given key is in the set, unless more than sixteen share 20 low bits of their hashes.
//! I2: another key is found in the set with a probability below 16 in 4 billion; it is then served
//!     by another worker than it might be, and no worse (K7).

use base::KeyHash;

const MARKS_PER_BUCKET: usize = 16;

/// The average number of keys in a bucket: a quarter, so that the fullest of a thousand buckets
/// holds its keys.
const KEYS_PER_BUCKET: usize = 4;

/// The most buckets that are tried to avoid a full one.
const BUCKETS_MAX: usize = 1 << 20;

/// One cache line of marks; 0 is no mark.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u32; MARKS_PER_BUCKET]);

const _: () = assert!(size_of::<Bucket>() == 64);

/// An immutable set of hashes.
#[derive(Clone, Debug)]
pub struct Members {
    buckets: Box<[Bucket]>,
    key_count: usize,
}

impl Default for Members {
    fn default() -> Members {
        Members::new(&[])
    }
}

impl Members {
    /// The memory for `key_count` keys, unless one of their buckets overflows.
    pub fn memory_bytes(key_count: usize) -> usize {
        key_count.div_ceil(KEYS_PER_BUCKET).max(1).next_power_of_two() * size_of::<Bucket>()
    }

    /// A set of these hashes.
    pub fn new(hashes: &[KeyHash]) -> Members {
        let mut bucket_count = hashes.len().div_ceil(KEYS_PER_BUCKET).max(1).next_power_of_two();
        loop {
            let mut members = Members {
                buckets: vec![Bucket([0; MARKS_PER_BUCKET]); bucket_count].into_boxed_slice(),
                key_count: 0,
            };
            let entered_count = hashes.iter().filter(|hash| members.try_enter(**hash)).count();
            if entered_count == hashes.len() || bucket_count >= BUCKETS_MAX {
                return members;
            }
            bucket_count *= 2;
        }
    }

    /// Whether a key with that hash is in the set.
    #[inline]
    pub fn contains(&self, hash: KeyHash) -> bool {
        let mark = mark_of(hash);
        let Bucket(marks) = &self.buckets[self.bucket_of(hash)];
        marks.iter().fold(false, |is_found, own| is_found | (*own == mark))
    }

    /// The number of different keys in the set.
    pub fn len(&self) -> usize {
        self.key_count
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.key_count == 0
    }

    #[inline]
    fn bucket_of(&self, hash: KeyHash) -> usize {
        hash.0 as usize & (self.buckets.len() - 1)
    }

    /// Enters a hash; returns false if the bucket is full.
    fn try_enter(&mut self, hash: KeyHash) -> bool {
        if self.contains(hash) {
            return true;
        }
        let at = self.bucket_of(hash);
        let Some(place) = self.buckets[at].0.iter().position(|mark| *mark == 0) else {
            return false;
        };
        self.buckets[at].0[place] = mark_of(hash);
        self.key_count += 1;
        true
    }
}

/// The mark of a hash; never 0.
#[inline]
fn mark_of(hash: KeyHash) -> u32 {
    ((hash.0 >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(key: u64) -> KeyHash {
        KeyHash(base::hash::mix(key.wrapping_add(1)))
    }

    #[track_caller]
    fn check(key_count: u64) {
        let hashes: Vec<KeyHash> = (0..key_count).map(hash_of).collect();
        let members = Members::new(&hashes);
        assert_eq!(members.len() as u64, key_count);
        assert_eq!(members.is_empty(), key_count == 0);
        assert!(hashes.iter().all(|hash| members.contains(*hash)), "{key_count} keys");
        let strangers = (key_count..key_count + 100_000).map(hash_of);
        assert_eq!(strangers.filter(|hash| members.contains(*hash)).count(), 0);
    }

    #[test]
    fn what_is_in_is_found_and_what_is_not_is_not() {
        for key_count in [0, 1, 2, 15, 16, 17, 1000, 10_000] {
            check(key_count);
        }
    }

    #[test]
    fn sizes_are_as_documented() {
        let bytes = |key_count: u64| {
            let hashes: Vec<KeyHash> = (0..key_count).map(hash_of).collect();
            size_of_val(&*Members::new(&hashes).buckets)
        };
        assert_eq!((bytes(1000), bytes(10_000)), (16 << 10, 256 << 10));
    }

    #[test]
    fn a_full_bucket_makes_the_set_larger() {
        // Seventeen keys that differ in bit 8 first: they share one bucket until there are 512.
        let hashes: Vec<KeyHash> =
            (0..17).map(|key: u64| KeyHash(key << 40 | (key & 1) << 8)).collect();
        let members = Members::new(&hashes);
        assert_eq!(members.len(), 17);
        assert!(hashes.iter().all(|hash| members.contains(*hash)));
        assert!(!members.contains(KeyHash(3 << 40)), "an odd key with an even key's low bits");
    }

    #[test]
    fn keys_that_no_size_tells_apart_are_left_out_in_the_end() {
        let hashes: Vec<KeyHash> = (1..=20).map(|key: u64| KeyHash(key << 32)).collect();
        assert_eq!(Members::new(&hashes).len(), MARKS_PER_BUCKET);
    }

    #[test]
    fn a_hash_whose_upper_half_is_zero_is_a_member_like_others() {
        let members = Members::new(&[KeyHash(7)]);
        assert!(members.contains(KeyHash(7)));
        assert!(!Members::default().contains(KeyHash(7)), "an empty place is no member");
    }
}
