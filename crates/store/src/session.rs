//! A session: one thread's access to the store, with its open segment, its epoch, its counters, and
//! the batch executor.
//!
//! ```text
//!  execute(requests):   chunk of `batch` ──▶ stage 1 ──▶ stage 2 ──▶ stage 3 ──▶ sink
//!                       quiesce between chunks, so that a reclaimer waits for one chunk at most
//! ```
//!
//! What a session has of its own is in `Local`, and most of that has an owner: open segments
//! (appenders.rs), counts (tally.rs), unlinked parts of the index (retired.rs), reserved tree nodes
//! (nodes.rs), held locks (held.rs), notes of changes and evictions (changed.rs, evicted.rs), the
//! victim (reclaim.rs) and the pace of reclaiming (pace.rs). A request is served by methods of
//! `Local` (execute.rs, write.rs, update.rs, room.rs); everything else is a function of the file of
//! its kind.
//!
//! # Invariants
//! I1: no reference into the log outlives the sink call it was made for (K12).
//! I2: while a session holds locks of several keys it neither waits for other sessions nor
//!     reclaims.
//!
//! # Concurrency
//! A session is `Send`, not `Sync`: one thread at a time.

mod appenders;
mod changed;
mod deletes;
mod durable;
mod evicted;
mod execute;
mod expire;
mod find;
mod flush;
mod held;
mod hot;
mod keep;
mod kept_room;
mod nodes;
mod ordered;
mod ordered_walk;
mod pace;
mod place;
mod range;
mod reclaim;
mod recover;
mod recover_sparely;
mod renew;
mod replica;
mod resize;
mod retired;
mod room;
mod scan;
mod scratch;
mod several;
mod tally;
mod update;
mod write;

use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use index::hash::{Chain, Position};

use crate::entry::Entry;
use crate::hot_array::HotArray;
use crate::inner::Inner;
use crate::log::Purpose;
use crate::pin::Pins;
use crate::request::{Evicted, LastUse, Sink};
use crate::tuning::Prefetch;

use appenders::Appenders;
use changed::ChangeNotes;
use deletes::close_passed;
use durable::{bury, note_published};
use evicted::EvictionNotes;
use expire::expire_step;
use held::Held;
use hot::Hot;
use nodes::NodeStock;
use reclaim::drop_job;
use resize::resize_step;
use retired::Retired;
use several::{lock_keys, read_snapshot};
use tally::Tally;

pub use changed::{Changes, Origin};
pub(crate) use execute::know_processor;
pub use flush::Flush;
pub use hot::HOT_PLACE_BYTES;
pub(crate) use keep::{has_expired, is_whole_entry, name_live};
pub use kept_room::Room;
pub(crate) use recover::{
    Named, count_named, drop_all_deletes, drop_deletes, end_recovery, recover_all, recover_copy,
};
pub(crate) use recover_sparely::{Starts, recover_sparely};
pub use replica::Sweep;
pub(crate) use room::low_water;
pub use scan::Drawn;
pub use several::LockedSession;

/// One thread's session with a store.
pub struct Session {
    inner: Arc<Inner>,
    local: Local,
}

/// A session's own state, separate from `inner`, so that items borrowed from the log do not prevent
/// changes to it.
struct Local {
    place: usize,
    appenders: Appenders,
    tally: Tally,
    job: Option<reclaim::Job>,
    pace: pace::Pace,
    work: Work,
    nodes: NodeStock,
    /// Whether the results of stages 1 and 2 are still valid: the session has not quiesced since.
    are_hints_good: bool,
    retired: Retired,
    /// Memory for new values of read-modify-writes.
    scratch: scratch::Scratch,
    held: Held,
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
    evictions: EvictionNotes,
    changes: ChangeNotes,
    /// When the expiry pass last took a step.
    expiry_step_at: UnixMillis,
    /// The last search for a long run, if it found none.
    fruitless: Option<room::Fruitless>,
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
    /// Segments that a write had to empty by itself.
    segments_in_writes: u64,
}

impl Session {
    pub(crate) fn new(inner: Arc<Inner>, place: usize) -> Session {
        let lane = inner.log.lane_of(place);
        let local = Local {
            place,
            appenders: Appenders::new(&inner, lane, inner.log.region_of_place(place)),
            tally: Tally::new(lane),
            job: None,
            pace: pace::Pace::default(),
            work: Work::default(),
            nodes: NodeStock::default(),
            are_hints_good: false,
            retired: Retired::default(),
            scratch: scratch::Scratch::default(),
            held: Held::default(),
            value_len_hint: 0,
            guesses: Vec::new(),
            prefetched_count: 0,
            hot: None,
            prefetch: inner.tuning.prefetch,
            mark_limit: 0,
            read_now: LastUse::UNKNOWN,
            evictions: EvictionNotes::default(),
            changes: ChangeNotes::default(),
            expiry_step_at: UnixMillis(0),
            fruitless: None,
            is_expiry_pressing: false,
        };
        Session { inner, local }
    }

    /// Declares that this session's thread runs on a NUMA node: its appends go there, while there
    /// is room.
    pub fn prefer_node(&mut self, node_id: u32) {
        if let Some(region) = self.inner.log.region_of_node(node_id) {
            self.local.appenders.prefer(region);
        }
    }

    /// Declares that the session holds no reference: other sessions may reuse memory unlinked
    /// before, and empty the segment that this one has begun to empty.
    #[inline]
    pub fn quiesce(&mut self) {
        drop_job(&mut self.local, &self.inner);
        note_published(&mut self.local, &self.inner);
        self.inner.epochs.quiesce(self.local.place);
    }

    /// Before a blocking wait: holds nothing back until [`Session::unpark`] (K12).
    pub fn park(&mut self) {
        drop_job(&mut self.local, &self.inner);
        self.local.publish_counts(&self.inner);
        self.local.tally.settle(&self.inner);
        note_published(&mut self.local, &self.inner);
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
        note_published(local, inner);
        inner.epochs.quiesce(local.place);
        close_passed(local, inner);
        let frees_more = local.retired.free_some(inner);
        let reclaims_more = local.reclaim_ahead(inner, now, room::STEP);
        let expires_more = expire_step(local, inner, now);
        local.publish_counts(inner);
        let resizes_more = resize_step(local, inner);
        frees_more || reclaims_more || expires_more || resizes_more
    }

    /// Reads all keys as of one moment. The sink gets only `Hit` and `Miss`.
    pub fn read_snapshot<R, S: Sink<R>>(
        &mut self,
        now: UnixMillis,
        keys: &[(KeyHash, &[u8])],
        sink: &mut S,
    ) {
        read_snapshot(self, now, keys, sink);
    }

    /// Makes room for entries, then locks the chains of all keys. Without room for all of them the
    /// locked session answers every write that needs some with `OutOfMemory`.
    pub fn lock_keys(
        &mut self,
        now: UnixMillis,
        hashes: &[KeyHash],
        room: Room,
    ) -> LockedSession<'_> {
        lock_keys(self, now, hashes, room)
    }

    /// Makes room for the values that updates make, of at most that length, and keeps it until
    /// [`Session::end_scratch`]; false: there is none.
    pub fn keep_scratch(&mut self, len_bytes: usize) -> bool {
        self.local.scratch.keep(&self.inner.scratch_room, len_bytes)
    }

    /// Frees what [`Session::keep_scratch`] has kept.
    pub fn end_scratch(&mut self) {
        self.local.scratch.end_keep(&self.inner.scratch_room);
    }

    /// Whether changed keys are noted for [`Session::take_changes`] from now on.
    pub fn record_changes(&mut self, is_watched: bool) {
        self.local.changes.set(is_watched);
    }

    /// Takes the changes of this session since the last call, in exchange for empty notes.
    pub fn take_changes(&mut self, empty: &mut Changes) {
        debug_assert!(empty.is_empty(), "what was taken before is lost");
        self.local.changes.take(empty);
    }

    /// Whether evicted entries are kept for [`Session::take_evicted`] from now on.
    pub fn record_evictions(&mut self, is_watched: bool) {
        self.local.evictions.set(is_watched);
    }

    /// Visits the entries evicted since the last call, and returns how many more were evicted.
    pub fn take_evicted(&mut self, visit: impl FnMut(&Evicted)) -> u64 {
        self.local.evictions.take(visit)
    }

    /// Whether the log cannot be written now.
    pub fn is_refusing(&self) -> bool {
        self.inner.durable.as_ref().is_some_and(|durable| durable.is_refusing())
    }

    /// Deletes every item that exists at the call. Items written meanwhile may go or stay. False:
    /// the log cannot be written, and nothing was deleted.
    pub fn flush(&mut self) -> bool {
        let Some(mut flush) = Flush::begin(self) else { return false };
        while !flush.is_over() {
            flush.step(self);
        }
        true
    }

    /// Sets the keys that [`Session::read_hot`] looks up first; `None`: no keys. The places of
    /// other keys are dropped.
    pub fn set_hot_array(&mut self, keys: Option<Arc<HotArray>>) {
        let keys = keys.filter(|keys| self.inner.tree.is_some() && !keys.is_empty());
        let in_place_count = self.take_hot_reads();
        let before = self.local.hot.take();
        self.local.hot = keys.map(|keys| Box::new(Hot::new(keys, before, in_place_count)));
    }

    /// The number of reads of [`Session::read_hot`] that did not descend the tree, since the last
    /// call.
    pub fn take_hot_reads(&mut self) -> u64 {
        self.local.hot.as_mut().map_or(0, |hot| hot.take_count())
    }
}

impl Local {
    #[inline]
    fn publish_counts(&mut self, inner: &Inner) {
        self.appenders.publish_live(&inner.log);
        self.tally.publish(inner, self.place);
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
        if !bury(self, inner, chain, entry, Purpose::Delete) {
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
            None => chain.remove(position, &mut self.retired.lines),
            Some(tree) => {
                let removed = tree.remove(entry.key(), &inner.log, &mut self.retired.nodes);
                debug_assert!(removed.is_some(), "the stripe is locked");
            }
        }
        self.tally.remove(inner, position, entry);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Session { inner, local } = self;
        debug_assert!(local.held.is_empty(), "I2: locks are given back before the session");
        local.appenders.close(&inner.log);
        note_published(local, inner);
        drop_job(local, inner);
        local.publish_counts(inner);
        local.tally.settle(inner);
        local.nodes.keep_none(inner);
        inner.epochs.leave(local.place);
        local.retired.drain(inner);
        local.retired.leave(inner);
    }
}
