//! A node, a server's part of the cluster: it keeps a lease, serves its shards, and holds copies of
//! others.
//!
//! ```text
//!  Tick, Message, Landed, Digested, Synced ─▶ input(event, now) ─▶ Send, Land, Append, Sync
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
//! | state | its owner |
//! |---|---|
//! | lease, term, configuration | `membership` |
//! | each shard; the primary of one | `shards`; `primary` |
//! | blocks on their way to targets, announcements of CommitVer | `sending` |
//! | what has landed: segments, parts, backlog | `landing`, `assembly`, `backlog` |
//! | the log on the medium, and what waits for it | `durable` |
//! | lookups under way for other nodes | `answers` |
//! | nodes that hold a shard up; the end of the process | `overdue`; `ending` |
//!
//! An event is handled by functions of the module of its kind.
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
mod membership;
mod overdue;
mod pending;
mod primary;
mod promotion;
mod recover;
mod requests;
mod sending;
mod sessions;
mod shards;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Instant, Slot};

use crate::addresses::Addresses;
use crate::configuration::{Configuration, even_shard};
use crate::ids::{NodeId, ShardId, Term, Version};
use crate::message::{Lane, Message, Peer};
use crate::record::{BlockId, Check};
use crate::replica_store::{Done, ReplicaStore};
use crate::scheme::{Scheme, Way};
use crate::settings::{Settings, after};

use answers::Answers;
use assembly::Assembly;
use backlog::Backlog;
use durable::DurableLog;
use ending::Ending;
use landing::Logs;
use membership::Membership;
use overdue::Overdue;
use primary::Primary;
use sending::Sending;
use shards::Shards;

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
}

/// The state machine.
#[derive(Debug)]
pub struct Node<S> {
    settings: Settings,
    check: Check,
    membership: Membership,
    replica_store: S,
    shards: Shards,
    sending: Sending,
    /// What other nodes' frames land in, and the entries that are put together from them.
    logs: Logs,
    assembly: Assembly,
    backlog: Backlog,
    durable: DurableLog,
    answers: Answers,
    overdue: Overdue,
    /// The state of an orderly shutdown, once it was requested.
    ending: Option<Ending>,
    /// Reused memory for building a record.
    scratch: Vec<u8>,
    /// Blocks of a frame while it is digested; at other times only their reused memory.
    installed: Vec<BlockId>,
    /// Reused memory for the list of deferred installs that are finished.
    done: Vec<Done>,
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

impl<S: ReplicaStore> Node<S> {
    /// A node without data, in a cluster of `manager_count` managers.
    pub fn new(id: NodeId, settings: Settings, manager_count: u16, replica_store: S) -> Node<S> {
        let is_log = replica_store.is_log();
        Node {
            settings,
            check: Check::Checksum,
            membership: Membership::new(id, manager_count),
            replica_store,
            shards: Shards::default(),
            sending: Sending::new(&settings),
            logs: Logs::new(settings.scheme, settings.segment_bytes),
            assembly: Assembly::default(),
            backlog: Backlog::default(),
            durable: DurableLog::new(settings.durability, is_log),
            answers: Answers::default(),
            overdue: Overdue::default(),
            ending: None,
            scratch: Vec::new(),
            installed: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Sets the node's addresses: before its first tick, and never again (C5).
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.membership.addresses = Arc::new(addresses);
    }

    /// Sets how strictly landed records are checked: for the fault simulation, which must notice.
    pub fn set_check(&mut self, check: Check) {
        self.check = check;
    }

    /// Takes one event.
    pub fn input(&mut self, event: Event<'_>, now: Instant, actions: &mut Vec<Action>) {
        match event {
            Event::Tick => self.tick(now, actions),
            Event::Step => answers::step(self, now, actions),
            Event::Landed { lane, way, bytes } => digest::land(self, lane, way, bytes, actions),
            Event::Executed { lane, bytes } => digest::executed(self, lane, bytes),
            Event::Digested => later::digested(self, actions),
            Event::Synced { through_bytes } => durable::synced(self, through_bytes, now, actions),
            Event::Message { from: Peer::Manager(_), message } => {
                self.hear_manager(message, now, actions);
            }
            Event::Message { from: Peer::Node(from), message } => {
                self.hear_node(from, message, now, actions);
            }
            Event::Message { from: Peer::Client(_), message } => match message {
                Message::Request(request) => requests::request(self, request, now, actions),
                Message::AskConfiguration => {}
                _ => {}
            },
        }
        self.durable.ask_sync(actions);
    }

    /// The id of this node.
    pub fn id(&self) -> NodeId {
        self.membership.id
    }

    /// The installed term; 0 before any.
    pub fn term(&self) -> Term {
        self.membership.term()
    }

    /// The installed configuration.
    pub fn configuration(&self) -> Option<&Arc<Configuration>> {
        self.membership.configuration.as_ref()
    }

    /// The shard of a slot. It is known without a configuration, because shards keep their slots.
    pub fn shard_of_slot(&self, slot: Slot) -> ShardId {
        match &self.membership.configuration {
            Some(configuration) => configuration.shard_of_slot(slot),
            None => even_shard(self.settings.shards, slot),
        }
    }

    /// Whether the node would answer a client's request for this shard now (N1).
    pub fn serves(&self, shard: ShardId, now: Instant) -> bool {
        self.membership.may_serve(now)
            && self.shards.primary(shard).is_some_and(Primary::is_serving)
    }

    /// The stage of a shard of which the node is primary, whatever its lease says.
    pub fn stage(&self, shard: ShardId) -> Option<Stage> {
        self.shards.stage(shard)
    }

    /// Whether work is under way that depends on time: ticks should then come every millisecond.
    /// Otherwise four per lease are enough.
    pub fn is_busy(&self) -> bool {
        self.is_ending() || self.has_steps() || self.shards.are_busy()
    }

    /// Whether a copy of the shard, or this node's own replica store, had no room lately. Requests
    /// that add to the shard should then be refused, so that deletes and the writes under way get
    /// through.
    pub fn is_crowded(&self, shard: ShardId, now: Instant) -> bool {
        let crowded_at = self.shards.primary(shard).and_then(|primary| primary.crowded_at);
        crowded_at.is_some_and(|at| now < after(at, self.settings.lease_ns))
    }

    /// For a shard of which the node is primary: the number of entries that the joining node, or
    /// the node itself while it is filling, has received; none while nothing is copied.
    pub fn copied_entries(&self, shard: ShardId) -> Option<u64> {
        let primary = self.shards.primary(shard)?;
        let joining = primary.copy.as_ref().map(|copy| copy.copied);
        joining.or(primary.filling.as_ref().map(|filling| filling.copied))
    }

    /// Bytes of writes under way that each target has not acknowledged.
    pub fn lag_bytes(&self) -> BTreeMap<NodeId, u64> {
        let mut lags = BTreeMap::new();
        for shard in self.configuration().iter().flat_map(|all| &all.shards) {
            if shard.primary == self.id() {
                lags.extend(shard.targets().map(|to| (to, 0)));
            }
        }
        self.shards.add_lags(&mut lags);
        lags
    }

    /// The time until which the node may serve, if its configuration is committed; 0 if it is not.
    pub fn serves_until(&self) -> Instant {
        self.membership.serves_until()
    }

    /// The highest version of a shard that the node has assigned or knows to be on all copies.
    pub fn version(&self, shard: ShardId) -> Option<Version> {
        self.shards.version(shard)
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

    /// Whether there are as many full copies as a write needs (K23). If a copy dies, a write under
    /// way waits for the next one to join.
    pub fn has_copies(&self, shard: ShardId) -> bool {
        let shard = self.membership.shard(shard);
        let copy_count = shard.map_or(0, |shard| shard.full_copies().count());
        copy_count >= usize::from(self.settings.min_copies)
    }

    /// Whether [`Event::Step`] has something to do.
    pub fn has_steps(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The number of entries read from the replica store, or assembled there, since the last call:
    /// the node's driver renews the lease between [`TURN_WORK`] of them.
    pub fn take_work(&mut self) -> usize {
        self.answers.take_work()
    }

    /// Whether it has acknowledged entries that it has no room for: workers should take nothing in
    /// (W2 of `backlog`).
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether the node is a member of the installed configuration.
    pub fn is_member(&self) -> bool {
        self.membership.has(self.id())
    }

    /// The replication scheme of its cluster.
    pub fn scheme(&self) -> Scheme {
        self.settings.scheme
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.membership.ask_lease(now, self.settings.lease_ns, actions);
        self.backlog.store(&mut self.replica_store);
        let patience_ns = self.settings.patience_ns();
        self.assembly.forget_silent(now, patience_ns / 2);
        pending::resend(self, now, actions);
        self.shards.settle_in_doubt(now, patience_ns, actions);
        let Node { sending, shards, membership, settings, .. } = self;
        sending.tell_commit(shards, membership, settings, now, actions);
        promotion::go_on_promoting(self, now, actions);
        copy::go_on_copying(self, now, actions);
        filling::go_on_filling(self, now, actions);
        let Node { overdue, shards, membership, settings, .. } = self;
        overdue.tell(shards, membership, settings, now, actions);
        ending::tell_ending(self, now, actions);
    }

    fn hear_manager(&mut self, message: Message, now: Instant, actions: &mut Vec<Action>) {
        match message {
            Message::Granted { sent_at, term, is_committed } => {
                self.membership.take_lease(sent_at, term, &self.settings);
                if is_committed {
                    self.membership.commit(term);
                }
            }
            Message::Install(configuration) => install::install(self, configuration, now, actions),
            Message::Commit { term } => self.membership.commit(term),
            Message::Ended => self.ending.iter_mut().for_each(Ending::ended),
            _ => {}
        }
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
                pending::acked(self, from, &blocks, now, actions);
            }
            Message::Crowded { term, shard } if term == self.term() => {
                if let Some(primary) = self.shards.primary_mut(shard) {
                    primary.crowded_at = Some(now);
                }
            }
            Message::Gather { term, shard } if term == self.term() => {
                promotion::gather(self, from, shard, actions);
            }
            Message::Gathered { term, shard, contents } if term == self.term() => {
                promotion::gathered(self, from, shard, contents, now, actions);
            }
            Message::Scatter { term, shard, contents } if term == self.term() => {
                promotion::scatter(self, from, shard, contents, actions);
            }
            Message::Scattered { term, shard } if term == self.term() => {
                promotion::scattered(self, from, shard);
            }
            Message::Copy { term, shard, part, contents, next } if term == self.term() => {
                copy::copy(self, from, shard, part, contents, next, actions);
            }
            Message::Copied { term, shard, part } if term == self.term() => {
                copy::copied(self, from, shard, part, now, actions);
            }
            Message::Fetch { term, shard, key } if term == self.term() => {
                filling::fetch(self, from, shard, key, actions);
            }
            Message::Fetched { term, shard, key, entry } if term == self.term() => {
                filling::fetched(self, from, shard, &key, entry, now, actions);
            }
            Message::Pull { term, shard, part, cursor } if term == self.term() => {
                filling::pull(self, from, shard, part, cursor);
            }
            // A message of another term, or not for a node: a sender that wants an answer asks
            // again.
            _ => {}
        }
    }
}

fn to_node(to: NodeId, message: Message) -> Action {
    Action::Send { to: Peer::Node(to), message }
}

pub use answers::TURN_WORK;
pub use landing::LandingCounters;

#[cfg(test)]
mod tests;
