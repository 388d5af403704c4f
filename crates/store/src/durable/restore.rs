//! Recovery from the medium: reads every segment that was in use into memory and checks each entry.
//!
//! ```text
//!  row says:  | entries up to end_bytes, synced |  more: those of the row's commit  |
//!  damage     is lost data: refuse, or          |  one of its rows or entries is missing: the
//!             recover what is behind it         |  commit was not acknowledged, none of it counts
//! ```
//!
//! # Invariants
//! I1: every acknowledged entry is of a commit that is on the medium whole, and no entry of another
//!     one counts (last_commit.rs). In a segment whose row is from before rows recorded their
//!     commit, the first damage beyond `end_bytes` is the end.
//! I2: recovery writes down the end of a recovered tail before anything is appended elsewhere, so a
//!     second recovery ends at the same entry.

use std::collections::BTreeSet;

use super::checkpoint::CheckpointError;
use super::last_commit::{self, Torn};
use crate::durable_log::layout::{Row, RowState, Superblock};
use crate::medium::{Medium, MediumError};
use crate::record::{self, Change, Seal, VERSION_MASK};

/// Bytes that should be entries and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: u32,
    /// The offset in the file of the damaged entries, or else of the row.
    pub file_offset: u64,
    /// The bytes up to the next valid entry.
    pub len_bytes: u64,
    /// A description of the damage.
    pub reason: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Damage { segment, file_offset, len_bytes, reason } = self;
        write!(f, "segment {segment}, {len_bytes} bytes at {file_offset} of the file: {reason}")
    }
}

/// The use made of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UsedCheckpoint {
    /// There was none.
    #[default]
    None,
    /// It was used.
    Used {
        /// Items that it named and that were found.
        items: u64,
    },
    /// It was not used: every entry was indexed as without it.
    Ignored(CheckpointError),
}

impl UsedCheckpoint {
    /// The number of items that got their slots from it.
    pub fn items(&self) -> u64 {
        match self {
            UsedCheckpoint::Used { items } => *items,
            UsedCheckpoint::None | UsedCheckpoint::Ignored(_) => 0,
        }
    }
}

/// The results of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the last server had shut down cleanly.
    pub was_clean: bool,
    /// The number of threads that read.
    pub threads: usize,
    /// The use made of the checkpoint.
    pub checkpoint: UsedCheckpoint,
    /// Segments in use.
    pub segments: u64,
    /// Entries, deletes among them.
    pub entries: u64,
    /// Deletes.
    pub deletes: u64,
    /// Bytes of entries.
    pub entry_bytes: u64,
    /// Keys with a value.
    pub items: u64,
    /// Segments whose last entries do not count, none of them acknowledged.
    pub torn_tails: u64,
    /// The bytes of those tails.
    pub torn_bytes: u64,
    /// The data lost; empty unless recovery of a damaged log was requested.
    pub damage: Vec<Damage>,
    /// The highest version found.
    pub newest_version: u64,
}

/// One segment's entries, in order.
pub(super) struct Found {
    /// The end of the last entry.
    pub end: usize,
    /// Damage in the synced part.
    pub damage: Vec<Damage>,
    /// Bytes behind the end from a commit that did not finish.
    pub torn_bytes: usize,
}

/// Checks a segment's bytes and removes the seals of its valid entries; counts in `tally`.
pub(super) fn look(
    superblock: &Superblock,
    (segment, row): (u32, &Row),
    bytes: &mut [u8],
    tally: &mut Recovery,
    mut visit: impl FnMut(&record::Record<'_>, usize),
) -> Found {
    let seal = superblock.seal_of(row.sequence);
    let synced = usize::try_from(row.end_bytes).unwrap_or(usize::MAX).min(bytes.len());
    let mut found = Found { end: 0, damage: Vec::new(), torn_bytes: 0 };
    let mut at = 0;
    while at < bytes.len() {
        match record::decode(&bytes[at..], seal) {
            Ok((record, len_bytes)) => {
                tally.entries += 1;
                tally.entry_bytes += len_bytes as u64;
                tally.deletes += u64::from(record.is_delete());
                tally.newest_version = tally.newest_version.max(record.version & VERSION_MASK);
                visit(&record, at);
                // The bytes are in the cache now, and are never read again with their seal.
                for (byte, seal) in bytes[at..].iter_mut().zip(seal.0.to_le_bytes()) {
                    *byte ^= seal;
                }
                at += len_bytes;
                found.end = at;
            }
            Err(damage) if at < synced => {
                let next = next_entry(bytes, at, seal).unwrap_or(bytes.len());
                let len_bytes = next.min(synced.max(at + 8)) - at;
                found.damage.push(Damage {
                    segment,
                    file_offset: superblock.segment_offset(segment) + at as u64,
                    len_bytes: len_bytes as u64,
                    reason: damage.to_string(),
                });
                at = next;
            }
            Err(_) => {
                // I1: valid entries behind it were written by a commit that did not finish.
                let last = last_entry_end(bytes, at, seal);
                found.torn_bytes = last.map_or(0, |end| end - at);
                tally.torn_tails += u64::from(last.is_some());
                tally.torn_bytes += found.torn_bytes as u64;
                break;
            }
        }
    }
    found
}

/// The next place behind `at` with a valid entry.
fn next_entry(bytes: &[u8], at: usize, seal: Seal) -> Option<usize> {
    let mut places = (at + 8..bytes.len()).step_by(8);
    places.find(|place| record::decode(&bytes[*place..], seal).is_ok())
}

/// The end of the last valid entry behind `at`.
fn last_entry_end(bytes: &[u8], at: usize, seal: Seal) -> Option<usize> {
    let (mut at, mut last) = (at, None);
    while let Some(next) = next_entry(bytes, at, seal) {
        at = next;
        while let Ok((_, len_bytes)) = record::decode(&bytes[at..], seal) {
            at += len_bytes;
            if at >= bytes.len() {
                return Some(at);
            }
        }
        last = Some(at);
    }
    last
}

impl Recovery {
    /// The result before the first segment.
    pub(super) fn new(superblock: &Superblock, torn: Torn) -> Recovery {
        let Torn { tails, bytes } = torn;
        let was_clean = superblock.is_clean;
        Recovery { was_clean, torn_tails: tails, torn_bytes: bytes, ..Recovery::default() }
    }

    /// Adds the results for one segment.
    pub(super) fn add(&mut self, tally: &Recovery) {
        self.entries += tally.entries;
        self.entry_bytes += tally.entry_bytes;
        self.deletes += tally.deletes;
        self.torn_tails += tally.torn_tails;
        self.torn_bytes += tally.torn_bytes;
        self.newest_version = self.newest_version.max(tally.newest_version);
    }
}

/// The bytes of a used segment, or run, that may be entries.
pub(super) fn used_bytes(superblock: &Superblock, row: &Row) -> u64 {
    match row.state {
        RowState::Free => 0,
        RowState::Open if row.commit.number == 0 => {
            u64::from(row.run_len) * superblock.segment_bytes
        }
        RowState::Open | RowState::Closed => row.end_bytes,
    }
}

/// Reads a segment, piece by piece.
pub(super) fn read_segment(
    medium: &impl Medium,
    superblock: &Superblock,
    segment: u32,
    bytes: &mut [u8],
) -> Result<(), MediumError> {
    for (index, piece) in bytes.chunks_mut(superblock.segment_bytes as usize).enumerate() {
        medium.read_at(superblock.segment_offset(segment + index as u32), piece)?;
    }
    Ok(())
}

/// All rows of a medium.
pub(super) struct Rows {
    /// With the ends that the last whole commit gave them.
    pub rows: Vec<Row>,
    /// Invalid rows, overlapping runs, and an end that is cut off.
    pub damage: Vec<Damage>,
    /// What is left of a commit that is not whole.
    pub torn: Torn,
}

/// Reads all rows.
pub(super) fn read_rows(
    medium: &impl Medium,
    superblock: &Superblock,
) -> Result<Rows, MediumError> {
    let (mut rows, mut damage) = (Vec::new(), Vec::new());
    let mut sequences = BTreeSet::new();
    let mut taken_to = 0;
    let segment_count = superblock.segment_count;
    for segment in 0..segment_count {
        let found = superblock.read_row(medium, segment)?;
        let is_used = |row: &Row| row.state != RowState::Free;
        let row = found.filter(|row| {
            let end = segment.checked_add(row.run_len).filter(|end| *end <= segment_count);
            let capacity = u64::from(row.run_len).saturating_mul(superblock.segment_bytes);
            let is_sane = row.run_len > 0 && end.is_some() && row.end_bytes <= capacity;
            !is_used(row) || (is_sane && row.sequence > 0 && segment >= taken_to)
        });
        // Two uses never have the same sequence: one of these rows is not as written.
        let row = row.filter(|row| !is_used(row) || sequences.insert(row.sequence));
        match row {
            Some(row) => {
                taken_to = if is_used(&row) { segment + row.run_len } else { taken_to };
                rows.push(row);
            }
            None => {
                damage.push(Damage {
                    segment,
                    file_offset: superblock.segment_offset(segment) - 4096,
                    len_bytes: superblock.segment_bytes,
                    reason: "the row that says what the segment holds".to_owned(),
                });
                rows.push(Row::default());
            }
        }
    }
    let unread_rows = damage.len();
    let lost_rows = unread_rows + find_cut(medium, superblock, &mut damage)?;
    let torn = last_commit::settle(medium, superblock, &mut rows, lost_rows)?;
    Ok(Rows { rows, damage, torn })
}

/// Adds the missing end of a file that was cut off; returns how many segments have lost their rows.
fn find_cut(
    medium: &impl Medium,
    superblock: &Superblock,
    damage: &mut Vec<Damage>,
) -> Result<usize, MediumError> {
    let (len_bytes, wanted_bytes) = (medium.len_bytes()?, superblock.file_bytes());
    let is_beyond = |segment: &u32| superblock.segment_offset(*segment) > len_bytes;
    let beyond = (0..superblock.segment_count).filter(is_beyond).count();
    if len_bytes < wanted_bytes && superblock.segment_count > 0 {
        damage.push(Damage {
            segment: superblock.segment_count - beyond.max(1) as u32,
            file_offset: len_bytes,
            len_bytes: wanted_bytes - len_bytes,
            reason: "the end of the file is cut off".to_owned(),
        });
    }
    Ok(beyond)
}

/// Whether a record is deleted by a flush.
pub(super) fn is_flushed(record: &record::Record<'_>, superblock: &Superblock) -> bool {
    record.version <= superblock.flush_floor
}

/// Whether a record has an expiry.
pub(super) fn has_expiry(record: &record::Record<'_>) -> bool {
    matches!(record.change, Change::Put { expires_at: Some(_), .. })
}

/// Whether a record has a value at `now_ms`.
pub(super) fn has_value(record: &record::Record<'_>, now_ms: u64) -> bool {
    match record.change {
        Change::Put { expires_at, .. } => expires_at.is_none_or(|at| at.0 > now_ms),
        Change::Delete { .. } => false,
    }
}
