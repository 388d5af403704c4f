//! Reads the keys of a running Redis server: SCAN, then the types, then the values.
//!
//! ```text
//!  SCAN cursor ─▶ TYPE and STRLEN of each ─▶ strings ─▶ MULTI GET PTTL EXEC of each, by chunks
//!                                          └▶ other types: counted
//! ```
//!
//! A value and its expiry are read at one moment: each pair is read in its own transaction. Keys
//! that are written while the copy runs may be missed, as SCAN documents, or be copied with their
//! old value.

use std::time::{Duration, Instant};

use crate::address::Place;
use crate::copy::{Batch, Source};
use crate::error::{Error, shown};
use crate::item::{Expiry, Item};
use crate::link::{Link, broken};
use crate::resp::{Reply, ReplyError, number, read_reply, write_request};

/// The COUNT of each SCAN.
const PAGE_KEYS: &[u8] = b"512";
/// Bytes of values requested at once; a single value may have more.
const CHUNK_MAX_BYTES: u64 = 1 << 20;
/// Bytes of requests that are sent before the first answer is read.
const REQUESTS_MAX_BYTES: usize = 64 << 10;

/// A RESP connection, logged in if the address has a user or password.
#[derive(Debug)]
pub struct RespLink {
    place: Place,
    link: Link,
}

impl RespLink {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The connection's error, or the server's message.
    pub fn open(place: &Place) -> Result<RespLink, Error> {
        let mut link = RespLink { place: place.clone(), link: Link::connect(place)? };
        if let Some(password) = &place.password {
            let (user, password) = (place.user.as_bytes(), password.as_bytes());
            let words: &[&[u8]] = &[b"AUTH", user, password];
            let words = if user.is_empty() { &[b"AUTH", password][..] } else { words };
            link.ask(words, "")?;
        }
        if place.database != 0 {
            link.ask(&[b"SELECT", place.database.to_string().as_bytes()], "")?;
        }
        Ok(link)
    }

    /// The same, after a check that the server accepts commands.
    pub(crate) fn connect(place: &Place) -> Result<RespLink, Error> {
        let mut link = RespLink::open(place)?;
        link.ask(&[b"PING"], "; write redis://[user]:password@host:port")?;
        Ok(link)
    }

    /// Sends one request and returns its answer, of any kind.
    ///
    /// # Errors
    /// The connection's error: the connection cannot be used any more.
    pub fn exchange(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        let mut request = Vec::new();
        write_request(words, &mut request);
        self.send(&request)?;
        self.receive()
    }

    /// Sends one request and returns its answer, unless it is an error.
    pub(crate) fn ask(&mut self, words: &[&[u8]], hint: &'static str) -> Result<Reply, Error> {
        match self.exchange(words)? {
            Reply::Error(answer) => Err(self.refused(&answer, hint)),
            reply => Ok(reply),
        }
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), Error> {
        let Err(error) = self.link.send(requests) else { return Ok(()) };
        // A server that closes the connection may have sent the reason.
        match read_reply(&mut self.link.input) {
            Ok(Reply::Error(answer)) => Err(self.refused(&answer, "")),
            _ => Err(broken(&self.place, error)),
        }
    }

    pub(crate) fn receive(&mut self) -> Result<Reply, Error> {
        read_reply(&mut self.link.input).map_err(|error| match error {
            ReplyError::Io(error) => broken(&self.place, error),
            ReplyError::Malformed(bytes) => self.unexpected(&shown(&bytes)),
        })
    }

    pub(crate) fn unexpected(&self, found: &str) -> Error {
        let (place, found) = (self.place.to_string(), found.to_owned());
        Error::Protocol { place, protocol: "RESP", found }
    }

    pub(crate) fn refused(&self, answer: &[u8], hint: &'static str) -> Error {
        let answer = String::from_utf8_lossy(answer).into_owned();
        Error::Refused { place: self.place.to_string(), answer, hint }
    }
}

/// A listed string.
#[derive(Debug)]
struct Listed {
    key: Vec<u8>,
    value_bytes: u64,
}

/// The source `redis://`.
#[derive(Debug)]
pub struct FromRedis {
    link: RespLink,
    pattern: Option<Vec<u8>>,
    is_dry: bool,
    chunk_keys: usize,
    total: Option<u64>,
    /// The cursor of the page whose strings are listed.
    page: Vec<u8>,
    /// The cursor of the page after it; `None` once the walk is complete.
    next_page: Option<Vec<u8>>,
    /// In reverse: the last one is requested first.
    listed: Vec<Listed>,
}

impl FromRedis {
    /// Connects; `resume` is a place from an earlier copy.
    pub fn connect(
        place: &Place,
        pattern: Option<Vec<u8>>,
        is_dry: bool,
        chunk_keys: usize,
        resume: Option<&str>,
    ) -> Result<FromRedis, Error> {
        let cursor = resume.unwrap_or("0");
        if cursor.parse::<u64>().is_err() {
            let wanted = "a cursor of SCAN, as an interrupted copy has printed it";
            return Err(Error::Resume { given: cursor.to_owned(), wanted });
        }
        let cursor = cursor.as_bytes().to_vec();
        let mut link = RespLink::connect(place)?;
        let total = match (&pattern, resume, link.ask(&[b"DBSIZE"], "")?) {
            (None, None, Reply::Integer(count)) => u64::try_from(count).ok(),
            _ => None,
        };
        let (page, next_page) = (cursor.clone(), Some(cursor));
        let listed = Vec::new();
        Ok(FromRedis { link, pattern, is_dry, chunk_keys, total, page, next_page, listed })
    }

    /// Lists the next page, and reads the types of its keys.
    fn list(&mut self, cursor: Vec<u8>) -> Result<Batch, Error> {
        let mut words: Vec<&[u8]> = vec![b"SCAN", &cursor, b"COUNT", PAGE_KEYS];
        if let Some(pattern) = &self.pattern {
            words.extend_from_slice(&[b"MATCH", pattern]);
        }
        let (next, keys) = match self.link.ask(&words, "")? {
            Reply::Array(Some(parts)) => match <[Reply; 2]>::try_from(parts) {
                Ok([Reply::Bulk(Some(next)), Reply::Array(Some(keys))]) => (next, keys),
                _ => return Err(self.link.unexpected("an answer to SCAN of other parts")),
            },
            _ => return Err(self.link.unexpected("an answer to SCAN that is no array")),
        };
        let mut batch = Batch::default();
        let mut listed = Vec::with_capacity(keys.len());
        let keys = keys.into_iter().filter_map(|key| match key {
            Reply::Bulk(Some(key)) => Some(key),
            _ => None,
        });
        let mut keys: Vec<Vec<u8>> = keys.collect();
        while !keys.is_empty() {
            let chunk = take_requests(&mut keys);
            self.ask_kinds(chunk, &mut listed, &mut batch)?;
        }
        listed.reverse();
        self.page = cursor;
        self.next_page = (next != b"0").then_some(next);
        self.listed = listed;
        Ok(batch)
    }

    fn ask_kinds(
        &mut self,
        keys: Vec<Vec<u8>>,
        listed: &mut Vec<Listed>,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let mut requests = Vec::new();
        for key in &keys {
            write_request(&[b"TYPE", key], &mut requests);
            write_request(&[b"STRLEN", key], &mut requests);
        }
        self.link.send(&requests)?;
        for key in keys {
            let (kind, len) = (self.link.receive()?, self.link.receive()?);
            let kind = match kind {
                Reply::Simple(kind) => kind,
                Reply::Error(answer) => return Err(self.link.refused(&answer, "")),
                _ => return Err(self.link.unexpected("an answer to TYPE that is no word")),
            };
            match (kind.as_slice(), len) {
                (b"string", Reply::Integer(len)) => {
                    listed.push(Listed { key, value_bytes: u64::try_from(len).unwrap_or(0) });
                    continue;
                }
                (b"string", Reply::Error(answer)) if !answer.starts_with(b"WRONGTYPE") => {
                    return Err(self.link.refused(&answer, ""));
                }
                // The type changed between the two requests.
                (b"none" | b"string", _) => batch.tally.gone += 1,
                (kind, _) => {
                    let name = String::from_utf8_lossy(kind).into_owned();
                    *batch.tally.other_types.entry(name).or_default() += 1;
                }
            }
            batch.tally.seen += 1;
        }
        Ok(())
    }

    /// The number of listed strings to request next.
    fn chunk(&self) -> usize {
        let (mut count, mut value_bytes, mut request_bytes) = (0, 0, 0);
        for listed in self.listed.iter().rev().take(self.chunk_keys.max(1)) {
            value_bytes += listed.value_bytes;
            request_bytes += 2 * listed.key.len() + 100;
            let is_full = value_bytes > CHUNK_MAX_BYTES || request_bytes > REQUESTS_MAX_BYTES;
            if is_full && count > 0 {
                break;
            }
            count += 1;
        }
        count
    }

    fn ask_values(&mut self) -> Result<Batch, Error> {
        let count = self.chunk();
        let first = self.listed.len() - count;
        let mut batch = Batch::default();
        let (mut requests, as_of) = (Vec::new(), Instant::now());
        for Listed { key, .. } in self.listed[first..].iter().rev() {
            if !self.is_dry {
                write_request(&[b"MULTI"], &mut requests);
                write_request(&[b"GET", key], &mut requests);
                write_request(&[b"PTTL", key], &mut requests);
                write_request(&[b"EXEC"], &mut requests);
            }
        }
        self.link.send(&requests)?;
        for at in (first..first + count).rev() {
            batch.tally.seen += 1;
            let Listed { key, value_bytes } = &self.listed[at];
            let (key, value_bytes) = (key.clone(), *value_bytes);
            if self.is_dry {
                let (value, expiry) = (Vec::new(), Expiry::Never);
                batch.items.push(Item { key, value, value_bytes, expiry, flags: 0 });
                continue;
            }
            match value_of(&mut self.link)? {
                Some((value, left_ms)) => {
                    let left = u64::try_from(left_ms).map(Duration::from_millis);
                    let expiry = left.map_or(Expiry::Never, |left| Expiry::In { left, as_of });
                    let value_bytes = value.len() as u64;
                    batch.items.push(Item { key, value, value_bytes, expiry, flags: 0 });
                }
                None => batch.tally.gone += 1,
            }
        }
        self.listed.truncate(first);
        Ok(batch)
    }
}

/// The answers to one transaction: `None` if the key is gone or has another type by now.
fn value_of(link: &mut RespLink) -> Result<Option<(Vec<u8>, i64)>, Error> {
    let queued = [link.receive()?, link.receive()?, link.receive()?];
    let answer = link.receive()?;
    for reply in queued {
        if let Reply::Error(answer) = reply {
            return Err(link.refused(&answer, ""));
        }
    }
    let parts = match answer {
        Reply::Array(Some(parts)) => parts,
        Reply::Error(answer) => return Err(link.refused(&answer, "")),
        _ => return Err(link.unexpected("an answer to EXEC that is no array")),
    };
    match <[Reply; 2]>::try_from(parts) {
        Ok([Reply::Bulk(Some(value)), Reply::Integer(left_ms)]) if left_ms != -2 => {
            Ok(Some((value, left_ms)))
        }
        Ok([Reply::Bulk(_), Reply::Integer(_)]) => Ok(None),
        Ok([Reply::Error(answer), _]) if answer.starts_with(b"WRONGTYPE") => Ok(None),
        Ok([Reply::Error(answer), _] | [_, Reply::Error(answer)]) => Err(link.refused(&answer, "")),
        _ => Err(link.unexpected("an answer to EXEC of other parts")),
    }
}

/// Splits off as many keys as may be requested at once.
fn take_requests(keys: &mut Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut request_bytes = 0;
    let count = keys.iter().take_while(|key| {
        let is_first = request_bytes == 0;
        request_bytes += 2 * key.len() + 60;
        is_first || request_bytes <= REQUESTS_MAX_BYTES
    });
    let count = count.count();
    let rest = keys.split_off(count);
    std::mem::replace(keys, rest)
}

impl Source for FromRedis {
    fn next(&mut self) -> Result<Option<Batch>, Error> {
        if !self.listed.is_empty() {
            return self.ask_values().map(Some);
        }
        match self.next_page.clone() {
            Some(cursor) => self.list(cursor).map(Some),
            None => Ok(None),
        }
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.link = RespLink::connect(&self.link.place)?;
        Ok(())
    }

    fn place(&self) -> Option<String> {
        let cursor = if self.listed.is_empty() { self.next_page.as_ref()? } else { &self.page };
        number::<u64>(cursor).map(|cursor| cursor.to_string())
    }

    fn total(&self) -> Option<u64> {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_up_to_their_bound() {
        let mut keys = vec![vec![b'k'; REQUESTS_MAX_BYTES]; 2];
        assert_eq!(take_requests(&mut keys).len(), 1);
        assert_eq!(keys.len(), 1);
        let mut keys = vec![b"key".to_vec(); 10];
        assert_eq!(take_requests(&mut keys).len(), 10);
        assert!(keys.is_empty());
    }
}
