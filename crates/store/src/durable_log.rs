//! The durable log: the state that sessions and the committer share.
//!
//! ```text
//!  sessions ──append──▶ memory: | segment 4 ~~~~~|~~ next |            workers, as ever
//!            ──note───▶ ends[4], the list of dirty segments            once a chunk of requests
//!  committer: grace ─▶ write dirty ranges ─▶ sync ─▶ covered[session] = begun[session]
//!  worker:    begun == covered for every session? ─no─▶ wait ─▶ replies leave
//! ```
//!
//! Memory stays the working copy of the log. The file is an image of it, segment for segment; it is
//! written behind the appends and read only at start. docs/design/durability.md has the whole
//! picture.
//!
//! # Invariants
//! D1: a session makes its `begun` odd before it publishes any client's change, and even again once
//!     it has noted all of those changes. It notes its changes before each quiescent point.
//! D2: the committer sets `covered[s] = b`, with `b` even, only after a successful sync of
//!     everything that session `s` had published when `begun` was `b`. So a thread that has seen an
//!     entry and finds every `begun` covered knows that the entry is on the medium.
//! D3: a segment becomes free only after the sync of a row that marks it free. That row is written
//!     after a sync of everything appended before the segment was retired, which includes the
//!     copies of its live entries and the entries that superseded its dead ones.
//! D4: for each dead entry one of these holds: every medium that has the entry also has a newer
//!     entry of its key (a put or a delete); or its version is at most the flush floor; or its
//!     shard is gone. No key leaves the index without one of these. The delete of an entry with a
//!     shard has the version of that entry, because only the primary assigns the next version.
//! D5: a delete is dropped only when every segment that is not free by D3 is at least as new as its
//!     horizon, that is, was opened after the delete was written. Then no segment holds an older
//!     entry of its key.
//! D6: once a sync has failed, nothing more becomes covered (medium.rs, I3).
//! D7: a commit is on the medium whole or counts as not written (restore.rs, I1), and what a
//!     session notes at once is in one commit. A session notes nothing between the first and the
//!     last write of several keys under their locks. So after a crash these writes are all there or
//!     none of them is: a RENAME loses no value, an MSET is not there in part.
//! D8: where a session appends, no entry holds under the segment's seal: a start clears the room in
//!     which sessions go on, and no life draws a sequence of the one before. So what a commit that
//!     does not count has left is not taken for a part of a later one.
//!
//! # Concurrency
//! Any session notes; one committer covers. A session stores its notes with Release and the
//! committer loads them with Acquire. The committer reads entries only up to the noted end, and
//! these entries never change (K12: a durable store does not replace values in place).
//!
//! # References
//! Rowan-KV §4.2, §4.4, §4.7; K1, K2, K14, K21, K26.

pub(crate) mod layout;
pub(crate) mod passes;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::sync::{AtomicBool, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

use crate::medium::MediumError;
use passes::Passes;

/// The state of one session.
#[derive(Default)]
pub(crate) struct Place {
    /// Twice the number of calls with writes that the session has ended, plus one during such a
    /// call (D1).
    pub(crate) begun: AtomicU64,
    /// The last even value of `begun` that is on the medium (D2).
    pub(crate) covered: AtomicU64,
    /// Held while the session notes its changes, and while the committer takes all ends (D7).
    noting: Mutex<()>,
}

/// Whether the log accepts writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Writes become durable.
    Good,
    /// The last commit failed and may succeed later: the disk is full.
    Stalled(MediumError),
    /// Nothing becomes durable until a restart (D6).
    Failed(MediumError),
}

/// Counters of the committer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DurableStats {
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Bytes of entries written, each entry counted once.
    pub entry_bytes: u64,
    /// All bytes written, including rows and superblocks.
    pub written_bytes: u64,
    /// Commits that failed.
    pub failures: u64,
    /// Bytes appended and not synced yet.
    pub uncommitted_bytes: u64,
    /// Bytes of the deletes that are kept (D5).
    pub tombstone_bytes: u64,
    /// A histogram of commit times: up to 64 us, 128 us, ... each bound twice the previous one; the
    /// last class is beyond the last bound.
    pub commit_counts: [u64; COMMIT_BOUNDS + 1],
    /// The total of commit times in nanoseconds.
    pub commit_ns: u64,
}

/// The number of bounds of commit times: 64 us to 1 s.
pub const COMMIT_BOUNDS: usize = 15;
/// The first bound.
pub const COMMIT_BOUND_FIRST_NS: u64 = 64_000;

/// The state that sessions and the committer share.
pub struct Durable {
    pub(crate) places: Box<[CachePadded<Place>]>,
    /// For each segment, the bytes of noted entries.
    pub(crate) ends: Box<[AtomicU64]>,
    is_dirty: Box<[AtomicBool]>,
    /// For each segment, the sequence drawn when it was taken; 0: it is free, by D3.
    pub(crate) sequences: Box<[AtomicU64]>,
    next_sequence: AtomicU64,
    /// For each segment, the bytes whose deletes were handled by cleaning.
    cleaned: Box<[AtomicU64]>,
    pub(crate) lists: Mutex<Lists>,
    /// Wakes the committer; its mutex is `lists`.
    wanted: Condvar,
    /// Wakes threads that wait for a commit; its mutex is `lists`.
    pub(crate) committed: Condvar,
    pub(crate) is_refusing: AtomicBool,
    /// Entries up to this version are deleted by a flush, once the floor is on the medium.
    flush_floor: AtomicU64,
    /// The highest version of a dropped delete (K1).
    pub(crate) dropped_floor: AtomicU64,
    tombstone_bytes: AtomicU64,
    passes: Passes,
    /// The bytes noted since the start.
    noted_bytes: AtomicU64,
    /// The generation of the superblock known to be on the medium.
    pub(crate) synced_super: AtomicU64,
    /// Whether a thread commits, so that waiting for a commit makes sense.
    is_driven: AtomicBool,
    pub(crate) stats: Mutex<DurableStats>,
}

#[derive(Default)]
pub(crate) struct Lists {
    dirty: Vec<u32>,
    /// Segments closed since the last commit, which their rows must record.
    pub(crate) retired: Vec<u32>,
    pub(crate) is_wanted: bool,
    pub(crate) health: Option<Health>,
    /// How often the health has changed from good to bad.
    pub(crate) refusal_count: u64,
    pub(crate) commit_count: u64,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Durable {
    pub(crate) fn new(session_max: usize, segment_count: u32) -> Durable {
        let zeros = || (0..segment_count).map(|_| AtomicU64::new(0)).collect();
        Durable {
            places: (0..session_max).map(|_| CachePadded::default()).collect(),
            ends: zeros(),
            is_dirty: (0..segment_count).map(|_| AtomicBool::new(false)).collect(),
            sequences: zeros(),
            next_sequence: AtomicU64::new(1),
            cleaned: zeros(),
            lists: Mutex::default(),
            wanted: Condvar::new(),
            committed: Condvar::new(),
            is_refusing: AtomicBool::new(false),
            flush_floor: AtomicU64::new(0),
            dropped_floor: AtomicU64::new(0),
            tombstone_bytes: AtomicU64::new(0),
            passes: Passes::default(),
            noted_bytes: AtomicU64::new(0),
            synced_super: AtomicU64::new(0),
            is_driven: AtomicBool::new(false),
            stats: Mutex::default(),
        }
    }

    // ---- sessions ----

    /// D1, first half: the changes that the session at `place` publishes until [`Durable::end`] are
    /// not yet covered.
    pub(crate) fn begin(&self, place: usize) {
        let begun = &self.places[place].begun;
        // There is one writer. The slots that it publishes afterwards are Release stores, so a
        // thread that sees one of them sees this store.
        begun.store(begun.load(Ordering::Relaxed) | 1, Ordering::SeqCst);
    }

    /// D1, second half: the session at `place` has noted all changes published since it began.
    pub(crate) fn end(&self, place: usize) {
        let begun = &self.places[place].begun;
        let before = begun.load(Ordering::Relaxed);
        // Pairs with `Committer::begin`: a committer that sees this store sees the notes before it.
        begun.store(before + (before & 1), Ordering::SeqCst);
    }

    /// Notes that the entries of these segments are complete up to their ends: a commit has all of
    /// them or none (D7).
    pub(crate) fn note(&self, place: usize, ends: impl Iterator<Item = (u32, u64)>) {
        let _noting = locked(&self.places[place].noting);
        ends.for_each(|(segment, end_bytes)| self.note_one(segment, end_bytes));
    }

    fn note_one(&self, segment: u32, end_bytes: u64) {
        let end = &self.ends[segment as usize];
        let before = end.load(Ordering::Relaxed);
        if before >= end_bytes {
            return;
        }
        self.noted_bytes.fetch_add(end_bytes - before, Ordering::Relaxed);
        // Release pairs with the committer's Acquire: it sees the entries' bytes.
        end.store(end_bytes, Ordering::Release);
        if !self.is_dirty[segment as usize].swap(true, Ordering::AcqRel) {
            locked(&self.lists).dirty.push(segment);
        }
    }

    /// Notes that a segment, or a run, was taken.
    pub(crate) fn opened(&self, segment: u32) {
        // Relaxed: the lock of the segment table is held.
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        self.ends[segment as usize].store(0, Ordering::Relaxed);
        self.cleaned[segment as usize].store(0, Ordering::Relaxed);
        // SeqCst pairs with `horizon`: an entry older than a delete lies in a segment that was
        // opened before the delete drew its horizon.
        self.sequences[segment as usize].store(sequence, Ordering::SeqCst);
    }

    /// Notes that the deletes of a segment were handled up to `bytes`; called by its reclaimer.
    pub(crate) fn set_cleaned(&self, segment: u32, bytes: u64) {
        self.cleaned[segment as usize].store(bytes, Ordering::Release);
    }

    pub(crate) fn cleaned(&self, segment: u32) -> u64 {
        self.cleaned[segment as usize].load(Ordering::Acquire)
    }

    /// Notes that a segment was in use when the store was opened.
    pub(crate) fn restored(&self, segment: u32, sequence: u64, end_bytes: u64) {
        self.ends[segment as usize].store(end_bytes, Ordering::Relaxed);
        self.sequences[segment as usize].store(sequence, Ordering::SeqCst);
        self.next_sequence.fetch_max(sequence.saturating_add(1), Ordering::SeqCst);
    }

    /// Draws no sequence that the server before may have drawn, which had `floor` when it began and
    /// whose last rows may be missing: what is left of its entries would hold under the same seal.
    pub(crate) fn begin_life(&self, floor: u64) {
        let next = self.next_sequence.load(Ordering::SeqCst).max(floor);
        self.next_sequence.store(next.saturating_add(SEQUENCES_LOST_MAX), Ordering::SeqCst);
    }

    /// Notes that a taken segment, in which nothing was noted, is given back.
    pub(crate) fn given_back(&self, segment: u32) {
        self.sequences[segment as usize].store(0, Ordering::SeqCst);
    }

    /// Notes that no slot names a segment any more: it becomes free by D3.
    pub(crate) fn retired(&self, segment: u32) {
        let mut lists = locked(&self.lists);
        lists.retired.push(segment);
        lists.is_wanted = true;
        drop(lists);
        self.wanted.notify_one();
    }

    /// Whether a retired segment is free by D3.
    pub(crate) fn is_free(&self, segment: u32) -> bool {
        self.sequences[segment as usize].load(Ordering::Acquire) == 0
    }

    /// The horizon: segments taken from now on have at least this sequence (D5).
    pub(crate) fn horizon(&self) -> u64 {
        self.next_sequence.load(Ordering::SeqCst)
    }

    /// The sequence of the oldest segment that is not free, ignoring segment `but`; it only grows.
    /// `holds_only_live` returns true for segments that are known to hold no dead entry.
    pub(crate) fn oldest_sequence(&self, but: u32, holds_only_live: impl Fn(u32) -> bool) -> u64 {
        let taken = self.sequences.iter().enumerate().filter_map(|(segment, sequence)| {
            let (segment, sequence) = (segment as u32, sequence.load(Ordering::SeqCst));
            (sequence != 0 && segment != but && !holds_only_live(segment)).then_some(sequence)
        });
        taken.min().unwrap_or(u64::MAX)
    }

    pub(crate) fn sequence_of(&self, segment: u32) -> u64 {
        self.sequences[segment as usize].load(Ordering::Relaxed)
    }

    /// Notes a dropped delete: its version is not given again (K1).
    pub(crate) fn dropped(&self, version: u64) {
        self.dropped_floor.fetch_max(version, Ordering::AcqRel);
    }

    pub(crate) fn count_tombstone(&self, len_bytes: u64) {
        self.tombstone_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        self.passes.changed(len_bytes);
    }

    pub(crate) fn uncount_tombstone(&self, len_bytes: u64) {
        self.tombstone_bytes.fetch_sub(len_bytes, Ordering::Relaxed);
        self.passes.changed(len_bytes);
    }

    /// Whether a pass over the log continues with the segment taken at `sequence`, the oldest
    /// present, or begins with it. A pass begins once `changed_min_bytes` of deletes were written
    /// or dropped.
    pub(crate) fn passes_over(&self, sequence: u64, changed_min_bytes: u64) -> bool {
        self.passes.passes_over(sequence, changed_min_bytes, self.horizon())
    }

    /// Adds to the bytes of changed deletes as if they had been written: a pass has more to find.
    pub(crate) fn want_pass(&self, changed_bytes: u64) {
        self.passes.changed(changed_bytes);
    }

    /// Whether a pass has gone beyond this segment.
    pub(crate) fn has_passed(&self, segment: u32) -> bool {
        self.passes.has_passed(self.sequence_of(segment))
    }

    pub(crate) fn tombstone_bytes(&self) -> u64 {
        self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Deletes everything up to this version by a flush. The caller has begun a chunk, and no chain
    /// assigns a version up to this one before the caller's answer leaves.
    pub(crate) fn flush_to(&self, version: u64) {
        self.flush_floor.fetch_max(version, Ordering::AcqRel);
    }

    pub(crate) fn flush_floor(&self) -> u64 {
        self.flush_floor.load(Ordering::Acquire)
    }

    /// Whether writes are refused.
    #[inline]
    pub fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Acquire)
    }

    // ---- threads that answer clients ----

    /// Whether everything that any thread has seen is on the medium (D2).
    pub fn is_settled(&self) -> bool {
        self.places.iter().all(|place| {
            let begun = place.begun.load(Ordering::SeqCst);
            place.covered.load(Ordering::Acquire) >= begun
        })
    }

    /// Records what must be covered before data seen up to now may be revealed to a client.
    pub fn mark(&self, mark: &mut Vec<u64>) {
        mark.clear();
        mark.extend(self.places.iter().map(|place| place.begun.load(Ordering::SeqCst)));
    }

    /// Whether everything recorded in `mark` is on the medium.
    pub fn has_covered(&self, mark: &[u64]) -> bool {
        let places = self.places.iter().zip(mark);
        places.into_iter().all(|(place, mark)| place.covered.load(Ordering::Acquire) >= *mark)
    }

    /// Requests a commit and waits until `mark` is on the medium. The caller's session is parked.
    ///
    /// # Errors
    /// `mark` will not be on the medium, or not soon.
    pub fn wait_covered(&self, mark: &[u64]) -> Result<(), MediumError> {
        let mut lists = locked(&self.lists);
        loop {
            if self.has_covered(mark) {
                return Ok(());
            }
            match &lists.health {
                None | Some(Health::Good) => {}
                Some(Health::Stalled(error) | Health::Failed(error)) => return Err(error.clone()),
            }
            if !lists.is_wanted {
                lists.is_wanted = true;
                self.wanted.notify_one();
            }
            lists = self.committed.wait(lists).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a commit that begins after this call. The caller holds no session.
    ///
    /// # Errors
    /// There will be none, or not soon.
    pub fn wait_commit(&self) -> Result<(), MediumError> {
        let mut lists = locked(&self.lists);
        // A commit under way may have begun before this call.
        let wanted = lists.commit_count + 2;
        while lists.commit_count < wanted {
            if let Some(Health::Stalled(error) | Health::Failed(error)) = &lists.health {
                return Err(error.clone());
            }
            if !lists.is_wanted {
                lists.is_wanted = true;
                self.wanted.notify_one();
            }
            lists = self.committed.wait(lists).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// The bytes of entries noted since the process started.
    pub fn noted_bytes(&self) -> u64 {
        self.noted_bytes.load(Ordering::Relaxed)
    }

    /// The health of the log.
    pub fn health(&self) -> Health {
        locked(&self.lists).health.clone().unwrap_or(Health::Good)
    }

    /// How often the log has become unwritable. While this number stays the same and writes are
    /// refused, no request is executed that would have to be made durable.
    pub fn refusal_count(&self) -> u64 {
        locked(&self.lists).refusal_count
    }

    /// The counters so far.
    pub fn stats(&self) -> DurableStats {
        let stats = locked(&self.stats).clone();
        let noted_bytes = self.noted_bytes.load(Ordering::Relaxed);
        DurableStats {
            tombstone_bytes: self.tombstone_bytes(),
            uncommitted_bytes: noted_bytes.saturating_sub(stats.entry_bytes),
            ..stats
        }
    }

    // ---- sessions that make room ----

    /// Waits a little for segments to become free by D3; returns false if no thread commits.
    pub(crate) fn await_freeing(&self) -> bool {
        // Relaxed: set before the first session exists.
        if !self.is_driven.load(Ordering::Relaxed) || self.is_refusing() {
            return false;
        }
        let mut lists = locked(&self.lists);
        lists.is_wanted = true;
        self.wanted.notify_one();
        drop(self.committed.wait_timeout(lists, FREEING_WAIT));
        true
    }

    // ---- the committer's thread ----

    /// Adds the segments noted since the last call to `dirty`, and returns the ends of all in
    /// `dirty`, between the notes of any session (D7).
    pub(crate) fn take_noted(&self, dirty: &mut Vec<u32>) -> Vec<u64> {
        let _noting: Vec<_> = self.places.iter().map(|place| locked(&place.noting)).collect();
        for segment in std::mem::take(&mut locked(&self.lists).dirty) {
            self.is_dirty[segment as usize].store(false, Ordering::SeqCst);
            if !dirty.contains(&segment) {
                dirty.push(segment);
            }
        }
        let end_of = |segment: &u32| self.ends[*segment as usize].load(Ordering::Acquire);
        dirty.iter().map(end_of).collect()
    }

    /// Declares that a thread commits from now on; sessions that make room then wait for it.
    pub fn drive(&self) {
        self.is_driven.store(true, Ordering::Relaxed);
    }

    /// Waits until a commit is requested, at most for `limit`; returns whether one is.
    pub fn wait_wanted(&self, limit: Duration) -> bool {
        let lists = locked(&self.lists);
        let waited = self.wanted.wait_timeout_while(lists, limit, |lists| !lists.is_wanted);
        let (mut lists, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut lists.is_wanted)
    }

    /// Requests a commit, and wakes the thread that waits for a request.
    pub fn want(&self) {
        locked(&self.lists).is_wanted = true;
        self.wanted.notify_one();
    }
}

/// More segments than are taken between two syncs.
const SEQUENCES_LOST_MAX: u64 = 1 << 20;

/// How long a session that makes room waits before it checks again: it must pass quiescent points
/// meanwhile.
const FREEING_WAIT: Duration = Duration::from_millis(1);
