//! Emptying one segment, a bounded step at a time: evict or clean what is live in it.
//!
//! ```text
//!  segment: | dead | live, read | live, unread | dead | live |
//!  evict:            re-insert     drop                 drop or re-insert
//!  clean:            copy          copy                 copy            (expired: drop)
//! ```
//!
//! # Invariants
//! I1: an entry is live exactly when a slot of its chain names its offset.
//! I2: eviction keeps at most half of a segment, so that every victim frees something.
//!
//! # References
//! MICA §4.1 (approximate LRU by re-insertion), Rowan-KV §4.4 (cleaning).

use base::UnixMillis;

use super::Local;
use crate::config::{Eviction, Mode};
use crate::entry::Entry;
use crate::index::Position;
use crate::index::slot::{Slot, Tag};
use crate::log::{Appender, Purpose, Victim};
use crate::store::Inner;

/// Entries whose buckets are prefetched together.
const GROUP: usize = 16;

/// A segment that this session is emptying.
pub(super) struct Job {
    victim: Victim,
    next_bytes: u64,
    end_bytes: u64,
    kept_bytes: u64,
    /// The space itself is wanted, not just any: nothing gets a second life in place.
    must_empty: bool,
}

/// How a step of a job ended.
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
    head: u32,
    tag: Tag,
}

/// What to do with a live entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Drop,
    Expire,
    Move,
}

impl Job {
    pub(super) fn new(inner: &Inner, victim: Victim, must_empty: bool) -> Job {
        let start = inner.log.segment_start(victim.segment);
        let end_bytes = start + victim.used_bytes;
        Job { victim, next_bytes: start, end_bytes, kept_bytes: 0, must_empty }
    }
}

impl Local {
    /// Gives an unfinished job back; whoever needs room claims the segment anew.
    pub(super) fn drop_job(&mut self, inner: &Inner) {
        if let Some(job) = self.job.take() {
            inner.log.allocator().unclaim(job.victim.segment);
        }
    }

    /// Looks at up to `entries_max` entries of the job's segment.
    pub(super) fn reclaim_step(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        entries_max: usize,
    ) -> Step {
        let Some(mut job) = self.job.take() else { return Step::Finished };
        let segment = job.victim.segment;
        let mut seen = 0;
        while inner.log.live_bytes(segment) > 0 && job.next_bytes < job.end_bytes {
            if seen >= entries_max {
                self.job = Some(job);
                return Step::More;
            }
            let mut group = [None; GROUP];
            seen += next_group(inner, &mut job, &mut group);
            for candidate in group.into_iter().flatten() {
                match self.reclaim_entry(inner, now, &mut job, candidate) {
                    Step::Finished => {}
                    Step::Stuck => {
                        inner.log.allocator().unclaim(segment);
                        return Step::Stuck;
                    }
                    // A large entry that was read gets a second life where it lies.
                    Step::More => {
                        inner.log.allocator().requeue(segment);
                        return Step::Finished;
                    }
                }
            }
        }
        inner.log.retire(segment, &inner.epochs);
        Step::Finished
    }

    /// `Finished`: the entry is dead now; `More`: it stays where it is; `Stuck`: no space.
    fn reclaim_entry(
        &mut self,
        inner: &Inner,
        now: UnixMillis,
        job: &mut Job,
        candidate: Candidate<'_>,
    ) -> Step {
        let Candidate { entry, offset_bytes, head, tag } = candidate;
        let named = |slot: Slot| slot.offset_bytes() == offset_bytes;
        if inner.index.find(head, tag, named).is_none() {
            return Step::Finished; // I1: dead, seen without a lock.
        }
        let mut chain = inner.index.lock(head);
        let Some(position) = chain.find_entry(tag, offset_bytes) else { return Step::Finished };
        let fate = fate_of(inner, now, job, position, entry);
        if fate == Fate::Move && job.victim.is_run {
            if job.must_empty && inner.config.mode == Mode::Clean {
                return Step::Stuck;
            }
            if !job.must_empty {
                chain.replace(position, position.slot.with_marks(0));
                return Step::More;
            }
        } else if fate == Fate::Move {
            if let Some(slot) = self.copy_entry(inner, tag, entry) {
                chain.replace(position, slot);
                chain.finish();
                job.kept_bytes += entry.len_bytes() as u64;
                inner.log.sub_live(offset_bytes, entry.len_bytes());
                return Step::Finished;
            }
            if inner.config.mode == Mode::Clean {
                return Step::Stuck;
            }
        }
        if fate == Fate::Expire {
            self.counts.expired += 1;
        } else {
            self.counts.evicted_by_log += 1;
            self.counts.evicted_unread += u64::from(position.slot.marks() == 0);
        }
        self.unlink(inner, &mut chain, position, entry);
        chain.finish();
        Step::Finished
    }

    /// Copies an entry as it is, version and all, to where survivors go; its new slot.
    fn copy_entry(&mut self, inner: &Inner, tag: Tag, entry: Entry<'_>) -> Option<Slot> {
        let log = &inner.log;
        let reservation = self.survivors.reserve(log, entry.len_bytes(), Purpose::Reserve)?;
        Appender::fill(log, &reservation, entry.shape(), entry.key(), entry.value());
        Appender::write_header(log, &reservation, &entry.header());
        match inner.config.mode {
            Mode::Clean => self.counts.cleaned_bytes += entry.len_bytes() as u64,
            Mode::Evict => self.counts.reinserted += 1,
        }
        let slot = Slot::entry(tag, reservation.offset_bytes);
        Appender::published(log, reservation);
        Some(slot)
    }
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
    let keeps_half = job.kept_bytes < job.victim.used_bytes / 2; // I2
    match (inner.config.mode, inner.config.eviction) {
        (Mode::Clean, _) => Fate::Move,
        (Mode::Evict, Eviction::LruApprox) if position.slot.marks() > 0 && keeps_half => Fate::Move,
        (Mode::Evict, _) => Fate::Drop,
    }
}

/// Reads the next entries of the segment and prefetches their buckets; how many.
fn next_group<'a>(
    inner: &'a Inner,
    job: &mut Job,
    group: &mut [Option<Candidate<'a>>; GROUP],
) -> usize {
    let mut count = 0;
    for place in group.iter_mut() {
        if job.next_bytes >= job.end_bytes {
            break;
        }
        // SAFETY: the segment was claimed by this session: its entries are complete, and it is
        // not reused before this session retires it.
        let entry = unsafe { inner.log.entry(job.next_bytes) };
        let hash = inner.hasher.hash(entry.key());
        let head = inner.index.head_of(hash);
        inner.index.prefetch(head);
        let (offset_bytes, tag) = (job.next_bytes, Tag::of(hash));
        *place = Some(Candidate { entry, offset_bytes, head, tag });
        job.next_bytes += entry.len_bytes() as u64;
        count += 1;
    }
    count
}
