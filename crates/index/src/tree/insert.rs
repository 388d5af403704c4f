//! Adds a key, and points a key at another entry.
//!
//! ```text
//!  place free, border has room      fill a slot, one store of the order word
//!  place free, border is full       split (split.rs), then the same
//!  place has entries of other keys  the same, in the order of the keys: a group
//!  group is full                    a chain of new layers with its keys and the new one; the
//!                                   group's first slot becomes the link, the others go
//!  place has a link                 one layer down
//! ```

use arrayvec::ArrayVec;
use base::sync::Backoff;

use super::descend::{Border, Found};
use super::memory::Spare;
use super::node::{GROUP_MAX, Node, Role, WIDTH};
use super::slice::{Kind, Place, SLICE_BYTES};
use super::split::split_border;
use super::{Keys, Tree};
use crate::hash::Position;
use crate::hash::slot::Slot;

/// The nodes of the longest chain of splits: each split halves 14 keys or 18 separators, so 2^32
/// nodes are at most twelve levels, and the last of them may get a new root.
pub(super) const SPLIT_NODES_MAX: usize = 13;

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The key is new.
    Added,
    /// The key has a slot already, which is unchanged.
    Exists(Position),
}

/// Nothing was changed: the insert needs this many reserved nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The number of nodes.
    pub node_count: usize,
}

/// A key on its way to its border.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    pub key: &'k [u8],
    pub depth_bytes: usize,
}

impl Target<'_> {
    #[inline]
    pub(super) fn place(&self) -> Place {
        Place::of(self.key, self.depth_bytes)
    }
}

impl Tree {
    /// Adds `key` with `slot`, unless it is there.
    pub fn insert(
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

    /// Locks a border, if it is unchanged since it was reached.
    #[inline]
    pub(super) fn lock_border(&self, border: Border) -> bool {
        let node = self.node(border.node);
        let is_same = node.lock() == border.version && !border.version.is_dead();
        if !is_same {
            node.unlock();
        }
        is_same
    }

    /// Inserts into the locked border; the key does not belong into a layer below.
    fn insert_locked(
        &self,
        border: u32,
        target: Target<'_>,
        slot: Slot,
        keys: &impl Keys,
        spare: &mut Spare,
    ) -> Result<Inserted, Shortage> {
        let (node, place) = (self.node(border), target.place());
        if place.kind == Kind::LONGER && node.ranks_at(place).len() == GROUP_MAX {
            return self.insert_below(node, target, slot, keys, spare);
        }
        if node.order().count() < WIDTH {
            put_at(node, rank_of(node, target, keys), place, slot);
            node.unlock();
            return Ok(Inserted::Added);
        }
        if spare.count() < SPLIT_NODES_MAX {
            node.unlock();
            return Err(Shortage { node_count: SPLIT_NODES_MAX });
        }
        split_border(self, border, target, slot, keys, spare);
        Ok(Inserted::Added)
    }

    /// Moves the full group at the target's place of the locked border, with the new key, into a
    /// layer of its own; releases the lock.
    fn insert_below(
        &self,
        node: &Node,
        target: Target<'_>,
        slot: Slot,
        keys: &impl Keys,
        spare: &mut Spare,
    ) -> Result<Inserted, Shortage> {
        let (mut order, ranks) = (node.order(), node.ranks_at(target.place()));
        let indexes: ArrayVec<usize, GROUP_MAX> =
            ranks.clone().map(|at| order.slot_at(at)).collect();
        let group = indexes.iter().map(|index| node.slot(*index)).collect();
        let root = match self.layers_for(target, slot, &group, keys, spare) {
            Ok(root) => root,
            Err(shortage) => {
                node.unlock();
                return Err(shortage);
            }
        };
        node.begin_change();
        node.set_slot(indexes[0], Slot::link(root));
        for rank in ranks.skip(1).rev() {
            order = order.removed(rank);
        }
        node.set_order(order);
        indexes[1..].iter().for_each(|index| node.set_slot(*index, Slot::EMPTY));
        node.unlock_changed();
        Ok(Inserted::Added)
    }

    /// Makes a layer with the new key and those of `group`, or a chain of layers down to where they
    /// differ. No other session sees it yet. Returns its root.
    fn layers_for(
        &self,
        target: Target<'_>,
        slot: Slot,
        group: &ArrayVec<Slot, GROUP_MAX>,
        keys: &impl Keys,
        spare: &mut Spare,
    ) -> Result<u32, Shortage> {
        // SAFETY: the slots were read under their border's lock since the last quiescent point.
        let key_of = |slot: &Slot| unsafe { keys.key(*slot) };
        let others: ArrayVec<&[u8], GROUP_MAX> = group.iter().map(key_of).collect();
        let first_bytes = target.depth_bytes + SLICE_BYTES;
        let mut end_bytes = first_bytes;
        loop {
            let place = Place::of(target.key, end_bytes);
            if others.iter().any(|other| place != Place::of(other, end_bytes)) {
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
        for (rank, (other, slot)) in others.iter().zip(group).enumerate() {
            put_at(self.node(root), rank, Place::of(other, end_bytes), *slot);
        }
        let target_below = Target { depth_bytes: end_bytes, ..target };
        let rank = rank_of(self.node(root), target_below, keys);
        put_at(self.node(root), rank, target_below.place(), slot);
        self.node(root).unlock();
        for depth_bytes in (first_bytes..end_bytes).step_by(SLICE_BYTES).rev() {
            let above = self.new_border(spare);
            put_at(self.node(above), 0, Place::of(target.key, depth_bytes), Slot::link(root));
            self.node(above).unlock();
            root = above;
        }
        Ok(root)
    }

    /// An empty, locked border that no other session sees.
    pub(super) fn new_border(&self, spare: &mut Spare) -> u32 {
        let border = spare.take();
        self.node(border).reset(Role::Border);
        border
    }

    /// Points a key at another entry. The caller is the only writer of this key; `position` is
    /// where it found the key, and is tried first.
    pub fn replace(&self, position: Position, key: &[u8], slot: Slot, keys: &impl Keys) {
        let mut position = position;
        loop {
            let node = self.node(position.bucket);
            let version = node.lock();
            let is_there = node.slot(position.index).same_entry(position.slot);
            // An entry is in one slot of the tree; slots of a dead node are only leftovers.
            if is_there && !version.is_dead() {
                node.set_slot(position.index, slot);
                node.unlock();
                return;
            }
            node.unlock();
            position = self.find(key, keys).expect("no other writer removes this key");
        }
    }
}

/// The rank in the locked border of a target that is not there: behind all lower places, and behind
/// the lower keys of its group.
pub(super) fn rank_of(node: &Node, target: Target<'_>, keys: &impl Keys) -> usize {
    let (order, mut ranks) = (node.order(), node.ranks_at(target.place()));
    // SAFETY: the slot is read under its border's lock since the last quiescent point.
    let key_at = |rank| unsafe { keys.key(node.slot(order.slot_at(rank))) };
    ranks.find(|rank| key_at(*rank) > target.key).unwrap_or(ranks.end)
}

/// Adds a place at `rank` to a locked border that has room.
#[inline]
pub(super) fn put_at(node: &Node, rank: usize, place: Place, slot: Slot) {
    let (order, index) = node.order().inserted(rank);
    node.fill(index, place, slot);
    node.set_order(order);
}
