//! The operators' interface: their requests to the leading manager and its answers, as JSON over a
//! link.
//!
//! ```text
//!  dovetail cluster ─▶ config store: settings (the key), leader ────▶ link ─▶ manager's thread
//!                   ◀──────────────────────── report, done or refused ◀──┘
//! ```

use std::time::{Duration, Instant};

use cluster::{ClientId, Peer};
use crossbeam_channel::{Receiver, unbounded};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config_store::Place;
use crate::discover::{Discovery, Found};
use crate::key::random_bytes;
use crate::links::{Endpoint, LinkEvent, Links};

/// An operator's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Question {
    /// Reports the state of the cluster.
    Status,
    /// Moves the serving of a shard to a node.
    Move {
        /// The shard.
        shard: u16,
        /// The node: `n3`, or its address.
        node: String,
    },
    /// Drains a node so that it can be stopped, or cancels that.
    Drain {
        /// The node: `n3`, or its address.
        node: String,
        /// Whether it is to leave.
        leaves: bool,
    },
    /// Serves again, empty, shards whose last copies are gone.
    Abandon {
        /// The shards; none: all those of which no copy can come back.
        shards: Vec<u16>,
        /// Whether to do so even while servers are away that may have a copy.
        is_forced: bool,
    },
    /// Pauses automatic moves and copies, or resumes them.
    Pause {
        /// Whether to pause.
        is_paused: bool,
    },
}

/// The manager's reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The reply to `Status`.
    Status(Report),
    /// The request is accepted: one line.
    Done(String),
    /// The request is refused, and why: one line.
    Refused(String),
}

/// The state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The cluster's name.
    pub name: String,
    /// The configuration's term.
    pub term: u64,
    /// Whether all members serve under it.
    pub is_committed: bool,
    /// Whether an operator paused the manager's automatic actions.
    pub is_paused: bool,
    /// The number of copies that shards should have.
    pub copies: u8,
    /// Moves that wait for their turn.
    pub moves_waiting: usize,
    /// The members.
    pub nodes: Vec<NodeReport>,
    /// The shards, in order of their slots.
    pub shards: Vec<ShardReport>,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// As `n3.1`: its name and its incarnation.
    pub node: String,
    /// The address for peers.
    pub peer: String,
    /// The host name that clients are given.
    pub host: String,
    /// Port of RESP; 0 is off.
    pub resp: u16,
    /// Shards of which it is primary.
    pub primaries: usize,
    /// Other shards of which it has all data.
    pub backups: usize,
    /// Shards that it is being sent.
    pub joining: usize,
    /// Whether an operator wants to stop it.
    pub leaves: bool,
    /// Whether it can be stopped without any effect on a shard.
    pub may_stop: bool,
    /// Requests to it per second.
    pub requests_per_s: f64,
}

/// A shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardReport {
    /// The shard's id.
    pub shard: u16,
    /// Its slots.
    pub slots: (u16, u16),
    /// The number of primaries it has had.
    pub epoch: u16,
    /// The primary.
    pub primary: String,
    /// Whether the primary is a member and heard from.
    pub is_served: bool,
    /// Whether no server that is heard from has all of it.
    #[serde(default)]
    pub is_lost: bool,
    /// If it is lost: servers that are away and may still have it.
    #[serde(default)]
    pub away: Vec<String>,
    /// The other nodes that have all of it.
    pub backups: Vec<String>,
    /// The node that is being sent the shard.
    pub joining: Option<String>,
    /// The node that its primary fills from.
    pub filling_from: Option<String>,
    /// Members that have all of it.
    pub full_copies: usize,
    /// The number of keys, as its primary last reported.
    pub entries: u64,
    /// How many of these are copied so far, if a copy is under way.
    pub copied: u64,
    /// The estimated time until that copy is complete, in seconds, by its speed so far.
    pub left_s: Option<f64>,
    /// Requests to it per second.
    pub requests_per_s: f64,
}

/// The reason why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The config store does not answer, or has no cluster.
    #[error("{line}")]
    ConfigStore {
        /// The reason.
        line: String,
    },
    /// No manager claims to lead.
    #[error("no manager leads this cluster: start `dovetail cm --config-store {place}`")]
    NoLeader {
        /// The config store's address.
        place: String,
    },
    /// The leading manager does not answer.
    #[error("the leading manager at {leader} does not answer: is it reached from here?")]
    Silent {
        /// The leader's address.
        leader: String,
    },
    /// The operating system provides no thread.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The time after which an unanswered request is sent again: another manager may lead by then.
const AGAIN: Duration = Duration::from_millis(500);

/// Sends a request to the leading manager; waits for the reply up to `time`.
///
/// # Errors
/// If no manager answers.
pub fn ask(place: &Place, question: &Question, time: Duration) -> Result<Reply, AskError> {
    let until = Instant::now() + time;
    let (told, found) = unbounded();
    let _discovery = Discovery::start(place, move |one| drop(told.send(one)))?;
    let mut trouble = None;
    let mut stored = None;
    let mut leader = None;
    while leader.is_none() {
        match found.recv_deadline(until) {
            Ok(Found::Settings(settings)) => stored = Some(settings),
            Ok(Found::Leader(address)) => leader = address,
            Ok(Found::Trouble(line)) => trouble = Some(line),
            Err(_) => {
                let place = place.to_string();
                return Err(match (stored, trouble) {
                    (None, Some(line)) => AskError::ConfigStore { line },
                    (None, None) => {
                        AskError::ConfigStore { line: format!("{place} does not answer") }
                    }
                    (Some(_), _) => AskError::NoLeader { place },
                });
            }
        }
    }
    let (Some(stored), Some(leader)) = (stored, leader) else {
        // D1: the settings are reported before any leader is.
        return Err(AskError::NoLeader { place: place.to_string() });
    };
    let (told, events) = unbounded();
    let own = Peer::Client(ClientId(u64::from_le_bytes(
        *random_bytes()?.first_chunk().unwrap_or(&[0; 8]),
    )));
    let links = Links::start(own, None, stored.key.clone(), told, || {})?;
    converse(&links, &events, &found, leader, question, until)
}

fn converse(
    links: &Links,
    events: &Receiver<LinkEvent>,
    found: &Receiver<Found>,
    mut leader: String,
    question: &Question,
    until: Instant,
) -> Result<Reply, AskError> {
    // The request has only numbers and short words, which JSON can always represent.
    let bytes = serde_json::to_vec(question).unwrap_or_default();
    while Instant::now() < until {
        if let Some(Found::Leader(Some(address))) = found.try_iter().last() {
            leader = address;
        }
        links.ask(&Endpoint::address(&leader), 1, bytes.clone());
        let again = until.min(Instant::now() + AGAIN);
        if let Ok(LinkEvent::Answer { bytes, .. }) = events.recv_deadline(again)
            && let Ok(reply) = serde_json::from_slice(&bytes)
        {
            return Ok(reply);
        }
    }
    Err(AskError::Silent { leader })
}
