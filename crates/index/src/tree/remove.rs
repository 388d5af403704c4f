//! Removes a key, and the nodes and layers that become empty.
//!
//! ```text
//!  border keeps keys         one slot goes
//!  border is empty           it leaves the list and its parent, and so does a parent without
//!                            children
//!  first border of a layer   stays, unless it is all the layer has: then the layer goes, and with
//!                            it a slot of the border above, which may be empty then
//! ```

use base::sync::Backoff;

use super::descend::Found;
use super::node::{NO_NODE, Node};
use super::slice::{Place, SLICE_BYTES};
use super::split::child_index;
use super::{Keys, Tree};
use crate::hash::slot::Slot;

/// Whether a removal left something to tidy up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Keys,
    /// The layer looks empty.
    EmptyLayer,
}

impl Tree {
    /// Removes a key; returns its slot. Nodes that leave the tree are pushed to `retired` (T6).
    pub fn remove(&self, key: &[u8], keys: &impl Keys, retired: &mut Vec<u32>) -> Option<Slot> {
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut root, mut depth_bytes) = (self.root(), 0);
            loop {
                let Ok(border) = self.descend(root, Place::of(key, depth_bytes).slice) else {
                    backoff.snooze(); // Until its link is gone as well.
                    continue 'again;
                };
                if !self.lock_border(border) {
                    continue;
                }
                match self.look(border.node, key, depth_bytes, keys) {
                    Found::Layer(next) => {
                        self.node(border.node).unlock();
                        root = next;
                        depth_bytes += SLICE_BYTES;
                    }
                    Found::Nothing => {
                        self.node(border.node).unlock();
                        return None;
                    }
                    Found::Entry(index, slot) => {
                        self.remove_slot(border.node, index, key, depth_bytes, retired);
                        return Some(slot);
                    }
                }
            }
        }
    }

    /// Empties one slot of the locked border and tidies up, layer by layer; releases the lock.
    fn remove_slot(
        &self,
        mut border: u32,
        mut index: usize,
        key: &[u8],
        mut depth_bytes: usize,
        retired: &mut Vec<u32>,
    ) {
        let mut path = None;
        loop {
            let left = self.empty_slot(border, index, retired);
            if left == Left::Keys || depth_bytes == 0 {
                return;
            }
            depth_bytes -= SLICE_BYTES;
            // One descent for all layers that are removed: a long key can be the last of thousands.
            let path = path.get_or_insert_with(|| self.link_path(key, depth_bytes));
            let hint = path.get(depth_bytes / SLICE_BYTES).copied();
            let locked = hint.and_then(|border| self.lock_link_in(border, key, depth_bytes));
            let Some((above, link)) = locked.or_else(|| self.lock_link(key, depth_bytes)) else {
                return;
            };
            if !self.remove_layer(above, link, retired) {
                self.node(above).unlock();
                return;
            }
            (border, index) = (above, link);
        }
    }

    /// Empties one slot of the locked border; releases the lock.
    fn empty_slot(&self, border: u32, index: usize, retired: &mut Vec<u32>) -> Left {
        let node = self.node(border);
        let order = node.order();
        let rank = (0..order.count())
            .find(|rank| order.slot_at(*rank) == index)
            .expect("a slot that was found is in the order");
        // The count of changes grows before another session can fill this slot again (I2 of the
        // node).
        node.set_order(order.removed(rank));
        node.set_slot(index, Slot::EMPTY);
        if order.count() > 1 {
            node.unlock_changed();
            return Left::Keys;
        }
        if node.prev() == NO_NODE {
            let is_alone = node.next() == NO_NODE;
            node.unlock_changed();
            return if is_alone { Left::EmptyLayer } else { Left::Keys };
        }
        self.unlink_border(border, retired)
    }

    /// Removes the locked, empty border, which is not the first, from its layer.
    fn unlink_border(&self, border: u32, retired: &mut Vec<u32>) -> Left {
        let node = self.node(border);
        node.mark_dead();
        let prev = loop {
            let prev = node.prev();
            self.node(prev).lock();
            if node.prev() == prev {
                break prev;
            }
            self.node(prev).unlock(); // It split, or it went.
        };
        let (before, next) = (self.node(prev), node.next());
        before.set_next(next);
        if next != NO_NODE {
            self.node(next).set_prev(prev);
        }
        before.unlock();
        self.unlink_from_parent(border, retired);
        // Checked only now, under the lock. A session that takes the last key of the first border
        // before this check may find this border in the parent and leave the layer to this thread;
        // one that takes it after this check does not find it.
        let is_dead = before.lock().is_dead();
        let is_alone = before.prev() == NO_NODE && before.next() == NO_NODE;
        let is_empty = before.order().count() == 0 && is_alone && !is_dead;
        before.unlock();
        if is_empty { Left::EmptyLayer } else { Left::Keys }
    }

    /// Removes the locked, dead node from its parent, and the parent from its own parent if it has
    /// no other child; releases the locks.
    fn unlink_from_parent(&self, dead: u32, retired: &mut Vec<u32>) {
        let mut dead = dead;
        loop {
            let parent = self.lock_parent(dead).expect("T4: only a first child can be a root");
            let node = self.node(parent);
            node.begin_change();
            let has_others = node.count() > 0;
            if has_others {
                remove_child(node, child_index(node, dead));
            } else {
                node.mark_dead();
            }
            self.node(dead).unlock_changed();
            self.gone.add(dead);
            retired.push(dead);
            if has_others {
                node.unlock_changed();
                return;
            }
            dead = parent;
        }
    }

    /// The borders that have the links for `key`, layer by layer down to the one that begins at
    /// `depth_bytes`; a hint, and only as far as no other session is in the way.
    fn link_path(&self, key: &[u8], depth_bytes: usize) -> Vec<u32> {
        let (mut path, mut root) = (Vec::new(), self.root());
        for at_bytes in (0..=depth_bytes).step_by(SLICE_BYTES) {
            let place = Place::of(key, at_bytes);
            let Ok(border) = self.descend(root, place.slice) else { break };
            let link = self.node(border.node).search(place, |slot| slot.linked_bucket().is_some());
            let Some(layer) = link.and_then(|(_, slot)| slot.linked_bucket()) else { break };
            path.push(border.node);
            root = layer;
        }
        path
    }

    /// [`Tree::lock_link`] at its last known place; `None`: the link is not there any more.
    fn lock_link_in(&self, border: u32, key: &[u8], depth_bytes: usize) -> Option<(u32, usize)> {
        let node = self.node(border);
        // Within the grace period the border belongs to the same layer (T6).
        let version = node.lock();
        let place = Place::of(key, depth_bytes);
        let link = node.search(place, |slot| slot.linked_bucket().is_some());
        if link.is_none() || version.is_dead() {
            node.unlock();
            return None;
        }
        link.map(|(index, _)| (border, index))
    }

    /// Locks the border that has the link to the next layer for `key`, in the layer that begins at
    /// `depth_bytes`; `None`: there is no such link any more.
    pub(super) fn lock_link(&self, key: &[u8], depth_bytes: usize) -> Option<(u32, usize)> {
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut root, mut at_bytes) = (self.root(), 0);
            loop {
                let place = Place::of(key, at_bytes);
                let Ok(border) = self.descend(root, place.slice) else {
                    backoff.snooze();
                    continue 'again;
                };
                if !self.lock_border(border) {
                    continue;
                }
                let node = self.node(border.node);
                let link = node.search(place, |slot| slot.linked_bucket().is_some());
                if at_bytes == depth_bytes && link.is_some() {
                    return link.map(|(index, _)| (border.node, index));
                }
                node.unlock();
                root = link.and_then(|(_, slot)| slot.linked_bucket())?;
                at_bytes += SLICE_BYTES;
            }
        }
    }

    /// Marks the layer behind a link as removed, if it is empty and no session is active in it. The
    /// caller holds the lock of the link's border, and empties the link then.
    fn remove_layer(&self, border: u32, index: usize, retired: &mut Vec<u32>) -> bool {
        let slot = self.node(border).slot(index);
        let named = slot.linked_bucket().expect("the caller found a link there");
        let mut spine = Vec::new();
        let mut at = self.climb(named).node;
        let is_empty = loop {
            let node = self.node(at);
            // Against the order of T5, so this only tries; the lock's holder is about to add a key.
            if node.try_lock().is_none() {
                break false;
            }
            spine.push(at);
            let version = node.version();
            if version.is_border() {
                break node.order().count() == 0 && node.next() == NO_NODE;
            }
            if node.count() > 0 {
                break false;
            }
            at = node.child(0);
        };
        for node in &spine {
            if is_empty {
                self.node(*node).mark_dead();
                self.node(*node).unlock_changed();
            } else {
                self.node(*node).unlock();
            }
        }
        if is_empty {
            spine.iter().for_each(|node| self.gone.add(*node));
            retired.extend(spine);
        }
        is_empty
    }
}

/// Removes the child at `at` from a locked, changing interior that has others.
fn remove_child(node: &Node, at: usize) {
    let count = node.count();
    for index in at..count {
        node.set_child(index, node.child(index + 1));
    }
    // The range goes to the left neighbour, or to the right one if there is none on the left.
    for index in at.max(1)..count {
        node.set_separator(index - 1, node.separator(index));
    }
    node.set_count(count - 1);
}
