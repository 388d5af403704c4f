//! Requests and outcomes: the interface between the protocols and the batch executor.
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
//! I3: replicas, logs and windows carry the stored form of an item: [`Item::unfolded`] makes an
//!     item of the stored form, [`Item::folded`] the stored form of an item. Only a
//!     [`Verdict::WriteToken`] gives an item a token; every other write removes it (decision 0086).

use base::{KeyHash, UnixMillis};

use crate::pieces::Pieces;
use crate::pin::Pins;

pub(crate) use crate::item::stored_token;
pub use crate::item::{
    Evicted, Item, LastUse, MARKS_MASK, STALE, Use, WON, fold_token, token_base,
};

/// One request on one key.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, U> {
    /// The key, at most [`crate::KEY_LEN_MAX_BYTES`] long; the caller has checked that.
    pub key: &'a [u8],
    /// `store.key_hasher().hash(key)`, computed once by the caller.
    pub hash: KeyHash,
    /// The operation.
    pub op: Op<'a, U>,
}

/// The four operations on a key. `U` is the caller's set of read-modify-writes.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a, U> {
    /// Answers `Hit` or `Miss`.
    Get,
    /// Answers `Stored`, `NotStored`, `VersionMismatch`, `Miss`, `OutOfMemory` or `TooLarge`.
    Set(Set<'a>),
    /// Answers `Deleted` or `Miss`.
    Delete,
    /// Answers `Updated`, `Deleted`, `Refused`, `OutOfMemory` or `TooLarge`; `Hit` or `Miss` if it
    /// turned out to be a plain read.
    Update(U),
}

/// A write that does not depend on the old value, except through its condition.
#[derive(Clone, Copy, Debug)]
pub struct Set<'a> {
    /// The new value.
    pub value: &'a [u8],
    /// Opaque to the store: memcached's flags in the low half, marks in the byte above.
    pub client_flags: u64,
    /// The expiry of the new item.
    pub expiry: Expiry,
    /// The condition for the write.
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

impl Expiry {
    /// The new item's expiry, given that of the old one.
    #[inline]
    pub fn after(self, old: Option<UnixMillis>) -> Option<UnixMillis> {
        match self {
            Expiry::Never => None,
            Expiry::Keep => old,
            Expiry::At(at) => Some(at),
        }
    }
}

/// The condition of a [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Always,
    /// The key does not exist (`NotStored` otherwise).
    IfAbsent,
    /// The key exists (`NotStored` otherwise).
    IfPresent,
    /// The key exists (`Miss` otherwise) with this version (`VersionMismatch` otherwise).
    IfVersion(u64),
    /// Like `IfVersion`, with this CAS token, which is the version unless a client has chosen one.
    IfToken(u64),
}

/// Why a [`Set`] writes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The key exists, or does not, against the condition.
    NotStored,
    /// There is no item whose version could be compared.
    Miss,
    /// The item has another version or token.
    OtherVersion,
}

impl Condition {
    /// Why a set writes nothing, given the key's item, if that is alive; `None`: it writes. The
    /// store, compaction and replication all ask here.
    #[inline]
    pub fn unmet(self, old: Option<&Item<'_>>) -> Option<Unmet> {
        match (self, old) {
            (Condition::IfAbsent, Some(_)) | (Condition::IfPresent, None) => Some(Unmet::NotStored),
            (Condition::IfVersion(_) | Condition::IfToken(_), None) => Some(Unmet::Miss),
            (Condition::IfVersion(version), Some(item)) if item.version != version => {
                Some(Unmet::OtherVersion)
            }
            (Condition::IfToken(token), Some(item)) if item.cas() != token => {
                Some(Unmet::OtherVersion)
            }
            _ => None,
        }
    }

    /// The outcome of a set that writes nothing; `None`: it writes.
    #[inline]
    pub fn refusal<R>(self, old: Option<Item<'_>>) -> Option<Outcome<'_, R>> {
        Some(match (self.unmet(old.as_ref())?, old) {
            (Unmet::NotStored, _) => Outcome::NotStored { old },
            (Unmet::OtherVersion, Some(old)) => Outcome::VersionMismatch { old },
            (Unmet::Miss | Unmet::OtherVersion, _) => Outcome::Miss,
        })
    }
}

/// A read-modify-write: pure, may be applied more than once before it takes effect.
pub trait Update {
    /// The reason for a refusal, e.g. "value is not an integer".
    type Refusal: Copy;

    /// Decides the key's new state from its old one (`None`: absent or expired).
    ///
    /// `value` comes in empty; on [`Verdict::Write`] it holds the new value. Runs under the key's
    /// bucket lock: it must be short, must not block and must not call the store.
    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<Self::Refusal>;

    /// Like `apply`, with the new value in pieces: parts taken from the old value or from the
    /// request are referenced in place and need no memory of their own. `pieces` comes in empty.
    #[inline]
    fn apply_in_pieces<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<Self::Refusal> {
        self.apply(old, &mut pieces.made)
    }

    /// The maximum length of `pieces.made` if the old item is this one: room for a long value must
    /// be booked before it is made ([`ScratchRoom`]).
    fn made_len_max(&self, old: Option<&Item<'_>>) -> usize {
        old.map_or(0, |old| old.value.len())
    }

    /// Whether the update may turn out to be a plain read: then the store calls [`Update::reads`]
    /// before it takes the lock.
    #[inline]
    fn may_read(&self) -> bool {
        false
    }

    /// The update's effect on the item's time of last use.
    fn usage(&self) -> Use {
        Use::Usual
    }

    /// Whether the update is a plain read of the old item: answered `Hit` or `Miss`.
    fn reads(&self, _old: Option<&Item<'_>>) -> bool {
        false
    }
}

/// The decision of an [`Update`].
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
    /// Like `Write`, and sets the item's CAS token, which it keeps until it is written again.
    WriteToken {
        /// The new item's client flags and marks.
        client_flags: u64,
        /// As in [`Verdict::Write`].
        expires_at: Option<UnixMillis>,
        /// Any number.
        token: u64,
    },
    /// Keeps the value, client flags, marks and token, changes only the expiry.
    Touch {
        /// The new expiry; `None` is never. A passed time deletes.
        expires_at: Option<UnixMillis>,
    },
    /// Deletes the key.
    Delete,
    /// Changes nothing and answers `Refused`.
    Refuse(R),
}

/// What a [`Verdict`] does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<R> {
    /// The key stays as it is.
    Nothing,
    /// As in [`Verdict::Refuse`].
    Refused(R),
    /// The key, if it exists, is deleted.
    Delete,
    /// The bytes that `apply` left in `value` become its value.
    Write {
        /// The new item's client flags and marks.
        client_flags: u64,
        /// The new item's expiry, which has not passed.
        expires_at: Option<UnixMillis>,
        /// The new item's CAS token, if the update sets it.
        token: Option<u64>,
    },
    /// The present item gets another expiry, which has not passed.
    Touch {
        /// The new expiry.
        expires_at: Option<UnixMillis>,
    },
}

impl<R> Verdict<R> {
    /// The effect at a time: the touch of an absent key changes nothing, and an expiry that has
    /// passed deletes.
    #[inline]
    pub fn effect(self, is_present: bool, now: UnixMillis) -> Effect<R> {
        let has_passed = |at: Option<UnixMillis>| at.is_some_and(|at| at <= now);
        match self {
            Verdict::Keep => Effect::Nothing,
            Verdict::Touch { .. } if !is_present => Effect::Nothing,
            Verdict::Refuse(why) => Effect::Refused(why),
            Verdict::Delete => Effect::Delete,
            Verdict::Write { expires_at, .. }
            | Verdict::WriteToken { expires_at, .. }
            | Verdict::Touch { expires_at }
                if has_passed(expires_at) =>
            {
                Effect::Delete
            }
            Verdict::Write { client_flags, expires_at } => {
                Effect::Write { client_flags, expires_at, token: None }
            }
            Verdict::WriteToken { client_flags, expires_at, token } => {
                Effect::Write { client_flags, expires_at, token: Some(token) }
            }
            Verdict::Touch { expires_at } => Effect::Touch { expires_at },
        }
    }
}

/// The answer to one [`Request`].
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a, R> {
    /// The item that a Get found.
    Hit(Item<'a>),
    /// Get, Delete or Set-if-version of a key that does not exist.
    Miss,
    /// A Set was executed.
    Stored {
        /// The new version.
        version: u64,
        /// The item that it replaced.
        old: Option<Item<'a>>,
    },
    /// The condition on presence of a Set does not hold.
    NotStored {
        /// The present item.
        old: Option<Item<'a>>,
    },
    /// The version in a Set is not the item's.
    VersionMismatch {
        /// The present item.
        old: Item<'a>,
    },
    /// A Delete, or an Update that deleted.
    Deleted {
        /// The deleted item; `None` only for an Update of an absent key.
        old: Option<Item<'a>>,
    },
    /// An Update that wrote (`new` is `Some`) or kept (`new` is `None`).
    Updated {
        /// The previous item.
        old: Option<Item<'a>>,
        /// The present item.
        new: Option<Item<'a>>,
    },
    /// An Update that was refused.
    Refused(R),
    /// Store mode: no space, and cleaning cannot make any. Nothing changed.
    OutOfMemory,
    /// The reply has no room for the old value ([`Sink::may_tell`]). Nothing changed.
    Untold,
    /// The durable log cannot be written, so no write is accepted that might be lost. Nothing
    /// changed.
    Unwritable,
    /// The item is larger than the store takes. Nothing changed.
    TooLarge {
        /// The length of the refused value.
        len_bytes: u64,
        /// The maximum length of a value, at this key length.
        max_bytes: u64,
    },
}

/// Receives the outcomes of a batch (I1, I2).
pub trait Sink<R> {
    /// The outcome of `requests[request_index]`. `pins` can keep an item's bytes beyond the call.
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, R>, pins: Pins<'_>);

    /// Whether the reply to a change has room for the old item, if it reports that: asked under the
    /// key's lock before the item is replaced or deleted, and again if the change begins again.
    /// Otherwise nothing changes ([`Outcome::Untold`]): no value is lost for want of room in a
    /// reply. Not asked for values shorter than [`TOLD_BYTES_MIN`].
    #[inline]
    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        let _ = (request_index, old, pins);
        true
    }
}

/// Replies have room for shorter values in any case.
pub const TOLD_BYTES_MIN: usize = 64 << 10;

/// For callers without read-modify-writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoUpdate {}

impl Update for NoUpdate {
    type Refusal = NoUpdate;

    fn apply(&self, _old: Option<&Item<'_>>, _value: &mut Vec<u8>) -> Verdict<NoUpdate> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000);

    #[track_caller]
    fn check(verdict: Verdict<()>, where_present: Effect<()>, where_absent: Effect<()>) {
        assert_eq!(verdict.effect(true, NOW), where_present);
        assert_eq!(verdict.effect(false, NOW), where_absent);
    }

    #[test]
    fn a_passed_expiry_deletes_and_an_absent_key_is_not_touched() {
        let (later, passed) = (Some(UnixMillis(1_001)), Some(NOW));
        let touch = |expires_at| Verdict::Touch { expires_at };
        check(touch(later), Effect::Touch { expires_at: later }, Effect::Nothing);
        check(touch(passed), Effect::Delete, Effect::Nothing);
        let write = Effect::Write { client_flags: 7, expires_at: None, token: None };
        check(Verdict::Write { client_flags: 7, expires_at: None }, write, write);
        let deleting = Verdict::WriteToken { client_flags: 7, expires_at: passed, token: 3 };
        check(deleting, Effect::Delete, Effect::Delete);
        check(Verdict::Refuse(()), Effect::Refused(()), Effect::Refused(()));
    }
}
