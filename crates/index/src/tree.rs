//! The ordered index: a trie of B+-trees over the log's entries.
//!
//! ```text
//!  layer 0, keys' bytes 0-7          layer 1 of "user:123", bytes 8-15
//!        interior                          border
//!       ╱    │    ╲                  "4"  "4567"  ...
//!  border ⇄ border ⇄ border            │     │
//!    │  "user:123" longer ──link──▶    entry entry
//!    │  "user" ── entry
//! ```
//!
//! Each layer is a B+-tree over one eight-byte slice of the keys (slice.rs). Keys that agree on a
//! whole slice and continue beyond it are a *group*. As long as a group is small, its entries are
//! side by side in the border, however long the keys are, because an entry holds the whole key. A
//! larger group shares a layer below. docs/design/tree.md explains the protocols,
//! docs/formats/tree-node.md the bytes.
//!
//! # Invariants
//! T1: in a layer, places (slice and kind) grow from left to right. Each occurs at most once,
//!     except that of longer keys, which has one link, or up to `GROUP_MAX` entries in the order of
//!     their keys. All keys of one slice are in one border.
//! T2: the child before separator `k` has slices below `k`, the one behind it the others.
//! T3: keys move only to a new node on the right (split). A range moves to a neighbour only when
//!     its node is empty.
//! T4: the first border of a layer stays until the layer goes, and so do all nodes above it. So the
//!     number of an old root never dangles: its parents lead to the present root.
//! T5: a thread waits for locks only from a border to its left neighbour, and from a node to its
//!     parent; everywhere else it only tries.
//! T6: a node that left the tree is pushed to the caller's list and keeps its contents until the
//!     caller gives it back after a grace period.
//!
//! # Concurrency
//! Readers take no lock. A hit is accepted at once: the key is compared in full with its entry. A
//! miss is accepted if the border did not change while it was searched. A step down is accepted if
//! the node above did not change until the version of the node below was read. Writers lock one
//! border, and its ancestors from below where it splits or is removed.
//!
//! # Limits
//! 2^32 - 1 nodes of 256 bytes. Keys that share a long prefix cost one node for each eight bytes of
//! it. Nodes that lose keys are not merged: only empty ones are removed.
//!
//! # References
//! Mao, Kohler, Morris: Cache Craftiness for Fast Multicore Key-Value Storage (EuroSys 2012): the
//! trie of B+-trees, permutation, versions. uTPS §3.3 (batched indexing by state machines).

mod batch;
mod descend;
mod direction;
mod held;
mod hot;
mod insert;
mod memory;
mod node;
mod permutation;
mod remove;
mod scan;
mod slice;
mod snapshot;
mod split;
mod validate;

#[cfg(all(test, loom))]
mod loom_hot_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(test)]
mod tests_support;

use base::sync::{AtomicU32, Ordering};

use crate::hash::Position;
use crate::hash::slot::Slot;
use crate::keys_equal;
pub use batch::{Hint, Sought};
pub use direction::Direction;
use hot::GoneNodes;
pub use hot::HotPlace;
pub use insert::{Inserted, Shortage};
pub use memory::{NodeMemory, Spare};
pub use node::NODE_BYTES;
use node::{Node, Role};
pub use scan::{Origin, Walk};
pub use validate::Census;

/// The most requests in flight in the pipeline of a batch.
pub const BATCH_MAX: usize = 64;

/// The nodes that a session reserves: enough for any insert except one that opens many layers.
pub const SPARE_NODES: usize = insert::SPLIT_NODES_MAX;

/// The tree's access to the keys of its entries.
pub trait Keys {
    /// The key of the entry that `slot` names.
    ///
    /// # Safety
    /// The caller's session read the slot since its last quiescent point, and uses the key no
    /// longer than until the next.
    unsafe fn key<'a>(&self, slot: Slot) -> &'a [u8];

    /// Whether the entry that `slot` names has this key.
    ///
    /// # Safety
    /// As for `key`.
    #[inline]
    unsafe fn has_key(&self, slot: Slot, key: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        keys_equal(unsafe { self.key(slot) }, key)
    }

    /// Prefetches the lines that reading the entry will touch.
    fn prefetch(&self, slot: Slot);
}

/// The tree's nodes and its root.
pub struct Tree {
    memory: NodeMemory,
    /// The root of layer 0, possibly an old one (T4).
    root: AtomicU32,
    /// Counts of removed nodes, for sessions that keep places of keys.
    gone: GoneNodes,
}

impl Tree {
    /// An empty tree; `None`: the memory has not even one node.
    pub fn new(memory: NodeMemory) -> Option<Tree> {
        let root = memory.take()?;
        memory.node(root).reset(Role::Border);
        memory.node(root).unlock();
        Some(Tree { memory, root: AtomicU32::new(root), gone: GoneNodes::new() })
    }

    /// The memory of its nodes.
    #[inline]
    pub fn memory(&self) -> &NodeMemory {
        &self.memory
    }

    #[inline]
    fn node(&self, node: u32) -> &Node {
        self.memory.node(node)
    }

    /// Acquire pairs with `set_root`: the node is complete.
    #[inline]
    fn root(&self) -> u32 {
        self.root.load(Ordering::Acquire)
    }

    #[inline]
    fn set_root(&self, root: u32) {
        self.root.store(root, Ordering::Release);
    }

    /// Adds an access mark to the slot if it has fewer than `limit` (K13).
    #[inline]
    pub fn mark(&self, position: Position, limit: u64) {
        let marks = position.slot.marks();
        if marks < limit {
            self.node(position.bucket).try_mark(position.index, position.slot, marks + 1);
        }
    }
}
