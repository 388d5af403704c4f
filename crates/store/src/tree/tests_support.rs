//! What the tree's tests share: keys by number, and walks that end in a vector.

#![allow(clippy::unwrap_used)]

use base::KeyHash;

use super::{Keys, NodeMemory, Origin, Tree, Walk};
use crate::index::slot::{Slot, Tag};
use crate::range::Direction;

/// Keys by number; the slot of key `id` names "offset" `id * 8`, with one of some tags to tell
/// replaced slots apart.
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

pub(super) fn empty_tree(node_max: u32) -> Tree {
    Tree::new(NodeMemory::new(node_max).unwrap()).unwrap()
}

/// The ids that a walk yields, at most `limit`.
pub(super) fn drain(
    tree: &Tree,
    table: &Table,
    origin: Origin<'_>,
    direction: Direction,
    limit: usize,
) -> Vec<usize> {
    let mut walk = Walk::new(tree, table, direction);
    walk.seek(origin);
    let (mut ids, mut last) = (Vec::new(), None);
    while ids.len() < limit {
        let after = last.map_or(origin, |id: usize| Origin::Behind(&table.keys[id]));
        let Some(slot) = walk.next(after) else { break };
        last = Some(id_of(slot));
        ids.push(id_of(slot));
    }
    ids
}
