//! Entries that this node has acknowledged, and its replica store had no room for: under the scheme
//! `rpc` a worker acknowledges before the entry is in the replica store.
//!
//! ```text
//!  worker: appended, acknowledged ─▶ digest: no room ─▶ owed ─ each tick ─▶ replica store
//!                                                        └ Gather: among what is not committed
//! ```
//!
//! # Invariants
//! W1: what is owed is part of this copy: it is in the answer to a Gather whatever CommitVer says,
//!     and this node serves the shard only once it is in the replica store.
//! W2: while anything is owed no worker takes anything in ([`Node::owes`]), so it stays little.

use std::sync::Arc;

use crate::ids::ShardId;
use crate::node::Node;
use crate::record::Entry;
use crate::replica_store::{Installed, ReplicaStore};

/// Of all shards.
#[derive(Debug, Default)]
pub(super) struct Owed {
    entries: Vec<Arc<Entry>>,
    /// Whether what is digested now has been acknowledged.
    pub(super) is_taking: bool,
}

impl Owed {
    pub(super) fn of(&self, shard: ShardId) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.shard == shard)
    }

    pub(super) fn forget(&mut self, shard: ShardId) {
        self.entries.retain(|entry| entry.shard != shard);
    }
}

impl<S: ReplicaStore> Node<S> {
    /// Whether it has acknowledged what it has no room for: workers should take nothing in (W2).
    pub fn owes(&self) -> bool {
        !self.owed.entries.is_empty()
    }

    /// The replica store has no room for an entry; whether it counts all the same.
    pub(super) fn has_no_room(&mut self, shard: ShardId, entry: Option<Arc<Entry>>) -> bool {
        self.crowded.insert(shard);
        let owed = entry.filter(|_| self.owed.is_taking);
        let counts = owed.is_some();
        self.owed.entries.extend(owed);
        counts
    }

    /// At each tick, and before all must be here.
    pub(super) fn pay_owed(&mut self) {
        if !self.owes() {
            return;
        }
        let replica_store = &mut self.replica_store;
        self.owed.entries.retain(|entry| replica_store.install(entry.clone()) == Installed::NoRoom);
    }
}
