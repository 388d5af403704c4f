//! Replays a cache trace against a running server as a look-aside client: get, and on a miss set.
//!
//! ```text
//!  gets of up to 32 different keys ─▶  ─▶ hits and misses
//!  sets of what was missed, deletes ─▶ ─▶ answers              then the next keys
//! ```
//!
//! It uses one connection and memcached's text protocol. A batch ends before the second request of
//! any of its keys, so that requests on one key never overtake each other. It counts misses and
//! times nothing.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use workload::cache_trace::{Access, CacheRequest};

use crate::error::BenchError;

/// Requests in flight.
const BATCH_MAX: usize = 32;
/// Memcached treats larger numbers as dates.
const TTL_MAX_S: u32 = 30 * 86_400;
/// A server that is silent for this long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const LINE_BYTES_MAX: u64 = 4096;

/// The results of a server with a trace.
#[derive(Clone, Debug, Default)]
pub struct LookAside {
    /// Gets.
    pub looks: u64,
    /// Gets that found nothing.
    pub misses: u64,
    /// Bytes of requested keys and values.
    pub look_bytes: u64,
    /// The bytes of these that were not found.
    pub miss_bytes: u64,
    /// Sets that the server refused.
    pub refused: u64,
    /// The first refusal's message.
    pub refusal: Option<String>,
    /// The number of items that the server reports afterwards.
    pub items: u64,
    /// Bytes of the items, as the server counts them.
    pub item_bytes: u64,
    /// Evicted items in this replay.
    pub evictions: u64,
    /// The server's limit.
    pub limit_bytes: u64,
}

/// Replays `requests` at the memcached server at `address` (HOST:PORT).
pub fn replay(address: &str, requests: &[CacheRequest]) -> Result<LookAside, BenchError> {
    let mut client = Client::connect(address)?;
    let evictions_before = client.statistics()?.evictions;
    let mut found = LookAside::default();
    let mut rest = requests;
    let mut keys = HashSet::new();
    while !rest.is_empty() {
        keys.clear();
        let is_new = |request: &&CacheRequest| keys.insert(request.key);
        let count = rest.iter().take(BATCH_MAX).take_while(is_new).count();
        let (batch, after) = rest.split_at(count);
        client.run_batch(batch, &mut found)?;
        rest = after;
    }
    let statistics = client.statistics()?;
    found.items = statistics.items;
    found.item_bytes = statistics.item_bytes;
    found.limit_bytes = statistics.limit_bytes;
    found.evictions = statistics.evictions.saturating_sub(evictions_before);
    Ok(found)
}

#[derive(Default)]
struct Statistics {
    items: u64,
    item_bytes: u64,
    evictions: u64,
    limit_bytes: u64,
}

struct Client {
    address: String,
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
    line: Vec<u8>,
    value: Vec<u8>,
}

impl Client {
    fn connect(address: &str) -> Result<Client, BenchError> {
        let failed = |source| BenchError::Connect { address: address.to_owned(), source };
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(SILENCE_MAX)).map_err(failed)?;
        stream.set_write_timeout(Some(SILENCE_MAX)).map_err(failed)?;
        Ok(Client {
            address: address.to_owned(),
            stream: BufReader::with_capacity(1 << 18, stream),
            out: Vec::new(),
            line: Vec::new(),
            value: Vec::new(),
        })
    }

    /// Sends the gets of a batch and reads their replies, then the rest and its replies, so that
    /// neither side waits for the other with full buffers.
    fn run_batch(
        &mut self,
        batch: &[CacheRequest],
        found: &mut LookAside,
    ) -> Result<(), BenchError> {
        let is_look = |request: &&CacheRequest| request.access == Access::Look;
        for request in batch.iter().filter(is_look) {
            self.out.extend_from_slice(b"get ");
            request.write_key_text(&mut self.out);
            self.out.extend_from_slice(b"\r\n");
        }
        self.send()?;
        let mut is_missed = [false; BATCH_MAX];
        for (place, request) in batch.iter().enumerate().filter(|(_, request)| is_look(request)) {
            let is_hit = self.read_value()?;
            is_missed[place] = !is_hit;
            found.looks += 1;
            found.look_bytes += request.item_bytes();
            if !is_hit {
                found.misses += 1;
                found.miss_bytes += request.item_bytes();
            }
        }
        let mut answers = 0;
        for (request, is_missed) in batch.iter().zip(is_missed) {
            if request.access == Access::Delete {
                self.out.extend_from_slice(b"delete ");
                request.write_key_text(&mut self.out);
                self.out.extend_from_slice(b"\r\n");
            } else if is_missed || request.access == Access::Write {
                self.write_set(request);
            } else {
                continue;
            }
            answers += 1;
        }
        self.send()?;
        for _ in 0..answers {
            self.read_answer(found)?;
        }
        Ok(())
    }

    fn write_set(&mut self, request: &CacheRequest) {
        let len_bytes = request.value_len_bytes as usize;
        if self.value.len() < len_bytes {
            self.value.resize(len_bytes, b'v');
        }
        let ttl_s = request.ttl_s.min(TTL_MAX_S);
        self.out.extend_from_slice(b"set ");
        request.write_key_text(&mut self.out);
        self.out.extend_from_slice(format!(" 0 {ttl_s} {len_bytes}\r\n").as_bytes());
        self.out.extend_from_slice(&self.value[..len_bytes]);
        self.out.extend_from_slice(b"\r\n");
    }

    fn send(&mut self) -> Result<(), BenchError> {
        let sent = self.stream.get_mut().write_all(&self.out);
        self.out.clear();
        sent.map_err(|error| self.lost(&error))
    }

    /// Whether a get's reply holds a value.
    fn read_value(&mut self) -> Result<bool, BenchError> {
        self.read_line()?;
        if self.line == b"END" {
            return Ok(false);
        }
        let words = std::str::from_utf8(&self.line).ok();
        let mut words = words
            .and_then(|line| line.strip_prefix("VALUE "))
            .map(|rest| rest.split(' ').skip(2))
            .ok_or_else(|| self.unexpected())?;
        let len_bytes = words.next().and_then(|word| word.parse::<u64>().ok());
        let len_bytes = len_bytes.ok_or_else(|| self.unexpected())?;
        let mut body = (&mut self.stream).take(len_bytes + 2);
        let copied = std::io::copy(&mut body, &mut std::io::sink());
        let copied = copied.map_err(|error| self.lost(&error))?;
        self.read_line()?;
        if copied != len_bytes + 2 || self.line != b"END" {
            return Err(self.unexpected());
        }
        Ok(true)
    }

    fn read_answer(&mut self, found: &mut LookAside) -> Result<(), BenchError> {
        self.read_line()?;
        match self.line.as_slice() {
            b"STORED" | b"DELETED" | b"NOT_FOUND" => Ok(()),
            line if line.starts_with(b"SERVER_ERROR") => {
                found.refused += 1;
                let words = || String::from_utf8_lossy(line).into_owned();
                found.refusal.get_or_insert_with(words);
                Ok(())
            }
            _ => Err(self.unexpected()),
        }
    }

    fn statistics(&mut self) -> Result<Statistics, BenchError> {
        self.out.extend_from_slice(b"stats\r\n");
        self.send()?;
        let mut found = Statistics::default();
        loop {
            self.read_line()?;
            if self.line == b"END" {
                return Ok(found);
            }
            let line = std::str::from_utf8(&self.line).map_err(|_| self.unexpected())?;
            let mut words = line.split(' ');
            let (Some("STAT"), Some(name), Some(value)) =
                (words.next(), words.next(), words.next())
            else {
                return Err(self.unexpected());
            };
            let value = value.parse().unwrap_or(0);
            match name {
                "curr_items" => found.items = value,
                "bytes" => found.item_bytes = value,
                "evictions" => found.evictions = value,
                "limit_maxbytes" => found.limit_bytes = value,
                _ => {}
            }
        }
    }

    /// Leaves the line without its end in `line`.
    fn read_line(&mut self) -> Result<(), BenchError> {
        self.line.clear();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX);
        match limited.read_until(b'\n', &mut self.line) {
            Err(error) => return Err(self.lost(&error)),
            Ok(0) => return Err(self.lost(&"closed by the server")),
            Ok(_) => {}
        }
        if !self.line.ends_with(b"\r\n") {
            return Err(self.unexpected());
        }
        self.line.truncate(self.line.len() - 2);
        Ok(())
    }

    fn lost(&self, reason: &dyn std::fmt::Display) -> BenchError {
        let address = self.address.clone();
        BenchError::ConnectionLost { address, reason: reason.to_string() }
    }

    fn unexpected(&self) -> BenchError {
        const SHOWN_BYTES_MAX: usize = 60;
        let shown = &self.line[..self.line.len().min(SHOWN_BYTES_MAX)];
        BenchError::Protocol {
            address: self.address.clone(),
            protocol: "memcached text",
            reason: format!("unexpected reply `{}`", shown.escape_ascii()),
        }
    }
}
