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

use crate::entry::entry_len_max_bytes;

/// One entry of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    /// The key, at most [`crate::KEY_LEN_MAX_BYTES`] long; the caller has checked that.
    pub key: &'a [u8],
    /// `store.key_hasher().hash(key)`.
    pub hash: KeyHash,
    /// The key's state from this version on.
    pub change: ReplicaChange<'a>,
    /// 1 to [`crate::record::VERSION_MASK`].
    pub version: u64,
    /// The shard; entries that are not replicated have 0.
    pub shard: NonZeroU16,
}

impl Replica<'_> {
    /// The log space that its entry takes at most; the delete of a log in memory takes none.
    pub(crate) fn entry_len_max_bytes(&self) -> u64 {
        entry_len_max_bytes(self.key.len(), self.value_len_bytes()) as u64
    }

    /// The length of its value, if it has one.
    pub(crate) fn value_len_bytes(&self) -> usize {
        match self.change {
            ReplicaChange::Put { value, .. } => value.len(),
            ReplicaChange::Delete => 0,
        }
    }
}

/// A replicated change of a key.
#[derive(Clone, Copy, Debug)]
pub enum ReplicaChange<'a> {
    /// The key gets a value.
    Put {
        /// The value.
        value: &'a [u8],
        /// The client's flags.
        client_flags: u64,
        /// The expiry; `None`: never.
        expires_at: Option<UnixMillis>,
    },
    /// The key is deleted (R2).
    Delete,
}

/// A delete found on the medium: older entries of its key must not come back (R2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredDelete {
    /// The key.
    pub key: Box<[u8]>,
    /// The version that was installed.
    pub version: u64,
    /// The shard that was installed.
    pub shard: NonZeroU16,
}

/// The result of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The entry is now the newest of its key.
    Newest,
    /// The key has an entry with this version, which is as high or higher. Nothing changed.
    Older {
        /// The version of the present entry.
        present: u64,
    },
}

/// The reason why an entry was not installed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotInstalled {
    /// No space, and cleaning cannot make any.
    #[error("no memory is left for an entry of {len_bytes} bytes: give more memory")]
    OutOfMemory {
        /// The length of the value.
        len_bytes: usize,
    },
    /// The value is too large for the store.
    #[error("a value of {len_bytes} bytes is larger than {max_bytes}, the most for such a key")]
    TooLarge {
        /// The length of the value.
        len_bytes: u64,
        /// The maximum at this key's length.
        max_bytes: u64,
    },
    /// The durable log cannot be written.
    #[error("the log cannot be written: restart after repair")]
    Unwritable,
}

/// Numbers of items by shard, maintained by all sessions.
pub(crate) struct ShardCounts(Box<[std::sync::atomic::AtomicU64]>);

impl ShardCounts {
    pub(crate) fn new() -> ShardCounts {
        ShardCounts((0..=u16::MAX).map(|_| Default::default()).collect())
    }

    pub(crate) fn add(&self, shard: u16, count: u64) {
        self.0[usize::from(shard)].fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    }

    /// Subtracts one, wrapping: an item may be removed before it is counted.
    pub(crate) fn remove(&self, shard: u16) {
        self.add(shard, u64::MAX);
    }

    pub(crate) fn of(&self, shard: u16) -> u64 {
        let count = self.0[usize::from(shard)].load(std::sync::atomic::Ordering::Relaxed);
        count.cast_signed().max(0).cast_unsigned()
    }
}
