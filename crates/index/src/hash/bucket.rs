//! One bucket: a cache line with a version/lock word and seven slots.
//!
//! ```text
//!  byte 0     8        16       24                          56       64
//!  +----------+--------+--------+-- ... --------------------+--------+
//!  | word     | slot 0 | slot 1 |                           | slot 6 |   slot 6: entry or link
//!  +----------+--------+--------+-- ... --------------------+--------+
//!  word:  63 lock | 62 moved | 61..48 zero | 47..0 version
//! ```
//!
//! docs/formats/index-bucket.md has a worked example.
//!
//! # Invariants
//! I1: only the head bucket's word counts (K4); an overflow bucket's word is unused.
//! I2: the version grows by one with every change of the chain and is never reset (K1).
//! I3: a moved head is empty, and stays moved and unlocked until its block is reused: its chain is
//!     in another block (resize.rs).

use base::sync::{AtomicU64, Backoff, Ordering, fence};

use super::slot::{Slot, Tag};

/// Slots in a bucket.
#[cfg(not(loom))]
pub const SLOTS: usize = 7;
/// Few, to bound the model checker's run.
#[cfg(loom)]
pub const SLOTS: usize = 3;
/// The only slot that may be a link.
pub const LINK_SLOT: usize = SLOTS - 1;

const LOCK_BIT: u64 = 1 << 63;
const MOVED_BIT: u64 = 1 << 62;
const VERSION_MASK: u64 = (1 << 48) - 1;

/// One line of the index.
#[repr(C, align(64))]
pub struct Bucket {
    pub(super) word: AtomicU64,
    slots: [AtomicU64; SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

/// The role of a caller that reads a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// A reader; writers may be active.
    Shared,
    /// The holder of the chain's lock.
    Held,
}

/// The word of a chain as a reader saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(u64);

impl Word {
    /// Whether a thread has the chain's lock.
    #[inline]
    pub fn is_locked(self) -> bool {
        self.0 & LOCK_BIT != 0
    }

    /// Whether the chain is locked or has moved.
    #[inline]
    pub(crate) fn is_busy(self) -> bool {
        self.0 & (LOCK_BIT | MOVED_BIT) != 0
    }

    /// Whether the chain has moved: its hash must be resolved again.
    #[inline]
    pub(crate) fn is_moved(self) -> bool {
        self.0 & MOVED_BIT != 0
    }

    /// The version of the last change.
    #[inline]
    pub fn version(self) -> u64 {
        self.0 & VERSION_MASK
    }

    /// The version of the next change; never 0.
    #[inline]
    pub(crate) fn next_version(self) -> u64 {
        match (self.0 + 1) & VERSION_MASK {
            0 => 1,
            next => next,
        }
    }
}

impl Bucket {
    #[cfg(loom)]
    pub(crate) fn empty() -> Bucket {
        Bucket { word: AtomicU64::new(0), slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The slot's bits. Acquire pairs with `set_slot`: the entry behind it is complete.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> Slot {
        Slot(self.slots[index].load(Ordering::Acquire))
    }

    /// Publishes `slot`; the caller holds the chain's lock.
    #[inline]
    pub(super) fn set_slot(&self, index: usize, slot: Slot) {
        self.slots[index].store(slot.0, Ordering::Release);
    }

    /// Changes only the marks, unless the slot has changed meanwhile (K13). Needs no lock.
    #[inline]
    pub(crate) fn try_mark(&self, index: usize, seen: Slot, marks: u64) {
        let marked = seen.with_marks(marks);
        // Relaxed: marks publish nothing. A lost race loses one access, which eviction survives.
        let _ = self.slots[index].compare_exchange(
            seen.0,
            marked.0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// The slot's bits, for the holder of the chain's lock.
    #[inline]
    pub(crate) fn slot_held(&self, index: usize) -> Slot {
        // Relaxed: the thread that stored it held the lock, and marks publish nothing.
        Slot(load_held(&self.slots[index]))
    }

    /// A bit for each slot whose tag is `tag`. For a reader it is a hint: it reads the slot again
    /// by [`Bucket::slot`].
    #[inline]
    pub(crate) fn match_tag(&self, tag: Tag, view: View) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
        {
            let _ = view;
            // SAFETY: every x86-64 processor has SSE2.
            unsafe { super::tags::match_line(self, tag) }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
        self.match_tag_by_slot(tag, view)
    }

    /// The first slot of [`Bucket::match_tag`], for callers that are compiled for AVX2.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    #[inline]
    #[target_feature(enable = "avx2,bmi1")]
    pub(super) fn first_match_avx2(&self, tag: Tag) -> Option<u32> {
        super::tags::first_match_avx2(self, tag)
    }

    /// Like [`Bucket::match_tag`], one slot at a time: works everywhere, and the others are tested
    /// and measured against it.
    pub(super) fn match_tag_by_slot(&self, tag: Tag, view: View) -> u32 {
        let mut found = 0;
        for index in 0..SLOTS {
            let slot = match view {
                View::Shared => Slot(self.slots[index].load(Ordering::Relaxed)),
                View::Held => self.slot_held(index),
            };
            found |= u32::from(slot.has_tag(tag)) << index;
        }
        found
    }

    /// The chain's word, for a reader. Acquire pairs with `unlock`.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Takes the chain's lock (K4); spins a little, then yields the core. `None` if the chain has
    /// moved.
    #[inline]
    pub(super) fn lock(&self) -> Option<Word> {
        if let Ok(word) = self.try_lock() {
            return Some(word);
        }
        self.lock_slowly()
    }

    #[cold]
    fn lock_slowly(&self) -> Option<Word> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_lock() {
                Ok(word) => return Some(word),
                Err(seen) if seen.is_moved() => {
                    // Pairs with `unlock_moved`: the caller will see the new place in the
                    // directory.
                    fence(Ordering::Acquire);
                    return None;
                }
                Err(_) => backoff.snooze(),
            }
        }
    }

    /// Takes the lock if it is free and the chain has not moved (I3); otherwise returns the word.
    #[inline]
    pub(super) fn try_lock(&self) -> Result<Word, Word> {
        let seen = load_held(&self.word);
        if seen & (LOCK_BIT | MOVED_BIT) != 0 {
            return Err(Word(seen));
        }
        // Acquire pairs with the previous holder's `unlock`. The slot stores that follow are
        // Release, so a reader that sees one of them and then reads the word sees it locked or
        // newer.
        self.word
            .compare_exchange(seen, seen | LOCK_BIT, Ordering::Acquire, Ordering::Relaxed)
            .map(Word)
            .map_err(Word)
    }

    /// Releases the lock of a chain that has moved, and is empty here (I3). Release pairs with
    /// `word`: a thread that sees the mark sees the complete chain in its new place.
    #[inline]
    pub(super) fn unlock_moved(&self, version: u64) {
        self.word.store(version | MOVED_BIT, Ordering::Release);
    }

    /// Initialises a bucket of a block just taken, which no other thread can reach yet; its old
    /// contents are overwritten.
    pub(super) fn start_with(&self, version: u64, slots: impl Iterator<Item = Slot>) {
        let rest = std::iter::repeat(Slot::EMPTY);
        for (place, slot) in self.slots.iter().zip(slots.chain(rest)) {
            place.store(slot.0, Ordering::Release);
        }
        self.word.store(version, Ordering::Release);
    }

    /// Stores the version of a finished change, keeping the lock.
    #[inline]
    pub(super) fn set_version_locked(&self, version: u64) {
        self.word.store(version | LOCK_BIT, Ordering::Release);
    }

    /// Releases the lock with `version` (I2). Release pairs with `lock` and `word`.
    #[inline]
    pub(super) fn unlock(&self, version: u64) {
        debug_assert!(version <= VERSION_MASK, "I2");
        self.word.store(version, Ordering::Release);
    }
}

/// A Relaxed load by a thread that holds the lock or is about to take it.
#[inline]
fn load_held(atomic: &AtomicU64) -> u64 {
    #[cfg(not(loom))]
    return atomic.load(Ordering::Relaxed);
    // An exchange that always fails: loom tracks it where a plain load would hide a race
    // (loom_tests.rs).
    #[cfg(loom)]
    return atomic
        .compare_exchange(u64::MAX, u64::MAX, Ordering::Relaxed, Ordering::Relaxed)
        .unwrap_or_else(|found| found);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use base::KeyHash;

    use super::*;

    #[test]
    fn all_ways_of_matching_tags_agree() {
        let tags: Vec<u64> = vec![1, 2, 0x7fff, 0x8000, 0xffff];
        for fill in 0..if cfg!(miri) { 100 } else { 2000_u64 } {
            let mut draw = fill.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = |end: u64| {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(fill | 1);
                (draw >> 33) % end
            };
            let bucket = Bucket {
                word: AtomicU64::new(u64::MAX << next(60)),
                slots: std::array::from_fn(|_| match next(4) {
                    0 => AtomicU64::new(0),
                    1 => AtomicU64::new(Slot::link(next(100) as u32).0),
                    _ => {
                        let tag = Tag::of(KeyHash(tags[next(5) as usize]));
                        AtomicU64::new(Slot::entry(tag, next(1 << 40) * 8).with_marks(next(4)).0)
                    }
                }),
            };
            for tag in &tags {
                let tag = Tag::of(KeyHash(*tag));
                let one_by_one = bucket.match_tag_by_slot(tag, View::Shared);
                assert_eq!(bucket.match_tag(tag, View::Shared), one_by_one);
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("bmi1")
                {
                    // SAFETY: the processor has the instructions (just asked).
                    let first = unsafe { bucket.first_match_avx2(tag) };
                    assert_eq!(first, (one_by_one != 0).then(|| one_by_one.trailing_zeros()));
                }
            }
        }
    }
}
