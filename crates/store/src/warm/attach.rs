//! Loads a store from a warm file: reads and checks the table, then inserts the entries that it
//! names into a new index.
//!
//! # Invariants
//! I1: the segments that the table names do not change before the store is open, and the table
//!     stays behind the memory; if it is in the way of a larger one, it is copied, and the old one
//!     counts until the new one is complete.

use std::fs::File;
use std::os::unix::fs::FileExt;

use base::UnixMillis;
use index::placement::NodeShare;

use super::{
    Found, Kept, Misfit, Opened, Row, Table, Trailer, WarmError, WarmFile, failed, lengthen,
    whole_pages,
};
use crate::config::{NeededMemory, OpenError, StoreConfig};
use crate::crc;
use crate::durable::{Way, share_out};
use crate::record::ALIGN_BYTES;
use crate::session::{
    Session, Starts, end_recovery, has_expired, is_whole_entry, recover_all, recover_sparely,
};
use crate::store::{Begin, Store, enough_bytes};
use crate::tuning::Tuning;
use crate::warm_table::{NoTrailer, TRAILER_BYTES};

/// The contents of a file.
pub(super) enum Last {
    /// None, or those of a store that ended without being kept.
    Nothing,
    /// The memory of a store that is running, or was killed.
    Running,
    /// A kept store.
    Kept(Box<KeptTable>),
}

/// The table of a kept store.
pub(super) struct KeptTable {
    trailer: Trailer,
    table: Table,
    /// Its bytes as they are in the file.
    bytes: Vec<u8>,
}

/// Refuses a foreign file before the file is touched in any way (I6 of warm.rs).
pub(super) fn refuse_foreign(file: &File, len_bytes: u64) -> Result<(), WarmError> {
    match read_trailer(file, len_bytes)? {
        Some(Err(NoTrailer::Foreign)) => Err(WarmError::Foreign),
        None if len_bytes > 0 => Err(WarmError::Foreign),
        _ => Ok(()),
    }
}

fn read_trailer(
    file: &File,
    len_bytes: u64,
) -> Result<Option<Result<Trailer, NoTrailer>>, WarmError> {
    let Some(trailer_at) = len_bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut bytes = [0; TRAILER_BYTES];
    file.read_exact_at(&mut bytes, trailer_at).map_err(failed("cannot read"))?;
    Ok(Some(Trailer::parse(&bytes)))
}

/// Reads a file that is a store's, or empty.
pub(super) fn read(file: &File, len_bytes: u64) -> Result<Last, WarmError> {
    let trailer = match read_trailer(file, len_bytes)? {
        None | Some(Err(NoTrailer::NotKept)) => return Ok(Last::Nothing),
        Some(Ok(trailer)) => trailer,
        Some(Err(NoTrailer::Running)) => return Ok(Last::Running),
        Some(Err(NoTrailer::Foreign)) => return Err(WarmError::Foreign),
        Some(Err(NoTrailer::Layout { found })) => {
            return Err(WarmError::Misfit(Misfit::Layout { found }));
        }
    };
    let damaged = || WarmError::Misfit(Misfit::Damaged);
    let end = trailer.memory_bytes.checked_add(trailer.table_bytes);
    let end = end.and_then(|end| end.checked_add(TRAILER_BYTES as u64));
    // A copy of the table that did not come to its end may lie before the trailer.
    if end.is_none_or(|end| end > len_bytes) {
        return Err(damaged());
    }
    let mut bytes = vec![0; usize::try_from(trailer.table_bytes).map_err(|_| damaged())?];
    file.read_exact_at(&mut bytes, trailer.memory_bytes).map_err(failed("cannot read"))?;
    if crc::extend(crc::START, &bytes) != trailer.table_sum {
        return Err(damaged());
    }
    let table = Table::parse(&bytes, trailer.memory_bytes).ok_or_else(damaged)?;
    Ok(Last::Kept(Box::new(KeptTable { trailer, table, bytes })))
}

/// Makes a store of the entries that the table names.
pub(super) fn attach(
    file: File,
    kept: KeptTable,
    config: StoreConfig,
    (tuning, nodes): (Tuning, &[NodeShare]),
    (threads, now): (usize, UnixMillis),
) -> Result<Opened, WarmError> {
    let KeptTable { trailer, table, bytes } = kept;
    let last = table.rows.iter().map(|row| row.segment + row.run_len).max().unwrap_or(0);
    let needed = NeededMemory {
        given_bytes: config.memory_bytes,
        enough_bytes: enough_bytes(&config, trailer.memory_bytes, table.segment_bytes),
        segments_bytes: u64::from(last) * table.segment_bytes,
    };
    if needed.segments_bytes > needed.given_bytes {
        return Err(WarmError::Misfit(Misfit::Room(needed)));
    }
    let memory_bytes = whole_pages(config.memory_bytes);
    if memory_bytes > trailer.memory_bytes {
        move_table(&file, trailer, memory_bytes, &bytes)?;
    }
    drop(bytes);
    let restore = |way| {
        let begin = Begin::Warm { file: &file, table: Some(&table) };
        let store = Store::open_at(config.clone(), tuning, nodes, begin)?;
        let damaged = fill(&store, &table, (way, threads, now), trailer.version)?;
        Ok((store, damaged))
    };
    let (store, damaged) = match restore(Way::Quickly) {
        Err(OpenError::NoRoom) => restore(Way::Sparely),
        restored => restored,
    }
    .map_err(|error| match error {
        OpenError::NoRoom => WarmError::Misfit(Misfit::Room(needed)),
        error => WarmError::Store(error),
    })?;
    store.keep_reserve();
    let kept = Kept {
        items: store.stats().items,
        damaged,
        saved_at_ms: trailer.saved_at_ms,
        note: trailer.note,
    };
    Ok(Opened { store, file: WarmFile { file, memory_bytes }, found: Found::Kept(kept) })
}

/// Moves the table behind a memory that has become larger. Until the last step the file ends in its
/// old trailer, which names the old table: a kill in between loses nothing.
fn move_table(
    file: &File,
    trailer: Trailer,
    memory_bytes: u64,
    table: &[u8],
) -> Result<(), WarmError> {
    let len_bytes = file.metadata().map_err(failed("cannot read"))?.len();
    let old_end = trailer.memory_bytes + trailer.table_bytes;
    let (table_bytes, trailer_bytes) = (trailer.table_bytes, TRAILER_BYTES as u64);
    let end = memory_bytes.max(old_end) + table_bytes + trailer_bytes;
    let end = end.max(len_bytes).next_multiple_of(trailer_bytes);
    let (trailer_at, table_at) = (end - trailer_bytes, end - trailer_bytes - table_bytes);
    lengthen(file, end, &trailer.to_bytes())?;
    let moved = Trailer { memory_bytes: table_at, ..trailer };
    let written = file
        .write_all_at(table, table_at)
        .and_then(|()| file.write_all_at(&moved.to_bytes(), trailer_at));
    written.map_err(failed("cannot write")).inspect_err(|_| drop(file.set_len(len_bytes)))
}

/// Inserts all live entries into the index; returns the number of damaged ones.
fn fill(
    store: &Store,
    table: &Table,
    (way, threads, now): (Way, usize, UnixMillis),
    version: u64,
) -> Result<u64, OpenError> {
    let wanted = threads.clamp(1, table.rows.len().max(1));
    let mut sessions: Vec<Session> = (0..wanted).map_while(|_| store.session().ok()).collect();
    let damaged = match way {
        Way::Quickly => fill_quickly(store, table, &mut sessions, now)?,
        Way::Sparely => fill_sparely(store, table, &mut sessions, now)?,
    };
    for row in &table.rows {
        store.inner().log.allocator().table.close(row.segment, row.contents);
    }
    sessions.truncate(1);
    if let Some(session) = sessions.first_mut() {
        end_recovery(session, version);
    }
    Ok(damaged)
}

fn fill_quickly(
    store: &Store,
    table: &Table,
    sessions: &mut [Session],
    now: UnixMillis,
) -> Result<u64, OpenError> {
    let inner = store.inner();
    let count =
        table.rows.iter().flat_map(|row| &row.live).map(|word| u64::from(word.count_ones()));
    inner.index.presize(count.sum());
    let mut states: Vec<(&mut Session, u64)> =
        sessions.iter_mut().map(|session| (session, 0)).collect();
    let index = |(session, damaged): &mut (&mut Session, u64), at: usize| {
        let row = &table.rows[at];
        let (starts, damaged_count) = whole_of(store, row, now);
        *damaged += damaged_count;
        recover_all(session, inner.log.segment_start(row.segment), &starts, &|_| 0)
    };
    share_out(&mut states, table.rows.len(), &index, &mut |_| {}).map_err(|_| OpenError::NoRoom)?;
    Ok(states.iter().map(|(_, damaged)| damaged).sum())
}

fn fill_sparely(
    store: &Store,
    table: &Table,
    sessions: &mut [Session],
    now: UnixMillis,
) -> Result<u64, OpenError> {
    let mut lists: Vec<(Vec<u32>, u64)> =
        table.rows.iter().map(|row| whole_of(store, row, now)).collect();
    let mut starts = Vec::with_capacity(lists.len());
    for (row, (words, _)) in table.rows.iter().zip(&mut lists) {
        starts.push(Starts { first_bytes: store.inner().log.segment_start(row.segment), words });
    }
    let threads = sessions.len();
    let session = sessions.first_mut().ok_or(OpenError::NoRoom)?;
    recover_sparely(session, &mut starts, (threads, false), &|_| 0)
        .map_err(|_| OpenError::NoRoom)?;
    Ok(lists.iter().map(|(_, damaged)| damaged).sum())
}

/// The positions in words of a segment's live entries, and the number of damaged ones.
fn whole_of(store: &Store, row: &Row, now: UnixMillis) -> (Vec<u32>, u64) {
    let inner = store.inner();
    let first_bytes = inner.log.segment_start(row.segment);
    let end_bytes = first_bytes + row.contents.used_bytes;
    let offset_of = |start: &u32| first_bytes + u64::from(*start) * ALIGN_BYTES as u64;
    let named: Vec<u32> = row.starts().collect();
    let is_whole = |start: &u32| is_whole_entry(inner, offset_of(start), end_bytes);
    let mut whole: Vec<u32> = named.iter().copied().filter(is_whole).collect();
    let damaged = (named.len() - whole.len()) as u64;
    whole.retain(|start| !has_expired(inner, offset_of(start), now));
    (whole, damaged)
}
