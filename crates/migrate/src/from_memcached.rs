//! Reads the items of a running memcached: its list of keys, then each item by `mg`.
//!
//! ```text
//!  lru_crawler metadump all ─▶ all keys, in memory ─▶ mg key f t v, by chunks
//! ```
//!
//! # Limits
//! The list is read to its end first, since memcached drops a reader that makes its crawler wait.
//! Each key in the list takes its own length plus one byte. The order differs from run to run, so
//! there is no place to resume at: a restarted copy skips the items that the target already has.

use std::time::{Duration, Instant};

use wire::resp::Glob;

use crate::address::Place;
use crate::copy::{Batch, Source};
use crate::error::{Error, shown};
use crate::item::{Expiry, Item};
use crate::link::{Link, broken};
use crate::memcached_words::{Listed, MetaReply, key_word, read_listed, read_meta};
use crate::resp::{ReplyError, read_line};

/// Of values that are taken at once, by what the ones before have had.
const CHUNK_GOAL_BYTES: u64 = 1 << 20;

/// A connection to a memcached that has logged in.
#[derive(Debug)]
pub(crate) struct MemcachedLink {
    place: Place,
    pub(crate) link: Link,
}

impl MemcachedLink {
    pub(crate) fn connect(place: &Place) -> Result<MemcachedLink, Error> {
        let mut link = MemcachedLink { place: place.clone(), link: Link::connect(place)? };
        if let Some(password) = &place.password {
            let login = format!("{} {password}", place.user);
            link.send(format!("set auth x 0 {}\r\n{login}\r\n", login.len()).as_bytes())?;
            let answer = link.line()?;
            if answer != b"STORED" {
                return Err(link.refused(&answer, ""));
            }
        }
        link.send(b"mn\r\n")?;
        let answer = link.line()?;
        if answer != b"MN" {
            let hint = "; its meta commands are needed: 1.6 and later, with user:password@ if any";
            return Err(link.refused(&answer, hint));
        }
        Ok(link)
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), Error> {
        self.link.send(requests).map_err(|error| broken(&self.place, error))
    }

    fn line(&mut self) -> Result<Vec<u8>, Error> {
        let read = read_line(&mut self.link.input, 1 << 10);
        read.map_err(|error| self.explained(error))
    }

    pub(crate) fn meta(&mut self) -> Result<MetaReply, Error> {
        let read = read_meta(&mut self.link.input);
        read.map_err(|error| self.explained(error))
    }

    fn listed(&mut self) -> Result<Listed, Error> {
        let read = read_listed(&mut self.link.input);
        read.map_err(|error| self.explained(error))
    }

    fn explained(&self, error: ReplyError) -> Error {
        match error {
            ReplyError::Io(error) => broken(&self.place, error),
            ReplyError::Malformed(bytes) => {
                let (place, found) = (self.place.to_string(), shown(&bytes));
                Error::Protocol { place, protocol: "memcached's text protocol", found }
            }
        }
    }

    pub(crate) fn refused(&self, answer: &[u8], hint: &'static str) -> Error {
        Error::Refused { place: self.place.to_string(), answer: shown(answer), hint }
    }
}

/// Keys one behind the other, each behind its length.
#[derive(Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    count: u64,
    at: usize,
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        // A key has at most 250 bytes: the reader of the list sees to it.
        self.bytes.push(key.len() as u8);
        self.bytes.extend_from_slice(key);
        self.count += 1;
    }

    /// The key at `at`, and where the next one is.
    fn get(&self, at: usize) -> Option<(&[u8], usize)> {
        let end = at + 1 + usize::from(*self.bytes.get(at)?);
        Some((self.bytes.get(at + 1..end)?, end))
    }
}

/// The source `memcached://`.
#[derive(Debug)]
pub struct FromMemcached {
    link: MemcachedLink,
    is_dry: bool,
    chunk_keys: usize,
    keys: Keys,
    /// Listed keys that do not match the pattern; counted with the first batch.
    unmatched: u64,
    total: u64,
    /// The mean length of the values so far, to choose the number of keys to request.
    value_bytes: u64,
}

impl FromMemcached {
    /// Connects and reads the list of keys.
    pub fn connect(
        place: &Place,
        pattern: Option<&[u8]>,
        is_dry: bool,
        chunk_keys: usize,
        resume: Option<&str>,
    ) -> Result<FromMemcached, Error> {
        if let Some(given) = resume {
            let wanted = "memcached's list has no places: start again, what is there stays";
            return Err(Error::Resume { given: given.to_owned(), wanted });
        }
        let pattern = pattern.map(Glob::new).transpose()?;
        let is_wanted =
            |key: &[u8]| pattern.as_ref().is_none_or(|pattern| pattern.matches(key, &mut 0));
        let mut link = MemcachedLink::connect(place)?;
        link.send(b"lru_crawler metadump all\r\n")?;
        let (mut keys, mut unmatched) = (Keys::default(), 0);
        loop {
            match link.listed()? {
                Listed::Key(key) if is_wanted(&key) => {
                    keys.push(&key);
                }
                Listed::Key(_) => unmatched += 1,
                Listed::End => break,
                Listed::Refused(answer) => {
                    let hint = "; the list of keys is needed: start it without -X and \
                                -o no_lru_crawler";
                    return Err(link.refused(&answer, hint));
                }
            }
        }
        let value_bytes = CHUNK_GOAL_BYTES / 16;
        let total = keys.count + unmatched;
        Ok(FromMemcached { link, is_dry, chunk_keys, keys, unmatched, total, value_bytes })
    }
}

fn item(key: &[u8], reply: MetaReply, as_of: Instant) -> Item {
    let expiry = match u64::try_from(reply.left_seconds) {
        Ok(seconds) => Expiry::In { left: Duration::from_secs(seconds), as_of },
        Err(_) => Expiry::Never,
    };
    let value = reply.value.unwrap_or_default();
    let (value_bytes, flags) = (reply.size_bytes, reply.flags);
    Item { key: key.to_vec(), value, value_bytes, expiry, flags }
}

impl Source for FromMemcached {
    fn next(&mut self) -> Result<Option<Batch>, Error> {
        let wanted = (CHUNK_GOAL_BYTES / self.value_bytes.max(1)).max(1);
        let wanted = self.chunk_keys.max(1).min(usize::try_from(wanted).unwrap_or(usize::MAX));
        let mut batch = Batch::default();
        let (mut requests, mut asked, mut at) = (Vec::new(), Vec::new(), self.keys.at);
        while asked.len() < wanted {
            let Some((key, next)) = self.keys.get(at) else { break };
            at = next;
            batch.tally.seen += 1;
            let Some((word, flag)) = key_word(key) else {
                // Only the binary protocol can have stored such a key.
                let reason = "a key that memcached's text protocol cannot name".to_owned();
                *batch.tally.refused.entry(reason).or_default() += 1;
                continue;
            };
            let what = if self.is_dry { "s t f" } else { "v t f" };
            requests.extend_from_slice(b"mg ");
            requests.extend_from_slice(&word);
            requests.extend_from_slice(format!(" {what}{flag}\r\n").as_bytes());
            asked.push(key);
        }
        if at == self.keys.at && self.unmatched == 0 {
            return Ok(None);
        }
        let as_of = Instant::now();
        self.link.send(&requests)?;
        for key in asked {
            let reply = self.link.meta()?;
            match reply.status.as_slice() {
                b"VA" | b"HD" => batch.items.push(item(key, reply, as_of)),
                b"EN" => batch.tally.gone += 1,
                answer => return Err(self.link.refused(answer, "")),
            }
        }
        batch.tally.unmatched = std::mem::take(&mut self.unmatched);
        batch.tally.seen += batch.tally.unmatched;
        let bytes: u64 = batch.items.iter().map(|item| item.value_bytes).sum();
        if let Some(mean) = bytes.checked_div(batch.items.len() as u64) {
            // The estimate grows at once and shrinks slowly: one chunk too large is worse than many
            // small ones.
            self.value_bytes = mean.max(self.value_bytes / 2);
        }
        self.keys.at = at;
        Ok(Some(batch))
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.link = MemcachedLink::connect(&self.link.place)?;
        Ok(())
    }

    fn place(&self) -> Option<String> {
        None
    }

    fn total(&self) -> Option<u64> {
        Some(self.total)
    }
}
