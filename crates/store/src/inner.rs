//! The state that all sessions and pins of a store share.

use std::sync::{Arc, Mutex, MutexGuard};

use base::sync::{AtomicU64, Ordering};
use base::{KeyHash, KeyHasher};
use crossbeam_utils::CachePadded;
use index::epoch::Epochs;
use index::hash::{Block, Index, Position};
use index::tree::Tree;

use crate::KEY_LEN_MAX_BYTES;
use crate::config::{Eviction, Limits, StoreConfig};
use crate::counters::{Counts, SharedCounts, fold};
use crate::cursor::CursorTable;
use crate::durable_log::Durable;
use crate::entry::{BodyCrc, Shape, body_checksum, parts_checksum};
use crate::ghost::GhostTable;
use crate::log::Log;
use crate::pieces::Parts;
use crate::replica::{RecoveredDelete, ShardCounts};
use crate::scratch_room::ScratchBooks;
use crate::tuning::Tuning;

/// Reads leave no marks while more than one in this many segments is free: a little more than the
/// share of S3-FIFO's small queue, whose entries are then still marked for all of their reads.
const UNMARKED_FREE_PART: u64 = 8;

/// State shared by sessions and pins.
pub(crate) struct Inner {
    pub config: StoreConfig,
    pub tuning: Tuning,
    pub limits: Limits,
    pub hasher: KeyHasher,
    pub index: Index,
    /// The ordered index; with it, `index` has only locks and versions (decision 0021).
    pub tree: Option<Tree>,
    pub log: Log,
    /// The number of segments that the log was opened with.
    pub opened_segments: u32,
    /// The state shared with the committer, if the log outlives its process.
    pub durable: Option<Arc<Durable>>,
    /// Keys that the small queue evicted; only for S3-FIFO.
    pub ghosts: Option<GhostTable>,
    pub epochs: Epochs,
    pub counts: Box<[CachePadded<SharedCounts>]>,
    /// Recovered deletes of shards, until a caller takes them.
    pub recovered_deletes: Mutex<Vec<RecoveredDelete>>,
    /// Item counts of shards, once a caller has requested them.
    pub shard_counts: std::sync::OnceLock<ShardCounts>,
    /// The ledger for long values of updates, if there is one.
    pub scratch_room: std::sync::OnceLock<ScratchBooks>,
    /// The first hash of the next chain for the expiry pass, which sessions share.
    pub expiry_cursor: CachePadded<AtomicU64>,
    /// When the whole index was last swept for expired items, in milliseconds since 1970.
    pub swept_at_ms: AtomicU64,
    /// The last key that the expiry pass over the tree has visited.
    pub expiry_key: Mutex<Option<Vec<u8>>>,
    /// Cursors of walks over the tree.
    pub cursors: Mutex<CursorTable>,
    /// Parts of the index in their grace period whose session has ended.
    pub orphans: Mutex<Vec<(u64, Block)>>,
    /// Access marks that a read may add up to in a store that is nearly full; see
    /// [`Inner::mark_limit`].
    pub mark_limit: u64,
}

impl Inner {
    /// The number of access marks that a read may add up to (K13): 0 if no eviction would use them
    /// soon. While much of the log is free ([`UNMARKED_FREE_PART`]) nothing is evicted, and a mark
    /// costs up to a tenth of a read; a frequently read item is read again before the log is full.
    /// Only an exact order of use needs every read.
    #[inline]
    pub(crate) fn mark_limit(&self) -> u64 {
        let free = u64::from(self.log.available_hint());
        let has_much = free * UNMARKED_FREE_PART > u64::from(self.log.segment_count());
        let is_exact = self.config.eviction == Eviction::Lru;
        if has_much && self.tuning.marks_late && !is_exact { 0 } else { self.mark_limit }
    }

    /// The checksum of an entry's body; `None`: its entry is stamped instead.
    #[inline]
    pub(crate) fn sum_body(&self, shape: Shape, key: &[u8], value: &[u8]) -> Option<BodyCrc> {
        (!self.tuning.notes_use).then(|| body_checksum(shape, key, value))
    }

    /// The same checksum, of a value in parts.
    pub(crate) fn sum_parts(&self, shape: Shape, key: &[u8], value: Parts<'_>) -> Option<BodyCrc> {
        (!self.tuning.notes_use).then(|| parts_checksum(shape, key, value))
    }

    /// Adds an access mark to the slot at `position` (K13).
    #[inline]
    pub(crate) fn mark(&self, position: Position) {
        let limit = self.mark_limit();
        match &self.tree {
            None => self.index.mark(position, limit),
            Some(tree) => tree.mark(position, limit),
        }
    }

    pub(crate) fn cursors(&self) -> MutexGuard<'_, CursorTable> {
        self.cursors.lock().expect("no code that holds this lock panics")
    }

    /// The place of the expiry pass over the tree; `None`: another session is taking a step.
    pub(crate) fn try_expiry_key(&self) -> Option<MutexGuard<'_, Option<Vec<u8>>>> {
        self.expiry_key.try_lock().ok()
    }

    pub(crate) fn orphans(&self) -> MutexGuard<'_, Vec<(u64, Block)>> {
        self.orphans.lock().expect("no code that holds this lock panics")
    }

    /// Takes the parts of the index that ended sessions left, unless another thread is doing that.
    pub(crate) fn adopt_orphans(&self) -> Vec<(u64, Block)> {
        self.orphans.try_lock().map(|mut orphans| std::mem::take(&mut *orphans)).unwrap_or_default()
    }

    /// Largest value for a key of this length.
    pub(crate) fn value_max_bytes(&self, key_len_bytes: usize) -> u64 {
        self.limits.item_max_bytes.saturating_sub(key_len_bytes as u64)
    }

    /// Whether an item of these lengths can be stored at all.
    #[inline]
    pub(crate) fn fits(&self, key_len_bytes: usize, value_len_bytes: usize) -> bool {
        debug_assert!(key_len_bytes <= KEY_LEN_MAX_BYTES, "the caller checks keys");
        (key_len_bytes + value_len_bytes) as u64 <= self.limits.item_max_bytes
    }

    /// The number of items, approximately as of now; `unpublished` are the unpublished counts of
    /// the calling session.
    pub(crate) fn item_count(&self, unpublished: &Counts) -> u64 {
        let counts = fold(self.counts.iter().map(|counts| &**counts));
        // Signed: a removal may be published before the write of the same item is.
        counts.items.wrapping_add(unpublished.items).cast_signed().max(0).cast_unsigned()
    }

    /// The average bytes of an item in the log, approximately as of now; 0 without items.
    pub(crate) fn entry_mean_bytes(&self) -> u64 {
        let counts = fold(self.counts.iter().map(|counts| &**counts));
        match counts.items.cast_signed() {
            ..=0 => 0,
            items => {
                counts.entry_bytes.cast_signed().max(0).cast_unsigned() / items.cast_unsigned()
            }
        }
    }

    /// The hashes of the next `heads` chains or so of the shared expiry pass: from the first to
    /// below the second, or to the last.
    pub(crate) fn next_expiry_range(&self, heads: u64) -> (KeyHash, Option<KeyHash>) {
        let mut start = self.expiry_cursor.load(Ordering::Relaxed);
        loop {
            let end = self.index.skip(KeyHash(start), heads);
            let next = end.map_or(0, |end| end.0);
            // Relaxed: it matters only that each part has its turn.
            let claimed = self.expiry_cursor.compare_exchange_weak(
                start,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => return (KeyHash(start), end),
                Err(found) => start = found,
            }
        }
    }
}
