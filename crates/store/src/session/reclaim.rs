//! Empties one segment, a bounded step at a time: evicts or cleans its live entries.
//!
//! ```text
//!  segment: | dead | live, read | live, unread | dead | live |
//!  evict, its turn:  re-insert     drop                 drop or re-insert
//!  evict, mostly dead, and clean:
//!                    copy          copy                 copy            (expired: drop)
//! ```
//!
//! S3-FIFO has two queues. From a small segment, entries that were read at all move to main; the
//! others are dropped and remembered as ghosts. In a main segment, entries that were read move to
//! main again, with one mark less. A copy out of dead space stays in its queue and keeps its marks.
//!
//! # Invariants
//! I1: an entry is live exactly when a slot of its chain names its offset.
//! I2: eviction keeps at most a part of a segment (half; for S3-FIFO fifteen sixteenths), so that
//!     every victim frees something.
//!
//! # References
//! MICA §4.1 (approximate LRU by re-insertion), Rowan-KV §4.4 (cleaning), Yang et al., SOSP 2023,
//! §4.1 (S3-FIFO).

use base::{KeyHash, UnixMillis};
use index::hash::Position;
use index::hash::slot::{Slot, Tag};

use super::Local;
use super::durable::bury;
use super::find::{find_ordered_entry, point};
use crate::config::{Eviction, Mode};
use crate::entry::Entry;
use crate::inner::Inner;
use crate::log::{Appender, Purpose, Queue, Reason, Victim};

/// Entries whose buckets are prefetched together.
const GROUP: usize = 16;
/// A group ends with the entry that exceeds this.
const GROUP_BYTES: u64 = 64 << 10;
/// The dropped keys that are remembered, in percent of the cache's items: main's share.
const GHOSTS_PER_ITEM_PCT: u64 = 90;
/// The reads in the small queue that move an entry to main.
const PROMOTING_MARKS: u64 = 1;
/// An entry this much smaller than the mean costs little to keep, and a miss of it costs as much as
/// any other.
const UNREAD_PART_OF_MEAN: u64 = 4;

/// A segment that this session is emptying.
pub(super) struct Job {
    victim: Victim,
    next_bytes: u64,
    end_bytes: u64,
    moved_bytes: u64,
    /// Insertions into the ghost table that are not counted there yet.
    ghosts_inserted: u64,
    /// The victim's bytes that the policy may keep (I2).
    keep_max_bytes: u64,
    /// Entries of the small queue up to this length stay without a read: a quarter of the mean.
    unread_max_bytes: u64,
    /// Whether this very space is wanted: then no entry gets a second life in place.
    must_empty: bool,
    /// For deletes written up to this sequence no older entry exists anywhere (D5).
    horizon: Option<u64>,
}

/// The bounds of one step; it may exceed them by one group of entries, of [`GROUP_BYTES`].
#[derive(Clone, Copy, Debug)]
pub(super) struct StepMax {
    pub entries: usize,
    pub moved_bytes: u64,
    /// Bytes of the victim, live or dead.
    pub seen_bytes: u64,
}

/// The result of a step of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Entries are left.
    More,
    /// The segment has no live entry and waits for its grace period.
    Finished,
    /// A live entry could not be moved: there is no space for it. The job is dropped.
    Stuck,
}

/// One entry of the victim.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    entry: Entry<'a>,
    offset_bytes: u64,
    hash: KeyHash,
}

/// The decision about a live entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Drop,
    Expire,
    /// Moves it to the end of `queue`, with `marks`.
    Move {
        queue: Queue,
        marks: u64,
    },
}

impl Job {
    pub(super) fn new(inner: &Inner, victim: Victim, must_empty: bool) -> Job {
        let start = inner.log.segment_start(victim.segment);
        let end_bytes = start + victim.used_bytes;
        let keep_max_bytes = match inner.ghosts {
            Some(_) => victim.used_bytes / 16 * 15,
            None => victim.used_bytes / 2,
        };
        let cleaned_bytes = inner.durable.as_ref().map_or(0, |it| it.cleaned(victim.segment));
        Job {
            victim,
            next_bytes: start + cleaned_bytes,
            end_bytes,
            moved_bytes: 0,
            ghosts_inserted: 0,
            keep_max_bytes,
            unread_max_bytes: inner.entry_mean_bytes() / UNREAD_PART_OF_MEAN,
            must_empty,
            horizon: None,
        }
    }

    /// Remembers a key that the small queue drops, so that it is recognised when it is written
    /// again.
    fn remember_ghost(&mut self, inner: &Inner, hash: KeyHash) {
        if let Some(ghosts) = &inner.ghosts
            && self.victim.queue == Queue::Small
        {
            ghosts.insert(hash);
            self.ghosts_inserted += 1;
        }
    }
}

/// Gives an unfinished job up; a session that needs room claims the segment again.
pub(super) fn drop_job(local: &mut Local, inner: &Inner) {
    if let Some(job) = local.job.take() {
        inner.log.allocator().table.unclaim(job.victim.segment);
    }
}

/// Handles entries of the job's segment, within the bounds of `max`.
pub(super) fn reclaim_step(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    max: StepMax,
) -> Step {
    let Some(mut job) = local.job.take() else { return Step::Finished };
    let (mut seen, moved_before, seen_from) = (0, job.moved_bytes, job.next_bytes);
    let step = loop {
        if inner.log.live_bytes(job.victim.segment) == 0 || job.next_bytes >= job.end_bytes {
            inner.log.retire(job.victim.segment, &inner.epochs);
            local.pace.learn(job.moved_bytes, job.victim.used_bytes);
            break Step::Finished;
        }
        let is_enough = seen >= max.entries
            || job.moved_bytes - moved_before >= max.moved_bytes
            || job.next_bytes - seen_from >= max.seen_bytes;
        if is_enough {
            break Step::More;
        }
        let mut group = [None; GROUP];
        seen += next_group(inner, &mut job, &mut group);
        match reclaim_group(local, inner, now, &mut job, group) {
            Step::Finished => {}
            Step::Stuck => {
                inner.log.allocator().table.unclaim(job.victim.segment);
                break Step::Stuck;
            }
            // A large entry got a second life in place.
            Step::More => break Step::Finished,
        }
    };
    local.work.seen_entries += seen as u64;
    local.work.seen_bytes += job.next_bytes - seen_from;
    age_ghosts(local, inner, &mut job);
    if step == Step::More {
        local.job = Some(job);
    }
    step
}

/// [`reclaim_entry`] for each entry, up to the first that is not dead afterwards.
fn reclaim_group(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    job: &mut Job,
    group: [Option<Candidate<'_>>; GROUP],
) -> Step {
    for candidate in group.into_iter().flatten() {
        let step = reclaim_entry(local, inner, now, job, candidate);
        if step != Step::Finished {
            return step;
        }
    }
    Step::Finished
}

/// Ages the ghosts of earlier steps by those inserted in this one; as many of them count as
/// main has room for items.
fn age_ghosts(local: &Local, inner: &Inner, job: &mut Job) {
    if let Some(ghosts) = &inner.ghosts
        && job.ghosts_inserted > 0
    {
        ghosts.advance(std::mem::take(&mut job.ghosts_inserted));
        ghosts.set_window(inner.item_count(&local.tally.counts) * GHOSTS_PER_ITEM_PCT / 100);
    }
}

/// `Finished`: the entry is dead now; `More`: it stays in place; `Stuck`: no space.
fn reclaim_entry(
    local: &mut Local,
    inner: &Inner,
    now: UnixMillis,
    job: &mut Job,
    candidate: Candidate<'_>,
) -> Step {
    let Candidate { entry, offset_bytes, hash } = candidate;
    let tag = Tag::of(hash);
    let named = |slot: Slot| slot.offset_bytes() == offset_bytes;
    let is_named = match &inner.tree {
        None => inner.index.find(inner.index.head_of(hash), hash, named).is_some(),
        Some(tree) => find_ordered_entry(inner, tree, entry.key(), offset_bytes).is_some(),
    };
    if !is_named {
        // I1: dead, seen without a lock; but a delete may have to stay (K2).
        return reclaim_unnamed(local, inner, job, candidate);
    }
    let mut chain = inner.index.lock(hash);
    let found = match &inner.tree {
        None => chain.find_entry(tag, offset_bytes),
        Some(tree) => find_ordered_entry(inner, tree, entry.key(), offset_bytes),
    };
    let Some(position) = found else { return Step::Finished };
    let fate = fate_of(inner, now, job, position, entry);
    if let Fate::Move { queue, marks } = fate {
        match job.victim.is_run {
            true if job.must_empty && inner.config.mode == Mode::Clean => return Step::Stuck,
            true if job.must_empty => {}
            true => {
                let slot = position.slot.with_marks(marks);
                point(inner, &mut chain, position, entry.key(), slot);
                inner.log.requeue(job.victim.segment, queue);
                return Step::More;
            }
            false => {
                if let Some(slot) = copy_entry(local, inner, tag, entry, queue) {
                    let slot = slot.with_marks(marks);
                    point(inner, &mut chain, position, entry.key(), slot);
                    chain.finish();
                    inner.log.sub_live(local.tally.lane, offset_bytes, entry.len_bytes());
                    count_moved(local, inner, job, queue, entry.len_bytes() as u64);
                    return Step::Finished;
                }
                if inner.config.mode == Mode::Clean {
                    return Step::Stuck;
                }
            }
        }
    }
    if !bury(local, inner, &chain, entry, Purpose::Reserve) {
        return Step::Stuck;
    }
    local.unlink_bare(inner, &mut chain, position, entry);
    local.changes.gone(entry.key());
    chain.finish();
    if fate == Fate::Expire {
        local.tally.counts.expired += 1;
    } else {
        count_evicted(local, job.victim.queue, position.slot);
        local.evictions.note(entry);
        job.remember_ghost(inner, hash);
    }
    Step::Finished
}

/// Handles an entry that no slot names.
fn reclaim_unnamed(local: &mut Local, inner: &Inner, job: &mut Job, dead: Candidate<'_>) -> Step {
    let Candidate { entry, offset_bytes, .. } = dead;
    let Some(durable) = &inner.durable else { return Step::Finished };
    if !entry.is_delete() {
        return Step::Finished; // D4
    }
    let horizon = *job.horizon.get_or_insert_with(|| {
        // A live large entry shares its run with no older entry of its key.
        let is_live_run = |segment| inner.log.is_live_run(segment);
        durable.oldest_sequence(job.victim.segment, is_live_run)
    });
    let len_bytes = entry.len_bytes();
    if entry.delete_note() <= horizon || entry.version() <= durable.flush_floor() {
        durable.dropped(entry.version()); // D5
        durable.uncount_tombstone(len_bytes as u64);
    } else if copy_aside(local, inner, entry) {
        job.moved_bytes += len_bytes as u64;
        local.tally.counts.cleaned_bytes += len_bytes as u64;
    } else {
        return Step::Stuck;
    }
    inner.log.sub_live(local.tally.lane, offset_bytes, len_bytes);
    // No slot records that it was handled: a job that begins again begins behind it.
    let start = inner.log.segment_start(job.victim.segment);
    durable.set_cleaned(job.victim.segment, offset_bytes + len_bytes as u64 - start);
    Step::Finished
}

/// Copies an entry that no slot names to the end of the survivors; false: no space.
fn copy_aside(local: &mut Local, inner: &Inner, entry: Entry<'_>) -> bool {
    let log = &inner.log;
    let reserved = local.appenders.survivors.reserve(log, entry.len_bytes(), Purpose::Reserve);
    let Some(reservation) = reserved else { return false };
    Appender::fill(log, &reservation, entry.shape(), entry.key(), entry.value_at_rest());
    Appender::write_header(log, &reservation, &entry.header());
    local.appenders.survivors.published_aside(log, &reservation);
    true
}

fn count_evicted(local: &mut Local, queue: Queue, slot: Slot) {
    local.tally.counts.evicted_by_log += 1;
    local.tally.counts.evicted_small += u64::from(queue == Queue::Small);
    local.tally.counts.evicted_unread += u64::from(slot.marks() == 0);
}

fn count_moved(local: &mut Local, inner: &Inner, job: &mut Job, queue: Queue, len_bytes: u64) {
    job.moved_bytes += len_bytes;
    match (inner.config.mode, job.victim.reason) {
        (Mode::Clean, _) => local.tally.counts.cleaned_bytes += len_bytes,
        (Mode::Evict, Reason::DeadSpace) => local.tally.counts.dead_space_copied_bytes += len_bytes,
        (Mode::Evict, Reason::Turn) => {
            local.tally.counts.reinserted += 1;
            local.tally.counts.promoted += u64::from(queue != job.victim.queue);
        }
    }
}

/// Copies an entry unchanged, including its version, to the end of `queue`; returns its new
/// slot.
fn copy_entry(
    local: &mut Local,
    inner: &Inner,
    tag: Tag,
    entry: Entry<'_>,
    queue: Queue,
) -> Option<Slot> {
    let appender = match queue {
        Queue::Small => &mut local.appenders.writes,
        Queue::Main => &mut local.appenders.survivors,
    };
    append_copy(inner, appender, tag, entry, Purpose::Reserve)
}

/// Appends a copy of an entry; returns its slot.
pub(super) fn append_copy(
    inner: &Inner,
    appender: &mut Appender,
    tag: Tag,
    entry: Entry<'_>,
    purpose: Purpose,
) -> Option<Slot> {
    let log = &inner.log;
    let reservation = appender.reserve(log, entry.len_bytes(), purpose)?;
    Appender::fill(log, &reservation, entry.shape(), entry.key(), entry.value_at_rest());
    Appender::write_header(log, &reservation, &entry.header());
    let slot = Slot::entry(tag, reservation.offset_bytes);
    appender.published(log, &reservation, entry.expires_at());
    Some(slot)
}

fn fate_of(
    inner: &Inner,
    now: UnixMillis,
    job: &Job,
    position: Position,
    entry: Entry<'_>,
) -> Fate {
    if entry.is_expired(now) {
        return Fate::Expire;
    }
    let (queue, marks) = (job.victim.queue, position.slot.marks());
    if inner.config.mode == Mode::Clean || job.victim.reason == Reason::DeadSpace {
        return Fate::Move { queue, marks };
    }
    let survives = match (inner.config.eviction, queue) {
        (Eviction::Fifo, _) => false,
        (Eviction::LruApprox | Eviction::Lru, _) | (Eviction::S3Fifo, Queue::Main) => marks > 0,
        (Eviction::S3Fifo, Queue::Small) => {
            marks >= PROMOTING_MARKS || entry.len_bytes() as u64 <= job.unread_max_bytes
        }
    };
    // A promoted entry starts without marks, and an entry of main has used up a mark.
    let marks_left = if queue == Queue::Small { 0 } else { marks.saturating_sub(1) };
    match survives && job.moved_bytes < job.keep_max_bytes {
        true => Fate::Move { queue: Queue::Main, marks: marks_left },
        false => Fate::Drop,
    }
}

/// Reads the next entries of the segment and prefetches their buckets; returns their number.
fn next_group<'a>(
    inner: &'a Inner,
    job: &mut Job,
    group: &mut [Option<Candidate<'a>>; GROUP],
) -> usize {
    let mut count = 0;
    let group_end_bytes = job.end_bytes.min(job.next_bytes + GROUP_BYTES);
    for place in group.iter_mut() {
        if job.next_bytes >= group_end_bytes {
            break;
        }
        // SAFETY: the segment was claimed by this session: its entries are complete, and it is
        // not reused before this session retires it.
        let entry = unsafe { inner.log.entry(job.next_bytes) };
        let hash = inner.hasher.hash(entry.key());
        inner.index.prefetch(inner.index.head_of(hash));
        *place = Some(Candidate { entry, offset_bytes: job.next_bytes, hash });
        job.next_bytes += entry.len_bytes() as u64;
        count += 1;
    }
    count
}
