//! Messages between nodes, managers and clients, and the sender of each.
//!
//! ```text
//!  node ── Lease ──▶ manager      node ◀── Granted, Install, Commit ── manager
//!  node ── Installed, Joined, Filled, Withheld, Statistics ──▶ manager
//!  node ── Ending ──▶ manager     node ◀── Ended ── manager
//!  primary ══ landed frames ══▶ backup ── Acked ──▶ primary
//!  primary ── Gather, Scatter, Copy ──▶ backup ── Gathered, Scattered, Copied ──▶ primary
//!  client ── Request ──▶ node ── Reply ──▶ client      client ── AskConfiguration ──▶ anyone
//! ```
//!
//! Every message may be lost, delayed, duplicated or overtaken: a peer that needs an answer asks
//! again, and a peer that is asked twice answers twice. Entries travel as landed frames
//! (`crate::record`); all other messages are control messages and rare. docs/design/cluster.md has
//! the table.

use std::any::Any;
use std::sync::Arc;

use base::{Instant, UnixMillis};

use crate::addresses::Addresses;
use crate::configuration::Configuration;
use crate::ids::{ClientId, NodeId, ShardId, Term, Version};
use crate::record::{BlockId, Entry};

/// The sender or the receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A server.
    Node(NodeId),
    /// A configuration manager, by its position in everyone's list.
    Manager(u16),
    /// A client.
    Client(ClientId),
}

/// The lane that landed frames arrive on: one per sender and term (K22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// The sender.
    pub from: NodeId,
    /// The configuration under which it was opened.
    pub term: Term,
}

/// What a node found on its medium when it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// No data that other nodes may rely on.
    Nothing,
    /// All data that the node's incarnations from `since` on had acknowledged.
    Whole {
        /// The incarnation that began the medium.
        since: u32,
        /// The last incarnation that wrote it.
        incarnation: u32,
    },
    /// Part of the data: damage was found.
    Damaged {
        /// The incarnation that wrote it.
        incarnation: u32,
        /// Shards that began anew behind the damage, each with the incarnation in which it did:
        /// these are whole since then.
        whole: Arc<[(ShardId, u32)]>,
    },
}

impl Recovered {
    /// Whether the node has all data of the shard that the listed incarnation had acknowledged.
    /// Such data may be that incarnation's own or a later one's.
    pub fn has_all(&self, shard: ShardId, listed_incarnation: u32) -> bool {
        match self {
            Recovered::Nothing => false,
            Recovered::Whole { since, incarnation } => {
                (*since..=*incarnation).contains(&listed_incarnation)
            }
            Recovered::Damaged { incarnation, whole } => whole.iter().any(|(id, since)| {
                *id == shard && (*since..=*incarnation).contains(&listed_incarnation)
            }),
        }
    }
}

/// An operation that a client requests on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the value.
    Get,
    /// Replaces the value.
    Put(Arc<[u8]>),
    /// Removes the key; the reply says whether it was there.
    Delete,
    /// Removes all keys of its shard.
    Flush,
    /// Adds to a number; the reply is the sum.
    Increment(i64),
    /// A computation supplied by the driver. It has no byte format, so it stays within a process.
    Compute(Compute),
}

impl Operation {
    /// Whether the operation is independent of the key's present value.
    pub fn is_blind(&self) -> bool {
        match self {
            Operation::Put(_) | Operation::Flush => true,
            Operation::Compute(Compute(change)) => change.kind() == ChangeKind::Blind,
            Operation::Get | Operation::Delete | Operation::Increment(_) => false,
        }
    }

    /// Whether the operation changes nothing.
    pub fn is_read(&self) -> bool {
        match self {
            Operation::Get => true,
            Operation::Compute(Compute(change)) => change.kind() == ChangeKind::Read,
            Operation::Put(_) | Operation::Delete | Operation::Flush | Operation::Increment(_) => {
                false
            }
        }
    }
}

/// A driver's computation on a key. With it this crate executes all commands of the store without
/// knowing them.
pub trait Change: Send + Sync {
    /// Computes the key's new state at `version` from its present one, newest write first. May be
    /// called more than once; the last result counts. The computation itself must check for expired
    /// entries.
    fn compute(&self, current: Option<&Entry>, version: Version) -> Changed;

    /// The kind of effects that it may have.
    fn kind(&self) -> ChangeKind;

    /// The booking of the last result's memory: the node holds it until that write has ended.
    fn hold(&self) -> Hold {
        Hold::default()
    }
}

/// Memory that a driver has booked; the booking is dropped together with the memory.
#[derive(Clone, Default)]
pub struct Hold {
    _booked: Option<Arc<dyn Any + Send + Sync>>,
}

impl Hold {
    /// Wraps a driver's own booking.
    pub fn new(booked: impl Any + Send + Sync) -> Hold {
        Hold { _booked: Some(Arc::new(booked)) }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hold")
    }
}

/// Holds compare equal: a booking is no part of a message's contents.
impl PartialEq for Hold {
    fn eq(&self, _other: &Hold) -> bool {
        true
    }
}

impl Eq for Hold {}

/// The kind of effects that a [`Change`] may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A read: it always returns [`Changed::Nothing`].
    Read,
    /// A write that is independent of the present value, so the node does not look it up.
    Blind,
    /// Any effect.
    Update,
}

/// The result of a [`Change`]: the key's new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Unchanged.
    Nothing,
    /// Unchanged for now, because there is no memory to build a new value in. The request must be
    /// retried.
    NoRoom,
    /// The key is deleted.
    Deleted,
    /// The key gets a new value.
    Value {
        /// The bytes.
        value: Arc<[u8]>,
        /// The client's flags.
        client_flags: u64,
        /// The time at which the value expires.
        expires_at: Option<UnixMillis>,
    },
}

/// A shared [`Change`].
#[derive(Clone)]
pub struct Compute(pub Arc<dyn Change>);

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compute")
    }
}

impl PartialEq for Compute {
    fn eq(&self, other: &Compute) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Compute {}

/// One request of a client. A request that writes is executed once, however often it is sent (K24).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client.
    pub client: ClientId,
    /// The request's sequence number: higher with each request of the client.
    pub sequence: u64,
    /// The key.
    pub key: Arc<[u8]>,
    /// The operation.
    pub operation: Operation,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A read's value; none if the key does not exist.
    Value(Option<Arc<[u8]>>),
    /// The operation was done.
    Done,
    /// The new number.
    Integer(i64),
    /// Whether there was a key to delete.
    Deleted(bool),
    /// The value is no number, or the sum does not fit.
    NotAnInteger,
    /// The [`Change`] itself has the result.
    Computed,
    /// The request was under way when this node ceased to answer for the shard: it may or may not
    /// take effect.
    Unknown,
    /// This node does not serve the shard; the configuration says which node does.
    Elsewhere(Option<Arc<Configuration>>),
    /// The request cannot be served now: a change is under way, or too much is waiting.
    TryAgain,
    /// Fewer complete copies than `--min-copies`: writes are refused (K23).
    TooFewCopies,
}

/// Data passed between copies of a shard: entries, and the last answers to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The newest entry of each key, deletes among them (K2).
    pub entries: Vec<Arc<Entry>>,
    /// The last answer to each client (K24).
    pub sessions: Vec<(ClientId, Answer)>,
}

impl Contents {
    /// The total length of its keys and values.
    pub fn len_bytes(&self) -> u64 {
        let of =
            |entry: &Arc<Entry>| entry.key.len() + entry.value.as_ref().map_or(0, |it| it.len());
        self.entries.iter().map(of).sum::<usize>() as u64
    }
}

/// The last write of a client that a shard has executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request's sequence number.
    pub sequence: u64,
    /// The version of the shard that the write became.
    pub version: Version,
    /// The outcome that the client was told.
    pub outcome: Outcome,
}

/// A primary's request counts for one of its shards since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardStatistics {
    /// The shard.
    pub shard: ShardId,
    /// Requests that change nothing.
    pub reads: u64,
    /// Requests that change something: each is landed at every copy.
    pub writes: u64,
    /// The total length of their keys and values.
    pub bytes: u64,
    /// The number of entries in the shard now; 0 if that is not known.
    pub entries: u64,
    /// How many of these entries the joining node, or a filling primary, has received.
    pub copied: u64,
}

/// One message of the control path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Node to managers: a sign of life, and a request to extend the lease.
    Lease {
        /// The time of sending, on the node's clock.
        sent_at: Instant,
        /// The term that the node has installed.
        term: Term,
        /// The data that the node started with.
        recovered: Recovered,
        /// The node's addresses.
        addresses: Arc<Addresses>,
    },
    /// Manager to node: a lease, counted from the time of its request.
    Granted {
        /// The time in the request, on the node's clock.
        sent_at: Instant,
        /// The configuration under which it is granted.
        term: Term,
        /// Whether that configuration is committed.
        is_committed: bool,
    },
    /// Node to managers: I shall shut down. Move the shards that I serve to other nodes, then my
    /// other roles.
    Ending {
        /// Whether no client waits for an answer from the node any more, and it serves nothing.
        is_settled: bool,
    },
    /// Manager to node: no more of your roles can move to other nodes.
    Ended,
    /// Manager to node: cache this configuration, block requests, fence, answer.
    Install(Arc<Configuration>),
    /// Node to manager: the configuration is installed.
    Installed {
        /// The installed term.
        term: Term,
    },
    /// Manager to node: serve.
    Commit {
        /// The term of the configuration that all members have installed.
        term: Term,
    },
    /// Primary to managers: the joining node has all data of the shard.
    Joined {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The joining node.
        node: NodeId,
    },
    /// Primary to managers: I have all data of the shard myself now.
    Filled {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
    },
    /// Primary to managers: all present copies are alike, and I have not served for long, because
    /// waiting copies may lack entries that I would show.
    Withheld {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
    },
    /// Primary to managers: for long this node has not taken what I sent it for the shard, and
    /// either I hear nothing of it or it has no room. Or I fill from it, and it has not sent what I
    /// asked for.
    Overdue {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The overdue node.
        node: NodeId,
    },
    /// Backup to primary: these blocks are as safe here as the durability setting requires (K21).
    Acked {
        /// The term of the configuration.
        term: Term,
        /// The blocks.
        blocks: Vec<BlockId>,
    },
    /// Backup to primary: I have no room for entries that have landed for this shard.
    Crowded {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
    },
    /// New primary to its backups: which entries do you have that may not be on all copies?
    Gather {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
    },
    /// Backup to new primary: the answer to [`Message::Gather`].
    Gathered {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// All data that the backup does not know to be on all copies.
        contents: Contents,
    },
    /// New primary to its backups: the data that all copies must have.
    Scatter {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The union of the gathered data.
        contents: Contents,
    },
    /// Backup to new primary: all data of the [`Message::Scatter`] is here.
    Scattered {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
    },
    /// A full copy to one that is not full: a part of the shard.
    Copy {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The part's number, from 0.
        part: u64,
        /// The part's data.
        contents: Contents,
        /// The cursor of the next part, to be returned unchanged; none: this is the last part.
        next: Option<u64>,
    },
    /// Receiver of a [`Message::Copy`] to its sender: the part is here.
    Copied {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The part's number.
        part: u64,
    },
    /// A filling primary to its source: send me this key at once, if you have it.
    Fetch {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The key.
        key: Arc<[u8]>,
    },
    /// The source's answer to [`Message::Fetch`].
    Fetched {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The key.
        key: Arc<[u8]>,
        /// The key's entry at the source, if there is one.
        entry: Option<Arc<Entry>>,
    },
    /// A filling primary to its source: send me the part that begins here.
    Pull {
        /// The term of the configuration.
        term: Term,
        /// The shard.
        shard: ShardId,
        /// The part's number, from 0.
        part: u64,
        /// The cursor that the previous part named; 0 for the first part.
        cursor: u64,
    },
    /// Node to managers, every 500 ms: the request counts of the shards that it serves (Rowan-KV
    /// §4.6).
    Statistics {
        /// The term of the configuration.
        term: Term,
        /// The time since its last report.
        window_ns: u64,
        /// The counts of each shard that received requests or is being copied.
        shards: Vec<ShardStatistics>,
    },
    /// Client to node.
    Request(Request),
    /// Node to client.
    Reply {
        /// The request's sequence number.
        sequence: u64,
        /// The request's outcome.
        outcome: Outcome,
    },
    /// Driver to driver, bypassing the nodes: a client's request in the drivers' own byte format.
    Forward {
        /// An id that the answer repeats.
        id: u64,
        /// The request.
        bytes: Arc<[u8]>,
    },
    /// The answer to [`Message::Forward`].
    Forwarded {
        /// The request's id.
        id: u64,
        /// The reply; none if the request was not executed because the shard is not served there.
        bytes: Option<Arc<[u8]>>,
    },
    /// Client to manager or node: send me the configuration.
    AskConfiguration,
    /// The answer to [`Message::AskConfiguration`].
    Configuration(Arc<Configuration>),
}

impl Message {
    /// The total length of the keys and values in the message.
    pub fn len_bytes(&self) -> u64 {
        match self {
            Message::Forward { bytes, .. } => bytes.len() as u64,
            Message::Forwarded { bytes, .. } => bytes.as_ref().map_or(0, |it| it.len()) as u64,
            Message::Gathered { contents, .. }
            | Message::Scatter { contents, .. }
            | Message::Copy { contents, .. } => contents.len_bytes(),
            Message::Fetched { entry: Some(entry), .. } => {
                (entry.key.len() + entry.value.as_ref().map_or(0, |it| it.len())) as u64
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_anew_behind_damage_has_nothing_of_the_lives_before() {
        let whole = [(ShardId(0), 2)].into();
        let recovered = Recovered::Damaged { incarnation: 3, whole };
        let has = |shard, incarnation| recovered.has_all(ShardId(shard), incarnation);
        assert_eq!([has(0, 1), has(0, 2), has(0, 3), has(0, 4)], [false, true, true, false]);
        assert!(!has(1, 2));
    }
}
