//! Tree nodes that a session reserves before it takes locks, since a tree change takes nodes only
//! from what was reserved.
//!
//! # Invariants
//! N1: an insert that lacks nodes changes nothing, and notes how many it lacked.

use index::hash::IndexFull;
use index::hash::slot::Slot;
use index::tree::{Inserted, SPARE_NODES, Shortage, Spare, Tree};

use crate::inner::Inner;

/// The nodes that a session keeps between requests.
const SPARE_KEPT: usize = 2 * SPARE_NODES;

/// Nodes for the next inserts; none without a tree.
#[derive(Default)]
pub(super) struct NodeStock {
    spare: Spare,
    /// The number of nodes that the last insert lacked.
    shortage: usize,
}

impl NodeStock {
    /// Whether the last insert changed nothing for lack of nodes, or of a line.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.shortage > 0
    }

    /// Notes the number of nodes, or of lines, that an insert lacked (N1).
    pub(super) fn set_shortage(&mut self, count: usize) {
        self.shortage = count;
    }

    /// The number that the last insert lacked; it counts as handled afterwards.
    #[inline]
    pub(super) fn take_shortage(&mut self) -> usize {
        std::mem::take(&mut self.shortage)
    }

    /// Adds a key that the tree does not have; its stripe is locked.
    pub(super) fn insert(
        &mut self,
        inner: &Inner,
        tree: &Tree,
        key: &[u8],
        slot: Slot,
    ) -> Result<(), IndexFull> {
        match tree.insert(key, slot, &inner.log, &mut self.spare) {
            Ok(Inserted::Added) => Ok(()),
            Ok(Inserted::Exists(position)) => {
                debug_assert!(false, "the key was looked for under its stripe's lock");
                tree.replace(position, key, slot, &inner.log);
                Ok(())
            }
            Err(Shortage { node_count }) => {
                self.shortage = node_count;
                Err(IndexFull)
            }
        }
    }

    /// Reserves `wanted` nodes; false: the tree's memory has not as many.
    #[inline]
    pub(super) fn reserve(&mut self, tree: &Tree, wanted: usize) -> bool {
        self.spare.fill(tree.memory(), wanted)
    }

    /// Reserves nodes for the next insert, if there are some; called before locks are taken.
    #[inline]
    pub(super) fn prepare(&mut self, inner: &Inner) {
        let Some(tree) = &inner.tree else { return };
        if self.spare.count() < SPARE_NODES {
            // The insert itself shows whether there were enough.
            self.spare.fill(tree.memory(), SPARE_KEPT);
        }
    }

    /// After an insert that changed nothing for lack of nodes, in recovery, where no room can be
    /// made: reserves as many as it lacked.
    pub(super) fn reserve_missing(&mut self, inner: &Inner) -> Result<(), IndexFull> {
        let wanted = self.take_shortage();
        let tree = inner.tree.as_ref().filter(|_| wanted > 0);
        let is_filled = tree.is_some_and(|tree| self.reserve(tree, wanted));
        if is_filled { Ok(()) } else { Err(IndexFull) }
    }

    /// Gives back nodes that were left over by an insert that opened many layers, or that it could
    /// not use. Not called within a request: the retry of such an insert needs all that were taken.
    #[inline]
    pub(super) fn keep_few(&mut self, inner: &Inner) {
        self.keep(inner, SPARE_KEPT);
    }

    /// Gives all nodes back.
    pub(super) fn keep_none(&mut self, inner: &Inner) {
        self.keep(inner, 0);
    }

    #[inline]
    fn keep(&mut self, inner: &Inner, count: usize) {
        if let Some(tree) = &inner.tree {
            self.spare.cut(tree.memory(), count);
        }
    }
}
