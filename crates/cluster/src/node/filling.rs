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
use crate::ids::{NodeId, ShardId, Version};
use crate::message::{Contents, Message, Operation, Outcome, Request};
use crate::node::durable::Held;
use crate::node::requests::answer;
use crate::node::{Action, Node, to_node};
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

impl<S: ReplicaStore> Node<S> {
    /// Begins a filling from the beginning, whatever an earlier one has brought.
    pub(super) fn begin_filling(&self, shard: &Shard) -> Option<Filling> {
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
    pub(super) fn follow_filling(&mut self, id: ShardId, shard: &Shard, actions: &mut Vec<Action>) {
        let begun = self.begin_filling(shard);
        let Some(primary) = self.primary_mut(id) else { return };
        match (&mut primary.filling, begun) {
            (Some(old), Some(new)) if old.source == new.source => old.asked_at = None,
            // Its source is gone and another copy takes its place; or everything is here.
            (filling, begun) => {
                let old = std::mem::replace(filling, begun).into_iter();
                let requests = old.flat_map(Filling::into_requests);
                requests.for_each(|request| answer(&request, Outcome::TryAgain, actions));
            }
        }
    }

    /// Whether the answer may be at the source only (M2).
    pub(super) fn must_look_at_source(&self, id: ShardId, request: &Request) -> bool {
        let primary = self.shards.get(&id).and_then(|state| state.primary.as_ref());
        let Some(primary) = primary.filter(|primary| primary.filling.is_some()) else {
            return false;
        };
        // An earlier request waits for the source: no later one of that key may overtake it (K10).
        let fetches = primary.filling.iter().map(|filling| &filling.fetches);
        if fetches.into_iter().any(|fetches| fetches.contains_key(&request.key)) {
            return true;
        }
        let is_blind = request.operation.is_blind();
        // A value under way is no answer for a read, which waits for the newest write.
        let is_read = request.operation == Operation::Get;
        let is_pending = primary.newest.contains_key(&request.key) && !is_read;
        !is_blind && !is_pending && self.replica_store.get(id, &request.key).is_none()
    }

    pub(super) fn look_at_source(
        &mut self,
        id: ShardId,
        request: Request,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let term = self.term();
        let Some(primary) = self.primary_mut(id) else { return };
        let Some(filling) = primary.filling.as_mut() else { return };
        let key = request.key.clone();
        let fetch = filling.fetches.entry(key.clone()).or_insert_with(|| {
            actions.push(to_node(filling.source, Message::Fetch { term, shard: id, key }));
            Fetch { asked_at: now, requests: Vec::new() }
        });
        fetch.requests.push(request);
    }

    /// Answers a Fetch, at the source.
    pub(super) fn fetch(
        &mut self,
        from: NodeId,
        id: ShardId,
        key: Arc<[u8]>,
        actions: &mut Vec<Action>,
    ) {
        if self.is_source(id, from) {
            let entry = self.replica_store.get(id, &key);
            let message = Message::Fetched { term: self.term(), shard: id, key, entry };
            actions.push(to_node(from, message));
        }
    }

    fn is_source(&self, id: ShardId, target: NodeId) -> bool {
        self.shard(id)
            .is_some_and(|shard| shard.primary == target && shard.filling_from == Some(self.id))
    }

    pub(super) fn fetched(
        &mut self,
        from: NodeId,
        id: ShardId,
        key: &[u8],
        entry: Option<Arc<Entry>>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(state) = self.shards.get_mut(&id) else { return };
        let epoch = state.epoch;
        let filling = state.primary.as_mut().and_then(|primary| primary.filling.as_mut());
        let Some(filling) = filling.filter(|filling| filling.source == from) else { return };
        let Some(fetch) = filling.fetches.remove(key) else { return };
        let is_own = entry.as_ref().is_some_and(|entry| entry.version.epoch() >= epoch);
        let mut is_here = true;
        if let Some(entry) = entry.filter(|_| !is_own) {
            let contents = Contents { entries: vec![entry], sessions: Vec::new() };
            is_here = self.receive(id, &contents, actions); // M1
        }
        for request in fetch.requests {
            if !is_here {
                answer(&request, Outcome::TryAgain, actions);
            } else if is_own && self.must_look_at_source(id, &request) {
                // The target's own write, not yet on all copies, hides the earlier entry.
                answer(&request, Outcome::TryAgain, actions);
            } else if self.may_serve(now) {
                self.execute(id, request, Looked::AtSource, now, actions);
            } else {
                answer(&request, Outcome::TryAgain, actions);
            }
        }
    }

    pub(super) fn go_on_filling(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let (term, retry_ns) = (self.term(), 4 * self.settings.retry_ns);
        let mut done = Vec::new();
        for (id, state) in &mut self.shards {
            let Some(primary) = state.primary.as_mut().filter(|primary| primary.is_serving())
            else {
                continue;
            };
            let Some(filling) = &mut primary.filling else { continue };
            for (key, fetch) in &mut filling.fetches {
                if now >= after(fetch.asked_at, retry_ns) {
                    fetch.asked_at = now;
                    let message = Message::Fetch { term, shard: *id, key: key.clone() };
                    actions.push(to_node(filling.source, message));
                }
            }
            filling.hidden.retain(|version| primary.pending.contains_key(version));
            if filling.is_done {
                let is_over = filling.hidden.is_empty() && primary.flush.is_none(); // M3, F3
                done.extend(is_over.then_some(*id));
            } else if filling.asked_at.is_none_or(|asked_at| now >= after(asked_at, retry_ns)) {
                filling.asked_at = Some(now);
                filling.moved_at.get_or_insert(now);
                actions.push(filling.pull(*id, term));
            }
        }
        for id in done {
            self.tell_managers(&Message::Filled { term, shard: id }, actions);
        }
    }

    /// Answers a Pull, at the source.
    pub(super) fn pull(&mut self, from: NodeId, id: ShardId, part: u64, cursor: u64) {
        if !self.is_source(id, from) {
            return;
        }
        self.answers.pull(id, from, part, cursor);
    }

    /// Takes in a part from the source.
    pub(super) fn filled_part(
        &mut self,
        id: ShardId,
        part: u64,
        mut contents: Contents,
        next: Option<u64>,
        actions: &mut Vec<Action>,
    ) {
        let term = self.term();
        let Some(state) = self.shards.get_mut(&id) else { return };
        let epoch = state.epoch;
        let filling = state.primary.as_mut().and_then(|primary| primary.filling.as_mut());
        let Some(filling) = filling.filter(|filling| filling.part == part && !filling.is_done)
        else {
            return;
        };
        let source = filling.source;
        let (old, own): (Vec<_>, Vec<_>) =
            contents.entries.into_iter().partition(|entry| entry.version.epoch() < epoch);
        contents.entries = old; // M1
        filling.hidden.extend(own.iter().map(|entry| entry.version));
        if !self.receive(id, &contents, actions) {
            return; // It is asked for again.
        }
        let Some(filling) = self.primary_mut(id).and_then(|primary| primary.filling.as_mut())
        else {
            return;
        };
        match next {
            Some(cursor) => {
                filling.part += 1;
                filling.moved_at = None;
                filling.copied += contents.entries.len() as u64;
                filling.cursor = cursor;
                let pull = filling.pull(id, term);
                actions.push(pull);
            }
            None => {
                let held = Held::Filled { shard: id, source, part };
                self.when_durable(held, Instant::default(), actions);
            }
        }
    }

    /// Notes that the last part, and all before it, is on the medium.
    pub(super) fn filled(&mut self, id: ShardId, source: NodeId, part: u64) {
        let filling = self.primary_mut(id).and_then(|primary| primary.filling.as_mut());
        if let Some(filling) = filling.filter(|it| it.source == source && it.part == part) {
            filling.is_done = true;
        }
    }
}

impl Filling {
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

    fn pull(&self, shard: ShardId, term: crate::ids::Term) -> Action {
        let message = Message::Pull { term, shard, part: self.part, cursor: self.cursor };
        to_node(self.source, message)
    }
}
