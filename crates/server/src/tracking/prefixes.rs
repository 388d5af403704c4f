//! Broadcasting: who wants to be told of all keys that begin in some way, read or not.
//!
//! ```text
//!  prefix ─▶ clients              (all)          foo: {3, 8}    bar: {3}
//!  prefix ─▶ keys, by whom        (a gathering)  foo: {foo1 by 3, foo2}
//! ```
//!
//! # Invariants
//! I1: the prefixes that one client names do not overlap, so that it is told of a key once; only
//!     who asks for all keys later is told of some by both.

use std::collections::{BTreeMap, BTreeSet};

/// Who has asked for which prefixes.
#[derive(Debug, Default)]
pub struct Prefixes {
    clients: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
}

/// Keys that changed, each with who has changed it last.
pub type ChangedKeys = BTreeMap<Box<[u8]>, Option<u64>>;

/// What changed in a gathering, by prefix.
#[derive(Debug, Default)]
pub struct Broadcast {
    keys: BTreeMap<Box<[u8]>, ChangedKeys>,
}

/// Two prefixes of which one begins with the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<'p> {
    /// The one that was asked for.
    pub prefix: &'p [u8],
    /// The other one.
    pub other: Box<[u8]>,
    /// The client has had that before.
    pub is_known: bool,
}

impl Prefixes {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.clients.len()
    }

    /// A client asks for one more.
    pub fn add(&mut self, prefix: &[u8], client_id: u64) {
        self.clients.entry(prefix.into()).or_default().insert(client_id);
    }

    /// A client asks for none any more.
    pub fn remove(&mut self, prefixes: &BTreeSet<Box<[u8]>>, client_id: u64) {
        for prefix in prefixes {
            if let Some(clients) = self.clients.get_mut(prefix) {
                clients.remove(&client_id);
                if clients.is_empty() {
                    self.clients.remove(prefix);
                }
            }
        }
    }

    /// A key has changed.
    pub fn note(&self, broadcast: &mut Broadcast, key: &[u8], by: Option<u64>) {
        for prefix in self.clients.keys().filter(|prefix| key.starts_with(prefix)) {
            let keys = broadcast.keys.entry(prefix.clone()).or_default();
            keys.insert(key.into(), by);
        }
    }

    /// Who has asked for that prefix.
    pub fn clients_of(&self, prefix: &[u8]) -> impl Iterator<Item = u64> {
        self.clients.get(prefix).into_iter().flatten().copied()
    }
}

impl Broadcast {
    /// Whether nothing is to be told.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The prefixes in their order, each with its keys in theirs.
    pub fn take(&mut self) -> impl Iterator<Item = (Box<[u8]>, ChangedKeys)> {
        std::mem::take(&mut self.keys).into_iter()
    }
}

/// What stands in the way of a client with the prefixes `known` asking for `wanted` (I1).
pub fn find_overlap<'p>(known: &BTreeSet<Box<[u8]>>, wanted: &[&'p [u8]]) -> Option<Overlap<'p>> {
    let overlaps = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    for (at, prefix) in wanted.iter().enumerate() {
        if let Some(other) = known.iter().find(|other| overlaps(prefix, other)) {
            return Some(Overlap { prefix, other: other.clone(), is_known: true });
        }
        if let Some(other) = wanted[at + 1..].iter().find(|other| overlaps(prefix, other)) {
            return Some(Overlap { prefix, other: (*other).into(), is_known: false });
        }
    }
    None
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
}
