//! The blocking API: each call waits for its answer; a list of keys is sent as one pipeline.

use std::io;
use std::ops::Bound;
use std::time::Duration;

use base::UnixMillis;
use wire::native::{
    Condition, Direction, Expiry, ItemValue, Items, Op, Range, RangeItems, Set, Status, Want,
};

use crate::config::Config;
use crate::connection::Connection;
use crate::engine::{Answer, Token};
use crate::error::ConnectError;
use crate::error::{RequestError, SubmitError};
use crate::stats::Stats;
use crate::target::{BadTarget, Target};

/// The longest time for connecting.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// The reasons for which a call fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The target is invalid.
    #[error(transparent)]
    BadTarget(#[from] BadTarget),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request cannot be sent.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The request ended without an answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The server refused the request; nothing was changed.
    #[error("{}", status_words(*.0))]
    Refused(Status),
    /// The socket failed.
    #[error("the connection failed: {0}")]
    System(#[from] io::Error),
}

fn status_words(status: Status) -> &'static str {
    match status {
        Status::NotANumber => "the value is not an integer or out of range",
        Status::OutOfRange => "the sum would be no number of 64 bits",
        Status::TooLarge => "key or value is larger than the server takes",
        Status::OutOfMemory => "the server has no memory left",
        Status::Unsupported => "the server does not support the request",
        Status::Moved => "another server of the cluster has the key",
        Status::NoOrder => "the server keeps no order of keys; start it with --index tree",
        _ => "the server refused the request",
    }
}

/// The options of a write.
#[derive(Clone, Copy, Debug)]
pub struct SetOptions {
    /// When it expires.
    pub expiry: Expiry,
    /// The condition of the write.
    pub condition: Condition,
    /// Opaque to the server.
    pub client_flags: u32,
}

impl SetOptions {
    pub(crate) fn set<'a>(self, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        let SetOptions { expiry, condition, client_flags } = self;
        Op::Set(Set { key, value, client_flags, expiry, condition, part: None })
    }
}

impl Default for SetOptions {
    fn default() -> SetOptions {
        SetOptions { expiry: Expiry::Never, condition: Condition::Always, client_flags: 0 }
    }
}

/// An item as stored on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: Vec<u8>,
    /// Changes with each write; for [`Client::cas`].
    pub version: u64,
    /// As stored.
    pub client_flags: u32,
    /// When it expires.
    pub expires_at: Option<UnixMillis>,
}

/// One item of a range.
pub type KeyAndValue = (Vec<u8>, Vec<u8>);

/// The result of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The write was executed.
    Stored,
    /// The condition does not hold.
    NotStored,
    /// The item has another version.
    Changed,
    /// There is no item.
    Missing,
}

/// A client whose calls block until the answer.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Connects to `native://HOST:PORT` or `shm:PATH`.
    pub fn connect(target: &str) -> Result<Client, ClientError> {
        Client::connect_with(target, Config::default())
    }

    /// Connects with a configuration.
    pub fn connect_with(target: &str, config: Config) -> Result<Client, ClientError> {
        let target: Target = target.parse()?;
        let timeout = Duration::from_nanos(config.timeout_ns).min(CONNECT_TIMEOUT_MAX);
        Ok(Client { connection: Connection::open(&target, config, timeout)? })
    }

    /// The connection, for submitting and polling directly. No request may be outstanding when a
    /// blocking method is called next.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The counters so far.
    pub fn stats(&self) -> &Stats {
        self.connection.stats()
    }

    /// Sends one request and passes its answer to a closure.
    pub fn ask<T>(
        &mut self,
        op: &Op<'_>,
        want: Want,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, ClientError> {
        let token = self.connection.submit(op, want)?;
        loop {
            while let Some(completion) = self.connection.next_completion() {
                if completion.token == token {
                    return Ok(take(&completion.result?));
                }
            }
            self.connection.wait(None)?;
        }
    }

    /// The value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let op = Op::Get { key, touch: None };
        let found = self.ask(&op, Want::PLAIN, |answer| (answer.status, answer.value.to_vec()))?;
        found_or_missing(found)
    }

    /// The value of a key with its version, flags and expiry.
    pub fn get_item(&mut self, key: &[u8]) -> Result<Option<Item>, ClientError> {
        let want = Want::VERSION | Want::CLIENT_FLAGS | Want::EXPIRY;
        let found = self.ask(&Op::Get { key, touch: None }, want, |answer| {
            let item = Item {
                value: answer.value.to_vec(),
                version: answer.version.unwrap_or(0),
                client_flags: answer.client_flags,
                expires_at: answer.expires_at,
            };
            (answer.status, item)
        })?;
        found_or_missing(found)
    }

    /// The values of several keys, in order, read in one pipeline.
    pub fn mget(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let mut values = vec![None; keys.len()];
        let mut waiting: Vec<(Token, usize)> = Vec::new();
        let (mut next, mut failed) = (0, None);
        while next < keys.len() || !waiting.is_empty() {
            while next < keys.len() {
                let op = Op::Get { key: keys[next], touch: None };
                match self.connection.submit(&op, Want::PLAIN) {
                    Ok(token) => waiting.push((token, next)),
                    Err(SubmitError::Full) => break,
                    Err(error) => {
                        failed.get_or_insert(error.into());
                    }
                }
                next += 1;
            }
            // If no request is in flight, there is nothing to wait for.
            if !waiting.is_empty() {
                self.connection.wait(None)?;
            }
            while let Some(completion) = self.connection.next_completion() {
                let found = waiting.iter().position(|(token, _)| *token == completion.token);
                let Some(found) = found else { continue };
                let (_, place) = waiting.swap_remove(found);
                match completion.result.map(|answer| (answer.status, answer.value.to_vec())) {
                    Ok(found) => match found_or_missing(found) {
                        Ok(value) => values[place] = value,
                        Err(error) => failed = failed.or(Some(error)),
                    },
                    Err(error) => failed = failed.or(Some(error.into())),
                }
            }
        }
        failed.map_or(Ok(values), Err)
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

    /// Stores a value if the item still has this version.
    pub fn cas(&mut self, key: &[u8], value: &[u8], version: u64) -> Result<Written, ClientError> {
        let condition = Condition::IfVersion(version);
        self.set_with(key, value, SetOptions { condition, ..SetOptions::default() })
    }

    /// Deletes a key; returns whether it existed.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        let op = Op::Delete { key, version: None };
        done_or_missing(self.ask(&op, Want::PLAIN, |answer| answer.status)?)
    }

    /// Adds to a number and returns the sum; an absent key counts as 0.
    pub fn incr(&mut self, key: &[u8], delta: i64) -> Result<i64, ClientError> {
        self.ask_number(&Op::Incr { key, delta })
    }

    /// Subtracts.
    pub fn decr(&mut self, key: &[u8], delta: i64) -> Result<i64, ClientError> {
        let delta = delta.checked_neg().ok_or(ClientError::Refused(Status::OutOfRange))?;
        self.ask_number(&Op::Incr { key, delta })
    }

    /// Appends bytes to a value and returns its new length.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> Result<i64, ClientError> {
        self.ask_number(&Op::Append { key, value })
    }

    /// Prepends bytes to a value and returns its new length.
    pub fn prepend(&mut self, key: &[u8], value: &[u8]) -> Result<i64, ClientError> {
        self.ask_number(&Op::Prepend { key, value })
    }

    /// Sets the expiry of a key; returns whether the key exists.
    pub fn touch(&mut self, key: &[u8], expiry: Expiry) -> Result<bool, ClientError> {
        done_or_missing(self.ask(&Op::Touch { key, expiry }, Want::PLAIN, |answer| answer.status)?)
    }

    /// The items whose keys lie in a range, in order, at most `limit`. A value too long for a reply
    /// is read separately, so it may be newer than its neighbours.
    pub fn range(
        &mut self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        limit: u32,
    ) -> Result<Vec<KeyAndValue>, ClientError> {
        let (direction, items) = (Direction::Forward, RangeItems::Whole);
        self.range_with(Range { start, end, direction, items, item_limit: limit })
    }

    /// As [`Client::range`], in either direction; with keys only, all values are empty.
    pub fn range_with(&mut self, asked: Range<'_>) -> Result<Vec<KeyAndValue>, ClientError> {
        let limit = asked.item_limit as usize;
        let mut items: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let mut resume: Option<Vec<u8>> = None;
        while items.len() < limit {
            let mut page = Range { item_limit: (limit - items.len()) as u32, ..asked };
            match (resume.as_deref(), asked.direction) {
                (None, _) => {}
                (Some(key), Direction::Forward) => page.start = Bound::Excluded(key),
                (Some(key), Direction::Reverse) => page.end = Bound::Excluded(key),
            }
            let (status, next) = self.ask(&Op::Range(page), Want::PLAIN, |answer| {
                items.extend(Items::new(answer.value).map(|item| match item.value {
                    ItemValue::Here(value) => (item.key.to_vec(), Some(value.to_vec())),
                    ItemValue::LeftOut { .. } => (item.key.to_vec(), None),
                }));
                (answer.status, answer.resume_key.map(<[u8]>::to_vec))
            })?;
            if status != Status::Ok {
                return Err(ClientError::Refused(status));
            }
            resume = next;
            if resume.is_none() {
                break;
            }
        }
        items.truncate(limit);
        self.whole(items)
    }

    /// Reads the values that were too long for the replies; an item that is gone by then is left
    /// out.
    fn whole(
        &mut self,
        items: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<Vec<KeyAndValue>, ClientError> {
        let mut whole = Vec::with_capacity(items.len());
        for (key, value) in items {
            let value = match value {
                Some(value) => Some(value),
                None => self.get(&key)?,
            };
            whole.extend(value.map(|value| (key, value)));
        }
        Ok(whole)
    }

    /// Whether the server answers.
    pub fn ping(&mut self) -> Result<(), ClientError> {
        done_or_missing(self.ask(&Op::Ping, Want::PLAIN, |answer| answer.status)?).map(|_| ())
    }

    fn ask_number(&mut self, op: &Op<'_>) -> Result<i64, ClientError> {
        number(self.ask(op, Want::PLAIN, |answer| (answer.status, answer.number))?)
    }
}

pub(crate) fn found_or_missing<T>((status, found): (Status, T)) -> Result<Option<T>, ClientError> {
    match status {
        Status::Ok => Ok(Some(found)),
        Status::Miss => Ok(None),
        status => Err(ClientError::Refused(status)),
    }
}

pub(crate) fn done_or_missing(status: Status) -> Result<bool, ClientError> {
    found_or_missing((status, ())).map(|found| found.is_some())
}

pub(crate) fn number((status, number): (Status, Option<i64>)) -> Result<i64, ClientError> {
    match (status, number) {
        (Status::Ok, Some(number)) => Ok(number),
        (Status::Ok, None) => Err(RequestError::BadAnswer.into()),
        (status, _) => Err(ClientError::Refused(status)),
    }
}

/// Of a write without condition.
pub(crate) fn stored(written: Written) -> Result<(), ClientError> {
    match written {
        Written::Stored => Ok(()),
        _ => Err(ClientError::Refused(Status::NotStored)),
    }
}

pub(crate) fn written(status: Status) -> Result<Written, ClientError> {
    match status {
        Status::Ok => Ok(Written::Stored),
        Status::NotStored => Ok(Written::NotStored),
        Status::VersionMismatch => Ok(Written::Changed),
        Status::Miss => Ok(Written::Missing),
        status => Err(ClientError::Refused(status)),
    }
}
