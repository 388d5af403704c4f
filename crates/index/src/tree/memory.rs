//! Memory of tree nodes: blocks of four lines in the segments that the log lends to its index.
//!
//! A node's number is that of its block: its first line, divided by four.
//!
//! # Invariants
//! I1: a node is in the tree, in its grace period, among one session's spare nodes, or free in the
//!     arena.
//! I2: a number read from a node stays the number of a node until the reader's next quiescent
//!     point.

use std::sync::Arc;

use super::node::{NODE_BYTES, Node};
use crate::hash::{Arena, Block};
use crate::prefetch::LINE_BYTES;

/// Lines of a node, as a power of two.
const NODE_LOG2_LINES: u32 = 2;

const _: () = assert!(LINE_BYTES << NODE_LOG2_LINES == NODE_BYTES);

/// The nodes' memory.
pub struct NodeMemory {
    #[cfg(not(loom))]
    mapping: Arc<crate::mapping::Mapping>,
    #[cfg(loom)]
    nodes: Box<[Node]>,
    arena: Arc<Arena>,
    node_max: u32,
}

impl NodeMemory {
    /// Nodes in the blocks that `arena` has in `mapping`.
    #[cfg(not(loom))]
    pub fn new(mapping: Arc<crate::mapping::Mapping>, arena: Arc<Arena>) -> NodeMemory {
        // The arena's line numbers cannot name memory above either.
        let node_max = u32::try_from(mapping.len_bytes() / NODE_BYTES).unwrap_or(u32::MAX);
        NodeMemory { mapping, arena, node_max }
    }

    /// As many nodes as the mapping has.
    #[cfg(loom)]
    pub fn new(mapping: Arc<crate::mapping::Mapping>, arena: Arc<Arena>) -> NodeMemory {
        NodeMemory::boxed((mapping.len_bytes() / NODE_BYTES) as u32, arena)
    }

    /// Memory for `node_count` nodes.
    #[cfg(loom)]
    pub(super) fn boxed(node_max: u32, arena: Arc<Arena>) -> NodeMemory {
        NodeMemory { nodes: (0..node_max).map(|_| Node::zeroed()).collect(), arena, node_max }
    }

    /// Takes a node with any contents; `None`: out of memory.
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        self.arena.take(NODE_LOG2_LINES).map(|line| line >> NODE_LOG2_LINES)
    }

    /// Returns a node that no reader can be in any more.
    pub(crate) fn give(&self, node: u32) {
        let Block { first_line, log2_lines } = NodeMemory::block_of(node);
        self.arena.give(first_line, log2_lines);
    }

    /// The block of a node, to be freed after its grace period.
    #[inline]
    pub fn block_of(node: u32) -> Block {
        Block { first_line: node << NODE_LOG2_LINES, log2_lines: NODE_LOG2_LINES }
    }

    /// The number of nodes in this many lines.
    #[inline]
    pub fn count_of(lines: u64) -> u64 {
        lines >> NODE_LOG2_LINES
    }

    /// The number of nodes that would fill the lines taken.
    #[cfg(all(test, not(loom)))]
    pub(super) fn used_count(&self) -> u64 {
        self.arena.used_lines() >> NODE_LOG2_LINES
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn node(&self, node: u32) -> &Node {
        assert!(node < self.node_max, "node numbers stay below the limit");
        // SAFETY: the mapping holds `node_max` nodes and this one is below (asserted).
        let node = unsafe { self.mapping.as_ptr().cast::<Node>().add(node as usize) };
        // SAFETY: any bytes are a valid node (only atomics); the mapping is aligned to a page and
        // lives as long as `self`; while the block is the tree's, only atomics touch it (I2).
        unsafe { &*node }
    }

    #[cfg(loom)]
    pub(super) fn node(&self, node: u32) -> &Node {
        assert!(node < self.node_max, "node numbers stay below the limit");
        &self.nodes[node as usize]
    }

    /// Prefetches every line of a node.
    #[inline]
    pub(super) fn prefetch(&self, node: u32) {
        let start = std::ptr::from_ref(self.node(node)).cast::<u8>();
        for line in 0..NODE_BYTES / LINE_BYTES {
            crate::prefetch::line(start.wrapping_add(line * LINE_BYTES));
        }
    }
}

/// Nodes that a writer reserves before it takes a lock; a tree change takes nodes only from here.
#[derive(Default)]
pub struct Spare {
    nodes: Vec<u32>,
}

impl Spare {
    /// The number of nodes at hand.
    #[inline]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Takes nodes until there are `count`; false: the memory has no more.
    #[inline]
    pub fn fill(&mut self, memory: &NodeMemory, count: usize) -> bool {
        while self.nodes.len() < count {
            let Some(node) = memory.take() else { return false };
            self.nodes.push(node);
        }
        true
    }

    /// Takes one of the reserved nodes.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        self.nodes.pop().expect("the change was started only with enough nodes at hand")
    }

    /// Gives all but `count` nodes back.
    pub fn cut(&mut self, memory: &NodeMemory, count: usize) {
        while self.nodes.len() > count {
            memory.give(self.take());
        }
    }
}
