//! One node of the tree: four cache lines of atomics.
//!
//! ```text
//!  byte 0         4        8          16      24     28     32               144         256
//!  +------------+--------+----------+-------+------+------+-----------------+-----------+
//!  | version 32 | parent | order 64 | kinds | next | prev | slices, 14 x 64 | slots, 14 | border
//!  +------------+--------+----------+-------+------+------+-----------------+-----------+
//!  | version 32 | parent | count    |   -   |  -   |  -   | separators, 18 | children   | interior
//!  +------------+--------+----------+-------+------+------+--------------176-----------+
//!  version: 31..4 changes | 3 border | 2 dead | 1 changing | 0 locked
//! ```
//!
//! A border's slot is a `Slot` of the index: an entry of the log, or a link to the root of the next
//! layer. Children are node numbers of 32 bits. docs/formats/tree-node.md has an example.
//!
//! # Invariants
//! I1: only the holder of the lock stores to a node, except that a child's `parent` is stored under
//!     the lock of the old parent, and `prev` under the lock of the left neighbour.
//! I2: while keys or children leave a node it is *changing*. The count of changes grows before the
//!     lock is released, both after such a change and whenever a slot was emptied.
//! I3: a free slot of a border holds `Slot::EMPTY`. A slot is filled in the order slice, kind,
//!     slot, and the order word last.
//! I4: a node's kind (border or interior) never changes while a reader can be in it.
//!
//! # Concurrency
//! Every store to a node's contents is a Release store and follows the store that marks it as
//! changing, or the unlocking that ended an earlier change. A reader loads contents (Relaxed or
//! stronger), then fences with Acquire, then loads the version again ([`Node::is_same`]): if it has
//! seen such a store, it now sees that version.

use std::ops::Range;

use base::sync::{AtomicU32, AtomicU64, Backoff, Ordering, fence};

use super::held::{Load, lock_freed, lock_taken};
use super::permutation::Permutation;
use super::slice::{Kind, Place};
use crate::hash::slot::Slot;

/// Keys in a border node.
#[cfg(not(loom))]
pub(super) const WIDTH: usize = 14;
/// Separators in an interior node; it has one child more.
#[cfg(not(loom))]
pub(super) const SEPARATORS: usize = 18;
/// Few, to bound the model checker's run.
#[cfg(loom)]
pub(super) const WIDTH: usize = 3;
#[cfg(loom)]
pub(super) const SEPARATORS: usize = 3;
/// The most entries of longer keys that share a slice without a layer below. With more, a full
/// border might not have two slices between which it can be split (lengths 0 to 8 are nine places
/// more).
#[cfg(not(loom))]
pub(super) const GROUP_MAX: usize = 4;
#[cfg(loom)]
pub(super) const GROUP_MAX: usize = 2;

/// Words of a node behind its first 32 bytes.
const WORDS: usize = 2 * WIDTH;
/// The index of the word where an interior's children begin, two to a word.
const CHILD_WORD: usize = SEPARATORS;
/// Bytes of a node.
pub const NODE_BYTES: usize = 256;
/// No node.
pub(super) const NO_NODE: u32 = u32::MAX;

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Node>() == NODE_BYTES);
    assert!(std::mem::offset_of!(Node, order) == 8);
    assert!(std::mem::offset_of!(Node, words) == 32);
    assert!(CHILD_WORD + (SEPARATORS + 2) / 2 == WORDS);
    assert!(super::slice::SLICE_BYTES + 1 + GROUP_MAX < WIDTH);
};

const LOCKED: u32 = 1;
const CHANGING: u32 = 2;
const DEAD: u32 = 4;
const BORDER: u32 = 8;
const CHANGE: u32 = 16;

/// A node's version as a reader saw it, without the lock bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u32);

impl Version {
    /// A version that no node has: neither a border's nor an interior's.
    pub(super) const NONE: Version = Version(DEAD | CHANGING);

    #[inline]
    pub(super) fn is_border(self) -> bool {
        self.0 & BORDER != 0
    }

    #[inline]
    pub(super) fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    #[inline]
    pub(super) fn is_changing(self) -> bool {
        self.0 & CHANGING != 0
    }
}

/// The kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Border,
    Interior,
}

/// One node; see the picture in the module's documentation.
#[repr(C, align(64))]
pub(crate) struct Node {
    version: AtomicU32,
    parent: AtomicU32,
    order: AtomicU64,
    kinds: AtomicU64,
    next: AtomicU32,
    prev: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl Node {
    #[cfg(loom)]
    pub(super) fn zeroed() -> Node {
        Node {
            version: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            order: AtomicU64::new(0),
            kinds: AtomicU64::new(0),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Makes an unused node an empty one that the caller has locked. Its count of changes
    /// continues.
    pub(super) fn reset(&self, role: Role) {
        let changes =
            (self.version.load_at(Ordering::Relaxed) & !(CHANGE - 1)).wrapping_add(CHANGE);
        let (kind, order) = match role {
            Role::Border => (BORDER, Permutation::empty().0),
            Role::Interior => (0, 0),
        };
        self.version.store(changes | kind | LOCKED, Ordering::Release);
        lock_taken();
        self.parent.store(NO_NODE, Ordering::Release);
        self.order.store(order, Ordering::Release);
        self.kinds.store(0, Ordering::Release);
        self.next.store(NO_NODE, Ordering::Release);
        self.prev.store(NO_NODE, Ordering::Release);
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
    }

    /// The present version. Acquire pairs with the stores of `begin_change` and `unlock`.
    #[inline]
    pub(super) fn version(&self) -> Version {
        Version(self.version.load_at(Ordering::Acquire) & !LOCKED)
    }

    /// The version once no change is under way.
    #[inline]
    pub(super) fn stable(&self) -> Version {
        let version = self.version();
        if !version.is_changing() {
            return version;
        }
        let mut backoff = Backoff::new();
        loop {
            backoff.snooze();
            let version = self.version();
            if !version.is_changing() {
                return version;
            }
        }
    }

    /// Whether all words read since `version` are of one moment.
    #[inline]
    pub(super) fn is_same(&self, version: Version) -> bool {
        fence(Ordering::Acquire); // The loads before stay before the next one; see the module doc.
        Version(self.version.load_at(Ordering::Relaxed) & !LOCKED) == version
    }

    /// Takes the lock; returns the version.
    #[inline]
    pub(super) fn lock(&self) -> Version {
        let mut backoff = Backoff::new();
        loop {
            if let Some(version) = self.try_lock() {
                return version;
            }
            backoff.snooze();
        }
    }

    pub(super) fn try_lock(&self) -> Option<Version> {
        let seen = self.version.load_held();
        if seen & LOCKED != 0 {
            return None;
        }
        // Acquire pairs with the unlock of the previous holder.
        let taken = self.version.compare_exchange(
            seen,
            seen | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        taken.ok().map(|version| {
            lock_taken();
            Version(version)
        })
    }

    /// Marks the node as changing, because keys or children are about to leave; the caller holds
    /// the lock.
    #[inline]
    pub(super) fn begin_change(&self) {
        let version = self.version.load_at(Ordering::Relaxed);
        debug_assert!(version & LOCKED != 0, "I1");
        // The Release stores that follow pair with the fence of `is_same`.
        self.version.store(version | CHANGING, Ordering::Release);
    }

    /// Marks the node as dead: no session relies on its contents any more. The caller holds the
    /// lock.
    #[inline]
    pub(super) fn mark_dead(&self) {
        let version = self.version.load_at(Ordering::Relaxed);
        debug_assert!(version & LOCKED != 0, "I1");
        self.version.store(version | DEAD, Ordering::Release);
    }

    /// Releases the lock after no change that a reader must notice.
    #[inline]
    pub(super) fn unlock(&self) {
        let version = self.version.load_at(Ordering::Relaxed);
        debug_assert!(version & (LOCKED | CHANGING) == LOCKED, "I2");
        lock_freed();
        self.version.store(version & !LOCKED, Ordering::Release);
    }

    /// Releases the lock and shows readers that something left the node (I2).
    #[inline]
    pub(super) fn unlock_changed(&self) {
        let version = self.version.load_at(Ordering::Relaxed);
        debug_assert!(version & LOCKED != 0, "I1");
        let version = (version & !(LOCKED | CHANGING)).wrapping_add(CHANGE);
        lock_freed();
        self.version.store(version, Ordering::Release);
    }

    #[inline]
    pub(super) fn parent(&self) -> u32 {
        self.parent.load_at(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_parent(&self, parent: u32) {
        self.parent.store(parent, Ordering::Release);
    }

    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.next.load_at(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    #[inline]
    pub(super) fn prev(&self) -> u32 {
        self.prev.load_at(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_prev(&self, prev: u32) {
        self.prev.store(prev, Ordering::Release);
    }
}

/// The contents of a border node.
impl Node {
    /// Acquire pairs with `set_order`: the slots that it names are filled.
    #[inline]
    pub(super) fn order(&self) -> Permutation {
        Permutation(self.order.load_at(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn set_order(&self, order: Permutation) {
        debug_assert!(order.is_whole(), "I1 of the permutation");
        self.order.store(order.0, Ordering::Release);
    }

    #[inline]
    fn slice(&self, index: usize) -> u64 {
        self.words[index].load_at(Ordering::Relaxed)
    }

    /// The kinds of all slots, for `place_of`.
    #[inline]
    pub(super) fn kinds(&self) -> u64 {
        self.kinds.load_at(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn place_of(&self, index: usize, kinds: u64) -> Place {
        Place { slice: self.slice(index), kind: Kind(((kinds >> (4 * index)) & 0xf) as u8) }
    }

    #[inline]
    pub(super) fn place(&self, index: usize) -> Place {
        self.place_of(index, self.kinds())
    }

    /// Acquire pairs with `set_slot`: the entry or the layer behind it is complete.
    #[inline]
    pub(super) fn slot(&self, index: usize) -> Slot {
        Slot(self.words[WIDTH + index].load_at(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn set_slot(&self, index: usize, slot: Slot) {
        self.words[WIDTH + index].store(slot.0, Ordering::Release);
    }

    /// Changes only the marks, unless the slot has changed meanwhile (K13). Needs no lock.
    #[inline]
    pub(super) fn try_mark(&self, index: usize, seen: Slot, marks: u64) {
        let marked = seen.with_marks(marks);
        // Relaxed: marks publish nothing. A lost race loses one access.
        let _ = self.words[WIDTH + index].compare_exchange(
            seen.0,
            marked.0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Fills a free slot; `set_order` shows it to walkers, the slot itself to searches (I3).
    #[inline]
    pub(super) fn fill(&self, index: usize, place: Place, slot: Slot) {
        debug_assert!(self.slot(index).is_empty(), "I3");
        self.words[index].store(place.slice, Ordering::Release);
        let shift = 4 * index;
        let kinds = self.kinds.load_at(Ordering::Relaxed) & !(0xf << shift);
        self.kinds.store(kinds | (u64::from(place.kind.0) << shift), Ordering::Release);
        self.set_slot(index, slot);
    }

    /// A bit for each slot whose slice is `slice`: a hint, so the caller checks the slot again.
    #[inline]
    fn match_slice(&self, slice: u64) -> u32 {
        let mut found = 0;
        for index in 0..WIDTH {
            found |= u32::from(self.slice(index) == slice) << index;
        }
        found
    }

    /// A slot at `place` that `accepts` accepts, as it was in the node at some moment of the call.
    ///
    /// A slot may be emptied and filled anew at any time. It is loaded before slice and kind are
    /// checked again, so that the entry or layer behind it belongs to `place` (I3).
    #[inline]
    pub(super) fn search(
        &self,
        place: Place,
        mut accepts: impl FnMut(Slot) -> bool,
    ) -> Option<(usize, Slot)> {
        let mut found = self.match_slice(place.slice);
        while found != 0 {
            let index = found.trailing_zeros() as usize;
            found &= found - 1;
            let slot = self.slot(index);
            if !slot.is_empty() && self.place(index) == place && accepts(slot) {
                return Some((index, slot));
            }
        }
        None
    }

    /// The ranks of the node's slots at `place`, or the rank that it would have; the caller holds
    /// the lock.
    #[inline]
    pub(super) fn ranks_at(&self, place: Place) -> Range<usize> {
        let order = self.order();
        let place_at = |rank: usize| self.place(order.slot_at(rank));
        let is_below = |rank: &usize| place_at(*rank) < place;
        let start = (0..order.count()).take_while(is_below).count();
        let is_at = |rank: &usize| place_at(*rank) == place;
        start..start + (start..order.count()).take_while(is_at).count()
    }
}

/// The contents of an interior node.
impl Node {
    #[inline]
    pub(super) fn count(&self) -> usize {
        // `is_same` detects a torn read; the bound keeps indexes inside.
        (self.order.load_at(Ordering::Acquire) as usize).min(SEPARATORS)
    }

    #[inline]
    pub(super) fn set_count(&self, count: usize) {
        self.order.store(count as u64, Ordering::Release);
    }

    #[inline]
    pub(super) fn separator(&self, index: usize) -> u64 {
        self.words[index].load_at(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_separator(&self, index: usize, slice: u64) {
        self.words[index].store(slice, Ordering::Release);
    }

    #[inline]
    pub(super) fn child(&self, index: usize) -> u32 {
        let word = self.words[CHILD_WORD + index / 2].load_at(Ordering::Relaxed);
        (word >> (32 * (index % 2))) as u32
    }

    #[inline]
    pub(super) fn set_child(&self, index: usize, child: u32) {
        let word = &self.words[CHILD_WORD + index / 2];
        let shift = 32 * (index % 2);
        let other = word.load_at(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(other | (u64::from(child) << shift), Ordering::Release);
    }

    /// The child that has `slice`. Without a branch on the separators: all are compared, and those
    /// beyond the count are masked out.
    #[inline]
    pub(super) fn child_for(&self, slice: u64) -> u32 {
        let mut below = 0_u32;
        for index in 0..SEPARATORS {
            below |= u32::from(self.separator(index) <= slice) << index;
        }
        let known = (1 << self.count()) - 1;
        self.child((below & known).trailing_ones() as usize)
    }
}
