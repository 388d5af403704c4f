//! What the store is asked and what it answers: the face between protocols and the batch executor.
//!
//! ```text
//!  Request { key, hash, op } x 32  ──▶  Session::execute  ──▶  Sink::outcome(index, Outcome)
//! ```
//!
//! Requests borrow the bytes they arrived in; outcomes borrow the log. Neither is copied here.
//!
//! # Invariants
//! I1: a sink sees the outcomes of one call in the order of the requests, each exactly once.
//! I2: an [`Item`] is valid only during the sink's call, unless the sink takes a pin (K12).

use base::{KeyHash, UnixMillis};

use crate::pin::Pins;

/// A mark beside the client flags of an item: its value is out of date and may still be shown.
pub const STALE: u64 = 1 << 32;
/// The same: a client was told that the new value is its to make.
pub const WON: u64 = 1 << 33;
/// All marks that an item can have.
pub const MARKS_MASK: u64 = 0xff << 32;

/// One request on one key.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, U> {
    /// The key, at most [`crate::KEY_LEN_MAX_BYTES`] long; the caller has checked that.
    pub key: &'a [u8],
    /// `store.key_hasher().hash(key)`, computed once by the caller.
    pub hash: KeyHash,
    /// What to do.
    pub op: Op<'a, U>,
}

/// The four things that can be done to a key. `U` is the caller's set of read-modify-writes.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a, U> {
    /// Answers `Hit` or `Miss`.
    Get,
    /// Answers `Stored`, `NotStored`, `VersionMismatch`, `Miss`, `OutOfMemory` or `TooLarge`.
    Set(Set<'a>),
    /// Answers `Deleted` or `Miss`.
    Delete,
    /// Answers `Updated`, `Deleted`, `Refused`, `OutOfMemory` or `TooLarge`; `Hit` or `Miss` where
    /// it was a plain read after all.
    Update(U),
}

/// A write that does not depend on the old value, except through its condition.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// The new value.
    pub value: &'a [u8],
    /// Opaque to the store: memcached's flags in the low half, marks in the byte above.
    pub client_flags: u64,
    /// When the item stops to exist.
    pub expiry: Expiry,
    /// What must hold for the write to happen.
    pub condition: Condition,
}

/// The expiry of a written item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Lives until it is deleted or evicted.
    Never,
    /// Keeps the old item's expiry (never, if there is none).
    Keep,
    /// Expires at this time; a time that has passed makes the write a delete.
    At(UnixMillis),
}

/// What must hold for a [`Set`] to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// The key does not exist (`NotStored` otherwise).
    IfAbsent,
    /// The key exists (`NotStored` otherwise).
    IfPresent,
    /// The key exists (`Miss` otherwise) with this version (`VersionMismatch` otherwise).
    IfVersion(u64),
}

/// A read-modify-write: pure, may be applied more than once before it takes effect.
pub trait Update {
    /// Why it can be refused, e.g. "value is not an integer".
    type Refusal: Copy;

    /// Decides the key's new state from its old one (`None`: absent or expired).
    ///
    /// `value` comes in empty; on [`Verdict::Write`] it holds the new value. Runs under the key's
    /// bucket lock: it must be short, must not block and must not call the store.
    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<Self::Refusal>;

    /// Whether it may turn out to be a plain read: then the store asks [`Update::reads`] before it
    /// takes the lock.
    #[inline]
    fn may_read(&self) -> bool {
        false
    }

    /// Whether it is a plain read of what is there: answered `Hit` or `Miss`.
    fn reads(&self, _old: Option<&Item<'_>>) -> bool {
        false
    }
}

/// What an [`Update`] decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<R> {
    /// Leaves the key as it is (absent stays absent). Answers `Updated { new: None }`.
    Keep,
    /// Writes the bytes that `apply` left in `value`.
    Write {
        /// The new item's client flags and marks.
        client_flags: u64,
        /// The new item's expiry; `None` is never. A passed time deletes.
        expires_at: Option<UnixMillis>,
    },
    /// Keeps the value, client flags and marks, changes only the expiry.
    Touch {
        /// The new expiry; `None` is never. A passed time deletes.
        expires_at: Option<UnixMillis>,
    },
    /// Deletes the key.
    Delete,
    /// Changes nothing and answers `Refused`.
    Refuse(R),
}

/// One stored item, borrowed from the log.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// As written by the client, in the low half; above them marks such as [`STALE`].
    pub client_flags: u64,
    /// 48-bit version (K1), the memcached CAS token. Never 0.
    pub version: u64,
    /// Which shard's primary gave the version; 0: it is not replicated.
    pub shard: u16,
    /// `None`: never.
    pub expires_at: Option<UnixMillis>,
}

/// The answer to one [`Request`].
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a, R> {
    /// The item that a Get found.
    Hit(Item<'a>),
    /// Get, Delete or Set-if-version of a key that does not exist.
    Miss,
    /// A Set happened.
    Stored {
        /// The new version.
        version: u64,
        /// What it replaced.
        old: Option<Item<'a>>,
    },
    /// A Set's condition on presence did not hold.
    NotStored {
        /// What is there.
        old: Option<Item<'a>>,
    },
    /// A Set's version is not the item's.
    VersionMismatch {
        /// What is there.
        old: Item<'a>,
    },
    /// A Delete, or an Update that deleted.
    Deleted {
        /// What was there; `None` only for an Update of an absent key.
        old: Option<Item<'a>>,
    },
    /// An Update that wrote (`new` is `Some`) or kept (`new` is `None`).
    Updated {
        /// What was there.
        old: Option<Item<'a>>,
        /// What is there now.
        new: Option<Item<'a>>,
    },
    /// An Update that was refused.
    Refused(R),
    /// Store mode: no space, and cleaning cannot make any. Nothing changed.
    OutOfMemory,
    /// The durable log cannot be written: nothing is taken that might be lost. Nothing changed.
    Unwritable,
    /// The item is larger than the store takes. Nothing changed.
    TooLarge {
        /// Of the refused value.
        len_bytes: u64,
        /// Of a value, at this key length.
        max_bytes: u64,
    },
}

/// Receives the outcomes of a batch (I1, I2).
pub trait Sink<R> {
    /// The outcome of `requests[request_index]`. `pins` can keep an item's bytes beyond the call.
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, R>, pins: Pins<'_>);
}

/// For callers without read-modify-writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoUpdate {}

impl Update for NoUpdate {
    type Refusal = NoUpdate;

    fn apply(&self, _old: Option<&Item<'_>>, _value: &mut Vec<u8>) -> Verdict<NoUpdate> {
        match *self {}
    }
}
