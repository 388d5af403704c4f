//! A locked chain: the only way to change the index.
//!
//! # Invariants
//! I1: dropping a chain releases its lock; [`Chain::finish`] also advances the version.
//! I2: a bucket that leaves the chain is pushed to the caller's list of retired buckets and keeps
//!     its slots; the caller frees it after a grace period.

use super::bucket::{LINK_SLOT, SLOTS, View, Word};
use super::slot::{Slot, Tag};
use super::{Index, Position};

/// The error when no overflow bucket is left.
#[derive(Debug, PartialEq, Eq)]
pub struct IndexFull;

/// Exclusive right to change one chain.
pub struct Chain<'a> {
    index: &'a Index,
    head: u32,
    word: Word,
    /// Whether dropping unlocks; false for chains that a set of locks holds (K11).
    owns_lock: bool,
}

impl<'a> Chain<'a> {
    #[inline]
    pub(super) fn lock(index: &'a Index, head: u32) -> Option<Chain<'a>> {
        let word = index.memory[head].lock()?;
        Some(Chain { index, head, word, owns_lock: true })
    }

    /// Takes the lock, if it is free and the chain has not moved.
    pub(super) fn try_lock(index: &'a Index, head: u32) -> Result<Chain<'a>, Word> {
        let word = index.memory[head].try_lock()?;
        Ok(Chain { index, head, word, owns_lock: true })
    }

    #[inline]
    pub(super) fn already_locked(index: &'a Index, head: u32) -> Chain<'a> {
        let word = index.memory[head].word();
        assert!(word.is_locked(), "K11: the caller holds this chain");
        Chain { index, head, word, owns_lock: false }
    }

    /// The version of this change (K1).
    #[inline]
    pub fn next_version(&self) -> u64 {
        self.word.next_version()
    }

    /// Finds the entry that `is_key` accepts among those with `tag`.
    #[inline]
    pub fn find(&self, tag: Tag, mut is_key: impl FnMut(Slot) -> bool) -> Option<Position> {
        self.index.find_once(self.head, tag, View::Held, &mut is_key)
    }

    /// The present value of a slot of the head that was read without the lock, if it names the same
    /// entry.
    #[inline]
    pub fn still_there(&self, seen: Position) -> Option<Position> {
        if seen.bucket != self.head {
            return None;
        }
        let slot = self.index.memory[self.head].slot_held(seen.index);
        slot.same_entry(seen.slot).then_some(Position { slot, ..seen })
    }

    /// The entry slot that names `offset_bytes`.
    #[inline]
    pub fn find_entry(&self, tag: Tag, offset_bytes: u64) -> Option<Position> {
        self.find(tag, |slot| slot.offset_bytes() == offset_bytes)
    }

    /// Points the slot at another entry of the same key.
    #[inline]
    pub fn replace(&mut self, position: Position, slot: Slot) {
        debug_assert!(slot.is_entry());
        self.index.memory[position.bucket].set_slot(position.index, slot);
    }

    /// Adds an entry of a key that the chain does not have.
    #[inline]
    pub fn insert(&mut self, slot: Slot) -> Result<(), IndexFull> {
        debug_assert!(slot.is_entry());
        let mut at = self.head;
        loop {
            let bucket = &self.index.memory[at];
            if let Some(hole) = (0..SLOTS).find(|index| bucket.slot_held(*index).is_empty()) {
                bucket.set_slot(hole, slot);
                return Ok(());
            }
            match bucket.slot_held(LINK_SLOT).linked_bucket() {
                Some(next) => at = next,
                None => return self.grow(at, slot),
            }
        }
    }

    /// Case 1 of the index's module documentation: the new bucket is complete before the link shows
    /// it.
    #[cold]
    fn grow(&mut self, at: u32, slot: Slot) -> Result<(), IndexFull> {
        let memory = &self.index.memory;
        let fresh = self.index.take_overflow().ok_or(IndexFull)?;
        memory[fresh].start_with(0, [memory[at].slot_held(LINK_SLOT), slot].into_iter());
        memory[at].set_slot(LINK_SLOT, Slot::link(fresh));
        Ok(())
    }

    /// Removes an entry; case 2 of the index's module documentation when the chain has overflow.
    #[inline]
    pub fn remove(&mut self, position: Position, retired: &mut Vec<u32>) {
        let memory = &self.index.memory;
        if memory[self.head].slot_held(LINK_SLOT).linked_bucket().is_none() {
            memory[position.bucket].set_slot(position.index, Slot::EMPTY);
            return;
        }
        self.remove_with_overflow(position, retired);
    }

    #[cold]
    fn remove_with_overflow(&mut self, position: Position, retired: &mut Vec<u32>) {
        let memory = &self.index.memory;
        let (parent, tail) = self.tail();
        let last = (0..SLOTS).rev().find(|index| memory[tail].slot_held(*index).is_entry());
        if let Some(last) = last {
            let moved = memory[tail].slot_held(last);
            if (position.bucket, position.index) != (tail, last) {
                memory[position.bucket].set_slot(position.index, moved);
            }
            memory[tail].set_slot(last, Slot::EMPTY);
        }
        // A tail with one entry left is removed: the entry takes the link's place in one store, and
        // a reader inside the tail still finds its copy there (I2).
        let mut left = (0..SLOTS).map(|i| memory[tail].slot_held(i)).filter(|slot| slot.is_entry());
        let (first, second) = (left.next(), left.next());
        if second.is_none() {
            memory[parent].set_slot(LINK_SLOT, first.unwrap_or(Slot::EMPTY));
            retired.push(tail);
        }
    }

    /// The last bucket of the chain and the one that links to it; the chain must have overflow.
    fn tail(&self) -> (u32, u32) {
        let memory = &self.index.memory;
        let (mut parent, mut tail) = (self.head, self.head);
        while let Some(next) = memory[tail].slot_held(LINK_SLOT).linked_bucket() {
            (parent, tail) = (tail, next);
        }
        debug_assert!(parent != tail, "called only with overflow");
        (parent, tail)
    }

    /// Every entry slot of the chain.
    pub fn entries(&self, mut visit: impl FnMut(Position)) {
        let mut at = self.head;
        loop {
            let bucket = &self.index.memory[at];
            for index in 0..SLOTS {
                let slot = bucket.slot_held(index);
                if slot.is_entry() {
                    visit(Position { bucket: at, index, slot });
                }
            }
            match bucket.slot_held(LINK_SLOT).linked_bucket() {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// Removes every entry; overflow buckets keep their slots for readers inside (I2).
    pub fn clear(&mut self, retired: &mut Vec<u32>) {
        let memory = &self.index.memory;
        let mut next = memory[self.head].slot_held(LINK_SLOT).linked_bucket();
        for index in 0..SLOTS {
            memory[self.head].set_slot(index, Slot::EMPTY);
        }
        while let Some(bucket) = next {
            next = memory[bucket].slot_held(LINK_SLOT).linked_bucket();
            retired.push(bucket);
        }
    }

    /// Ends a chain that is complete elsewhere, under `version`. It is emptied before it is marked,
    /// so that a thread that still reads here misses, and sees the mark.
    pub(super) fn finish_moved(mut self, version: u64, retired: &mut Vec<u32>) {
        debug_assert!(self.owns_lock);
        self.clear(retired);
        self.index.memory[self.head].unlock_moved(version);
        std::mem::forget(self);
    }

    /// Ends a change so that the next version is above `version`.
    #[inline]
    pub fn finish_above(self, version: u64) {
        debug_assert!(self.owns_lock);
        let version = version.max(self.word.version());
        self.index.memory[self.head].unlock(version);
        std::mem::forget(self);
    }

    /// Ends a change whose entry has a version from outside: the chain's version advances as always
    /// (K9), and to `version` at least (K1).
    #[inline]
    pub fn finish_with(self, version: u64) {
        let version = version.max(self.word.next_version());
        self.end(version);
    }

    /// Ends a change: advances the version (K1), and releases the lock if this chain owns it.
    #[inline]
    pub fn finish(self) {
        let version = self.word.next_version();
        self.end(version);
    }

    #[inline]
    fn end(self, version: u64) {
        let bucket = &self.index.memory[self.head];
        if self.owns_lock {
            bucket.unlock(version);
        } else {
            bucket.set_version_locked(version);
        }
        std::mem::forget(self);
    }
}

impl Drop for Chain<'_> {
    /// Releases the lock without a new version: nothing was changed.
    #[inline]
    fn drop(&mut self) {
        if self.owns_lock {
            self.index.memory[self.head].unlock(self.word.version());
        }
    }
}
