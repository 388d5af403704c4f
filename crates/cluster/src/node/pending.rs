//! Writes under way: landed at every target, sent again, acknowledged, completed.
//!
//! ```text
//!  begun ─▶ landed ─▶ acknowledged by all ─▶ in the replica store ─▶ answered
//!             ▲ │                                      └ before the writes computed on it (N5)
//!             └─┘ late: sent again (`sending`), or given up (`overdue`)
//! ```

use std::sync::Arc;

use base::Instant;

use crate::configuration::{Role, Shard};
use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Message, Outcome, Request};
use crate::node::durable::Held;
use crate::node::filling::Filling;
use crate::node::group::ToInstall;
use crate::node::primary::{Pending, Primary};
use crate::node::requests::{answer, to_client};
use crate::node::shards::ShardState;
use crate::node::{Action, Node, durable, group, requests};
use crate::record::{BlockId, Entry};
use crate::replica_store::{Installed, ReplicaStore};
use crate::settings::after;

/// Sends the missing blocks of one write, from the first block, to every target that misses any.
pub(super) fn land_at_all<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    version: Version,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let term = node.term();
    if let Some(primary) = node.shards.primary_mut(shard) {
        node.sending.land_at_all(primary, (term, version), now, actions);
    }
}

/// Sends again the blocks that were not acknowledged in time.
pub(super) fn resend<S: ReplicaStore>(node: &mut Node<S>, now: Instant, actions: &mut Vec<Action>) {
    let (retry_ns, patience_ns) = (node.settings.retry_ns, 2 * node.settings.patience_ns());
    let mut late = Vec::new();
    for (shard, primary) in node.shards.primaries() {
        let is_late = |one: &Pending| now >= after(one.landed_at, one.patience_ns(retry_ns));
        let of_shard = primary.pending.iter().filter(|(_, one)| is_late(one));
        late.extend(of_shard.map(|(version, _)| (shard, *version)));
    }
    for (shard, version) in late {
        if let Some(primary) = node.shards.primary_mut(shard)
            && let Some(pending) = primary.pending.get_mut(&version)
        {
            pending.retry_count = pending.retry_count.saturating_add(1);
        }
        land_at_all(node, shard, version, now, actions);
        complete(node, shard, version, now, actions);
        if let Some(primary) = node.shards.primary_mut(shard) {
            primary.give_up(version, now, patience_ns, actions);
        }
    }
}

/// Takes in which blocks a target has.
pub(super) fn acked<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    blocks: &[BlockId],
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let term = node.term();
    if node.membership.has(from) {
        node.overdue.acked(from, now);
    }
    for block in blocks {
        let Some(primary) = node.shards.primary_mut(block.shard) else { continue };
        if node.sending.acked(primary, (from, block), (term, now), actions) {
            complete(node, block.shard, block.version, now, actions);
        }
    }
}

/// Completes a write once the node's own log has it. Where the replica store is the log, the write
/// is installed there when all targets have it: that may be so already, if no node has to have it.
pub(super) fn when_written<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    version: Version,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    if node.durable.is_replica_store() {
        return complete(node, shard, version, now, actions);
    }
    durable::when_durable(node, Held::Written { shard, version }, now, actions);
}

/// Notes that the node's own log has a write.
pub(super) fn written<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    version: Version,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(primary) = node.shards.primary_mut(shard) else { return };
    if let Some(pending) = primary.pending.get_mut(&version) {
        pending.is_written = true;
        complete(node, shard, version, now, actions);
    }
}

/// If a write is on all targets (N2), makes it visible and answers it; then does the same for the
/// writes that were computed on it. The writes of a group become visible together (H5 of `group`).
pub(super) fn complete<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    version: Version,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    match group::to_install(node, shard, version) {
        None => complete_one(node, shard, version, now, actions),
        Some(ToInstall::Later) => {}
        Some(ToInstall::Now(writes)) => {
            let (versions, entries): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
            install(node, shard, (&versions, &entries), now, actions);
            if !node.durable.is_replica_store() {
                versions.iter().for_each(|one| complete_one(node, shard, *one, now, actions));
            }
        }
    }
}

fn complete_one<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    version: Version,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let has_copies = node.has_copies(shard);
    let Some(state) = node.shards.get_mut(shard) else { return };
    let Some(primary) = state.primary.as_mut() else { return };
    let Some(pending) = primary.pending.get(&version) else { return };
    let has_base = pending.after.is_some_and(|base| primary.pending.contains_key(&base));
    let is_first = primary.pending.first_key_value().is_some_and(|(first, _)| *first == version);
    let is_early = pending.entry.is_flush && !is_first; // F1
    let must_wait = has_base || is_early || pending.is_held;
    if !pending.is_everywhere() || must_wait || !has_copies {
        return;
    }
    if !pending.is_written {
        return write_to_replica_store(node, shard, version, now, actions);
    }
    let Some(pending) = primary.pending.remove(&version) else { return };
    primary.pending_bytes -= pending.len_bytes();
    primary.flush = primary.flush.filter(|flush| *flush != version);
    primary.loose.end(version);
    if let Some(newest) = primary.newest.remove(&pending.entry.key).filter(|it| *it > version) {
        primary.newest.insert(pending.entry.key.clone(), newest);
    }
    let before = state.commit;
    state.commit = before.max(primary.commit());
    let has_grown = state.commit > before;
    state.sessions.settle_entry(&pending.entry);
    let later = pending.is_base.then(|| primary.pending.range(version..));
    let next: Vec<Version> = later
        .into_iter()
        .flatten()
        .filter(|(_, later)| later.after == Some(version))
        .map(|(later, _)| *later)
        .collect();
    let waiting = primary.take_waiting(version);
    let (client, sequence) = pending.reply_to;
    if !pending.is_installed {
        node.replica_store.install(pending.entry);
    }
    if has_grown {
        state.tell_commit(shard, &mut node.replica_store);
    }
    if !pending.is_given_up {
        requests::reply(node, client, sequence, pending.outcome, now, actions);
    }
    next.into_iter().for_each(|later| complete(node, shard, later, now, actions));
    group::send_behind(node, shard, now, actions);
    request_in_turn(node, waiting, now, actions);
    let flush = node.shards.primary(shard).and_then(|primary| primary.flush);
    if let Some(flush) = flush {
        complete(node, shard, flush, now, actions); // It may have waited for this write alone (F1).
    }
}

/// Executes waiting requests in their order. If one must be retried, so must those behind it (K10).
fn request_in_turn<S: ReplicaStore>(
    node: &mut Node<S>,
    waiting: Vec<Request>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let mut is_put_off = false;
    for request in waiting {
        if is_put_off {
            answer(&request, Outcome::TryAgain, actions);
            continue;
        }
        let before = actions.len();
        requests::request(node, request, now, actions);
        is_put_off = actions[before..].iter().any(|action| {
            let Action::Send { message: Message::Reply { outcome, .. }, .. } = action else {
                return false;
            };
            *outcome == Outcome::TryAgain
        });
    }
}

/// Installs a write that all targets have in the replica store, if that is the log. The write is
/// answered, and counts as being on all copies, once it is on the medium here too.
fn write_to_replica_store<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    version: Version,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let is_replica_store = node.durable.is_replica_store();
    let Some(primary) = node.shards.primary_mut(shard) else { return };
    let Some(pending) = primary.pending.get_mut(&version) else { return };
    if !is_replica_store || pending.is_installed {
        return;
    }
    let entry = pending.entry.clone();
    install(node, shard, (&[version], &[entry]), now, actions);
}

/// Installs writes together. Where the replica store is the log, each is completed once it is on
/// the medium; without room for all, they are tried again with the next tick that finds them late.
fn install<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    (versions, entries): (&[Version], &[Arc<Entry>]),
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let installed = match entries {
        [one] => node.replica_store.install(one.clone()),
        several => node.replica_store.install_all(several),
    };
    let Some(primary) = node.shards.primary_mut(shard) else { return };
    let is_log = node.durable.is_replica_store();
    if is_log && installed == Installed::NoRoom {
        primary.crowded_at = Some(now);
        return;
    }
    for version in versions {
        if let Some(pending) = primary.pending.get_mut(version) {
            pending.is_installed = true;
        }
    }
    for version in versions.iter().filter(|_| is_log) {
        node.durable.count_change();
        durable::when_durable(node, Held::Written { shard, version: *version }, now, actions);
    }
}

/// Gives the writes under way new targets, and sends them what they miss.
pub(super) fn retarget<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    before: Option<&Shard>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(after) = node.membership.shard(shard) else { return };
    let Some(primary) = node.shards.primary_mut(shard) else { return };
    primary.retarget(before, after, now);
    let versions: Vec<Version> = primary.pending.keys().copied().collect();
    for version in versions {
        land_at_all(node, shard, version, now, actions);
        complete(node, shard, version, now, actions);
    }
}

impl Primary {
    /// Gives the writes under way new targets. Acknowledgements of a target that keeps its role
    /// still count.
    fn retarget(&mut self, before: Option<&Shard>, after: &Shard, now: Instant) {
        self.told = (Version::ZERO, now); // Not to all of the new ones.
        let stays = |node: NodeId| match before.and_then(|shard| shard.role_of(node)) {
            Some(Role::Joining) => true,
            Some(Role::Backup) => after.role_of(node) == Some(Role::Backup),
            _ => false,
        };
        for pending in self.pending.values_mut() {
            let all = pending.all_missing(now);
            let before = std::mem::take(&mut pending.targets);
            let missing_at = |node: NodeId| {
                let known = before.iter().find(|(of, _)| *of == node && stays(node));
                (node, known.map_or_else(|| all.clone(), |(_, missing)| missing.clone()))
            };
            pending.targets = after.targets().map(missing_at).collect();
        }
    }
}

impl ShardState {
    /// Ends the role of primary: writes under way may take effect, and their clients learn the
    /// outcome later (`in_doubt`). Waiting requests were not executed.
    pub(super) fn demote(
        &mut self,
        replica_store: &mut impl ReplicaStore,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(primary) = self.primary.take() else { return };
        for pending in primary.pending.into_values() {
            let (client, sequence) = pending.reply_to;
            if pending.is_held {
                actions.push(to_client(client, sequence, Outcome::Unknown));
                continue; // H3
            }
            self.sessions.settle_entry(&pending.entry);
            let version = pending.entry.version;
            let is_kept =
                pending.is_installed || replica_store.install(pending.entry) != Installed::NoRoom;
            match is_kept {
                _ if pending.is_given_up => {}
                true => self.in_doubt.put(version, (client, sequence), pending.outcome, now),
                false => actions.push(to_client(client, sequence, Outcome::Unknown)),
            }
        }
        let fetching = primary.filling.into_iter().flat_map(Filling::into_requests);
        let waiting = primary.waiting.into_values().flatten().chain(fetching);
        waiting.for_each(|request| answer(&request, Outcome::TryAgain, actions));
    }
}
