//! Lookups on the node's replica store for other nodes, or for its own promotion, in bounded steps.
//!
//! ```text
//!  Gather ──┐                               ┌─▶ Gathered
//!  promote ─┼─▶ asked, by shard and node ───┼─▶ the own part of the union
//!  Pull ────┘    a step between two inputs  └─▶ Copy
//! ```
//!
//! # Invariants
//! B1: a question that is repeated before its answer has left adds no work.
//! B2: a step reads [`STEP_ENTRIES`] entries or one part of a copy. So a replica store that has to
//!     search for an answer delays nothing else: leases never wait for data (K28).
//! B3: an answer holds the backlog as of its beginning, and all entries above CommitVer that the
//!     replica store had then: slices go by versions, and an entry that is replaced meanwhile comes
//!     in a later slice.

use std::collections::BTreeMap;

use base::Instant;

use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Contents, Message};
use crate::node::backlog::Backlog;
use crate::node::{Action, Node, promotion, to_node};
use crate::replica_store::{Part, ReplicaStore};

/// Entries that one step reads; a part of a copy counts as this many.
pub(super) const STEP_ENTRIES: usize = 1_024;
/// A driver takes no more messages in a turn once they have made this much [work](Node::take_work):
/// the last of them is handled whole, and one step is added.
pub const TURN_WORK: usize = 2_048;

/// Unanswered questions, by shard and by the node that asks.
#[derive(Debug, Default)]
pub(super) struct Answers {
    gathers: BTreeMap<(ShardId, NodeId), Gathering>,
    /// For each Pull, the part and its cursor.
    pulls: BTreeMap<(ShardId, NodeId), (u64, u64)>,
    /// Entries read or assembled in this turn (see [`Node::take_work`]).
    work: usize,
}

/// An answer under way: the entries found so far, and the version above which the others are.
#[derive(Debug)]
struct Gathering {
    contents: Contents,
    floor: Version,
}

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.gathers.is_empty() && self.pulls.is_empty()
    }

    /// Drops all questions: those of the last configuration are asked again if they are still
    /// wanted.
    pub(super) fn clear(&mut self) {
        self.gathers.clear();
        self.pulls.clear();
    }

    /// Adds to the work of this turn.
    pub(super) fn count_work(&mut self, entry_count: usize) {
        self.work += entry_count;
    }

    pub(super) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }

    /// Begins to look up for a node the entries of a shard above `floor` (P1), beside those in the
    /// backlog (W1).
    pub(super) fn gather(
        &mut self,
        (shard, to): (ShardId, NodeId),
        floor: Version,
        backlog: &Backlog,
    ) {
        self.gathers.entry((shard, to)).or_insert_with(|| {
            let entries = backlog.of(shard).cloned().collect();
            Gathering { contents: Contents { entries, sessions: Vec::new() }, floor }
        });
    }

    pub(super) fn pull(&mut self, shard: ShardId, to: NodeId, part: u64, cursor: u64) {
        self.pulls.insert((shard, to), (part, cursor));
    }
}

/// Begins to look up for a node the entries that this copy does not know to be on all copies (P1).
pub(super) fn begin_gathering<S: ReplicaStore>(node: &mut Node<S>, shard: ShardId, to: NodeId) {
    let floor = node.shards.commit_version(shard).unwrap_or(Version::ZERO);
    node.answers.gather((shard, to), floor, &node.backlog);
}

/// Takes one bounded step (B2).
pub(super) fn step<S: ReplicaStore>(node: &mut Node<S>, now: Instant, actions: &mut Vec<Action>) {
    let mut left = STEP_ENTRIES;
    let asked: Vec<_> = node.answers.gathers.keys().copied().collect();
    for (shard, to) in asked {
        if left == 0 {
            return;
        }
        left = left.saturating_sub(look_up(node, shard, to, left, now, actions));
    }
    if left > 0
        && let Some(((shard, to), (part, cursor))) = node.answers.pulls.pop_first()
    {
        let entry_max = node.settings.copy_part_entries;
        let Part { entries, next } = node.replica_store.part(shard, cursor, entry_max);
        node.answers.work += STEP_ENTRIES;
        let contents = Contents { entries, sessions: Vec::new() };
        let term = node.term();
        actions.push(to_node(to, Message::Copy { term, shard, part, contents, next }));
    }
}

/// Looks up one slice of an answer, which is sent with its last slice. Returns the number of
/// entries read.
fn look_up<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    to: NodeId,
    entry_max: usize,
    now: Instant,
    actions: &mut Vec<Action>,
) -> usize {
    let commit = node.shards.commit_version(shard).unwrap_or(Version::ZERO);
    let Some(gathering) = node.answers.gathers.get_mut(&(shard, to)) else { return 0 };
    // The replica store has forgotten which entries lie below: they are on all copies by now.
    gathering.floor = gathering.floor.max(commit);
    let Some(above) = node.replica_store.above(shard, gathering.floor, entry_max) else {
        return 0;
    };
    let count = above.entries.len().max(1);
    node.answers.work += count;
    gathering.contents.entries.extend(above.entries);
    if let Some(next) = above.next {
        gathering.floor = next;
        return count;
    }
    let Some(Gathering { mut contents, .. }) = node.answers.gathers.remove(&(shard, to)) else {
        return count;
    };
    if let Some(state) = node.shards.get(shard) {
        contents.sessions = state.sessions.settled();
    }
    if to == node.membership.id {
        promotion::gathered(node, to, shard, contents, now, actions);
    } else {
        actions.push(to_node(to, Message::Gathered { term: node.term(), shard, contents }));
    }
    count
}
