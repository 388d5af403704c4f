//! The filling of a migrated shard: the target serves at once, and is filled from the source
//! (Rowan-KV §4.6).
//!
//! ```text
//!  client ── GET k ──▶ target: in the replica store? ── yes ──▶ answered
//!                        │ no
//!                        ├── Fetch k ──▶ source        a key that a client waits for
//!                        └── Pull part ─▶ source       all others, part by part
//!  client ── PUT k ──▶ target: as any primary; source and backups are its backups
//! ```
//!
//! The source stays a full backup until the target has everything, so an ordinary failover rolls an
//! interrupted migration back and loses nothing (decision 0054).
//!
//! # Invariants
//! M1: entries from the source are of an earlier epoch, and never replace the target's own writes.
//! M2: the target answers "not there" only after the source has said so.
//! M3: the filling does not end while a write under way hides at the source the entry that it
//!     replaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Instant;

use crate::configuration::Shard;
use crate::ids::{NodeId, ShardId, Term, Version};
use crate::message::{Contents, Message, Operation, Outcome, Request};
use crate::node::durable::Held;
use crate::node::requests::answer;
use crate::node::{Action, Node, durable, promotion, requests, to_node};
use crate::record::Entry;
use crate::replica_store::ReplicaStore;
use crate::settings::after;

/// Whether a key that is not in the replica store was requested from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    Here,
    AtSource,
}

/// The progress of the filling.
#[derive(Debug)]
pub(super) struct Filling {
    source: NodeId,
    /// The cursor, at the source, of the missing part.
    cursor: u64,
    part: u64,
    asked_at: Option<Instant>,
    /// When a part last came; none while none is requested.
    moved_at: Option<Instant>,
    is_done: bool,
    /// The number of entries that have come from the source.
    pub(super) copied: u64,
    /// The target's own writes that the source had before they were on all copies. The entries that
    /// they replaced there, which would have to be shown until then, are not here (M3).
    hidden: BTreeSet<Version>,
    fetches: BTreeMap<Arc<[u8]>, Fetch>,
}

#[derive(Debug)]
struct Fetch {
    asked_at: Instant,
    requests: Vec<Request>,
}

/// Makes a request wait for its key from the source.
pub(super) fn look_at_source<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    request: Request,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let term = node.term();
    let primary = node.shards.primary_mut(id);
    if let Some(filling) = primary.and_then(|primary| primary.filling.as_mut()) {
        filling.fetch(request, (id, term), now, actions);
    }
}

/// Answers a Fetch, at the source.
pub(super) fn fetch<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    key: Arc<[u8]>,
    actions: &mut Vec<Action>,
) {
    if node.membership.is_source(id, from) {
        let entry = node.replica_store.get(id, &key);
        let message = Message::Fetched { term: node.term(), shard: id, key, entry };
        actions.push(to_node(from, message));
    }
}

pub(super) fn fetched<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    key: &[u8],
    entry: Option<Arc<Entry>>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let Some(state) = node.shards.get_mut(id) else { return };
    let epoch = state.epoch;
    let filling = state.primary.as_mut().and_then(|primary| primary.filling.as_mut());
    let Some(filling) = filling.filter(|filling| filling.source == from) else { return };
    let Some(fetch) = filling.fetches.remove(key) else { return };
    let is_own = entry.as_ref().is_some_and(|entry| entry.version.epoch() >= epoch);
    let mut is_here = true;
    if let Some(entry) = entry.filter(|_| !is_own) {
        let contents = Contents { entries: vec![entry], sessions: Vec::new() };
        is_here = promotion::receive(node, id, &contents, actions); // M1
    }
    for request in fetch.requests {
        if !is_here {
            answer(&request, Outcome::TryAgain, actions);
        } else if is_own && must_look_at_source(node, id, &request) {
            // The target's own write, not yet on all copies, hides the earlier entry.
            answer(&request, Outcome::TryAgain, actions);
        } else if node.membership.may_serve(now) {
            requests::execute(node, id, request, Looked::AtSource, now, actions);
        } else {
            answer(&request, Outcome::TryAgain, actions);
        }
    }
}

pub(super) fn go_on_filling<S: ReplicaStore>(
    node: &mut Node<S>,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    let (term, retry_ns) = (node.term(), 4 * node.settings.retry_ns);
    let mut done = Vec::new();
    for (id, _, primary) in node.shards.serving_mut() {
        let Some(filling) = &mut primary.filling else { continue };
        filling.hidden.retain(|version| primary.pending.contains_key(version));
        filling.go_on((id, term), retry_ns, now, actions);
        let is_over = filling.is_done && filling.hidden.is_empty() && primary.flush.is_none();
        done.extend(is_over.then_some(id)); // M3, F3
    }
    for id in done {
        node.membership.tell_managers(&Message::Filled { term, shard: id }, actions);
    }
}

/// Answers a Pull, at the source.
pub(super) fn pull<S: ReplicaStore>(
    node: &mut Node<S>,
    from: NodeId,
    id: ShardId,
    part: u64,
    cursor: u64,
) {
    if node.membership.is_source(id, from) {
        node.answers.pull(id, from, part, cursor);
    }
}

/// Takes in a part from the source.
pub(super) fn filled_part<S: ReplicaStore>(
    node: &mut Node<S>,
    id: ShardId,
    part: u64,
    mut contents: Contents,
    next: Option<u64>,
    actions: &mut Vec<Action>,
) {
    let term = node.term();
    let Some(state) = node.shards.get_mut(id) else { return };
    let epoch = state.epoch;
    let filling = state.primary.as_mut().and_then(|primary| primary.filling.as_mut());
    let Some(filling) = filling.filter(|filling| filling.part == part && !filling.is_done) else {
        return;
    };
    let source = filling.source;
    let (old, own): (Vec<_>, Vec<_>) =
        contents.entries.into_iter().partition(|entry| entry.version.epoch() < epoch);
    contents.entries = old; // M1
    filling.hidden.extend(own.iter().map(|entry| entry.version));
    if !promotion::receive(node, id, &contents, actions) {
        return; // It is asked for again.
    }
    let Some(filling) = node.shards.primary_mut(id).and_then(|primary| primary.filling.as_mut())
    else {
        return;
    };
    match next {
        Some(cursor) => {
            filling.next_part(cursor, contents.entries.len());
            actions.push(filling.pull(id, term));
        }
        None => {
            let held = Held::Filled { shard: id, source, part };
            durable::when_durable(node, held, Instant::default(), actions);
        }
    }
}

/// Notes that the last part, and all before it, is on the medium.
pub(super) fn filled<S: ReplicaStore>(node: &mut Node<S>, id: ShardId, source: NodeId, part: u64) {
    let filling = node.shards.primary_mut(id).and_then(|primary| primary.filling.as_mut());
    if let Some(filling) = filling.filter(|it| it.source == source && it.part == part) {
        filling.is_done = true;
    }
}

/// Whether the answer may be at the source only (M2).
pub(super) fn must_look_at_source<S: ReplicaStore>(
    node: &Node<S>,
    id: ShardId,
    request: &Request,
) -> bool {
    let Some(primary) = node.shards.primary(id) else { return false };
    let Some(filling) = &primary.filling else { return false };
    // An earlier request waits for the source: no later one of that key may overtake it (K10).
    if filling.fetches.contains_key(&request.key) {
        return true;
    }
    let is_blind = request.operation.is_blind();
    // A value under way is no answer for a read, which waits for the newest write.
    let is_read = request.operation == Operation::Get;
    let is_pending = primary.newest.contains_key(&request.key) && !is_read;
    !is_blind && !is_pending && node.replica_store.get(id, &request.key).is_none()
}

impl Filling {
    /// Begins a filling from the beginning, whatever an earlier one has brought.
    pub(super) fn of(shard: &Shard) -> Option<Filling> {
        let source = shard.filling_from?;
        Some(Filling {
            source,
            cursor: 0,
            part: 0,
            asked_at: None,
            moved_at: None,
            is_done: false,
            copied: 0,
            hidden: BTreeSet::new(),
            fetches: BTreeMap::new(),
        })
    }

    /// Handles a new configuration with the same primary.
    pub(super) fn follow(filling: &mut Option<Filling>, shard: &Shard, actions: &mut Vec<Action>) {
        match (filling, Filling::of(shard)) {
            (Some(old), Some(new)) if old.source == new.source => old.asked_at = None,
            // Its source is gone and another copy takes its place; or everything is here.
            (filling, begun) => {
                let old = std::mem::replace(filling, begun).into_iter();
                let requests = old.flat_map(Filling::into_requests);
                requests.for_each(|request| answer(&request, Outcome::TryAgain, actions));
            }
        }
    }

    /// Asks the source for the key of a request, if no earlier request has.
    fn fetch(
        &mut self,
        request: Request,
        (shard, term): (ShardId, Term),
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let key = request.key.clone();
        let fetch = self.fetches.entry(key.clone()).or_insert_with(|| {
            actions.push(to_node(self.source, Message::Fetch { term, shard, key }));
            Fetch { asked_at: now, requests: Vec::new() }
        });
        fetch.requests.push(request);
    }

    /// Asks again for keys and for the part that have not come in time.
    fn go_on(
        &mut self,
        (shard, term): (ShardId, Term),
        retry_ns: u64,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        for (key, fetch) in &mut self.fetches {
            if now >= after(fetch.asked_at, retry_ns) {
                fetch.asked_at = now;
                let message = Message::Fetch { term, shard, key: key.clone() };
                actions.push(to_node(self.source, message));
            }
        }
        let is_due = self.asked_at.is_none_or(|asked_at| now >= after(asked_at, retry_ns));
        if !self.is_done && is_due {
            self.asked_at = Some(now);
            self.moved_at.get_or_insert(now);
            actions.push(self.pull(shard, term));
        }
    }

    /// Notes that a part has come, and where the next one begins.
    fn next_part(&mut self, cursor: u64, entry_count: usize) {
        self.part += 1;
        self.moved_at = None;
        self.copied += entry_count as u64;
        self.cursor = cursor;
    }

    /// The source, if a part has been requested in vain for `patience_ns`.
    pub(super) fn overdue(&self, now: Instant, patience_ns: u64) -> Option<NodeId> {
        let is_late =
            !self.is_done && self.moved_at.is_some_and(|at| now >= after(at, patience_ns));
        is_late.then_some(self.source)
    }

    /// The requests that wait for a key from the source.
    pub(super) fn into_requests(self) -> impl Iterator<Item = Request> {
        self.fetches.into_values().flat_map(|fetch| fetch.requests)
    }

    fn pull(&self, shard: ShardId, term: Term) -> Action {
        let message = Message::Pull { term, shard, part: self.part, cursor: self.cursor };
        to_node(self.source, message)
    }
}
