//! The fence: the time until which nodes that a configuration leaves out may still serve under the
//! previous one.
//!
//! ```text
//!  term 7: n1 n2 n3      n1 is left out of term 8, with a lease that ends at t
//!  term 8: n2 n3         committed once t has passed, or n1 has installed term 8 as well
//! ```
//!
//! # Invariants
//! F1: a node that has installed a term serves under no earlier one (K22), so its lease need not
//!     end. For this reason a server that shuts down in order costs no wait for a lease.

use std::collections::BTreeMap;

use base::Instant;

use crate::ids::NodeId;

/// The leases that must end before a configuration is committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Fence {
    /// The end of the leases of unknown nodes.
    until: Instant,
    left_out: BTreeMap<NodeId, Instant>,
}

impl Fence {
    /// Waits for leases that the previous leader may have granted to any node.
    pub(super) fn of_all(until: Instant) -> Fence {
        Fence { until, left_out: BTreeMap::new() }
    }

    /// Adds these nodes, which the next configuration leaves out as well, with the ends of their
    /// leases.
    pub(super) fn and(mut self, left_out: impl Iterator<Item = (NodeId, Instant)>) -> Fence {
        for (node, until) in left_out {
            let longest = self.left_out.entry(node).or_default();
            *longest = until.max(*longest);
        }
        self
    }

    /// Removes the node: it serves under no earlier term than the present one (F1).
    pub(super) fn installed(&mut self, node: NodeId) {
        self.left_out.remove(&node);
    }

    /// The time at which the fence is over, if no node installs anything more.
    pub(super) fn until(&self) -> Instant {
        self.left_out.values().copied().fold(self.until, Instant::max)
    }

    /// The nodes whose leases have not ended.
    pub(super) fn left_out(&self, now: Instant) -> impl Iterator<Item = NodeId> + '_ {
        let is_held = move |(_, until): &(&NodeId, &Instant)| now < **until;
        self.left_out.iter().filter(is_held).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_waits_only_for_the_previous_leader() {
        let at = |ns| Instant { ns };
        let (first, second) =
            (NodeId { name: 1, incarnation: 1 }, NodeId { name: 2, incarnation: 1 });
        let left_out = [(first, at(50)), (second, at(40)), (first, at(30))];
        let mut fence = Fence::of_all(at(10)).and(left_out.into_iter());
        assert_eq!(fence.until(), at(50));
        assert_eq!(fence.left_out(at(45)).collect::<Vec<_>>(), [first]);
        fence.installed(first);
        assert_eq!(fence.until(), at(40));
        fence.installed(second);
        assert_eq!(fence.until(), at(10), "F1 says nothing of unknown nodes");
    }
}
