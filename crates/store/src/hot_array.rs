//! A sorted array of hot keys, for workloads that read a few keys much more often than the others.
//!
//! ```text
//!  what all begin with   "user00000"
//!  slices                "00001234" │ "00005678" │ "00005678" │ "00009000"   8 bytes, as numbers
//!  rests                 "00001234" │ "00005678" │ "000056789"│ "00009000"   what is compared
//! ```
//!
//! A binary search over the slices, which lie close together and compare as numbers, ends at one
//! key, which is then compared in full. Only keys that share a slice are searched by their bytes.
//! The prefix common to all keys is left out, so that keys like `user:...` differ in their slices.
//!
//! # Invariants
//! I1: keys are distinct and in byte order; their slices are in the same order.
//!
//! # Limits
//! The array is immutable: another set of keys is another array (uTPS §3.2.2).

/// The number of key bytes compared as one number.
const SLICE_BYTES: usize = 8;

/// Distinct keys in byte order.
#[derive(Clone, Debug, Default)]
pub struct HotArray {
    /// The common prefix of all keys.
    shared: Box<[u8]>,
    /// For each key the first bytes behind the prefix, padded with zeros.
    slices: Box<[u64]>,
    /// The end of each key's rest in `rests`.
    ends: Box<[u32]>,
    rests: Box<[u8]>,
}

impl HotArray {
    /// Makes an array of these keys, given in any order.
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> HotArray {
        let mut keys: Vec<&[u8]> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        let shared_len_bytes = match (keys.first(), keys.last()) {
            // The keys are sorted: the common prefix of the first and the last is common to all.
            (Some(first), Some(last)) => {
                first.iter().zip(*last).take_while(|(one, other)| one == other).count()
            }
            _ => 0,
        };
        let rest_of = |key: &&'k [u8]| -> &'k [u8] { &key[shared_len_bytes..] };
        let mut end = 0;
        let ends = keys.iter().map(|key| {
            end += rest_of(key).len() as u32;
            end
        });
        HotArray {
            ends: ends.collect(),
            slices: keys.iter().map(|key| slice_of(rest_of(key))).collect(),
            rests: keys.iter().flat_map(rest_of).copied().collect(),
            shared: keys.first().map_or(&[][..], |key| &key[..shared_len_bytes]).into(),
        }
    }

    /// The most memory that an array of `key_count` keys of at most `key_len_bytes_max` takes.
    pub const fn memory_bytes_max(key_count: usize, key_len_bytes_max: usize) -> usize {
        let of_key = size_of::<u64>() + size_of::<u32>() + key_len_bytes_max;
        size_of::<HotArray>() + key_len_bytes_max + key_count * of_key
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The index of a key in the order; `None` if it is not in the array.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let rest = key.strip_prefix(&*self.shared)?;
        let wanted = slice_of(rest);
        // A binary search without a branch on the keys, which the processor could not predict.
        let first = self.slices.partition_point(|slice| *slice < wanted);
        if *self.slices.get(first)? != wanted {
            return None;
        }
        if self.slices.get(first + 1) == Some(&wanted) {
            return self.find_among(first, wanted, rest);
        }
        (self.rest(first) == rest).then_some(first)
    }

    /// The search among keys that share a slice.
    #[cold]
    fn find_among(&self, first: usize, wanted: u64, rest: &[u8]) -> Option<usize> {
        let count = self.slices[first..].partition_point(|slice| *slice == wanted);
        let (mut low, mut high) = (first, first + count);
        while low < high {
            let middle = low.midpoint(high);
            match self.rest(middle).cmp(rest) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    #[inline]
    fn rest(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rests[start as usize..self.ends[index] as usize]
    }
}

/// The first bytes as a number with the same order, except for zeros at the end.
#[inline]
fn slice_of(rest: &[u8]) -> u64 {
    if let Some(slice) = rest.first_chunk::<SLICE_BYTES>() {
        return u64::from_be_bytes(*slice);
    }
    let mut bytes = [0; SLICE_BYTES];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(keys: &BTreeSet<Vec<u8>>, strangers: &[Vec<u8>]) {
        let array = HotArray::new(keys.iter().rev().map(Vec::as_slice));
        assert_eq!((array.len(), array.is_empty()), (keys.len(), keys.is_empty()));
        assert!(array.slices.is_sorted(), "I1");
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(array.find(key), Some(index), "{key:?}");
        }
        for key in strangers.iter().filter(|key| !keys.contains(*key)) {
            assert_eq!(array.find(key), None, "{key:?}");
        }
    }

    /// Keys that agree for long, and differ by zeros at their ends.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let tail = vec(prop_oneof![Just(0_u8), Just(1), Just(0xff)], 0..4);
        (prop::sample::select(&["", "user:", "user:1234", "user:12345678"][..]), tail)
            .prop_map(|(head, tail)| [head.as_bytes(), &tail].concat())
    }

    proptest! {
        #[test]
        fn what_is_in_is_found_in_its_order_and_nothing_else(
            keys in btree_set(key(), 0..40),
            strangers in vec(key(), 40),
        ) {
            check(&keys, &strangers);
        }
    }

    #[test]
    fn keys_that_agree_but_for_their_last_digits_differ_in_their_slices() {
        let key = |id: u64| format!("user{id:019}").into_bytes();
        let keys: BTreeSet<Vec<u8>> = (0..1000).map(|id| key(id * 7)).collect();
        check(&keys, &(0..7000).map(key).collect::<Vec<_>>());
        let array = HotArray::new(keys.iter().map(Vec::as_slice));
        assert_eq!((&*array.shared, array.rests.len()), (&b"user000000000000000"[..], 4000));
        assert!(array.slices.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_largest_array_takes_what_is_said() {
        let key = |id: usize| format!("{id:08x}{}", "x".repeat(44)).into_bytes();
        for count in [0, 1, 10_000] {
            let keys: Vec<_> = (0..count).map(key).collect();
            let array = HotArray::new(keys.iter().map(Vec::as_slice));
            let places_bytes = size_of_val(&*array.slices) + size_of_val(&*array.ends);
            let keys_bytes = array.rests.len() + array.shared.len();
            let bytes = size_of::<HotArray>() + places_bytes + keys_bytes;
            assert!(bytes <= HotArray::memory_bytes_max(count, 52), "{count} keys: {bytes}");
        }
    }

    #[test]
    fn a_key_twice_is_one_and_a_lone_key_is_all_shared() {
        let array = HotArray::new([&b"h"[..], b"h"]);
        assert_eq!((array.len(), array.find(b"h"), array.find(b"hh")), (1, Some(0), None));
        assert_eq!((array.find(b""), HotArray::default().find(b"")), (None, None));
    }
}
