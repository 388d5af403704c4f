//! Makes room in the log: on demand when a write finds none, and ahead of need between batches.
//!
//! ```text
//!  free segments:  0 ....... reserve ....... low water ............ all
//!                  │          │               └ reclaim_ahead works below this, a step per batch
//!                  │          └ writes stop here and make room themselves
//!                  └ only sessions that make room go below
//! ```
//!
//! # Limits
//! A write waits for other sessions' current batch at most, never for a client. A session reclaims
//! nothing under locks of several keys (I2 of the session).

use base::UnixMillis;
use base::sync::Backoff;

use super::Local;
use super::deletes::{Want, pass_ahead, passed_victim};
use super::durable::note_published;
use super::expire::expire_all;
use super::reclaim::{Job, Step, StepMax, reclaim_step};
use crate::config::Mode;
use crate::inner::Inner;
use crate::log::{Aim, Found, Purpose, Queue, Reason, Reservation, Search, Then, Victim};

/// Cleaning takes segments below this live share (Rowan-KV §4.4) ...
const CLEAN_BELOW_PCT: u64 = 75;
/// ... and, when a write would fail otherwise, below this one.
const CLEAN_BELOW_PCT_DESPERATE: u64 = 97;
/// A cache copies the live entries of segments below this live share before it drops any live
/// entry: at most 2.3 bytes copied for each byte gained. At 50 % a cache of 55 MiB that is also
/// overwritten (Twitter's cluster 4) held 11 % less and missed 0.049 instead of 0.045.
const COPY_BELOW_PCT: u64 = 70;
/// Free segments beyond the reserve, for each session of a store, below which it reclaims ahead of
/// need ...
const LOW_WATER_STORE: u32 = 2;
/// ... and for a cache, in which a segment is emptied faster than the next one fills.
const LOW_WATER_CACHE: u32 = 1;
/// The deletes kept may take up one part in this many of a durable log.
const TOMBSTONE_PART: u64 = 16;
/// The fruitless searches that a write repeats because other sessions took or freed segments
/// meanwhile.
const RETRIES_MAX: u32 = 64;
/// One step of reclaiming: some tens of microseconds.
pub(super) const STEP: StepMax =
    StepMax { entries: 128, moved_bytes: 256 << 10, seen_bytes: u64::MAX };

/// The time after which a search for room that found none is repeated: entries may have expired.
const FRUITLESS_MS: u64 = 1_000;

/// A store's search for a run of segments that found none. It has copied much of the log, and is
/// not repeated while the log has as little to give: a write of a few bytes may want a long entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fruitless {
    wanted: u32,
    run_len: u32,
    /// Bytes of the log that were not alive.
    spare_bytes: u64,
    until: UnixMillis,
}

impl Fruitless {
    fn is_same(self, (run_len, wanted): (u32, u32), inner: &Inner, now: UnixMillis) -> bool {
        let has_more = || {
            let more_bytes = inner.log.spare_bytes().saturating_sub(self.spare_bytes);
            more_bytes >= inner.log.segment_bytes()
        };
        // By halves: else each shorter run would be searched for, one after the other.
        let is_as_long = 2 * run_len > self.run_len && 2 * wanted > self.wanted;
        now < self.until && is_as_long && !has_more()
    }
}

impl Local {
    /// Reserves space for one entry of a client's write, if there is some without making room.
    #[inline]
    pub(super) fn reserve_open(
        &mut self,
        inner: &Inner,
        len_bytes: usize,
        queue: Queue,
    ) -> Option<Reservation> {
        self.appenders.for_write(inner, queue).reserve(&inner.log, len_bytes, Purpose::Write)
    }

    /// Reserves space for one entry of a client's write, by making room; `None`: out of memory.
    #[cold]
    pub(super) fn reserve_with_room(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        len_bytes: usize,
        queue: Queue,
    ) -> Option<Reservation> {
        if !self.held.is_empty() {
            let purpose = Purpose::Held(self.place);
            let appender = self.appenders.for_write(inner, queue);
            return appender.reserve(&inner.log, len_bytes, purpose);
        }
        if self.borrow_reserve(inner, len_bytes, queue) {
            return self.reserve_open(inner, len_bytes, queue);
        }
        // Other sessions may take the freed space, but only by finishing writes of their own.
        while self.make_room_for(inner, now, len_bytes) {
            let appender = self.appenders.for_write(inner, queue);
            let reservation = appender.reserve(&inner.log, len_bytes, Purpose::Write);
            if reservation.is_some() {
                return reservation;
            }
        }
        self.tally.counts.out_of_memory += 1;
        None
    }

    /// Opens a segment of the reserve for an entry, so that its write empties no segment: paced
    /// reclaiming (pace.rs) gives it back.
    pub(super) fn borrow_reserve(&mut self, inner: &Inner, len_bytes: usize, queue: Queue) -> bool {
        if !self.held.is_empty() || inner.log.run_len(len_bytes as u64) > 1 {
            return false;
        }
        let appender = self.appenders.for_write(inner, queue);
        let reservation = appender.reserve(&inner.log, len_bytes, Purpose::Ahead);
        reservation.map(|reservation| appender.cancel(&inner.log, reservation)).is_some()
    }

    /// Makes room for one entry; false: none can be made.
    #[cold]
    pub(super) fn make_room_for(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        len_bytes: usize,
    ) -> bool {
        let run_len = inner.log.run_len(len_bytes as u64);
        self.make_room(inner, now, run_len, 1)
    }

    /// Reclaims until `count` runs of `run_len` segments could be taken (only the first is known
    /// to be contiguous). Drops every reference this session has.
    pub(super) fn make_room(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        run_len: u32,
        count: u32,
    ) -> bool {
        if !self.held.is_empty() {
            return false;
        }
        self.are_hints_good = false;
        let wanted = run_len.saturating_mul(count);
        if wanted == 1 {
            return self.reclaim_until(inner, now, Want::Run { run_len: 1, wanted });
        }
        let want = Want::Run { run_len, wanted };
        if self.lacks_run((run_len, wanted), inner, now) {
            return false;
        }
        // A shrinking log leaves this many segments free.
        inner.log.allocator().want_run(wanted);
        let has_room = self.reclaim_until(inner, now, want);
        inner.log.allocator().end_want_run(wanted);
        if !has_room && inner.config.mode == Mode::Clean {
            let (spare_bytes, until) = (inner.log.spare_bytes(), UnixMillis(now.0 + FRUITLESS_MS));
            self.fruitless = Some(Fruitless { wanted, run_len, spare_bytes, until });
        }
        has_room
    }

    /// Whether an entry of that length certainly finds no room: a search for as much has just found
    /// none.
    #[cold]
    pub(super) fn lacks_room_for(&self, inner: &Inner, now: UnixMillis, len_bytes: usize) -> bool {
        let run_len = inner.log.run_len(len_bytes as u64);
        run_len > 1 && self.held.is_empty() && self.lacks_run((run_len, run_len), inner, now)
    }

    fn lacks_run(&self, (run_len, wanted): (u32, u32), inner: &Inner, now: UnixMillis) -> bool {
        let is_same = |last: Fruitless| last.is_same((run_len, wanted), inner, now);
        self.fruitless.is_some_and(is_same) && !Want::Run { run_len, wanted }.is_there(inner)
    }

    /// Reclaims until the wanted room could be taken.
    pub(super) fn reclaim_until(&mut self, inner: &Inner, now: UnixMillis, want: Want) -> bool {
        let mut backoff = Backoff::new();
        let victims_max = want.victims_max(inner);
        let mut victims_left = victims_max;
        let mut steps_left = want.steps_max();
        let mut retries_left = RETRIES_MAX;
        loop {
            note_published(self, inner);
            inner.epochs.quiesce(self.place);
            self.retired.drain(inner);
            let changes = inner.log.allocator().table.change_count();
            inner.log.free_waiting(&inner.epochs);
            if want.is_there(inner) {
                return true;
            }
            if inner.config.mode == Mode::Evict && want.is_coming(inner) {
                // A segment given up now would have to wait as long, and longer.
                backoff.snooze();
                continue;
            }
            let emptied_count = victims_max - victims_left;
            if victims_left > 0
                && self.empty_one_segment(inner, now, (want, emptied_count), &mut steps_left)
            {
                victims_left -= 1;
                continue;
            }
            if steps_left == 0 {
                return false;
            }
            // Checked after the search: this session did not find the segments that another one
            // began to empty, or gave up to wait for their grace period, during the search.
            let grace_runs = inner.log.free_waiting(&inner.epochs);
            let own_count = u32::from(self.job.is_some());
            let others_reclaim = inner.log.allocator().table.reclaiming_count() > own_count;
            if want.is_there(inner) {
                return true;
            }
            let has_changed = inner.log.allocator().table.change_count() != changes;
            let durable = inner.durable.as_ref().filter(|_| inner.log.awaits_medium());
            if grace_runs || others_reclaim {
                backoff.snooze();
            } else if durable.is_some_and(|durable| durable.await_freeing()) {
                retries_left = RETRIES_MAX;
            } else if has_changed && retries_left > 0 {
                // The state seen by the search has changed.
                retries_left -= 1;
                backoff.snooze();
            } else if inner.config.mode == Mode::Evict || !expire_all(self, inner, now) {
                return false;
            }
        }
    }

    /// Empties the next victim, after `emptied_count` of them; false: there is none, or it could
    /// not be emptied.
    pub(super) fn empty_one_segment(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        (want, emptied_count): (Want, u32),
        steps_left: &mut u32,
    ) -> bool {
        if self.job.is_none() {
            let run_len = want.run_len();
            let oldest = oldest_victim(inner).filter(|_| run_len == 1);
            let victim = oldest.or_else(|| choose_victim(inner, now, run_len));
            let pass_min_bytes = || want.pass_min_bytes(inner, emptied_count);
            let victim = victim.or_else(|| passed_victim(self, inner, pass_min_bytes()?));
            let Some(victim) = victim else { return false };
            // If a run is wanted, no entry may get a second life in place.
            self.job = Some(Job::new(inner, victim, run_len > 1));
        }
        self.work.segments_in_writes += 1;
        while *steps_left > 0 {
            *steps_left -= 1;
            match reclaim_step(self, inner, now, STEP) {
                Step::More => {}
                Step::Finished => return true,
                Step::Stuck => return false,
            }
        }
        false
    }

    /// Whether reclaiming ahead of need has work; two loads.
    #[inline]
    pub(super) fn wants_room(&self, inner: &Inner) -> bool {
        self.lacks_room(
            inner,
            match inner.config.mode {
                Mode::Clean => LOW_WATER_STORE,
                Mode::Evict => LOW_WATER_CACHE,
            },
        )
    }

    /// Whether a victim is being emptied, or fewer than `per_session` segments are free.
    #[inline]
    pub(super) fn lacks_room(&self, inner: &Inner, per_session: u32) -> bool {
        self.job.is_some() || inner.log.available_hint() < low_water(inner, per_session)
    }

    /// One bounded step of reclaiming while free segments are below the low-water mark; true: more.
    pub(super) fn reclaim_ahead(&mut self, inner: &Inner, now: UnixMillis, max: StepMax) -> bool {
        if !self.wants_room(inner) {
            return false;
        }
        if self.job.is_none() {
            inner.log.free_waiting(&inner.epochs);
            if !self.wants_room(inner) {
                self.pace.rest();
                return false;
            }
            let shortage = inner.log.allocator().shortage();
            let wanted = low_water(inner, LOW_WATER_CACHE).saturating_add(shortage);
            if inner.config.mode == Mode::Evict
                && (Want::Run { run_len: 1, wanted }).is_coming(inner)
            {
                return false; // A cache gives nothing up for what is on its way.
            }
            let found = match oldest_victim(inner) {
                Some(oldest) => Found::Victim(oldest),
                None => self.search_step(inner, now),
            };
            let found = match found {
                Found::Nothing => pass_ahead(self, inner),
                found => found,
            };
            match found {
                Found::NotYet => return true,
                Found::Nothing => return false,
                Found::Victim(victim) => {
                    if inner.config.mode == Mode::Clean || victim.reason == Reason::DeadSpace {
                        let live_bytes = inner.log.live_bytes(victim.segment);
                        self.pace.expect(live_bytes, victim.used_bytes);
                    }
                    self.job = Some(Job::new(inner, victim, false));
                }
            }
        }
        match reclaim_step(self, inner, now, max) {
            Step::More | Step::Finished => true,
            Step::Stuck => false,
        }
    }

    /// A bounded search for the next victim.
    fn search_step(&mut self, inner: &Inner, now: UnixMillis) -> Found {
        // Without any segment left, the next write would accept any victim.
        let below_pct = match inner.log.available_hint() {
            0 => CLEAN_BELOW_PCT_DESPERATE,
            _ => CLEAN_BELOW_PCT,
        };
        let aim = aim_of(inner, below_pct);
        if !self.pace.may_search(aim) {
            return Found::Nothing;
        }
        let same = self.pace.search.take().filter(|search| search.aim() == aim);
        let mut search = same.unwrap_or(Search::new(aim));
        let live_bytes = |segment| inner.log.live_bytes(segment);
        let found = search.step(&mut inner.log.allocator().table, now, live_bytes);
        match found {
            Found::NotYet => self.pace.search = Some(search),
            Found::Nothing => {
                inner.log.park_spare();
                self.pace.found_nothing(aim, inner.log.segment_count());
            }
            Found::Victim(_) => {}
        }
        found
    }
}

/// The kind of segment that is reclaimed first.
fn aim_of(inner: &Inner, clean_below_pct: u64) -> Aim {
    match inner.config.mode {
        Mode::Evict => Aim { copy_below_pct: COPY_BELOW_PCT, then: Then::Turn },
        Mode::Clean => {
            let segment_bytes = inner.log.segment_bytes();
            Aim {
                copy_below_pct: 0,
                then: Then::Sparsest { below_pct: clean_below_pct, segment_bytes },
            }
        }
    }
}

/// The number of free segments below which sessions that want `per_session` each reclaim ahead of
/// need.
#[inline]
pub(crate) fn low_water(inner: &Inner, per_session: u32) -> u32 {
    let low_water = per_session * inner.config.session_max as u32;
    low_water.min(inner.log.segment_count() / 16).max(1)
}

/// The oldest segment, if deletes that wait for it take up too much of a durable log: once it is
/// emptied, those written before the next one was opened may be dropped (durable_log.rs, D5).
fn oldest_victim(inner: &Inner) -> Option<Victim> {
    let durable = inner.durable.as_ref()?;
    let log_bytes = u64::from(inner.log.segment_count()) * inner.log.segment_bytes();
    if durable.tombstone_bytes() <= log_bytes / TOMBSTONE_PART {
        return None;
    }
    inner.log.allocator().table.claim_oldest(|segment| durable.sequence_of(segment), |_| true)
}

/// The next victim of a write that must make room by itself.
fn choose_victim(inner: &Inner, now: UnixMillis, run_len: u32) -> Option<Victim> {
    let log = &inner.log;
    let live_bytes = |segment| log.live_bytes(segment);
    let mut allocator = log.allocator();
    // A run exists but would use up the reserve: any segments will do.
    let wants_window = run_len > 1 && !allocator.can_take(run_len, Purpose::Reserve);
    match (inner.config.mode, wants_window) {
        (_, false) => Search::all(
            &mut allocator.table,
            aim_of(inner, CLEAN_BELOW_PCT_DESPERATE),
            now,
            live_bytes,
        ),
        (Mode::Evict, true) => allocator.table.claim_in_window(run_len, |segment, age| {
            // Dead space costs nothing, however young it is.
            let cost = if log.live_bytes(segment) == 0 { 0 } else { age };
            (!log.is_pinned(segment)).then_some(cost)
        }),
        (Mode::Clean, true) => allocator.table.claim_in_window(run_len, |segment, _| {
            // More live bytes than a segment mean a large entry in a run: it cannot be moved aside.
            let live_bytes = log.live_bytes(segment);
            (live_bytes <= log.segment_bytes() && !log.is_pinned(segment)).then_some(live_bytes)
        }),
    }
}
