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
//! segments are (durable.rs, D5), which passes over the log achieve (durable/passes.rs). The room
//! kept for deletes makes each pass worth its copies.
//!
//! # Invariants
//! T1: of the reserve, deletes leave one segment for each session that makes room, and one more:
//!     emptying a segment takes at most one other, so the room that deletes have used comes back.
//! T2: a pass makes a delete, or a write, wait for at most [`SEEN_MAX_BYTES`] of victims. If that
//!     frees too little, housekeeping frees the rest.

use base::UnixMillis;

use super::Local;
use crate::entry::Shape;
use crate::log::{Found, Purpose, Reservation, Victim};
use crate::store::Inner;

/// Of victims of passes that one request empties, but for the first [`VICTIMS_MIN`] (T2).
const SEEN_MAX_BYTES: u64 = 256 << 20;
/// Of a log of long segments.
const VICTIMS_MIN: u32 = 64;
/// Deletes of one part in so many of the log are worth a pass.
const CHANGED_PART: u64 = 64;

/// Of a key that is about to be deleted under its lock: which they are is not known before.
const KEY_GUESS_BYTES: usize = 64;

/// What room is made for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// A write: a run of `run_len` segments, of `wanted` that are free.
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

    /// Whether it could be taken.
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

    /// The same, once the grace periods that run now are over; of a cache.
    pub(super) fn is_coming(self, inner: &Inner) -> bool {
        let Want::Run { run_len, wanted } = self else { return false };
        let allocator = inner.log.allocator();
        allocator.will_have_run(run_len, wanted, |segment| inner.log.is_pinned(segment))
    }

    /// Segments that are emptied for it.
    pub(super) fn victims_max(self, inner: &Inner) -> u32 {
        // Emptying every segment twice is all that could help.
        let all = 2 * inner.log.segment_count() + 64;
        match self {
            Want::Run { .. } => all,
            Want::Delete => all.min(passed_max(inner)),
        }
    }

    /// Bytes of deletes that must have come or gone for a pass to begin; `None`: after so many
    /// victims none goes on.
    pub(super) fn pass_min_bytes(self, inner: &Inner, emptied_count: u32) -> Option<u64> {
        match self {
            _ if emptied_count >= passed_max(inner) => None,
            Want::Run { run_len: 1, .. } => Some(changed_much(inner)),
            Want::Run { .. } => None,
            Want::Delete => Some(1),
        }
    }
}

/// Victims that a write or a delete empties before it leaves a pass to housekeeping (T2).
fn passed_max(inner: &Inner) -> u32 {
    ((SEEN_MAX_BYTES / inner.log.segment_bytes()) as u32).max(VICTIMS_MIN)
}

/// Bytes of deletes that are worth a pass by themselves.
fn changed_much(inner: &Inner) -> u64 {
    u64::from(inner.log.segment_count()) * inner.log.segment_bytes() / CHANGED_PART
}

/// Of the entry that says that a key of so many bytes is gone.
pub(super) fn delete_shape(key_len_bytes: usize) -> Shape {
    Shape::new(key_len_bytes, 0, 0, true).at_rest()
}

impl Local {
    /// Space for a delete whose chain is locked, without making room.
    pub(super) fn reserve_for_delete(
        &mut self,
        inner: &Inner,
        len_bytes: usize,
        purpose: Purpose,
    ) -> Option<Reservation> {
        let log = &inner.log;
        let reserved = self
            .appender
            .reserve(log, len_bytes, Purpose::Write)
            .or_else(|| self.survivors.reserve(log, len_bytes, purpose));
        // Under locks of several keys room cannot be made, and may have been kept.
        if reserved.is_none() && !self.held.is_empty() {
            return self.survivors.reserve(log, len_bytes, Purpose::Held(self.place));
        }
        reserved
    }

    /// After a delete that found no space: makes room for one, which stays this session's. Drops
    /// every reference it has. False: there is none to be had now.
    #[cold]
    pub(super) fn make_room_for_delete(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        key_len_bytes: usize,
    ) -> bool {
        if self.held.is_empty() && inner.durable.is_some() {
            self.are_hints_good = false;
            let len_bytes = delete_shape(key_len_bytes).len_bytes();
            // Others may take what was freed, but only by finishing deletes of their own.
            while self.reclaim_until(inner, now, Want::Delete) {
                let reserved = self.survivors.reserve(&inner.log, len_bytes, Purpose::Delete);
                if let Some(reservation) = reserved {
                    self.survivors.cancel(&inner.log, reservation);
                    return true;
                }
            }
        }
        self.counts.out_of_memory += 1;
        false
    }

    /// The same for deletes of so many keys under their locks, where no room can be made; whether
    /// that succeeds, they show. Drops every reference this session has.
    #[inline]
    pub(super) fn have_room_for_deletes(&mut self, inner: &Inner, now: UnixMillis, keys: usize) {
        if inner.durable.is_some() && inner.log.available_hint() == 0 {
            let wanted_bytes = (keys * delete_shape(KEY_GUESS_BYTES).len_bytes()) as u64;
            let room_bytes = self.appender.room_bytes().max(self.survivors.room_bytes());
            if room_bytes < wanted_bytes {
                self.reclaim_until(inner, now, Want::Delete);
            }
        }
    }

    /// Ahead of need, once no segment is sparse enough: what deletes have used of the reserve is
    /// to come back, and then what writes may have.
    pub(super) fn pass_ahead(&mut self, inner: &Inner) -> Found {
        if inner.durable.is_none() {
            return Found::Nothing;
        }
        let has_lent = inner.log.allocator().has_lent_to_deletes();
        let min_bytes = if has_lent { inner.log.segment_bytes() } else { changed_much(inner) };
        let victim = self.passed_victim(inner, min_bytes);
        victim.map_or(Found::Nothing, Found::Victim)
    }

    /// The next segment of a pass, which begins if so many bytes of deletes have come or gone.
    pub(super) fn passed_victim(
        &mut self,
        inner: &Inner,
        changed_min_bytes: u64,
    ) -> Option<Victim> {
        let durable = inner.durable.as_ref()?;
        let age = |segment| durable.sequence_of(segment);
        let is_due = |sequence| durable.passes_over(sequence, changed_min_bytes);
        let victim = inner.log.allocator().claim_oldest(age, is_due);
        self.close_passed(inner);
        victim
    }

    /// Gives up open segments that a pass has come past: while one is there, the deletes behind it
    /// stay. Nothing is reserved.
    pub(super) fn close_passed(&mut self, inner: &Inner) {
        let Some(durable) = &inner.durable else { return };
        for appender in [&mut self.appender, &mut self.survivors] {
            if appender.close_old(&inner.log, |segment| durable.has_passed(segment)) {
                // What the pass has copied on its account, the next one drops.
                durable.want_pass(changed_much(inner));
            }
        }
    }
}
