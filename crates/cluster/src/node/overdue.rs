//! Nodes that hold a shard up although the manager hears from them: cut off from the primary alone,
//! without room, or with a log that accepts nothing.
//!
//! ```text
//!  primary ══ Land ══▶ n2   taken, or no room ─ Crowded ─▶ primary: refuses what adds to the shard
//!          ══ Land ═╳▶ n4   patience_ns without a step ─ Overdue ─▶ managers: n4 is replaced
//! ```
//!
//! # Invariants
//! O1: naming a node changes nothing here. Only a configuration takes it out, so safety does not
//!     rest on which node is named.

use std::collections::{BTreeMap, BTreeSet};

use base::Instant;

use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Lane, Message, Outcome};
use crate::node::primary::{Primary, Stage};
use crate::node::requests::{answer, to_client};
use crate::node::{Action, Node, to_node};
use crate::replica_store::ReplicaStore;
use crate::settings::after;

/// A node that acknowledges other writes, and whose log has room, gets this many times the patience
/// for a write that does not move.
const BUSY_PATIENCE: u64 = 4;

impl<S: ReplicaStore> Node<S> {
    pub(super) fn tell_overdue(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if now < after(self.overdue_told_at, self.settings.lease_ns / 4) {
            return;
        }
        self.overdue_told_at = now;
        let (term, own, patience_ns) = (self.term(), self.id, self.settings.patience_ns());
        let mut overdue: BTreeSet<(ShardId, NodeId)> = BTreeSet::new();
        for (shard, state) in &self.shards {
            let Some(primary) = &state.primary else { continue };
            let nodes = primary.overdue(now, patience_ns, &self.acked_at);
            overdue.extend(nodes.into_iter().map(|node| (*shard, node)));
        }
        for (shard, node) in overdue.into_iter().filter(|(_, node)| *node != own) {
            self.tell_managers(&Message::Overdue { term, shard, node }, actions);
        }
    }
}

impl<S: ReplicaStore> Node<S> {
    /// Gives up a write that has been unable to end for long: its outcome is unknown, and its
    /// client need not wait. Requests that wait behind it were not executed.
    pub(super) fn give_up(
        &mut self,
        shard: ShardId,
        version: Version,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let patience_ns = 2 * self.settings.patience_ns();
        let Some(primary) = self.primary_mut(shard) else { return };
        let Some(pending) = primary.pending.get_mut(&version) else { return };
        if pending.is_given_up || now < after(pending.begun_at, patience_ns) {
            return;
        }
        pending.is_given_up = true;
        let (client, sequence) = pending.reply_to;
        let waiting = primary.waiting.remove(&version).unwrap_or_default();
        primary.waiting_count -= waiting.len();
        actions.push(to_client(client, sequence, Outcome::Unknown));
        waiting.iter().for_each(|request| answer(request, Outcome::TryAgain, actions));
    }

    /// Reports crowded shards, at a backup, after a digest.
    pub(super) fn tell_crowded(&mut self, lane: Lane, actions: &mut Vec<Action>) {
        for shard in std::mem::take(&mut self.crowded) {
            actions.push(to_node(lane.from, Message::Crowded { term: lane.term, shard }));
        }
    }
}

impl Primary {
    fn overdue(
        &self,
        now: Instant,
        patience_ns: u64,
        acked_at: &BTreeMap<NodeId, Instant>,
    ) -> BTreeSet<NodeId> {
        let is_late = |at: Instant| now >= after(at, patience_ns);
        // A node that takes in other nodes' writes has no memory for this one yet. A full log is a
        // different case: its contents stay.
        let is_crowded = self.crowded_at.is_some_and(|at| !is_late(at));
        let is_busy =
            |node: &NodeId| !is_crowded && acked_at.get(node).is_some_and(|at| !is_late(*at));
        let is_slow = |node: &NodeId, at: Instant| {
            is_late(at) && (!is_busy(node) || now >= after(at, BUSY_PATIENCE * patience_ns))
        };
        match &self.stage {
            Stage::Gathering { missing, .. } | Stage::Scattering { missing, .. } => {
                return if is_late(self.stage_since) { missing.clone() } else { BTreeSet::new() };
            }
            Stage::Serving => {}
        }
        let sent = self.pending.values().filter(|pending| !pending.is_held);
        let targets = sent.flat_map(|pending| &pending.targets);
        let slow = targets
            .filter(|(node, missing)| !missing.is_empty() && is_slow(node, missing.moved_at));
        let copy = self.copy.as_ref().and_then(|copy| copy.overdue(now, patience_ns));
        let filling = self.filling.as_ref().and_then(|filling| filling.overdue(now, patience_ns));
        slow.map(|(node, _)| *node).chain(copy).chain(filling).collect()
    }
}
