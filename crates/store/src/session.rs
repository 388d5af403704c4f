//! A session: one thread's access to the store, with its open segment, its epoch, its counters, and
//! the batch executor.
//!
//! ```text
//!  execute(requests):   chunk of `batch` ──▶ stage 1 ──▶ stage 2 ──▶ stage 3 ──▶ sink
//!                       quiesce between chunks, so that a reclaimer waits for one chunk at most
//! ```
//!
//! # Invariants
//! I1: no reference into the log outlives the sink call it was made for (K12).
//! I2: while a session holds locks of several keys it neither waits for other sessions nor
//!     reclaims.
//!
//! # Concurrency
//! A session is `Send`, not `Sync`: one thread at a time.

mod changed;
mod deletes;
mod durable;
mod evicted;
mod execute;
mod expire;
mod flush;
mod hot;
mod keep;
mod kept_room;
mod ordered;
mod ordered_walk;
mod pace;
mod place;
mod range;
mod reclaim;
mod recover;
mod recover_sparely;
mod replica;
mod resize;
mod room;
mod scan;
mod scratch;
mod several;
mod update;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use index::hash::slot::{Slot, Tag};
use index::hash::{Block, Chain, Position};
use index::tree::{NodeMemory, Spare};

use crate::counters::Counts;
use crate::entry::{Entry, Seen};
use crate::inner::Inner;
use crate::log::{Appender, Lane, Purpose, Queue, Role};
use crate::pin::Pins;
use crate::request::LastUse;
use crate::tuning::Prefetch;

use execute::Guess;

pub use changed::{Changes, Origin};
pub(crate) use execute::know_processor;
pub use flush::Flush;
pub use hot::HOT_PLACE_BYTES;
pub(crate) use keep::{has_expired, is_whole_entry};
pub use kept_room::Room;
pub(crate) use recover::Named;
pub(crate) use recover_sparely::Starts;
pub use replica::Sweep;
pub(crate) use room::low_water;
pub use scan::Drawn;
pub use several::LockedSession;

/// Blocks of the index that one step frees, beyond the number that it retired: some 10 us.
const FREED_MAX: usize = 128;

/// One thread's session with a store.
pub struct Session {
    inner: Arc<Inner>,
    local: Local,
}

/// A session's own state, separate from `inner`, so that items borrowed from the log do not prevent
/// changes to it.
struct Local {
    place: usize,
    /// The lane in which it counts live bytes.
    lane: Lane,
    /// The appender for clients' writes; to the small queue, if there are two.
    appender: Appender,
    /// The appender for entries that reclaiming moves: old entries stay apart from new ones. With
    /// two queues, the appender for everything that belongs into main.
    survivors: Appender,
    counts: Counts,
    job: Option<reclaim::Job>,
    pace: pace::Pace,
    work: Work,
    /// Overflow buckets that have left their chain since the last quiescent point.
    unlinked: Vec<u32>,
    /// Nodes that have left the tree since then.
    unlinked_nodes: Vec<u32>,
    /// Nodes for the next inserts; none without a tree.
    spare: Spare,
    /// The number of nodes that the last insert lacked.
    node_shortage: usize,
    /// Whether the results of stages 1 and 2 are still valid: the session has not quiesced since.
    are_hints_good: bool,
    /// Parts of the index in their grace period, oldest first.
    retired: VecDeque<(u64, Block)>,
    /// Items added minus those removed since the index was told, except those in `counts`.
    unsettled: i64,
    /// Memory for new values of read-modify-writes.
    scratch: scratch::Scratch,
    /// Heads whose lock this session holds across requests, ascending (K11).
    held: Vec<u32>,
    /// The length of the value last read: the distance that stage 2 prefetches.
    value_len_hint: usize,
    /// The results of stages 1 and 2 for the requests of a batch.
    guesses: Vec<execute::Guess>,
    /// The number of requests whose buckets the caller has prefetched.
    prefetched_count: usize,
    /// Hot keys with their places in the tree, if there are any.
    hot: Option<Box<hot::Hot>>,
    /// The prefetch setting of the store.
    prefetch: Prefetch,
    /// Access marks that reads of this chunk may add up to (K13).
    mark_limit: u64,
    /// The time that reads of this chunk note (`Entry::note_use`).
    read_now: LastUse,
    /// Evicted entries, while a caller watches evictions.
    evicted: Option<Box<evicted::EvictedLately>>,
    /// Changed keys, while a caller watches changes.
    changes: Option<Box<changed::Changes>>,
    /// When the expiry pass last took a step.
    expiry_step_at: UnixMillis,
    /// Many of the items in that step had expired: the next step need not wait.
    is_expiry_pressing: bool,
}

/// Counts of a session's housekeeping since it began, for bounding its steps.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Entries of victims looked at, ...
    seen_entries: u64,
    /// ... and their bytes.
    seen_bytes: u64,
    /// Blocks of the index that were freed.
    freed_blocks: u64,
    /// Segments that a write had to empty by itself.
    segments_in_writes: u64,
}

impl Session {
    pub(crate) fn new(inner: Arc<Inner>, place: usize) -> Session {
        let lane = inner.log.lane_of(place);
        let ahead = inner.tuning.prefetches_append;
        let write_queue = if inner.ghosts.is_some() { Queue::Small } else { Queue::Main };
        let region = inner.log.region_of_place(place);
        let mut local = Local {
            place,
            lane,
            appender: Appender::new(Role::Writes, write_queue, lane, ahead),
            survivors: Appender::new(Role::Survivors, Queue::Main, lane, ahead),
            counts: Counts::default(),
            job: None,
            pace: pace::Pace::default(),
            work: Work::default(),
            unlinked: Vec::new(),
            unlinked_nodes: Vec::new(),
            spare: Spare::default(),
            node_shortage: 0,
            are_hints_good: false,
            retired: VecDeque::new(),
            unsettled: 0,
            scratch: scratch::Scratch::default(),
            held: Vec::new(),
            value_len_hint: 0,
            guesses: Vec::new(),
            prefetched_count: 0,
            hot: None,
            prefetch: inner.tuning.prefetch,
            mark_limit: 0,
            read_now: LastUse::UNKNOWN,
            evicted: None,
            changes: None,
            expiry_step_at: UnixMillis(0),
            is_expiry_pressing: false,
        };
        local.prefer(region);
        Session { inner, local }
    }

    /// Declares that this session's thread runs on a NUMA node: its appends go there, while there
    /// is room.
    pub fn prefer_node(&mut self, node_id: u32) {
        if let Some(region) = self.inner.log.region_of_node(node_id) {
            self.local.prefer(region);
        }
    }

    /// Declares that the session holds no reference: other sessions may reuse memory unlinked
    /// before, and empty the segment that this one has begun to empty.
    #[inline]
    pub fn quiesce(&mut self) {
        self.local.drop_job(&self.inner);
        self.local.note(&self.inner);
        self.inner.epochs.quiesce(self.local.place);
    }

    /// Before a blocking wait: holds nothing back until [`Session::unpark`] (K12).
    pub fn park(&mut self) {
        self.local.drop_job(&self.inner);
        self.local.publish_counts(&self.inner);
        self.local.settle_items(&self.inner);
        self.local.note(&self.inner);
        self.inner.epochs.park(self.local.place);
    }

    /// After a blocking wait, before the next request.
    pub fn unpark(&mut self) {
        self.inner.epochs.unpark(self.local.place);
    }

    /// Whether the log is short of free segments: then `maintain` is due after every batch, so that
    /// no write has to wait for a whole segment to be reclaimed. Costs two loads.
    #[inline]
    pub fn wants_room(&self) -> bool {
        self.local.wants_room(&self.inner)
    }

    /// Pins of this store, for a sink that is called with outcomes outside [`Session::execute`].
    pub fn pins(&self) -> Pins<'_> {
        Pins(&self.inner)
    }

    /// The largest value for a key of this length.
    pub fn value_max_bytes(&self, key_len_bytes: usize) -> u64 {
        self.inner.value_max_bytes(key_len_bytes)
    }

    /// Does a bounded step of housekeeping between batches: frees memory after its grace period,
    /// reclaims ahead of need, removes expired items. True: more work is waiting.
    pub fn maintain(&mut self, now: UnixMillis) -> bool {
        let Session { inner, local } = self;
        local.note(inner);
        inner.epochs.quiesce(local.place);
        local.close_passed(inner);
        let frees_more = local.free_retired(inner);
        let reclaims_more = local.reclaim_ahead(inner, now, room::STEP);
        let expires_more = local.expire_step(inner, now);
        local.publish_counts(inner);
        let resizes_more = local.resize_step(inner);
        frees_more || reclaims_more || expires_more || resizes_more
    }
}

impl Local {
    fn prefer(&mut self, region: usize) {
        self.appender.prefer(region);
        self.survivors.prefer(region);
    }

    #[inline]
    fn publish_counts(&mut self, inner: &Inner) {
        self.appender.publish_live(&inner.log);
        self.survivors.publish_live(&inner.log);
        self.unsettled = self.unsettled.wrapping_add(self.counts.items.cast_signed());
        inner.counts[self.place].publish(&mut self.counts);
    }

    /// Starts the grace period of unlinked memory, and frees some older blocks; true: more of them
    /// could be freed.
    fn free_retired(&mut self, inner: &Inner) -> bool {
        let retired_count = self.retire_unlinked(inner);
        self.free_safe(inner, FREED_MAX + retired_count)
    }

    /// Like [`Local::free_retired`], for all blocks whose grace period is over.
    fn drain_retired(&mut self, inner: &Inner) {
        self.retire_unlinked(inner);
        self.free_safe(inner, usize::MAX);
    }

    /// Starts the grace period of unlinked memory; returns the number of blocks.
    fn retire_unlinked(&mut self, inner: &Inner) -> usize {
        let count = self.unlinked.len() + self.unlinked_nodes.len();
        if !self.unlinked.is_empty() {
            let tag = inner.epochs.advance();
            let lines = self.unlinked.drain(..).map(|line| (tag, Block::line(line)));
            self.retired.extend(lines);
        }
        if !self.unlinked_nodes.is_empty() {
            let tag = inner.epochs.advance();
            let nodes = self.unlinked_nodes.drain(..);
            self.retired.extend(nodes.map(|node| (tag, NodeMemory::block_of(node))));
        }
        self.retired.extend(inner.adopt_orphans());
        count
    }

    fn free_safe(&mut self, inner: &Inner, count_max: usize) -> bool {
        for _ in 0..count_max {
            let front = self.retired.front().copied();
            let Some((_, block)) = front.filter(|(tag, _)| inner.epochs.is_safe(*tag)) else {
                return false;
            };
            inner.index.free(block);
            self.retired.pop_front();
            self.work.freed_blocks += 1;
        }
        true
    }

    /// The entry that a slot names, valid until this session quiesces.
    #[inline]
    fn entry_of(inner: &Inner, position: Position) -> Entry<'_> {
        // SAFETY: the slot was read since the last quiescent point (I1) or under its lock.
        unsafe { inner.log.entry(position.slot.offset_bytes()) }
    }

    /// Locks a chain, unless this session holds the lock already (K11).
    #[inline]
    fn lock_chain<'a>(&self, inner: &'a Inner, hash: KeyHash) -> Chain<'a> {
        if !self.held.is_empty() {
            let head = inner.index.head_of(hash);
            if self.held.binary_search(&head).is_ok() {
                return inner.index.locked(head);
            }
        }
        inner.index.lock(hash)
    }

    /// The key's entry, under its chain's lock; the guess of stage 2 is tried first.
    #[inline]
    fn find_locked<'a>(
        inner: &'a Inner,
        chain: &Chain<'_>,
        guess: Guess,
        tag: Tag,
        key: &[u8],
    ) -> Option<(Position, Entry<'a>)> {
        if let Some(tree) = &inner.tree {
            return Local::find_ordered(inner, tree, tag, key);
        }
        let is_key = |slot: Slot| {
            // SAFETY: the chain's lock keeps its entries in place.
            let entry = unsafe { inner.log.entry(slot.offset_bytes()) };
            entry.has_key(key)
        };
        let guessed = guess.in_head().and_then(|seen| chain.still_there(seen));
        let position = match guessed.filter(|position| is_key(position.slot)) {
            Some(position) => position,
            None => chain.find(tag, is_key)?,
        };
        Some((position, Local::entry_of(inner, position)))
    }

    /// Points the slot of `key` at another entry, under its chain's lock.
    #[inline]
    fn point(inner: &Inner, chain: &mut Chain<'_>, position: Position, key: &[u8], slot: Slot) {
        match &inner.tree {
            None => chain.replace(position, slot),
            Some(tree) => tree.replace(position, key, slot, &inner.log),
        }
    }

    /// Removes an entry under its chain's lock and updates the counters. False: a durable log has
    /// no space to record the removal.
    #[must_use]
    fn unlink(
        &mut self,
        inner: &Inner,
        chain: &mut Chain<'_>,
        position: Position,
        entry: Entry<'_>,
    ) -> bool {
        if !self.bury(inner, chain, entry, Purpose::Delete) {
            return false;
        }
        self.unlink_bare(inner, chain, position, entry);
        true
    }

    /// [`Local::unlink`] without recording the removal on the medium.
    fn unlink_bare(
        &mut self,
        inner: &Inner,
        chain: &mut Chain<'_>,
        position: Position,
        entry: Entry<'_>,
    ) {
        match &inner.tree {
            None => chain.remove(position, &mut self.unlinked),
            Some(tree) => {
                let removed = tree.remove(entry.key(), &inner.log, &mut self.unlinked_nodes);
                debug_assert!(removed.is_some(), "the stripe is locked");
            }
        }
        self.count_removed(inner, position, entry);
    }

    #[inline]
    fn count_removed(&mut self, inner: &Inner, position: Position, entry: Entry<'_>) {
        let len_bytes = entry.len_bytes();
        inner.log.sub_live(self.lane, position.slot.offset_bytes(), len_bytes);
        self.counts.items = self.counts.items.wrapping_sub(1);
        self.counts.entry_bytes = self.counts.entry_bytes.wrapping_sub(len_bytes as u64);
        if entry.has_expiry() {
            self.counts.items_with_expiry = self.counts.items_with_expiry.wrapping_sub(1);
        }
        if entry.shard() != 0
            && let Some(counts) = inner.shard_counts.get()
        {
            counts.remove(entry.shard());
        }
    }

    #[inline]
    fn count_added(&mut self, len_bytes: usize, has_expiry: bool) {
        self.counts.items = self.counts.items.wrapping_add(1);
        self.counts.entry_bytes = self.counts.entry_bytes.wrapping_add(len_bytes as u64);
        if has_expiry {
            self.counts.items_with_expiry = self.counts.items_with_expiry.wrapping_add(1);
        }
    }

    /// The entry as a client sees it: nothing once it has expired.
    #[inline]
    fn see_live(entry: Option<Entry<'_>>, now: UnixMillis) -> Option<Seen<'_>> {
        entry.filter(|entry| !entry.is_expired(now)).map(Entry::see)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Session { inner, local } = self;
        debug_assert!(local.held.is_empty(), "I2: locks are given back before the session");
        local.appender.close(&inner.log);
        local.survivors.close(&inner.log);
        local.note(inner);
        local.drop_job(inner);
        local.publish_counts(inner);
        local.settle_items(inner);
        if let Some(tree) = &inner.tree {
            local.spare.cut(tree.memory(), 0);
        }
        inner.epochs.leave(local.place);
        local.drain_retired(inner);
        // Other sessions may still read these buckets: the next one that does housekeeping frees
        // them.
        inner.orphans().extend(local.retired.drain(..));
    }
}
