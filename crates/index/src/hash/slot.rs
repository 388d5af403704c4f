//! One slot of a bucket: empty, an entry, or the link to the chain's next bucket.
//!
//! ```text
//!  63          48 47                                        3   2    1  0
//!  +-------------+--------------------------------------------+------+------+
//!  |   tag (16)  | location in 8-byte units (45)              | link | marks|
//!  +-------------+--------------------------------------------+------+------+
//! ```
//!
//! The low 48 bits, with the low three cleared, are the entry's byte offset in the log.
//!
//! # Invariants
//! I1: an entry's tag is never 0, so an entry slot is never 0; 0 is empty.
//! I2: only a bucket's seventh slot can be a link; a link's tag is 0, its location a bucket id.
//! I3: the two mark bits are the entry's access marks (K13) and do not take part in equality.

use base::KeyHash;

/// One slot's bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(pub u64);

/// A 16-bit tag, never 0 for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u16);

const TAG_SHIFT: u32 = 48;
const LINK_BIT: u64 = 1 << 2;
const MARK_MASK: u64 = 0b11;
const OFFSET_MASK: u64 = ((1 << TAG_SHIFT) - 1) & !0b111;

const _: () = assert!(OFFSET_MASK.count_ones() == 45);

impl Tag {
    /// The tag of a key: its hash's low bits; buckets are chosen by the high ones.
    #[inline]
    pub fn of(hash: KeyHash) -> Tag {
        let low = (hash.0 & 0xffff) as u16;
        Tag(if low == 0 { 1 } else { low })
    }

    #[inline]
    #[cfg_attr(any(miri, loom), allow(dead_code))]
    pub(super) fn bits(self) -> u16 {
        self.0
    }
}

impl Slot {
    /// An empty slot.
    pub const EMPTY: Slot = Slot(0);

    /// A slot for the entry at `offset_bytes`.
    #[inline]
    pub fn entry(tag: Tag, offset_bytes: u64) -> Slot {
        debug_assert!(tag.0 != 0, "I1");
        debug_assert!(offset_bytes & !OFFSET_MASK == 0, "entries are 8-aligned, below 2^48");
        Slot((u64::from(tag.0) << TAG_SHIFT) | offset_bytes)
    }

    /// A link to overflow bucket `bucket`.
    #[inline]
    pub fn link(bucket: u32) -> Slot {
        Slot((u64::from(bucket) << 3) | LINK_BIT)
    }

    /// Whether it names nothing.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it names an entry.
    #[inline]
    pub fn is_entry(self) -> bool {
        self.0 >> TAG_SHIFT != 0
    }

    /// The bucket that a link names.
    #[inline]
    pub fn linked_bucket(self) -> Option<u32> {
        (!self.is_entry() && self.0 & LINK_BIT != 0).then_some((self.0 >> 3) as u32)
    }

    /// Whether it names an entry with this tag.
    #[inline]
    pub fn has_tag(self, tag: Tag) -> bool {
        self.0 >> TAG_SHIFT == u64::from(tag.0)
    }

    /// The entry's offset in the log.
    #[inline]
    pub fn offset_bytes(self) -> u64 {
        self.0 & OFFSET_MASK
    }

    /// Whether both name the same entry (I3: whatever their marks).
    #[inline]
    pub fn same_entry(self, other: Slot) -> bool {
        (self.0 ^ other.0) & !MARK_MASK == 0
    }

    /// 0 to 3 accesses since the entry was written or moved.
    #[inline]
    pub fn marks(self) -> u64 {
        self.0 & MARK_MASK
    }

    /// The slot with this many access marks, or the most there may be.
    #[inline]
    pub fn with_marks(self, marks: u64) -> Slot {
        Slot((self.0 & !MARK_MASK) | marks.min(MARK_MASK))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_slot_keeps_tag_offset_and_marks_apart() {
        let slot = Slot::entry(Tag::of(KeyHash(0xbeef)), (1 << 48) - 8).with_marks(2);
        assert!(slot.is_entry() && slot.has_tag(Tag::of(KeyHash(0xbeef))));
        assert_eq!((slot.offset_bytes(), slot.marks()), ((1 << 48) - 8, 2));
        assert!(slot.same_entry(slot.with_marks(0)));
        assert_eq!(slot.linked_bucket(), None);
    }

    #[test]
    fn a_link_is_neither_entry_nor_empty() {
        let slot = Slot::link(0);
        assert!(!slot.is_entry() && !slot.is_empty());
        assert_eq!(slot.linked_bucket(), Some(0));
        assert_eq!(Slot::link(u32::MAX).linked_bucket(), Some(u32::MAX));
    }

    #[test]
    fn a_hash_that_ends_in_zeros_still_has_a_tag() {
        assert_eq!(Tag::of(KeyHash(0xffff_0000)), Tag(1));
    }
}
