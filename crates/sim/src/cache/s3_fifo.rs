//! S3-FIFO as implemented in libCacheSim.
//!
//! ```text
//!  new ─▶ small (10 %) ─used enough─▶ main (90 %) ─used─▶ main again, one use less
//!             │ else                    │ not used
//!             ▼                         ▼
//!           ghost (90 %, keys only)    gone
//!  a new item whose key is a ghost goes to main at once
//! ```
//!
//! # References
//! J. Yang et al., SOSP 2023, Algorithm 1; the use counter saturates at 3.

use crate::cache::queues::Queues;
use crate::cache::{Cache, Held, Item, NEVER};

const SMALL: usize = 0;
const MAIN: usize = 1;
const USES_MAX: u8 = 3;

/// A cache of two queues, and the ghosts.
pub(super) struct S3Fifo {
    capacity: u64,
    main_capacity: u64,
    ghost_capacity: u64,
    /// Uses that lead from the small queue to the main one.
    uses_min: u8,
    queues: Queues<2>,
    ghosts: Queues<1>,
    evictions: u64,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64, uses_min: u8) -> S3Fifo {
        S3Fifo {
            capacity,
            main_capacity: capacity - capacity / 10,
            ghost_capacity: (capacity as u128 * 9 / 10) as u64,
            uses_min,
            queues: Queues::new(),
            ghosts: Queues::new(),
            evictions: 0,
        }
    }

    fn weight(&self) -> u64 {
        self.queues.weight(SMALL) + self.queues.weight(MAIN)
    }

    /// Makes room until the weight is at most `target`.
    fn evict_to(&mut self, target: u64) {
        while self.weight() > target {
            let main_is_full = self.queues.weight(MAIN) > self.main_capacity;
            match (self.queues.oldest(SMALL), self.queues.oldest(MAIN)) {
                (Some(small), None) => self.leave_small(small),
                (Some(small), Some(_)) if !main_is_full => self.leave_small(small),
                (_, Some(main)) => self.leave_main(main),
                (None, None) => return,
            }
        }
    }

    fn leave_small(&mut self, index: u32) {
        if self.queues.node(index).mark >= self.uses_min {
            self.queues.node(index).mark = 0;
            self.queues.move_to(MAIN, index);
            return;
        }
        let node = self.queues.remove(index);
        self.evictions += 1;
        let (key, weight) = (node.key, node.weight);
        self.ghosts.push(0, &Item { key, weight, expires_at_ms: NEVER, at: 0, next_use: None });
        while self.ghosts.weight(0) > self.ghost_capacity {
            let Some(oldest) = self.ghosts.oldest(0) else { return };
            self.ghosts.remove(oldest);
        }
    }

    fn leave_main(&mut self, index: u32) {
        let node = self.queues.node(index);
        if node.mark > 0 {
            node.mark -= 1;
            self.queues.move_to(MAIN, index);
        } else {
            self.queues.remove(index);
            self.evictions += 1;
        }
    }

    fn count_use(&mut self, index: u32) {
        let node = self.queues.node(index);
        node.mark = (node.mark + 1).min(USES_MAX);
    }
}

impl Cache for S3Fifo {
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
            let ghost = self.ghosts.find(item.key);
            if let Some(ghost) = ghost {
                self.ghosts.remove(ghost);
            }
            self.evict_to(self.capacity - item.weight);
            self.queues.push(if ghost.is_some() { MAIN } else { SMALL }, item);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some(index) = self.queues.find(key) {
            self.queues.remove(index);
        }
    }

    fn held(&self) -> Held {
        let objects = self.queues.count(SMALL) + self.queues.count(MAIN);
        Held { objects, weight: self.weight() }
    }

    fn evictions(&self) -> u64 {
        self.evictions
    }
}
