//! The table of keys and the clients that have read them: one part of it, as a state machine.
//!
//! ```text
//!  keys:   key ─▶ (number, clients that have read it)
//!  order:  [ (1, key) (2, key) (4, key) ... ]   oldest first; those whose number is not their
//!                                               key's any more are skipped
//! ```
//!
//! # Invariants
//! I1: a key is here exactly while some client is to be notified of its change; the thread that
//!     takes it out notifies them.
//! I2: `order` names each key of the table once by its present number, and at most as many stale
//!     numbers, plus `STALE_MAX`.
//! I3: `item_count` is the number of clients over all keys, `held_bytes` the memory they take.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Stale names, which are kept until there are so many more of them than keys.
const STALE_MAX: usize = 16;

/// The memory of a key besides its bytes: in the map, in the order, and its counts.
const KEY_OVERHEAD_BYTES: usize = 200;

/// The ids of the clients that have read a key; usually few.
pub type Readers = Vec<u64>;

/// A key that was taken out, and the clients to notify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The key.
    pub key: Arc<[u8]>,
    /// The clients that have read it.
    pub readers: Readers,
}

impl Taken {
    /// What it takes until all are told.
    pub fn held_bytes(&self) -> usize {
        self.key.len() + size_of::<Taken>() + self.readers.capacity() * size_of::<u64>()
    }
}

/// One part of the table.
#[derive(Debug, Default)]
pub struct Table {
    keys: HashMap<Arc<[u8]>, Read>,
    order: VecDeque<(u64, Arc<[u8]>)>,
    last_number: u64,
    item_count: usize,
    held_bytes: usize,
}

#[derive(Debug)]
struct Read {
    number: u64,
    readers: Readers,
}

impl Table {
    /// The number of keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The number of clients over all keys.
    pub fn item_count(&self) -> usize {
        self.item_count
    }

    /// The memory they take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Registers a client that is about to read a key. Returns how many others have read it.
    pub fn add(&mut self, key: &[u8], client_id: u64) -> usize {
        if let Some(read) = self.keys.get_mut(key) {
            let others = read.readers.len();
            if !read.readers.contains(&client_id) {
                read.readers.push(client_id);
                self.item_count += 1;
                self.held_bytes += size_of::<u64>();
            }
            return others;
        }
        self.last_number += 1;
        let (number, key) = (self.last_number, Arc::<[u8]>::from(key));
        self.item_count += 1;
        self.held_bytes += bytes_of(&key, 1);
        self.order.push_back((number, Arc::clone(&key)));
        self.keys.insert(key, Read { number, readers: vec![client_id] });
        0
    }

    /// Takes a changed key out: each of its readers is notified once, and `keeps` stays as if the
    /// key had not changed.
    pub fn take(&mut self, key: &[u8], keeps: Option<u64>) -> Option<Taken> {
        let is_kept = |read: &Read| keeps.is_some_and(|keeps| read.readers.contains(&keeps));
        if let Some(read) = self.keys.get_mut(key).filter(|read| is_kept(read)) {
            let mut readers = std::mem::take(&mut read.readers);
            readers.retain(|reader| Some(*reader) != keeps);
            read.readers.extend(keeps);
            self.item_count -= readers.len();
            self.held_bytes -= readers.len() * size_of::<u64>();
            let key = Arc::from(key);
            return (!readers.is_empty()).then_some(Taken { key, readers });
        }
        let (key, read) = self.keys.remove_entry(key)?;
        self.forget_stale();
        Some(self.taken(key, read))
    }

    /// Makes room: takes out the oldest key.
    pub fn take_oldest(&mut self) -> Option<Taken> {
        while let Some((number, key)) = self.order.pop_front() {
            if self.keys.get(&key).is_some_and(|read| read.number == number) {
                let (key, read) = self.keys.remove_entry(&key)?;
                return Some(self.taken(key, read));
            }
        }
        None
    }

    /// Everything has changed: all clients are notified.
    pub fn clear(&mut self) {
        *self = Table { last_number: self.last_number, ..Table::default() };
    }

    fn taken(&mut self, key: Arc<[u8]>, read: Read) -> Taken {
        self.item_count -= read.readers.len();
        self.held_bytes -= bytes_of(&key, read.readers.len());
        Taken { key, readers: read.readers }
    }

    /// Drops stale names (I2).
    fn forget_stale(&mut self) {
        if self.order.len() > 2 * self.keys.len() + STALE_MAX {
            let keys = &self.keys;
            let is_there = |number: u64, key: &Arc<[u8]>| {
                keys.get(key).is_some_and(|read| read.number == number)
            };
            self.order.retain(|(number, key)| is_there(*number, key));
        }
    }

    /// Counts everything again.
    #[cfg(test)]
    pub fn validate(&self) {
        let readers = || self.keys.values().map(|read| read.readers.len());
        assert!(readers().all(|count| count > 0), "I1");
        assert_eq!(self.item_count, readers().sum::<usize>(), "I3");
        let bytes = self.keys.iter().map(|(key, read)| bytes_of(key, read.readers.len()));
        assert_eq!(self.held_bytes, bytes.sum::<usize>(), "I3");
        assert!(self.order.len() <= 2 * self.keys.len() + STALE_MAX + 1, "I2");
        for (key, read) in &self.keys {
            let named = self.order.iter().filter(|(number, _)| *number == read.number);
            assert!(named.map(|(_, named)| named).eq([key]), "I2");
        }
    }
}

fn bytes_of(key: &[u8], reader_count: usize) -> usize {
    // A stale name of the same length may exist beside each key.
    2 * key.len() + KEY_OVERHEAD_BYTES + reader_count * size_of::<u64>()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[track_caller]
    fn check(taken: Option<Taken>, key: &str, readers: &[u64]) {
        let taken = taken.expect("somebody has read it");
        assert_eq!((&*taken.key, &taken.readers[..]), (key.as_bytes(), readers));
    }

    #[test]
    fn a_change_is_told_once_until_the_key_is_read_again() {
        let mut table = Table::default();
        table.add(b"k", 1);
        table.add(b"k", 1);
        table.add(b"k", 2);
        assert_eq!((table.key_count(), table.item_count()), (1, 2));
        check(table.take(b"k", None), "k", &[1, 2]);
        assert_eq!(table.take(b"k", None), None);
        assert_eq!(table.held_bytes(), 0);
        table.add(b"k", 2);
        check(table.take(b"k", None), "k", &[2]);
    }

    #[test]
    fn a_client_that_changed_a_key_itself_is_told_of_the_next_change() {
        let mut table = Table::default();
        table.add(b"k", 1);
        assert_eq!(table.take(b"k", Some(1)), None);
        table.add(b"k", 2);
        check(table.take(b"k", Some(1)), "k", &[2]);
        check(table.take(b"k", Some(2)), "k", &[1]);
        table.validate();
    }

    #[test]
    fn the_oldest_goes_first_and_a_key_that_was_read_again_is_young() {
        let mut table = Table::default();
        for key in ["a", "b", "c"] {
            table.add(key.as_bytes(), 1);
        }
        table.take(b"a", None);
        table.add(b"a", 1);
        check(table.take_oldest(), "b", &[1]);
        check(table.take_oldest(), "c", &[1]);
        check(table.take_oldest(), "a", &[1]);
        assert_eq!(table.take_oldest(), None);
    }

    #[test]
    fn it_does_what_a_simple_map_does() {
        let mut state = 7_u64;
        let mut below = |bound: u64| {
            // Knuth's numbers; the high bits are random enough.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % bound
        };
        let mut table = Table::default();
        let mut model: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
        for _ in 0..4000 {
            let key = format!("key:{}", below(40)).into_bytes();
            let client_id = below(5);
            match below(8) {
                0..=3 => {
                    table.add(&key, client_id);
                    model.entry(key).or_default().insert(client_id);
                }
                4..=5 => {
                    let told = table.take(&key, None).map(|taken| taken.readers);
                    let told = told.map(BTreeSet::from_iter);
                    assert_eq!(told, model.remove(&key));
                }
                6 => {
                    let told = table.take(&key, Some(client_id)).map(|taken| taken.readers);
                    let readers = model.remove(&key).unwrap_or_default();
                    if readers.contains(&client_id) {
                        model.insert(key, BTreeSet::from([client_id]));
                    }
                    let others = readers.iter().filter(|reader| **reader != client_id);
                    let others: BTreeSet<u64> = others.copied().collect();
                    assert_eq!(BTreeSet::from_iter(told.unwrap_or_default()), others);
                }
                _ => {
                    let Some(taken) = table.take_oldest() else { continue };
                    let readers = model.remove(&taken.key[..]).expect("it was there");
                    assert_eq!(BTreeSet::from_iter(taken.readers), readers);
                }
            }
            table.validate();
        }
    }
}
