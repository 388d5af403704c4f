//! The K keys with the highest counts: a min-heap that records the place of each key.
//!
//! ```text
//!                 5  ◀── the least of the K: what a newcomer must beat
//!               /   \
//!              8     6          place_of: hash ─▶ place in the heap
//!             / \   /
//!            9  30 7            children of place i: 2i+1 and 2i+2
//! ```
//!
//! # Invariants
//! I1: no entry counts less than its parent.
//! I2: `place_of` names exactly the entries, each at its place.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use base::KeyHash;

/// The identity hasher: a key's hash is used unchanged.
#[derive(Clone, Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only 64-bit hashes are hashed")
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[derive(Clone, Debug)]
struct Entry<Key> {
    count: u32,
    hash: KeyHash,
    key: Key,
}

/// The tracked keys.
#[derive(Debug)]
pub struct Top<Key> {
    heap: Vec<Entry<Key>>,
    place_of: HashMap<KeyHash, usize, BuildHasherDefault<Identity>>,
    key_max: usize,
}

impl<Key> Top<Key> {
    /// Tracks up to `key_max` keys; all memory is allocated here.
    pub fn new(key_max: usize) -> Top<Key> {
        let mut place_of = HashMap::default();
        // One more: a newcomer enters before the least one leaves.
        place_of.reserve(key_max + 1);
        Top { heap: Vec::with_capacity(key_max), place_of, key_max }
    }

    /// The memory for `key_max` keys, without the memory that they point to.
    pub fn memory_bytes(key_max: usize) -> usize {
        // A table of the standard library is filled to seven eighths, with one byte for each place.
        let place_count = ((key_max + 1) * 8 / 7).next_power_of_two();
        let place_bytes = size_of::<(KeyHash, usize)>() + 1;
        key_max * size_of::<Entry<Key>>() + place_count * place_bytes
    }

    /// Sets a key's count to `count`, which must be no lower than before. Tracks the key if it is
    /// among the highest; `key` is called only then.
    pub fn offer(&mut self, hash: KeyHash, count: u32, key: impl FnOnce() -> Key) {
        if let Some(place) = self.place_of.get(&hash).copied() {
            debug_assert!(count >= self.heap[place].count, "counts grow");
            self.heap[place].count = count;
            self.sift_down(place);
        } else if self.heap.len() < self.key_max {
            let place = self.heap.len();
            self.heap.push(Entry { count, hash, key: key() });
            self.place_of.insert(hash, place);
            self.sift_up(place);
        } else if self.heap.first().is_some_and(|least| count > least.count) {
            let out = std::mem::replace(&mut self.heap[0], Entry { count, hash, key: key() });
            self.place_of.remove(&out.hash);
            self.place_of.insert(hash, 0);
            self.sift_down(0);
        }
    }

    /// Halves every count. Rounding down keeps the order, so the heap stays a heap.
    pub fn halve(&mut self) {
        for entry in &mut self.heap {
            entry.count /= 2;
        }
    }

    /// The counts, by place.
    pub fn counts(&self) -> impl ExactSizeIterator<Item = u32> {
        self.heap.iter().map(|entry| entry.count)
    }

    /// The key at a place.
    pub fn key_at(&self, place: usize) -> &Key {
        &self.heap[place].key
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].count <= self.heap[place].count {
                return;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let least = children
                .into_iter()
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| self.heap[*child].count);
            match least {
                Some(child) if self.heap[child].count < self.heap[place].count => {
                    self.swap(place, child);
                    place = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            self.place_of.insert(self.heap[place].hash, place);
        }
    }

    /// Recounts everything (I1, I2).
    pub fn validate(&self) {
        assert!(self.heap.len() <= self.key_max);
        assert!(self.heap.len() == self.place_of.len(), "I2");
        for (place, entry) in self.heap.iter().enumerate() {
            assert!(self.place_of.get(&entry.hash) == Some(&place), "I2");
            assert!(place == 0 || self.heap[(place - 1) / 2].count <= entry.count, "I1");
        }
    }
}
