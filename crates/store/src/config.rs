//! Settings for opening a store, their limits, and the errors of invalid settings.

use std::fmt;

use index::mapping::HugePages;
pub use index::tree::BATCH_MAX;
use thiserror::Error;

/// The behaviour of a full log: evict or clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A cache: reclaims whole segments, oldest first, and keeps recently read entries.
    Evict,
    /// A store: drops nothing. It copies live entries out of sparse segments; when that no longer
    /// makes room, a write is answered "out of memory".
    Clean,
}

/// Which entries survive when their segment is reclaimed in [`Mode::Evict`] (MICA §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// None: first in, first out.
    Fifo,
    /// Entries read since they were written or last moved.
    LruApprox,
    /// The most recently used: an entry that is read is appended anew, unless it lies in the
    /// youngest sixteenth of the log.
    Lru,
    /// New items pass through a small queue, a tenth of the log. Items that are read there, or
    /// written again soon after they were dropped, go to the main queue, where each read (up to
    /// three) is worth one more round.
    #[default]
    S3Fifo,
}

/// The kind of index that finds keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// By hash: the fastest for one key at a time.
    Hash,
    /// In key order, by a trie of B+-trees: supports ranges of keys as well.
    Tree,
}

/// Settings of one store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// A hard cap on log, index and ghosts together. In addition a store has its tables: 16 bytes
    /// for each 256 KiB (the index's directory), some 50 for each segment, four more for each
    /// segment and session (up to eight sessions), and 250 for each session.
    pub memory_bytes: u64,
    /// The index's initial and minimum part of `memory_bytes`. The index grows to half of them, and
    /// shrinks, as items come and go; only a lossy one keeps its size.
    pub index_bytes: u64,
    /// The kind of index.
    pub index: IndexKind,
    /// The behaviour of a full log.
    pub mode: Mode,
    /// Which entries survive in [`Mode::Evict`].
    pub eviction: Eviction,
    /// Buckets of one line without overflow: a full bucket drops its oldest entry (MICA §4.1).
    pub lossy_index: bool,
    /// The most threads that may hold a session at once.
    pub session_max: usize,
    /// Largest key + value, at most [`crate::ITEM_MAX_BYTES`]; the log's size may lower it
    /// ([`Limits::item_max_bytes`]).
    pub item_max_bytes: u64,
    /// Seed of the key hash (K26).
    pub hash_seed: u64,
    /// The number of requests in flight in the three-stage pipeline, 1 to [`BATCH_MAX`]; 1 disables
    /// the pipeline.
    pub batch: usize,
    /// The kind of pages requested for the memory; [`crate::Store::page_kind`] returns the kind
    /// obtained.
    pub huge_pages: HugePages,
}

/// The capacity of an open store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest key + value of one item.
    pub item_max_bytes: u64,
    /// The size of one segment of the log (K14).
    pub segment_bytes: u64,
    /// The number of segments of log and index together.
    pub segment_count: u32,
}

/// The reason why a store did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A cap that leaves no usable log.
    #[error(
        "memory of {memory_bytes} bytes leaves {log_bytes} for the log; \
         {min_bytes} is the least for {session_max} sessions"
    )]
    TooSmall {
        /// The configured cap.
        memory_bytes: u64,
        /// The bytes that the index leaves to the log.
        log_bytes: u64,
        /// The bytes that the log needs.
        min_bytes: u64,
        /// The configured number of sessions.
        session_max: usize,
    },
    /// A number outside its range.
    #[error("{name} is {found}; it can be {min} to {max}")]
    OutOfRange {
        /// The setting's name.
        name: &'static str,
        /// The configured value.
        found: u64,
        /// The minimum, inclusive.
        min: u64,
        /// The maximum, inclusive.
        max: u64,
    },
    /// Recovered segments do not fit, or leave no room for the index, or for copies.
    #[error(
        "the memory is too small for the segments and entries that are there: give more memory"
    )]
    NoRoom,
    /// A durable store must not drop data.
    #[error("a durable store needs mode Clean and an index that is not lossy")]
    NotAStore,
    /// The kernel provided no address space.
    #[error("cannot map {bytes} bytes: {source}")]
    Map {
        /// The requested bytes.
        bytes: u64,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// The memory that recovered data needs, in bytes of [`StoreConfig::memory_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededMemory {
    /// The configured cap.
    pub given_bytes: u64,
    /// A larger cap: the one that the data has fitted into, and what the sessions need to make room
    /// there; beyond that, an estimate of what another index takes.
    pub enough_bytes: u64,
    /// The bytes up to the last segment in use, without the index.
    pub segments_bytes: u64,
}

impl fmt::Display for NeededMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NeededMemory { given_bytes, enough_bytes, segments_bytes } = self;
        write!(
            formatter,
            "the data does not fit into memory of {given_bytes} bytes: give {enough_bytes}; its \
             segments alone need {segments_bytes}"
        )
    }
}

/// All places for sessions are taken.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("all {session_max} sessions of the store are taken")]
pub struct NoSession {
    /// The configured number of sessions.
    pub session_max: usize,
}
