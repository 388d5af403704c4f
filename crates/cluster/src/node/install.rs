//! Installation of a new configuration: fence the old term, change roles, answer (Rowan-KV §4.5,
//! phase 1).
//!
//! | before ╲ now | primary | backup | joining | nothing |
//! |---|---|---|---|---|
//! | nothing | promote | begin | begin, empty | - |
//! | primary, same epoch | new targets | - | - | forget |
//! | primary, other epoch | demote, promote | demote | demote, empty | forget |
//! | backup | promote | stay | empty | forget |
//! | joining, same epoch | promote | stay | stay | forget |
//! | joining, other epoch | promote | stay | empty | forget |

use std::sync::Arc;

use base::Instant;

use crate::configuration::{Configuration, Role, Shard};
use crate::ids::{ShardId, Version};
use crate::message::Message;
use crate::node::copy::CopyOut;
use crate::node::filling::Filling;
use crate::node::shards::ShardState;
use crate::node::{Action, Node, later, pending, promotion};
use crate::record::{Kind, append_mark};
use crate::replica_store::ReplicaStore;

pub(super) fn install<S: ReplicaStore>(
    node: &mut Node<S>,
    new: Arc<Configuration>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let term = new.term;
    if term > node.term() {
        node.digest_all(); // N3
        later::digest_later(node, actions);
        node.logs.begin();
        node.sending.begin();
        node.answers.clear();
        node.overdue.retain(&new);
        let old = node.membership.install(new.clone());
        for (id, shard) in new.shards() {
            let before = old.as_ref().and_then(|old| old.shard(id));
            change_role(node, id, before, shard, now, actions);
        }
    }
    if term == node.term() {
        node.membership.tell_managers(&Message::Installed { term }, actions);
    }
}

fn change_role<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    before: Option<&Shard>,
    shard: &Shard,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let had = node.shards.get(id).map(|state| (state.role, state.epoch));
    let same_epoch = had.is_some_and(|(_, epoch)| epoch == shard.epoch);
    match shard.role_of(node.membership.id) {
        // A shard that waits for this server, or its earlier incarnation, needs the data that
        // is here.
        None if shard.needs(node.membership.id.name) => rest(node, id, now, actions),
        None => forget(node, id, had.is_some(), actions),
        Some(Role::Joining) => {
            if had != Some((Role::Joining, shard.epoch)) {
                forget(node, id, true, actions);
                node.shards.insert(id, ShardState::new(Role::Joining, shard.epoch));
            }
        }
        Some(Role::Backup) => {
            demote(node, id, now, actions);
            if !same_epoch {
                // Incomplete entries of an earlier epoch: the primary of that epoch sends no
                // more of them.
                node.assembly.forget(id, Version::before_epoch(shard.epoch));
            }
            node.shards.begin_role(id, Role::Backup, shard.epoch);
        }
        Some(Role::Primary) if same_epoch && had.is_some_and(|had| had.0 == Role::Primary) => {
            pending::retarget(node, id, before, now, actions);
            if let Some(primary) = node.shards.primary_mut(id) {
                CopyOut::follow(&mut primary.copy, before, shard);
            }
            promotion::follow_promotion(node, id, shard, now, actions);
            if let Some(primary) = node.shards.primary_mut(id) {
                Filling::follow(&mut primary.filling, shard, actions);
            }
        }
        Some(Role::Primary) => {
            demote(node, id, now, actions);
            if had.is_none() && shard.filling_from.is_some() {
                mark_beginning(node, id, actions); // It begins empty, as one that joins does.
            }
            node.shards.begin_role(id, Role::Primary, shard.epoch);
            node.assembly.forget(id, Version::before_epoch(shard.epoch));
            promotion::promote(node, id, shard, now, actions);
        }
    }
}

/// Keeps all data of a shard in which the node has no role for now.
fn rest<S: ReplicaStore>(node: &mut Node<S>, id: ShardId, now: Instant, actions: &mut Vec<Action>) {
    demote(node, id, now, actions);
    if let Some(state) = node.shards.get_mut(id) {
        state.role = Role::Backup;
    }
}

/// Ends the role of primary, if the node has it.
fn demote<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    if let Some(state) = node.shards.get_mut(id) {
        state.demote(&mut node.replica_store, now, actions);
    }
}

/// Drops all data of a shard; the log records it, so that a recovery does not bring the data back.
fn forget<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    has_data: bool,
    actions: &mut Vec<Action>,
) {
    demote(node, id, Instant::default(), actions);
    node.backlog.forget(id);
    if let Some(mut state) = node.shards.remove(id) {
        state.in_doubt.give_up(actions);
    }
    node.replica_store.clear(id);
    node.assembly.forget(id, Version::before_epoch(u16::MAX));
    if has_data {
        mark_beginning(node, id, actions);
    }
}

/// Marks a beginning: later entries of the shard do not depend on earlier ones in the log.
fn mark_beginning<S: ReplicaStore>(node: &mut Node<S>, id: ShardId, actions: &mut Vec<Action>) {
    if node.durable.is_replica_store() {
        return node.durable.count_change();
    }
    let mut bytes = Vec::new();
    // The mark names its incarnation: an incarnation listed earlier has more data than what
    // follows.
    let incarnation =
        Version::from_bits(node.membership.id.incarnation.into()).unwrap_or(Version::ZERO);
    append_mark(Kind::Reset, id, incarnation, &mut bytes);
    node.durable.append(&bytes, actions);
}
