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
//! W2: while there is a backlog no worker takes any entry in ([`Node::has_backlog`]), so it stays
//!     small.

use std::sync::Arc;

use crate::ids::ShardId;
use crate::node::Node;
use crate::record::Entry;
use crate::replica_store::{Installed, ReplicaStore};

/// The backlog of all shards.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    entries: Vec<Arc<Entry>>,
    /// Whether the entries being digested now have already been acknowledged.
    pub(super) is_taking: bool,
}

impl Backlog {
    pub(super) fn of(&self, shard: ShardId) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.shard == shard)
    }

    pub(super) fn forget(&mut self, shard: ShardId) {
        self.entries.retain(|entry| entry.shard != shard);
    }
}

impl<S: ReplicaStore> Node<S> {
    /// Whether it has acknowledged entries that it has no room for: workers should take nothing in
    /// (W2).
    pub fn has_backlog(&self) -> bool {
        !self.backlog.entries.is_empty()
    }

    /// Handles an entry for which the replica store has no room. Returns whether the entry counts
    /// all the same.
    pub(super) fn has_no_room(&mut self, shard: ShardId, entry: Option<Arc<Entry>>) -> bool {
        self.crowded.insert(shard);
        let kept = entry.filter(|_| self.backlog.is_taking);
        let counts = kept.is_some();
        self.backlog.entries.extend(kept);
        counts
    }

    /// Moves the backlog to the replica store: at each tick, and before steps that need all entries
    /// there.
    pub(super) fn store_backlog(&mut self) {
        if !self.has_backlog() {
            return;
        }
        let replica_store = &mut self.replica_store;
        self.backlog
            .entries
            .retain(|entry| replica_store.install(entry.clone()) == Installed::NoRoom);
    }
}
