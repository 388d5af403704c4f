//! Requests: what a client asks, one message each, many to a frame.
//!
//! ```text
//!  code  op       flags              words                              mode
//!   1    ping
//!   2    get      WANT.. NO_VALUE    EXPIRES_AT | TTL                   1: touch
//!   3    pull     WANT..             VERSION PART
//!   4    set      ONCE VERSION KEEP  EXPIRES_AT | TTL, VERSION,         condition
//!                                    CLIENT_FLAGS PART
//!   5    delete   ONCE               VERSION
//!   6    incr     ONCE VERSION       DELTA
//!   7    append   ONCE VERSION
//!   8    prepend  ONCE VERSION
//!   9    touch    ONCE VERSION KEEP  EXPIRES_AT | TTL
//!  10    range                       LIMIT                              range bits
//! ```
//!
//! # Invariants
//! I1: what parses is consistent: a consumer needs no second look at flags and words.
//! I2: whatever version 1 does not know of an op, a flag, a word or a mode is answered
//!     `unsupported`, never guessed at and never dropped.

use std::ops::{BitOr, Bound};

use base::UnixMillis;
use thiserror::Error;

use super::layout::{Parts, Raw, WordList};
use super::reply::Status;

/// A request's name within its session; the reply repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// May be executed as often as it arrives; the number means nothing to the server.
    Free(u32),
    /// Takes effect at most once: a sequence number, counted from 0 without gaps
    /// ([`super::Once`]). Both kinds may use the same numbers.
    Once(u32),
}

/// What a reply should carry beside its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Want(u8);

/// One request. Everything borrows the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its name.
    pub id: RequestId,
    /// What the reply should carry.
    pub want: Want,
    /// What is asked.
    pub op: Op<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Answers `Ok`.
    Ping,
    /// The value: `Ok`, or its first part where it does not fit ([`super::Reply::part`]); `Miss`.
    Get {
        /// The key.
        key: &'a [u8],
        /// Sets the expiry as well.
        touch: Option<Expiry>,
    },
    /// A later part of a value whose first part and version a get answered: `Ok`, `Changed`, or
    /// `Miss`.
    Pull {
        /// The key.
        key: &'a [u8],
        /// The version that the parts so far are of.
        version: u64,
        /// Which bytes; the answer may hold fewer.
        span: Span,
    },
    /// A write: `Ok`, `NotStored`, `VersionMismatch`, `Miss`; for a part `PartTaken` until all of
    /// the value is there.
    Set(Set<'a>),
    /// `Ok`, `Miss`, `VersionMismatch`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Deletes only this version.
        version: Option<u64>,
    },
    /// Adds to a decimal number of 64 bits, as INCRBY of Redis does: an absent key counts as 0,
    /// an overflow changes nothing. `Ok` with the sum as number, `NotANumber`, `OutOfRange`.
    Incr {
        /// The key.
        key: &'a [u8],
        /// What is added; may be negative.
        delta: i64,
    },
    /// Puts bytes behind the value, or makes it if there is none: `Ok` with the new length as
    /// number.
    Append {
        /// The key.
        key: &'a [u8],
        /// The bytes.
        value: &'a [u8],
    },
    /// The same, in front of the value.
    Prepend {
        /// The key.
        key: &'a [u8],
        /// The bytes.
        value: &'a [u8],
    },
    /// Changes the expiry alone: `Ok`, `Miss`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The new one; [`Expiry::Never`] takes it away, `Keep` only looks.
        expiry: Expiry,
    },
    /// A part of the key order, as far as one reply goes: `Ok`, `NoOrder`.
    Range(Range<'a>),
}

/// A write that does not depend on the old value, except through its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, or a part of it.
    pub value: &'a [u8],
    /// Opaque to the server.
    pub client_flags: u32,
    /// When the item stops to exist.
    pub expiry: Expiry,
    /// What must hold for the write to happen.
    pub condition: Condition,
    /// Where `value` belongs in a value that is pushed in parts.
    pub part: Option<Part>,
}

/// The expiry of an item, or what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// None.
    Never,
    /// The one that the item has.
    Keep,
    /// At this time.
    At(UnixMillis),
    /// So many milliseconds after the server executes the request.
    AfterMs(u64),
}

/// What must hold for a [`Set`] to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// The key does not exist; `NotStored` otherwise.
    IfAbsent,
    /// The key exists; `NotStored` otherwise.
    IfPresent,
    /// The key exists (`Miss` otherwise) with this version (`VersionMismatch` otherwise).
    IfVersion(u64),
}

/// Where a part of a large value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of its first byte.
    pub offset: u32,
    /// The whole value's length.
    pub total: u32,
}

/// Bytes of a large value that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Of the first byte.
    pub offset: u32,
    /// How many, at most.
    pub len_bytes: u32,
}

/// A part of the key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// The lower bound.
    pub start: Bound<&'a [u8]>,
    /// The upper bound.
    pub end: Bound<&'a [u8]>,
    /// The way it is walked.
    pub direction: Direction,
    /// Whether the items come with their values.
    pub items: RangeItems,
    /// At most so many items.
    pub item_limit: u32,
}

/// The way a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound up.
    Forward,
    /// From the upper bound down.
    Reverse,
}

/// What a range answers of each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeItems {
    /// Key and value.
    Whole,
    /// The key.
    KeysOnly,
}

/// Why a message of a requests frame is not executed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// Answer this id with this status (`Unsupported` or `Malformed`), go on with the next.
    #[error("a request is answered {status:?} without being executed")]
    Refused {
        /// The request's.
        id: RequestId,
        /// What to answer.
        status: Status,
    },
    /// The message ends behind the frame: the rest of the frame is dropped. What came before it
    /// was whole and stands.
    #[error("a message is longer than what is left of its frame")]
    Overrun,
}

pub(super) const ONCE: u8 = 0x01;
const NO_VALUE: u8 = 0x10;
const KEEP_EXPIRY: u8 = 0x20;
const WANT_MASK: u8 = 0x1e;

mod word {
    pub(super) const EXPIRES_AT: u16 = 0x01;
    pub(super) const TTL_MS: u16 = 0x02;
    pub(super) const VERSION: u16 = 0x04;
    pub(super) const CLIENT_FLAGS: u16 = 0x08;
    pub(super) const DELTA: u16 = 0x10;
    pub(super) const PART: u16 = 0x20;
    pub(super) const LIMIT: u16 = 0x40;
}

mod code {
    pub(super) const PING: u8 = 1;
    pub(super) const GET: u8 = 2;
    pub(super) const PULL: u8 = 3;
    pub(super) const SET: u8 = 4;
    pub(super) const DELETE: u8 = 5;
    pub(super) const INCR: u8 = 6;
    pub(super) const APPEND: u8 = 7;
    pub(super) const PREPEND: u8 = 8;
    pub(super) const TOUCH: u8 = 9;
    pub(super) const RANGE: u8 = 10;
}

mod range_mode {
    pub(super) const REVERSE: u8 = 0x01;
    pub(super) const KEYS_ONLY: u8 = 0x02;
    pub(super) const START_EXCLUDED: u8 = 0x04;
    pub(super) const END_EXCLUDED: u8 = 0x08;
    pub(super) const END_UNBOUNDED: u8 = 0x10;
}

impl RequestId {
    pub(super) fn new(number: u32, flags: u8) -> RequestId {
        if flags & ONCE == 0 { RequestId::Free(number) } else { RequestId::Once(number) }
    }

    /// The number on the wire.
    pub fn number(self) -> u32 {
        match self {
            RequestId::Free(number) | RequestId::Once(number) => number,
        }
    }

    pub(super) fn flag(self) -> u8 {
        match self {
            RequestId::Free(_) => 0,
            RequestId::Once(_) => ONCE,
        }
    }
}

impl Want {
    /// The status, and what a success is about: a value, a number.
    pub const PLAIN: Want = Want(0);
    /// The item's version.
    pub const VERSION: Want = Want(0x02);
    /// The item's client flags, when they are not 0.
    pub const CLIENT_FLAGS: Want = Want(0x04);
    /// The item's expiry, when it has one.
    pub const EXPIRY: Want = Want(0x08);
    /// Of a get: the value's length as number instead of the value.
    pub const NO_VALUE: Want = Want(NO_VALUE);

    /// Whether all of `other` is wanted.
    #[inline]
    pub fn contains(self, other: Want) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Want {
    type Output = Want;

    fn bitor(self, other: Want) -> Want {
        Want(self.0 | other.0)
    }
}

impl Op<'_> {
    /// The key that steers the request; `None` for ping, and for a range, which any worker takes.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Op::Ping | Op::Range(_) => None,
            Op::Get { key, .. }
            | Op::Pull { key, .. }
            | Op::Set(Set { key, .. })
            | Op::Delete { key, .. }
            | Op::Incr { key, .. }
            | Op::Append { key, .. }
            | Op::Prepend { key, .. }
            | Op::Touch { key, .. } => Some(key),
        }
    }

    /// Whether executing it again, later, could do harm: such requests are sent with
    /// [`RequestId::Once`] wherever a datagram may be lost or repeated.
    pub fn changes_data(&self) -> bool {
        !matches!(self, Op::Ping | Op::Get { .. } | Op::Pull { .. } | Op::Range(_))
    }
}

/// The requests of a frame's body, in order. After [`RequestError::Overrun`] it ends.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    rest: &'a [u8],
}

impl<'a> Requests<'a> {
    /// Walks the body of a frame of [`super::Kind::Requests`].
    pub fn new(body: &'a [u8]) -> Requests<'a> {
        Requests { rest: body }
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Result<Request<'a>, RequestError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((raw, rest)) = Raw::split(self.rest) else {
            self.rest = &[];
            return Some(Err(RequestError::Overrun));
        };
        self.rest = rest;
        let id = RequestId::new(raw.id, raw.flags);
        Some(match parse_op(&raw) {
            Ok(op) => Ok(Request { id, want: Want(raw.flags & WANT_MASK), op }),
            Err(status) => Err(RequestError::Refused { id, status }),
        })
    }
}

/// Flags, words and the highest mode that an op of version 1 has.
struct Known {
    flags: u8,
    words: u16,
    mode_bits: u8,
}

/// A write's reply has nothing but status, version and number: what [`super::Once`] remembers.
const WRITE_FLAGS: u8 = ONCE | Want::VERSION.0;
const EXPIRY_WORDS: u16 = word::EXPIRES_AT | word::TTL_MS;

/// What version 1 knows of an op; `None` when it does not know the op.
#[inline]
fn known(op_code: u8) -> Option<Known> {
    let known = |flags, words, mode_bits| Some(Known { flags, words, mode_bits });
    match op_code {
        code::PING => known(0, 0, 0),
        code::GET => known(WANT_MASK | KEEP_EXPIRY, EXPIRY_WORDS, 1),
        code::PULL => known(WANT_MASK & !NO_VALUE, word::VERSION | word::PART, 0),
        code::SET => {
            let words = EXPIRY_WORDS | word::VERSION | word::CLIENT_FLAGS | word::PART;
            known(WRITE_FLAGS | KEEP_EXPIRY, words, 3)
        }
        code::DELETE => known(ONCE, word::VERSION, 0),
        code::INCR => known(WRITE_FLAGS, word::DELTA, 0),
        code::APPEND | code::PREPEND => known(WRITE_FLAGS, 0, 0),
        code::TOUCH => known(WRITE_FLAGS | KEEP_EXPIRY, EXPIRY_WORDS, 0),
        code::RANGE => known(0, word::LIMIT, 0x1f),
        _ => None,
    }
}

#[inline]
fn parse_op<'a>(raw: &Raw<'a>) -> Result<Op<'a>, Status> {
    let known = known(raw.code).ok_or(Status::Unsupported)?;
    let unknown = (raw.flags & !known.flags) | (raw.mode & !known.mode_bits) | raw.reserved;
    if unknown != 0 || raw.words.mask & !known.words != 0 {
        return Err(Status::Unsupported);
    }
    let op = match raw.code {
        code::GET => {
            let touch = if raw.mode == 0 { None } else { Some(expiry(raw)?) };
            if touch.is_none() && (raw.words.mask != 0 || raw.flags & KEEP_EXPIRY != 0) {
                return Err(Status::Malformed);
            }
            Op::Get { key: raw.key, touch }
        }
        code::SET => return parse_set(raw),
        code::APPEND => return Ok(Op::Append { key: raw.key, value: raw.value }),
        code::PREPEND => return Ok(Op::Prepend { key: raw.key, value: raw.value }),
        code::RANGE => return parse_range(raw),
        code::PING if raw.key.is_empty() => Op::Ping,
        code::PING => return Err(Status::Malformed),
        code::PULL => {
            let version = raw.words.get(word::VERSION).ok_or(Status::Malformed)?;
            let halves = raw.words.get(word::PART).ok_or(Status::Malformed)?;
            let span = Span { offset: halves as u32, len_bytes: (halves >> 32) as u32 };
            Op::Pull { key: raw.key, version, span }
        }
        code::DELETE => Op::Delete { key: raw.key, version: raw.words.get(word::VERSION) },
        code::INCR => {
            let delta = raw.words.get(word::DELTA).ok_or(Status::Malformed)?;
            Op::Incr { key: raw.key, delta: delta as i64 }
        }
        _ => Op::Touch { key: raw.key, expiry: expiry(raw)? },
    };
    if raw.value.is_empty() { Ok(op) } else { Err(Status::Malformed) }
}

fn parse_set<'a>(raw: &Raw<'a>) -> Result<Op<'a>, Status> {
    let words = &raw.words;
    let condition = match (raw.mode, words.get(word::VERSION)) {
        (0, None) => Condition::Always,
        (1, None) => Condition::IfAbsent,
        (2, None) => Condition::IfPresent,
        (3, Some(version)) => Condition::IfVersion(version),
        _ => return Err(Status::Malformed),
    };
    let client_flags = words.get(word::CLIENT_FLAGS).unwrap_or(0);
    let part = words.get(word::PART).map(Part::from_word);
    if part.is_some_and(|part| !part.holds(raw.value.len())) {
        return Err(Status::Malformed);
    }
    // A part is known by its sequence number: without one, parts of two values could mix.
    if client_flags > u64::from(u32::MAX) || (part.is_some() && raw.flags & ONCE == 0) {
        return Err(Status::Malformed);
    }
    Ok(Op::Set(Set {
        key: raw.key,
        value: raw.value,
        client_flags: client_flags as u32,
        expiry: expiry(raw)?,
        condition,
        part,
    }))
}

fn parse_range<'a>(raw: &Raw<'a>) -> Result<Op<'a>, Status> {
    let has = |bit| raw.mode & bit != 0;
    let start = if has(range_mode::START_EXCLUDED) {
        Bound::Excluded(raw.key)
    } else {
        Bound::Included(raw.key)
    };
    let end = match (has(range_mode::END_UNBOUNDED), has(range_mode::END_EXCLUDED)) {
        (true, false) if raw.value.is_empty() => Bound::Unbounded,
        (true, _) => return Err(Status::Malformed),
        (false, true) => Bound::Excluded(raw.value),
        (false, false) => Bound::Included(raw.value),
    };
    let limit = raw.words.get(word::LIMIT).ok_or(Status::Malformed)?;
    Ok(Op::Range(Range {
        start,
        end,
        direction: if has(range_mode::REVERSE) { Direction::Reverse } else { Direction::Forward },
        items: if has(range_mode::KEYS_ONLY) { RangeItems::KeysOnly } else { RangeItems::Whole },
        item_limit: u32::try_from(limit).map_err(|_| Status::Malformed)?,
    }))
}

#[inline]
fn expiry(raw: &Raw<'_>) -> Result<Expiry, Status> {
    let keep = raw.flags & KEEP_EXPIRY != 0;
    if !keep && raw.words.mask & EXPIRY_WORDS == 0 {
        return Ok(Expiry::Never);
    }
    match (keep, raw.words.get(word::EXPIRES_AT), raw.words.get(word::TTL_MS)) {
        (true, None, None) => Ok(Expiry::Keep),
        (false, Some(at), None) => Ok(Expiry::At(UnixMillis(at))),
        (false, None, Some(ttl_ms)) => Ok(Expiry::AfterMs(ttl_ms)),
        _ => Err(Status::Malformed),
    }
}

impl Part {
    pub(super) fn from_word(word: u64) -> Part {
        Part { offset: word as u32, total: (word >> 32) as u32 }
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.offset) | (u64::from(self.total) << 32)
    }

    /// Whether a part of this length lies within its value.
    pub(super) fn holds(self, len_bytes: usize) -> bool {
        u64::from(self.offset) + len_bytes as u64 <= u64::from(self.total)
    }
}

impl<'a> Request<'a> {
    /// The message's length in a frame.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.parts().len_bytes()
    }

    /// What the message is written from.
    #[inline]
    pub(super) fn parts(&self) -> Parts<'a> {
        let mut parts = Parts {
            code: 0,
            flags: self.id.flag() | self.want.0,
            mode: 0,
            id: self.id.number(),
            words: WordList::default(),
            key: &[],
            value: &[],
        };
        match self.op {
            Op::Ping => parts.code = code::PING,
            Op::Get { key, touch } => {
                (parts.code, parts.key) = (code::GET, key);
                if let Some(expiry) = touch {
                    parts.mode = 1;
                    put_expiry(&mut parts, expiry);
                }
            }
            Op::Pull { key, version, span } => {
                (parts.code, parts.key) = (code::PULL, key);
                parts.words.push(word::VERSION, version);
                let part = Part { offset: span.offset, total: span.len_bytes };
                parts.words.push(word::PART, part.to_word());
            }
            Op::Set(set) => put_set(&mut parts, &set),
            Op::Delete { key, version } => {
                (parts.code, parts.key) = (code::DELETE, key);
                parts.words.push_some(word::VERSION, version);
            }
            Op::Incr { key, delta } => {
                (parts.code, parts.key) = (code::INCR, key);
                parts.words.push(word::DELTA, delta as u64);
            }
            Op::Append { key, value } => {
                (parts.code, parts.key, parts.value) = (code::APPEND, key, value);
            }
            Op::Prepend { key, value } => {
                (parts.code, parts.key, parts.value) = (code::PREPEND, key, value);
            }
            Op::Touch { key, expiry } => {
                (parts.code, parts.key) = (code::TOUCH, key);
                put_expiry(&mut parts, expiry);
            }
            Op::Range(range) => put_range(&mut parts, &range),
        }
        parts
    }
}

#[inline]
fn put_set<'a>(parts: &mut Parts<'a>, set: &Set<'a>) {
    (parts.code, parts.key, parts.value) = (code::SET, set.key, set.value);
    put_expiry(parts, set.expiry);
    parts.mode = match set.condition {
        Condition::Always => 0,
        Condition::IfAbsent => 1,
        Condition::IfPresent => 2,
        Condition::IfVersion(version) => {
            parts.words.push(word::VERSION, version);
            3
        }
    };
    if set.client_flags != 0 {
        parts.words.push(word::CLIENT_FLAGS, u64::from(set.client_flags));
    }
    parts.words.push_some(word::PART, set.part.map(Part::to_word));
}

fn put_range<'a>(parts: &mut Parts<'a>, range: &Range<'a>) {
    parts.code = code::RANGE;
    let mut mode = match range.direction {
        Direction::Forward => 0,
        Direction::Reverse => range_mode::REVERSE,
    };
    if range.items == RangeItems::KeysOnly {
        mode |= range_mode::KEYS_ONLY;
    }
    match range.start {
        Bound::Unbounded => {}
        Bound::Included(key) => parts.key = key,
        Bound::Excluded(key) => {
            parts.key = key;
            mode |= range_mode::START_EXCLUDED;
        }
    }
    match range.end {
        Bound::Unbounded => mode |= range_mode::END_UNBOUNDED,
        Bound::Included(key) => parts.value = key,
        Bound::Excluded(key) => {
            parts.value = key;
            mode |= range_mode::END_EXCLUDED;
        }
    }
    parts.mode = mode;
    parts.words.push(word::LIMIT, u64::from(range.item_limit));
}

#[inline]
fn put_expiry(parts: &mut Parts<'_>, expiry: Expiry) {
    match expiry {
        Expiry::Never => {}
        Expiry::Keep => parts.flags |= KEEP_EXPIRY,
        Expiry::At(at) => parts.words.push(word::EXPIRES_AT, at.0),
        Expiry::AfterMs(ttl_ms) => parts.words.push(word::TTL_MS, ttl_ms),
    }
}
