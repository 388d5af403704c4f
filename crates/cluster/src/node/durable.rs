//! The node's log on a medium, and the answers that wait for it: an answer leaves when the writes
//! it answers for are durable (K21). One sync runs at a time; entries appended meanwhile go with
//! the next.
//!
//! ```text
//!                 what lands                       a write
//!  own log        append ─▶ sync ─▶ Acked; digest  append ─▶ sync, all Acked ─▶ install, reply
//!  replica store  install ─▶ sync ─▶ Acked         all Acked ─▶ install ─▶ sync ─▶ reply
//! ```
//!
//! # Invariants
//! D1: CommitVer, and so the set of entries left out of a promotion, counts the entries on the
//!     medium of all copies, including the primary's own.

use std::collections::VecDeque;

use base::Instant;

use crate::ids::{ClientId, NodeId, ShardId, Version};
use crate::message::{Contents, Message, Outcome, Peer};
use crate::node::sessions::record_of;
use crate::node::{Action, Node, filling, pending, promotion, requests};
use crate::record::append_session;
use crate::replica_store::ReplicaStore;
use crate::settings::Durability;

/// The appended and the durable end of the log, and the actions that wait for durability.
#[derive(Debug)]
pub(super) struct DurableLog {
    durability: Durability,
    /// Whether the replica store is the log; then appended bytes are only counted.
    is_replica_store: bool,
    appended_bytes: u64,
    synced_bytes: u64,
    is_syncing: bool,
    held: VecDeque<(u64, Held)>,
}

/// An action taken once everything appended so far is durable.
#[derive(Debug)]
pub(super) enum Held {
    Send {
        to: Peer,
        message: Message,
    },
    /// An answer whose data may not be durable yet.
    Reply {
        to: (ClientId, u64),
        outcome: Outcome,
    },
    /// The primary's own log has this write.
    Written {
        shard: ShardId,
        version: Version,
    },
    /// A primary that was filling has everything on its medium.
    Filled {
        shard: ShardId,
        source: NodeId,
        part: u64,
    },
    /// The new primary's own log has the gathered entries.
    Scattered {
        shard: ShardId,
    },
}

impl DurableLog {
    pub(super) fn new(durability: Durability, is_replica_store: bool) -> DurableLog {
        DurableLog {
            durability,
            is_replica_store,
            appended_bytes: 0,
            synced_bytes: 0,
            is_syncing: false,
            held: VecDeque::new(),
        }
    }

    pub(super) fn is_replica_store(&self) -> bool {
        self.is_replica_store
    }

    /// Whether entries in the replica store may not be durable yet.
    pub(super) fn replica_store_lags(&self) -> bool {
        self.is_replica_store && self.appended_bytes > self.synced_bytes
    }

    pub(super) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    pub(super) fn is_on(&self) -> bool {
        self.durability == Durability::Fsync
    }

    /// Whether entries are appended to it: there is one, apart from the replica store.
    pub(super) fn takes_entries(&self) -> bool {
        self.is_on() && !self.is_replica_store
    }

    /// Appends to the log, if there is one.
    pub(super) fn append(&mut self, bytes: &[u8], actions: &mut Vec<Action>) {
        if self.is_on() && !bytes.is_empty() {
            self.appended_bytes += bytes.len() as u64;
            if !self.is_replica_store {
                actions.push(Action::Append(bytes.to_vec()));
            }
        }
    }

    /// Counts a change of the replica store that is the log: actions that start waiting now wait
    /// for it.
    pub(super) fn count_change(&mut self) {
        if self.is_on() && self.is_replica_store {
            self.appended_bytes += 1;
        }
    }

    /// Appends data that another copy has sent.
    pub(super) fn append_contents(
        &mut self,
        shard: ShardId,
        contents: &Contents,
        replica_store: &mut impl ReplicaStore,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_on() {
            return;
        }
        if self.is_replica_store {
            for (client, answer) in &contents.sessions {
                replica_store.remember(&record_of(shard, *client, answer));
            }
            return self.count_change();
        }
        let mut bytes = Vec::new();
        contents.entries.iter().for_each(|entry| entry.append(&mut bytes));
        for (client, answer) in &contents.sessions {
            append_session(&record_of(shard, *client, answer), &mut bytes);
        }
        self.append(&bytes, actions);
    }

    /// Called once per input, at its end: requests a sync for all waiting actions.
    pub(super) fn ask_sync(&mut self, actions: &mut Vec<Action>) {
        let is_wanted = self.appended_bytes > self.synced_bytes;
        if is_wanted && !self.is_syncing {
            self.is_syncing = true;
            actions.push(Action::Sync);
        }
    }

    /// Keeps an action until everything appended is durable. Returns it if it is already.
    fn hold(&mut self, held: Held) -> Option<Held> {
        if self.synced_bytes >= self.appended_bytes {
            return Some(held);
        }
        self.held.push_back((self.appended_bytes, held));
        None
    }

    /// Notes the end of a sync.
    fn sync_ended(&mut self, through_bytes: u64) {
        self.is_syncing = false;
        self.synced_bytes = self.synced_bytes.max(through_bytes);
    }

    /// The next action whose wait is over.
    fn next_durable(&mut self) -> Option<Held> {
        let synced_bytes = self.synced_bytes;
        self.held.pop_front_if(|(at_bytes, _)| *at_bytes <= synced_bytes).map(|(_, held)| held)
    }
}

/// Takes the action now, or once everything appended is durable.
pub(super) fn when_durable<S: ReplicaStore>(
    node: &mut Node<S>,
    held: Held,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    if let Some(held) = node.durable.hold(held) {
        release(node, held, now, actions);
    }
}

pub(super) fn synced<S: ReplicaStore>(
    node: &mut Node<S>,
    through_bytes: u64,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    node.durable.sync_ended(through_bytes);
    while let Some(held) = node.durable.next_durable() {
        release(node, held, now, actions);
    }
}

fn release<S: ReplicaStore>(
    node: &mut Node<S>,
    held: Held,
    now: Instant,
    actions: &mut Vec<Action>,
) {
    match held {
        Held::Send { to, message } => actions.push(Action::Send { to, message }),
        Held::Reply { to: (client, sequence), outcome } => {
            requests::reply(node, client, sequence, outcome, now, actions);
        }
        Held::Written { shard, version } => pending::written(node, shard, version, now, actions),
        Held::Filled { shard, source, part } => filling::filled(node, shard, source, part),
        Held::Scattered { shard } => promotion::scattered(node, node.membership.id, shard),
    }
}
