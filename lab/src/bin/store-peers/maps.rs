//! The peer maps, each behind the few operations that the load needs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use dashmap::DashMap;
use rapidhash::fast::RandomState;

use crate::forms::Form;

/// A thread's handle to a map of keys `K` and values `V`.
pub trait Map<K: Form, V: Form>: Send {
    /// Passes the value of `key` on; false if it is not there.
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool;
    /// Writes `value` under `key`.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Passes up to `count` items from `key` on; returns their number.
    fn scan(&mut self, key: &[u8], count: usize, show: impl FnMut(&K, &V)) -> usize;
}

/// std's map (hashbrown's), with the hash that the store uses; one thread.
pub struct Hash<K, V>(HashMap<K, V, RandomState>);

impl<K: Form, V: Form> Hash<K, V> {
    /// Room for `count` items.
    pub fn new(count: usize) -> Hash<K, V> {
        Hash(HashMap::with_capacity_and_hasher(count, RandomState::new()))
    }
}

impl<K: Form, V: Form> Map<K, V> for Hash<K, V> {
    #[inline(always)]
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool {
        K::query(key, |key| self.0.get(key)).map(show).is_some()
    }

    #[inline(always)]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        match K::query(key, |key| self.0.get_mut(key)) {
            Some(place) => *place = V::of(value),
            None => {
                self.0.insert(K::of(key), V::of(value));
            }
        }
    }

    fn scan(&mut self, _key: &[u8], _count: usize, _show: impl FnMut(&K, &V)) -> usize {
        0
    }
}

/// std's ordered map; one thread.
pub struct BTree<K, V>(BTreeMap<K, V>);

impl<K: Form, V: Form> BTree<K, V> {
    /// An empty one.
    pub fn new() -> BTree<K, V> {
        BTree(BTreeMap::new())
    }
}

impl<K: Form, V: Form> Map<K, V> for BTree<K, V> {
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool {
        K::query(key, |key| self.0.get(key)).map(show).is_some()
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(K::of(key), V::of(value));
    }

    fn scan(&mut self, key: &[u8], count: usize, mut show: impl FnMut(&K, &V)) -> usize {
        let range = K::query(key, |key| {
            self.0.range::<K::Query, _>((Bound::Included(key), Bound::Unbounded))
        });
        range.take(count).map(|(key, value)| show(key, value)).count()
    }
}

/// dashmap: shards of hashbrown tables, each under a lock.
pub struct Dash<K, V>(Arc<DashMap<K, V, RandomState>>);

impl<K: Form, V: Form> Dash<K, V> {
    /// Room for `count` items.
    pub fn new(count: usize) -> Dash<K, V> {
        Dash(Arc::new(DashMap::with_capacity_and_hasher(count, RandomState::new())))
    }
}

impl<K, V> Clone for Dash<K, V> {
    fn clone(&self) -> Dash<K, V> {
        Dash(Arc::clone(&self.0))
    }
}

impl<K: Form, V: Form> Map<K, V> for Dash<K, V> {
    #[inline(always)]
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool {
        K::query(key, |key| self.0.get(key)).map(|found| show(found.value())).is_some()
    }

    #[inline(always)]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        match K::query(key, |key| self.0.get_mut(key)) {
            Some(mut place) => *place = V::of(value),
            None => {
                self.0.insert(K::of(key), V::of(value));
            }
        }
    }

    fn scan(&mut self, _key: &[u8], _count: usize, _show: impl FnMut(&K, &V)) -> usize {
        0
    }
}

/// scc's hash map: buckets under locks of their own.
pub struct Scc<K, V>(Arc<scc::HashMap<K, V, RandomState>>);

impl<K: Form, V: Form> Scc<K, V> {
    /// Room for `count` items.
    pub fn new(count: usize) -> Scc<K, V> {
        Scc(Arc::new(scc::HashMap::with_capacity_and_hasher(count, RandomState::new())))
    }
}

impl<K, V> Clone for Scc<K, V> {
    fn clone(&self) -> Scc<K, V> {
        Scc(Arc::clone(&self.0))
    }
}

impl<K: Form, V: Form> Map<K, V> for Scc<K, V> {
    #[inline(always)]
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool {
        K::query(key, |key| self.0.read_sync(key, |_, value| show(value))).is_some()
    }

    #[inline(always)]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let updated =
            K::query(key, |key| self.0.update_sync(key, |_, place| *place = V::of(value)));
        if updated.is_none() {
            let _ = self.0.insert_sync(K::of(key), V::of(value));
        }
    }

    fn scan(&mut self, _key: &[u8], _count: usize, _show: impl FnMut(&K, &V)) -> usize {
        0
    }
}

/// scc's tree index: an optimistic B+-tree for reads.
pub struct Tree<K, V>(Arc<scc::TreeIndex<K, V>>);

impl<K: Form, V: Form> Tree<K, V> {
    /// An empty one.
    pub fn new() -> Tree<K, V> {
        Tree(Arc::new(scc::TreeIndex::new()))
    }
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Tree<K, V> {
        Tree(Arc::clone(&self.0))
    }
}

impl<K: Form, V: Form> Map<K, V> for Tree<K, V> {
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool {
        K::query(key, |key| self.0.peek_with(key, |_, value| show(value))).is_some()
    }

    /// Its values never change: a rewrite removes and inserts.
    fn put(&mut self, key: &[u8], value: &[u8]) {
        if let Err((key, value)) = self.0.insert_sync(K::of(key), V::of(value)) {
            self.0.remove_sync(&key);
            let _ = self.0.insert_sync(key, value);
        }
    }

    fn scan(&mut self, key: &[u8], count: usize, mut show: impl FnMut(&K, &V)) -> usize {
        let guard = scc::Guard::new();
        let range = self.0.range(K::of(key).., &guard);
        range.take(count).map(|(key, value)| show(key, value)).count()
    }
}

/// crossbeam's skip list.
pub struct Skip<K, V>(Arc<SkipMap<K, V>>);

impl<K: Form, V: Form> Skip<K, V> {
    /// An empty one.
    pub fn new() -> Skip<K, V> {
        Skip(Arc::new(SkipMap::new()))
    }
}

impl<K, V> Clone for Skip<K, V> {
    fn clone(&self) -> Skip<K, V> {
        Skip(Arc::clone(&self.0))
    }
}

impl<K: Form, V: Form> Map<K, V> for Skip<K, V> {
    fn get(&mut self, key: &[u8], show: impl FnOnce(&V)) -> bool {
        K::query(key, |key| self.0.get(key)).map(|found| show(found.value())).is_some()
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(K::of(key), V::of(value));
    }

    fn scan(&mut self, key: &[u8], count: usize, mut show: impl FnMut(&K, &V)) -> usize {
        let mut found = K::query(key, |key| self.0.lower_bound(Bound::Included(key)));
        let mut shown = 0;
        while let Some(entry) = found.filter(|_| shown < count) {
            show(entry.key(), entry.value());
            shown += 1;
            found = entry.next();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forms::Inline;

    #[track_caller]
    fn check(mut map: impl Map<Box<[u8]>, Inline<8>>, is_ordered: bool) {
        let value = |number: u64| number.to_le_bytes();
        for number in 0..100 {
            map.put(format!("{number:03}").as_bytes(), &value(number));
        }
        map.put(b"007", &value(7000));
        let mut read = |key: &[u8]| {
            let mut found = None;
            assert_eq!(map.get(key, |value| found = Some(value.bytes().to_vec())), found.is_some());
            found
        };
        assert_eq!(read(b"007"), Some(value(7000).to_vec()));
        assert_eq!(read(b"099"), Some(value(99).to_vec()));
        assert_eq!(read(b"100"), None);
        let mut keys = Vec::new();
        let count = map.scan(b"0965", 50, |key, _| keys.push(key.to_vec()));
        let want: &[&[u8]] = if is_ordered { &[b"097", b"098", b"099"] } else { &[] };
        assert_eq!((count, keys), (want.len(), want.iter().map(|key| key.to_vec()).collect()));
        let limited = map.scan(b"", 10, |_, _| {});
        assert_eq!(limited, if is_ordered { 10 } else { 0 });
    }

    #[test]
    fn every_peer_reads_what_was_written_last() {
        check(Hash::new(100), false);
        check(Dash::new(100), false);
        check(Scc::new(100), false);
        check(BTree::new(), true);
        check(Tree::new(), true);
        check(Skip::new(), true);
    }
}
