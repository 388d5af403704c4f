//! Out of a file into a store: the table is read and checked, then the entries that it names are
//! put into a new index.
//!
//! # Invariants
//! I1: nothing of the file is changed before the whole table was found to fit; the segments that it
//!     names are changed by nobody before the store is open.

use std::fs::File;
use std::os::unix::fs::FileExt;

use base::UnixMillis;

use super::table::{NoTrailer, TRAILER_BYTES};
use super::{Found, Kept, Misfit, Opened, Table, Trailer, WarmError, WarmFile, failed, reserve};
use crate::config::{OpenError, StoreConfig};
use crate::crc;
use crate::durable::share_out;
use crate::placement::NodeShare;
use crate::record::ALIGN_BYTES;
use crate::session::{Session, has_expired, is_whole_entry};
use crate::store::{Begin, Store};
use crate::tuning::Tuning;

/// The table, if the file was kept.
pub(super) fn read(file: &File, len_bytes: u64) -> Result<Option<(Trailer, Table)>, WarmError> {
    let Some(trailer_at) = len_bytes.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut bytes = [0; TRAILER_BYTES];
    file.read_exact_at(&mut bytes, trailer_at).map_err(failed("cannot read"))?;
    let trailer = match Trailer::parse(&bytes) {
        Ok(trailer) => trailer,
        Err(NoTrailer::NotEnded) => return Ok(None),
        Err(NoTrailer::Layout { found }) => {
            return Err(WarmError::Misfit(Misfit::Layout { found }));
        }
    };
    let damaged = || WarmError::Misfit(Misfit::Damaged);
    let end = trailer.memory_bytes.checked_add(trailer.table_bytes);
    if end != Some(trailer_at) {
        return Err(damaged());
    }
    let mut bytes = vec![0; usize::try_from(trailer.table_bytes).map_err(|_| damaged())?];
    file.read_exact_at(&mut bytes, trailer.memory_bytes).map_err(failed("cannot read"))?;
    if crc::extend(crc::START, &bytes) != trailer.table_sum {
        return Err(damaged());
    }
    let table = Table::parse(&bytes, trailer.memory_bytes).ok_or_else(damaged)?;
    Ok(Some((trailer, table)))
}

/// A store with what the table names.
pub(super) fn attach(
    file: File,
    (trailer, table): (Trailer, Table),
    config: StoreConfig,
    (tuning, nodes): (Tuning, &[NodeShare]),
    (threads, now): (usize, UnixMillis),
) -> Result<Opened, WarmError> {
    let needed_bytes = table.rows.iter().map(|row| row.segment + row.run_len).max().unwrap_or(0);
    let needed_bytes = u64::from(needed_bytes) * table.segment_bytes;
    if needed_bytes > config.memory_bytes {
        let memory_bytes = config.memory_bytes;
        return Err(WarmError::Misfit(Misfit::Room(format!(
            "its items lie in the first {needed_bytes} bytes, and the memory for them has \
             {memory_bytes}: give as much --memory as before"
        ))));
    }
    let len_bytes = file.metadata().map_err(failed("cannot read"))?.len();
    // The table stays where it is, unless the memory has grown over it.
    let memory_bytes = reserve_at_least(&file, config.memory_bytes, len_bytes)?;
    let begin = Begin::Warm { file: &file, table: Some(&table) };
    let store = Store::open_at(config, tuning, nodes, begin).map_err(no_fit)?;
    let damaged = fill(&store, &table, (threads, now), trailer.version).map_err(no_fit)?;
    file.set_len(memory_bytes).map_err(failed("cannot cut its table off"))?;
    let kept = Kept {
        items: store.stats().items,
        damaged,
        saved_at_ms: trailer.saved_at_ms,
        note: trailer.note,
    };
    Ok(Opened { store, file: WarmFile { file, memory_bytes }, found: Found::Kept(kept) })
}

/// Makes the file at least as long as the memory; never shorter.
fn reserve_at_least(file: &File, bytes: u64, len_bytes: u64) -> Result<u64, WarmError> {
    let memory_bytes = bytes.next_multiple_of(crate::mapping::HUGE_PAGE_BYTES as u64);
    if len_bytes >= memory_bytes { Ok(memory_bytes) } else { reserve(file, bytes) }
}

fn no_fit(error: OpenError) -> WarmError {
    match error {
        OpenError::DoesNotFit { .. } | OpenError::NoRoom => {
            WarmError::Misfit(Misfit::Room(error.to_string()))
        }
        error => WarmError::Store(error),
    }
}

/// Puts all that live into the index; how many were damaged.
fn fill(
    store: &Store,
    table: &Table,
    (threads, now): (usize, UnixMillis),
    version: u64,
) -> Result<u64, OpenError> {
    let inner = store.inner();
    let count =
        table.rows.iter().flat_map(|row| &row.live).map(|word| u64::from(word.count_ones()));
    inner.index.presize(count.sum());
    let wanted = threads.clamp(1, table.rows.len().max(1));
    let sessions = (0..wanted).map_while(|_| store.session().ok());
    let mut states: Vec<(Session, u64)> = sessions.map(|session| (session, 0)).collect();
    let index = |(session, damaged): &mut (Session, u64), at: usize| {
        let row = &table.rows[at];
        let first_bytes = inner.log.segment_start(row.segment);
        let end_bytes = first_bytes + row.contents.used_bytes;
        let offset_of = |start: &u32| first_bytes + u64::from(*start) * ALIGN_BYTES as u64;
        let named: Vec<u32> = row.starts().collect();
        let is_whole = |start: &u32| is_whole_entry(inner, offset_of(start), end_bytes);
        let mut whole: Vec<u32> = named.iter().copied().filter(is_whole).collect();
        *damaged += (named.len() - whole.len()) as u64;
        whole.retain(|start| !has_expired(inner, offset_of(start), now));
        session.recover_all(first_bytes, &whole, &|_| 0)
    };
    share_out(&mut states, table.rows.len(), &index, &mut |_| {}).map_err(|_| OpenError::NoRoom)?;
    for row in &table.rows {
        inner.log.allocator().end_restore(row.segment, row.contents);
    }
    let damaged = states.iter().map(|(_, damaged)| damaged).sum();
    states.truncate(1);
    if let Some((session, _)) = states.first_mut() {
        session.end_recovery(version);
    }
    Ok(damaged)
}
