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

use std::borrow::Cow;
use std::sync::LazyLock;

use base::{KeyHash, KeyHasher, UnixMillis};

use crate::pieces::Pieces;
use crate::pin::Pins;

/// A mark beside the client flags of an item: its value is out of date and may still be shown.
pub const STALE: u64 = 1 << 32;
/// A mark: a client was told to make the new value.
pub const WON: u64 = 1 << 33;
/// A mark of stored items only: behind the value lie [`TOKEN_BYTES`] with the CAS token that a
/// client has chosen (I3). An [`Item`] shows neither the token bytes nor this mark.
const HAS_TOKEN: u64 = 1 << 34;
/// The length of a token behind a value, little-endian.
const TOKEN_BYTES: usize = 8;
/// All marks that an item can have.
pub const MARKS_MASK: u64 = 0xff << 32;

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

/// Books the memory in which updates make long values.
pub trait ScratchRoom: Send + Sync {
    /// Books `bytes`; returns false, and books none, if there is no room.
    fn try_take(&self, bytes: usize) -> bool;

    /// Releases `bytes`.
    fn give_back(&self, bytes: usize);
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

/// The number that is added to an item's version to make its CAS token: versions of two keys are
/// often equal, tokens are not (decision 0090). The hash is one that clients may know (K26); its 52
/// bits and a version together are far from 64.
pub fn token_base(key: &[u8]) -> u64 {
    static PUBLIC: LazyLock<KeyHasher> = LazyLock::new(|| KeyHasher::new(0));
    PUBLIC.hash(key).0 >> 12
}

/// One stored item, borrowed from the log.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The client's flags in the low half; above them marks such as [`STALE`].
    pub client_flags: u64,
    /// 48-bit version (K1). Never 0.
    pub version: u64,
    /// The CAS token that a client has chosen, if one has.
    pub token: Option<u64>,
    /// The shard whose primary assigned the version; 0: the item is not replicated.
    pub shard: u16,
    /// The expiry; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// The last use before this request, as far as it is noted.
    pub last_use: LastUse,
}

impl<'a> Item<'a> {
    /// An item of the shortest kind of entry: no client flags, no token, no expiry.
    #[inline]
    pub(crate) fn plain(
        key: &'a [u8],
        value: &'a [u8],
        version: u64,
        shard: u16,
        last_use: LastUse,
    ) -> Item<'a> {
        Item {
            key,
            value,
            client_flags: 0,
            version,
            token: None,
            shard,
            expires_at: None,
            last_use,
        }
    }

    /// Makes an item of the form stored under a key, for use outside a store.
    pub fn of_stored(
        key: &'a [u8],
        value: &'a [u8],
        client_flags: u64,
        version: u64,
        expires_at: Option<UnixMillis>,
    ) -> Item<'a> {
        let plain = Item::plain(key, value, version, 0, LastUse::UNKNOWN);
        Item { client_flags, expires_at, ..plain }.unfolded()
    }

    /// memcached's CAS token.
    #[inline]
    pub fn cas(&self) -> u64 {
        self.token.unwrap_or_else(|| token_base(self.key) + self.version)
    }

    /// Removes the token from behind the value, if there is one (I3).
    #[inline]
    pub fn unfolded(self) -> Item<'a> {
        if self.client_flags & HAS_TOKEN == 0 {
            return self;
        }
        let client_flags = self.client_flags & !HAS_TOKEN;
        match self.value.split_last_chunk::<TOKEN_BYTES>() {
            Some((value, token)) => {
                Item { value, client_flags, token: Some(u64::from_le_bytes(*token)), ..self }
            }
            // Bytes that the store did not fold.
            None => Item { client_flags, ..self },
        }
    }

    /// The value and the client flags as they are stored: the token, if there is one, behind the
    /// value (I3).
    pub fn folded(&self) -> (Cow<'a, [u8]>, u64) {
        let Some(token) = self.token else { return (Cow::Borrowed(self.value), self.client_flags) };
        let mut value = Vec::with_capacity(self.value.len() + TOKEN_BYTES);
        value.extend_from_slice(self.value);
        let client_flags = fold_token(token, &mut value, self.client_flags);
        (Cow::Owned(value), client_flags)
    }
}

/// Appends a token to a value; returns the client flags to store with it (I3).
pub fn fold_token(token: u64, value: &mut Vec<u8>, client_flags: u64) -> u64 {
    let (token, client_flags) = stored_token(token, client_flags);
    value.extend_from_slice(&token);
    client_flags
}

/// The token bytes to store behind a value, and the client flags to store with it (I3).
pub(crate) fn stored_token(token: u64, client_flags: u64) -> ([u8; TOKEN_BYTES], u64) {
    (token.to_le_bytes(), client_flags | HAS_TOKEN)
}

/// An evicted entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its key.
    pub key: Box<[u8]>,
    /// The length of its value.
    pub value_len_bytes: usize,
    /// Its expiry; `None`: never.
    pub expires_at: Option<UnixMillis>,
    /// Its last use, as far as it is noted.
    pub last_use: LastUse,
}

/// When an item was last written or read, in seconds, and whether it was read since it was written.
/// It is noted without a lock: of two uses at the same moment one may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastUse(u32);

/// The item was read.
const READ_BIT: u32 = 1 << 31;

impl LastUse {
    /// The store does not note uses ([`crate::Tuning::notes_use`]).
    pub const UNKNOWN: LastUse = LastUse(0);

    /// Written now, and not read since.
    #[inline]
    pub fn written(now: UnixMillis) -> LastUse {
        // Modulo 2^31; a second that would be 0 counts as 1.
        LastUse(((now.0 / 1000) as u32 & !READ_BIT).max(1))
    }

    /// Read now.
    #[inline]
    pub fn read(now: UnixMillis) -> LastUse {
        LastUse::written(now).as_read()
    }

    /// The same time, read.
    #[inline]
    pub fn as_read(self) -> LastUse {
        LastUse(self.0 | READ_BIT)
    }

    /// The same time, not read.
    #[inline]
    pub fn as_written(self) -> LastUse {
        LastUse(self.0 & !READ_BIT)
    }

    /// Now, with the read flag of `before`.
    #[inline]
    pub fn after(self, before: LastUse) -> LastUse {
        LastUse(self.0 & !READ_BIT | before.0 & READ_BIT)
    }

    /// Whether the item was read since it was written; false if that is not known.
    #[inline]
    pub fn is_read(self) -> bool {
        self.0 & READ_BIT != 0
    }

    /// The number of seconds since then; 0 if that is not known.
    pub fn seconds_ago(self, now: UnixMillis) -> u64 {
        if self == LastUse::UNKNOWN {
            return 0;
        }
        let ago = LastUse::written(now).0.wrapping_sub(self.0) & !READ_BIT;
        // A clock that was set back puts the time in the future.
        if ago >= READ_BIT / 2 { 0 } else { u64::from(ago) }
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> LastUse {
        LastUse(bits)
    }
}

/// The effect of an [`Update`] on its item's time of last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The usual effect: a new value counts as not read, a new expiry leaves that unchanged, a read
    /// counts as a read.
    Usual,
    /// Not a read: a count, a mark, an inspection.
    NoRead,
    /// A read, whatever else the update does.
    Read,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_stored_behind_the_value() {
        let plain = Item::of_stored(b"k", b"value", 7 | STALE, 3, None);
        assert_eq!((plain.cas(), plain.token), (token_base(b"k") + 3, None));
        assert_eq!(plain.folded(), (Cow::Borrowed(&b"value"[..]), 7 | STALE));
        for token in [0, 3, u64::MAX] {
            let item = Item { token: Some(token), ..plain };
            let (stored, client_flags) = item.folded();
            assert_eq!(stored.len(), 13);
            let read = Item::of_stored(b"k", &stored, client_flags, 4, None);
            assert_eq!((read.value, read.client_flags), (&b"value"[..], 7 | STALE));
            assert_eq!((read.cas(), read.version), (token, 4));
        }
        // Nothing that was folded.
        let short = Item::of_stored(b"k", b"value", HAS_TOKEN, 3, None);
        assert_eq!((short.value, short.client_flags), (&b"value"[..], 0));
        assert_eq!((short.version, short.token), (3, None));
    }

    #[test]
    fn a_use_is_told_in_seconds_and_with_whether_it_was_read() {
        let at = |second: u64| UnixMillis(second * 1000 + 999);
        let written = LastUse::written(at(5));
        assert!(!written.is_read() && written.as_read().is_read());
        assert_eq!((written.seconds_ago(at(5)), written.as_read().seconds_ago(at(15))), (0, 10));
        assert_eq!(written.seconds_ago(at(3)), 0, "the clock went back");
        assert_eq!(LastUse::UNKNOWN.seconds_ago(at(9)), 0);
        let counted = LastUse::read(at(9)).after(written);
        assert!(!counted.is_read() && counted.seconds_ago(at(9)) == 0);
        assert!(LastUse::written(at(9)).after(LastUse::read(at(1))).is_read());
        // Where the seconds wrap around.
        let last = LastUse::written(at((1 << 31) - 1));
        assert_eq!(last.seconds_ago(at((1 << 31) + 4)), 5);
        assert_ne!(LastUse::written(at(1 << 31)), LastUse::UNKNOWN);
    }

    #[test]
    fn tokens_of_two_keys_differ_where_their_versions_are_equal() {
        let token = |key: &[u8], version| Item::of_stored(key, b"", 0, version, None).cas();
        let keys: Vec<String> = (0..10_000).map(|number| format!("foo{number}")).collect();
        let mut tokens: Vec<u64> = keys.iter().map(|key| token(key.as_bytes(), 1)).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), keys.len());
        let latest = (1 << 48) - 1;
        assert!(token(b"a", latest) > token(b"a", latest - 1) && token(b"a", 1) > 0);
    }
}
