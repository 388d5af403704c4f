//! A backup of a log while a server keeps writing it: the backup reads the file from a separate
//! process, without contacting the server.
//!
//! ```text
//!  P0: all rows ─ t* ─ P1: all rows ─▶ segments in use ─▶ P2: all rows ─▶ rows, superblock, sync
//!  ▲ was anything freed from P0 to P1, or until P2 of what is copied? │
//!  └──────────────────────── again, with what is held ────────────────────┘
//! ```
//!
//! # Invariants
//! I1: every segment in use at t*, a moment between P0 and P1, is in use in P1. If P0 saw a segment
//!     in use, P1 sees the same use of it. If P0 saw it free, it stayed free or was taken since. If
//!     it had been freed and taken again in between, its row would have been written three times,
//!     each time after a sync, and its generation would be higher by three.
//! I2: each of these segments was read after P1 and before P2 saw it still in use; or it was read
//!     earlier, and was already closed then under the same row. A segment's bytes are not
//!     overwritten before its row says free.
//! I3: so the copy has everything that the log had at t*, and possibly some later entries. Every
//!     write acknowledged before the backup began had been written to the file by then, so it is in
//!     the copy. This includes deletes: they and the entries they supersede are copied as of t*.
//! I4: if P0 and P1 know the same commit as synced, all rows of the commits up to it were final
//!     before P1, and P1's other rows are of one commit more. Then the copy has whole commits alone
//!     (last_commit.rs), so no RENAME of that time is in it in part.
//!
//! # Trade-offs
//! When cleaning frees segments all the time, the first rounds fail. Each later round reads only
//! new segments, so the last ones take as long as one pass over all rows. A server could hold
//! cleaning back instead, but then a slow backup would fill its memory. Where commits follow each
//! other so fast that no two passes know the same one as synced, the copy is without I4.

use super::last_commit;
use super::open::DataError;
use crate::durable_log::layout::{NoSuper, Row, RowCommit, RowState, Superblock};
use crate::medium::{Medium, MediumError};

/// The number of rounds after which a backup gives up.
const ROUNDS_MAX: u32 = 200;
/// The number of rounds after which a copy may have a part of a commit.
const WHOLE_ROUNDS_MAX: u32 = 50;
/// The number of row writes from one free state of a segment through a whole use to the next use.
const GENERATIONS_OF_A_LIFE: u64 = 3;

/// Statistics of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Segments in use; a run counts as one.
    pub segments: u64,
    /// Bytes read and written, including those of earlier rounds.
    pub bytes: u64,
    /// Rounds: passes over all rows and the new segments.
    pub rounds: u32,
    /// Whether the copy may have a part of a write on several keys that was made meanwhile: no
    /// moment between two commits was found.
    pub has_parts: bool,
}

/// Copies the log in `source` into the empty `target`. `progress` is called with the number of
/// segments done and their total; it may take its time.
///
/// # Errors
/// The source is no log or cannot be read, the target cannot be written, or segments are freed
/// faster than they are read.
pub fn backup(
    source: &impl Medium,
    target: &mut impl Medium,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Copied, DataError> {
    let mut held: Vec<Row> = Vec::new();
    let mut copied = Copied::default();
    for _ in 0..ROUNDS_MAX {
        copied.rounds += 1;
        let Some((superblock, rows)) = round(source, target, &mut held, &mut copied, progress)?
        else {
            continue;
        };
        return finish(target, superblock, &rows, &mut copied)
            .map_err(failed("cannot write the copy"));
    }
    Err(DataError::Restless { rounds: ROUNDS_MAX })
}

fn failed(what: &'static str) -> impl Fn(MediumError) -> DataError {
    move |source| DataError::Medium { what, source }
}

/// One round. Returns the superblock and rows of a valid copy, or `None`.
fn round(
    source: &impl Medium,
    target: &mut impl Medium,
    held: &mut Vec<Row>,
    copied: &mut Copied,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<(Superblock, Vec<Row>)>, DataError> {
    let superblock = read_superblock(source)?;
    let may_have_parts = copied.rounds > WHOLE_ROUNDS_MAX;
    let looked = look(source, &superblock, may_have_parts)?;
    let Some((rows, has_parts)) = looked else { return Ok(None) };
    copied.has_parts = has_parts;
    held.resize(rows.len(), Row::default());
    let used = rows.iter().filter(|row| row.state != RowState::Free).count() as u64;
    let mut done = 0;
    for (segment, row) in rows.iter().enumerate() {
        if row.state == RowState::Free {
            continue;
        }
        if held[segment] != *row || row.state == RowState::Open {
            held[segment] = Row::default();
            copied.bytes += copy_segment(source, target, &superblock, segment as u32, row)?;
            held[segment] = *row;
        }
        done += 1;
        progress(done, used);
    }
    let Some(after) = all_rows(source, &superblock)? else { return Ok(None) };
    let stayed = rows.iter().zip(&after).all(|(row, after)| {
        row.state == RowState::Free
            || (after.state != RowState::Free && after.sequence == row.sequence)
    });
    let last = read_superblock(source)?;
    // A flush between the two looks would be copied in part: its floor, and entries from before it.
    let is_same = last.flush_floor == superblock.flush_floor && last.data_id == superblock.data_id;
    copied.segments = used;
    Ok((stayed && is_same).then_some((last, rows)))
}

/// The rows at a moment between two passes over all of them, with the ends of the last whole
/// commit; and whether they lack these (I4), which they may if `may_have_parts`. `None`: a segment
/// was freed meanwhile, or the passes know different commits.
fn look(
    source: &impl Medium,
    superblock: &Superblock,
    may_have_parts: bool,
) -> Result<Option<(Vec<Row>, bool)>, DataError> {
    let (before, rows) = (all_rows(source, superblock)?, all_rows(source, superblock)?);
    let (Some(before), Some(mut rows)) = (before, rows) else { return Ok(None) };
    if !before.iter().zip(&rows).all(|(before, row)| may_follow(before, row)) {
        return Ok(None);
    }
    let has_parts = synced_commit(&before) != synced_commit(&rows);
    if has_parts {
        rows.iter_mut().for_each(|row| row.commit = RowCommit::default());
    } else {
        last_commit::settle(source, superblock, &mut rows, 0).map_err(failed("cannot read"))?;
    }
    Ok((may_have_parts || !has_parts).then_some((rows, has_parts)))
}

/// The last commit that a row knows as synced.
fn synced_commit(rows: &[Row]) -> u64 {
    rows.iter().map(|row| row.commit.synced()).max().unwrap_or(0)
}

/// Whether a row can be the next state of a segment that was not freed in between (I1).
fn may_follow(before: &Row, row: &Row) -> bool {
    match (before.state, row.state) {
        (RowState::Free, RowState::Free) => before == row,
        (RowState::Free, _) => row.generation < before.generation + GENERATIONS_OF_A_LIFE,
        (_, RowState::Free) => false,
        _ => before.sequence == row.sequence,
    }
}

fn read_superblock(source: &impl Medium) -> Result<Superblock, DataError> {
    Superblock::read(source).map_err(|error| match error {
        NoSuper::Empty | NoSuper::Damaged => DataError::NoSuperblock,
        NoSuper::Format(found) => DataError::Format { found },
        NoSuper::Medium(error) => failed("cannot read")(error),
    })
}

/// The rows of all segments; `None` if one cannot be read, for example while it is being written.
fn all_rows(source: &impl Medium, superblock: &Superblock) -> Result<Option<Vec<Row>>, DataError> {
    let rows = (0..superblock.segment_count).map(|segment| superblock.read_row(source, segment));
    rows.collect::<Result<Option<Vec<Row>>, MediumError>>().map_err(failed("cannot read"))
}

/// Copies the bytes of a segment that may be entries. Returns their number.
fn copy_segment(
    source: &impl Medium,
    target: &mut impl Medium,
    superblock: &Superblock,
    segment: u32,
    row: &Row,
) -> Result<u64, DataError> {
    let all = super::restore::used_bytes(superblock, row);
    let (mut left, mut bytes) = (all, Vec::new());
    let mut index = segment;
    while left > 0 {
        bytes.resize(left.min(superblock.segment_bytes) as usize, 0);
        left -= bytes.len() as u64;
        let offset = superblock.segment_offset(index);
        source.read_at(offset, &mut bytes).map_err(failed("cannot read"))?;
        // Bytes never written stay a hole.
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        target.write_at(offset, &bytes[..end]).map_err(failed("cannot write the copy"))?;
        index += 1;
    }
    Ok(all)
}

/// Writes the rows and the superblock of the copy, and syncs it.
fn finish(
    target: &mut impl Medium,
    superblock: Superblock,
    rows: &[Row],
    copied: &mut Copied,
) -> Result<Copied, MediumError> {
    for (segment, row) in rows.iter().enumerate() {
        if row.state != RowState::Free {
            // What `look` has settled is final.
            let is_settled = row.commit.number > 0;
            let state = if is_settled { RowState::Closed } else { row.state };
            let commit = RowCommit::default();
            superblock.write_row(target, segment as u32, &mut Row { state, commit, ..*row })?;
        }
    }
    // The file gets its length but not its blocks: a start allocates them.
    if let Some(last) = superblock.file_bytes().checked_sub(1) {
        let mut byte = [0];
        target.read_at(last, &mut byte)?;
        target.write_at(last, &byte)?;
    }
    let mut superblock = Superblock { is_clean: false, ..superblock };
    superblock.write(target)?;
    target.sync()?;
    Ok(*copied)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn row(state: RowState, generation: u64, sequence: u64) -> Row {
        Row { generation, state, sequence, run_len: 1, ..Row::default() }
    }

    #[test]
    fn what_was_freed_in_between_is_noticed() {
        use RowState::{Closed, Free, Open};
        let free = row(Free, 4, 9);
        assert!(may_follow(&free, &free));
        assert!(may_follow(&free, &row(Open, 5, 20)));
        assert!(may_follow(&free, &row(Closed, 6, 20)));
        // Taken, freed, and taken again.
        assert!(!may_follow(&free, &row(Open, 7, 21)));
        // Taken and freed.
        assert!(!may_follow(&free, &row(Free, 6, 20)));
        let open = row(Open, 5, 20);
        assert!(may_follow(&open, &row(Closed, 90, 20)));
        assert!(!may_follow(&open, &row(Free, 6, 20)));
        assert!(!may_follow(&open, &row(Open, 8, 21)));
    }
}
