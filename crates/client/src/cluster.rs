//! A client of a whole cluster: keeps a map from slots to servers, and learns it from their
//! answers.
//!
//! ```text
//!  key ─ slot ─▶ map: a server ─▶ ask ─┬─▶ answered
//!   ▲                                  ├─▶ moved: slots and address into the map ──────┐
//!   │                                  └─▶ no answer, nothing changed: forget it, rest ┤
//!   └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! # Invariants
//! C1: a request is sent again only if it certainly was not executed, or if it changes nothing. A
//!     write whose outcome is unknown ends as [`RequestError::Unknown`], as with one server.
//! C2: no request takes longer than [`ClusterConfig::patience`] plus the timeout of one attempt.
//! C3: information from an older configuration does not replace that of a newer one, unless the
//!     server that the newer one named was forgotten.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base::slot::{SLOT_COUNT, Slot};
use wire::native::{Moved, Op, Status, Want};

use crate::blocking::{
    Client, ClientError, SetOptions, Written, done_or_missing, found_or_missing, number, stored,
    written,
};
use crate::config::Config;
use crate::engine::Answer;
use crate::error::RequestError;
use crate::target::{BadTarget, Target};

/// The first pause after a failure; it doubles up to [`REST_MAX`].
const REST_FIRST: Duration = Duration::from_millis(2);
/// The longest pause.
const REST_MAX: Duration = Duration::from_millis(100);
/// Redirects in a row after which the map counts as unsettled and the client pauses.
const MOVES_IN_A_ROW_MAX: u32 = 3;

/// The configuration of a client of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The configuration of each connection; its timeout is that of one attempt. If it is shorter
    /// than a failover, writes that a server holds back until it serves end as unknown.
    pub connection: Config,
    /// How long a request that was not executed is retried: a failover takes a few leases.
    pub patience: Duration,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig { connection: Config::default(), patience: Duration::from_secs(10) }
    }
}

/// The server of a slot, as far as the client knows.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Its position among the servers.
    server: Option<u16>,
    term: u64,
}

/// A client of a cluster, whose calls block until the answer.
#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    /// All servers ever learned, as HOST:PORT.
    servers: Vec<String>,
    connections: HashMap<u16, Client>,
    slots: Box<[Known]>,
    /// The server to ask next for a slot whose server is unknown.
    next: usize,
}

/// The effect of an answer.
enum Asked<T> {
    Answered(T),
    /// Whether the map has learned something.
    Moved(bool),
}

impl Cluster {
    /// A client of the cluster of these servers; one live server is enough. It sends nothing before
    /// the first request.
    ///
    /// # Errors
    /// A target is not a `native://HOST:PORT`: other servers can only be reached over the network.
    pub fn new(targets: &[&str], config: ClusterConfig) -> Result<Cluster, ClientError> {
        let mut servers = Vec::new();
        for text in targets {
            match text.parse()? {
                Target::Udp(address) => servers.push(address),
                Target::Shm(_) => return Err(BadTarget::of(text).into()),
            }
        }
        if servers.is_empty() {
            return Err(BadTarget::of("").into());
        }
        let slots = vec![Known::default(); usize::from(SLOT_COUNT)].into();
        Ok(Cluster { config, servers, connections: HashMap::new(), slots, next: 0 })
    }

    /// Sends the request to the server that has the key, and passes the answer to a closure.
    ///
    /// # Errors
    /// The request's own error, or the last one if no server executed it within the patience.
    pub fn ask<T>(
        &mut self,
        op: &Op<'_>,
        want: Want,
        mut take: impl FnMut(&Answer<'_>) -> T,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + self.config.patience;
        let slot = op.key().map(Slot::of);
        let (mut rest, mut moves) = (REST_FIRST, 0);
        loop {
            let server = self.server_of(slot);
            let failed = match self.ask_at(server, op, want, &mut take) {
                Ok(Asked::Answered(answer)) => return Ok(answer),
                Ok(Asked::Moved(is_news)) => {
                    moves += 1;
                    if is_news && moves <= MOVES_IN_A_ROW_MAX {
                        continue;
                    }
                    ClientError::Refused(Status::Moved)
                }
                Err(error) if !is_unexecuted(&error, op) => return Err(error),
                Err(error) => {
                    self.forget(server);
                    error
                }
            };
            if Instant::now() >= deadline {
                return Err(failed); // C2
            }
            std::thread::sleep(rest);
            (rest, moves) = ((rest * 2).min(REST_MAX), 0);
        }
    }

    fn server_of(&mut self, slot: Option<Slot>) -> u16 {
        let known = slot.and_then(|slot| self.slots[usize::from(slot.0)].server);
        known.unwrap_or_else(|| {
            self.next = (self.next + 1) % self.servers.len();
            self.next as u16
        })
    }

    fn connection(&mut self, server: u16) -> Result<&mut Client, ClientError> {
        if !self.connections.contains_key(&server) {
            let target = format!("native://{}", self.servers[usize::from(server)]);
            let client = Client::connect_with(&target, self.config.connection.clone())?;
            self.connections.insert(server, client);
        }
        self.connections.get_mut(&server).ok_or(ClientError::Refused(Status::Moved))
    }

    fn ask_at<T>(
        &mut self,
        server: u16,
        op: &Op<'_>,
        want: Want,
        take: &mut impl FnMut(&Answer<'_>) -> T,
    ) -> Result<Asked<T>, ClientError> {
        let mut place = None;
        let answer = self.connection(server)?.ask(op, want, |answer| match answer.status {
            Status::Moved => {
                place = Some(answer.value.to_vec());
                None
            }
            _ => Some(take(answer)),
        })?;
        Ok(match answer {
            Some(answer) => Asked::Answered(answer),
            None => {
                let place = place.as_deref().and_then(Moved::parse);
                let slot = op.key().map(Slot::of).filter(|_| place.is_none());
                // The server has no configuration, or the value came in parts: another server may
                // do better.
                slot.into_iter().for_each(|slot| self.slots[usize::from(slot.0)].server = None);
                Asked::Moved(place.is_some_and(|place| self.learn(&place)))
            }
        })
    }

    /// Stores the information unless it is older (C3); returns whether it is news.
    fn learn(&mut self, place: &Moved<'_>) -> bool {
        let server = place.address.and_then(|address| {
            let known = self.servers.iter().position(|server| server == address);
            let position = known.unwrap_or_else(|| {
                self.servers.push(address.to_owned());
                self.servers.len() - 1
            });
            u16::try_from(position).ok()
        });
        let mut is_news = false;
        for slot in place.first..=place.last {
            let known = &mut self.slots[usize::from(slot)];
            if known.term <= place.term || known.server.is_none() {
                is_news |= known.server != server && server.is_some();
                *known = Known { server, term: place.term };
            }
        }
        is_news
    }

    /// Forgets the slots of a server that does not answer: other servers are asked for them.
    fn forget(&mut self, server: u16) {
        self.connections.remove(&server);
        let of_server = self.slots.iter_mut().filter(|known| known.server == Some(server));
        of_server.for_each(|known| known.server = None);
    }

    /// The value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let op = Op::Get { key, touch: None };
        let found = self.ask(&op, Want::PLAIN, |answer| (answer.status, answer.value.to_vec()))?;
        found_or_missing(found)
    }

    /// The values of several keys, in order; keys of one server are read in one pipeline.
    pub fn mget(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut by_server: HashMap<u16, Vec<usize>> = HashMap::new();
        for (place, key) in keys.iter().enumerate() {
            let known = self.slots[usize::from(Slot::of(key).0)].server;
            let server = known.unwrap_or(self.next as u16);
            by_server.entry(server).or_default().push(place);
        }
        let mut values = vec![None; keys.len()];
        for (server, places) in by_server {
            let asked: Vec<&[u8]> = places.iter().map(|place| keys[*place]).collect();
            match self.connection(server).and_then(|client| client.mget(&asked)) {
                Ok(found) => {
                    places.iter().zip(found).for_each(|(place, value)| values[*place] = value);
                }
                // Some keys have moved, or the server does not answer: each key is read by itself.
                Err(_) => {
                    for place in places {
                        values[place] = self.get(keys[place])?;
                    }
                }
            }
        }
        Ok(values)
    }

    /// Stores a value without expiry or condition.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ClientError> {
        stored(self.set_with(key, value, SetOptions::default())?)
    }

    /// Stores a value with options.
    pub fn set_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: SetOptions,
    ) -> Result<Written, ClientError> {
        written(self.ask(&options.set(key, value), Want::PLAIN, |answer| answer.status)?)
    }

    /// Deletes a key; returns whether it existed.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        let op = Op::Delete { key, version: None };
        done_or_missing(self.ask(&op, Want::PLAIN, |answer| answer.status)?)
    }

    /// Adds to a number and returns the sum; an absent key counts as 0.
    pub fn incr(&mut self, key: &[u8], delta: i64) -> Result<i64, ClientError> {
        let op = Op::Incr { key, delta };
        number(self.ask(&op, Want::PLAIN, |answer| (answer.status, answer.number))?)
    }

    /// The number of servers ever learned.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }
}

/// Whether a request certainly was not executed, or may be executed again (C1).
fn is_unexecuted(error: &ClientError, op: &Op<'_>) -> bool {
    match error {
        ClientError::Connect(_) => true,
        ClientError::Request(RequestError::TimedOut | RequestError::Busy) => true,
        ClientError::Request(RequestError::NoSession(_)) | ClientError::System(_) => {
            !op.changes_data()
        }
        _ => false,
    }
}
