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

use crate::configuration::Configuration;
use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Message, Outcome};
use crate::node::Action;
use crate::node::membership::Membership;
use crate::node::primary::{Primary, Stage};
use crate::node::requests::{answer, to_client};
use crate::node::shards::Shards;
use crate::settings::{Settings, after};

/// A node that acknowledges other writes, and whose log has room, gets this many times the patience
/// for a write that does not move.
const BUSY_PATIENCE: u64 = 4;

/// When nodes last moved, and when managers were last told of those that did not.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    told_at: Instant,
    /// When each other node last acknowledged anything; for members only.
    acked_at: BTreeMap<NodeId, Instant>,
}

impl Overdue {
    /// Notes that a node has acknowledged something.
    pub(super) fn acked(&mut self, from: NodeId, now: Instant) {
        self.acked_at.insert(from, now);
    }

    /// Forgets nodes that are members no more.
    pub(super) fn retain(&mut self, configuration: &Configuration) {
        self.acked_at.retain(|node, _| configuration.has(*node));
    }

    /// Names the nodes that hold up shards to the managers, if that is due.
    pub(super) fn tell(
        &mut self,
        shards: &Shards,
        membership: &Membership,
        settings: &Settings,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if now < after(self.told_at, settings.lease_ns / 4) {
            return;
        }
        self.told_at = now;
        let (term, patience_ns) = (membership.term(), settings.patience_ns());
        let mut overdue: BTreeSet<(ShardId, NodeId)> = BTreeSet::new();
        for (shard, primary) in shards.primaries() {
            let nodes = primary.overdue(now, patience_ns, &self.acked_at);
            overdue.extend(nodes.into_iter().map(|node| (shard, node)));
        }
        for (shard, node) in overdue.into_iter().filter(|(_, node)| *node != membership.id) {
            membership.tell_managers(&Message::Overdue { term, shard, node }, actions);
        }
    }
}

impl Primary {
    /// Gives up a write that has been unable to end for `patience_ns`: its outcome is unknown, and
    /// its client need not wait. Requests that wait behind it were not executed.
    pub(super) fn give_up(
        &mut self,
        version: Version,
        now: Instant,
        patience_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(pending) = self.pending.get_mut(&version) else { return };
        if pending.is_given_up || now < after(pending.begun_at, patience_ns) {
            return;
        }
        pending.is_given_up = true;
        let (client, sequence) = pending.reply_to;
        let waiting = self.take_waiting(version);
        actions.push(to_client(client, sequence, Outcome::Unknown));
        waiting.iter().for_each(|request| answer(request, Outcome::TryAgain, actions));
    }

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
