//! Items: what a reader sees of an entry.
//!
//! ```text
//!  entry in the log ─▶ Item { key, value, flags, version, expiry, last use }   borrowed from it
//! ```

use std::borrow::Cow;
use std::sync::LazyLock;

use base::{KeyHasher, UnixMillis};

/// A mark beside the client flags of an item: its value is out of date and may still be shown.
pub const STALE: u64 = 1 << 32;

/// A mark: a client was told to make the new value.
pub const WON: u64 = 1 << 33;

/// A mark of stored items only: behind the value lie [`TOKEN_BYTES`] with the CAS token that a
/// client has chosen (I3). An [`Item`] shows neither the token bytes nor this mark.
pub(crate) const HAS_TOKEN: u64 = 1 << 34;

/// The length of a token behind a value, little-endian.
pub(crate) const TOKEN_BYTES: usize = 8;

/// All marks that an item can have.
pub const MARKS_MASK: u64 = 0xff << 32;

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

/// The item was read.
const READ_BIT: u32 = 1 << 31;

/// When an item was last written or read, in seconds, and whether it was read since it was written.
/// It is noted without a lock: of two uses at the same moment one may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastUse(u32);

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
