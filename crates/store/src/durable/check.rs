//! Verification of a data file without opening it as a store: `dovetail check`.

use std::collections::HashMap;

use base::KeyHasher;

use super::check_index::Compared;
use super::checkpoint::{Checkpoint, CheckpointError};
use super::open::{DataError, refuse_truncated};
use super::restore::{self, Recovery, Rows};
use crate::durable_log::layout::{NoSuper, RowState, Superblock};
use crate::medium::Medium;

/// The contents of a data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The superblock as stored.
    pub superblock: Superblock,
    /// Entries, torn tails and damage.
    pub found: Recovery,
    /// The number of free segments.
    pub free_segments: u64,
    /// The number of segments that were being written when the file was last used.
    pub open_segments: u64,
    /// The number of full segments, tails of runs among them.
    pub closed_segments: u64,
    /// Bytes of entries that are the newest of their key and have a value.
    pub live_bytes: u64,
    /// Keys whose newest entry has expired.
    pub expired: u64,
    /// The next start's treatment of the checkpoint.
    pub checkpoint: CheckpointState,
}

/// The state of a checkpoint compared with its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointState {
    /// There is none.
    None,
    /// The next start removes it and builds the index from the log.
    Unusable(CheckpointError),
    /// The next start uses it, and gets the same index as from the log.
    Good {
        /// Entries that it names, in segments that are unchanged.
        named: u64,
        /// Bytes of entries that it covers; entries behind them are indexed one by one.
        covered_bytes: u64,
    },
    /// The next start would use it, and miss or misread this many keys: a bug of the program that
    /// wrote it, since every checksum is right.
    Wrong {
        /// The number of keys.
        keys: u64,
    },
}

/// The newest entry of a key.
#[derive(Clone, Copy, Default)]
struct Newest {
    version: u64,
    len_bytes: u64,
    is_put: bool,
    has_value: bool,
}

/// Reads the whole file and changes nothing.
///
/// # Errors
/// The file is no data file, has another format, or cannot be read.
pub fn check(
    medium: &impl Medium,
    now_ms: u64,
    checkpoint: Option<Result<Checkpoint, CheckpointError>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, DataError> {
    let read = |source| DataError::Medium { what: "cannot read", source };
    let superblock = Superblock::read(medium).map_err(|error| match error {
        NoSuper::Empty | NoSuper::Damaged => DataError::NoSuperblock,
        NoSuper::Format(found) => DataError::Format { found },
        NoSuper::Medium(source) => read(source),
    })?;
    refuse_truncated(medium, &superblock)?;
    let Rows { rows, damage, torn } = restore::read_rows(medium, &superblock).map_err(read)?;
    let mut found = Recovery { damage, ..Recovery::new(&superblock, torn) };
    let hasher = KeyHasher::new(superblock.hash_seed);
    let mut keys: HashMap<u64, Newest> = HashMap::new();
    let mut compared = Compared::new(checkpoint, &superblock, &rows);
    let (mut open_segments, mut closed_segments) = (0, 0);
    for (segment, row) in rows.iter().enumerate() {
        progress(segment as u64, rows.len() as u64);
        let segment = segment as u32;
        match row.state {
            RowState::Free => continue,
            RowState::Open => open_segments += u64::from(row.run_len),
            RowState::Closed => closed_segments += u64::from(row.run_len),
        }
        found.segments += 1;
        let mut bytes = vec![0; restore::used_bytes(&superblock, row) as usize];
        restore::read_segment(medium, &superblock, segment, &mut bytes).map_err(read)?;
        let looked =
            restore::look(&superblock, (segment, row), &mut bytes, &mut found, |record, at| {
                let hash = hasher.hash(record.key);
                compared.see(record, hash, (segment, at as u64));
                let newest = keys.entry(hash.0).or_default();
                let is_newer = record.version > newest.version
                    || (record.version == newest.version && record.is_delete());
                if is_newer && !restore::is_flushed(record, &superblock) {
                    *newest = Newest {
                        version: record.version,
                        len_bytes: record.len_bytes() as u64,
                        is_put: !record.is_delete(),
                        has_value: restore::has_value(record, now_ms),
                    };
                }
            });
        found.damage.extend(looked.damage);
    }
    progress(rows.len() as u64, rows.len() as u64);
    let checkpoint = compared.end();
    let live = keys.values().filter(|newest| newest.has_value);
    let (items, live_bytes) =
        live.fold((0, 0), |(items, bytes), newest| (items + 1, bytes + newest.len_bytes));
    found.items = items;
    let expired = keys.values().filter(|newest| newest.is_put && !newest.has_value).count() as u64;
    let used = open_segments + closed_segments;
    Ok(Report {
        superblock,
        found,
        free_segments: u64::from(superblock.segment_count).saturating_sub(used),
        open_segments,
        closed_segments,
        live_bytes,
        expired,
        checkpoint,
    })
}
