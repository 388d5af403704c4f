//! Promotion: a backup becomes primary. All copies are made alike, then it serves (Rowan-KV §4.5,
//! phase 2).
//!
//! ```text
//!  new primary  ── Gather ──▶ each backup: digests all that landed, answers with what it does not
//!                             know to be on all copies
//!               ◀─ Gathered ─
//!               union: of each key the newest
//!               ── Scatter ──▶ each backup, and the own log
//!               ◀─ Scattered ─
//!               serves; everything below its epoch is on all copies
//! ```
//!
//! # Why the union
//! A write that was acknowledged to a client is on every full copy. One that was not may be on
//! some: its client does not know the outcome, so it may be kept or dropped, but by all copies
//! alike. An index that has it cannot take it back, so it is kept.
//!
//! # Invariants
//! P1: an entry that is in no answer of a Gather is on all copies: each leaves out only entries at
//!     or below its own CommitVer.
//! P2: no copy's CommitVer is raised before all copies have the union.
//! P3: while copies wait (C6) a promotion does not end: they may lack entries that the union would
//!     show.
//! P4: there is one union of a shard under a term: a copy takes it in once, and answers again if it
//!     has it. Unions that are repeated before the answers do not delay the answers.
//! P5: entries of a union are installed in the order of their versions: a copy that dies in the
//!     middle has no delete of a group without the value that precedes it (H4 of `group`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;

use crate::configuration::{Role, Shard};
use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Contents, Message, Peer};
use crate::node::durable::Held;
use crate::node::filling::Filling;
use crate::node::primary::{Asking, Primary, Stage};
use crate::node::{Action, Node, answers, durable, later, to_node};
use crate::record::Entry;
use crate::replica_store::{Installed, ReplicaStore};
use crate::settings::after;

/// Begins to gather.
pub(super) fn promote<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    shard: &Shard,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let missing: BTreeSet<NodeId> =
        shard.backups.iter().copied().chain([node.membership.id]).collect();
    let filling = Filling::of(shard);
    let withheld_since = node.shards.primary_mut(id).and_then(|primary| primary.withheld_since);
    let Some(state) = node.shards.get_mut(id) else { return };
    let stage = Stage::Gathering { missing, contents: Contents::default() };
    state.primary =
        Some(Primary { filling, withheld_since, ..Primary::new(stage, shard.epoch, now) });
    answers::begin_gathering(node, id, node.membership.id);
    ask(node, id, now, actions);
}

/// Handles a new configuration with the same primary: a promotion that had not ended starts again.
pub(super) fn follow_promotion<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    shard: &Shard,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    if node.shards.primary_mut(id).is_some_and(|primary| !primary.is_serving()) {
        promote(node, id, shard, now, actions);
    }
}

pub(super) fn go_on_promoting<S: ReplicaStore>(
    node: &mut Node<S>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let hold_ns = node.settings.hold_ns();
    let (mut late, mut withheld, mut over) = (Vec::new(), Vec::new(), Vec::new());
    for (id, primary) in node.shards.primaries_mut() {
        let is_over = match &primary.stage {
            Stage::Gathering { .. } => false,
            Stage::Scattering { missing, .. } => missing.is_empty(),
            Stage::Serving => continue,
        };
        if !primary.asking.is_over(now) {
            continue;
        }
        if !is_over {
            late.push(id);
            continue;
        }
        primary.asking.again(now, &node.settings, 0);
        over.push(id);
        if now >= after(*primary.withheld_since.get_or_insert(now), hold_ns) {
            withheld.push(id); // P3
        }
    }
    for id in over {
        scattered(node, node.membership.id, id); // Its backlog may be in the replica store now.
    }
    for shard in withheld {
        let term = node.term();
        node.membership.tell_managers(&Message::Withheld { term, shard }, actions);
    }
    for id in late {
        ask(node, id, now, actions);
        end_gathering(node, id, now, actions);
    }
}

/// Asks the copies whose answers are missing.
fn ask<S: ReplicaStore>(node: &mut Node<S>, id: ShardId, now: Instant, actions: &mut Vec<Action>) {
    let (term, own, settings) = (node.term(), node.membership.id, node.settings);
    let Some(primary) = node.shards.primary_mut(id) else { return };
    let (missing, message, len_bytes) = match &primary.stage {
        Stage::Gathering { missing, .. } => (missing, Message::Gather { term, shard: id }, 0),
        Stage::Scattering { missing, contents } => {
            let (contents, len_bytes) = (contents.clone(), contents.len_bytes());
            (missing, Message::Scatter { term, shard: id, contents }, len_bytes)
        }
        Stage::Serving => return,
    };
    let others = missing.iter().filter(|to| **to != own);
    actions.extend(others.map(|to| to_node(*to, message.clone())));
    primary.asking.again(now, &settings, len_bytes);
}

pub(super) fn gather<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    actions: &mut Vec<Action>,
) {
    if !is_backup_of(node, id, from) {
        return;
    }
    node.digest_all();
    later::digest_later(node, actions);
    answers::begin_gathering(node, id, from);
}

fn is_backup_of<S: ReplicaStore>(node: &Node<S>, id: ShardId, primary: NodeId) -> bool {
    let is_backup = node.shards.get(id).is_some_and(|state| state.role == Role::Backup);
    is_backup && node.membership.shard(id).is_some_and(|shard| shard.primary == primary)
}

pub(super) fn gathered<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    found: Contents,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(primary) = node.shards.primary_mut(id) else { return };
    let Stage::Gathering { missing, contents } = &mut primary.stage else { return };
    if missing.remove(&from) {
        contents.entries.extend(found.entries);
        contents.sessions.extend(found.sessions);
        end_gathering(node, id, now, actions);
    }
}

/// Once every copy has answered: takes the union, and scatters it.
fn end_gathering<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let own = node.membership.id;
    let Some(primary) = node.shards.primary_mut(id) else { return };
    let Stage::Gathering { missing, contents } = &mut primary.stage else { return };
    if !missing.is_empty() {
        return;
    }
    let mut gathered = std::mem::take(contents);
    gathered.entries.sort_unstable_by_key(|entry| entry.version); // P5
    if !receive(node, id, &gathered, actions) {
        if let Some(Primary { stage: Stage::Gathering { contents, .. }, .. }) =
            node.shards.primary_mut(id)
        {
            *contents = gathered; // Tried again when it is due.
        }
        return;
    }
    let newest: BTreeMap<Arc<[u8]>, Arc<Entry>> = gathered
        .entries
        .iter()
        .filter(|entry| !entry.is_flush)
        .filter_map(|entry| Some((entry.key.clone(), node.replica_store.get(id, &entry.key)?)))
        .collect();
    let flushes = gathered.entries.iter().filter(|entry| entry.is_flush);
    let flush = flushes.max_by_key(|entry| entry.version).cloned();
    let mut entries: Vec<_> = newest.into_values().chain(flush).collect();
    entries.sort_unstable_by_key(|entry| entry.version); // P5
    let Some(state) = node.shards.get_mut(id) else { return };
    let sessions = state.sessions.settled();
    let backups = node.membership.configuration.iter().filter_map(|all| all.shard(id));
    let backups = backups.flat_map(|shard| shard.backups.iter().copied());
    let missing = backups.chain([own]).collect();
    let contents = Contents { entries, sessions };
    let Some(primary) = state.primary.as_mut() else { return };
    primary.stage = Stage::Scattering { missing, contents };
    primary.stage_since = now;
    primary.asking = Asking::default();
    ask(node, id, now, actions);
    durable::when_durable(node, Held::Scattered { shard: id }, now, actions);
}

pub(super) fn scatter<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    contents: Contents,
    actions: &mut Vec<Action>,
) {
    if !is_backup_of(node, id, from) {
        return;
    }
    let term = node.term();
    let is_here = node.shards.get(id).is_some_and(|state| state.united == Some(term));
    if !is_here && !receive(node, id, &contents, actions) {
        return; // It is sent again.
    }
    if let Some(state) = node.shards.get_mut(id) {
        state.united = Some(term); // P4
    }
    let message = Message::Scattered { term, shard: id };
    let held = Held::Send { to: Peer::Node(from), message };
    durable::when_durable(node, held, Instant::default(), actions);
}

/// Adds data that another copy has sent to this copy. Entries that are on all copies are here
/// already, if this is a full copy, and must not come back where a delete of them is forgotten
/// (K2). Returns false if there is no room for all of it.
pub(super) fn receive<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    contents: &Contents,
    actions: &mut Vec<Action>,
) -> bool {
    node.durable.append_contents(id, contents, &mut node.replica_store, actions);
    node.answers.count_work(contents.entries.len());
    let has_all = node.shards.get(id).filter(|state| state.has_all());
    let known = has_all.map_or(Version::ZERO, |state| state.commit);
    for entry in contents.entries.iter().filter(|entry| entry.version > known) {
        if node.replica_store.install(entry.clone()) == Installed::NoRoom {
            return false;
        }
    }
    let Some(state) = node.shards.get_mut(id) else { return false };
    for (client, answer) in &contents.sessions {
        state.sessions.settle(*client, answer.clone());
    }
    true
}

/// Notes that one copy has the union; when all have it, the shard is served.
pub(super) fn scattered<S: ReplicaStore>(node: &mut Node<S>, from: NodeId, id: ShardId) {
    let shard = node.membership.shard(id);
    let is_withheld = shard.is_some_and(|shard| !shard.waiting.is_empty()); // P3
    node.backlog.store(&mut node.replica_store);
    let has_backlog = node.backlog.of(id).next().is_some(); // W1
    let Some(state) = node.shards.get_mut(id) else { return };
    let Some(primary) = state.primary.as_mut() else { return };
    let Stage::Scattering { missing, .. } = &mut primary.stage else { return };
    missing.remove(&from);
    if missing.is_empty() && !is_withheld && !has_backlog {
        primary.stage = Stage::Serving;
        primary.last = Version::before_epoch(state.epoch).max(primary.last);
        state.commit = primary.last; // P2
        state.tell_commit(id, &mut node.replica_store);
    }
}
