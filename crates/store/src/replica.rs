//! Replicated entries: a copy of a shard installs entries that carry the primary's version (K1).
//!
//! ```text
//!  primary's counter ─▶ version ∥ shard ─▶ Session::install ─▶ higher than what the key has?
//!                                             yes: as any write, under that version
//!                                             no:  nothing
//! ```
//!
//! # Invariants
//! R1: a shard's entries in the index have the versions that its primary gave. Installing one
//!     raises the chain's own counter above it, so that a reader that misses sees the change (K9).
//! R2: a delete leaves nothing in the index: the caller that installs it remembers it for as long
//!     as an older entry may come (K2).

use std::num::NonZeroU16;

use base::{KeyHash, UnixMillis};

/// One entry of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    /// The key, at most [`crate::KEY_LEN_MAX_BYTES`] long; the caller has checked that.
    pub key: &'a [u8],
    /// `store.key_hasher().hash(key)`.
    pub hash: KeyHash,
    /// What the key has from this version on.
    pub change: ReplicaChange<'a>,
    /// 1 to [`crate::record::VERSION_MASK`].
    pub version: u64,
    /// Which shard; entries that are not replicated have 0.
    pub shard: NonZeroU16,
}

/// What an entry makes of its key.
#[derive(Clone, Copy, Debug)]
pub enum ReplicaChange<'a> {
    /// It has this value.
    Put {
        /// The value.
        value: &'a [u8],
        /// As written by the client.
        client_flags: u64,
        /// `None`: never.
        expires_at: Option<UnixMillis>,
    },
    /// It has none (R2).
    Delete,
}

/// A delete that was found on the medium: what is older of its key must not come back (R2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredDelete {
    /// Of which key.
    pub key: Box<[u8]>,
    /// As it was installed.
    pub version: u64,
    /// As it was installed.
    pub shard: NonZeroU16,
}

/// What came of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is what the key has.
    Newest,
    /// The key has an entry with this version, which is as high or higher. Nothing changed.
    Older {
        /// Of what is there.
        present: u64,
    },
}

/// Why an entry was not installed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotInstalled {
    /// No space, and cleaning cannot make any.
    #[error("no memory is left for an entry of {len_bytes} bytes: give more memory")]
    OutOfMemory {
        /// Of the value.
        len_bytes: usize,
    },
    /// Larger than the store takes.
    #[error("a value of {len_bytes} bytes is larger than {max_bytes}, the most for such a key")]
    TooLarge {
        /// Of the value.
        len_bytes: u64,
        /// At this key's length.
        max_bytes: u64,
    },
    /// The durable log cannot be written.
    #[error("the log cannot be written: restart after repair")]
    Unwritable,
}

/// Items by shard, kept up to date by all sessions.
pub(crate) struct ShardCounts(Box<[std::sync::atomic::AtomicU64]>);

impl ShardCounts {
    pub(crate) fn new() -> ShardCounts {
        ShardCounts((0..=u16::MAX).map(|_| Default::default()).collect())
    }

    pub(crate) fn add(&self, shard: u16, count: u64) {
        self.0[usize::from(shard)].fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    }

    /// Wraps: an item may be taken away before it is counted.
    pub(crate) fn remove(&self, shard: u16) {
        self.add(shard, u64::MAX);
    }

    pub(crate) fn of(&self, shard: u16) -> u64 {
        let count = self.0[usize::from(shard)].load(std::sync::atomic::Ordering::Relaxed);
        count.cast_signed().max(0).cast_unsigned()
    }
}
