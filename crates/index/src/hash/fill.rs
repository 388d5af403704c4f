//! Fills an empty index chain by chain, before any other thread uses it.

use base::KeyHash;

use super::slot::Slot;
use super::{Index, IndexFull};

/// Writes whole chains, in the order of their hashes.
pub struct Filler<'i> {
    index: &'i Index,
    head: Option<u32>,
    slots: Vec<Slot>,
}

impl Index {
    /// A filler for an index without items, which must be large enough; see [`Index::presize`].
    pub fn filler(&self) -> Filler<'_> {
        Filler { index: self, head: None, slots: Vec::new() }
    }

    /// The number of low bits in which hashes of this hash's chain may differ.
    #[inline]
    pub fn shift_of(&self, hash: KeyHash) -> u32 {
        self.directory.place_of(&self.memory, hash).shift
    }
}

impl Filler<'_> {
    /// Adds a slot to the chain of `hash`, which must not lie before the last chain.
    #[inline]
    pub fn push(&mut self, hash: KeyHash, slot: Slot) -> Result<(), IndexFull> {
        let head = self.index.head_of(hash);
        if self.head != Some(head) {
            self.write()?;
            self.head = Some(head);
        }
        self.slots.push(slot);
        Ok(())
    }

    /// Completes the last chain.
    #[inline]
    pub fn end(mut self) -> Result<(), IndexFull> {
        self.write()
    }

    #[inline]
    fn write(&mut self) -> Result<(), IndexFull> {
        let Some(head) = self.head else { return Ok(()) };
        let is_written = self.index.write_chains(head, &[&self.slots[..]], 0);
        self.slots.clear();
        if is_written { Ok(()) } else { Err(IndexFull) }
    }
}
