//! The hash index: chains of one-line buckets that name entries of the log.
//!
//! ```text
//!  hash ──top g bits──▶ partition ──directory──▶ block of heads ──next bits──▶ head bucket
//!    └─low 16 bits: tag, matched against seven slots at once        slot 6 is a link ──▶ overflow
//! ```
//!
//! The heads of a partition lie in one block of the arena, in the order of their hashes (K9). The
//! index grows and shrinks with the number of items: one partition at a time gets a block of twice
//! or half the size, and its chains move there a few at a time (resize.rs, decision 0018).
//!
//! # Invariants
//! I1: under a chain's lock each key has at most one entry slot in the chain.
//! I2: links form no cycle; an overflow bucket is in one chain, free, or retired.
//! I3: an overflow bucket that left its chain keeps its slots until no reader can be in it.
//! I4: all keys of a chain have the same partition (K5), at every size of the index.
//! I5: a hash has exactly one chain that is not moved; a thread that resolved a hash to a moved
//!     head resolves it again.
//!
//! # Concurrency
//! Readers take no lock: [`Index::find`] is wait-free on a hit; after a miss the reader looks again
//! if the head's word has moved or is locked (K9). Writers hold the chain's lock ([`Chain`]). Each
//! change is a single Release store of one slot, or two stores in an order that shows an entry
//! twice rather than not at all:
//!  1. insert into a full chain: fill the new bucket, then replace slot 6 by the link. A reader
//!     sees the old slot 6, or the link to a bucket that repeats it.
//!  2. remove with overflow: copy the last entry into the hole, then clear its old place. A reader
//!     that passed the hole before the copy, and the old place after the clearing, misses; it looks
//!     again because the word moved.
//!  3. move a chain: complete it in its new place, empty the old head, then mark that head as
//!     moved. A reader of the old head finds the entry, or misses, sees the lock or the mark, and
//!     resolves again.
//!
//! A head's number is valid until the session's next quiescent point: the block is not reused
//! before (epoch.rs).
//!
//! # References
//! MICA §4.1 and Minos §4.2 (tags, one-line buckets, overflow buckets).

mod arena;
mod bucket;
mod chain;
mod directory;
mod fill;
mod memory;
mod resize;
mod shape;
pub mod slot;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
mod tags;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use base::sync::{Backoff, Ordering, fence};
use base::{KeyHash, PartitionBits};

pub use arena::{Arena, Block, Lender};
use bucket::View;
pub use bucket::{LINK_SLOT, SLOTS, Word};
pub use chain::{Chain, IndexFull};
use directory::Directory;
pub use directory::Place;
pub use fill::Filler;
pub use memory::Lines;
use resize::Resizer;
pub use resize::{Move, Moved};
use shape::{Bounds, Shape};
use slot::{Slot, Tag};

/// Bytes of one bucket.
pub const BUCKET_BYTES: u64 = 64;

/// The position of an entry's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The bucket's line.
    pub bucket: u32,
    /// The slot's place in it.
    pub index: usize,
    /// What the slot held when it was read.
    pub slot: Slot,
}

/// The initial parameters of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPlan {
    /// The number of partitions, as a power of two; at least 1.
    pub partition_log2: u32,
    /// The initial and minimum number of heads; at least one a partition.
    pub heads: u64,
    /// Whether it never grows and has no overflow buckets.
    pub is_lossy: bool,
}

/// The store's memory per partition; see [`IndexPlan::new`].
const PARTITION_MEMORY_BYTES: u64 = 256 << 10;

impl IndexPlan {
    /// The plan for a store of `memory_bytes`. Each partition stands for 256 KiB of them: of the
    /// smallest items that is some 8000, in a block of 2048 heads. The directory is 1/16,384 of the
    /// memory, so that its words stay in the processor's caches.
    pub fn new(memory_bytes: u64, index_bytes: u64, is_lossy: bool) -> IndexPlan {
        let partition_log2 = (memory_bytes / PARTITION_MEMORY_BYTES).max(1).ilog2().clamp(1, 20);
        IndexPlan { partition_log2, heads: index_bytes / BUCKET_BYTES, is_lossy }
    }
}

/// The size of the index, approximately as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSize {
    /// Heads of chains.
    pub heads: u64,
    /// Overflow buckets in chains, and lines waiting to be reused.
    pub overflow: u64,
    /// Bytes of heads and overflow buckets.
    pub used_bytes: u64,
    /// Bytes of the segments that the index has.
    pub lent_bytes: u64,
    /// Partitions that got another size so far.
    pub partitions_moved: u64,
    /// Partitions that get another size now.
    pub partitions_moving: u64,
}

/// The directory of heads, the memory of heads and overflow buckets, and the resizing.
pub struct Index {
    memory: Lines,
    directory: Directory,
    arena: Arc<Arena>,
    resizer: Resizer,
    is_lossy: bool,
}

impl Index {
    /// Makes an empty index in lines that `lender` lends. The lines must be zero, or the caller
    /// calls [`Index::clear_heads`] next. `None` if it lends too few.
    pub fn new(memory: Lines, lender: Arc<dyn Lender>, plan: IndexPlan) -> Option<Index> {
        let arena = Arc::new(Arena::new(lender));
        let heads_log2_max = arena.log2_lines_max();
        let least = Shape::for_heads(plan.heads, plan.partition_log2, heads_log2_max);
        let blocks: Vec<Block> = (0..1 << plan.partition_log2)
            .map(|partition| {
                let log2_lines = least.heads_log2_of(partition);
                arena.take(log2_lines).map(|first_line| Block { first_line, log2_lines })
            })
            .collect::<Option<_>>()?;
        let bounds = Bounds { partition_log2: plan.partition_log2, least, heads_log2_max };
        Some(Index {
            memory,
            directory: Directory::new(&blocks),
            arena,
            resizer: Resizer::new(bounds, plan.is_lossy),
            is_lossy: plan.is_lossy,
        })
    }

    /// The arena of the index's blocks, for the nodes of a tree.
    #[inline]
    pub fn arena(&self) -> Arc<Arena> {
        Arc::clone(&self.arena)
    }

    /// The number of hash bits that name a partition of the write table: those that all hashes of a
    /// chain have in common at every size (K5, I4).
    #[inline]
    pub fn partition_bits(&self) -> PartitionBits {
        let bounds = self.resizer.bounds();
        PartitionBits::at_most(bounds.partition_log2 + bounds.least.heads_log2)
    }

    /// The present size.
    pub fn size(&self) -> IndexSize {
        let counts = self.resizer.counts();
        let used_lines = self.arena.used_lines();
        IndexSize {
            heads: counts.heads,
            overflow: used_lines.saturating_sub(counts.head_lines),
            used_bytes: used_lines * BUCKET_BYTES,
            lent_bytes: self.arena.lent_lines() * BUCKET_BYTES,
            partitions_moved: counts.moved,
            partitions_moving: counts.moving,
        }
    }

    /// The head bucket of a key's chain: valid until the session's next quiescent point, or until
    /// another session moves the chain, which the head's word then says.
    #[inline(always)]
    pub fn head_of(&self, hash: KeyHash) -> u32 {
        self.directory.head_of(&self.memory, hash)
    }

    /// Prefetches a bucket.
    #[inline]
    pub fn prefetch(&self, bucket: u32) {
        crate::prefetch::line(self.address(bucket));
    }

    /// The address of a bucket, for prefetching.
    #[inline]
    pub fn address(&self, bucket: u32) -> *const u8 {
        std::ptr::from_ref(&self.memory[bucket]).cast()
    }

    /// The second bucket of a chain, if it has one; a hint, like every read without the lock.
    #[inline]
    pub fn overflow_of(&self, head: u32) -> Option<u32> {
        self.memory[head].slot(LINK_SLOT).linked_bucket()
    }

    /// The word of a key's chain, for readers of several keys (K11). A chain that moves gets a new
    /// version, so it looks changed.
    #[inline]
    pub fn word(&self, hash: KeyHash) -> Word {
        loop {
            let word = self.memory[self.head_of(hash)].word();
            if !word.is_moved() {
                return word;
            }
        }
    }

    /// Visits the word of every chain, each as of one moment.
    pub fn each_word(&self, mut visit: impl FnMut(Word)) {
        let mut next = Some(KeyHash(0));
        while let Some(hash) = next {
            let place = self.directory.place_of(&self.memory, hash);
            visit(self.word(hash));
            next = place.next_hash(hash);
        }
    }

    /// A bit for each slot of one bucket whose tag is `tag`: a hint, as for every reader.
    #[inline]
    pub fn match_tag(&self, at: u32, tag: Tag) -> u32 {
        self.memory[at].match_tag(tag, View::Shared)
    }

    /// The first slot of [`Index::match_tag`].
    #[inline]
    pub fn first_match(&self, at: u32, tag: Tag) -> Option<u32> {
        let found = self.match_tag(at, tag);
        (found != 0).then(|| found.trailing_zeros())
    }

    /// Like [`Index::first_match`], one slot after the other.
    #[inline]
    pub fn first_match_by_slot(&self, at: u32, tag: Tag) -> Option<u32> {
        let found = self.memory[at].match_tag_by_slot(tag, View::Shared);
        (found != 0).then(|| found.trailing_zeros())
    }

    /// [`Index::first_match`] for callers that are compiled for AVX2.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    pub unsafe fn first_match_avx2(&self, at: u32, tag: Tag) -> Option<u32> {
        self.memory[at].first_match_avx2(tag)
    }

    /// A first guess at a key's slot, from one bucket, for prefetching.
    #[inline]
    pub fn guess(&self, at: u32, tag: Tag) -> Option<Position> {
        let index = self.first_match(at, tag)? as usize;
        let slot = self.memory[at].slot(index);
        slot.has_tag(tag).then_some(Position { bucket: at, index, slot })
    }

    /// The slot's present value.
    #[inline]
    pub fn slot_at(&self, bucket: u32, index: usize) -> Slot {
        self.memory[bucket].slot(index)
    }

    /// Finds the entry that `is_key` accepts among those with the hash's tag; `head` is the result
    /// of [`Index::head_of`]. Wait-free on a hit; a miss is accepted only if the chain did not
    /// change while it was searched, and has not moved (K9).
    #[inline]
    pub fn find(
        &self,
        head: u32,
        hash: KeyHash,
        mut is_key: impl FnMut(Slot) -> bool,
    ) -> Option<Position> {
        let tag = Tag::of(hash);
        let mut head = head;
        let mut backoff = Backoff::new();
        loop {
            let before = self.memory[head].word();
            if let Some(position) = self.find_once(head, tag, View::Shared, &mut is_key) {
                return Some(position);
            }
            // The fence keeps the tag loads before this load of the word.
            fence(Ordering::Acquire);
            if !before.is_busy() && self.memory[head].word() == before {
                return None;
            }
            if !before.is_moved() {
                backoff.snooze();
            }
            head = self.head_of(hash);
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
    pub fn mark(&self, position: Position, limit: u64) {
        let marks = position.slot.marks();
        if marks < limit {
            self.memory[position.bucket].try_mark(position.index, position.slot, marks + 1);
        }
    }

    /// Locks the chain of a hash for a change.
    #[inline]
    pub fn lock(&self, hash: KeyHash) -> Chain<'_> {
        loop {
            if let Some(chain) = Chain::lock(self, self.head_of(hash)) {
                return chain;
            }
        }
    }

    /// Locks the chain of a hash, unless it is locked or moving.
    pub fn try_lock(&self, hash: KeyHash) -> Option<Chain<'_>> {
        Chain::try_lock(self, self.head_of(hash)).ok()
    }

    /// Locks the chain of a head that was resolved since the last quiescent point; `None` if it has
    /// moved.
    #[inline]
    pub fn lock_head(&self, head: u32) -> Option<Chain<'_>> {
        Chain::lock(self, head)
    }

    /// Locks the chain of a hash, and returns the range of hashes that share it.
    pub fn lock_place(&self, hash: KeyHash) -> (Chain<'_>, Place) {
        loop {
            let place = self.directory.place_of(&self.memory, hash);
            if let Some(chain) = Chain::lock(self, place.head) {
                return (chain, place);
            }
        }
    }

    /// Wraps a chain whose lock the caller took by [`Index::lock_raw`].
    #[inline]
    pub fn locked(&self, head: u32) -> Chain<'_> {
        Chain::already_locked(self, head)
    }

    /// Takes the lock without a guard; pairs with [`Index::unlock_raw`]. A locked chain does not
    /// move. False: it had moved before.
    #[inline]
    pub fn lock_raw(&self, head: u32) -> bool {
        self.memory[head].lock().is_some()
    }

    /// Takes the locks of all chains of `hashes`, in ascending order (K11), and stores them in
    /// `heads`.
    pub fn lock_all(&self, hashes: impl Iterator<Item = KeyHash> + Clone, heads: &mut Vec<u32>) {
        loop {
            heads.clear();
            heads.extend(hashes.clone().map(|hash| self.head_of(hash)));
            heads.sort_unstable();
            heads.dedup();
            let Some(moved) = heads.iter().position(|head| !self.lock_raw(*head)) else { return };
            for head in &heads[..moved] {
                self.unlock_raw(*head);
            }
        }
    }

    /// Releases a lock taken by [`Index::lock_raw`].
    #[inline]
    pub fn unlock_raw(&self, head: u32) {
        let bucket = &self.memory[head];
        bucket.unlock(bucket.word().version());
    }

    /// Appends all entry slots of a hash's chain, as of one moment, to `slots`; returns the chain's
    /// place.
    pub fn collect(&self, hash: KeyHash, slots: &mut Vec<Slot>) -> Place {
        let start = slots.len();
        let mut backoff = Backoff::new();
        loop {
            let place = self.directory.place_of(&self.memory, hash);
            let before = self.memory[place.head].word();
            self.collect_once(place.head, slots);
            fence(Ordering::Acquire);
            if !before.is_busy() && self.memory[place.head].word() == before {
                return place;
            }
            slots.truncate(start);
            backoff.snooze();
        }
    }

    fn collect_once(&self, head: u32, slots: &mut Vec<Slot>) {
        let mut at = head;
        loop {
            let bucket = &self.memory[at];
            slots.extend((0..SLOTS).map(|i| bucket.slot(i)).filter(|slot| slot.is_entry()));
            match bucket.slot(LINK_SLOT).linked_bucket() {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// The first hash some `heads` chains behind `hash`, at most one partition away; `None` at the
    /// end.
    pub fn skip(&self, hash: KeyHash, heads: u64) -> Option<KeyHash> {
        let shift = self.directory.place_of(&self.memory, hash).shift;
        let next = (hash.0 >> shift).saturating_add(heads);
        let end = (hash.0 >> (64 - self.directory.partition_log2())) + 1;
        let end = u128::from(end) << (64 - self.directory.partition_log2());
        let next = (u128::from(next) << shift).min(end);
        u64::try_from(next).ok().map(KeyHash)
    }

    /// Takes an overflow bucket that no chain holds, with its old contents.
    #[inline]
    fn take_overflow(&self) -> Option<u32> {
        if self.is_lossy { None } else { self.arena.take(0) }
    }

    /// Whether a full chain would get an overflow bucket now.
    pub fn has_overflow(&self) -> bool {
        // Taken and given back: a segment borrowed for it stays in the arena.
        let line = self.take_overflow();
        line.inspect(|line| self.arena.give(*line, 0)).is_some()
    }

    /// Returns a block that has left the index to the arena, after its grace period.
    #[inline]
    pub fn free(&self, block: Block) {
        self.arena.give(block.first_line, block.log2_lines);
    }

    /// Recounts directory and chains; returns the number of entries. `retired_lines` wait for their
    /// grace period; `None`: unknown. Panics if an invariant is broken; no writer may be active.
    pub fn validate(&self, retired_lines: Option<u64>) -> u64 {
        let (mut lines, mut entry_count) = (self.resizer.validate(self), 0);
        let mut linked = std::collections::HashSet::new();
        let mut next = Some(KeyHash(0));
        while let Some(hash) = next {
            let place = self.directory.place_of(&self.memory, hash);
            assert_eq!(place.first_hash(hash), hash, "chains follow each other without a gap");
            let word = self.memory[place.head].word();
            assert!(!word.is_busy(), "I5: a chain that counts, and no lock left behind");
            let mut at = place.head;
            loop {
                let slots = (0..SLOTS).map(|index| self.memory[at].slot(index));
                entry_count += slots.filter(|slot| slot.is_entry()).count() as u64;
                let Some(next) = self.memory[at].slot(LINK_SLOT).linked_bucket() else { break };
                assert!(linked.insert(next), "I2: one chain");
                lines += 1;
                at = next;
            }
            next = place.next_hash(hash);
        }
        self.arena.validate();
        let used_lines = self.arena.used_lines();
        match retired_lines {
            Some(retired) => assert_eq!(used_lines, lines + retired, "every line is accounted for"),
            None => assert!(used_lines >= lines, "{used_lines} used, {lines} found"),
        }
        entry_count
    }
}
