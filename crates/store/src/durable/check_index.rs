//! Compares a checkpoint with its log, entry by entry.
//!
//! ```text
//!  entry: named, of its chain and tag     ─┐
//!         behind what is covered, a delete ─┴▶ highest version of each key by the checkpoint
//!         any                              ──▶ the same by the log: are they equal?
//! ```
//!
//! Entries of shards may be named or not, but are not compared: the log does not record which
//! shards are gone.

use std::collections::HashMap;

use base::KeyHash;
use index::hash::slot::{Slot, Tag};

use super::check::CheckpointState;
use super::checkpoint::{Applied, Checkpoint, CheckpointError};
use super::restore;
use crate::durable_log::layout::{Row, Superblock};
use crate::record::Record;

/// A checkpoint's slot for one entry.
struct Slotted {
    offset_bytes: u64,
    /// The chain's first hash; the chain covers two to the power of `shift` hashes.
    first: KeyHash,
    shift: u32,
    slot: Slot,
}

/// The highest versions of a key.
#[derive(Clone, Copy, Default)]
struct Highest {
    by_log: u64,
    by_checkpoint: u64,
}

/// A checkpoint, and the entries of its log seen so far.
pub(super) struct Compared {
    superblock: Superblock,
    state: Result<Option<Applied>, CheckpointError>,
    /// The slots, sorted by place.
    slots: Vec<Slotted>,
    /// Highest versions, by a key's hash.
    highest: HashMap<u64, Highest>,
    found_count: u64,
    covered_bytes: u64,
    misplaced: u64,
}

impl Compared {
    pub(super) fn new(
        checkpoint: Option<Result<Checkpoint, CheckpointError>>,
        superblock: &Superblock,
        rows: &[Row],
    ) -> Compared {
        let mut slots = Vec::new();
        let checked = checkpoint.map(|checkpoint| {
            let checkpoint = checkpoint?;
            checkpoint.each_slot(|first, shift, slot| {
                let offset_bytes = slot.offset_bytes();
                slots.push(Slotted { offset_bytes, first, shift, slot });
                Ok(())
            })?;
            Applied::new(checkpoint, superblock, rows)
        });
        slots.sort_unstable_by_key(|slotted| slotted.offset_bytes);
        Compared {
            superblock: *superblock,
            state: checked.transpose(),
            slots,
            highest: HashMap::new(),
            found_count: 0,
            covered_bytes: 0,
            misplaced: 0,
        }
    }

    /// Takes in a valid entry.
    pub(super) fn see(&mut self, record: &Record<'_>, hash: KeyHash, (segment, at): (u32, u64)) {
        let Ok(Some(applied)) = &self.state else { return };
        let offset_bytes = u64::from(segment) * self.superblock.segment_bytes + at;
        let is_covered = at < applied.end_of(segment);
        let is_named = is_covered && applied.names(offset_bytes);
        if is_covered {
            self.covered_bytes += record.len_bytes() as u64;
        }
        if is_named && !record.is_delete() {
            self.found_count += 1;
            let place =
                self.slots.binary_search_by_key(&offset_bytes, |slotted| slotted.offset_bytes);
            let is_its_own = place.is_ok_and(|place| {
                let &Slotted { first, shift, slot, .. } = &self.slots[place];
                let is_of_chain = shift >= 64 || hash.0 >> shift == first.0 >> shift;
                is_of_chain && slot.has_tag(Tag::of(hash))
            });
            self.misplaced += u64::from(!is_its_own);
        }
        if record.shard != 0 || restore::is_flushed(record, &self.superblock) {
            return;
        }
        let highest = self.highest.entry(hash.0).or_default();
        highest.by_log = highest.by_log.max(record.version);
        if is_named || !is_covered || record.is_delete() {
            highest.by_checkpoint = highest.by_checkpoint.max(record.version);
        }
    }

    /// Returns the result, once the whole log was read.
    pub(super) fn end(self) -> CheckpointState {
        let applied = match self.state {
            Ok(None) => return CheckpointState::None,
            Ok(Some(applied)) => applied,
            Err(error) => return CheckpointState::Unusable(error),
        };
        let (named, found) = (applied.named_count(), self.found_count);
        if named != found {
            return CheckpointState::Unusable(CheckpointError::Misfit { named, found });
        }
        let differ = |highest: &&Highest| highest.by_log != highest.by_checkpoint;
        let wrong = self.highest.values().filter(differ).count() as u64 + self.misplaced;
        match wrong {
            0 => CheckpointState::Good { named, covered_bytes: self.covered_bytes },
            keys => CheckpointState::Wrong { keys },
        }
    }
}
