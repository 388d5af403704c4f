//! Entries that the replica store installs later, on threads of its own: the thread that takes them
//! in only checks them and hands them over.
//!
//! ```text
//!  digest.rs: checked ─▶ take_in ─▶ Later                       not acknowledged yet
//!  replica store:                              installed ─▶ Digested
//!  here:                                              └▶ acknowledged, or once that is durable
//! ```
//!
//! # Invariants
//! E1: an entry is acknowledged, and its client's session settled, only once the replica store
//!     reports that it has it. An entry without room is reported as crowded, and its sender tries
//!     again.
//! E2: before another term is installed, and before this copy lists its entries, all such installs
//!     are finished (N3, P1). So a finished install is of the present term, and of a shard of which
//!     this node is not the primary.

use crate::ids::Version;
use crate::node::{Action, Node, digest};
use crate::record::BlockId;
use crate::replica_store::{Done, Landed, ReplicaStore};

/// Waits for all deferred installs (E2).
pub(super) fn digest_later<S: ReplicaStore>(node: &mut Node<S>, actions: &mut Vec<Action>) {
    node.replica_store.finish();
    digested(node, actions);
}

/// Takes in the finished installs of the replica store (E1).
pub(super) fn digested<S: ReplicaStore>(node: &mut Node<S>, actions: &mut Vec<Action>) {
    let mut done = std::mem::take(&mut node.done);
    let mut blocks = std::mem::take(&mut node.installed);
    node.replica_store.take_done(&mut done);
    for of_lane in done.chunk_by(|one, next| one.landed.lane == next.landed.lane) {
        blocks.extend(of_lane.iter().filter_map(|one| count_done(node, one)));
        digest::acknowledge_installed(node, of_lane[0].landed.lane, &blocks, actions);
        blocks.clear();
    }
    done.clear();
    (node.done, node.installed) = (done, blocks); // Their memory.
}

/// The block, if it is to be acknowledged.
fn count_done<S: ReplicaStore>(node: &mut Node<S>, done: &Done) -> Option<BlockId> {
    let Done { landed: Landed { block, .. }, entry, is_there } = done;
    if !is_there {
        node.backlog.note_crowded(block.shard);
        return None;
    }
    if let Some(entry) = entry {
        entry_taken(node, (block.shard, entry.version), entry);
    }
    Some(*block)
}

/// Notes that an entry which came in several blocks, or whose client has a session, is in the
/// replica store.
pub(super) fn entry_taken<S: ReplicaStore>(
    node: &mut Node<S>,
    (shard, version): (crate::ids::ShardId, Version),
    entry: &crate::record::Entry,
) {
    node.assembly.taken(shard, version);
    if let Some(state) = node.shards.get_mut(shard) {
        state.sessions.settle_entry(entry);
    }
}
