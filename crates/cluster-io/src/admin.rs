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

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Question {
    /// How the cluster is.
    Status,
    /// That a node serves a shard.
    Move {
        /// Which shard.
        shard: u16,
        /// `n3`, or where it is reached.
        node: String,
    },
    /// That a node can be stopped, or need not be any more.
    Drain {
        /// `n3`, or where it is reached.
        node: String,
        /// Whether it is to leave.
        leaves: bool,
    },
    /// That shards whose last copies are gone are served again, with nothing in them.
    Abandon {
        /// Which; none: all of which no copy can come back.
        shards: Vec<u16>,
        /// Also where servers are away that may have a copy.
        is_forced: bool,
    },
    /// That nothing moves and no copies are made by themselves, or do again.
    Pause {
        /// Whether it pauses.
        is_paused: bool,
    },
}

/// What the manager says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To `Status`.
    Status(Report),
    /// It will be so: one line.
    Done(String),
    /// It will not, and why: one line.
    Refused(String),
}

/// How a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// The configuration's.
    pub term: u64,
    /// Whether all members serve under it.
    pub is_committed: bool,
    /// Whether an operator paused what the manager does by itself.
    pub is_paused: bool,
    /// How many copies shards should have.
    pub copies: u8,
    /// Moves that wait for their turn.
    pub moves_waiting: usize,
    /// Members.
    pub nodes: Vec<NodeReport>,
    /// In order of their slots.
    pub shards: Vec<ShardReport>,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// As `n3.1`: its name and its incarnation.
    pub node: String,
    /// Where peers reach it.
    pub peer: String,
    /// What clients are told.
    pub host: String,
    /// Port of RESP; 0 is off.
    pub resp: u16,
    /// Shards that it serves.
    pub primaries: usize,
    /// Shards that it has all of besides.
    pub backups: usize,
    /// Shards that it is being given.
    pub joining: usize,
    /// Whether an operator wants to stop it.
    pub leaves: bool,
    /// Whether it can be stopped without any shard noticing.
    pub may_stop: bool,
    /// That it was asked in a second.
    pub requests_per_s: f64,
}

/// A shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardReport {
    /// Its position.
    pub shard: u16,
    /// Its slots.
    pub slots: (u16, u16),
    /// How many primaries it has had.
    pub epoch: u16,
    /// The node that serves it.
    pub primary: String,
    /// Whether that is a member, and heard.
    pub is_served: bool,
    /// Whether no server that is heard has all of it.
    #[serde(default)]
    pub is_lost: bool,
    /// Of a lost one: servers that are away and may still have it.
    #[serde(default)]
    pub away: Vec<String>,
    /// The other nodes that have all of it.
    pub backups: Vec<String>,
    /// The node that is being given it.
    pub joining: Option<String>,
    /// The node that its primary fills from.
    pub filling_from: Option<String>,
    /// Members that have all of it.
    pub full_copies: usize,
    /// Keys, as its primary last said.
    pub entries: u64,
    /// Of these, what is copied by now, where a copy is under way.
    pub copied: u64,
    /// Until that copy is whole, in seconds, by how fast it was.
    pub left_s: Option<f64>,
    /// That it was asked in a second.
    pub requests_per_s: f64,
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// The config store does not answer, or has no cluster.
    #[error("{line}")]
    ConfigStore {
        /// Why.
        line: String,
    },
    /// No manager claims to lead.
    #[error("no manager leads this cluster: start `dovetail cm --config-store {place}`")]
    NoLeader {
        /// Where it was looked.
        place: String,
    },
    /// It says nothing.
    #[error("the leading manager at {leader} does not answer: is it reached from here?")]
    Silent {
        /// Where it was asked.
        leader: String,
    },
    /// The system gives no thread.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// The time for an answer after which the question is sent again: another may lead by then.
const AGAIN: Duration = Duration::from_millis(500);

/// Asks the manager that leads; within `time`.
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
        // D1: settings are told before any leader is.
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
    // Numbers and short words: there is nothing in it that JSON cannot say.
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
