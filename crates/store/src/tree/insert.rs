//! Adding a key, and pointing it at another entry.
//!
//! ```text
//!  place free, border has room      fill a slot, one store of the order word
//!  place free, border is full       split (split.rs), then the same
//!  place has another key's entry    a chain of new layers with both keys, one store of the slot
//!  place has a link                 one layer down
//! ```

use base::sync::Backoff;

use super::descend::{Border, Found};
use super::memory::Spare;
use super::node::{Node, Role, WIDTH};
use super::slice::{Kind, Place, SLICE_BYTES};
use super::{Keys, Tree};
use crate::index::Position;
use crate::index::slot::Slot;

/// Nodes of the longest chain of splits: each halves 14 keys or 18 separators, so 2^32 nodes are at
/// most twelve levels, and the last of them may get a new root.
pub(super) const SPLIT_NODES_MAX: usize = 13;

/// How an insert ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The key is new.
    Added,
    /// The key has a slot already, which is left as it is.
    Exists(Position),
}

/// Nothing was changed: the insert needs so many nodes at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub node_count: usize,
}

/// A key on its way to its border.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    pub key: &'k [u8],
    pub depth_bytes: usize,
}

impl Target<'_> {
    pub(super) fn place(&self) -> Place {
        Place::of(self.key, self.depth_bytes)
    }
}

impl Tree {
    /// Adds `key` with `slot`, unless it is there.
    pub(crate) fn insert(
        &self,
        key: &[u8],
        slot: Slot,
        keys: &impl Keys,
        spare: &mut Spare,
    ) -> Result<Inserted, Shortage> {
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut root, mut target) = (self.root(), Target { key, depth_bytes: 0 });
            loop {
                let Ok(border) = self.descend(root, target.place().slice) else {
                    backoff.snooze();
                    continue 'again;
                };
                if !self.lock_border(border) {
                    continue;
                }
                match self.look(border.node, key, target.depth_bytes, keys) {
                    Found::Layer(next) => {
                        self.node(border.node).unlock();
                        root = next;
                        target.depth_bytes += SLICE_BYTES;
                    }
                    Found::Entry(index, slot) => {
                        self.node(border.node).unlock();
                        let position = Position { bucket: border.node, index, slot };
                        return Ok(Inserted::Exists(position));
                    }
                    Found::Nothing => {
                        return self.insert_locked(border.node, target, slot, keys, spare);
                    }
                }
            }
        }
    }

    /// Locks a border, if it still is as it was when it was reached.
    pub(super) fn lock_border(&self, border: Border) -> bool {
        let node = self.node(border.node);
        let is_same = node.lock() == border.version && !border.version.is_dead();
        if !is_same {
            node.unlock();
        }
        is_same
    }

    /// The border is locked, and the key is not below it.
    fn insert_locked(
        &self,
        border: u32,
        target: Target<'_>,
        slot: Slot,
        keys: &impl Keys,
        spare: &mut Spare,
    ) -> Result<Inserted, Shortage> {
        let (node, place) = (self.node(border), target.place());
        if place.kind == Kind::LONGER
            && let Some((index, other)) = node.search(place, |_| true)
        {
            let layers = self.layers_for(target, slot, other, keys, spare);
            if let Ok(root) = layers {
                node.set_slot(index, Slot::link(root));
            }
            node.unlock();
            return layers.map(|_| Inserted::Added);
        }
        if node.order().count() < WIDTH {
            put(node, place, slot);
            node.unlock();
            return Ok(Inserted::Added);
        }
        if spare.count() < SPLIT_NODES_MAX {
            node.unlock();
            return Err(Shortage { node_count: SPLIT_NODES_MAX });
        }
        self.split_border(border, target, slot, spare);
        Ok(Inserted::Added)
    }

    /// A layer with the new key and the one that has its place, or a chain of layers down to where
    /// they differ. Nobody sees it yet; its root.
    fn layers_for(
        &self,
        target: Target<'_>,
        slot: Slot,
        other: Slot,
        keys: &impl Keys,
        spare: &mut Spare,
    ) -> Result<u32, Shortage> {
        // SAFETY: the slot was read under its border's lock since the last quiescent point.
        let other_key = unsafe { keys.key(other) };
        let first_bytes = target.depth_bytes + SLICE_BYTES;
        let mut end_bytes = first_bytes;
        loop {
            let place = Place::of(target.key, end_bytes);
            if place != Place::of(other_key, end_bytes) {
                break;
            }
            debug_assert!(place.kind == Kind::LONGER, "the keys differ");
            end_bytes += SLICE_BYTES;
        }
        let node_count = (end_bytes - first_bytes) / SLICE_BYTES + 1;
        if spare.count() < node_count {
            return Err(Shortage { node_count });
        }
        let mut root = self.new_border(spare);
        put(self.node(root), Place::of(target.key, end_bytes), slot);
        put(self.node(root), Place::of(other_key, end_bytes), other);
        self.node(root).unlock();
        for depth_bytes in (first_bytes..end_bytes).step_by(SLICE_BYTES).rev() {
            let above = self.new_border(spare);
            put(self.node(above), Place::of(target.key, depth_bytes), Slot::link(root));
            self.node(above).unlock();
            root = above;
        }
        Ok(root)
    }

    /// An empty border that nobody sees, locked.
    pub(super) fn new_border(&self, spare: &mut Spare) -> u32 {
        let border = spare.take();
        self.node(border).reset(Role::Border);
        border
    }

    /// Points a key at another entry. The caller is the only writer of this key; `position` is
    /// where it found it, and where it is looked for first.
    pub(crate) fn replace(&self, position: Position, key: &[u8], slot: Slot, keys: &impl Keys) {
        let mut position = position;
        loop {
            let node = self.node(position.bucket);
            let version = node.lock();
            let is_there = node.slot(position.index).same_entry(position.slot);
            // An entry is in one slot of the tree; in a dead node slots are only remembered.
            if is_there && !version.is_dead() {
                node.set_slot(position.index, slot);
                node.unlock();
                return;
            }
            node.unlock();
            position = self.find(key, keys).expect("nobody else removes this key");
        }
    }
}

/// Adds a place to a locked border that has room and does not have it.
pub(super) fn put(node: &Node, place: Place, slot: Slot) {
    let (order, index) = node.order().inserted(node.rank(place));
    node.fill(index, place, slot);
    node.set_order(order);
}
