//! Belady's policy: evicts the item whose next use is furthest away, which may be the new item
//! itself.
//!
//! With items of equal weight this gives the least number of misses that any policy can have. With
//! different sizes the optimum is NP-hard, and the code uses the common heuristic, which is no
//! bound: each weight class (a quarter of a doubling) nominates its item with the furthest next
//! use, and the nominee with the largest product of weight and time to its next use is evicted
//! (libCacheSim calls this BeladySize).

use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

use crate::cache::queues::MixHasher;
use crate::cache::{Cache, Held, Item};

#[derive(Clone, Copy, Debug)]
struct Kept {
    weight: u64,
    expires_at_ms: u64,
    /// Index of the look-up for which it is kept.
    next_use: u64,
}

/// A cache that knows future look-ups.
pub(super) struct Belady {
    capacity: u64,
    kept: HashMap<u64, Kept, BuildHasherDefault<MixHasher>>,
    weight: u64,
    /// For each class: next use and key. An entry that says otherwise than `kept` is stale.
    classes: Vec<BinaryHeap<(u64, u64)>>,
    /// The current look-up.
    now: u64,
    evictions: u64,
}

impl Belady {
    pub(super) fn new(capacity: u64) -> Belady {
        let (kept, classes) = (HashMap::default(), Vec::new());
        Belady { capacity, kept, weight: 0, classes, now: 0, evictions: 0 }
    }

    /// Keeps the item, unless no look-up will find it before it is replaced or expires.
    fn keep(&mut self, item: &Item, weight: u64, expires_at_ms: u64) {
        let Some(next) = item.next_use.filter(|next| next.time_ms < expires_at_ms) else { return };
        let (key, next_use) = (item.key, next.at);
        let class = class_of(weight);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, BinaryHeap::new);
        }
        self.classes[class].push((next_use, key));
        self.kept.insert(key, Kept { weight, expires_at_ms, next_use });
        self.weight += weight;
    }

    fn forget(&mut self, key: u64) {
        if let Some(kept) = self.kept.remove(&key) {
            self.weight -= kept.weight;
        }
    }

    /// The item of this class with the furthest next use; drops stale entries on the way.
    fn last_of(&mut self, class: usize) -> Option<(u64, u64)> {
        let heap = &mut self.classes[class];
        while let Some((next_use, key)) = heap.peek().copied() {
            let is_kept = |kept: &Kept| kept.next_use == next_use && class_of(kept.weight) == class;
            if self.kept.get(&key).is_some_and(is_kept) {
                return Some((next_use, key));
            }
            heap.pop();
        }
        None
    }

    fn victim(&mut self) -> Option<u64> {
        let mut worst: Option<(u128, u64)> = None;
        for class in 0..self.classes.len() {
            let Some((next_use, key)) = self.last_of(class) else { continue };
            let distance = u128::from(next_use.saturating_sub(self.now));
            let cost = distance * u128::from(self.kept[&key].weight);
            if worst.is_none_or(|(most, _)| cost > most) {
                worst = Some((cost, key));
            }
        }
        worst.map(|(_, key)| key)
    }
}

/// Four classes a doubling.
fn class_of(weight: u64) -> usize {
    let power = weight.max(1).ilog2();
    let quarter = if power >= 2 { (weight >> (power - 2)) & 3 } else { 0 };
    power as usize * 4 + quarter as usize
}

impl Cache for Belady {
    fn look(&mut self, item: &Item, _now_ms: u64) -> bool {
        self.now = item.at;
        let Some(kept) = self.kept.get(&item.key).copied() else { return false };
        debug_assert!(kept.next_use == item.at, "what is kept is kept for its next look-up");
        self.forget(item.key);
        self.keep(item, kept.weight, kept.expires_at_ms);
        true
    }

    fn store(&mut self, item: &Item, _now_ms: u64) {
        self.now = item.at;
        self.forget(item.key);
        if item.weight > self.capacity {
            return;
        }
        self.keep(item, item.weight, item.expires_at_ms);
        while self.weight > self.capacity {
            let Some(victim) = self.victim() else { return };
            self.forget(victim);
            self.evictions += 1;
        }
    }

    fn remove(&mut self, key: u64) {
        self.forget(key);
    }

    fn held(&self) -> Held {
        Held { objects: self.kept.len() as u64, weight: self.weight }
    }

    fn evictions(&self) -> u64 {
        self.evictions
    }
}
