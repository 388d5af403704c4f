//! The committer: decides what to write, in which order, and what is durable afterwards. It is a
//! plain struct without a thread: its caller (the server's thread, the simulator between two
//! events, or a test) decides when it runs.
//!
//! ```text
//!  begin    what sessions have ended; retired segments, and then a new epoch
//!  is_ready none were retired, or every session has passed a quiescent point since
//!  write    dirty ranges, rows, superblock ──▶ medium
//!  sync     ──▶ medium; covered = begun; segments of the commit before are free
//! ```
//!
//! # Invariants
//! I1: between `write` and a successful `sync` the committer announces nothing as durable.
//! I2: a row or superblock that was not synced is overwritten by the next one; the copy known to be
//!     on the medium never is. A row counts only bytes that were synced before the row was written.
//! I3: all rows that a commit writes have its number, and how many they are (D7). A commit that
//!     follows a failed one writes the rows of its segments with entries again.
//!
//! # References
//! Rowan-KV §4.2.1; D1 to D6 of durable_log.rs.

use std::sync::Arc;

use base::sync::Ordering;

use super::checkpoint::Checkpointer;
use super::{COMMIT_BOUND_FIRST_NS, COMMIT_BOUNDS, Durable, Health};
use crate::durable_log::layout::{Row, RowCommit, RowState, Superblock};
use crate::durable_log::locked;
use crate::entry::{ALIGN_BYTES, HEADER_BYTES, Parsed, RawKind};
use crate::inner::Inner;
use crate::medium::{Medium, MediumError};
use crate::record::Seal;
use crate::store::Store;

/// The result of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Bytes of entries written.
    pub entry_bytes: u64,
    /// All bytes written.
    pub written_bytes: u64,
    /// Whether there was nothing to write, so that nothing was synced.
    pub is_empty: bool,
    /// Whether another commit should follow at once: segments wait to become free.
    pub wants_more: bool,
}

/// The state of one segment on the medium.
#[derive(Clone, Copy, Debug, Default)]
struct OnMedium {
    row: Row,
    /// The generation of the row known to be on the medium: the next row overwrites the other copy.
    synced_generation: u64,
    /// Bytes of entries written, and bytes of entries known to be on the medium.
    written_bytes: u64,
    synced_bytes: u64,
}

/// The committer; see the module's documentation.
pub struct Committer<M> {
    inner: Arc<Inner>,
    durable: Arc<Durable>,
    medium: M,
    superblock: Superblock,
    /// The generation of the superblock known to be on the medium.
    synced_super: u64,
    /// Whether anything was written since the last successful sync.
    is_unsynced: bool,
    segments: Vec<OnMedium>,
    /// Dirty segments of this commit, and of the failed ones before it.
    dirty: Vec<u32>,
    /// The bytes of their entries that this commit has.
    ends: Vec<u64>,
    /// What this commit's rows record of it.
    commit: RowCommit,
    /// The number of the last commit that was synced.
    synced_commit: u64,
    /// Segments synced by the last commit, whose rows do not record that yet.
    lagging: Vec<u32>,
    /// Segments retired before this commit began.
    retired: Vec<u32>,
    /// Segments retired before the last successful commit: the next sync frees them (D3).
    freeing: Vec<u32>,
    begun: Vec<u64>,
    tag: Option<u64>,
    buffer: Vec<u8>,
    committed: Committed,
}

impl<M: Medium> Committer<M> {
    /// Makes a committer. `rows` are the rows on the medium; segments with entries are in memory as
    /// well.
    pub(super) fn new(
        store: &Store,
        durable: &Arc<Durable>,
        medium: M,
        superblock: Superblock,
        rows: Vec<Row>,
    ) -> Committer<M> {
        let known = |row: Row| OnMedium {
            row,
            synced_generation: row.generation,
            written_bytes: row.end_bytes,
            synced_bytes: row.end_bytes,
        };
        let last_commit = rows.iter().map(|row| row.commit.number).max().unwrap_or(0);
        let segments = rows.into_iter().map(known).collect();
        durable.synced_super.store(superblock.generation, Ordering::Release);
        Committer {
            inner: Arc::clone(store.inner()),
            durable: Arc::clone(durable),
            medium,
            synced_super: superblock.generation,
            superblock,
            is_unsynced: false,
            segments,
            dirty: Vec::new(),
            ends: Vec::new(),
            commit: RowCommit { number: last_commit, ..RowCommit::default() },
            synced_commit: last_commit,
            lagging: Vec::new(),
            retired: Vec::new(),
            freeing: Vec::new(),
            begun: Vec::new(),
            tag: None,
            buffer: Vec::new(),
            committed: Committed::default(),
        }
    }

    /// The state shared with sessions.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.durable
    }

    /// The checkpointer of this store's index.
    pub fn checkpointer(&self) -> Checkpointer {
        Checkpointer::new(&self.inner, &self.durable, self.superblock.data_id)
    }

    /// The medium that it writes to.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// The medium, for tests and simulators that damage it.
    pub fn medium_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    /// Returns the medium as it is, without another write.
    pub fn into_medium(self) -> M {
        self.medium
    }

    /// The superblock as last written.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Makes a whole commit. `wait` is called while sessions have not passed a quiescent point.
    ///
    /// # Errors
    /// The medium's. [`Durable::health`] says whether another attempt makes sense.
    pub fn commit(&mut self, mut wait: impl FnMut()) -> Result<Committed, MediumError> {
        self.begin();
        while !self.is_ready() {
            wait();
        }
        self.write()?;
        self.sync()
    }

    /// First step: the changes published by now are part of the commit.
    pub fn begin(&mut self) {
        self.retired.append(&mut locked(&self.durable.lists).retired);
        self.begun.clear();
        let places = self.durable.places.iter();
        // SeqCst pairs with `Durable::end`: changes published by then are noted. A call under way
        // does not count (D2).
        self.begun.extend(places.map(|place| place.begun.load(Ordering::SeqCst) & !1));
        // The entries that superseded those of a retired segment were published before, and are
        // noted once every session has passed a quiescent point (D1, D3).
        self.tag = (!self.retired.is_empty()).then(|| self.inner.epochs.advance());
    }

    /// Second step, repeated until it returns true.
    pub fn is_ready(&self) -> bool {
        self.tag.is_none_or(|tag| self.inner.epochs.is_safe(tag))
    }

    /// Third step: writes.
    ///
    /// # Errors
    /// The medium's; [`Durable::health`] reports it from now on.
    pub fn write(&mut self) -> Result<(), MediumError> {
        self.committed = Committed::default();
        let health = locked(&self.durable.lists).health.clone();
        if let Some(Health::Failed(error)) = health {
            return Err(error); // D6
        }
        self.ends = self.durable.take_noted(&mut self.dirty);
        let written = self.write_all();
        written.inspect_err(|error| self.failed(error))
    }

    fn write_all(&mut self) -> Result<(), MediumError> {
        let lagging = self.lagging();
        self.number_commit(self.dirty.len() + lagging.len() + self.freeing.len())?;
        for index in 0..self.dirty.len() {
            self.write_segment(self.dirty[index], self.ends[index])?;
        }
        for segment in lagging {
            let known = self.segments[segment as usize];
            let commit = RowCommit { end_bytes: known.synced_bytes, ..self.commit };
            let row = Row { end_bytes: known.synced_bytes, commit, ..known.row };
            self.write_row(segment, row)?;
        }
        for index in 0..self.freeing.len() {
            let segment = self.freeing[index];
            let (state, commit) = (RowState::Free, self.commit);
            self.write_row(segment, Row { state, end_bytes: 0, commit, ..self.row(segment) })?;
        }
        // Read after the ends: if an entry in this commit was written above a floor, the commit has
        // that floor too.
        let flush_floor = self.durable.flush_floor();
        let version_floor = self.durable.dropped_floor.load(Ordering::Acquire).max(flush_floor);
        let block = Superblock {
            flush_floor,
            version_floor: version_floor.max(self.superblock.version_floor),
            is_clean: false,
            ..self.superblock
        };
        self.write_superblock(block)
    }

    /// The segments whose rows do not record what is synced, and are not written anyway.
    fn lagging(&self) -> Vec<u32> {
        let lags = |segment: &u32| {
            let known = &self.segments[*segment as usize];
            let is_gone = self.freeing.contains(segment) || self.dirty.contains(segment);
            !is_gone && known.row.end_bytes < known.synced_bytes
        };
        self.lagging.iter().copied().filter(lags).collect()
    }

    /// Gives this commit the next number, if it writes rows.
    fn number_commit(&mut self, row_count: usize) -> Result<(), MediumError> {
        if row_count > 0 {
            let number = self.commit.number + 1;
            let failed = |_| MediumError::Failed("too many commits have failed".to_owned());
            let since_synced = u32::try_from(number - self.synced_commit).map_err(failed)?;
            let rows = row_count as u32;
            self.commit = RowCommit { number, since_synced, rows, end_bytes: 0 };
        }
        Ok(())
    }

    fn row(&self, segment: u32) -> Row {
        self.segments[segment as usize].row
    }

    fn write_superblock(&mut self, block: Superblock) -> Result<(), MediumError> {
        if block != self.superblock {
            let mut block = Superblock { generation: self.synced_super, ..block };
            self.is_unsynced = true;
            block.write(&mut self.medium)?;
            self.superblock = block;
            self.committed.written_bytes += 128;
        }
        Ok(())
    }

    fn write_row(&mut self, segment: u32, mut row: Row) -> Result<(), MediumError> {
        row.generation = self.segments[segment as usize].synced_generation;
        self.is_unsynced = true;
        self.superblock.write_row(&mut self.medium, segment, &mut row)?;
        self.committed.written_bytes += 64;
        self.segments[segment as usize].row = row;
        Ok(())
    }

    /// Writes the part of a segment up to `end_bytes` that is not written yet, and its row.
    fn write_segment(&mut self, segment: u32, end_bytes: u64) -> Result<(), MediumError> {
        let sequence = self.durable.sequence_of(segment);
        let mut known = self.segments[segment as usize];
        if known.row.sequence != sequence || known.row.state == RowState::Free {
            // Its first commit: none of it is known to be synced.
            (known.written_bytes, known.synced_bytes) = (0, 0);
            let run_len = self.inner.log.run_len(end_bytes).max(1);
            known.row = Row { run_len, sequence, ..known.row };
        }
        known.row.state = RowState::Open; // A start has closed it, if it is of an earlier life.
        known.row.run_len = known.row.run_len.max(self.inner.log.run_len(end_bytes));
        let seal = self.superblock.seal_of(sequence);
        let from = known.written_bytes;
        self.write_range(segment, from..end_bytes, seal)?;
        self.segments[segment as usize] = OnMedium { written_bytes: end_bytes, ..known };
        self.committed.entry_bytes += end_bytes - from;
        self.committed.written_bytes += end_bytes - from;
        let commit = RowCommit { end_bytes, ..self.commit };
        let row = Row { end_bytes: known.synced_bytes, commit, ..known.row };
        self.write_row(segment, row)
    }

    /// Writes a range of entries, sealed, piece by piece.
    fn write_range(
        &mut self,
        segment: u32,
        range: std::ops::Range<u64>,
        seal: Seal,
    ) -> Result<(), MediumError> {
        let log = &self.inner.log;
        let start = log.segment_start(segment);
        // `skip` is the number of bytes from the start of the range to the next entry.
        let (mut at, mut skip) = (range.start, 0_usize);
        while at < range.end {
            let index = segment + (at / log.segment_bytes()) as u32;
            let in_segment = at % log.segment_bytes();
            let len = (range.end - at).min(log.segment_bytes() - in_segment);
            self.buffer.clear();
            log.copy_noted(start + at, len as usize, &mut self.buffer);
            skip = seal_entries(&mut self.buffer, skip, seal);
            let offset = self.superblock.segment_offset(index) + in_segment;
            self.is_unsynced = true;
            self.medium.write_at(offset, &self.buffer)?;
            at += len;
        }
        Ok(())
    }

    /// Last step: syncs, which makes the changes of the other three steps durable.
    ///
    /// # Errors
    /// The medium's; from then on nothing becomes durable (D6).
    pub fn sync(&mut self) -> Result<Committed, MediumError> {
        let mut committed = self.committed;
        committed.is_empty = !self.is_unsynced;
        if self.is_unsynced
            && let Err(error) = self.medium.sync()
        {
            self.failed(&MediumError::Failed(error.to_string()));
            return Err(error);
        }
        self.is_unsynced = false;
        self.synced_commit = self.commit.number;
        self.synced_super = self.superblock.generation;
        self.durable.synced_super.store(self.synced_super, Ordering::Release);
        let written = self.dirty.iter().chain(&self.freeing).chain(&self.lagging);
        for segment in written.copied() {
            let known = &mut self.segments[segment as usize];
            known.synced_generation = known.row.generation;
            known.synced_bytes = known.written_bytes;
        }
        // The next commit, even if it has nothing else to write, records in their rows what is
        // synced now.
        std::mem::swap(&mut self.lagging, &mut self.dirty);
        self.dirty.clear();
        for segment in self.freeing.drain(..) {
            // Pairs with `is_free`: a session that takes the segment writes after this.
            self.durable.sequences[segment as usize].store(0, Ordering::SeqCst);
        }
        // Their copies are on the medium now: the next sync frees them.
        std::mem::swap(&mut self.freeing, &mut self.retired);
        committed.wants_more = !self.freeing.is_empty();
        for (place, begun) in self.durable.places.iter().zip(&self.begun) {
            place.covered.store(*begun, Ordering::Release);
        }
        let mut lists = locked(&self.durable.lists);
        lists.health = None;
        lists.commit_count += 1;
        lists.is_wanted |= committed.wants_more;
        self.durable.is_refusing.store(false, Ordering::Release);
        drop(lists);
        self.durable.committed.notify_all();
        let mut stats = locked(&self.durable.stats);
        stats.syncs += u64::from(!committed.is_empty);
        stats.entry_bytes += committed.entry_bytes;
        stats.written_bytes += committed.written_bytes;
        Ok(committed)
    }

    /// Counts the duration of the last commit, by the caller's clock.
    pub fn count_time(&self, ns: u64) {
        let bound = (0..COMMIT_BOUNDS).find(|bound| ns <= COMMIT_BOUND_FIRST_NS << bound);
        let mut stats = locked(&self.durable.stats);
        stats.commit_counts[bound.unwrap_or(COMMIT_BOUNDS)] += 1;
        stats.commit_ns += ns;
    }

    /// Records a clean shutdown on the medium. Everything is committed and no session writes.
    ///
    /// # Errors
    /// The medium's.
    pub fn end_clean(&mut self) -> Result<(), MediumError> {
        for segment in 0..self.segments.len() as u32 {
            let known = self.segments[segment as usize];
            if known.row.state != RowState::Free
                && (known.row.end_bytes, known.row.state) != (known.written_bytes, RowState::Closed)
            {
                let end_bytes = known.written_bytes;
                self.write_row(segment, Row { state: RowState::Closed, end_bytes, ..known.row })?;
            }
        }
        self.medium.sync()?;
        self.write_superblock(Superblock { is_clean: true, ..self.superblock })?;
        self.medium.sync()?;
        self.durable.synced_super.store(self.superblock.generation, Ordering::Release);
        Ok(())
    }

    fn failed(&self, error: &MediumError) {
        let mut lists = locked(&self.durable.lists);
        lists.refusal_count += u64::from(lists.health.is_none());
        lists.health = Some(match error.is_passing() {
            true => Health::Stalled(error.clone()),
            false => Health::Failed(error.clone()),
        });
        self.durable.is_refusing.store(true, Ordering::Release);
        drop(lists);
        self.durable.committed.notify_all();
        locked(&self.durable.stats).failures += 1;
    }
}

/// Adds the seal to every entry that starts in `bytes`, the first after `skip` of them. Returns how
/// far the last one reaches beyond the end.
fn seal_entries(bytes: &mut [u8], skip: usize, seal: Seal) -> usize {
    let mut at = skip;
    while at + HEADER_BYTES <= bytes.len() {
        let entry = &mut bytes[at..];
        let first = u64::from_le_bytes(*entry.first_chunk::<ALIGN_BYTES>().expect("a header"));
        let sealed = (first as u32 ^ seal.0).to_le_bytes();
        debug_assert!(RawKind::of(first).is_at_rest(), "values are not replaced in place here");
        let len_bytes = Parsed::new(entry).shape.len_bytes();
        entry[..4].copy_from_slice(&sealed);
        at += len_bytes;
    }
    at.saturating_sub(bytes.len())
}
