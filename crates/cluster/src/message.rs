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

/// What landed frames come on: one per sender and term (K22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// Whose.
    pub from: NodeId,
    /// The configuration under which it was opened.
    pub term: Term,
}

/// What a node found on its medium when it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Nothing that anyone may rely on.
    Nothing,
    /// All that the node's incarnations from one on had acknowledged.
    Whole {
        /// The incarnation that began the medium, ...
        since: u32,
        /// ... and the last one.
        incarnation: u32,
    },
    /// Some of it: damage was found.
    Damaged {
        /// Which incarnation it was of.
        incarnation: u32,
        /// Shards that began anew behind the damage, and in which incarnation: these are whole
        /// since then.
        whole: Arc<[(ShardId, u32)]>,
    },
}

impl Recovered {
    /// Whether it has all of the shard that this incarnation had acknowledged: its own or a later
    /// one's.
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

/// What a client wants done with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The value.
    Get,
    /// To replace it.
    Put(Arc<[u8]>),
    /// To remove it; the reply says whether it was there.
    Delete,
    /// To remove all keys of its shard.
    Flush,
    /// To add to a number; the reply is the sum.
    Increment(i64),
    /// Whatever its maker computes; only within a process, it has no bytes.
    Compute(Compute),
}

impl Operation {
    /// Whether what the key has makes no difference.
    pub fn is_blind(&self) -> bool {
        match self {
            Operation::Put(_) | Operation::Flush => true,
            Operation::Compute(Compute(change)) => change.kind() == ChangeKind::Blind,
            Operation::Get | Operation::Delete | Operation::Increment(_) => false,
        }
    }

    /// Whether it changes nothing.
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

/// What a driver makes of a key: all commands that the store knows, without this crate knowing
/// them.
pub trait Change: Send + Sync {
    /// From what the key has, newest write first, to what it shall have at `version`. May be asked
    /// more than once; the last answer counts. Entries that have expired are its to see.
    fn compute(&self, current: Option<&Entry>, version: Version) -> Changed;

    /// What it may do.
    fn kind(&self) -> ChangeKind;

    /// What keeps the books of the last answer: the node holds it until that write has ended.
    fn hold(&self) -> Hold {
        Hold::default()
    }
}

/// Memory that a driver has booked: dropped together with what it was booked for.
#[derive(Clone, Default)]
pub struct Hold {
    _booked: Option<Arc<dyn Any + Send + Sync>>,
}

impl Hold {
    /// Of what a driver keeps its books by.
    pub fn new(booked: impl Any + Send + Sync) -> Hold {
        Hold { _booked: Some(Arc::new(booked)) }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hold")
    }
}

/// What is booked is no part of what is said.
impl PartialEq for Hold {
    fn eq(&self, _other: &Hold) -> bool {
        true
    }
}

impl Eq for Hold {}

/// What a [`Change`] may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It always answers [`Changed::Nothing`].
    Read,
    /// What is there makes no difference, and is not looked for.
    Blind,
    /// Anything.
    Update,
}

/// What a key shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// What it has.
    Nothing,
    /// What it has, for now: there is no memory to make anything else in. It is to be asked again.
    NoRoom,
    /// No value.
    Deleted,
    /// This.
    Value {
        /// The bytes.
        value: Arc<[u8]>,
        /// The client's.
        client_flags: u64,
        /// When that ends.
        expires_at: Option<UnixMillis>,
    },
}

/// A [`Change`] that is passed around.
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

/// One request of a client. One that writes is executed once, however often it is sent (K24).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose.
    pub client: ClientId,
    /// Higher with each request of the client.
    pub sequence: u64,
    /// Of what.
    pub key: Arc<[u8]>,
    /// What.
    pub operation: Operation,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A read.
    Value(Option<Arc<[u8]>>),
    /// Done.
    Done,
    /// The new number.
    Integer(i64),
    /// Whether there was anything to delete.
    Deleted(bool),
    /// The value is no number, or the sum does not fit.
    NotAnInteger,
    /// As the [`Change`] knows.
    Computed,
    /// It was under way when this node ceased to answer for the shard: it may take effect or not.
    Unknown,
    /// Not here: the configuration says where.
    Elsewhere(Option<Arc<Configuration>>),
    /// Not now: a change is under way, or too much is waiting.
    TryAgain,
    /// Fewer complete copies than `--min-copies`: writes are refused (K23).
    TooFewCopies,
}

/// What is passed between copies of a shard: entries, and what clients were last answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The newest of each key, deletes among them (K2).
    pub entries: Vec<Arc<Entry>>,
    /// Of each client (K24).
    pub sessions: Vec<(ClientId, Answer)>,
}

impl Contents {
    /// Of its keys and values.
    pub fn len_bytes(&self) -> u64 {
        let of =
            |entry: &Arc<Entry>| entry.key.len() + entry.value.as_ref().map_or(0, |it| it.len());
        self.entries.iter().map(of).sum::<usize>() as u64
    }
}

/// The last write of a client that a shard has executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which request it was.
    pub sequence: u64,
    /// Which write of the shard it became.
    pub version: Version,
    /// What the client was told.
    pub outcome: Outcome,
}

/// What a primary was asked of one of its shards since it last told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardStatistics {
    /// Which.
    pub shard: ShardId,
    /// Requests that change nothing.
    pub reads: u64,
    /// Requests that change something: each is landed at every copy.
    pub writes: u64,
    /// Of their keys and values.
    pub bytes: u64,
    /// What the shard holds now; 0 if that is not known.
    pub entries: u64,
    /// Of these, what the joining node, or a primary that is filling, has got.
    pub copied: u64,
}

/// One message of the control path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Node to managers: I live, and want to go on serving.
    Lease {
        /// On the node's clock.
        sent_at: Instant,
        /// What it has installed.
        term: Term,
        /// What it started with.
        recovered: Recovered,
        /// Where it is reached.
        addresses: Arc<Addresses>,
    },
    /// Manager to node: a lease that counts from when it was asked for.
    Granted {
        /// As asked, on the node's clock.
        sent_at: Instant,
        /// The configuration under which it is granted.
        term: Term,
        /// Whether that one is committed.
        is_committed: bool,
    },
    /// Node to managers: I shall end. What I serve is to go to others, then all that I have.
    Ending {
        /// No client waits for an answer of mine any more, and I serve nothing.
        is_settled: bool,
    },
    /// Manager to node: nothing more of what is yours can go to others.
    Ended,
    /// Manager to node: cache this configuration, block requests, fence, answer.
    Install(Arc<Configuration>),
    /// Node to manager: done.
    Installed {
        /// Which.
        term: Term,
    },
    /// Manager to node: serve.
    Commit {
        /// Which configuration everyone has installed.
        term: Term,
    },
    /// Primary to managers: the joining node has all of the shard.
    Joined {
        /// Under which configuration.
        term: Term,
        /// Which shard.
        shard: ShardId,
        /// The node.
        node: NodeId,
    },
    /// Primary to managers: I have all of the shard myself now.
    Filled {
        /// Under which configuration.
        term: Term,
        /// Which shard.
        shard: ShardId,
    },
    /// Primary to managers: all that are here are alike, and I have not served for long, for copies
    /// wait that may lack what I would show.
    Withheld {
        /// Under which configuration.
        term: Term,
        /// Which shard.
        shard: ShardId,
    },
    /// Primary to managers: this node, which I hear nothing of or which has no room, has not taken
    /// for long what I sent it for the shard; or, if I fill from it, not sent what I asked for.
    Overdue {
        /// Under which configuration.
        term: Term,
        /// Which shard.
        shard: ShardId,
        /// The node.
        node: NodeId,
    },
    /// Backup to primary: these blocks are as safe here as the durability asks for (K21).
    Acked {
        /// Under which configuration.
        term: Term,
        /// Which.
        blocks: Vec<BlockId>,
    },
    /// Backup to primary: I have no room for what has landed of this shard.
    Crowded {
        /// Under which configuration.
        term: Term,
        /// Which shard.
        shard: ShardId,
    },
    /// New primary to its backups: what have you got?
    Gather {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
    },
    /// The answer.
    Gathered {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// All that it does not know to be on all copies.
        contents: Contents,
    },
    /// New primary to its backups: this is what all copies are to have.
    Scatter {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// The union of what was gathered.
        contents: Contents,
    },
    /// The answer: it is all here.
    Scattered {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
    },
    /// A full copy to one that is not: a part of the shard.
    Copy {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// Which part, from 0.
        part: u64,
        /// What.
        contents: Contents,
        /// Where the next part begins, to be asked for as it is; none: this is the last.
        next: Option<u64>,
    },
    /// The answer.
    Copied {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// Which part.
        part: u64,
    },
    /// A filling primary to its source: send me this key at once, if you have it.
    Fetch {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// Which.
        key: Arc<[u8]>,
    },
    /// The answer.
    Fetched {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// Which.
        key: Arc<[u8]>,
        /// What was there.
        entry: Option<Arc<Entry>>,
    },
    /// A filling primary to its source: send me the part that begins here.
    Pull {
        /// Under which configuration.
        term: Term,
        /// Of which shard.
        shard: ShardId,
        /// Which part, from 0.
        part: u64,
        /// As the part before it said; 0 for the first one.
        cursor: u64,
    },
    /// Node to managers, every 500 ms: what the shards that it serves were asked (Rowan-KV §4.6).
    Statistics {
        /// Under which configuration.
        term: Term,
        /// The time since it last told.
        window_ns: u64,
        /// Of each shard that was asked anything, or is being copied.
        shards: Vec<ShardStatistics>,
    },
    /// Client to node.
    Request(Request),
    /// Node to client.
    Reply {
        /// Of the request.
        sequence: u64,
        /// What came of it.
        outcome: Outcome,
    },
    /// Driver to driver, past the nodes: a client's request in the drivers' own bytes.
    Forward {
        /// Comes back with the answer.
        id: u64,
        /// What was asked.
        bytes: Arc<[u8]>,
    },
    /// The answer.
    Forwarded {
        /// As asked.
        id: u64,
        /// The reply; none: it was not executed, for the shard is not served there.
        bytes: Option<Arc<[u8]>>,
    },
    /// Client to manager or node: where is what?
    AskConfiguration,
    /// The answer.
    Configuration(Arc<Configuration>),
}

impl Message {
    /// Of the keys and values in it.
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
