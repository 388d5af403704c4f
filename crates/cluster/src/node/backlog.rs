//! The backlog: entries that this node has acknowledged and its replica store had no room for.
//! Under the scheme `rpc` a worker acknowledges before the entry is in the replica store.
//!
//! ```text
//!  worker: appended, acknowledged ─▶ digest: no room ─▶ backlog ─ each tick ─▶ replica store
//!                                                        └ Gather: among what is not committed
//! ```
//!
//! # Invariants
//! W1: the backlog is part of this copy: it is in the answer to a Gather whatever CommitVer says,
//!     and this node serves the shard only once the backlog is in the replica store.
//! W2: while there is a backlog no worker takes any entry in ([`has_backlog`]), so it stays small.
//!
//! [`has_backlog`]: crate::Node::has_backlog

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::ShardId;
use crate::message::{Lane, Message};
use crate::node::{Action, to_node};
use crate::record::{Entry, Plain};
use crate::replica_store::{Installed, Landed, ReplicaStore};

/// The backlog of all shards, and the shards without room.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    entries: Vec<Arc<Entry>>,
    /// Whether the entries being digested now have already been acknowledged.
    pub(super) is_taking: bool,
    /// Shards for which something has landed that there is no room for, since they were last
    /// reported.
    crowded: BTreeSet<ShardId>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn of(&self, shard: ShardId) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.shard == shard)
    }

    pub(super) fn forget(&mut self, shard: ShardId) {
        self.entries.retain(|entry| entry.shard != shard);
    }

    /// Gives an entry to the replica store. One that has been acknowledged already is installed at
    /// once; if there is no room for it, it goes to the backlog (W1).
    pub(super) fn take_in(
        &self,
        landed: Landed,
        plain: &Plain<'_>,
        replica_store: &mut impl ReplicaStore,
    ) -> Installed {
        match self.is_taking {
            true => replica_store.install_plain(plain),
            false => replica_store.take_in(landed, plain),
        }
    }

    /// The same for an entry that came in several blocks.
    pub(super) fn take_in_entry(
        &self,
        landed: Landed,
        entry: &Arc<Entry>,
        replica_store: &mut impl ReplicaStore,
    ) -> Installed {
        match self.is_taking {
            true => replica_store.install(entry.clone()),
            false => replica_store.take_in_entry(landed, entry),
        }
    }

    /// Handles an entry for which the replica store has no room. Returns whether the entry counts
    /// all the same.
    pub(super) fn has_no_room(&mut self, shard: ShardId, entry: Option<Arc<Entry>>) -> bool {
        self.note_crowded(shard);
        let kept = entry.filter(|_| self.is_taking);
        let counts = kept.is_some();
        self.entries.extend(kept);
        counts
    }

    /// Notes that something has landed for a shard that there is no room for.
    pub(super) fn note_crowded(&mut self, shard: ShardId) {
        self.crowded.insert(shard);
    }

    /// Reports crowded shards to the sender of what landed, after a digest.
    pub(super) fn tell_crowded(&mut self, lane: Lane, actions: &mut Vec<Action>) {
        for shard in std::mem::take(&mut self.crowded) {
            actions.push(to_node(lane.from, Message::Crowded { term: lane.term, shard }));
        }
    }

    /// Moves the backlog to the replica store: at each tick, and before steps that need all entries
    /// there.
    pub(super) fn store(&mut self, replica_store: &mut impl ReplicaStore) {
        self.entries.retain(|entry| replica_store.install(entry.clone()) == Installed::NoRoom);
    }
}
