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
use crate::node::primary::{Asking, Primary, Stage};
use crate::node::{Action, Node, to_node};
use crate::record::Entry;
use crate::replica_store::{Installed, ReplicaStore};
use crate::settings::after;

impl<S: ReplicaStore> Node<S> {
    /// Begins to gather.
    pub(super) fn promote(
        &mut self,
        id: ShardId,
        shard: &Shard,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let missing: BTreeSet<NodeId> = shard.backups.iter().copied().chain([self.id]).collect();
        let filling = self.begin_filling(shard);
        let withheld_since = self.primary_mut(id).and_then(|primary| primary.withheld_since);
        let Some(state) = self.shards.get_mut(&id) else { return };
        let stage = Stage::Gathering { missing, contents: Contents::default() };
        state.primary =
            Some(Primary { filling, withheld_since, ..Primary::new(stage, shard.epoch, now) });
        self.begin_gathering(id, self.id);
        self.ask(id, now, actions);
    }

    /// Handles a new configuration with the same primary: a promotion that had not ended starts
    /// again.
    pub(super) fn follow_promotion(
        &mut self,
        id: ShardId,
        shard: &Shard,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        if self.primary_mut(id).is_some_and(|primary| !primary.is_serving()) {
            self.promote(id, shard, now, actions);
        }
    }

    pub(super) fn go_on_promoting(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let hold_ns = self.settings.hold_ns();
        let (mut late, mut withheld, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for (id, state) in &mut self.shards {
            let Some(primary) = &mut state.primary else { continue };
            let is_over = match &primary.stage {
                Stage::Gathering { .. } => false,
                Stage::Scattering { missing, .. } => missing.is_empty(),
                Stage::Serving => continue,
            };
            if !primary.asking.is_over(now) {
                continue;
            }
            if !is_over {
                late.push(*id);
                continue;
            }
            primary.asking.again(now, &self.settings, 0);
            over.push(*id);
            if now >= after(*primary.withheld_since.get_or_insert(now), hold_ns) {
                withheld.push(*id); // P3
            }
        }
        for id in over {
            self.scattered(self.id, id); // Its backlog may be in the replica store now.
        }
        for shard in withheld {
            let term = self.term();
            self.tell_managers(&Message::Withheld { term, shard }, actions);
        }
        for id in late {
            self.ask(id, now, actions);
            self.end_gathering(id, now, actions);
        }
    }

    /// Asks the copies whose answers are missing.
    fn ask(&mut self, id: ShardId, now: Instant, actions: &mut Vec<Action>) {
        let (term, own, settings) = (self.term(), self.id, self.settings);
        let Some(primary) = self.primary_mut(id) else { return };
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

    pub(super) fn gather(&mut self, from: NodeId, id: ShardId, actions: &mut Vec<Action>) {
        if !self.is_backup_of(id, from) {
            return;
        }
        self.digest_all();
        self.digest_later(actions);
        self.begin_gathering(id, from);
    }

    fn is_backup_of(&self, id: ShardId, primary: NodeId) -> bool {
        let is_backup = self.shards.get(&id).is_some_and(|state| state.role == Role::Backup);
        is_backup && self.shard(id).is_some_and(|shard| shard.primary == primary)
    }

    pub(super) fn gathered(
        &mut self,
        from: NodeId,
        id: ShardId,
        found: Contents,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        let Some(primary) = self.primary_mut(id) else { return };
        let Stage::Gathering { missing, contents } = &mut primary.stage else { return };
        if missing.remove(&from) {
            contents.entries.extend(found.entries);
            contents.sessions.extend(found.sessions);
            self.end_gathering(id, now, actions);
        }
    }

    /// Once every copy has answered: takes the union, and scatters it.
    fn end_gathering(&mut self, id: ShardId, now: Instant, actions: &mut Vec<Action>) {
        let own = self.id;
        let Some(primary) = self.primary_mut(id) else { return };
        let Stage::Gathering { missing, contents } = &mut primary.stage else { return };
        if !missing.is_empty() {
            return;
        }
        let mut gathered = std::mem::take(contents);
        gathered.entries.sort_unstable_by_key(|entry| entry.version); // P5
        if !self.receive(id, &gathered, actions) {
            if let Some(Primary { stage: Stage::Gathering { contents, .. }, .. }) =
                self.primary_mut(id)
            {
                *contents = gathered; // Tried again when it is due.
            }
            return;
        }
        let newest: BTreeMap<Arc<[u8]>, Arc<Entry>> = gathered
            .entries
            .iter()
            .filter(|entry| !entry.is_flush)
            .filter_map(|entry| Some((entry.key.clone(), self.replica_store.get(id, &entry.key)?)))
            .collect();
        let flushes = gathered.entries.iter().filter(|entry| entry.is_flush);
        let flush = flushes.max_by_key(|entry| entry.version).cloned();
        let mut entries: Vec<_> = newest.into_values().chain(flush).collect();
        entries.sort_unstable_by_key(|entry| entry.version); // P5
        let Some(state) = self.shards.get_mut(&id) else { return };
        let sessions = state.sessions.settled();
        let backups = self.configuration.iter().filter_map(|all| all.shard(id));
        let backups = backups.flat_map(|shard| shard.backups.iter().copied());
        let missing = backups.chain([own]).collect();
        let contents = Contents { entries, sessions };
        let Some(primary) = state.primary.as_mut() else { return };
        primary.stage = Stage::Scattering { missing, contents };
        primary.stage_since = now;
        primary.asking = Asking::default();
        self.ask(id, now, actions);
        self.when_durable(Held::Scattered { shard: id }, now, actions);
    }

    pub(super) fn scatter(
        &mut self,
        from: NodeId,
        id: ShardId,
        contents: Contents,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_backup_of(id, from) {
            return;
        }
        let term = self.term();
        let is_here = self.shards.get(&id).is_some_and(|state| state.united == Some(term));
        if !is_here && !self.receive(id, &contents, actions) {
            return; // It is sent again.
        }
        if let Some(state) = self.shards.get_mut(&id) {
            state.united = Some(term); // P4
        }
        let message = Message::Scattered { term, shard: id };
        let held = Held::Send { to: Peer::Node(from), message };
        self.when_durable(held, Instant::default(), actions);
    }

    /// Adds data that another copy has sent to this copy. Entries that are on all copies are here
    /// already, if this is a full copy, and must not come back where a delete of them is forgotten
    /// (K2). Returns false if there is no room for all of it.
    pub(super) fn receive(
        &mut self,
        id: ShardId,
        contents: &Contents,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.append_contents(id, contents, actions);
        self.work += contents.entries.len();
        let has_all = self.shards.get(&id).filter(|state| state.has_all());
        let known = has_all.map_or(Version::ZERO, |state| state.commit);
        for entry in contents.entries.iter().filter(|entry| entry.version > known) {
            if self.replica_store.install(entry.clone()) == Installed::NoRoom {
                return false;
            }
        }
        let Some(state) = self.shards.get_mut(&id) else { return false };
        for (client, answer) in &contents.sessions {
            state.sessions.settle(*client, answer.clone());
        }
        true
    }

    /// Notes that one copy has the union; when all have it, the shard is served.
    pub(super) fn scattered(&mut self, from: NodeId, id: ShardId) {
        let is_withheld = self.shard(id).is_some_and(|shard| !shard.waiting.is_empty()); // P3
        self.store_backlog();
        let has_backlog = self.backlog.of(id).next().is_some(); // W1
        let Some(state) = self.shards.get_mut(&id) else { return };
        let Some(primary) = state.primary.as_mut() else { return };
        let Stage::Scattering { missing, .. } = &mut primary.stage else { return };
        missing.remove(&from);
        if missing.is_empty() && !is_withheld && !has_backlog {
            primary.stage = Stage::Serving;
            primary.last = Version::before_epoch(state.epoch).max(primary.last);
            state.commit = primary.last; // P2
            self.tell_replica_store(id);
        }
    }
}
