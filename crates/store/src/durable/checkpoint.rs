//! Checkpoints: the index as of one moment, so that a start need not insert every entry again. The
//! layout is in docs/formats/data-directory.md.
//!
//! ```text
//!  | header | segments: which, sequence, end | words: chains in the order of hashes | checksum |
//!  begin    of each segment, how far it is noted; a new epoch
//!  is_ready every session has passed a quiescent point: what is noted there is published, or dead
//!  collect  chain after chain, while others go on
//!  is_ready once more: what chains showed is noted; then a commit that begins after that
//!  then     all that was seen is on the medium; only then is the checkpoint kept
//! ```
//!
//! A start still reads every segment and checks every entry. Of the entries that a checkpoint
//! covers, it indexes those that the checkpoint names; of all other entries, the highest version of
//! each key. A checkpoint never covers deletes: the start takes all of them into account.
//!
//! # Invariants
//! I1: a checkpoint that is kept names only entries on the medium. If it leaves an entry out, the
//!     entry that superseded it is on the medium too. The waiting of replies does not ensure this,
//!     because the copies that cleaning makes belong to no client (D1).
//! I2: a checkpoint covers one use of a segment, identified by its sequence. If the segment is in
//!     another use, or free, the names in it are void: its live entries were copied to a place that
//!     the checkpoint does not cover.
//! I3: an entry below a covered end that is not named is dead. It was published before `collect`
//!     began, and its successor is named, or is not covered, or is a delete.
//! I4: a checkpoint that does not match the segments read is ignored as a whole.
//!
//! # References
//! Mission R10; D2, D4, D5 of durable_log.rs.

mod apply;
mod format;

use std::sync::Arc;

use base::KeyHash;
use base::sync::Ordering;
use index::hash::Place;
use index::hash::slot::Slot;

use crate::durable_log::Durable;
use crate::inner::Inner;

pub(super) use apply::Applied;
pub use format::CheckpointError;
use format::{ChainWord, Words};

/// The number of chains collected between two quiescent points.
const COLLECT_CHAINS: usize = 256;

/// A use of a segment, and the part of it that a checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The segment; the first of a run.
    pub segment: u32,
    /// The sequence of the use.
    pub sequence: u64,
    /// The bytes of entries covered.
    pub end_bytes: u64,
}

/// The index as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The id of the data file.
    pub data_id: u64,
    /// The seed of the key hash (K26).
    pub hash_seed: u64,
    /// The generation of the superblock; a log with an older one has lost data that the checkpoint
    /// covers.
    pub generation: u64,
    /// The segments in use.
    pub covered: Vec<Covered>,
    /// The number of entries that have slots.
    pub items: u64,
    /// Chains and their slots (`ChainWord`).
    pub words: Vec<u64>,
}

/// Takes checkpoints; any thread may use it.
pub struct Checkpointer {
    inner: Arc<Inner>,
    durable: Arc<Durable>,
    next: Checkpoint,
    tag: Option<u64>,
}

impl Checkpointer {
    pub(super) fn new(inner: &Arc<Inner>, durable: &Arc<Durable>, data_id: u64) -> Checkpointer {
        let next =
            Checkpoint { data_id, hash_seed: inner.config.hash_seed, ..Checkpoint::default() };
        Checkpointer { inner: Arc::clone(inner), durable: Arc::clone(durable), next, tag: None }
    }

    /// Whether this store supports checkpoints: one with a tree does not yet.
    pub fn is_possible(&self) -> bool {
        self.inner.tree.is_none()
    }

    /// First step: records which entries are covered.
    pub fn begin(&mut self) {
        self.next.generation = self.durable.synced_super.load(Ordering::Acquire);
        self.next.covered.clear();
        for (segment, sequence) in self.durable.sequences.iter().enumerate() {
            let before = sequence.load(Ordering::SeqCst);
            // Acquire pairs with `note`: the entries are complete.
            let end_bytes = self.durable.ends[segment].load(Ordering::Acquire);
            // Taken anew meanwhile: a start reads all of it as newer than the checkpoint.
            if before != 0 && sequence.load(Ordering::SeqCst) == before {
                let segment = segment as u32;
                self.next.covered.push(Covered { segment, sequence: before, end_bytes });
            }
        }
        // Entries noted by then have been published, or never will be, once all sessions have
        // passed (I3).
        self.tag = Some(self.inner.epochs.advance());
    }

    /// Second step, repeated until it returns true.
    pub fn is_ready(&self) -> bool {
        self.tag.is_some_and(|tag| self.inner.epochs.is_safe(tag))
    }

    /// Third step: collects the index. `None`: not possible now, because another checkpoint is
    /// being collected or the index has shrunk meanwhile. The caller keeps the result only after a
    /// commit that began when [`Checkpointer::is_ready`] was true again (I1).
    pub fn collect(&mut self) -> Option<Checkpoint> {
        debug_assert!(self.is_ready(), "I3");
        let inner = &self.inner;
        let place = inner.epochs.join_aside()?;
        let mut words = Words::default();
        let (mut next, mut slots, mut count) = (Some(KeyHash(0)), Vec::<Slot>::new(), 0);
        while let Some(hash) = next {
            slots.clear();
            let chain: Place = inner.index.collect(hash, &mut slots);
            if chain.first_hash(hash) != hash {
                // The index has shrunk here meanwhile, and this chain also has entries that were
                // collected already.
                inner.epochs.leave(place);
                return None;
            }
            words.push(chain.shift, &slots);
            next = chain.next_hash(hash);
            count += 1;
            if count % COLLECT_CHAINS == 0 {
                inner.epochs.quiesce(place);
            }
        }
        inner.epochs.leave(place);
        // Entries published by now are noted once all sessions have passed: copies of cleaning too.
        self.tag = Some(inner.epochs.advance());
        let (words, items) = words.end();
        Some(Checkpoint { items, words, ..self.next.clone() })
    }
}

impl Checkpoint {
    /// Calls `visit` for every slot, with the first hash of its chain and the chain's shift.
    ///
    /// # Errors
    /// The words are not chains that cover all hashes.
    pub(super) fn each_slot(
        &self,
        mut visit: impl FnMut(KeyHash, u32, Slot) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let (mut at, mut shift) = (0_u128, 0);
        for word in &self.words {
            let end = 1_u128 << 64;
            match ChainWord::of(*word) {
                ChainWord::Empty { shift: new, count } => {
                    shift = new;
                    at += u128::from(count) << shift;
                    if at > end || at & ((1 << shift) - 1) != 0 {
                        return Err(CheckpointError::Damaged);
                    }
                }
                ChainWord::Slot { slot, is_last } => {
                    if shift == 0 || at >= end {
                        return Err(CheckpointError::Damaged);
                    }
                    visit(KeyHash(at as u64), shift, slot)?;
                    at += u128::from(is_last) << shift;
                }
            }
        }
        (at == 1 << 64).then_some(()).ok_or(CheckpointError::Damaged)
    }
}
