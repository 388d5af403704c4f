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

/// A request's id within its session; the reply repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// May be executed as often as it arrives; the number has no meaning for the server.
    Free(u32),
    /// Takes effect at most once: a sequence number, counted from 0 without gaps
    /// ([`super::Once`]). Both kinds may use the same numbers.
    Once(u32),
}

/// The fields that a reply should carry beside its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Want(u8);

/// One request. All fields borrow the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its id.
    pub id: RequestId,
    /// The fields that the reply should carry.
    pub want: Want,
    /// The operation.
    pub op: Op<'a>,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Answers `Ok`.
    Ping,
    /// Reads the value: `Ok`, or its first part if it does not fit ([`super::Reply::part`]);
    /// `Miss`.
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
        /// The version of the parts so far.
        version: u64,
        /// The requested bytes; the reply may hold fewer.
        span: Span,
    },
    /// A write: `Ok`, `NotStored`, `VersionMismatch`, `Miss`; for a part `PartTaken` until the
    /// whole value has arrived.
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
    /// Appends bytes to the value, or creates it if there is none: `Ok` with the new length as
    /// number.
    Append {
        /// The key.
        key: &'a [u8],
        /// The bytes.
        value: &'a [u8],
    },
    /// Puts bytes before the value in the same way.
    Prepend {
        /// The key.
        key: &'a [u8],
        /// The bytes.
        value: &'a [u8],
    },
    /// Changes only the expiry: `Ok`, `Miss`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The new one; [`Expiry::Never`] removes it, `Keep` only checks the key.
        expiry: Expiry,
    },
    /// A part of the key order, as much as fits into one reply: `Ok`, `NoOrder`.
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
    /// The expiry of the item.
    pub expiry: Expiry,
    /// The condition of the write.
    pub condition: Condition,
    /// The position of `value` in a value that is pushed in parts.
    pub part: Option<Part>,
}

/// The expiry of an item, or what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// None.
    Never,
    /// The present expiry of the item.
    Keep,
    /// At this time.
    At(UnixMillis),
    /// So many milliseconds after the server executes the request.
    AfterMs(u64),
}

/// The condition of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Always,
    /// The key does not exist; `NotStored` otherwise.
    IfAbsent,
    /// The key exists; `NotStored` otherwise.
    IfPresent,
    /// The key exists (`Miss` otherwise) with this version (`VersionMismatch` otherwise).
    IfVersion(u64),
}

/// The position of a part of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of its first byte.
    pub offset: u32,
    /// The whole value's length.
    pub total: u32,
}

/// The requested bytes of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The offset of the first byte.
    pub offset: u32,
    /// The maximum number of bytes.
    pub len_bytes: u32,
}

/// A part of the key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// The lower bound.
    pub start: Bound<&'a [u8]>,
    /// The upper bound.
    pub end: Bound<&'a [u8]>,
    /// The direction of the walk.
    pub direction: Direction,
    /// Whether the items come with their values.
    pub items: RangeItems,
    /// The maximum number of items.
    pub item_limit: u32,
}

/// The direction in which a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound up.
    Forward,
    /// From the upper bound down.
    Reverse,
}

/// The contents of each item in the reply to a range.
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
    /// Answer this id with this status (`Unsupported` or `Malformed`), and continue with the next.
    #[error("a request is answered {status:?} without being executed")]
    Refused {
        /// The request's id.
        id: RequestId,
        /// The status to answer.
        status: Status,
    },
    /// The message extends beyond the frame: the rest of the frame is dropped. The messages before
    /// it were whole and are valid.
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
    /// The status, and the result of a success: a value, a number.
    pub const PLAIN: Want = Want(0);
    /// The item's version.
    pub const VERSION: Want = Want(0x02);
    /// The item's client flags, when they are not 0.
    pub const CLIENT_FLAGS: Want = Want(0x04);
    /// The item's expiry, when it has one.
    pub const EXPIRY: Want = Want(0x08);
    /// For a get: the value's length as number instead of the value.
    pub const NO_VALUE: Want = Want(NO_VALUE);

    /// Whether all fields of `other` are wanted.
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
    /// The key that steers the request; `None` for ping, and for a range, which any worker
    /// executes.
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
