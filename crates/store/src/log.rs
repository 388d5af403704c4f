//! The segmented log: holds the entries, and records which session may write which segment.
//!
//! ```text
//!  memory:   | segment 0 | segment 1 | segment 2 ~ run of 3 ~ segment 4 | segment 5 | ...
//!  table:    |   used    |   free    |  used (run_len 3)    ·        ·  |   using   |
//!  states:   free ──take──▶ using ──close──▶ used ──retire──▶ waiting ──grace, no pins──▶ free
//!            free ──lend──▶ index ──take back──▶ free
//!            free ──park──▶ parked: the log is smaller than its address space ──▶ free
//! ```
//!
//! # Invariants
//! I1: one session only writes a segment in state *using*; other sessions read its published
//!     entries.
//! I2: `live_bytes` of a segment is the sum of the lengths of its entries that a slot names.
//! I3: a segment becomes free again only when no session can hold its bytes (epoch) and no pin
//!     does.
//! I4: an entry longer than a segment has a run of segments for itself (K14; decision 0014 says why
//!     runs do not start at a quarter of a segment).
//!
//! # Concurrency
//! The table of states is under one mutex, taken once a segment. Live bytes and pins are atomics.
//!
//! # References
//! Rowan-KV §4.2.1 (segment states and owners); MICA §4.1 (oldest first).

mod allocator;
mod appender;
mod live;
mod table;

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use base::sync::{AtomicU32, Ordering};
use index::epoch::Epochs;
use index::hash::Lender;
use index::mapping::{Mapping, PageKind};
use index::placement::{self, NodeShare, Placement};

use crate::config::StoreConfig;
use crate::counters::LogSpace;
use crate::durable_log::Durable;
use crate::entry::Entry;
use crate::tuning::Tuning;

pub(crate) use allocator::{Allocator, Chore, Purpose, Reserve};
pub(crate) use appender::{Appender, Reservation, Role};
pub(crate) use live::Lane;
use live::LiveBytes;
pub(crate) use table::{
    Aim, Contents, Found, NEVER_MS, Queue, Reason, SEARCH_ROWS, Search, SegmentState, Then, Victim,
};

/// The largest segment (K14).
const SEGMENT_MAX_BYTES: u64 = 4 << 20;
/// A smaller segment would hold too few entries to be worth its bookkeeping.
const SEGMENT_MIN_BYTES: u64 = 64 << 10;
/// The number of segments that the smallest log has for each session.
const SEGMENTS_PER_SESSION_MIN: u64 = 8;

/// The log's memory, its counters, and the table of segments.
pub(crate) struct Log {
    memory: Arc<Mapping>,
    segment_shift: u32,
    /// The number of rows of the table: the segments of the address space.
    row_count: u32,
    /// The live bytes of each segment (I2).
    live: LiveBytes,
    counters: Box<[SegmentCounters]>,
    /// `taken` of the segment that was taken last.
    last_taken: AtomicU32,
    segments: Arc<Segments>,
    /// The number of segments with at least one pin; all segments of a pinned run count.
    pinned_count: AtomicU32,
    region_count: usize,
    placement: Placement,
    /// The state shared with the committer, for a log that outlives its process.
    durable: Option<Arc<Durable>>,
}

/// The result of a step of [`crate::Store::tend_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tended {
    /// A segment was made resident.
    Populated,
    /// The pages of a segment that the log gave up were returned to the kernel.
    Discarded,
    /// There was nothing to do: it has waited.
    Rested,
    /// The kernel cannot make memory resident ahead of its use.
    Refused,
}

/// The table of segments, shared with the index, which borrows some.
pub(crate) struct Segments {
    allocator: Mutex<Allocator>,
    /// The number of free segments that a client's write may take, as of the last change; read
    /// without the lock.
    available: AtomicU32,
    /// The number of segments that the log may use, read without the lock.
    usable: AtomicU32,
    /// Wakes the thread that makes memory resident ahead of the writers, and returns it to the
    /// kernel.
    taken: Condvar,
    segment_shift: u32,
}

/// The rows of the table that are summed under one lock: some 10 us.
const SPACE_ROWS: u32 = 1024;

/// Bytes of a line of the index, as a power of two.
const LINE_SHIFT: u32 = 6;

impl Segments {
    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().expect("no code that holds this lock panics")
    }

    fn update_hint(&self, allocator: &Allocator) {
        // A shrinking log is short of segments, however many are free.
        let available = match allocator.shortage() {
            0 => allocator.available(Purpose::Write),
            _ => 0,
        };
        self.available.store(available, Ordering::Relaxed);
        if allocator.is_discard_due() {
            self.taken.notify_one();
        }
    }
}

impl Lender for Segments {
    fn segment_log2_lines(&self) -> u32 {
        self.segment_shift - LINE_SHIFT
    }

    fn lend(&self) -> Option<u32> {
        let mut allocator = self.allocator();
        let segment = allocator.lend()?;
        self.update_hint(&allocator);
        drop(allocator);
        self.taken.notify_one();
        Some(segment << self.segment_log2_lines())
    }

    fn take_back(&self, first_line: u32) {
        let mut allocator = self.allocator();
        allocator.take_back(first_line >> self.segment_log2_lines());
        self.update_hint(&allocator);
    }
}

/// The counters of a segment that readers use; rarely written.
#[derive(Default)]
struct SegmentCounters {
    /// The number of replies on their way that borrow the segment's bytes (K12).
    pins: AtomicU32,
    /// 1: the segment is in the small queue. Written before its first entry is published.
    is_small: AtomicU32,
    /// The low half of the number that was drawn when the segment was taken. Written as `is_small`.
    taken: AtomicU32,
}

/// One in so many segments is young.
const YOUNG_PART: u32 = 16;

/// The size of a segment for a log of `log_bytes` (K14), a power of two.
pub(crate) fn segment_bytes_for(log_bytes: u64, session_max: usize) -> u64 {
    let share = log_bytes / (64 * session_max.max(1) as u64);
    let floor_power = if share == 0 { 1 } else { 1 << share.ilog2() };
    floor_power.clamp(SEGMENT_MIN_BYTES, SEGMENT_MAX_BYTES)
}

/// The size of the smallest log for this many sessions.
pub(crate) fn log_min_bytes(session_max: usize) -> u64 {
    SEGMENT_MIN_BYTES * segment_count_min(session_max)
}

/// The fewest segments for this many sessions.
pub(crate) fn segment_count_min(session_max: usize) -> u64 {
    SEGMENTS_PER_SESSION_MIN * (session_max.max(1) as u64 + 1)
}

impl Log {
    /// Maps a log of at most `log_bytes`, in segments of `segment_bytes`; on the pages of `file`,
    /// if there is one. If possible, the address space has room for `room_bytes`.
    pub(crate) fn new(
        (log_bytes, room_bytes, segment_bytes): (u64, u64, u64),
        config: &StoreConfig,
        tuning: Tuning,
        (nodes, file): (&[NodeShare], Option<&std::fs::File>),
    ) -> std::io::Result<Log> {
        let session_max = config.session_max;
        let segments_of = |bytes| u32::try_from(bytes / segment_bytes).unwrap_or(u32::MAX);
        let bytes_of = |segments: u32| {
            usize::try_from(u64::from(segments) * segment_bytes).expect("64-bit addresses")
        };
        let usable = segments_of(log_bytes);
        let room = match file.is_none() && nodes.len() < 2 {
            // Rounded up, so that all of it is usable.
            true => segments_of(room_bytes.next_multiple_of(segment_bytes)).max(usable),
            false => usable,
        };
        let memory = match file {
            None => Mapping::with_room(bytes_of(usable), bytes_of(room), config.huge_pages)?,
            Some(file) => Mapping::of_file(file, bytes_of(usable))?,
        };
        let has_room = memory.len_bytes() >= bytes_of(room);
        let segment_count = if has_room { room } else { usable };
        let segment_shift = segment_bytes.trailing_zeros();
        let (regions, placement) = placement::place(&memory, (segment_count, segment_bytes), nodes);
        let region_count = regions.count();
        let mut allocator = Allocator::new(regions);
        allocator.resize(usable, 0);
        while allocator.shortage() > 0 {
            allocator.settle();
        }
        let segments = Segments {
            allocator: Mutex::new(allocator),
            available: AtomicU32::new(usable),
            usable: AtomicU32::new(usable),
            taken: Condvar::new(),
            segment_shift,
        };
        Ok(Log {
            memory: Arc::new(memory),
            segment_shift,
            row_count: segment_count,
            live: LiveBytes::new(segment_count, session_max, tuning.counts_in_lanes),
            counters: (0..segment_count).map(|_| SegmentCounters::default()).collect(),
            last_taken: AtomicU32::new(0),
            segments: Arc::new(segments),
            pinned_count: AtomicU32::new(0),
            region_count,
            placement,
            durable: None,
        })
    }

    /// Notifies `durable` of changes of segments from now on.
    pub(crate) fn set_durable(&mut self, durable: Arc<Durable>) {
        self.durable = Some(durable);
    }

    /// Appends to `bytes` the entries that sessions have noted as complete in a segment that is not
    /// free.
    pub(crate) fn copy_noted(&self, offset_bytes: u64, len_bytes: usize, bytes: &mut Vec<u8>) {
        assert!(offset_bytes as usize + len_bytes <= self.memory.len_bytes());
        // SAFETY: initialised by the session that noted it (Acquire pairs with its Release), not
        // changed since: entries are immutable and nothing is replaced in place (durable.rs), and
        // the segment is not reused before the caller, the committer, frees it.
        let noted = unsafe { std::slice::from_raw_parts(self.address(offset_bytes), len_bytes) };
        bytes.extend_from_slice(noted);
    }

    /// The memory of segments before the first session, for restoring them.
    #[expect(clippy::mut_from_ref, reason = "the memory is shared, and nothing else uses it yet")]
    pub(crate) fn memory_before_use(&self, offset_bytes: u64, len_bytes: usize) -> &mut [u8] {
        assert!(offset_bytes as usize + len_bytes <= self.memory.len_bytes());
        // SAFETY: mapped and zero or written before; the one caller restores each segment once,
        // on one thread, before any session reads it, and keeps no slice.
        unsafe { std::slice::from_raw_parts_mut(self.address(offset_bytes), len_bytes) }
    }

    /// The result of placing memory on NUMA nodes.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The region of a node; `None`: it has none of its own.
    pub(crate) fn region_of_node(&self, node_id: u32) -> Option<usize> {
        self.allocator().regions().of_node(node_id)
    }

    /// The region for the session at `place` if it names no node: such sessions take turns.
    pub(crate) fn region_of_place(&self, place: usize) -> usize {
        place % self.region_count
    }

    /// The kind of pages that the memory lies on.
    pub(crate) fn page_kind(&self) -> PageKind {
        self.memory.page_kind()
    }

    /// The memory, for the index's lines.
    pub(crate) fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.memory)
    }

    /// The lender of the index's segments: at most `max` of them, below line 2^32.
    pub(crate) fn lender(&self, max: u32) -> Arc<Segments> {
        let nameable = 1_u64 << (u32::BITS + LINE_SHIFT - self.segment_shift);
        let end = nameable.min(u64::from(self.row_count)) as u32;
        self.segments.allocator().set_lending(end, max);
        Arc::clone(&self.segments)
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        1 << self.segment_shift
    }

    /// The number of segments that the log may use now.
    #[inline]
    pub(crate) fn segment_count(&self) -> u32 {
        // Relaxed: a new size may take effect a moment sooner or later.
        self.segments.usable.load(Ordering::Relaxed)
    }

    /// The number of rows of the table, however many may be used: one more than the highest
    /// segment.
    pub(crate) fn row_count(&self) -> u32 {
        self.row_count
    }

    /// Sets the log's size to `usable` segments, of which the index may borrow `lent_max`. The
    /// session that reclaims gives up the surplus, and `spare` segments stay for writes meanwhile.
    pub(crate) fn resize(&self, usable: u32, (spare, lent_max): (u32, u32)) {
        let mut allocator = self.allocator();
        self.segments.usable.store(usable, Ordering::Relaxed);
        allocator.set_lending_max(lent_max);
        allocator.resize(usable, spare);
        self.segments.update_hint(&allocator);
    }

    /// Parks the spare segments of a shrinking log that finds nothing to reclaim.
    pub(crate) fn park_spare(&self) {
        let mut allocator = self.allocator();
        allocator.park_spare();
        self.segments.update_hint(&allocator);
    }

    /// The largest entry that the log can take: a quarter of the segments not lent to the index
    /// now, so that a run can be found.
    pub(crate) fn entry_max_bytes(&self) -> u64 {
        let lent_count = self.allocator().lent_count();
        let left_count = self.segment_count().saturating_sub(lent_count);
        u64::from(left_count) * self.segment_bytes() / 4
    }

    /// The longest entry that shares a segment with others.
    #[inline]
    pub(crate) fn short_max_bytes(&self) -> u64 {
        self.segment_bytes() / 4
    }

    /// The number of segments that an entry of `len_bytes` needs; above 1 as a run of its own (I4).
    pub(crate) fn run_len(&self, len_bytes: u64) -> u32 {
        u32::try_from(len_bytes.div_ceil(self.segment_bytes())).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(crate) fn segment_of(&self, offset_bytes: u64) -> u32 {
        (offset_bytes >> self.segment_shift) as u32
    }

    pub(crate) fn segment_start(&self, segment: u32) -> u64 {
        u64::from(segment) << self.segment_shift
    }

    /// The address of an offset, for prefetching and for the entry functions below.
    #[inline]
    pub(crate) fn address(&self, offset_bytes: u64) -> *mut u8 {
        debug_assert!((offset_bytes as usize) < self.memory.len_bytes());
        // Wrapping: a prefetch may be computed from a stale slot; it never leaves the mapping,
        // because slots only ever hold offsets inside it.
        self.memory.as_ptr().wrapping_add(offset_bytes as usize)
    }

    /// Whether the bytes lie in the log.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let start = self.memory.as_ptr().addr();
        let end = start + self.memory.len_bytes();
        let bytes = bytes.as_ptr_range();
        start <= bytes.start.addr() && bytes.end.addr() <= end
    }

    /// The entry that a slot names.
    ///
    /// # Safety
    /// The caller's session read `offset_bytes` from a slot since its last quiescent point, or
    /// holds the chain's lock, or a pin, or owns the segment as its reclaimer; and uses the entry
    /// no longer than that holds.
    #[inline]
    pub(crate) unsafe fn entry<'a>(&self, offset_bytes: u64) -> Entry<'a> {
        // SAFETY: a published offset is 8-aligned and starts a complete, immutable entry; its
        // segment is not reused meanwhile (I3 and the caller's promise).
        unsafe { Entry::at(self.address(offset_bytes)) }
    }

    /// The approximate number of segments left for clients' writes.
    #[inline]
    pub(crate) fn available_hint(&self) -> u32 {
        self.segments.available.load(Ordering::Relaxed)
    }

    pub(crate) fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.segments.allocator()
    }

    /// Notes that entries of this many bytes in `segment` became reachable (I2).
    #[inline]
    pub(crate) fn add_live(&self, lane: Lane, segment: u32, len_bytes: u64) {
        self.live.add(lane, segment, len_bytes);
    }

    /// Notes that an entry of this length is no longer reachable (I2); called after its slot was
    /// changed, and perhaps before the entry's writer has added it.
    #[inline]
    pub(crate) fn sub_live(&self, lane: Lane, offset_bytes: u64, len_bytes: usize) {
        self.live.sub(lane, self.segment_of(offset_bytes), len_bytes as u64);
    }

    /// The live bytes of a segment, for a thread that has taken the table's lock since the segment
    /// was closed; for an open one, an approximation.
    pub(crate) fn live_bytes(&self, segment: u32) -> u64 {
        self.live.of(segment)
    }

    /// The bytes of the log that hold nothing live, free segments included.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let live = |segment| self.live_bytes(segment).min(self.segment_bytes());
        let live_bytes: u64 = (0..self.segment_count()).map(live).sum();
        u64::from(self.segment_count()) * self.segment_bytes() - live_bytes
    }

    /// The lane in which the session at `place` counts live bytes.
    pub(crate) fn lane_of(&self, place: usize) -> Lane {
        self.live.lane_of(place)
    }

    /// The queue of a published entry, read without the table's lock.
    #[inline]
    pub(crate) fn queue_of(&self, offset_bytes: u64) -> Queue {
        let segment = self.segment_of(offset_bytes) as usize;
        // Relaxed: a reader of the slot sees all stores made before the slot was published.
        match self.counters[segment].is_small.load(Ordering::Relaxed) {
            0 => Queue::Main,
            _ => Queue::Small,
        }
    }

    /// Whether a published entry lies among the segments that were taken last, a sixteenth of the
    /// log; read without the table's lock.
    pub(crate) fn is_young(&self, offset_bytes: u64) -> bool {
        let segment = self.segment_of(offset_bytes) as usize;
        // Relaxed: as in `queue_of`; the last number only makes an entry older.
        let taken = self.counters[segment].taken.load(Ordering::Relaxed);
        let age = self.last_taken.load(Ordering::Relaxed).wrapping_sub(taken);
        // A segment may have been taken after the last number was read.
        age as i32 <= (self.segment_count() / YOUNG_PART) as i32
    }

    /// Takes a segment, or a run, that was in use in another process, before any other thread takes
    /// one. False: it does not exist, or is not free.
    pub(crate) fn restore(&self, segment: u32, run_len: u32, queue: Queue) -> bool {
        let mut allocator = self.allocator();
        let is_restored = allocator.restore(segment, run_len);
        if is_restored {
            self.set_queue(&mut allocator, segment, queue);
            self.segments.update_hint(&allocator);
        }
        is_restored
    }

    fn set_queue(&self, allocator: &mut Allocator, segment: u32, queue: Queue) {
        allocator.table.set_queue(segment, queue);
        let is_small = u32::from(queue == Queue::Small);
        let counters = &self.counters[segment as usize];
        counters.is_small.store(is_small, Ordering::Relaxed);
        let taken = allocator.table.sequence(segment) as u32;
        counters.taken.store(taken, Ordering::Relaxed);
        self.last_taken.store(taken, Ordering::Relaxed);
    }

    /// Pins the segment of `offset_bytes`; the caller can read it now. `segments` is the length of
    /// the entry's run, the same for each pin of a segment.
    pub(crate) fn pin(&self, offset_bytes: u64, segments: u32) -> u32 {
        let segment = self.segment_of(offset_bytes);
        // Relaxed: the pinning session's next quiescent point publishes it before reuse is tried.
        if self.counters[segment as usize].pins.fetch_add(1, Ordering::Relaxed) == 0 {
            self.pinned_count.fetch_add(segments, Ordering::Relaxed);
        }
        segment
    }

    /// Whether the segment at `offset_bytes` may be pinned: it is pinned already, or fewer than
    /// half of the segments are.
    pub(crate) fn may_pin(&self, offset_bytes: u64) -> bool {
        self.pinned_count.load(Ordering::Relaxed) < self.segment_count() / 2
            || self.is_pinned(self.segment_of(offset_bytes))
    }

    /// How many segments are pinned, and how many may be.
    pub(crate) fn pinned_and_max(&self) -> (u32, u32) {
        (self.pinned_count.load(Ordering::Relaxed), self.segment_count() / 2)
    }

    /// Whether a quarter of the segments is pinned: callers should take no more pins.
    pub(crate) fn is_pin_share_reached(&self) -> bool {
        self.pinned_count.load(Ordering::Relaxed) >= self.segment_count() / 4
    }

    pub(crate) fn unpin(&self, segment: u32, segments: u32) {
        // Release pairs with the Acquire of `is_pinned`: the reading is over.
        if self.counters[segment as usize].pins.fetch_sub(1, Ordering::Release) == 1 {
            self.pinned_count.fetch_sub(segments, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_pinned(&self, segment: u32) -> bool {
        self.counters[segment as usize].pins.load(Ordering::Acquire) != 0
    }

    /// Takes a segment, or a run of `run_len`, for one session to write; from `region`, if that has
    /// some.
    pub(crate) fn take(
        &self,
        run_len: u32,
        purpose: Purpose,
        (queue, region): (Queue, usize),
    ) -> Option<u32> {
        let mut allocator = self.allocator();
        let segment = allocator.take(run_len.max(1), purpose, region)?;
        self.set_queue(&mut allocator, segment, queue);
        self.segments.update_hint(&allocator);
        if let Some(durable) = &self.durable {
            durable.opened(segment);
        }
        drop(allocator);
        debug_assert!(self.live_bytes(segment) == 0, "I2: a free segment has no live entry");
        self.segments.taken.notify_one();
        Some(segment)
    }

    /// Takes a segment of an earlier life with room for an entry of `len_bytes`, for one session to
    /// go on in; returns its contents as well.
    pub(crate) fn take_unfilled(
        &self,
        len_bytes: u64,
        from: (Queue, usize),
    ) -> Option<(u32, Contents)> {
        let durable = self.durable.as_ref()?;
        let has_passed = |segment| durable.has_passed(segment);
        self.allocator().take_unfilled((len_bytes, self.segment_bytes()), from, has_passed)
    }

    /// Closes a full segment; it may be reclaimed from now on.
    fn close(&self, segment: u32, contents: Contents) {
        self.allocator().table.close(segment, contents);
    }

    /// Gives a claimed segment a second life in place: it counts as the youngest of `queue`.
    pub(crate) fn requeue(&self, segment: u32, queue: Queue) {
        let mut allocator = self.allocator();
        allocator.table.requeue(segment);
        self.set_queue(&mut allocator, segment, queue);
    }

    /// Returns a taken run in which nothing was published.
    pub(crate) fn give_back_unpublished(&self, segment: u32) {
        if let Some(durable) = &self.durable {
            durable.given_back(segment);
        }
        self.allocator().give_back(segment);
    }

    /// Retires a segment that no slot names any more; it waits for its grace period (I3).
    pub(crate) fn retire(&self, segment: u32, epochs: &Epochs) {
        // Its live bytes may not be zero yet: a writer that has changed the last slot subtracts
        // them before its next quiescent point, which the grace period waits for.
        let tag = epochs.advance();
        self.allocator().retire(segment, tag);
        if let Some(durable) = &self.durable {
            durable.retired(segment);
        }
    }

    /// Retires a segment whose valid entries were copied elsewhere before the first session.
    pub(crate) fn retire_restored(&self, segment: u32, epochs: &Epochs) {
        let tag = epochs.advance();
        self.allocator().retire_restored(segment, tag);
        if let Some(durable) = &self.durable {
            durable.retired(segment);
        }
    }

    /// Whether a segment heads a run whose one entry is alive.
    pub(crate) fn is_live_run(&self, segment: u32) -> bool {
        self.allocator().table.run_len(segment) > 1 && self.live_bytes(segment) > 0
    }

    /// Whether the log is also on a medium.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// Whether segments without a live entry wait for the medium.
    pub(crate) fn awaits_medium(&self) -> bool {
        let Some(durable) = &self.durable else { return false };
        self.allocator().waiting().any(|segment| !durable.is_free(segment))
    }

    /// Frees every waiting segment that no session can hold any more (I3); returns whether a grace
    /// period is still running.
    pub(crate) fn free_waiting(&self, epochs: &Epochs) -> bool {
        let mut allocator = self.allocator();
        // Under the lock: every waiting tag was drawn before.
        let safe_tag = epochs.safe_tag();
        let is_kept = |segment| {
            let is_on_medium = self.durable.as_ref().is_some_and(|it| !it.is_free(segment));
            self.is_pinned(segment) || is_on_medium
        };
        let grace_runs = allocator.free_waiting(|tag| tag <= safe_tag, is_kept);
        self.segments.update_hint(&allocator);
        grace_runs
    }

    /// The use of the log's bytes, approximately as of now.
    pub(crate) fn space(&self) -> LogSpace {
        let mut space = LogSpace::default();
        // The lock is released now and then, so that no writer waits for the whole table. Rows from
        // the top on are parked: they are room to grow.
        let row_count = self.allocator().table.top();
        for first in (0..row_count).step_by(SPACE_ROWS as usize) {
            let end = row_count.min(first + SPACE_ROWS);
            let live_bytes = |segment| self.live_bytes(segment);
            let segment_bytes = self.segment_bytes();
            self.allocator().table.add_space(&mut space, first..end, segment_bytes, live_bytes);
        }
        space
    }

    /// Waits until a segment is taken or parked, or the time is over.
    pub(crate) fn wait_taken(&self, limit: std::time::Duration) {
        let allocator = self.allocator();
        if !allocator.is_discard_due() {
            drop(self.segments.taken.wait_timeout(allocator, limit));
        }
    }

    /// See [`Allocator::keep`].
    pub(crate) fn keep(&self, place: (usize, Purpose), run_len: u32, region: usize) -> bool {
        let mut allocator = self.allocator();
        let is_kept = allocator.keep(place, run_len, region);
        self.segments.update_hint(&allocator);
        is_kept
    }

    /// See [`Allocator::end_keep`].
    pub(crate) fn end_keep(&self, place: usize) {
        let mut allocator = self.allocator();
        allocator.end_keep(place);
        self.segments.update_hint(&allocator);
    }

    pub(crate) fn wake_waiters(&self) {
        self.segments.taken.notify_all();
    }

    /// Does the next task for the log's memory, as chosen by [`Allocator::next_chore`].
    pub(crate) fn tend_memory(&self, ahead: u32) -> Tended {
        let mut allocator = self.allocator();
        let chore = allocator.next_chore(ahead as usize);
        self.segments.update_hint(&allocator);
        drop(allocator);
        match chore {
            None => Tended::Rested,
            Some(Chore::Populate(segment)) if self.populate(segment) => Tended::Populated,
            Some(Chore::Populate(_)) => Tended::Refused,
            Some(Chore::Discard(segment)) => {
                self.discard(segment);
                let mut allocator = self.allocator();
                allocator.end_discard(segment);
                self.segments.update_hint(&allocator);
                Tended::Discarded
            }
        }
    }

    /// Makes a segment resident; returns false if the kernel cannot.
    fn populate(&self, segment: u32) -> bool {
        self.memory.populate(self.segment_start(segment) as usize, self.segment_bytes() as usize)
    }

    /// Returns the pages of a parked segment to the kernel.
    fn discard(&self, segment: u32) {
        let (start, len) = (self.segment_start(segment) as usize, self.segment_bytes() as usize);
        // SAFETY: parked, so that no session or reply can hold its bytes (I3) and no session gets
        // it before `end_discard`; what a stale hint prefetches is not read.
        unsafe { self.memory.discard(start, len) };
    }
}
