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

use base::UnixMillis;
use index::hash::{Chain, Position};

use crate::entry::Entry;
use crate::inner::Inner;
use crate::log::Purpose;
use crate::pin::Pins;
use crate::request::LastUse;
use crate::tuning::Prefetch;

use appenders::Appenders;
use changed::ChangeNotes;
use deletes::close_passed;
use durable::{bury, note_published};
use evicted::EvictionNotes;
use expire::expire_step;
use held::Held;
use nodes::NodeStock;
use reclaim::drop_job;
use resize::resize_step;
use retired::Retired;
use tally::Tally;

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
