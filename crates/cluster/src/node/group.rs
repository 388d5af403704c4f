//! Groups of writes: none leaves before the last one is computed, and then all leave as one frame,
//! which lands as a whole or not at all.
//!
//! ```text
//!  hold_group ─ write 7 ─ write 8 ─ write 9 ─ release_group ─▶ frame [7][8][9] to each target
//!                held      held      held                       and again, until 9 is acknowledged
//! ```
//!
//! So a promotion gathers all of a group or nothing, whichever nodes have failed. If a group no
//! longer fits into a datagram, its writes leave at once, one by one like any others: part of such
//! a group may survive alone.
//!
//! # Invariants
//! H1: while a group is open, only its own writes are executed in the shard (`Groups` of the
//!     driver), each computed on the one before, so that N5 keeps them together. A write that is
//!     still under way has been given up (`overdue`): its client was told that the outcome is
//!     unknown.
//! H2: a target that has not acknowledged the last write of a group is never sent one of them
//!     alone.
//! H3: held writes are in no log and no replica store, including this node's own: they are void if
//!     the node ceases to be primary, or if the group is dropped.

use base::Instant;

use crate::ids::{ShardId, Version};
use crate::message::Outcome;
use crate::node::durable::Held;
use crate::node::primary::Primary;
use crate::node::requests::to_client;
use crate::node::{Action, Node};
use crate::replica_store::ReplicaStore;

impl<S: ReplicaStore> Node<S> {
    /// Opens a group: writes of the shard belong together until [`Node::release_group`]. No client
    /// waits for any other write (H1).
    pub fn hold_group(&mut self, shard: ShardId) {
        if let Some(primary) = self.primary_mut(shard) {
            primary.group = Some(Vec::new());
        }
    }

    /// Closes the group and sends the held writes. Does nothing if no group is open.
    pub fn release_group(&mut self, shard: ShardId, now: Instant, actions: &mut Vec<Action>) {
        let (logs, is_replica_store) = (self.durable.is_on(), self.durable.is_replica_store());
        let Some(primary) = self.primary_mut(shard) else { return };
        let Some(versions) = primary.group.take() else { return };
        let Some(last) = versions.last().copied() else { return };
        let mut bytes = Vec::new();
        for version in &versions {
            let Some(pending) = primary.pending.get_mut(version) else { continue };
            pending.is_held = false;
            pending.goes_with = Some(last).filter(|last| last != version);
            pending.landed_at = now;
            if logs && !is_replica_store {
                pending.entry.append(&mut bytes);
            }
        }
        self.append(&bytes, actions);
        self.land_at_all(shard, last, now, actions);
        for version in versions {
            match is_replica_store {
                true => self.complete(shard, version, now, actions), // As for any other write.
                false => self.when_durable(Held::Written { shard, version }, now, actions),
            }
        }
    }
}

impl<S: ReplicaStore> Node<S> {
    /// Gives the group up before all of it was computed: the held writes are void, and their
    /// versions are not assigned again. Does nothing if no group is open.
    pub fn drop_group(&mut self, shard: ShardId, actions: &mut Vec<Action>) {
        let Some(state) = self.shards.get_mut(&shard) else { return };
        let Some(primary) = state.primary.as_mut() else { return };
        for version in primary.group.take().into_iter().flatten().rev() {
            let Some(pending) = primary.pending.remove(&version) else { continue };
            debug_assert!(pending.is_held, "H3");
            primary.pending_bytes -= pending.len_bytes();
            primary.flush = primary.flush.filter(|flush| *flush != version);
            let key = &pending.entry.key;
            let earlier = primary.pending.iter().rev().find(|(_, one)| one.entry.key == *key);
            match earlier.map(|(earlier, _)| *earlier) {
                Some(earlier) => primary.newest.insert(key.clone(), earlier),
                None => primary.newest.remove(key),
            };
            let (client, sequence) = pending.reply_to;
            state.sessions.take_back(client, sequence);
            actions.push(to_client(client, sequence, Outcome::TryAgain));
        }
    }
}

impl Primary {
    /// The last write of an open group.
    pub(super) fn last_held(&self) -> Option<Version> {
        self.group.as_ref()?.last().copied()
    }

    /// Whether this write is sent to a target together with the last one of its group (H2).
    pub(super) fn goes_along(&self, version: Version, to: crate::ids::NodeId) -> bool {
        let with = self.pending.get(&version).and_then(|pending| pending.goes_with);
        let last = with.and_then(|last| self.pending.get(&last));
        let mut targets = last.into_iter().flat_map(|last| &last.targets);
        targets.any(|(of, missing)| *of == to && !missing.is_empty())
    }
}
