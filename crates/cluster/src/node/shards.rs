//! The shards that the node has data of, and its state of each.
//!
//! # Invariants
//! R1: a shard has a primary's state exactly while this node is its primary. It begins with the
//!     promotion, and ends when another epoch is installed.

use std::collections::BTreeMap;

use base::Instant;

use crate::configuration::Role;
use crate::ids::{NodeId, ShardId, Term, Version};
use crate::message::Request;
use crate::node::in_doubt::InDoubt;
use crate::node::primary::Primary;
use crate::node::sessions::Sessions;
use crate::node::{Action, Stage};
use crate::replica_store::ReplicaStore;
use crate::settings::after;

/// All shards that the node has data of.
#[derive(Debug, Default)]
pub(super) struct Shards {
    states: BTreeMap<ShardId, ShardState>,
}

/// A node's state of one shard that it has a role in.
#[derive(Debug)]
pub(super) struct ShardState {
    pub(super) role: Role,
    pub(super) epoch: u16,
    /// All versions up to here are on all copies (`CommitVerArray` of Rowan-KV §4.4).
    pub(super) commit: Version,
    pub(super) sessions: Sessions,
    /// The primary's state, while the role is primary.
    pub(super) primary: Option<Primary>,
    /// Writes that were under way when the node ceased to be primary.
    pub(super) in_doubt: InDoubt,
    /// The term under which this copy took in a new primary's Scatter.
    pub(super) united: Option<Term>,
}

impl ShardState {
    pub(super) fn new(role: Role, epoch: u16) -> ShardState {
        let sessions = Sessions::default();
        ShardState {
            role,
            epoch,
            commit: Version::ZERO,
            sessions,
            primary: None,
            in_doubt: InDoubt::default(),
            united: None,
        }
    }

    /// Whether this copy has everything that is on all copies.
    pub(super) fn has_all(&self) -> bool {
        match self.role {
            Role::Joining => false,
            Role::Backup => true,
            Role::Primary => self.primary.as_ref().is_some_and(|primary| primary.filling.is_none()),
        }
    }

    /// Tells the replica store that CommitVer of this shard may have grown, so that it keeps less.
    ///
    /// Deletes are forgotten once no older entry can arrive. A frame or a gathered entry at or
    /// below CommitVer is dropped. But a node that is joining the shard receives entries that are
    /// older than CommitVer by their nature.
    pub(super) fn tell_commit(&self, shard: ShardId, replica_store: &mut impl ReplicaStore) {
        replica_store.commit(shard, self.commit);
        if self.has_all() {
            replica_store.forget_deletes(shard, self.commit);
        }
    }

    /// Whether work is under way that depends on time.
    fn is_busy(&self) -> bool {
        let is_moving = |primary: &Primary| {
            !primary.is_serving()
                || primary.filling.is_some()
                || primary.copy.is_some()
                || !primary.pending.is_empty()
        };
        !self.in_doubt.is_empty() || self.primary.as_ref().is_some_and(is_moving)
    }
}

impl Shards {
    pub(super) fn get(&self, shard: ShardId) -> Option<&ShardState> {
        self.states.get(&shard)
    }

    pub(super) fn get_mut(&mut self, shard: ShardId) -> Option<&mut ShardState> {
        self.states.get_mut(&shard)
    }

    /// The primary's state of a shard of which the node is primary.
    pub(super) fn primary(&self, shard: ShardId) -> Option<&Primary> {
        self.states.get(&shard)?.primary.as_ref()
    }

    pub(super) fn primary_mut(&mut self, shard: ShardId) -> Option<&mut Primary> {
        self.states.get_mut(&shard)?.primary.as_mut()
    }

    /// All shards that the node is primary of.
    pub(super) fn primaries(&self) -> impl Iterator<Item = (ShardId, &Primary)> {
        self.states.iter().filter_map(|(shard, state)| Some((*shard, state.primary.as_ref()?)))
    }

    pub(super) fn primaries_mut(&mut self) -> impl Iterator<Item = (ShardId, &mut Primary)> {
        self.states.iter_mut().filter_map(|(shard, state)| Some((*shard, state.primary.as_mut()?)))
    }

    /// All shards that the node is primary of and serves, with their CommitVer.
    pub(super) fn serving_mut(&mut self) -> impl Iterator<Item = (ShardId, Version, &mut Primary)> {
        let served = self
            .states
            .iter_mut()
            .filter_map(|(shard, state)| Some((*shard, state.commit, state.primary.as_mut()?)));
        served.filter(|(_, _, primary)| primary.is_serving())
    }

    /// The state of a shard, and a new one in this role and epoch if there is none.
    pub(super) fn get_or_begin(
        &mut self,
        shard: ShardId,
        role: Role,
        epoch: u16,
    ) -> &mut ShardState {
        self.states.entry(shard).or_insert_with(|| ShardState::new(role, epoch))
    }

    /// Gives a shard this role and epoch, whatever data of it is here.
    pub(super) fn begin_role(&mut self, shard: ShardId, role: Role, epoch: u16) {
        let state = self.get_or_begin(shard, role, epoch);
        state.role = role;
        state.epoch = epoch;
    }

    pub(super) fn insert(&mut self, shard: ShardId, state: ShardState) {
        self.states.insert(shard, state);
    }

    pub(super) fn remove(&mut self, shard: ShardId) -> Option<ShardState> {
        self.states.remove(&shard)
    }

    /// The version up to which everything in a shard is on all copies, as far as the node knows.
    pub(super) fn commit_version(&self, shard: ShardId) -> Option<Version> {
        self.states.get(&shard).map(|state| state.commit)
    }

    /// The highest version of a shard that the node has assigned or knows to be on all copies.
    pub(super) fn version(&self, shard: ShardId) -> Option<Version> {
        let state = self.states.get(&shard)?;
        Some(state.primary.as_ref().map_or(state.commit, |primary| primary.last.max(state.commit)))
    }

    /// The stage of a shard of which the node is primary, whatever its lease says.
    pub(super) fn stage(&self, shard: ShardId) -> Option<Stage> {
        let primary = self.primary(shard)?;
        Some(match primary.is_serving() {
            false => Stage::Promoting,
            true if primary.filling.is_some() => Stage::Filling,
            true => Stage::Serving,
        })
    }

    /// Whether work is under way in any shard that depends on time.
    pub(super) fn are_busy(&self) -> bool {
        self.states.values().any(ShardState::is_busy)
    }

    /// Whether any writes are in doubt.
    pub(super) fn have_doubts(&self) -> bool {
        self.states.values().any(|state| !state.in_doubt.is_empty())
    }

    /// Bytes of writes under way that targets have not acknowledged, added by target.
    pub(super) fn add_lags(&self, lags: &mut BTreeMap<NodeId, u64>) {
        let pending = self.primaries().flat_map(|(_, primary)| primary.pending.values());
        for pending in pending {
            let bytes = pending.len_bytes();
            for (to, missing) in &pending.targets {
                if !missing.is_empty() {
                    *lags.entry(*to).or_insert(0) += bytes as u64;
                }
            }
        }
    }

    /// Makes a request wait until a write under way is on all copies; then it is executed anew.
    pub(super) fn wait(&mut self, shard: ShardId, after: Version, request: Request) {
        if let Some(primary) = self.primary_mut(shard) {
            primary.wait(after, request);
        }
    }

    /// Answers writes in doubt whose outcome is known, and those that have waited for
    /// `patience_ns`.
    pub(super) fn settle_in_doubt(
        &mut self,
        now: Instant,
        patience_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        for state in self.states.values_mut().filter(|state| !state.in_doubt.is_empty()) {
            state.in_doubt.leave(state.commit, |since| now >= after(since, patience_ns), actions);
        }
    }
}
