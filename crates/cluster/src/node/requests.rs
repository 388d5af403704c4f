//! Clients' requests: a read is answered from the replica store, a write becomes pending.

use std::sync::Arc;

use base::Instant;

use crate::configuration::Role;
use crate::ids::{ClientId, ShardId, Version};
use crate::message::{Answer, Changed, Compute, Hold, Message, Operation, Outcome, Peer, Request};
use crate::node::durable::Held;
use crate::node::filling::Looked;
use crate::node::primary::{Pending, Primary};
use crate::node::sessions::Seen;
use crate::node::{Action, Node, durable, filling, group, pending};
use crate::record::{Answered, Cut, Entry, parse_integer};
use crate::replica_store::ReplicaStore;

/// The most bytes of writes of one shard that wait for acknowledgements: a promotion gathers them
/// in one message.
const PENDING_MAX_BYTES: usize = 32 << 20;

/// The result of an operation on a key.
struct Computed {
    changed: Changed,
    answered: Answered,
    outcome: Outcome,
    hold: Hold,
}

impl Computed {
    fn value(value: Arc<[u8]>, answered: Answered, outcome: Outcome) -> Computed {
        let changed = Changed::Value { value, client_flags: 0, expires_at: None };
        Computed { changed, answered, outcome, hold: Hold::default() }
    }
}

pub(super) fn request<S: ReplicaStore>(
    node: &mut Node<S>,
    request: Request,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let place = node.membership.configuration.as_ref().map(|all| (all.shard_of(&request.key), all));
    let Some((shard, configuration)) = place else {
        return answer(&request, Outcome::Elsewhere(None), actions);
    };
    let state = node.shards.get(shard).filter(|state| state.role == Role::Primary);
    let Some(state) = state else {
        let elsewhere = Outcome::Elsewhere(Some(configuration.clone()));
        return answer(&request, elsewhere, actions);
    };
    let is_ready = state.primary.as_ref().is_some_and(Primary::is_serving);
    if !is_ready || !node.membership.may_serve(now) {
        return answer(&request, Outcome::TryAgain, actions);
    }
    execute(node, shard, request, Looked::Here, now, actions);
}

pub(super) fn execute<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    request: Request,
    looked: Looked,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let pending_max = node.settings.pending_max;
    if let Some(primary) = node.shards.primary_mut(shard)
        && let Some(flush) = primary.flush_before(&request)
    {
        return primary.wait_for_flush(flush, request, pending_max, actions);
    }
    if looked == Looked::Here && filling::must_look_at_source(node, shard, &request) {
        return filling::look_at_source(node, shard, request, now, actions);
    }
    if request.operation == Operation::Get {
        let entry = node.replica_store.get(shard, &request.key);
        let value = Outcome::Value(entry.and_then(|entry| entry.value.clone()));
        let to = (request.client, request.sequence);
        if node.durable.replica_store_lags() {
            return durable::when_durable(node, Held::Reply { to, outcome: value }, now, actions);
        }
        return reply(node, to.0, to.1, value, now, actions);
    }
    if !request.operation.is_read()
        && let Some(outcome) = refusal(node, shard, &request)
    {
        if let Some(outcome) = outcome {
            reply(node, request.client, request.sequence, outcome, now, actions);
        }
        return;
    }
    write(node, shard, request, now, actions);
}

/// The reason why a write is not executed: with an answer, or without one because an answer is on
/// its way or no client waits for it.
fn refusal<S: ReplicaStore>(
    node: &Node<S>,
    shard: ShardId,
    request: &Request,
) -> Option<Option<Outcome>> {
    let state = node.shards.get(shard)?;
    match state.sessions.look_up(request.client, request.sequence) {
        _ if request.client.is_anonymous() => {}
        Seen::Never => {}
        Seen::Answered(outcome) => return Some(Some(outcome)),
        Seen::Pending | Seen::Overtaken => return Some(None),
    }
    if !node.has_copies(shard) {
        return Some(Some(Outcome::TooFewCopies)); // K23
    }
    let primary = state.primary.as_ref()?;
    let is_full = primary.pending.len() + primary.waiting_count >= node.settings.pending_max
        || primary.pending_bytes >= PENDING_MAX_BYTES;
    is_full.then_some(Some(Outcome::TryAgain))
}

fn write<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    request: Request,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(primary) = node.shards.primary(shard) else {
        return;
    };
    let newest = primary.newest.get(&request.key).copied();
    if let Some(newest) = newest.filter(|newest| primary.has_waiting(*newest, &request.key)) {
        return node.shards.wait(shard, newest, request); // In the order in which they came (K10).
    }
    let reads = !request.operation.is_blind() || primary.loose.is_open;
    let held = primary.last_held();
    let after = held.or(newest.filter(|_| reads));
    let current = match newest.and_then(|version| primary.pending.get(&version)) {
        _ if !reads => None,
        Some(pending) => Some(pending.entry.clone()),
        None => node.replica_store.get(shard, &request.key),
    };
    let Some(version) = primary.last.next() else {
        return answer(&request, Outcome::TryAgain, actions);
    };
    let computed = compute(&request.operation, current.as_deref(), version);
    drop(current); // What it has may be long, and is not needed beside what it shall have.
    let Computed { changed, answered, outcome, hold } = computed;
    let (value, client_flags, expires_at) = match changed {
        Changed::Value { value, client_flags, expires_at } => {
            (Some(value), client_flags, expires_at)
        }
        Changed::Deleted => (None, 0, None),
        Changed::NoRoom => return answer(&request, Outcome::TryAgain, actions),
        // A read of a write under way waits for that write; in a group, every read does.
        Changed::Nothing => match newest.filter(|_| reads && primary.group.is_none()) {
            Some(after) => return node.shards.wait(shard, after, request),
            None => return reply(node, request.client, request.sequence, outcome, now, actions),
        },
    };
    let (client, sequence) = author_of(&request);
    let entry = Arc::new(Entry {
        shard,
        version,
        client,
        sequence,
        answered,
        key: request.key.clone(),
        value,
        is_flush: request.operation == Operation::Flush,
        client_flags,
        expires_at,
    });
    let blocks = entry.cut(node.settings.datagram_bytes, &mut node.scratch);
    if let Some(after) = after
        && (held.is_some() || !primary.loose.is_open)
        && !fits_with_chain(primary, after, &blocks, node.settings.datagram_bytes)
    {
        if held.is_none() {
            return node.shards.wait(shard, after, request);
        }
        drop((entry, blocks, hold)); // Their room is needed again.
        group::loosen_group(node, shard, now, actions);
        return write(node, shard, request, now, actions);
    }
    let answered = Answer { sequence, version, outcome: outcome.clone() };
    let reply_to = (request.client, request.sequence);
    let pending = Pending::new(entry, blocks, outcome, reply_to, now);
    let pending = Pending { after, _hold: hold, ..pending };
    begin(node, shard, Box::new(pending), answered, now, actions);
}

/// Begins a pending write: in the node's own log and on its way to every target.
fn begin<S: ReplicaStore>(
    node: &mut Node<S>,
    shard: ShardId,
    mut pending: Box<Pending>,
    answered: Answer,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let version = pending.entry.version;
    let all = pending.all_missing(now);
    if let Some(shard) = node.membership.shard(shard) {
        pending.targets.reserve_exact(shard.targets().count());
        pending.targets.extend(shard.targets().map(|target| (target, all.clone())));
    }
    let mut bytes = Vec::new();
    let datagram_bytes = node.settings.datagram_bytes;
    let is_held = node.shards.primary_mut(shard).is_some_and(|primary| {
        primary.group.is_some() || primary.begins_behind(&pending, datagram_bytes)
    });
    pending.is_held = is_held;
    if node.durable.takes_entries() && !is_held {
        pending.entry.append(&mut bytes);
    }
    node.durable.append(&bytes, actions);
    let Some(state) = node.shards.get_mut(shard) else { return };
    let Some(primary) = state.primary.as_mut() else { return };
    debug_assert!(version > primary.last, "N4");
    primary.last = version;
    if let Some(base) = pending.after.and_then(|base| primary.pending.get_mut(&base)) {
        base.is_base = true;
    }
    primary.newest.insert(pending.entry.key.clone(), version);
    if pending.entry.is_flush {
        primary.flush = Some(version);
    }
    if !pending.entry.client.is_anonymous() {
        state.sessions.begin(pending.entry.client, answered);
    }
    primary.pending_bytes += pending.len_bytes();
    match &mut primary.group {
        Some(group) => group.push(version),
        None => primary.loose.begin(&pending),
    }
    primary.pending.insert(version, pending);
    if is_held {
        return;
    }
    pending::land_at_all(node, shard, version, now, actions);
    pending::when_written(node, shard, version, now, actions);
}

/// Answers a client, unless the lease has ended meanwhile (N1).
pub(super) fn reply<S: ReplicaStore>(
    node: &Node<S>,
    client: ClientId,
    sequence: u64,
    outcome: Outcome,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let outcome = if node.membership.may_serve(now) { outcome } else { Outcome::Unknown };
    actions.push(to_client(client, sequence, outcome));
}

/// Sends an answer that promises nothing about the data.
pub(super) fn answer(request: &Request, outcome: Outcome, actions: &mut Vec<Action>) {
    actions.push(to_client(request.client, request.sequence, outcome));
}

pub(super) fn to_client(client: ClientId, sequence: u64, outcome: Outcome) -> Action {
    Action::Send { to: Peer::Client(client), message: Message::Reply { sequence, outcome } }
}

/// The client and sequence number recorded in an entry.
fn author_of(request: &Request) -> (ClientId, u64) {
    match request.client.is_anonymous() {
        true => (ClientId::NONE, 0),
        false => (request.client, request.sequence),
    }
}

fn compute(operation: &Operation, current: Option<&Entry>, version: Version) -> Computed {
    let value = current.and_then(|entry| entry.value.as_deref());
    let done = |changed, outcome| {
        let (answered, hold) = (Answered::Done, Hold::default());
        Computed { changed, answered, outcome, hold }
    };
    match operation {
        Operation::Get => {
            let value = value.map(Arc::from);
            done(Changed::Nothing, Outcome::Value(value))
        }
        Operation::Put(value) => Computed::value(value.clone(), Answered::Done, Outcome::Done),
        Operation::Delete => Computed {
            changed: Changed::Deleted,
            answered: Answered::Deleted(value.is_some()),
            outcome: Outcome::Deleted(value.is_some()),
            hold: Hold::default(),
        },
        Operation::Flush => done(Changed::Deleted, Outcome::Done),
        Operation::Increment(by) => {
            let number = value.map_or(Some(0), parse_integer);
            let Some(sum) = number.and_then(|number| number.checked_add(*by)) else {
                return done(Changed::Nothing, Outcome::NotAnInteger);
            };
            let text = sum.to_string().into_bytes().into();
            Computed::value(text, Answered::Integer, Outcome::Integer(sum))
        }
        Operation::Compute(Compute(change)) => {
            let computed = done(change.compute(current, version), Outcome::Computed);
            Computed { hold: change.hold(), ..computed }
        }
    }
}

/// Whether one datagram holds this block, if it is the only one, and all writes that it was
/// computed on (N5).
pub(super) fn fits_with_chain(
    primary: &Primary,
    after: Version,
    blocks: &Cut,
    datagram_bytes: usize,
) -> bool {
    let Cut::Whole(own) = blocks else { return false };
    let mut chain = primary.chain(Some(after));
    let total = chain.try_fold(own.len(), |bytes, one| match &one.blocks {
        Cut::Whole(block) => bytes.checked_add(block.len()),
        Cut::Blocks { .. } => None,
    });
    total.is_some_and(|bytes| bytes <= datagram_bytes)
}
