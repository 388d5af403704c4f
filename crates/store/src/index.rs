//! The hash index: chains of one-line buckets that name entries of the log.
//!
//! ```text
//!  hash ──high bits──▶ head bucket ──slot 6 is a link──▶ overflow bucket ──▶ ...
//!       └─low 16 bits: tag, matched against seven slots at once
//! ```
//!
//! Bucket ids below `head_count` are heads, the rest is the pool of overflow buckets. Heads are
//! chosen by multiplication, so bucket order is hash order (K9), and their number is a multiple of
//! the partitions', so that a chain lies in one partition (K5).
//!
//! # Invariants
//! I1: under a chain's lock each key has at most one entry slot in it.
//! I2: links form no cycle; an overflow bucket is in one chain, on the free list, or retired.
//! I3: an overflow bucket that left its chain keeps its slots until no reader can be in it.
//! I4: all keys of a chain have the same partition (K5, decision 0016).
//!
//! # Concurrency
//! Readers take no lock: [`Index::find`] is wait-free on a hit, and a miss looks again when the
//! head's word has moved or is locked (K9). Writers hold the chain's lock ([`Chain`]); each
//! change is a single Release store of one slot, or two in an order that shows an entry twice
//! rather than not at all:
//!  1. insert into a full chain: fill the new bucket, then replace slot 6 by the link. A reader
//!     sees the old slot 6, or the link to a bucket that repeats it.
//!  2. remove with overflow: copy the last entry into the hole, then clear its old place. A reader
//!     that passed the hole before the copy and the place after the clearing misses, and looks
//!     again because the word moved.
//!
//! # References
//! MICA §4.1 and Minos §4.2 (tags, one-line buckets, overflow buckets).

mod bucket;
mod chain;
mod memory;
mod pool;
pub(crate) mod slot;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod tags;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use base::sync::{Backoff, Ordering, fence};
use base::{KeyHash, PartitionBits};

use bucket::View;
pub(crate) use bucket::{LINK_SLOT, SLOTS, Word};
pub(crate) use chain::{Chain, IndexFull};
use memory::BucketMemory;
use pool::Pool;
use slot::{Slot, Tag};

/// Bytes of one bucket.
pub(crate) const BUCKET_BYTES: u64 = 64;
/// Of all buckets, one in this many is an overflow bucket, unless the index is lossy.
const POOL_SHARE: u64 = 4;

/// Where an entry's slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub bucket: u32,
    pub index: usize,
    pub slot: Slot,
}

/// The index's buckets and the pool of the free ones.
pub(crate) struct Index {
    memory: BucketMemory,
    head_count: u32,
    partition_bits: PartitionBits,
    pool: Pool,
}

impl Index {
    /// An empty index of at most `bytes`.
    pub(crate) fn new(bytes: u64, lossy: bool) -> std::io::Result<Index> {
        // Bucket ids are 32 bits: 256 GiB of index.
        let bucket_count = u32::try_from((bytes / BUCKET_BYTES).max(8)).unwrap_or(u32::MAX);
        let pool_count = if lossy { 0 } else { bucket_count / POOL_SHARE as u32 };
        let partition_bits = PartitionBits::for_heads(bucket_count - pool_count);
        // What is beyond the last whole partition joins the pool, if there is one (I4).
        let head_count = partition_bits.whole(bucket_count - pool_count);
        let bucket_count = if lossy { head_count } else { bucket_count };
        Ok(Index {
            memory: BucketMemory::new(bucket_count)?,
            head_count,
            partition_bits,
            pool: Pool::new(head_count, bucket_count),
        })
    }

    pub(crate) fn head_count(&self) -> u32 {
        self.head_count
    }

    /// How many bits of a hash name its partition (I4).
    pub(crate) fn partition_bits(&self) -> PartitionBits {
        self.partition_bits
    }

    /// Bytes of heads, and of overflow buckets that are in chains or waiting to be reused.
    pub(crate) fn used_bytes(&self) -> u64 {
        (u64::from(self.head_count) + self.pool.used_count()) * BUCKET_BYTES
    }

    pub(crate) fn memory(&self) -> &BucketMemory {
        &self.memory
    }

    /// The head bucket of a key's chain.
    #[inline]
    pub(crate) fn head_of(&self, hash: KeyHash) -> u32 {
        ((u128::from(hash.0) * u128::from(self.head_count)) >> 64) as u32
    }

    #[inline]
    pub(crate) fn prefetch(&self, bucket: u32) {
        crate::prefetch::line(std::ptr::from_ref(&self.memory[bucket]).cast());
    }

    /// The second bucket of a chain that has one; a hint, like every look without the lock.
    #[inline]
    pub(crate) fn overflow_of(&self, head: u32) -> Option<u32> {
        self.memory[head].slot(LINK_SLOT).linked_bucket()
    }

    /// The head's word, for readers of several keys (K11).
    pub(crate) fn word(&self, head: u32) -> Word {
        self.memory[head].word()
    }

    /// A bit for each slot of one bucket whose tag is `tag`: a hint, as for every reader.
    #[inline]
    pub(crate) fn match_tag(&self, at: u32, tag: Tag) -> u32 {
        self.memory[at].match_tag(tag, View::Shared)
    }

    /// [`Index::match_tag`] for callers that are compiled for AVX2.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    pub(crate) unsafe fn match_tag_avx2(&self, at: u32, tag: Tag) -> u32 {
        self.memory[at].match_tag_avx2(tag)
    }

    /// A first guess at a key's slot, from one bucket: what is worth prefetching.
    #[inline]
    pub(crate) fn guess(&self, at: u32, tag: Tag) -> Option<Position> {
        let found = self.match_tag(at, tag);
        if found == 0 {
            return None;
        }
        let index = found.trailing_zeros() as usize;
        let slot = self.memory[at].slot(index);
        slot.has_tag(tag).then_some(Position { bucket: at, index, slot })
    }

    /// The slot as it is now.
    #[inline]
    pub(crate) fn slot_at(&self, bucket: u32, index: usize) -> Slot {
        self.memory[bucket].slot(index)
    }

    /// Finds the entry that `is_key` accepts among those with `tag`. Wait-free when it is there;
    /// a miss is believed only if the chain did not change while it was searched (K9).
    #[inline]
    pub(crate) fn find(
        &self,
        head: u32,
        tag: Tag,
        mut is_key: impl FnMut(Slot) -> bool,
    ) -> Option<Position> {
        let mut backoff = Backoff::new();
        loop {
            let before = self.memory[head].word();
            if let Some(position) = self.find_once(head, tag, View::Shared, &mut is_key) {
                return Some(position);
            }
            // The fence keeps the loads of tags above before this load of the word.
            fence(Ordering::Acquire);
            if !before.is_locked() && self.memory[head].word() == before {
                return None;
            }
            backoff.snooze();
        }
    }

    #[inline]
    fn find_once(
        &self,
        head: u32,
        tag: Tag,
        view: View,
        is_key: &mut impl FnMut(Slot) -> bool,
    ) -> Option<Position> {
        let mut at = head;
        loop {
            let bucket = &self.memory[at];
            let mut found = bucket.match_tag(tag, view);
            while found != 0 {
                let index = found.trailing_zeros() as usize;
                found &= found - 1;
                let slot = bucket.slot(index);
                if slot.has_tag(tag) && is_key(slot) {
                    return Some(Position { bucket: at, index, slot });
                }
            }
            at = bucket.slot(LINK_SLOT).linked_bucket()?;
        }
    }

    /// Adds an access mark to the slot if it has fewer than `limit` (K13).
    #[inline]
    pub(crate) fn mark(&self, position: Position, limit: u64) {
        let marks = position.slot.marks();
        if marks < limit {
            self.memory[position.bucket].try_mark(position.index, position.slot, marks + 1);
        }
    }

    /// Locks the chain of `head` for a change.
    #[inline]
    pub(crate) fn lock(&self, head: u32) -> Chain<'_> {
        Chain::new(self, head)
    }

    /// Works on a chain whose lock the caller took by [`Index::lock_raw`].
    #[inline]
    pub(crate) fn locked(&self, head: u32) -> Chain<'_> {
        Chain::already_locked(self, head)
    }

    /// Takes the lock without a guard; pairs with [`Index::unlock_raw`].
    pub(crate) fn lock_raw(&self, head: u32) {
        self.memory[head].lock();
    }

    /// Gives back a lock taken by [`Index::lock_raw`].
    pub(crate) fn unlock_raw(&self, head: u32) {
        let bucket = &self.memory[head];
        bucket.unlock(bucket.word().version());
    }

    /// All entry slots of a chain as of one moment, appended to `slots`; the chain's word then.
    pub(crate) fn collect(&self, head: u32, slots: &mut Vec<Slot>) -> Word {
        let start = slots.len();
        let mut backoff = Backoff::new();
        loop {
            let before = self.memory[head].word();
            let mut at = head;
            loop {
                let bucket = &self.memory[at];
                slots.extend((0..SLOTS).map(|i| bucket.slot(i)).filter(|slot| slot.is_entry()));
                match bucket.slot(LINK_SLOT).linked_bucket() {
                    Some(next) => at = next,
                    None => break,
                }
            }
            fence(Ordering::Acquire);
            if !before.is_locked() && self.memory[head].word() == before {
                return before;
            }
            slots.truncate(start);
            backoff.snooze();
        }
    }

    /// Whether the head has no slot set; a chain with overflow never does.
    #[inline]
    pub(crate) fn is_empty(&self, head: u32) -> bool {
        let bucket = &self.memory[head];
        (0..SLOTS).all(|index| bucket.slot(index).is_empty())
    }

    /// Gives overflow buckets back after their grace period.
    pub(crate) fn free_overflow(&self, bucket: u32) {
        self.pool.give(&self.memory, bucket);
    }

    /// Recounts the chains: overflow buckets in use, entries. Panics where an invariant is broken;
    /// no writer may be active.
    pub(crate) fn validate(&self) -> (u64, u64) {
        let (mut overflow_count, mut entry_count) = (0, 0);
        let mut is_linked = vec![false; self.memory.len()];
        for head in 0..self.head_count {
            assert!(!self.memory[head].word().is_locked(), "a lock was left behind");
            let mut at = head;
            loop {
                let slots = (0..SLOTS).map(|index| self.memory[at].slot(index));
                entry_count += slots.filter(|slot| slot.is_entry()).count() as u64;
                let Some(next) = self.memory[at].slot(LINK_SLOT).linked_bucket() else { break };
                assert!(next >= self.head_count, "I2: links name overflow buckets");
                assert!(!std::mem::replace(&mut is_linked[next as usize], true), "I2: one chain");
                overflow_count += 1;
                at = next;
            }
        }
        (overflow_count, entry_count)
    }
}
