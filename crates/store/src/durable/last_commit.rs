//! The last commit of a log that was not ended cleanly: whether it is on the medium whole.
//!
//! ```text
//!  segment 3          segment 4          segment 7 (a run)
//!  commit 8, 3 rows   commit 8, 3 rows   commit 8, 3 rows    all there, with their entries: whole
//!  commit 8, 3 rows   commit 8, 3 rows   commit 7, 1 row     one is missing: 8 does not count
//! ```
//!
//! A commit writes to several segments, and a process may be killed between two of these writes, or
//! a disk may keep some of what was not synced. If a RENAME's delete of the old name were kept
//! without its put of the new one, the value would be gone, though it was acknowledged long before.
//!
//! # Invariants
//! L1: a commit is written after the one before it was synced. So all commits up to the one that a
//!     row names as synced are whole, the last may be, and those between the two have failed.
//! L2: a recovery that finds the last commit not to be whole writes that into its rows before
//!     anything else is written. So a recovery that is interrupted is followed by one that finds
//!     the same.
//!
//! # References
//! K21; D7 of durable_log.rs; I3 of committer.rs.

use std::ops::Range;

use crate::durable_log::layout::{Row, RowState, Superblock};
use crate::medium::{Medium, MediumError};
use crate::record;

/// What a commit that is not whole has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Torn {
    /// Segments with entries of it.
    pub tails: u64,
    /// The bytes that these have of it by their rows.
    pub bytes: u64,
}

/// Sets the end of each open segment to that of the last commit which is whole. `lost_rows` rows of
/// the log cannot be read.
pub(super) fn settle(
    medium: &impl Medium,
    superblock: &Superblock,
    rows: &mut [Row],
    lost_rows: usize,
) -> Result<Torn, MediumError> {
    let last = rows.iter().map(|row| row.commit.number).max().unwrap_or(0);
    let synced = rows.iter().map(|row| row.commit.synced()).max().unwrap_or(0);
    let mut torn = Torn::default();
    let is_last_whole = is_whole(medium, superblock, rows, (last, lost_rows))?;
    for row in rows.iter_mut().filter(|row| is_counted(row)) {
        let number = row.commit.number;
        let tail_bytes = tail(superblock, row).end.saturating_sub(row.end_bytes);
        if number <= synced || (number == last && is_last_whole) {
            row.end_bytes += tail_bytes;
            continue;
        }
        torn.tails += u64::from(tail_bytes > 0);
        torn.bytes += tail_bytes;
        if number == last {
            row.commit.rows = 0; // L2
        }
    }
    Ok(torn)
}

/// Whether a segment is open and its row says what the last commit has of it.
fn is_counted(row: &Row) -> bool {
    row.state == RowState::Open && row.commit.number > 0
}

/// The bytes of a segment that the commit of its row has written.
fn tail(superblock: &Superblock, row: &Row) -> Range<u64> {
    let capacity = u64::from(row.run_len).saturating_mul(superblock.segment_bytes);
    row.end_bytes..row.commit.end_bytes.min(capacity)
}

/// Whether all rows of the commit with this number are there, and their entries.
fn is_whole(
    medium: &impl Medium,
    superblock: &Superblock,
    rows: &[Row],
    (number, lost_rows): (u64, usize),
) -> Result<bool, MediumError> {
    let of_commit = || rows.iter().enumerate().filter(|(_, row)| row.commit.number == number);
    let count = of_commit().count() + lost_rows;
    if of_commit().any(|(_, row)| row.commit.rows == 0 || row.commit.rows as usize > count) {
        return Ok(false);
    }
    for (segment, row) in of_commit().filter(|(_, row)| is_counted(row)) {
        if !has_entries(medium, superblock, (segment as u32, row))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the bytes that the commit has of a segment are entries from end to end.
fn has_entries(
    medium: &impl Medium,
    superblock: &Superblock,
    (segment, row): (u32, &Row),
) -> Result<bool, MediumError> {
    let Range { start, end } = tail(superblock, row);
    let mut bytes = vec![0; end.saturating_sub(start) as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        let at = start + filled as u64;
        let in_segment = at % superblock.segment_bytes;
        let left = (superblock.segment_bytes - in_segment).min((bytes.len() - filled) as u64);
        let index = segment + (at / superblock.segment_bytes) as u32;
        let piece = &mut bytes[filled..filled + left as usize];
        medium.read_at(superblock.segment_offset(index) + in_segment, piece)?;
        filled += left as usize;
    }
    let seal = superblock.seal_of(row.sequence);
    let mut at = 0;
    while at < bytes.len() {
        match record::decode(&bytes[at..], seal) {
            Ok((_, len_bytes)) => at += len_bytes,
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::durable_log::layout::RowCommit;
    use crate::medium::MemoryMedium;
    use crate::record::{Change, Record};

    const SEGMENT_BYTES: u64 = 65_536;

    fn superblock() -> Superblock {
        Superblock {
            generation: 1,
            segment_bytes: SEGMENT_BYTES,
            segment_count: 5,
            hash_seed: 1,
            created_ms: 0,
            version_floor: 0,
            flush_floor: 0,
            data_id: 5,
            is_clean: false,
            sequence_floor: 0,
        }
    }

    /// Three segments of commit 8, each with an entry of it, and one of commit 7.
    fn written() -> (MemoryMedium, Vec<Row>) {
        let mut medium = MemoryMedium::default();
        let rows = [0, 1, 2, 4].map(|segment| {
            let sequence = u64::from(segment) + 1;
            let mut entry = Vec::new();
            let change = Change::Put { value: b"value", client_flags: 0, expires_at: None };
            let record = Record { key: b"key", change, version: 9, shard: 0 };
            record.encode(superblock().seal_of(sequence), &mut entry).expect("it is short");
            // The last one goes on in the second segment of its run.
            let end_bytes = if segment == 2 { SEGMENT_BYTES - 8 } else { 0 };
            for (at, byte) in (end_bytes..).zip(&entry) {
                let index = segment + (at / SEGMENT_BYTES) as u32;
                let offset = superblock().segment_offset(index) + at % SEGMENT_BYTES;
                medium.write_at(offset, &[*byte]).expect("memory");
            }
            let (number, rows) = if segment == 0 { (7, 1) } else { (8, 3) };
            let after_bytes = end_bytes + entry.len() as u64;
            let commit = RowCommit { number, since_synced: 1, rows, end_bytes: after_bytes };
            let (state, run_len) = (RowState::Open, if segment == 2 { 2 } else { 1 });
            Row { generation: 2, state, run_len, sequence, end_bytes, commit }
        });
        let mut rows = rows.to_vec();
        rows.insert(3, Row::default()); // The rest of the run.
        (medium, rows)
    }

    fn settled(medium: &MemoryMedium, rows: &[Row]) -> (Vec<bool>, Torn) {
        let mut after = rows.to_vec();
        let torn = settle(medium, &superblock(), &mut after, 0).expect("memory");
        let has_tail = |(after, row): (&Row, &Row)| after.end_bytes == row.commit.end_bytes;
        (after.iter().zip(rows).map(has_tail).collect(), torn)
    }

    #[test]
    fn a_commit_counts_if_all_its_rows_and_entries_are_there() {
        let (mut medium, mut rows) = written();
        assert_eq!(settled(&medium, &rows), (vec![true; 5], Torn::default()));
        // A row of it is missing: the one before is there.
        let row = std::mem::take(&mut rows[4]);
        let (tails, bytes) = (2, 2 * row.commit.end_bytes);
        let only_seven = vec![true, false, false, true, true];
        assert_eq!(settled(&medium, &rows), (only_seven, Torn { tails, bytes }));
        // Unless that row was lost later.
        let mut after = rows.clone();
        assert_eq!(settle(&medium, &superblock(), &mut after, 1), Ok(Torn::default()));
        rows[4] = row;
        // An entry is missing.
        medium.write_at(superblock().segment_offset(4) + 3, &[1]).expect("memory");
        assert_eq!(settled(&medium, &rows).0, vec![true, false, false, true, false]);
        // A row knows that the commit was synced: what is damaged is acknowledged.
        rows[1].commit.number = 9;
        assert_eq!(settled(&medium, &rows).0, vec![true, false, true, true, true]);
    }

    #[test]
    fn commits_that_failed_do_not_count() {
        let (medium, mut rows) = written();
        rows[1].commit = RowCommit { number: 9, since_synced: 2, rows: 1, ..rows[1].commit };
        assert_eq!(settled(&medium, &rows).0, vec![true, true, false, true, false], "8 has failed");
    }

    /// L2.
    #[test]
    fn a_second_recovery_finds_what_the_first_one_found() {
        let (mut medium, mut rows) = written();
        medium.write_at(superblock().segment_offset(4) + 3, &[1]).expect("memory");
        let mut first = rows.clone();
        settle(&medium, &superblock(), &mut first, 0).expect("memory");
        // The first one has written down the end of the segment without its entry, no more.
        rows[4] = Row { state: RowState::Closed, ..first[4] };
        assert_eq!(settled(&medium, &rows).0[..3], [true, false, false]);
    }

    #[test]
    fn rows_from_before_rows_recorded_commits_stay_as_they_are() {
        let (medium, mut rows) = written();
        rows.iter_mut().for_each(|row| row.commit = RowCommit::default());
        let before = rows.clone();
        assert_eq!(settle(&medium, &superblock(), &mut rows, 0), Ok(Torn::default()));
        assert_eq!(rows, before);
    }
}
