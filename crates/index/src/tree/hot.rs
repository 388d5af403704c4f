//! Places of frequently read keys, kept beyond a session's quiescent points.
//!
//! ```text
//!  found once:  way down ─▶ border, slot's index            kept: both, and the border's count
//!  from then:   count the same? ─▶ the slot there ─▶ its entry has the key? ─▶ a hit
//!                     └─ no ───────────┴─ no ──────────────────────┴─ no ──▶ the way down again
//! ```
//!
//! A slot that names an entry with the key is the key's slot, however old the place is: a writer
//! points that same slot at another entry, and a key that leaves its slot leaves it empty, or a
//! link (I3 of the node). So a session keeps a place in the tree and no part of the item, and
//! writers need not notify any reader (K9).
//!
//! There is one exception, while keys leave a border: a key in it may already be in another layer
//! as well, to which its group has moved, and may have been written there. A session that descends
//! waits until the border is no longer *changing*; a session that uses a place does not accept it
//! until then.
//!
//! # Invariants
//! I1: a node that leaves the tree is added to the count for the remainder of its number after it
//!     is marked as dead, and before its grace period begins.
//! I2: if a place's count equals the present one, its node stays what it is until the reader's next
//!     quiescent point.
//!
//! I2 follows from I1. Either the reader's epoch is from before the node's grace period, which then
//! ends only after the reader's next quiescent point; or the reader has read an epoch that began
//! after the count, and so it reads that count.

use base::sync::{AtomicU32, Ordering};

use super::batch::Hint;
use super::node::NO_NODE;
use super::{Keys, Tree};
use crate::hash::Position;

/// The counts of removed nodes: 2 KiB, so that one removal in a thousand invalidates two places.
#[cfg(not(loom))]
const COUNTS: usize = 512;
#[cfg(loom)]
const COUNTS: usize = 1;

/// How many nodes have left the tree, by the remainder of their numbers.
pub(super) struct GoneNodes([AtomicU32; COUNTS]);

impl GoneNodes {
    pub(super) fn new() -> GoneNodes {
        GoneNodes(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    /// Counts a node that has left the tree and is marked as dead.
    #[inline]
    pub(super) fn add(&self, node: u32) {
        // Release: a session that sees the count in `HotPlace::of` sees the mark. The grace period
        // (`Epochs::advance`) starts afterwards, as I2 needs.
        self.of(node).fetch_add(1, Ordering::Release);
    }

    #[inline]
    fn of(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize % COUNTS]
    }
}

/// The place where a key's slot was found.
#[derive(Clone, Copy, Debug)]
pub struct HotPlace {
    hint: Hint,
    index: u32,
    gone_count: u32,
}

impl HotPlace {
    /// An unknown place.
    pub const NONE: HotPlace = HotPlace { hint: Hint::NONE, index: 0, gone_count: 0 };

    /// The place of a key that was found since the last quiescent point, through that hint.
    #[inline]
    pub fn of(tree: &Tree, hint: Hint, found: Position) -> HotPlace {
        let node = found.bucket;
        // Acquire pairs with `GoneNodes::add`: a thread that sees a later count sees the node as
        // dead.
        let gone_count = tree.gone.of(node).load(Ordering::Acquire);
        let version = tree.node(node).version();
        if version.is_dead() {
            return HotPlace::NONE;
        }
        let hint = if hint.node() == node { hint } else { Hint::in_some_layer(node) };
        HotPlace { hint, index: found.index as u32, gone_count }
    }

    /// Whether the place may be used until the session's next quiescent point.
    #[inline]
    pub fn is_there(&self, tree: &Tree) -> bool {
        let node = self.hint.node();
        // Relaxed: I2 says why the count is visible.
        node != NO_NODE && tree.gone.of(node).load(Ordering::Relaxed) == self.gone_count
    }

    /// Prefetches the entry at a valid place.
    #[inline]
    pub fn prefetch(&self, tree: &Tree, keys: &impl Keys) {
        let slot = tree.node(self.hint.node()).slot(self.index as usize);
        if slot.is_entry() {
            keys.prefetch(slot);
        }
    }

    /// The key's slot, if it is still at a valid place. A hit is accepted at once, like every hit.
    #[inline]
    pub fn find(&self, tree: &Tree, key: &[u8], keys: &impl Keys) -> Option<Position> {
        let (node, index) = (self.hint.node(), self.index as usize);
        // Loaded before the slot: a write that this read must see went to another layer after the
        // change had begun, so this version is from the change, or from after it.
        let version = tree.node(node).version();
        let slot = tree.node(node).slot(index);
        if version.is_changing() || !slot.is_entry() {
            return None;
        }
        // SAFETY: the slot was read just now, and the caller does not quiesce meanwhile.
        let has_key = unsafe { keys.has_key(slot, key) };
        has_key.then_some(Position { bucket: node, index, slot })
    }

    /// The place where a walk from the place's key begins.
    #[inline]
    pub fn walk_hint(&self, tree: &Tree) -> Hint {
        if self.is_there(tree) { self.hint } else { Hint::NONE }
    }
}
