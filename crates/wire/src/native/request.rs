//! Requests of a client, one message each, many to a frame.
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
//! I1: a parsed request is consistent: its consumer need not check flags and words again.
//! I2: an op, flag, word or mode that version 1 does not know is answered `unsupported`; it is
//!     never guessed at and never dropped.

use std::ops::{BitOr, Bound};

use base::UnixMillis;
use thiserror::Error;

use super::reply::Status;

mod encode;
mod parse;

pub use parse::Requests;

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
