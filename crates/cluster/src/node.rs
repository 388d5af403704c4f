//! A node, a server's part of the cluster: it keeps a lease, serves its shards, and holds copies of
//! others.
//!
//! ```text
//!  Tick, Message, Landed, Digested, Synced ─▶ input(event, now) ─▶ Send, Land, Append, Sync, Fence
//!
//!  client ─ PUT ─▶ execute ─▶ pending ══ Land ══▶ each backup      requests.rs, pending.rs
//!                    │ Append      │ ◀─ Acked ─┘  landing.rs: segments, whole or cut (K20)
//!                    ▼             ▼ all there      └▶ digest.rs: checked, in the index (later.rs)
//!                  own log     replica store, session, reply
//!  Install ─▶ roles ─▶ gather, scatter ─▶ serving   install.rs, promotion.rs
//!                      copy to joining nodes        copy.rs
//!                      fill from the source         filling.rs
//!  all keys of a shard are deleted by one entry        flush.rs
//!  writes that belong together land as one frame       group.rs
//!  no primary any more: answers wait for CommitVer     in_doubt.rs
//!  what others ask of the replica store is looked up in steps   answers.rs
//!  nodes that hold a shard up are named to managers    overdue.rs
//!  the process is to end: others take over first       ending.rs
//! ```
//!
//! # Invariants
//! N1: a client's request for a shard is answered only by its primary in a committed configuration
//!     whose lease had not ended when the answer was ready (K22).
//! N2: a write is answered when every target and the primary's own log have it (K21).
//! N3: everything that landed under a term is digested before the next term is installed, and
//!     nothing lands under an older term after that (K22).
//! N4: versions of a shard only grow, and never repeat: an epoch has one primary, in one
//!     incarnation.
//! N5: a write that was computed on one still pending lands together with it, so that no copy has
//!     the later one alone (K6, K24).
//!
//! # Limits
//! Frames, keys and values are allocated one by one. A shard with [`Settings::pending_max`] writes
//! under way answers further ones with "try again".
//!
//! # References
//! Rowan-KV §4; K6, K14, K19 to K25.

mod answers;
mod assembly;
mod backlog;
mod copy;
mod digest;
mod durable;
mod ending;
mod filling;
mod flush;
mod group;
mod in_doubt;
mod install;
mod landing;
mod later;
mod overdue;
mod pending;
mod primary;
mod promotion;
mod recover;
mod requests;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Instant, Slot};

use crate::addresses::Addresses;
use crate::configuration::{Configuration, Role, Shard, even_shard};
use crate::ids::{NodeId, ShardId, Term, Version};
use crate::message::{Lane, Message, Peer, Recovered};
use crate::record::{BlockId, Check};
use crate::replica_store::{Done, ReplicaStore};
use crate::scheme::{Scheme, Way, Ways};
use crate::settings::{Settings, after};

use answers::Answers;
use assembly::Assembly;
use backlog::Backlog;
use durable::DurableLog;
use ending::Ending;
use in_doubt::InDoubt;
use landing::Logs;
use primary::Primary;
use sessions::Sessions;

/// An input event of a node.
#[derive(Debug)]
pub enum Event<'a> {
    /// Time has passed; at least every millisecond while the node has any role.
    Tick,
    /// The driver has nothing else to do: the node works on a bounded part of the requested
    /// lookups. Sent while [`Node::has_steps`].
    Step,
    /// A message of the control path.
    Message {
        /// The sender.
        from: Peer,
        /// The message.
        message: Message,
    },
    /// A frame has landed; its keyed tag was right (K25).
    Landed {
        /// The lane that it arrived on.
        lane: Lane,
        /// The way that it took (see `scheme`).
        way: Way,
        /// The frame.
        bytes: &'a [u8],
    },
    /// A frame that another thread of this node has taken in and acknowledged; its keyed tag was
    /// right. The driver reports it before anything that arrived later.
    Executed {
        /// The lane that it arrived on.
        lane: Lane,
        /// The frame.
        bytes: &'a [u8],
    },
    /// The replica store has finished an install that it had deferred
    /// ([`ReplicaStore::take_done`]).
    Digested,
    /// Everything appended up to here is on the medium. If the replica store is the log: everything
    /// that was installed when [`Node::appended_bytes`] returned this number.
    Synced {
        /// Bytes since the node's start.
        through_bytes: u64,
    },
}

/// An action that a node requests from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a message.
    Send {
        /// The receiver.
        to: Peer,
        /// The message.
        message: Message,
    },
    /// Lands a frame at a backup, on the lane of this term.
    Land {
        /// The backup.
        to: NodeId,
        /// The term of the lane.
        term: Term,
        /// The way that the frame takes.
        way: Way,
        /// The frame.
        bytes: Arc<[u8]>,
    },
    /// Appends to the node's log on the medium.
    Append(Vec<u8>),
    /// Makes all appended bytes durable; answered by [`Event::Synced`].
    Sync,
    /// Closes all lanes below this term, after draining them (K22).
    Fence {
        /// The oldest term that stays open.
        term: Term,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct Node<S> {
    id: NodeId,
    settings: Settings,
    check: Check,
    manager_count: u16,
    recovered: Recovered,
    addresses: Arc<Addresses>,
    /// The end of the lease, on the node's own clock; serving ends here.
    lease_until: Instant,
    lease_asked_at: Option<Instant>,
    commit_told_at: Instant,
    overdue_told_at: Instant,
    /// When each other node last acknowledged anything; for members only.
    acked_at: BTreeMap<NodeId, Instant>,
    configuration: Option<Arc<Configuration>>,
    is_committed: bool,
    replica_store: S,
    shards: BTreeMap<ShardId, ShardState>,
    logs: Logs,
    ways: Ways,
    /// Reused memory for building a record.
    scratch: Vec<u8>,
    /// Blocks of a frame while it is digested; at other times only their reused memory.
    installed: Vec<BlockId>,
    /// Blocks of a write while it is landed, by target; at other times only their reused memory.
    wanted: Vec<(NodeId, u32)>,
    assembly: Assembly,
    /// Reused memory for the list of deferred installs that are finished.
    done: Vec<Done>,
    durable: DurableLog,
    backlog: Backlog,
    /// Shards for which something has landed that there is no room for.
    crowded: BTreeSet<ShardId>,
    answers: Answers,
    /// See [`Node::take_work`].
    work: usize,
    /// The state of an orderly shutdown, once it was requested.
    ending: Option<Ending>,
}

/// The stage of a primary in taking over its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The copies are being made alike.
    Promoting,
    /// It serves, and asks its source for entries that it does not have.
    Filling,
    /// It serves, and has all entries.
    Serving,
}

/// A node's state of one shard that it has a role in.
#[derive(Debug)]
struct ShardState {
    role: Role,
    epoch: u16,
    /// All versions up to here are on all copies (`CommitVerArray` of Rowan-KV §4.4).
    commit: Version,
    sessions: Sessions,
    /// The primary's state, while the role is primary.
    primary: Option<Primary>,
    /// Writes that were under way when the node ceased to be primary.
    in_doubt: InDoubt,
    /// The term under which this copy took in a new primary's Scatter.
    united: Option<Term>,
}

impl ShardState {
    fn new(role: Role, epoch: u16) -> ShardState {
        let sessions = Sessions::default();
        ShardState {
            role,
            epoch,
            commit: Version::ZERO,
            sessions,
            primary: None,
            in_doubt: InDoubt::default(),
            united: None,
        }
    }

    /// Whether this copy has everything that is on all copies.
    fn has_all(&self) -> bool {
        match self.role {
            Role::Joining => false,
            Role::Backup => true,
            Role::Primary => self.primary.as_ref().is_some_and(|primary| primary.filling.is_none()),
        }
    }
}

impl<S: ReplicaStore> Node<S> {
    /// A node without data, in a cluster of `manager_count` managers.
    pub fn new(id: NodeId, settings: Settings, manager_count: u16, replica_store: S) -> Node<S> {
        let is_log = replica_store.is_log();
        Node {
            id,
            settings,
            check: Check::Checksum,
            manager_count,
            recovered: Recovered::Nothing,
            addresses: Arc::default(),
            lease_until: Instant::default(),
            lease_asked_at: None,
            commit_told_at: Instant::default(),
            overdue_told_at: Instant::default(),
            acked_at: BTreeMap::new(),
            configuration: None,
            is_committed: false,
            replica_store,
            shards: BTreeMap::new(),
            logs: Logs::new(settings.scheme, settings.segment_bytes),
            ways: Ways::new(settings.scheme, settings.segment_bytes),
            scratch: Vec::new(),
            installed: Vec::new(),
            wanted: Vec::new(),
            assembly: Assembly::default(),
            done: Vec::new(),
            durable: DurableLog::new(settings.durability, is_log),
            backlog: Backlog::default(),
            crowded: BTreeSet::new(),
            answers: Answers::default(),
            work: 0,
            ending: None,
        }
    }

    /// Sets the node's addresses: before its first tick, and never again (C5).
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.addresses = Arc::new(addresses);
    }

    /// Sets how strictly landed records are checked: for the fault simulation, which must notice.
    pub fn set_check(&mut self, check: Check) {
        self.check = check;
    }

    /// Takes one event.
    pub fn input(&mut self, event: Event<'_>, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::Tick => self.tick(now, actions),
            Event::Step => self.step(now, actions),
            Event::Landed { lane, way, bytes } => self.land(lane, way, bytes, actions),
            Event::Executed { lane, bytes } => self.executed(lane, bytes),
            Event::Digested => self.digested(actions),
            Event::Synced { through_bytes } => self.synced(through_bytes, now, actions),
            Event::Message { from: Peer::Manager(_), message } => {
                self.hear_manager(message, now, actions);
            }
            Event::Message { from: Peer::Node(from), message } => {
                self.hear_node(from, message, now, actions);
            }
            Event::Message { from: Peer::Client(_), message } => match message {
                Message::Request(request) => self.request(request, now, actions),
                Message::AskConfiguration => {}
                _ => {}
            },
        }
        self.ask_sync(actions);
    }

    /// The id of this node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The installed term; 0 before any.
    pub fn term(&self) -> Term {
        self.configuration.as_ref().map_or(Term(0), |configuration| configuration.term)
    }

    /// The installed configuration.
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        self.configuration.as_ref()
    }

    /// The shard of a slot. It is known without a configuration, because shards keep their slots.
    pub fn shard_of_slot(&self, slot: Slot) -> ShardId {
        match &self.configuration {
            Some(configuration) => configuration.shard_of_slot(slot),
            None => even_shard(self.settings.shards, slot),
        }
    }

    /// Whether the node would answer a client's request for this shard now (N1).
    pub fn serves(&self, shard: ShardId, now: Instant) -> bool {
        let is_ready = |state: &ShardState| state.primary.as_ref().is_some_and(Primary::is_serving);
        self.may_serve(now) && self.shards.get(&shard).is_some_and(is_ready)
    }

    /// The stage of a shard of which the node is primary, whatever its lease says.
    pub fn stage(&self, shard: ShardId) -> Option<Stage> {
        let primary = self.shards.get(&shard)?.primary.as_ref()?;
        Some(match primary.is_serving() {
            false => Stage::Promoting,
            true if primary.filling.is_some() => Stage::Filling,
            true => Stage::Serving,
        })
    }

    /// Whether work is under way that depends on time: ticks should then come every millisecond.
    /// Otherwise four per lease are enough.
    pub fn is_busy(&self) -> bool {
        let is_moving = |primary: &Primary| {
            !primary.is_serving()
                || primary.filling.is_some()
                || primary.copy.is_some()
                || !primary.pending.is_empty()
        };
        let is_ending = self.ending.is_some();
        is_ending
            || self.has_steps()
            || self.shards.values().any(|state| {
                !state.in_doubt.is_empty() || state.primary.as_ref().is_some_and(is_moving)
            })
    }

    /// Whether a copy of the shard, or this node's own replica store, had no room lately. Requests
    /// that add to the shard should then be refused, so that deletes and the writes under way get
    /// through.
    pub fn is_crowded(&self, shard: ShardId, now: Instant) -> bool {
        let primary = self.shards.get(&shard).and_then(|state| state.primary.as_ref());
        let crowded_at = primary.and_then(|primary| primary.crowded_at);
        crowded_at.is_some_and(|at| now < after(at, self.settings.lease_ns))
    }

    /// For a shard of which the node is primary: the number of entries that the joining node, or
    /// the node itself while it is filling, has received; none while nothing is copied.
    pub fn copied_entries(&self, shard: ShardId) -> Option<u64> {
        let primary = self.shards.get(&shard)?.primary.as_ref()?;
        let joining = primary.copy.as_ref().map(|copy| copy.copied);
        joining.or(primary.filling.as_ref().map(|filling| filling.copied))
    }

    /// Bytes of writes under way that each target has not acknowledged.
    pub fn lag_bytes(&self) -> BTreeMap<NodeId, u64> {
        let mut lags = BTreeMap::new();
        for shard in self.configuration.iter().flat_map(|all| &all.shards) {
            if shard.primary == self.id {
                lags.extend(shard.targets().map(|to| (to, 0)));
            }
        }
        let primaries = self.shards.values().filter_map(|state| state.primary.as_ref());
        for pending in primaries.flat_map(|primary| primary.pending.values()) {
            let bytes = pending.len_bytes();
            for (to, missing) in &pending.targets {
                if !missing.is_empty() {
                    *lags.entry(*to).or_insert(0) += bytes as u64;
                }
            }
        }
        lags
    }

    /// The time until which the node may serve, if its configuration is committed; 0 if it is not.
    pub fn serves_until(&self) -> Instant {
        if self.is_committed { self.lease_until } else { Instant::default() }
    }

    /// The highest version of a shard that the node has assigned or knows to be on all copies.
    pub fn version(&self, shard: ShardId) -> Option<Version> {
        let state = self.shards.get(&shard)?;
        Some(state.primary.as_ref().map_or(state.commit, |primary| primary.last.max(state.commit)))
    }

    /// The version up to which everything in a shard is on all copies, as far as the node knows.
    pub fn commit_version(&self, shard: ShardId) -> Option<Version> {
        self.shards.get(&shard).map(|state| state.commit)
    }

    /// The end of its log. With a replica store that is the log: the number that [`Event::Synced`]
    /// reports for a sync that begins now.
    pub fn appended_bytes(&self) -> u64 {
        self.durable.appended_bytes()
    }

    /// The replica store, for inspection.
    pub fn replica_store(&self) -> &S {
        &self.replica_store
    }

    /// The backup logs' counters.
    pub fn landing_counters(&self) -> landing::LandingCounters {
        self.logs.counters()
    }

    /// Whether the node acknowledges data only once it is on its medium.
    pub fn is_durable(&self) -> bool {
        self.durable.is_on()
    }

    /// The replication scheme of its cluster.
    pub fn scheme(&self) -> Scheme {
        self.settings.scheme
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let is_due = |asked_at| now >= after(asked_at, self.settings.lease_ns / 4);
        if self.lease_asked_at.is_none_or(is_due) {
            self.lease_asked_at = Some(now);
            let (term, recovered) = (self.term(), self.recovered.clone());
            let addresses = self.addresses.clone();
            let message = Message::Lease { sent_at: now, term, recovered, addresses };
            self.tell_managers(&message, actions);
        }
        self.store_backlog();
        self.assembly.forget_silent(now, self.settings.patience_ns() / 2);
        self.resend(now, actions);
        self.settle_in_doubt(now, actions);
        self.tell_commit(now, actions);
        self.go_on_promoting(now, actions);
        self.go_on_copying(now, actions);
        self.go_on_filling(now, actions);
        self.tell_overdue(now, actions);
        self.tell_ending(now, actions);
    }

    fn tell_managers(&self, message: &Message, actions: &mut Vec<Action>) {
        let to_each = (0..self.manager_count)
            .map(|manager| Action::Send { to: Peer::Manager(manager), message: message.clone() });
        actions.extend(to_each);
    }

    fn may_serve(&self, now: Instant) -> bool {
        self.is_committed && now < self.lease_until
    }

    fn hear_manager(&mut self, message: Message, now: Instant, actions: &mut Vec<Action>) {
        match message {
            Message::Granted { sent_at, term, is_committed } => {
                if term != self.term() {
                    return; // A lease for another configuration is none for this one.
                }
                let until = after(sent_at, self.settings.held_ns(self.settings.lease_ns));
                self.lease_until = self.lease_until.max(until);
                if is_committed {
                    self.commit(term);
                }
            }
            Message::Install(configuration) => self.install(configuration, now, actions),
            Message::Commit { term } => self.commit(term),
            Message::Ended => self.ended(),
            _ => {}
        }
    }

    fn commit(&mut self, term: Term) {
        self.is_committed |= term == self.term();
    }

    fn hear_node(
        &mut self,
        from: NodeId,
        message: Message,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        match message {
            Message::Acked { term, blocks } if term == self.term() => {
                self.acked(from, &blocks, now, actions);
            }
            Message::Crowded { term, shard } if term == self.term() => {
                if let Some(primary) = self.primary_mut(shard) {
                    primary.crowded_at = Some(now);
                }
            }
            Message::Gather { term, shard } if term == self.term() => {
                self.gather(from, shard, actions);
            }
            Message::Gathered { term, shard, contents } if term == self.term() => {
                self.gathered(from, shard, contents, now, actions);
            }
            Message::Scatter { term, shard, contents } if term == self.term() => {
                self.scatter(from, shard, contents, actions);
            }
            Message::Scattered { term, shard } if term == self.term() => {
                self.scattered(from, shard);
            }
            Message::Copy { term, shard, part, contents, next } if term == self.term() => {
                self.copy(from, shard, part, contents, next, actions);
            }
            Message::Copied { term, shard, part } if term == self.term() => {
                self.copied(from, shard, part, now, actions);
            }
            Message::Fetch { term, shard, key } if term == self.term() => {
                self.fetch(from, shard, key, actions);
            }
            Message::Fetched { term, shard, key, entry } if term == self.term() => {
                self.fetched(from, shard, &key, entry, now, actions);
            }
            Message::Pull { term, shard, part, cursor } if term == self.term() => {
                self.pull(from, shard, part, cursor);
            }
            // A message of another term, or not for a node: a sender that wants an answer asks
            // again.
            _ => {}
        }
    }

    /// Tells the replica store that CommitVer of a shard may have grown, so that it keeps less.
    ///
    /// Deletes are forgotten once no older entry can arrive. A frame or a gathered entry at or
    /// below CommitVer is dropped. But a node that is joining the shard receives entries that are
    /// older than CommitVer by their nature.
    fn tell_replica_store(&mut self, shard: ShardId) {
        let Some(state) = self.shards.get(&shard) else { return };
        self.replica_store.commit(shard, state.commit);
        if state.has_all() {
            self.replica_store.forget_deletes(shard, state.commit);
        }
    }

    /// The shard in the installed configuration.
    fn shard(&self, shard: ShardId) -> Option<&Shard> {
        self.configuration.as_ref()?.shard(shard)
    }

    /// The primary's state of a shard, once it serves.
    fn primary_mut(&mut self, shard: ShardId) -> Option<&mut Primary> {
        self.shards.get_mut(&shard)?.primary.as_mut()
    }
}

fn to_node(to: NodeId, message: Message) -> Action {
    Action::Send { to: Peer::Node(to), message }
}

pub use answers::TURN_WORK;
pub use landing::LandingCounters;

#[cfg(test)]
mod tests;
