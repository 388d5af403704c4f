//! Entries that this node has acknowledged, and its shelf had no room for: under the scheme `rpc` a
//! worker acknowledges before the entry is on the shelf.
//!
//! ```text
//!  worker: appended, acknowledged ─▶ digest: no room ─▶ owed ─ each tick ─▶ shelf
//!                                                        └ Gather: among what is not committed
//! ```
//!
//! # Invariants
//! W1: what is owed is part of this copy: it is in the answer to a Gather whatever CommitVer says,
//!     and this node serves the shard only once it is on the shelf.
//! W2: while anything is owed no worker takes anything in ([`Node::owes`]), so it stays little.

use std::sync::Arc;

use crate::ids::ShardId;
use crate::node::Node;
use crate::record::Entry;
use crate::shelf::{Installed, Shelf};

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

impl<S: Shelf> Node<S> {
    /// Whether it has acknowledged what it has no room for: workers should take nothing in (W2).
    pub fn owes(&self) -> bool {
        !self.owed.entries.is_empty()
    }

    /// The shelf has no room for an entry; whether it counts all the same.
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
        let shelf = &mut self.shelf;
        self.owed.entries.retain(|entry| shelf.install(entry.clone()) == Installed::NoRoom);
    }
}
