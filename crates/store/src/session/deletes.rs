//! Room for the deletes that a durable log must record (K2), however full it is: deletes are the
//! way to empty a full store.
//!
//! ```text
//!  free segments:  0 .... s + 1 .............. reserve ........ all
//!                  │       │  └ deletes as well   └ writes and deletes
//!                  │       └ sessions that make room alone
//!  delete ─▶ what is open ─▶ a segment of the reserve ─▶ made room: sparsest, then oldest first
//! ```
//!
//! A delete takes about as much room as a short entry frees when that delete ends it. But the
//! entry's room comes back only when its segment is emptied, and the delete's when all older
//! segments are (durable_log.rs, D5), which passes over the log achieve
//! (durable_log/passes.rs). The room kept for deletes makes each pass worth its copies.
//!
//! # Invariants
//! T1: of the reserve, deletes leave one segment for each session that makes room, and one more:
//!     emptying a segment takes at most one other, so the room that deletes have used comes back.
//! T2: a pass makes a delete, or a write, wait for at most [`SEEN_MAX_BYTES`] of victims. If that
//!     frees too little, housekeeping frees the rest.

use base::UnixMillis;

use super::Local;
use super::appenders::Appenders;
use crate::entry::Shape;
use crate::inner::Inner;
use crate::log::{Found, Purpose, Reservation, Victim};

/// Bytes of a pass's victims that one request empties, beyond the first [`VICTIMS_MIN`] (T2).
const SEEN_MAX_BYTES: u64 = 256 << 20;
/// The number of victims for a log of long segments.
const VICTIMS_MIN: u32 = 64;
/// A pass is worth its cost for deletes of one part in this many of the log.
const CHANGED_PART: u64 = 64;

/// The assumed length of a key that will be deleted under its lock: the actual keys are not known
/// before.
const KEY_GUESS_BYTES: usize = 64;

/// The steps of reclaiming, each some tens of microseconds, that a write takes to get a run of
/// several segments: a large store is not copied as a whole, which would hold its worker for long.
const RUN_STEPS_MAX: u32 = 2_000;

/// The purpose of making room.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// A write: a run of `run_len` segments, out of `wanted` free ones.
    Run { run_len: u32, wanted: u32 },
    /// A delete of a durable log.
    Delete,
}

/// One segment for a write.
pub(super) const ONE: Want = Want::Run { run_len: 1, wanted: 1 };

impl Want {
    pub(super) fn run_len(self) -> u32 {
        match self {
            Want::Run { run_len, .. } => run_len,
            Want::Delete => 1,
        }
    }

    /// Whether the room could be taken now.
    pub(super) fn is_there(self, inner: &Inner) -> bool {
        let allocator = inner.log.allocator();
        match self {
            Want::Run { run_len, wanted } => {
                allocator.available(Purpose::Write) >= wanted
                    && allocator.can_take(run_len, Purpose::Write)
            }
            Want::Delete => allocator.available(Purpose::Delete) > 0,
        }
    }

    /// Whether it could be taken once the present grace periods are over; for a cache.
    pub(super) fn is_coming(self, inner: &Inner) -> bool {
        let Want::Run { run_len, wanted } = self else { return false };
        let allocator = inner.log.allocator();
        allocator.will_have_run(run_len, wanted, |segment| inner.log.is_pinned(segment))
    }

    /// The most segments that are emptied for it.
    pub(super) fn victims_max(self, inner: &Inner) -> u32 {
        // Emptying every segment twice is the most that could help.
        let all = 2 * inner.log.segment_count() + 64;
        match self {
            Want::Run { .. } => all,
            Want::Delete => all.min(passed_max(inner)),
        }
    }

    /// The most steps of reclaiming that are taken for it.
    pub(super) fn steps_max(self) -> u32 {
        if self.run_len() == 1 { u32::MAX } else { RUN_STEPS_MAX }
    }

    /// Bytes of deletes that must have been written or dropped for a pass to begin; `None`: after
    /// this many victims no pass continues.
    pub(super) fn pass_min_bytes(self, inner: &Inner, emptied_count: u32) -> Option<u64> {
        match self {
            _ if emptied_count >= passed_max(inner) => None,
            Want::Run { run_len: 1, .. } => Some(changed_much(inner)),
            Want::Run { .. } => None,
            Want::Delete => Some(1),
        }
    }
}

/// The victims that a write or a delete empties before it leaves a pass to housekeeping (T2).
fn passed_max(inner: &Inner) -> u32 {
    ((SEEN_MAX_BYTES / inner.log.segment_bytes()) as u32).max(VICTIMS_MIN)
}

/// Bytes of deletes that are worth a pass by themselves.
fn changed_much(inner: &Inner) -> u64 {
    u64::from(inner.log.segment_count()) * inner.log.segment_bytes() / CHANGED_PART
}

/// The shape of the delete of a key of this length.
pub(super) fn delete_shape(key_len_bytes: usize) -> Shape {
    Shape::new(key_len_bytes, 0, 0, true).at_rest()
}

/// Reserves space for a delete whose chain is locked, without making room.
pub(super) fn reserve_for_delete(
    local: &mut Local,
    inner: &Inner,
    len_bytes: usize,
    purpose: Purpose,
) -> Option<Reservation> {
    let log = &inner.log;
    let mut reserved = local.appenders.writes.reserve(log, len_bytes, Purpose::Write);
    if reserved.is_none() && !local.held.is_empty() && log.allocator().has_kept(local.place) {
        // Room was kept for it where the other entries go, in the order of the writes.
        reserved = local.appenders.writes.reserve(log, len_bytes, Purpose::Held(local.place));
    }
    let reserved = reserved.or_else(|| local.appenders.survivors.reserve(log, len_bytes, purpose));
    // Under locks of several keys room cannot be made, but may have been kept.
    if reserved.is_none() && !local.held.is_empty() {
        return local.appenders.survivors.reserve(log, len_bytes, Purpose::Held(local.place));
    }
    reserved
}

/// After a delete that found no space: makes room for one and keeps it for this session. Drops
/// every reference it has. False: none can be made now.
#[cold]
pub(super) fn make_room_for_delete(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    key_len_bytes: usize,
) -> bool {
    if local.held.is_empty() && inner.durable.is_some() {
        local.are_hints_good = false;
        let len_bytes = delete_shape(key_len_bytes).len_bytes();
        // Other sessions may take the freed space, but only by finishing deletes of their own.
        while local.reclaim_until(inner, now, Want::Delete) {
            let reserved =
                local.appenders.survivors.reserve(&inner.log, len_bytes, Purpose::Delete);
            if let Some(reservation) = reserved {
                local.appenders.survivors.cancel(&inner.log, reservation);
                return true;
            }
        }
    }
    local.tally.counts.out_of_memory += 1;
    false
}

/// Makes room for deletes of `key_count` keys under their locks, where no room can be made; the
/// deletes themselves show whether there was enough. Drops every reference this session has.
#[inline]
pub(super) fn have_room_for_deletes(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    keys: usize,
) {
    if inner.durable.is_some() && inner.log.available_hint() == 0 {
        let wanted_bytes = (keys * delete_shape(KEY_GUESS_BYTES).len_bytes()) as u64;
        let room_bytes =
            local.appenders.writes.room_bytes().max(local.appenders.survivors.room_bytes());
        if room_bytes < wanted_bytes {
            local.reclaim_until(inner, now, Want::Delete);
        }
    }
}

/// Reclaims ahead of need, once no segment is sparse enough: first for the part of the reserve
/// that deletes have used, then for writes.
pub(super) fn pass_ahead(local: &mut Local, inner: &Inner) -> Found {
    if inner.durable.is_none() {
        return Found::Nothing;
    }
    let has_lent = inner.log.allocator().has_lent_to_deletes();
    let min_bytes = if has_lent { inner.log.segment_bytes() } else { changed_much(inner) };
    let victim = passed_victim(local, inner, min_bytes);
    victim.map_or(Found::Nothing, Found::Victim)
}

/// The next segment of a pass, which begins if this many bytes of deletes were written or
/// dropped.
pub(super) fn passed_victim(
    local: &mut Local,
    inner: &Inner,
    changed_min_bytes: u64,
) -> Option<Victim> {
    let durable = inner.durable.as_ref()?;
    let age = |segment| durable.sequence_of(segment);
    let is_due = |sequence| durable.passes_over(sequence, changed_min_bytes);
    let victim = inner.log.allocator().table.claim_oldest(age, is_due);
    close_passed(local, inner);
    victim
}

/// Closes open segments that a pass has gone beyond: while one is open, the deletes behind it
/// stay. Nothing is reserved.
pub(super) fn close_passed(local: &mut Local, inner: &Inner) {
    let Some(durable) = &inner.durable else { return };
    let Appenders { writes, survivors } = &mut local.appenders;
    for appender in [writes, survivors] {
        if appender.close_old(&inner.log, |segment| durable.has_passed(segment)) {
            // The next pass drops the deletes that this one had to copy because of it.
            durable.want_pass(changed_much(inner));
        }
    }
}
