//! Reclaiming in step with writing: at its end, each chunk of requests reclaims in proportion to
//! the log space it used, so that no write has to empty a whole segment.
//!
//! ```text
//!  chunk: 32 SETs ─▶ 1 KiB appended ─▶ owes 1 KiB x 1.25 / (1 - kept) of victim ─▶ one step
//!                                          kept: the share of a victim that has to be copied
//! ```
//!
//! Paced reclaiming begins when there is hardly a free segment for each session, and ends when
//! there is one. Housekeeping between batches may work further ahead (room.rs); then pacing has
//! nothing left to do. Victims that keep 60 % give two fifths of the bytes visited: 3.1 KiB of
//! victim per KiB written then make room as fast as it is used, and a quarter faster.
//!
//! # Invariants
//! I1: a step looks at [`ENTRIES_MAX`] entries and one group at most, or at
//!     [`ENTRIES_OF_DELETES_MAX`] while deletes have used up some of the reserve. It copies
//!     [`COPIED_MAX`] bytes, or as many as the chunk wrote, and one group at most.
//! I2: a session that has begun to empty a segment continues at each chunk, even a chunk of reads:
//!     a write of another session may find nothing else to empty.
//!
//! # Limits
//! Where nine tenths of every victim stay, or a step ends at I1 again and again, writes are faster
//! than this, and one of them may find no room and empty a segment by itself.

use base::UnixMillis;

use super::Local;
use super::durable::note_published;
use super::reclaim::StepMax;
use crate::inner::Inner;
use crate::log::{Aim, Purpose, SEARCH_ROWS, Search};

/// The free segments for each session below which paced reclaiming begins. More would lie idle:
/// with two, a store that is 85 % full copied a third more.
const LOW_WATER: u32 = 1;
/// The entries of a victim that one step visits: 30 to 70 us (I1). With 512 one step in 7,000 took
/// more than 100 us if all were copied.
const ENTRIES_MAX: usize = 384;
/// The same while deletes empty a full durable log: a chunk's deletes are short, but each needs a
/// part of a pass over all live entries (deletes.rs), or one of them waits for a whole pass.
const ENTRIES_OF_DELETES_MAX: usize = 2_048;
/// The bytes that a step may copy even if the chunk wrote fewer (I1).
const COPIED_MAX: u64 = 256 << 10;
/// The highest share assumed to stay of every victim: a step of 21 bytes for one written.
const KEPT_PCT_MAX: u64 = 94;
/// Bytes of victim for each byte that is to come free, in percent, ...
const HASTE_PCT: u64 = 125;
/// ... and when hardly a segment is left, including those that the reserve could lend, or when the
/// log shrinks.
const GREAT_HASTE_PCT: u64 = 500;
/// The most bytes that a session which was held up still has to reclaim, beyond its last chunk.
const OWED_MAX_BYTES: u64 = 1 << 20;
/// The step after a chunk that appended nothing: one group of a victim already begun, since others
/// may wait for it.
const IDLE_STEP: StepMax = StepMax { entries: 1, moved_bytes: 1, seen_bytes: 1 };
/// The steps of reclaiming that are skipped when no victim was found, for each step of the search.
const FRUITLESS_STEPS: u32 = 32;

/// The state that keeps a session's reclaiming in step with its writing.
#[derive(Default)]
pub(super) struct Pace {
    /// The bytes appended when the session last reclaimed; `None`: there was room enough.
    appended_bytes: Option<u64>,
    /// The bytes of victims that it should have visited by now.
    owed_bytes: u64,
    /// The share of the last victims' bytes that had to be copied.
    kept_pct: u64,
    /// The search for the next victim.
    pub(super) search: Option<Search>,
    /// The aim for which no segment was found, and the steps still to be skipped.
    fruitless: Option<(Aim, u32)>,
}

impl Pace {
    /// Resets the state: there is room enough.
    pub(super) fn rest(&mut self) {
        self.appended_bytes = None;
        self.owed_bytes = 0;
    }

    /// Expects that all live bytes of the next victim will be copied.
    pub(super) fn expect(&mut self, live_bytes: u64, used_bytes: u64) {
        let live_pct = live_bytes * 100 / used_bytes.max(1);
        self.kept_pct = self.kept_pct.max(live_pct.min(KEPT_PCT_MAX));
    }

    /// Learns from an emptied victim.
    pub(super) fn learn(&mut self, copied_bytes: u64, used_bytes: u64) {
        let kept_pct = copied_bytes * 100 / used_bytes.max(1);
        // The previous share counts for half: segments differ.
        self.kept_pct = (self.kept_pct + kept_pct).div_ceil(2).min(KEPT_PCT_MAX);
    }

    /// Notes that no segment of a table of `segment_count` is worth emptying.
    pub(super) fn found_nothing(&mut self, aim: Aim, segment_count: u32) {
        self.fruitless = Some((aim, FRUITLESS_STEPS * segment_count.div_ceil(SEARCH_ROWS)));
    }

    /// Whether to search for a victim: not soon after none was found.
    pub(super) fn may_search(&mut self, wanted: Aim) -> bool {
        self.fruitless = match self.fruitless {
            Some((aim, left)) if aim == wanted && left > 0 => Some((aim, left - 1)),
            _ => None,
        };
        self.fruitless.is_none()
    }

    /// The step that is due after `appended_bytes` in all.
    fn step_for(
        &mut self,
        appended_bytes: u64,
        (haste_pct, entries): (u64, usize),
    ) -> Option<StepMax> {
        // A cancelled write gave its space back.
        let used_bytes =
            appended_bytes.saturating_sub(self.appended_bytes.replace(appended_bytes)?);
        if used_bytes == 0 {
            return None;
        }
        let owed_bytes = used_bytes * haste_pct / (100 - self.kept_pct);
        self.owed_bytes = self.owed_bytes.min(OWED_MAX_BYTES) + owed_bytes;
        Some(StepMax {
            entries,
            moved_bytes: COPIED_MAX.max(used_bytes),
            seen_bytes: self.owed_bytes,
        })
    }
}

/// Reclaims after a chunk of requests; the session holds no reference and no lock.
#[inline]
pub(super) fn reclaim_in_step(local: &mut Local, inner: &Inner, now: UnixMillis) {
    if local.lacks_room(inner, LOW_WATER) {
        pay_for_chunk(local, inner, now);
    }
}

/// Reclaims after a call that only read; the session holds no reference (I2).
#[inline]
pub(super) fn quiesce_after_reads(local: &mut Local, inner: &Inner, now: UnixMillis) {
    inner.epochs.quiesce(local.place);
    reclaim_in_step(local, inner, now);
    // Its evictions are published now: the next write of this session may be long in coming.
    local.publish_counts(inner);
}

#[cold]
fn pay_for_chunk(local: &mut Local, inner: &Inner, now: UnixMillis) {
    let allocator = inner.log.allocator();
    let haste_pct = match (allocator.available(Purpose::Ahead), allocator.shortage()) {
        (1.., 0) => HASTE_PCT,
        _ => GREAT_HASTE_PCT,
    };
    let entries_max = match allocator.has_lent_to_deletes() {
        true => ENTRIES_OF_DELETES_MAX,
        false => ENTRIES_MAX,
    };
    drop(allocator);
    let is_begun = local.job.is_some();
    let due = local.pace.step_for(local.appenders.appended_bytes(), (haste_pct, entries_max));
    let Some(max) = due.or(is_begun.then_some(IDLE_STEP)) else { return }; // I2
    let seen_before = local.work.seen_bytes;
    local.reclaim_ahead(inner, now, max);
    let seen_bytes = local.work.seen_bytes - seen_before;
    local.pace.owed_bytes = local.pace.owed_bytes.saturating_sub(seen_bytes);
    // Copies are not writes: the kept share already covers their space.
    if local.pace.appended_bytes.is_some() {
        local.pace.appended_bytes = Some(local.appenders.appended_bytes());
    }
    local.retired.free_some(inner);
    note_published(local, inner);
    inner.epochs.quiesce(local.place);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
