//! Broadcasting: the clients that are notified of all changed keys with some prefix, read or not.
//!
//! ```text
//!  prefix ─▶ clients              (all)          bar: {3}    foo: {3, 8}    foo:1: {5}
//!  length ─▶ number of prefixes                  3: 2        5: 1
//!  prefix ─▶ keys, by client      (a gathering)  foo: {foo1 by 3, foo2}
//!
//!  key foo:27 ─▶ the greatest prefix up to it: foo:1, which shares foo: with it
//!             ─▶ lengths up to 4: the hash of foo is known, and foo is there
//! ```
//!
//! # Invariants
//! I1: the prefixes that one client names do not overlap, so it is notified of a key once; only a
//!     client that asks for all keys later is notified of some by both.
//! I2: a key is hashed once, up to the part it shares with the prefix next to it, and looked up
//!     only at those lengths whose hash is that of a prefix: never once per prefix.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use base::hash::mix;
use commands::work::Work;

/// The cost of hashing a byte and looking the hash up.
const HASH_STEPS: u64 = 8;

/// The prefixes of all clients.
#[derive(Debug, Default)]
pub struct Prefixes {
    clients: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    /// The number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
    /// The number of prefixes with each hash: usually one.
    hashes: HashMap<u64, usize>,
    seed: RandomState,
}

/// Keys that changed, each with the client that changed it last.
pub type ChangedKeys = BTreeMap<Box<[u8]>, Option<u64>>;

/// The keys that changed in a gathering, by prefix.
#[derive(Debug, Default)]
pub struct Broadcast {
    keys: BTreeMap<Box<[u8]>, ChangedKeys>,
}

/// Two prefixes, one of which begins with the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<'p> {
    /// The requested one.
    pub prefix: &'p [u8],
    /// The other one.
    pub other: Box<[u8]>,
    /// The client already has it.
    pub is_known: bool,
}

impl Prefixes {
    /// The number of prefixes.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// Adds a prefix of a client.
    pub fn add(&mut self, prefix: &[u8], client_id: u64) {
        if let Some(clients) = self.clients.get_mut(prefix) {
            clients.insert(client_id);
            return;
        }
        self.clients.insert(prefix.into(), BTreeSet::from([client_id]));
        *self.lengths.entry(prefix.len()).or_default() += 1;
        *self.hashes.entry(hash_on(self.empty_hash(), prefix)).or_default() += 1;
    }

    /// Removes the prefixes of a client.
    pub fn remove(&mut self, prefixes: &BTreeSet<Box<[u8]>>, client_id: u64) {
        for prefix in prefixes {
            let Some(clients) = self.clients.get_mut(prefix) else { continue };
            clients.remove(&client_id);
            if clients.is_empty() {
                self.clients.remove(prefix);
                self.forget(prefix);
            }
        }
    }

    /// Removes a prefix after its last client.
    fn forget(&mut self, prefix: &[u8]) {
        let hash = hash_on(self.empty_hash(), prefix);
        if let Some(count) = self.hashes.get_mut(&hash) {
            *count -= 1;
            if *count == 0 {
                self.hashes.remove(&hash);
            }
        }
        let length = prefix.len();
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    /// The hash that all others start from; no client can guess it.
    fn empty_hash(&self) -> u64 {
        self.seed.hash_one(())
    }

    /// Records a changed key; returns the cost of looking up its prefixes (I2).
    pub fn note(&self, broadcast: &mut Broadcast, key: &[u8], by: Option<u64>) -> Work {
        let mut work = Work::keys(1);
        // Each prefix of the key is also a prefix of the greatest one up to the key.
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        let Some((nearest, _)) = self.clients.range::<[u8], _>(up_to_key).next_back() else {
            return work;
        };
        let shared_len = nearest.iter().zip(key).take_while(|(one, other)| one == other).count();
        let (mut hash, mut hashed_len) = (self.empty_hash(), 0);
        for length in self.lengths.range(..=shared_len).map(|(length, _)| *length) {
            hash = hash_on(hash, &key[hashed_len..length]);
            work += Work::steps(HASH_STEPS * (length - hashed_len) as u64);
            hashed_len = length;
            if !self.hashes.contains_key(&hash) {
                continue;
            }
            work += Work::keys(1);
            if let Some((prefix, _)) = self.clients.get_key_value(&key[..length]) {
                let keys = broadcast.keys.entry(prefix.clone()).or_default();
                keys.insert(key.into(), by);
                work += Work::bytes(key.len() as u64);
            }
        }
        work
    }

    /// The clients that have named that prefix.
    pub fn clients_of(&self, prefix: &[u8]) -> impl Iterator<Item = u64> {
        self.clients.get(prefix).into_iter().flatten().copied()
    }
}

impl Broadcast {
    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The prefixes in order, each with its keys in order.
    pub fn take(&mut self) -> impl Iterator<Item = (Box<[u8]>, ChangedKeys)> {
        std::mem::take(&mut self.keys).into_iter()
    }
}

/// Extends a hash by these bytes.
fn hash_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| mix(hash ^ u64::from(*byte)))
}

/// The overlap that prevents a client with the prefixes `known` from adding `wanted` (I1).
pub fn find_overlap<'p>(known: &BTreeSet<Box<[u8]>>, wanted: &[&'p [u8]]) -> Option<Overlap<'p>> {
    let first_of_wanted = first_overlapping(wanted);
    for (at, prefix) in wanted.iter().enumerate() {
        if let Some(other) = known_overlap(known, prefix) {
            return Some(Overlap { prefix, other: other.into(), is_known: true });
        }
        if first_of_wanted == Some(at) {
            let mut others = wanted[at + 1..].iter();
            let other = others.find(|it| it.starts_with(prefix) || prefix.starts_with(it))?;
            return Some(Overlap { prefix, other: (*other).into(), is_known: false });
        }
    }
    None
}

/// The first of these prefixes that overlaps with another of them.
fn first_overlapping(wanted: &[&[u8]]) -> Option<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_unstable_by_key(|at| wanted[*at]);
    let (mut root, behind) = order.split_first()?;
    let mut first: Option<usize> = None;
    for at in behind {
        // All words with a given prefix come directly after it.
        if wanted[*at].starts_with(wanted[*root]) {
            first = first.into_iter().chain([*root, *at]).min();
        } else {
            root = at;
        }
    }
    first
}

/// The least of a client's prefixes that overlaps: all keys, or one of the two next to it (I1).
fn known_overlap<'k>(known: &'k BTreeSet<Box<[u8]>>, prefix: &[u8]) -> Option<&'k [u8]> {
    let all = known.first().filter(|first| first.is_empty());
    let mut up_to = known.range::<[u8], _>((Bound::Unbounded, Bound::Included(prefix)));
    let mut behind = known.range::<[u8], _>((Bound::Excluded(prefix), Bound::Unbounded));
    let found = all
        .or_else(|| up_to.next_back().filter(|other| prefix.starts_with(other)))
        .or_else(|| behind.next().filter(|other| other.starts_with(prefix)));
    found.map(|other| &**other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_gathered_by_prefix_in_their_order() {
        let mut prefixes = Prefixes::default();
        prefixes.add(b"foo", 1);
        prefixes.add(b"foo", 2);
        prefixes.add(b"", 3);
        let mut broadcast = Broadcast::default();
        for (key, by) in [("foo2", Some(1)), ("bar", None), ("foo1", None), ("foo2", Some(2))] {
            prefixes.note(&mut broadcast, key.as_bytes(), by);
        }
        let of = |keys: &[(&str, Option<u64>)]| {
            let keys = keys.iter().map(|(key, by)| (key.as_bytes().into(), *by));
            BTreeMap::<Box<[u8]>, _>::from_iter(keys)
        };
        let told: Vec<_> = broadcast.take().collect();
        let all = of(&[("bar", None), ("foo1", None), ("foo2", Some(2))]);
        let of_foo = of(&[("foo1", None), ("foo2", Some(2))]);
        assert_eq!(told, [((*b"").into(), all), ((*b"foo").into(), of_foo)]);
        assert!(broadcast.is_empty());
        assert!(prefixes.clients_of(b"foo").eq([1, 2]));
        prefixes.remove(&BTreeSet::from([(*b"foo").into()]), 1);
        prefixes.remove(&BTreeSet::from([(*b"foo").into()]), 2);
        assert_eq!(prefixes.count(), 1);
    }

    #[test]
    fn a_client_has_no_two_prefixes_for_one_key() {
        let known = BTreeSet::from([(*b"foo").into()]);
        let check = |wanted: &[&str], want: Option<(&str, &str, bool)>| {
            let wanted: Vec<&[u8]> = wanted.iter().map(|prefix| prefix.as_bytes()).collect();
            let found = find_overlap(&known, &wanted);
            let found = found.as_ref().map(|it| (it.prefix, &it.other[..], it.is_known));
            assert_eq!(found, want.map(|(one, other, is)| (one.as_bytes(), other.as_bytes(), is)));
        };
        check(&["bar", "baz"], None);
        check(&["foob"], Some(("foob", "foo", true)));
        check(&["b", "f"], Some(("f", "foo", true)));
        check(&["bar", "bar"], Some(("bar", "bar", false)));
        check(&["ba", "bar"], Some(("ba", "bar", false)));
        check(&[""], Some(("", "foo", true)));
    }

    /// The definition: each is compared with all known ones, and with all after it.
    fn find_overlap_by_pairs(known: &BTreeSet<Box<[u8]>>, wanted: &[&[u8]]) -> Option<Found> {
        let overlaps = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
        for (at, prefix) in wanted.iter().enumerate() {
            if let Some(other) = known.iter().find(|other| overlaps(prefix, other)) {
                return Some((prefix.to_vec(), other.to_vec(), true));
            }
            if let Some(other) = wanted[at + 1..].iter().find(|other| overlaps(prefix, other)) {
                return Some((prefix.to_vec(), other.to_vec(), false));
            }
        }
        None
    }

    type Found = (Vec<u8>, Vec<u8>, bool);

    /// Random numbers, each below a bound.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |bound| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state) as usize % bound
        }
    }

    /// Few letters, with the least and the greatest byte among them, so that many words overlap.
    fn word(below: &mut impl FnMut(usize) -> usize, len_max: usize) -> Vec<u8> {
        let len = below(len_max + 1);
        (0..len).map(|_| [0, b'a', b'b', 255][below(4)]).collect()
    }

    #[test]
    fn overlaps_are_those_of_all_pairs() {
        let mut below = numbers(1);
        let mut counts = [0; 3];
        for _ in 0..20_000 {
            let mut known: BTreeSet<Box<[u8]>> = BTreeSet::new();
            for _ in 0..below(6) {
                let one = word(&mut below, 5);
                if find_overlap_by_pairs(&known, &[&one]).is_none() {
                    known.insert(one.into());
                }
            }
            if below(8) == 0 {
                known.insert(Box::default()); // All keys, beside others.
            }
            let len_max = 2 + below(8);
            let words: Vec<_> = (0..below(6)).map(|_| word(&mut below, len_max)).collect();
            let wanted: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
            let found = find_overlap(&known, &wanted);
            let found = found.map(|it| (it.prefix.to_vec(), it.other.to_vec(), it.is_known));
            counts[found.as_ref().map_or(0, |it| 1 + usize::from(it.2))] += 1;
            let want = find_overlap_by_pairs(&known, &wanted);
            assert_eq!(found, want, "known {known:?}, wanted {wanted:?}");
        }
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }

    #[test]
    fn a_key_is_noted_for_exactly_the_prefixes_that_it_begins_with() {
        let mut below = numbers(2);
        let mut prefixes = Prefixes::default();
        let mut model: BTreeSet<(Box<[u8]>, u64)> = BTreeSet::new();
        for _ in 0..20_000 {
            let (prefix, client_id): (Box<[u8]>, _) = (word(&mut below, 6).into(), below(3) as u64);
            if below(2) == 0 {
                prefixes.add(&prefix, client_id);
                model.insert((prefix, client_id));
            } else {
                prefixes.remove(&BTreeSet::from([prefix.clone()]), client_id);
                model.remove(&(prefix, client_id));
            }
            let key = word(&mut below, 8);
            let mut broadcast = Broadcast::default();
            prefixes.note(&mut broadcast, &key, None);
            let mut told = BTreeSet::new();
            for (prefix, keys) in broadcast.take() {
                assert!(keys.keys().eq([&Box::from(&*key)]), "{keys:?}");
                told.extend(prefixes.clients_of(&prefix).map(|client| (prefix.clone(), client)));
            }
            let begins = |(prefix, _): &&(Box<[u8]>, u64)| key.starts_with(prefix);
            assert!(told.iter().eq(model.iter().filter(begins)), "{key:?}: {told:?}");
        }
        let lengths: usize = prefixes.lengths.values().sum();
        let hashes: usize = prefixes.hashes.values().sum();
        assert_eq!((lengths, hashes), (prefixes.count(), prefixes.count()));
    }

    #[test]
    fn the_work_of_a_key_does_not_grow_with_the_number_of_prefixes() {
        let mut prefixes = Prefixes::default();
        for number in 0..10_000 {
            prefixes.add(format!("p{number:06}").as_bytes(), number % 4);
        }
        let mut broadcast = Broadcast::default();
        for key in ["p005000:1", "p00", "q", "", "p9999999999"] {
            let work = prefixes.note(&mut broadcast, key.as_bytes(), None);
            assert!(work.units() <= Work::keys(4).units(), "{key}: {work:?}");
        }
        assert_eq!(broadcast.take().count(), 1);
    }

    #[test]
    fn the_work_of_a_key_is_that_of_its_bytes_where_prefixes_have_all_lengths() {
        let mut prefixes = Prefixes::default();
        for length in 0..1000 {
            prefixes.add(&[&vec![b'b'; length][..], b"a"].concat(), 1);
        }
        let mut broadcast = Broadcast::default();
        let work = prefixes.note(&mut broadcast, &[b'b'; 1000], None);
        assert!(broadcast.is_empty());
        assert!(work.units() <= Work::keys(1000 / 4).units(), "{work:?}");
    }
}
