//! Where nodes live: numbered blocks of 256 bytes, handed out and taken back.
//!
//! # Invariants
//! I1: a node is in the tree, in its grace period, in one session's spare nodes, or free.
//! I2: a node's memory is a node for as long as the tree lives: reading one by a number that is no
//!     longer in use yields stale contents, never anything else.

use base::sync::{Mutex, MutexGuard};

use super::node::{NO_NODE, NODE_BYTES, Node};

/// All nodes that a tree may have.
pub(crate) struct NodeMemory {
    #[cfg(not(loom))]
    mapping: crate::mapping::Mapping,
    #[cfg(loom)]
    nodes: Box<[Node]>,
    node_max: u32,
    free: Mutex<Free>,
}

struct Free {
    /// The next node that was never used.
    fresh: u32,
    returned: Vec<u32>,
}

impl NodeMemory {
    /// Room for `node_max` nodes; nothing is resident yet.
    pub(crate) fn new(node_max: u32) -> std::io::Result<NodeMemory> {
        assert!(node_max < NO_NODE, "node numbers are below the one that means none");
        Ok(NodeMemory {
            #[cfg(not(loom))]
            mapping: crate::mapping::Mapping::new(
                node_max as usize * NODE_BYTES,
                crate::HugePages::Auto,
            )?,
            #[cfg(loom)]
            nodes: (0..node_max).map(|_| Node::zeroed()).collect(),
            node_max,
            free: Mutex::new(Free { fresh: 0, returned: Vec::new() }),
        })
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().expect("no code that holds this lock panics")
    }

    /// Nodes that are not free.
    pub(crate) fn used_count(&self) -> u64 {
        let free = self.free();
        u64::from(free.fresh) - free.returned.len() as u64
    }

    /// Takes a node of any content; `None`: all are in use.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = self.free();
        if let Some(node) = free.returned.pop() {
            return Some(node);
        }
        (free.fresh < self.node_max).then(|| {
            free.fresh += 1;
            free.fresh - 1
        })
    }

    /// Takes back a node that no reader can be in any more.
    pub(crate) fn give(&self, node: u32) {
        self.free().returned.push(node);
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn node(&self, node: u32) -> &Node {
        assert!(node < self.node_max, "node numbers stay below the limit");
        // SAFETY: the mapping holds `node_max` nodes and this one is below (asserted).
        let node = unsafe { self.mapping.as_ptr().cast::<Node>().add(node as usize) };
        // SAFETY: zeroed memory is a valid node (only atomics), aligned to a page, and lives as
        // long as `self`; nodes are only ever touched through their atomics (I2).
        unsafe { &*node }
    }

    #[cfg(loom)]
    pub(super) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Asks for every line of a node.
    #[inline]
    pub(super) fn prefetch(&self, node: u32) {
        let start = std::ptr::from_ref(self.node(node)).cast::<u8>();
        for line in 0..NODE_BYTES / crate::prefetch::LINE_BYTES {
            crate::prefetch::line(start.wrapping_add(line * crate::prefetch::LINE_BYTES));
        }
    }
}

/// Nodes that a writer has at hand before it takes a lock; a tree change takes from nowhere else.
#[derive(Default)]
pub(crate) struct Spare {
    nodes: Vec<u32>,
}

impl Spare {
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Takes nodes until there are `count`; false: the memory has no more.
    pub(crate) fn fill(&mut self, memory: &NodeMemory, count: usize) -> bool {
        while self.nodes.len() < count {
            let Some(node) = memory.take() else { return false };
            self.nodes.push(node);
        }
        true
    }

    /// One of the nodes that were made sure of.
    pub(super) fn take(&mut self) -> u32 {
        self.nodes.pop().expect("the change was started only with enough nodes at hand")
    }

    /// Gives all but `count` nodes back.
    pub(crate) fn cut(&mut self, memory: &NodeMemory, count: usize) {
        while self.nodes.len() > count {
            memory.give(self.take());
        }
    }
}
