//! The client's side of the two protocols: requests out, replies in.
//!
//! It is small on purpose: a load generator writes four kinds of request and reads their replies.
//! `wire` has the servers' side, so two independent implementations of a protocol check each other.

pub(crate) mod memcached;
pub(crate) mod resp;

use std::ops::Range;

/// The result of parsing the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    Done {
        reply: Reply<'a>,
        consumed_bytes: usize,
    },
    /// An incomplete reply, which will have at least this many bytes.
    NeedMore {
        at_least_bytes: usize,
    },
    /// A violation of the protocol.
    Bad {
        reason: String,
    },
}

/// One reply, or one part of the reply to a multi-get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// A multi-get's reply begins; this many `Value`s and `Miss`es follow (RESP).
    Many { count: usize },
    /// The value of the next requested key (RESP).
    Value(&'a [u8]),
    /// The next requested key does not exist (RESP).
    Miss,
    /// The value of the named key; keys before it do not exist (memcached).
    ValueOf { key: &'a [u8], value: &'a [u8] },
    /// No further values (memcached).
    End,
    /// A write was executed.
    Stored,
    /// The request was refused, with the server's message.
    Refused(&'a [u8]),
}

/// The client's side of one protocol.
pub(crate) trait Codec {
    /// Appends a read of `key`.
    fn write_get(&self, key: &[u8], out: &mut Vec<u8>);
    /// Appends the start of a read of `key_count` keys; the keys and the end follow.
    fn write_many_start(&self, key_count: usize, out: &mut Vec<u8>);
    /// Appends one key of a multi-get.
    fn write_many_key(&self, key: &[u8], out: &mut Vec<u8>);
    /// Appends the end of a multi-get.
    fn write_many_end(&self, out: &mut Vec<u8>);
    /// Appends a write of `key`; returns the place in `out` for its value of `len_bytes`.
    fn write_set(&self, key: &[u8], len_bytes: usize, out: &mut Vec<u8>) -> Range<usize>;
    /// Appends a read of up to `limit` items from `key` on, answered by `Many` and then a key and a
    /// value for each. Returns false if the protocol has no such request.
    fn write_range(&self, key: &[u8], limit: u64, out: &mut Vec<u8>) -> bool;
    /// Reads one reply from the front of `input`.
    fn parse<'a>(&self, input: &'a [u8]) -> Parsed<'a>;
}

/// Writes the length of a value, and room for it; returns where.
fn write_value_room(len_bytes: usize, out: &mut Vec<u8>) -> Range<usize> {
    out.extend_from_slice(itoa::Buffer::new().format(len_bytes).as_bytes());
    out.extend_from_slice(b"\r\n");
    let start = out.len();
    out.resize(start + len_bytes, 0);
    out.extend_from_slice(b"\r\n");
    start..start + len_bytes
}

/// The line at the front of `input` without its CR LF, and its length with them.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    /// Longer than any reply line of either protocol.
    const LINE_MAX_BYTES: usize = 64 << 10;
    match memchr::memchr(b'\n', input) {
        Some(end) if end > 0 && input[end - 1] == b'\r' => Ok(Some((&input[..end - 1], end + 1))),
        Some(end) => Err(format!("a line ends without CR: {}", printable(&input[..end]))),
        None if input.len() > LINE_MAX_BYTES => Err("a line has no end".to_owned()),
        None => Ok(None),
    }
}

/// The start of what a server sent, fit for an error message.
pub(crate) fn printable(bytes: &[u8]) -> String {
    const SHOWN_MAX_BYTES: usize = 120;
    bytes[..bytes.len().min(SHOWN_MAX_BYTES)].escape_ascii().to_string()
}

/// A body of `len` bytes at `start`, ended by CR LF: returns its end, if it is complete.
fn body_end(input: &[u8], start: usize, len: usize) -> Result<Option<usize>, String> {
    let end = start.checked_add(len).and_then(|end| end.checked_add(2));
    let end = end.ok_or("a length is out of range")?;
    match input.get(end - 2..end) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(end)),
        Some(_) => Err("a value does not end where its length says".to_owned()),
    }
}

/// A decimal number of at most 18 digits: no length or count of a reply is longer.
fn number(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some(if is_negative { -magnitude } else { magnitude })
}
