//! Shared helpers of the tree's tests: keys by number, and walks that collect into a vector.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base::KeyHash;
use base::sync::{AtomicU32, Ordering};

#[cfg(not(loom))]
use super::node::NODE_BYTES;
use super::{Direction, Hint, Keys, NodeMemory, Origin, Tree, Walk};
use crate::hash::slot::{Slot, Tag};
use crate::hash::{Arena, Lender};
#[cfg(not(loom))]
use crate::mapping::Mapping;

/// Keys by number. The slot of key `id` names the "offset" `id * 8`, with one of several tags, so
/// that replaced slots can be told apart.
pub(super) struct Table {
    pub keys: Vec<Vec<u8>>,
}

impl Keys for Table {
    unsafe fn key<'a>(&self, slot: Slot) -> &'a [u8] {
        let key: &[u8] = &self.keys[id_of(slot)];
        // SAFETY: the table outlives its tree in every test and is never changed.
        unsafe { std::slice::from_raw_parts(key.as_ptr(), key.len()) }
    }

    fn prefetch(&self, _slot: Slot) {}
}

pub(super) fn slot_of(id: usize, round: u64) -> Slot {
    Slot::entry(Tag::of(KeyHash(round + 1)), id as u64 * 8)
}

pub(super) fn id_of(slot: Slot) -> usize {
    (slot.offset_bytes() / 8) as usize
}

/// One segment for a tree of its own.
struct OneSegment {
    log2_lines: u32,
    is_lent: AtomicU32,
}

impl Lender for OneSegment {
    fn segment_log2_lines(&self) -> u32 {
        self.log2_lines
    }

    fn lend(&self) -> Option<u32> {
        (self.is_lent.swap(1, Ordering::Relaxed) == 0).then_some(0)
    }

    fn take_back(&self, _first_line: u32) {
        self.is_lent.store(0, Ordering::Relaxed);
    }
}

/// An empty tree that may have `node_max` nodes or a few more.
pub(super) fn empty_tree(node_max: u32) -> Tree {
    let node_max = node_max.next_power_of_two();
    let log2_lines = node_max.trailing_zeros() + 2;
    let lender = OneSegment { log2_lines, is_lent: AtomicU32::new(0) };
    let arena = Arc::new(Arena::new(Arc::new(lender)));
    #[cfg(not(loom))]
    let memory = {
        let mapping =
            Mapping::new(node_max as usize * NODE_BYTES, crate::mapping::HugePages::Off).unwrap();
        NodeMemory::new(Arc::new(mapping), arena)
    };
    #[cfg(loom)]
    let memory = NodeMemory::boxed(node_max, arena);
    Tree::new(memory).unwrap()
}

/// The ids that a walk yields, at most `limit`.
pub(super) fn drain(
    tree: &Tree,
    table: &Table,
    origin: Origin<'_>,
    direction: Direction,
    limit: usize,
) -> Vec<usize> {
    drain_from(tree, table, Hint::NONE, origin, direction, limit)
}

/// The same with a hint to the origin's place.
pub(super) fn drain_from(
    tree: &Tree,
    table: &Table,
    hint: Hint,
    origin: Origin<'_>,
    direction: Direction,
    limit: usize,
) -> Vec<usize> {
    let mut walk = Walk::new(tree, table);
    walk.start(direction, origin, limit, hint);
    std::iter::from_fn(|| walk.next_slot()).take(limit).map(id_of).collect()
}
