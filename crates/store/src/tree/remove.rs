//! Removing a key, and the nodes and layers that this leaves empty.
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
use crate::index::slot::Slot;

/// What was removed left something to tidy up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Keys,
    /// The layer looks empty.
    EmptyLayer,
}

impl Tree {
    /// Removes a key; what its slot was. Nodes that left the tree are pushed to `retired` (T6).
    pub(crate) fn remove(
        &self,
        key: &[u8],
        keys: &impl Keys,
        retired: &mut Vec<u32>,
    ) -> Option<Slot> {
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

    /// Empties one slot of the locked border and tidies up, layer by layer; frees the lock.
    fn remove_slot(
        &self,
        mut border: u32,
        mut index: usize,
        key: &[u8],
        mut depth_bytes: usize,
        retired: &mut Vec<u32>,
    ) {
        loop {
            let left = self.empty_slot(border, index, retired);
            if left == Left::Keys || depth_bytes == 0 {
                return;
            }
            depth_bytes -= SLICE_BYTES;
            let Some((above, link)) = self.lock_link(key, depth_bytes) else { return };
            if !self.remove_layer(above, link, retired) {
                self.node(above).unlock();
                return;
            }
            (border, index) = (above, link);
        }
    }

    /// One slot of the locked border; frees the lock.
    fn empty_slot(&self, border: u32, index: usize, retired: &mut Vec<u32>) -> Left {
        let node = self.node(border);
        let order = node.order();
        let rank = (0..order.count())
            .find(|rank| order.slot_at(*rank) == index)
            .expect("a slot that was found is in the order");
        // The count of changes grows before anyone can fill this slot again (I2 of the node).
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

    /// Takes the locked, empty border, which is not the first, out of its layer.
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
        let is_empty = before.order().count() == 0;
        let is_alone = before.prev() == NO_NODE && next == NO_NODE;
        before.unlock();
        self.unlink_from_parent(border, retired);
        if is_empty && is_alone { Left::EmptyLayer } else { Left::Keys }
    }

    /// Takes the locked, dead node out of its parent, and the parent out of its own if that was
    /// all it had; frees the locks.
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
            retired.push(dead);
            if has_others {
                node.unlock_changed();
                return;
            }
            dead = parent;
        }
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

    /// Marks the layer behind a link as gone, if it is empty and nobody is at work in it; the
    /// caller holds the lock of the link's border, and empties the link then.
    fn remove_layer(&self, border: u32, index: usize, retired: &mut Vec<u32>) -> bool {
        let slot = self.node(border).slot(index);
        let named = slot.linked_bucket().expect("the caller found a link there");
        let mut spine = Vec::new();
        let mut at = self.climb(named).node;
        let is_empty = loop {
            let node = self.node(at);
            // Against the order of T5, so it only tries; who holds the lock is about to add a key.
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
            retired.extend(spine);
        }
        is_empty
    }
}

/// Takes the child at `at` out of a locked, changing interior that has others.
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
