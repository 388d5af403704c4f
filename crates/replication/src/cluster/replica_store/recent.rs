//! The keys of a shard's newest versions, ordered by version.
//!
//! ```text
//!  places  v7 ─┐ v8 ─┐ v9 ─┐ v12 ─┐       sorted; late ones are inserted
//!  keys    | a | x | b | c | a |   |       in the order of arrival; x has left
//!            ▲───────▲───▲───▲────┘        half of them gone: the rest is compacted
//! ```
//!
//! # Invariants
//! R1: versions are distinct, and places are sorted by them.
//! R2: an entry costs no allocation: a backup has one for each write, for some 15 ms.

use std::collections::VecDeque;

use cluster::Version;

use super::finding::Found;

/// Bytes of removed keys that are tolerated.
const WASTE_MAX_BYTES: usize = 4 << 10;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Recent {
    places: VecDeque<Place>,
    keys: Vec<u8>,
    live_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    version: Version,
    start: usize,
    len_bytes: usize,
}

impl Recent {
    /// Adds a key's version, unless it is present.
    pub(super) fn add(&mut self, version: Version, key: &[u8]) {
        let place = Place { version, start: self.keys.len(), len_bytes: key.len() };
        match self.places.back() {
            Some(last) if last.version >= version => {
                let at = self.first_above(version);
                // R1
                if at.checked_sub(1).is_some_and(|before| self.places[before].version == version) {
                    return;
                }
                self.places.insert(at, place);
            }
            _ => self.places.push_back(place),
        }
        self.keys.extend_from_slice(key);
        self.live_bytes += key.len();
    }

    /// Forgets all versions up to this one.
    pub(super) fn forget(&mut self, through: Version) {
        while let Some(gone) = self.places.pop_front_if(|first| first.version <= through) {
            self.live_bytes -= gone.len_bytes;
        }
        if self.keys.len() > 2 * self.live_bytes + WASTE_MAX_BYTES {
            self.close_up();
        }
    }

    /// Adds findings, in any order.
    pub(super) fn merge(&mut self, mut found: Vec<Found>) {
        found.extend(self.above(Version::ZERO).map(|(version, key)| (version, key.into())));
        found.sort_unstable_by_key(|(version, _)| *version);
        self.clear();
        found.iter().for_each(|(version, key)| self.add(*version, key));
    }

    fn close_up(&mut self) {
        let mut keys = Vec::with_capacity(self.live_bytes);
        for place in &mut self.places {
            let key = place.start..place.start + place.len_bytes;
            place.start = keys.len();
            keys.extend_from_slice(&self.keys[key]);
        }
        self.keys = keys;
    }

    /// Versions above this one, with their keys.
    pub(super) fn above(&self, floor: Version) -> impl Iterator<Item = (Version, &[u8])> {
        let places = self.places.range(self.first_above(floor)..);
        places.map(|place| (place.version, &self.keys[place.start..place.start + place.len_bytes]))
    }

    fn first_above(&self, version: Version) -> usize {
        self.places.partition_point(|place| place.version <= version)
    }

    /// The highest version.
    pub(super) fn last(&self) -> Option<Version> {
        self.places.back().map(|place| place.version)
    }

    /// The number of versions.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Bytes of their keys.
    pub(super) fn key_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Forgets all versions.
    pub(super) fn clear(&mut self) {
        *self = Recent::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn version(bits: u64) -> Version {
        Version::from_bits(bits).unwrap()
    }

    #[test]
    fn it_tells_what_a_map_would() {
        let (mut recent, mut model) = (Recent::default(), BTreeMap::new());
        for step in 1..5_000_u64 {
            // Ordered by version except for neighbours, some of them twice.
            let bits = (step ^ (step % 7)) + 1;
            let key = format!("key {}", bits * 31 % 97).into_bytes();
            recent.add(version(bits), &key);
            model.entry(version(bits)).or_insert(key);
            if step % 211 == 0 {
                let through = version(step - 150);
                recent.forget(through);
                model.retain(|version, _| *version > through);
                assert!(recent.keys.len() <= 2 * recent.key_bytes() + WASTE_MAX_BYTES);
            }
            if step % 97 == 0 {
                let floor = version(step.saturating_sub(60));
                let told: Vec<_> =
                    recent.above(floor).map(|(version, key)| (version, key.to_vec())).collect();
                let above = model.iter().filter(|(version, _)| **version > floor);
                let wanted: Vec<_> = above.map(|(version, key)| (*version, key.clone())).collect();
                assert_eq!(told, wanted);
            }
            assert_eq!(
                (recent.count(), recent.last()),
                (model.len(), model.keys().last().copied())
            );
            assert_eq!(recent.key_bytes(), model.values().map(Vec::len).sum::<usize>());
        }
    }
}
