//! Recovery of all segments by several threads.
//!
//! ```text
//!  first    | read | check, take seals off, list entries |     each thread takes the next segment
//!  between  damage? refuse. As many heads in the index as there are entries
//!  second   | hash 32 keys | ask for their buckets | insert |  each thread takes the next list
//!           no room? all again, and then sparely (session/recover_sparely.rs), by one thread
//!  last     slots of deletes go; chains go on above the highest version of all
//! ```
//!
//! # Invariants
//! I1: the index stays empty until every segment has been read and found intact, or is marked for
//!     evacuation.
//! I2: the order of the lists does not matter: under a chain's lock the highest version of a key
//!     wins.

use std::cmp::Reverse;
use std::sync::Arc;

use base::sync::{AtomicU64, Ordering};

use super::checkpoint::{Applied, Checkpoint, CheckpointError};
use super::open::{DataError, NewData, failed, no_room, refuse};
use super::restore::{self, Damage, Found, Recovery, UsedCheckpoint};
use crate::durable_log::Durable;
use crate::durable_log::layout::{Row, RowState, Superblock};
use crate::log::{Contents, NEVER_MS};
use crate::medium::{Medium, MediumError};
use crate::record::{ALIGN_BYTES, Record};
use crate::session::{
    Named, Session, Starts, count_named, drop_all_deletes, drop_deletes, end_recovery, recover_all,
    recover_copy, recover_sparely,
};
use crate::store::Store;

/// The method of filling the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By all threads, with room for every entry, live or not.
    Quickly,
    /// By one thread, with only as much room as the index of live keys needs.
    Sparely,
}

/// The inputs and results of recovery.
pub(super) struct Restoring<'r, M> {
    pub way: Way,
    pub medium: &'r M,
    pub superblock: Superblock,
    pub rows: Vec<Row>,
    pub durable: Arc<Durable>,
    pub recovery: Recovery,
    pub is_gone: &'r (dyn Fn(u16) -> bool + Sync),
    pub damage: Vec<Damage>,
    /// Segments with damage: their valid entries are copied elsewhere.
    pub damaged: Vec<u32>,
    /// Segments in which sessions go on.
    pub unfilled: Vec<u32>,
}

/// The most segments in which sessions go on: a start clears the room in each.
const UNFILLED_MAX: usize = 64;
/// The room for which it is worth it, as a part of a segment.
const ROOM_PART: u64 = 8;

/// One segment, in memory and without its seals.
struct Loaded {
    segment: u32,
    found: Found,
    tally: Recovery,
    list: List,
    /// The number of entries that a checkpoint names.
    found_count: u64,
}

/// Entries of one segment to be indexed, by their positions in it, in words.
struct List {
    segment: u32,
    starts: Vec<u32>,
    /// The deletes among them.
    deletes: Vec<u32>,
    /// Other entries, which a checkpoint indexes.
    named: Named,
}

impl List {
    fn new(segment: u32) -> List {
        List { segment, starts: Vec::new(), deletes: Vec::new(), named: Named::default() }
    }

    fn name(&mut self, record: &Record<'_>) {
        self.named.items += 1;
        self.named.bytes += record.len_bytes() as u64;
        self.named.with_expiry += u64::from(restore::has_expiry(record));
    }
}

/// The reason why a checkpoint does not match the segments read.
fn misfit_of(applied: &Applied, loaded: &[Loaded]) -> Option<CheckpointError> {
    let named = applied.named_count();
    let found = loaded.iter().map(|loaded| loaded.found_count).sum();
    // A damaged segment is copied elsewhere, entry by entry.
    let is_damaged = loaded.iter().any(|loaded| !loaded.found.damage.is_empty());
    (found != named || is_damaged).then_some(CheckpointError::Misfit { named, found })
}

impl<M: Medium> Restoring<'_, M> {
    pub(super) fn restore_all(
        &mut self,
        store: &Arc<Store>,
        new: NewData,
        checkpoint: Option<Result<Checkpoint, CheckpointError>>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), DataError> {
        let is_used = |segment: &u32| self.rows[*segment as usize].state != RowState::Free;
        let used: Vec<u32> = (0..self.rows.len() as u32).filter(is_used).collect();
        let wanted = new.threads.clamp(1, used.len().max(1));
        let mut sessions: Vec<Session> = (0..wanted).map_while(|_| store.session().ok()).collect();
        self.recovery.segments = used.len() as u64;
        self.recovery.threads = sessions.len();
        let mut applied = self.apply(store, checkpoint);
        let mut loaded =
            self.load_all(store, &used, (sessions.len(), applied.as_ref()), progress)?;
        if let Some(misfit) = applied.as_ref().and_then(|applied| misfit_of(applied, &loaded)) {
            self.recovery.checkpoint = UsedCheckpoint::Ignored(misfit);
            applied = None;
            loaded = self.load_all(store, &used, (sessions.len(), None), progress)?;
        }
        let mut lists = self.keep(loaded);
        refuse(&self.damage, new)?;
        match self.way {
            Way::Quickly => self.index_quickly(store, &mut sessions, (&lists, applied))?,
            Way::Sparely => self.index_sparely(store, &mut sessions, &mut lists)?,
        }
        self.close_all(store, &lists);
        sessions.truncate(1);
        let mut session = sessions.pop().ok_or_else(no_room)?;
        self.end(store, &mut session, &lists)?;
        drop(session);
        self.recovery.items = store.stats().items;
        progress(used.len() as u64, used.len() as u64);
        Ok(())
    }

    /// Applies the checkpoint, if it is of this log and its index.
    fn apply(
        &mut self,
        store: &Store,
        checkpoint: Option<Result<Checkpoint, CheckpointError>>,
    ) -> Option<Applied> {
        let applied = checkpoint?.and_then(|checkpoint| match store.inner().tree {
            None => Applied::new(checkpoint, &self.superblock, &self.rows),
            Some(_) => Err(CheckpointError::Tree),
        });
        applied.map_err(|error| self.recovery.checkpoint = UsedCheckpoint::Ignored(error)).ok()
    }

    fn load_all(
        &self,
        store: &Store,
        used: &[u32],
        (threads, applied): (usize, Option<&Applied>),
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Loaded>, DataError> {
        let mut parts: Vec<Vec<Loaded>> = (0..threads).map(|_| Vec::new()).collect();
        let load = |part: &mut Vec<Loaded>, at: usize| {
            part.push(self.load(store, used[at], applied)?);
            Ok(())
        };
        let mut tell = |at: usize| progress(at as u64, used.len() as u64);
        share_out(&mut parts, used.len(), &load, &mut tell).map_err(failed("cannot read"))?;
        let mut loaded: Vec<Loaded> = parts.into_iter().flatten().collect();
        loaded.sort_unstable_by_key(|loaded| loaded.segment);
        Ok(loaded)
    }

    /// Loads one segment into its place in memory.
    fn load(
        &self,
        store: &Store,
        segment: u32,
        applied: Option<&Applied>,
    ) -> Result<Loaded, MediumError> {
        let log = &store.inner().log;
        let mut row = self.rows[segment as usize];
        let start = log.segment_start(segment);
        let len_bytes = restore::used_bytes(&self.superblock, &row) as usize;
        let bytes = log.memory_before_use(start, len_bytes);
        restore::read_segment(self.medium, &self.superblock, segment, bytes)?;
        let covered_bytes = applied.map_or(0, |applied| applied.end_of(segment));
        // Covered entries were on the medium, whatever the row records.
        row.end_bytes = row.end_bytes.max(covered_bytes);
        let floor_of = floor_by_shard(self.is_gone, self.superblock.flush_floor);
        let (mut tally, mut list) = (Recovery::default(), List::new(segment));
        let mut found_count = 0;
        let at_entry = |record: &Record<'_>, at: usize| {
            let word = (at / ALIGN_BYTES) as u32;
            let offset_bytes = start + at as u64;
            if record.is_delete() {
                list.deletes.push(word);
            } else if let Some(applied) = applied.filter(|_| (at as u64) < covered_bytes) {
                if applied.names(offset_bytes) {
                    found_count += 1;
                    match record.version <= floor_of(record.shard) {
                        true => applied.forget(offset_bytes),
                        false => list.name(record),
                    }
                }
                return;
            }
            list.starts.push(word);
        };
        let found = restore::look(&self.superblock, (segment, &row), bytes, &mut tally, at_entry);
        Ok(Loaded { segment, found, tally, list, found_count })
    }

    /// Keeps the undamaged segments, and returns the lists of entries to index.
    fn keep(&mut self, loaded: Vec<Loaded>) -> Vec<List> {
        let mut lists = Vec::with_capacity(loaded.len());
        for Loaded { segment, found, tally, list, .. } in loaded {
            let row = &mut self.rows[segment as usize];
            self.durable.restored(segment, row.sequence, found.end as u64);
            if found.damage.is_empty() {
                self.recovery.add(&tally);
                row.end_bytes = found.end as u64;
                lists.push(list);
            } else {
                self.damage.extend(found.damage);
                self.damaged.push(segment);
                // Its valid entries stay where they are until copies of them are on the medium.
                row.end_bytes = row.end_bytes.max(found.end as u64);
            }
        }
        if self.superblock.generation > 0 {
            self.durable.begin_life(self.superblock.sequence_floor);
        }
        lists
    }

    fn index_quickly(
        &mut self,
        store: &Store,
        sessions: &mut [Session],
        (lists, applied): (&[List], Option<Applied>),
    ) -> Result<(), DataError> {
        let named: u64 = lists.iter().map(|list| list.named.items).sum();
        let listed: usize = lists.iter().map(|list| list.starts.len()).sum();
        store.inner().index.presize(named + listed as u64);
        if let Some(applied) = applied {
            self.recovery.checkpoint = UsedCheckpoint::Used { items: named };
            applied.fill(store.inner()).map_err(|_| no_room())?;
            let session = sessions.first_mut().ok_or_else(no_room)?;
            lists.iter().for_each(|list| count_named(session, list.segment, list.named));
        }
        let floor_of = floor_by_shard(self.is_gone, self.superblock.flush_floor);
        let index = |session: &mut Session, at: usize| {
            let List { segment, starts, .. } = &lists[at];
            let first_bytes = store.inner().log.segment_start(*segment);
            recover_all(session, first_bytes, starts, &floor_of)
        };
        share_out(sessions, lists.len(), &index, &mut |_| {}).map_err(|_| no_room())
    }

    fn index_sparely(
        &self,
        store: &Store,
        sessions: &mut [Session],
        lists: &mut [List],
    ) -> Result<(), DataError> {
        let log = &store.inner().log;
        let mut starts = Vec::with_capacity(lists.len());
        for List { segment, starts: words, .. } in lists {
            starts.push(Starts { first_bytes: log.segment_start(*segment), words });
        }
        let floor_of = floor_by_shard(self.is_gone, self.superblock.flush_floor);
        let threads = sessions.len();
        let session = sessions.first_mut().ok_or_else(no_room)?;
        // Older puts may still be found in damaged segments.
        let keeps_deletes = !self.damaged.is_empty();
        recover_sparely(session, &mut starts, (threads, keeps_deletes), &floor_of)
            .map_err(|_| no_room())
    }

    fn close_all(&mut self, store: &Store, lists: &[List]) {
        for List { segment, .. } in lists {
            let row = &self.rows[*segment as usize];
            let contents = Contents {
                used_bytes: row.end_bytes,
                latest_expiry_ms: NEVER_MS,
                is_long: row.run_len > 1,
            };
            store.inner().log.allocator().table.close(*segment, contents);
        }
        self.unfilled = self.choose_unfilled(lists);
        let mut allocator = store.inner().log.allocator();
        self.unfilled.iter().for_each(|segment| allocator.add_unfilled(*segment));
    }

    /// The segments with most room, that with most of all last.
    fn choose_unfilled(&self, lists: &[List]) -> Vec<u32> {
        let segment_bytes = self.superblock.segment_bytes;
        let with_room = lists.iter().filter_map(|List { segment, .. }| {
            let row = &self.rows[*segment as usize];
            let room_bytes = segment_bytes.saturating_sub(row.end_bytes);
            let has_room = row.run_len == 1 && room_bytes >= segment_bytes / ROOM_PART;
            has_room.then_some((room_bytes, *segment))
        });
        let mut with_room: Vec<(u64, u32)> = with_room.collect();
        with_room.sort_unstable();
        let fuller = with_room.len().saturating_sub(UNFILLED_MAX);
        with_room.drain(fuller..).map(|(_, segment)| segment).collect()
    }

    fn end(
        &mut self,
        store: &Store,
        session: &mut Session,
        lists: &[List],
    ) -> Result<(), DataError> {
        let is_damaged = !self.damaged.is_empty();
        let mut damaged = std::mem::take(&mut self.damaged);
        // The newest first: of a key that was written often, the fewest entries are copied.
        damaged.sort_unstable_by_key(|segment| Reverse(self.rows[*segment as usize].sequence));
        for segment in damaged {
            self.evacuate(store, session, segment)?;
        }
        self.recovery.damage = std::mem::take(&mut self.damage);
        if is_damaged {
            drop_all_deletes(session);
        } else {
            for List { segment, deletes, .. } in lists {
                drop_deletes(session, store.inner().log.segment_start(*segment), deletes);
            }
        }
        let floors = self.superblock.version_floor.max(self.superblock.flush_floor);
        end_recovery(session, self.recovery.newest_version.max(floors));
        store.keep_reserve();
        if store.is_full_for_ever() { Err(no_room()) } else { Ok(()) }
    }

    /// Copies the valid entries out of a damaged segment, which then becomes free like any other
    /// (D3).
    fn evacuate(
        &mut self,
        store: &Store,
        session: &mut Session,
        segment: u32,
    ) -> Result<(), DataError> {
        let inner = store.inner();
        let row = self.rows[segment as usize];
        let mut bytes = vec![0; restore::used_bytes(&self.superblock, &row) as usize];
        restore::read_segment(self.medium, &self.superblock, segment, &mut bytes)
            .map_err(failed("cannot read"))?;
        let floor_of = floor_by_shard(self.is_gone, self.superblock.flush_floor);
        let mut has_room = true;
        restore::look(
            &self.superblock,
            (segment, &row),
            &mut bytes,
            &mut self.recovery,
            |record, _| {
                has_room &= recover_copy(session, record, &floor_of).is_ok();
            },
        );
        if !has_room {
            return Err(no_room());
        }
        inner.log.retire_restored(segment, &inner.epochs);
        Ok(())
    }
}

/// The version up to which the entries of a shard are dead.
fn floor_by_shard(
    is_gone: &(dyn Fn(u16) -> bool + Sync),
    flush_floor: u64,
) -> impl Fn(u16) -> u64 + Sync {
    move |shard| if is_gone(shard) { u64::MAX } else { flush_floor }
}

/// Calls `work` for each number below `count`, on one thread for each of `states`. The calling
/// thread is the first of them, and also reports the progress of all. After a failure no further
/// number is begun.
pub(crate) fn share_out<S: Send, E: Send>(
    states: &mut [S],
    count: usize,
    work: &(impl Fn(&mut S, usize) -> Result<(), E> + Sync),
    tell: &mut dyn FnMut(usize),
) -> Result<(), E> {
    let next = AtomicU64::new(0);
    let run = |state: &mut S, tell: &mut dyn FnMut(usize)| loop {
        // Relaxed: which thread gets which number does not matter.
        let at = next.fetch_add(1, Ordering::Relaxed) as usize;
        if at >= count {
            return Ok(());
        }
        tell(at);
        let done = work(state, at);
        if done.is_err() {
            next.store(count as u64, Ordering::Relaxed);
            return done;
        }
    };
    let Some((own, others)) = states.split_first_mut() else { return Ok(()) };
    std::thread::scope(|scope| {
        let others: Vec<_> =
            others.iter_mut().map(|state| scope.spawn(|| run(state, &mut |_| {}))).collect();
        let mut result = run(own, tell);
        for thread in others {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result
    })
}
