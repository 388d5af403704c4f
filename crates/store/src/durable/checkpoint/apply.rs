//! Restores the index from a checkpoint.
//!
//! ```text
//!  words ─▶ a bit for each entry that is named ─▶ segments are read: is an entry there? is it dead
//!                                                 by a floor? ─▶ words once more ─▶ chains
//! ```

use base::KeyHash;
use base::sync::{AtomicU64, Ordering};
use index::hash::slot::Slot;
use index::hash::{Filler, IndexFull};

use super::super::restore::used_bytes;
use super::{Checkpoint, CheckpointError};
use crate::durable_log::layout::{Row, RowState, Superblock};
use crate::inner::Inner;
use crate::record::ALIGN_BYTES;

/// A checkpoint together with the state of its segments.
pub(in super::super) struct Applied {
    checkpoint: Checkpoint,
    /// For each segment, the bytes covered.
    ends: Vec<u64>,
    /// A bit for each word of the log: set if a named entry starts there.
    named: Box<[AtomicU64]>,
    named_count: u64,
}

impl Applied {
    /// Selects the part of a checkpoint about segments whose use is unchanged (I2).
    pub(in super::super) fn new(
        checkpoint: Checkpoint,
        superblock: &Superblock,
        rows: &[Row],
    ) -> Result<Applied, CheckpointError> {
        let of = (checkpoint.data_id, checkpoint.hash_seed);
        if of != (superblock.data_id, superblock.hash_seed) {
            return Err(CheckpointError::OtherLog);
        }
        if checkpoint.generation > superblock.generation {
            return Err(CheckpointError::LaterLog);
        }
        let mut ends = vec![0; rows.len()];
        for covered in &checkpoint.covered {
            let Some(row) = rows.get(covered.segment as usize) else { continue };
            if row.state == RowState::Free || row.sequence != covered.sequence {
                continue; // I2
            }
            if covered.end_bytes > used_bytes(superblock, row) {
                return Err(CheckpointError::LaterLog);
            }
            ends[covered.segment as usize] = covered.end_bytes;
        }
        let log_bytes = rows.len() as u64 * superblock.segment_bytes;
        let bit_words = log_bytes.div_ceil(ALIGN_BYTES as u64 * 64);
        let named: Box<[AtomicU64]> = (0..bit_words).map(|_| AtomicU64::new(0)).collect();
        let mut named_count = 0;
        checkpoint.each_slot(|_, _, slot| {
            let offset_bytes = slot.offset_bytes();
            let segment = (offset_bytes / superblock.segment_bytes) as usize;
            let at = offset_bytes % superblock.segment_bytes;
            if ends.get(segment).is_some_and(|end| at < *end) {
                let (word, bit) = bit_of(offset_bytes);
                // Relaxed, here and below: one thread at a time uses each word.
                if named[word].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
                    return Err(CheckpointError::Damaged);
                }
                named_count += 1;
            }
            Ok(())
        })?;
        Ok(Applied { checkpoint, ends, named, named_count })
    }

    /// The number of entries that it names in unchanged segments.
    pub(in super::super) fn named_count(&self) -> u64 {
        self.named_count
    }

    /// The bytes of a segment that are covered.
    pub(in super::super) fn end_of(&self, segment: u32) -> u64 {
        self.ends.get(segment as usize).copied().unwrap_or(0)
    }

    pub(in super::super) fn names(&self, offset_bytes: u64) -> bool {
        let (word, bit) = bit_of(offset_bytes);
        // A location beyond the log is in the words of a checkpoint of a larger log.
        self.named.get(word).is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Removes a named entry that is dead by a floor.
    pub(in super::super) fn forget(&self, offset_bytes: u64) {
        let (word, bit) = bit_of(offset_bytes);
        self.named[word].fetch_and(!bit, Ordering::Relaxed);
    }

    /// Inserts the named entries into an index that is empty and large enough.
    pub(in super::super) fn fill(self, inner: &Inner) -> Result<(), IndexFull> {
        let mut filler = inner.index.filler();
        let (mut chain, mut slots) = (KeyHash(0), Vec::<(KeyHash, Slot)>::new());
        let mut is_full = false;
        let filled = self.checkpoint.each_slot(|hash, shift, slot| {
            if hash != chain {
                is_full |= flush(&mut filler, &mut slots).is_err();
                chain = hash;
            }
            if self.names(slot.offset_bytes()) {
                // If one chain is several now, the entries' keys tell them apart.
                let is_finer = inner.index.shift_of(hash) < shift;
                slots.push((if is_finer { hash_of(inner, slot) } else { hash }, slot));
            }
            Ok(())
        });
        is_full |= flush(&mut filler, &mut slots).is_err();
        debug_assert_eq!(filled, Ok(()), "it was walked before");
        if is_full { Err(IndexFull) } else { filler.end() }
    }
}

fn flush(filler: &mut Filler<'_>, slots: &mut Vec<(KeyHash, Slot)>) -> Result<(), IndexFull> {
    slots.sort_by_key(|(hash, _)| *hash);
    slots.drain(..).try_for_each(|(hash, slot)| filler.push(hash, slot))
}

fn hash_of(inner: &Inner, slot: Slot) -> KeyHash {
    // SAFETY: an entry was found there, and no thread frees segments during recovery.
    inner.hasher.hash(unsafe { inner.log.entry(slot.offset_bytes()) }.key())
}

fn bit_of(offset_bytes: u64) -> (usize, u64) {
    let word = offset_bytes / ALIGN_BYTES as u64;
    ((word / 64) as usize, 1 << (word % 64))
}
