//! Settings for opening a store, their limits, and the errors of invalid settings.

use thiserror::Error;

use crate::mapping::HugePages;

/// What happens when the log is full (architecture of the log: evict or clean).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A cache: whole segments are reclaimed, oldest first; what was read lately is kept.
    Evict,
    /// A store: nothing is dropped; live entries are copied out of sparse segments, and when that
    /// no longer makes room a write is answered "out of memory".
    Clean,
}

/// Which entries survive the reclaiming of their segment in [`Mode::Evict`] (MICA §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// None: first in, first out.
    Fifo,
    /// Those that were read since they were written or last moved.
    LruApprox,
    /// New items pass through a small queue, a tenth of the log; what was read there, or comes back
    /// soon after it was dropped, goes to the main queue, where each read (up to three) is worth
    /// one more round.
    #[default]
    S3Fifo,
}

/// How keys are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// By their hash: the fastest for one key at a time.
    Hash,
    /// In their order, by a trie of B+-trees: ranges of keys as well.
    Tree,
}

/// Settings of one store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Log, index and ghosts together: a hard cap. Beside it a store has its tables: 16 bytes for
    /// each 256 KiB (the index's directory), some 50 for each segment, four more for each segment
    /// and session (up to eight sessions), and 250 for each session.
    pub memory_bytes: u64,
    /// What the index has of `memory_bytes` at first, and at least. It grows to half of them, and
    /// shrinks, as items come and go; only a lossy one stays as it is.
    pub index_bytes: u64,
    /// How keys are found.
    pub index: IndexKind,
    /// What a full log does.
    pub mode: Mode,
    /// Which entries survive in [`Mode::Evict`].
    pub eviction: Eviction,
    /// Buckets of one line without overflow: a full bucket drops its oldest entry (MICA §4.1).
    pub lossy_index: bool,
    /// How many threads may hold a session at once.
    pub session_max: usize,
    /// Largest key + value, at most [`crate::ITEM_MAX_BYTES`]; the log's size may lower it
    /// ([`Limits::item_max_bytes`]).
    pub item_max_bytes: u64,
    /// Seed of the key hash (K26).
    pub hash_seed: u64,
    /// Requests in flight in the three-stage pipeline, 1 to [`BATCH_MAX`]; 1 is no pipeline.
    pub batch: usize,
    /// Which pages the memory is asked to lie on; [`crate::Store::page_kind`] says which it got.
    pub huge_pages: HugePages,
}

/// Most requests in flight in the three-stage pipeline.
pub const BATCH_MAX: usize = 64;

/// What an open store can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest key + value of one item.
    pub item_max_bytes: u64,
    /// One segment of the log (K14).
    pub segment_bytes: u64,
    /// Segments of log and index together.
    pub segment_count: u32,
}

/// Why a store did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A cap that leaves no usable log.
    #[error(
        "memory of {memory_bytes} bytes leaves {log_bytes} for the log; \
         {min_bytes} is the least for {session_max} sessions"
    )]
    TooSmall {
        /// As configured.
        memory_bytes: u64,
        /// What the index leaves.
        log_bytes: u64,
        /// What the log needs.
        min_bytes: u64,
        /// As configured.
        session_max: usize,
    },
    /// A count outside its range.
    #[error("{name} is {found}; it can be {min} to {max}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// As configured.
        found: u64,
        /// Inclusive.
        min: u64,
        /// Inclusive.
        max: u64,
    },
    /// A data file's segments that do not all lie within the memory.
    #[error(
        "the data file uses segments up to {used_bytes} bytes of log, and the memory has \
         {log_bytes}: give more memory"
    )]
    DoesNotFit {
        /// Up to the last segment in use.
        used_bytes: u64,
        /// Of all segments.
        log_bytes: u64,
    },
    /// Recovered entries leave no room for the index, or for copies.
    #[error(
        "the memory is too small for the segments and entries that are there: give more memory"
    )]
    NoRoom,
    /// A durable store must keep what it is given.
    #[error("a durable store needs mode Clean and an index that is not lossy")]
    NotAStore,
    /// The kernel gave no address space.
    #[error("cannot map {bytes} bytes: {source}")]
    Map {
        /// Asked for.
        bytes: u64,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// All places for sessions are taken.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("all {session_max} sessions of the store are taken")]
pub struct NoSession {
    /// As configured.
    pub session_max: usize,
}
