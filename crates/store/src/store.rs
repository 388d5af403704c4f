//! The store: log, index, epochs and counters, shared by all sessions.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use base::sync::AtomicU64;
use base::{KeyHasher, PartitionBits};
use crossbeam_utils::CachePadded;
use index::epoch::Epochs;
use index::hash::{BUCKET_BYTES, Index, IndexPlan, Lines};
use index::mapping::PageKind;
use index::placement::{NodeShare, Placement};
use index::tree::{NodeMemory, Tree};

use crate::ITEM_MAX_BYTES;
use crate::config::{
    BATCH_MAX, Eviction, IndexKind, Limits, Mode, NoSession, OpenError, StoreConfig,
};
use crate::counters::{StoreStats, fold};
use crate::cursor::CursorTable;
use crate::durable_log::Durable;
use crate::durable_log::layout::Segments as RestoredSegments;
use crate::entry::HEADER_MAX_BYTES;
use crate::ghost::{self, GhostTable};
use crate::inner::Inner;
use crate::log::{Log, Purpose, Reserve, log_min_bytes, segment_bytes_for, segment_count_min};
use crate::pin::PinPlan;
use crate::replica::RecoveredDelete;
use crate::scratch_room::ScratchBooks;
use crate::scratch_room::ScratchRoom;
use crate::session::Session;
use crate::tuning::Tuning;
use crate::warm_table::Table as WarmTable;

/// The part of a tree's memory for stripes, one byte in this many, ...
const STRIPE_MEMORY_SHARE: u64 = 256;
/// ... but no more stripes than these.
const STRIPES_MAX: u64 = 65_536;

/// An open store. Cheap to clone by `Arc`; every thread opens a [`Session`].
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}
/// One segment in this many of a durable log is kept for deletes, beyond those that sessions need:
/// in a fully live log, emptying this many segments makes room for another segment of deletes.
const DELETES_PART: u32 = 64;

fn check_range(name: &'static str, found: u64, range: Range<u64>) -> Result<(), OpenError> {
    if range.contains(&found) {
        return Ok(());
    }
    Err(OpenError::OutOfRange { name, found, min: range.start, max: range.end - 1 })
}

/// Makes the initial index, in segments of the log. It may grow to half of them, so that the log
/// never starves; a lossy one keeps its size.
fn open_index(config: &StoreConfig, log: &Log) -> Option<Index> {
    let plan = match config.index {
        IndexKind::Hash => {
            IndexPlan::new(config.memory_bytes, config.index_bytes, config.lossy_index)
        }
        // Heads that never get a slot keep their number, as those of a lossy index do.
        IndexKind::Tree => IndexPlan::new(config.memory_bytes, stripe_bytes(config), true),
    };
    let segments_max = lent_max_of(config, log.segment_bytes(), log.segment_count());
    Index::new(Lines::over(log.mapping()), log.lender(segments_max), plan)
}

/// The number of segments that the index may borrow of a log of `segment_count`.
pub(crate) fn lent_max_of(config: &StoreConfig, segment_bytes: u64, segment_count: u32) -> u32 {
    let segments_at_first = config.index_bytes.div_ceil(segment_bytes) as u32;
    segments_at_first.max(segment_count / 2)
}

/// Makes the tree of an ordered index; `None`: there is no room for its first node.
fn open_tree(config: &StoreConfig, log: &Log, index: &Index) -> Option<Option<Tree>> {
    match config.index {
        IndexKind::Hash => Some(None),
        IndexKind::Tree => Tree::new(NodeMemory::new(log.mapping(), index.arena())).map(Some),
    }
}

/// The segments kept for the survivors of short and of long entries, for each session that makes
/// room, and for new expiries in a full store.
fn cleaning_segments(config: &StoreConfig) -> u32 {
    2 * config.session_max as u32 + 1
}

/// The memory in which a store with `had_bytes` of full segments of this size, which did not fit
/// into the configured memory, starts again, and its sessions can make room: there may be more of
/// them than filled it.
pub(crate) fn enough_bytes(config: &StoreConfig, had_bytes: u64, segment_bytes: u64) -> u64 {
    let of_sessions_bytes = match config.mode {
        Mode::Clean => u64::from(cleaning_segments(config)) * segment_bytes,
        Mode::Evict => 0,
    };
    match had_bytes + of_sessions_bytes {
        bytes if bytes > config.memory_bytes => bytes,
        // The index is another one than before: it may take half of the segments.
        _ => config.memory_bytes + had_bytes / 2,
    }
}

/// The number of log segments kept for sessions that make room.
pub(crate) fn reserve_of(log: &Log, config: &StoreConfig) -> Reserve {
    let sessions = config.session_max as u32;
    match config.mode {
        Mode::Clean => {
            let segments = cleaning_segments(config);
            // To empty a segment a session takes at most one: the other may hold its deletes.
            let of_deletes = log.is_durable().then(|| log.segment_count() / DELETES_PART);
            let deletes_max = of_deletes.map_or(0, |more| sessions + more);
            Reserve { segments: segments + of_deletes.unwrap_or(0), lent_max: 0, deletes_max }
        }
        Mode::Evict => Reserve {
            // A cache that finds no place for a survivor drops it: idle segments cost more hits.
            segments: sessions + 1,
            lent_max: sessions.div_ceil(2),
            deletes_max: 0,
        },
    }
}

pub(crate) fn keep_reserve(log: &Log, config: &StoreConfig) {
    let reserve = reserve_of(log, config);
    log.allocator().set_reserve(reserve);
}

fn mark_limit_of(config: &StoreConfig) -> u64 {
    match (config.mode, config.eviction) {
        (Mode::Clean, _) | (Mode::Evict, Eviction::Fifo) => 0,
        (Mode::Evict, Eviction::LruApprox | Eviction::Lru) => 1,
        (Mode::Evict, Eviction::S3Fifo) => 3,
    }
}

/// The contents of a store before its first session.
#[derive(Clone, Copy)]
pub(crate) enum Begin<'b> {
    /// Empty, with address space to grow to `room_bytes`.
    Empty { room_bytes: u64 },
    /// Segments on a medium, to which it also writes.
    Durable(&'b RestoredSegments),
    /// Memory that belongs to a file, with the segments in it.
    Warm { file: &'b std::fs::File, table: Option<&'b WarmTable> },
}

impl<'b> Begin<'b> {
    /// The size of its segments (K14).
    fn segment_bytes(self) -> Option<u64> {
        match self {
            Begin::Durable(restored) => Some(restored.superblock.segment_bytes),
            Begin::Warm { table, .. } => table.map(|table| table.segment_bytes),
            Begin::Empty { .. } => None,
        }
    }

    /// Why there is no memory for an index: the segments in use may leave none.
    fn no_index(self, too_small: OpenError) -> OpenError {
        match self {
            Begin::Durable(_) | Begin::Warm { table: Some(_), .. } => OpenError::NoRoom,
            Begin::Empty { .. } | Begin::Warm { table: None, .. } => too_small,
        }
    }

    fn file(self) -> Option<&'b std::fs::File> {
        match self {
            Begin::Warm { file, .. } => Some(file),
            Begin::Empty { .. } | Begin::Durable(_) => None,
        }
    }

    fn room_bytes(self) -> u64 {
        match self {
            Begin::Empty { room_bytes } => room_bytes,
            Begin::Durable(_) | Begin::Warm { .. } => 0,
        }
    }

    /// Takes the segments in use, before the index takes any.
    fn take(self, log: &mut Log, config: &StoreConfig) -> Result<Option<Arc<Durable>>, OpenError> {
        match self {
            Begin::Durable(restored) => take_restored(log, config, restored).map(Some),
            Begin::Warm { table: Some(table), .. } => take_warm(log, config, table).map(|()| None),
            Begin::Empty { .. } | Begin::Warm { table: None, .. } => Ok(None),
        }
    }
}

/// Takes the segments of a file, in the order in which they were first taken.
fn take_warm(log: &Log, config: &StoreConfig, table: &WarmTable) -> Result<(), OpenError> {
    refuse_few_segments(log, config)?;
    for row in &table.rows {
        if !log.restore(row.segment, row.run_len, row.queue) {
            return Err(OpenError::NoRoom);
        }
    }
    Ok(())
}

/// Refuses a memory with too few segments: the present ones may be from a larger memory (K14).
fn refuse_few_segments(log: &Log, config: &StoreConfig) -> Result<(), OpenError> {
    let has_enough = u64::from(log.segment_count()) >= segment_count_min(config.session_max);
    if has_enough { Ok(()) } else { Err(OpenError::NoRoom) }
}

/// Takes the segments in use on a medium, before the index takes any.
fn take_restored(
    log: &mut Log,
    config: &StoreConfig,
    restored: &RestoredSegments,
) -> Result<Arc<Durable>, OpenError> {
    refuse_few_segments(log, config)?;
    let durable = Arc::new(Durable::new(config.session_max, log.segment_count()));
    log.set_durable(Arc::clone(&durable));
    let mut allocator = log.allocator();
    for (segment, row) in restored.used() {
        if !allocator.restore(segment, row.run_len) {
            return Err(OpenError::NoRoom);
        }
    }
    drop(allocator);
    Ok(durable)
}

/// The bytes of the words that lock and version the keys of a tree.
fn stripe_bytes(config: &StoreConfig) -> u64 {
    (config.memory_bytes / STRIPE_MEMORY_SHARE).min(STRIPES_MAX * BUCKET_BYTES)
}

impl Store {
    /// Maps the memory and builds an empty store. Nothing is resident yet.
    pub fn open(config: StoreConfig) -> Result<Arc<Store>, OpenError> {
        Store::open_on_nodes(config, Tuning::default(), &[])
    }

    /// [`Store::open`] with some optimisations switched off, to measure what they are worth.
    pub fn open_tuned(config: StoreConfig, tuning: Tuning) -> Result<Arc<Store>, OpenError> {
        Store::open_on_nodes(config, tuning, &[])
    }

    /// [`Store::open_tuned`] with the memory divided between NUMA nodes, if there are two or more.
    /// [`Store::placement`] returns the result.
    pub fn open_on_nodes(
        config: StoreConfig,
        tuning: Tuning,
        nodes: &[NodeShare],
    ) -> Result<Arc<Store>, OpenError> {
        Store::open_at(config, tuning, nodes, Begin::Empty { room_bytes: 0 })
    }

    /// [`Store::open_on_nodes`] with the contents that `begin` describes: its segments are taken,
    /// and empty until their entries are recovered.
    pub(crate) fn open_at(
        config: StoreConfig,
        tuning: Tuning,
        nodes: &[NodeShare],
        begin: Begin<'_>,
    ) -> Result<Arc<Store>, OpenError> {
        let is_durable = matches!(begin, Begin::Durable(_));
        if is_durable && (config.mode != Mode::Clean || config.lossy_index) {
            return Err(OpenError::NotAStore);
        }
        // A process that reads entries elsewhere, or later, verifies their checksums.
        let is_in_memory_alone = !is_durable && begin.file().is_none();
        let tuning = Tuning { notes_use: tuning.notes_use && is_in_memory_alone, ..tuning };
        check_range("batch", config.batch as u64, 1..BATCH_MAX as u64 + 1)?;
        check_range("session_max", config.session_max as u64, 1..4097)?;
        let is_s3_fifo = config.mode == Mode::Evict && config.eviction == Eviction::S3Fifo;
        crate::session::know_processor();
        let ghosts = is_s3_fifo.then(|| GhostTable::new(config.memory_bytes / ghost::MEMORY_SHARE));
        let ghost_bytes = ghosts.as_ref().map_or(0, GhostTable::bytes);
        let log_bytes = config.memory_bytes.saturating_sub(config.index_bytes + ghost_bytes);
        let min_bytes = log_min_bytes(config.session_max);
        let too_small = || {
            let (memory_bytes, session_max) = (config.memory_bytes, config.session_max);
            OpenError::TooSmall { memory_bytes, log_bytes, min_bytes, session_max }
        };
        if log_bytes < min_bytes {
            return Err(too_small());
        }
        let mapped_bytes = config.memory_bytes - ghost_bytes;
        let segment_bytes = begin
            .segment_bytes()
            .unwrap_or_else(|| segment_bytes_for(mapped_bytes, config.session_max));
        let space = (mapped_bytes, begin.room_bytes().saturating_sub(ghost_bytes), segment_bytes);
        let mut log = Log::new(space, &config, tuning, (nodes, begin.file()))
            .map_err(|source| OpenError::Map { bytes: mapped_bytes, source })?;
        let durable = begin.take(&mut log, &config)?;
        let index = open_index(&config, &log).ok_or_else(|| begin.no_index(too_small()))?;
        if begin.file().is_some() {
            index.clear_heads();
        }
        if !matches!(begin, Begin::Warm { table: Some(_), .. }) {
            keep_reserve(&log, &config);
        }
        let entry_max_bytes = log.entry_max_bytes() - (HEADER_MAX_BYTES + 8) as u64;
        let limits = Limits {
            item_max_bytes: config.item_max_bytes.min(ITEM_MAX_BYTES).min(entry_max_bytes),
            segment_bytes: log.segment_bytes(),
            segment_count: log.segment_count(),
        };
        let tree = open_tree(&config, &log, &index).ok_or_else(|| begin.no_index(too_small()))?;
        let inner = Inner {
            limits,
            hasher: KeyHasher::new(config.hash_seed),
            index,
            tree,
            opened_segments: log.segment_count(),
            log,
            durable,
            ghosts,
            epochs: Epochs::new(config.session_max),
            counts: (0..config.session_max).map(|_| CachePadded::default()).collect(),
            recovered_deletes: Mutex::default(),
            shard_counts: std::sync::OnceLock::new(),
            scratch_room: std::sync::OnceLock::new(),
            expiry_cursor: CachePadded::new(AtomicU64::new(0)),
            swept_at_ms: AtomicU64::new(0),
            expiry_key: Mutex::new(None),
            cursors: Mutex::new(CursorTable::default()),
            orphans: Mutex::new(Vec::new()),
            mark_limit: mark_limit_of(&config),
            config,
            tuning,
        };
        Ok(Arc::new(Store { inner: Arc::new(inner) }))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Sets the reserve, after building the index of a full store, during which no segment may be
    /// kept aside.
    pub(crate) fn keep_reserve(&self) {
        keep_reserve(&self.inner.log, &self.inner.config);
    }

    /// The state shared with the committer, if this store is durable.
    pub fn durable(&self) -> Option<&Arc<Durable>> {
        self.inner.durable.as_ref()
    }

    /// Sets the ledger for the long values that updates make. Called once.
    pub fn book_scratch(&self, room: impl ScratchRoom + 'static) {
        let _ = self.inner.scratch_room.set(ScratchBooks(Box::new(room)));
    }

    /// Opens a session for the calling thread; dropping it releases its place.
    pub fn session(&self) -> Result<Session, NoSession> {
        let session_max = self.inner.config.session_max;
        let place = self.inner.epochs.join().ok_or(NoSession { session_max })?;
        Ok(Session::new(Arc::clone(&self.inner), place))
    }

    /// Pins for encoding answers from items that are not in this store's log: such items are never
    /// pinned.
    pub fn pins(&self) -> crate::pin::Pins<'_> {
        crate::pin::Pins(&self.inner)
    }

    /// Whether readers of large values have a quarter of the log pinned: they should take no more
    /// pins until some are released (K12).
    pub fn is_pin_share_reached(&self) -> bool {
        self.inner.log.is_pin_share_reached()
    }

    /// For an estimate of what replies may pin.
    pub fn pin_plan(&self) -> PinPlan {
        PinPlan::new(&self.inner.log)
    }

    /// Hashes keys for [`crate::Request::hash`].
    pub fn key_hasher(&self) -> &KeyHasher {
        &self.inner.hasher
    }

    /// The number of items of a shard, including expired ones that are still there; 0 before
    /// [`Session::count_shards`].
    pub fn shard_item_count(&self, shard: u16) -> u64 {
        self.inner.shard_counts.get().map_or(0, |counts| counts.of(shard))
    }

    /// Takes the deletes of shards that recovery has found; a second call returns none.
    pub fn take_recovered_deletes(&self) -> Vec<RecoveredDelete> {
        let deletes = self.inner.recovered_deletes.lock();
        std::mem::take(&mut *deletes.unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The number of bits of a key's hash that name its partition: the write table's id (K5).
    pub fn partition_bits(&self) -> PartitionBits {
        self.inner.index.partition_bits()
    }

    /// The capacity of this store.
    pub fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Whether a durable store takes no delete and has nothing to clean either: what the index or
    /// more sessions need has left it no segment. Deletes that have used their part of the reserve
    /// leave at least as many dead bytes.
    pub(crate) fn is_full_for_ever(&self) -> bool {
        let Inner { log, config, .. } = &*self.inner;
        let deletes_max = reserve_of(log, config).deletes_max;
        let allocator = log.allocator();
        let takes_none = allocator.available(Purpose::Delete) + allocator.unfilled_count() == 0;
        drop(allocator);
        let dead_min_bytes = u64::from(deletes_max) * log.segment_bytes() / 4;
        log.is_durable() && takes_none && log.space().dead_bytes < dead_min_bytes
    }

    /// Whether each session of a durable store can take a segment for its deletes. A store that was
    /// filled with fewer sessions may be too full for that when it starts again. A cache never is.
    pub fn has_room_for_deletes(&self) -> bool {
        let Inner { log, config, .. } = &*self.inner;
        let needs_room = log.is_durable() && config.mode == Mode::Clean;
        let sessions = config.session_max as u32;
        let allocator = log.allocator();
        let room = allocator.available(Purpose::Delete) + allocator.unfilled_count();
        !needs_room || room >= sessions
    }

    /// The kind of pages that the memory lies on.
    pub fn page_kind(&self) -> PageKind {
        self.inner.log.page_kind()
    }

    /// The result of placing memory on NUMA nodes.
    pub fn placement(&self) -> &Placement {
        self.inner.log.placement()
    }

    /// The settings that it was opened with.
    pub fn config(&self) -> &StoreConfig {
        &self.inner.config
    }

    /// Whether there are items that expire. Cheaper than [`Store::stats`].
    pub fn is_expiring(&self) -> bool {
        fold(self.inner.counts.iter().map(|counts| &**counts)).items_with_expiry > 0
    }

    /// Sums the counters of all sessions; they lag by at most one batch.
    pub fn stats(&self) -> StoreStats {
        let inner = &self.inner;
        let counts = fold(inner.counts.iter().map(|counts| &**counts));
        let space = inner.log.space();
        let allocator = inner.log.allocator();
        let (lent, unparked) = (allocator.lent_count(), allocator.unparked_count());
        drop(allocator);
        let bytes_of = |segments: u32| u64::from(segments) * inner.log.segment_bytes();
        let log_bytes = bytes_of(inner.log.segment_count().saturating_sub(lent));
        let index = inner.index.size();
        // With a tree, the index's lines other than its stripes are nodes.
        let (overflow_buckets, tree_nodes) = match &inner.tree {
            None => (index.overflow, 0),
            Some(_) => (0, NodeMemory::count_of(index.overflow)),
        };
        StoreStats {
            items: counts.items,
            items_with_expiry: counts.items_with_expiry,
            entry_bytes: counts.entry_bytes,
            log_used_bytes: bytes_of(unparked - lent).saturating_sub(space.free_bytes),
            log_bytes,
            index_used_bytes: index.used_bytes,
            index_bytes: index.lent_bytes,
            index_heads: index.heads,
            index_overflow_buckets: overflow_buckets,
            tree_nodes,
            index_partitions_resized: index.partitions_moved,
            index_partitions_resizing: index.partitions_moving,
            evicted_by_log: counts.evicted_by_log,
            evicted_by_index: counts.evicted_by_index,
            evicted_unread: counts.evicted_unread,
            expired: counts.expired,
            reinserted: counts.reinserted,
            cleaned_bytes: counts.cleaned_bytes,
            out_of_memory: counts.out_of_memory,
            evicted_small: counts.evicted_small,
            promoted: counts.promoted,
            ghost_hits: counts.ghost_hits,
            dead_space_copied_bytes: counts.dead_space_copied_bytes,
            space,
            ghost_bytes: inner.ghosts.as_ref().map_or(0, GhostTable::bytes),
        }
    }

    /// Whether [`crate::Item::last_use`] is noted.
    pub fn notes_use(&self) -> bool {
        self.inner.tuning.notes_use
    }

    /// Recounts everything from scratch and panics if an invariant is broken. No session may write
    /// meanwhile; for tests.
    pub fn validate(&self) {
        crate::validate::validate(&self.inner);
    }
}
