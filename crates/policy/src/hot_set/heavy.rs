//! The heaviest keys of a stream, in bounded memory: the space-saving algorithm with weights.
//!
//! ```text
//!  add(key, 7) ── known ──▶ its weight + 7
//!       │
//!       └─ unknown, and all places taken ──▶ the lightest key's place, and its weight as a floor
//!
//!  places   a: 900   b: 410   c: 35 (floor 28) ──▶ shown: a 900, b 410, c 7
//! ```
//!
//! # Invariants
//! I1: the weight shown for a key is never more than its true weight, and less by its floor at
//!     most.
//! I2: a key that weighs more than the total divided by the number of places has a place.
//! I3: `place_of` names exactly the keys, each at its place.
//!
//! # Trade-offs
//! The lightest of at most a thousand weights is found by looking at all of them. A heap would have
//! to be repaired at every access of a key that has a place, which is the common case.
//!
//! # References
//! Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
//! streams (ICDT 2005).

use std::collections::HashMap;

use base::KeyHash;

/// A key with a place.
#[derive(Clone, Debug)]
pub struct Heavy<Key, Note> {
    /// The key.
    pub key: Key,
    /// Its weight since it got the place; never more than its total weight.
    pub weight: u64,
    /// The note about it since then.
    pub note: Note,
}

/// Weighs keys.
#[derive(Debug)]
pub struct Heaviest<Key, Note> {
    /// The weights by place; separate from the rest because a search reads all of them.
    weights: Vec<u64>,
    floors: Vec<u64>,
    owners: Vec<(KeyHash, Key, Note)>,
    place_of: HashMap<KeyHash, usize>,
    place_max: usize,
    total: u64,
}

impl<Key: Clone, Note: Clone + Default> Heaviest<Key, Note> {
    /// Makes `place_max` places.
    pub fn new(place_max: usize) -> Heaviest<Key, Note> {
        assert!(place_max > 0, "without a place nothing is found");
        Heaviest {
            weights: Vec::with_capacity(place_max),
            floors: Vec::with_capacity(place_max),
            owners: Vec::with_capacity(place_max),
            place_of: HashMap::with_capacity(place_max + 1),
            place_max,
            total: 0,
        }
    }

    /// Its maximum memory, without the memory that keys and notes point to.
    pub fn memory_bytes(place_max: usize) -> usize {
        let of_map = 2 * (size_of::<(KeyHash, usize)>() + 1);
        place_max * (2 * size_of::<u64>() + size_of::<(KeyHash, Key, Note)>() + of_map)
    }

    /// Adds weight to a key; returns its note. `key` is called only if the key gets a place.
    pub fn add(&mut self, hash: KeyHash, weight: u64, key: impl FnOnce() -> Key) -> &mut Note {
        self.total = self.total.saturating_add(weight);
        let place = match self.place_of.get(&hash) {
            Some(place) => *place,
            None => self.take_place(hash, key()),
        };
        self.weights[place] = self.weights[place].saturating_add(weight);
        &mut self.owners[place].2
    }

    fn take_place(&mut self, hash: KeyHash, key: Key) -> usize {
        let place = if self.owners.len() < self.place_max {
            self.weights.push(0);
            self.floors.push(0);
            self.owners.push((hash, key, Note::default()));
            self.owners.len() - 1
        } else {
            let lightest = (0..self.weights.len()).min_by_key(|place| self.weights[*place]);
            let place = lightest.unwrap_or(0);
            self.floors[place] = self.weights[place];
            self.place_of.remove(&self.owners[place].0);
            self.owners[place] = (hash, key, Note::default());
            place
        };
        self.place_of.insert(hash, place);
        place
    }

    /// The total weight of all keys.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The keys with a place, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = Heavy<Key, Note>> + '_ {
        (0..self.owners.len()).map(|place| {
            let (_, key, note) = &self.owners[place];
            let weight = self.weights[place] - self.floors[place];
            Heavy { key: key.clone(), weight, note: note.clone() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(heaviest: &Heaviest<u64, u32>) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = heaviest.all().map(|heavy| (heavy.weight, heavy.key)).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all
    }

    #[test]
    fn weights_are_exact_while_there_is_room() {
        let mut heaviest: Heaviest<u64, u32> = Heaviest::new(3);
        for (key, weight) in [(1, 5), (2, 9), (1, 6), (3, 0)] {
            *heaviest.add(KeyHash(key), weight, || key) += 1;
        }
        assert_eq!(ranked(&heaviest), [(11, 1), (9, 2), (0, 3)]);
        assert_eq!(heaviest.total(), 20);
        assert_eq!(heaviest.all().find(|heavy| heavy.key == 1).map(|heavy| heavy.note), Some(2));
    }

    #[test]
    fn a_newcomer_takes_the_lightest_place_and_not_its_weight() {
        let mut heaviest: Heaviest<u64, u32> = Heaviest::new(2);
        *heaviest.add(KeyHash(1), 100, || 1) += 1;
        *heaviest.add(KeyHash(2), 30, || 2) += 1;
        assert_eq!(*heaviest.add(KeyHash(3), 4, || 3), 0, "its notes are its own");
        assert_eq!(ranked(&heaviest), [(100, 1), (4, 3)]);
        heaviest.add(KeyHash(2), 5, || 2);
        assert_eq!(ranked(&heaviest), [(100, 1), (5, 2)]);
        assert_eq!(heaviest.total(), 139);
    }

    /// I1 and I2, on keys of which few are heavy.
    #[test]
    fn heavy_keys_are_found_among_many_light_ones() {
        let mut heaviest: Heaviest<u64, u32> = Heaviest::new(64);
        let mut truth = HashMap::new();
        for step in 0..40_000_u64 {
            let word = base::hash::mix(step);
            let key = if word.is_multiple_of(4) { step % 8 } else { 100 + word % 10_000 };
            let weight = 1 + word % 16;
            *truth.entry(key).or_insert(0) += weight;
            heaviest.add(KeyHash(base::hash::mix(key)), weight, || key);
        }
        for heavy in heaviest.all() {
            assert!(heavy.weight <= truth[&heavy.key], "I1: {heavy:?} of {}", truth[&heavy.key]);
        }
        let mut first: Vec<u64> = ranked(&heaviest)[..8].iter().map(|(_, key)| *key).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7], "I2");
    }
}
