//! Policies of one queue: LRU, FIFO and CLOCK, which differ in the effect of a use.

use crate::cache::queues::Queues;
use crate::cache::{Cache, Exact, Held, Item};

/// A cache of one queue.
pub(super) struct ByUse {
    exact: Exact,
    capacity: u64,
    queues: Queues<1>,
    evictions: u64,
}

impl ByUse {
    pub(super) fn new(exact: Exact, capacity: u64) -> ByUse {
        ByUse { exact, capacity, queues: Queues::new(), evictions: 0 }
    }

    fn count_use(&mut self, index: u32) {
        match self.exact {
            Exact::Lru => self.queues.move_to(0, index),
            Exact::Clock => self.queues.node(index).mark = 1,
            _ => {}
        }
    }

    /// Makes room until the weight is at most `target`.
    fn evict_to(&mut self, target: u64) {
        while self.queues.weight(0) > target {
            let Some(oldest) = self.queues.oldest(0) else { return };
            if std::mem::take(&mut self.queues.node(oldest).mark) > 0 {
                self.queues.move_to(0, oldest);
            } else {
                self.queues.remove(oldest);
                self.evictions += 1;
            }
        }
    }
}

impl Cache for ByUse {
    fn look(&mut self, item: &Item, now_ms: u64) -> bool {
        let Some(index) = self.queues.find_live(item.key, now_ms) else { return false };
        self.count_use(index);
        true
    }

    fn store(&mut self, item: &Item, _now_ms: u64) {
        if item.weight > self.capacity {
            self.remove(item.key);
        } else if let Some(index) = self.queues.find(item.key) {
            self.queues.rewrite(index, item);
            self.count_use(index);
            self.evict_to(self.capacity);
        } else {
            self.evict_to(self.capacity - item.weight);
            self.queues.push(0, item);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some(index) = self.queues.find(key) {
            self.queues.remove(index);
        }
    }

    fn held(&self) -> Held {
        Held { objects: self.queues.count(0), weight: self.queues.weight(0) }
    }

    fn evictions(&self) -> u64 {
        self.evictions
    }
}
