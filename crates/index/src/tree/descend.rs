//! Descent: from a layer's root to the border that has a place, and from layer to layer.

use base::sync::Backoff;

use super::node::{NO_NODE, Version};
use super::slice::{Place, SLICE_BYTES};
use super::{Direction, Keys, Tree};
use crate::hash::Position;
use crate::hash::slot::Slot;

/// The most borders that a walk prefetches at once.
const NEIGHBOURS_MAX: usize = 6;

/// The error that the layer has been removed: the search restarts at the first layer.
#[derive(Debug)]
pub(super) struct LayerGone;

/// A border and the version with which it was reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    pub node: u32,
    pub version: Version,
}

/// The contents of a border at a key's place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// The key's entry.
    Entry(usize, Slot),
    /// The root of the layer below.
    Layer(u32),
    /// Neither, or another key's entry.
    Nothing,
}

impl Tree {
    /// The present root of a layer whose root once was `root` (T4), and its version.
    #[inline]
    pub(super) fn climb(&self, root: u32) -> Border {
        let mut at = root;
        loop {
            let version = self.node(at).stable();
            match self.node(at).parent() {
                NO_NODE => return Border { node: at, version },
                parent => at = parent,
            }
        }
    }

    /// Locks the parent of a locked node; `None`: it is a root.
    pub(super) fn lock_parent(&self, node: u32) -> Option<u32> {
        loop {
            let parent = self.node(node).parent();
            if parent == NO_NODE {
                return None;
            }
            self.node(parent).lock();
            if self.node(node).parent() == parent {
                return Some(parent);
            }
            self.node(parent).unlock(); // It split, and the node has moved.
        }
    }

    /// The border that has `slice` in the layer of `root`. It may split or be removed right after;
    /// its version tells.
    #[inline]
    pub(super) fn descend(&self, root: u32, slice: u64) -> Result<Border, LayerGone> {
        let mut backoff = Backoff::new();
        loop {
            let top = self.climb(root);
            if top.version.is_dead() {
                return Err(LayerGone);
            }
            if let Some(border) = self.descend_once(top, slice) {
                return Ok(border);
            }
            backoff.snooze();
        }
    }

    #[inline]
    fn descend_once(&self, top: Border, slice: u64) -> Option<Border> {
        let mut at = top;
        while !at.version.is_border() {
            let node = self.node(at.node);
            let child = node.child_for(slice);
            // Checked before the child is touched: a torn read may name any number.
            if !node.is_same(at.version) {
                return None;
            }
            // All its lines at once: the version is in one, the compared words in others.
            self.memory.prefetch(child);
            let version = self.node(child).stable();
            // Checked again after its version is known: had the child split before, its parent
            // would have changed (T2).
            if !node.is_same(at.version) || version.is_dead() {
                return None;
            }
            at = Border { node: child, version };
        }
        Some(at)
    }

    /// Prefetches `neighbour_count` borders beyond `border` by the entries of their parent, since
    /// each border names only the next one. A hint for walks, without a guarantee.
    pub(super) fn ask_for_neighbours(
        &self,
        border: u32,
        direction: Direction,
        neighbour_count: usize,
    ) {
        let parent = self.node(border).parent();
        if neighbour_count == 0 || parent == NO_NODE {
            return;
        }
        let node = self.node(parent);
        let version = node.version();
        let count = node.count();
        let Some(rank) = (0..=count).find(|rank| node.child(*rank) == border) else { return };
        let mut neighbours = [NO_NODE; NEIGHBOURS_MAX];
        for (distance, neighbour) in neighbours.iter_mut().take(neighbour_count).enumerate() {
            let rank = match direction {
                Direction::Forward => Some(rank + 1 + distance).filter(|rank| *rank <= count),
                Direction::Reverse => rank.checked_sub(1 + distance),
            };
            *neighbour = rank.map_or(NO_NODE, |rank| node.child(rank));
        }
        // A torn read may name any number.
        if node.is_same(version) && !version.is_changing() {
            let known = neighbours.into_iter().filter(|neighbour| *neighbour != NO_NODE);
            known.for_each(|neighbour| self.memory.prefetch(neighbour));
        }
    }

    /// The border's contents for `key`, whose layer begins at byte `depth_bytes`.
    #[inline]
    pub(super) fn look(
        &self,
        border: u32,
        key: &[u8],
        depth_bytes: usize,
        keys: &impl Keys,
    ) -> Found {
        let accepts = |slot: Slot| {
            // SAFETY: the slot was read just now, and the caller does not quiesce meanwhile.
            slot.linked_bucket().is_some() || unsafe { keys.has_key(slot, key) }
        };
        match self.node(border).search(Place::of(key, depth_bytes), accepts) {
            None => Found::Nothing,
            Some((index, slot)) => match slot.linked_bucket() {
                Some(layer) => Found::Layer(layer),
                None => Found::Entry(index, slot),
            },
        }
    }

    /// Finds a key's slot. A hit is accepted at once; a miss only if its border did not change.
    pub fn find(&self, key: &[u8], keys: &impl Keys) -> Option<Position> {
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut root, mut depth_bytes) = (self.root(), 0);
            loop {
                let Ok(border) = self.descend(root, Place::of(key, depth_bytes).slice) else {
                    backoff.snooze(); // Until its link is gone as well.
                    continue 'again;
                };
                match self.look(border.node, key, depth_bytes, keys) {
                    Found::Entry(index, slot) => {
                        return Some(Position { bucket: border.node, index, slot });
                    }
                    Found::Layer(next) => {
                        root = next;
                        depth_bytes += SLICE_BYTES;
                    }
                    Found::Nothing if self.node(border.node).is_same(border.version) => {
                        return None;
                    }
                    Found::Nothing => {}
                }
            }
        }
    }

    /// A key that `random` chooses, by descending at random: keys in sparse nodes come more often.
    /// `None`: the descent ended in an empty node.
    pub fn random_key<'a>(&self, random: u64, keys: &impl Keys) -> Option<&'a [u8]> {
        let mut random = random;
        let mut choose = |count: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) as usize) % count.max(1)
        };
        let mut at = self.climb(self.root());
        loop {
            let node = self.node(at.node);
            let next = match at.version.is_border() {
                false => node.child(choose(node.count() + 1)),
                true => {
                    let order = node.order();
                    if order.count() == 0 {
                        return None;
                    }
                    let slot = node.slot(order.slot_at(choose(order.count())));
                    match slot.linked_bucket() {
                        Some(layer) => layer,
                        None if slot.is_empty() => return None,
                        // SAFETY: the slot was read just now.
                        None => return Some(unsafe { keys.key(slot) }),
                    }
                }
            };
            // Checked before the next node is touched: a torn read may name any number.
            if !node.is_same(at.version) {
                return None;
            }
            at = if at.version.is_border() {
                self.climb(next)
            } else {
                Border { node: next, version: self.node(next).stable() }
            };
        }
    }
}
