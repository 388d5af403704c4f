//! Queues of items over one shared table: any item is found, moved and removed in constant time.
//!
//! ```text
//!  key ─▶ index ─▶ nodes: [key, weight, expiry, mark, queue, older, newer]
//!  queue: oldest ⇄ ... ⇄ newest
//! ```
//!
//! # Invariants
//! Q1: every node of the index is in exactly one queue; a queue's count and weight are the sums
//!     over its nodes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::cache::Item;

const NONE: u32 = u32::MAX;

/// One item in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub key: u64,
    pub weight: u64,
    pub expires_at_ms: u64,
    /// The policy's own: uses since it last looked.
    pub mark: u8,
    pub queue: u8,
    older: u32,
    newer: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    count: u64,
    weight: u64,
}

/// `QUEUES` queues.
#[derive(Debug)]
pub(super) struct Queues<const QUEUES: usize> {
    index: HashMap<u64, u32, BuildHasherDefault<MixHasher>>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    queues: [Queue; QUEUES],
}

/// Keys are numbers already: one mix is enough.
#[derive(Debug, Default)]
pub(super) struct MixHasher(u64);

impl Hasher for MixHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = base::hash::mix(self.0 ^ number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<const QUEUES: usize> Queues<QUEUES> {
    pub(super) fn new() -> Queues<QUEUES> {
        let empty = Queue { oldest: NONE, newest: NONE, count: 0, weight: 0 };
        let (index, nodes, free) = (HashMap::default(), Vec::new(), Vec::new());
        Queues { index, nodes, free, queues: [empty; QUEUES] }
    }

    pub(super) fn count(&self, queue: usize) -> u64 {
        self.queues[queue].count
    }

    pub(super) fn weight(&self, queue: usize) -> u64 {
        self.queues[queue].weight
    }

    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.index.get(&key).copied()
    }

    /// The same, unless the item has expired, which removes it.
    pub(super) fn find_live(&mut self, key: u64, now_ms: u64) -> Option<u32> {
        let index = self.find(key)?;
        if self.node(index).expires_at_ms <= now_ms {
            self.remove(index);
            return None;
        }
        Some(index)
    }

    pub(super) fn node(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    pub(super) fn oldest(&self, queue: usize) -> Option<u32> {
        Some(self.queues[queue].oldest).filter(|index| *index != NONE)
    }

    /// Adds an item that is in no queue.
    pub(super) fn push(&mut self, queue: usize, item: &Item) {
        let node = Node {
            key: item.key,
            weight: item.weight,
            expires_at_ms: item.expires_at_ms,
            mark: 0,
            queue: queue as u8,
            older: NONE,
            newer: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let before = self.index.insert(item.key, index);
        debug_assert!(before.is_none(), "Q1: the key was in no queue");
        self.link(queue, index);
    }

    /// Moves a node to the newest end of a queue.
    pub(super) fn move_to(&mut self, queue: usize, index: u32) {
        self.unlink(index);
        self.link(queue, index);
    }

    /// Takes a node out of everything.
    pub(super) fn remove(&mut self, index: u32) -> Node {
        self.unlink(index);
        let node = self.nodes[index as usize];
        self.index.remove(&node.key);
        self.free.push(index);
        node
    }

    /// Gives a node the weight and the expiry of its rewritten item.
    pub(super) fn rewrite(&mut self, index: u32, item: &Item) {
        let node = &mut self.nodes[index as usize];
        let queue = &mut self.queues[usize::from(node.queue)];
        queue.weight = queue.weight - node.weight + item.weight;
        node.weight = item.weight;
        node.expires_at_ms = item.expires_at_ms;
    }

    fn link(&mut self, queue: usize, index: u32) {
        let newest = self.queues[queue].newest;
        let node = &mut self.nodes[index as usize];
        (node.queue, node.older, node.newer) = (queue as u8, newest, NONE);
        let weight = node.weight;
        match newest {
            NONE => self.queues[queue].oldest = index,
            _ => self.nodes[newest as usize].newer = index,
        }
        let queue = &mut self.queues[queue];
        queue.newest = index;
        queue.count += 1;
        queue.weight += weight;
    }

    fn unlink(&mut self, index: u32) {
        let Node { older, newer, queue, weight, .. } = self.nodes[index as usize];
        let queue = usize::from(queue);
        match older {
            NONE => self.queues[queue].oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.queues[queue].newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        self.queues[queue].count -= 1;
        self.queues[queue].weight -= weight;
    }
}
