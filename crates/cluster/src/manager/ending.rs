//! Servers that shut down in order: a server announces its end, and stops once nothing is lost by
//! it.
//!
//! ```text
//!  n1 ── Ending ──▶           others serve what it served            (plan: `ending`)
//!     ── Ending, settled ──▶  its copies are let go, it is no member
//!     ◀── Install, or Ended: nothing more can go to others ──        it stops
//! ```
//!
//! # Invariants
//! E1: nothing here relies on the server stopping: one that stays asks for a lease, and is a member
//!     again as soon as the managers have forgotten that it was to end.

use base::Instant;

use crate::ids::NodeId;
use crate::manager::{Action, Leadership, Manager, Role};
use crate::message::{Message, Peer};

impl Manager {
    pub(super) fn hear_ending(
        &mut self,
        node: NodeId,
        is_settled: bool,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Role::Leading(leadership) = &mut self.role else { return };
        leadership.ending.insert(node, is_settled);
        self.plan(now, actions);
        let Role::Leading(leadership) = &mut self.role else { return };
        if leadership.has_done_all_for(node, is_settled) {
            let (to, message) = (Peer::Node(node), Message::Ended);
            actions.push(Action::Send { to, message });
        }
    }
}

impl Leadership {
    /// Whether waiting longer gains nothing for the node: no configuration is under way, and the
    /// present one is the best for it.
    fn has_done_all_for(&self, node: NodeId, is_settled: bool) -> bool {
        let Some(configuration) = &self.configuration else { return true };
        let is_still = self.proposal.is_none() && self.is_committed();
        let mut own = configuration.shards.iter().filter(|shard| shard.role_of(node).is_some());
        let is_growing =
            own.clone().any(|shard| shard.joining.is_some() || shard.filling_from.is_some());
        let serves = own.any(|shard| shard.primary == node);
        is_still && !is_growing && (is_settled || serves)
    }
}
