//! The order of a border node's slots in one word, so that one store publishes an insert.
//!
//! ```text
//!  nibble  0       1    2    3    ...  14      (from the least significant end)
//!        +-------+----+----+----+     +----+
//!        | count | 1st| 2nd| ...  free slots |
//!        +-------+----+----+----+     +----+
//! ```
//!
//! # Invariants
//! I1: nibbles 1 to [`WIDTH`] hold each slot number once.

use super::node::WIDTH;

/// A border node's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permutation(pub u64);

const _: () = assert!(WIDTH < 16, "a count and all slot numbers fit in nibbles");

impl Permutation {
    /// No slot in use, all free.
    pub(super) const fn empty() -> Permutation {
        let mut bits = 0;
        let mut slot = 0;
        while slot < WIDTH {
            bits |= (slot as u64) << (4 * (slot + 1));
            slot += 1;
        }
        Permutation(bits)
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        (self.0 & 0xf) as usize
    }

    /// The slot of the `rank`-th smallest place; ranks beyond the count give free slots.
    #[inline]
    pub(super) fn slot_at(self, rank: usize) -> usize {
        ((self.0 >> (4 * (rank + 1))) & 0xf) as usize
    }

    #[inline]
    fn nibbles_below(rank: usize) -> u64 {
        (1 << (4 * (rank + 1))) - 1
    }

    /// Moves the first free slot to `rank`; returns the new order and the slot's number.
    #[inline]
    pub(super) fn inserted(self, rank: usize) -> (Permutation, usize) {
        let count = self.count();
        debug_assert!(rank <= count && count < WIDTH, "the node has room");
        let slot = self.slot_at(count);
        let below = self.0 & Permutation::nibbles_below(rank);
        let above = self.0 & !Permutation::nibbles_below(count + 1);
        let moved =
            (self.0 & Permutation::nibbles_below(count)) & !Permutation::nibbles_below(rank);
        let bits = below | ((slot as u64) << (4 * (rank + 1))) | (moved << 4) | above;
        (Permutation(bits + 1), slot)
    }

    /// Makes the slot at `rank` the first free one.
    #[inline]
    pub(super) fn removed(self, rank: usize) -> Permutation {
        let count = self.count();
        debug_assert!(rank < count, "the slot is in use");
        let slot = self.slot_at(rank) as u64;
        let below = self.0 & Permutation::nibbles_below(rank);
        let above = self.0 & !Permutation::nibbles_below(count);
        let behind = self.0 & Permutation::nibbles_below(count);
        let moved = (behind & !Permutation::nibbles_below(rank + 1)) >> 4;
        Permutation((below | moved | (slot << (4 * count)) | above) - 1)
    }

    /// Keeps only the first `count` places.
    #[inline]
    pub(super) fn cut(self, count: usize) -> Permutation {
        debug_assert!(count <= self.count());
        Permutation((self.0 & !0xf) | count as u64)
    }

    /// Whether it has every slot once (I1).
    #[inline]
    pub(super) fn is_whole(self) -> bool {
        let seen = (0..WIDTH).fold(0_u32, |seen, rank| seen | (1 << self.slot_at(rank)));
        self.count() <= WIDTH && seen == (1 << WIDTH) - 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slots(order: Permutation) -> Vec<usize> {
        (0..order.count()).map(|rank| order.slot_at(rank)).collect()
    }

    #[test]
    fn inserting_and_removing_matches_a_plain_vector() {
        let (mut order, mut want) = (Permutation::empty(), Vec::new());
        let mut draw = 7_u64;
        for _ in 0..if cfg!(miri) { 300 } else { 10_000 } {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (draw >> 33) as usize;
            if order.count() == WIDTH || (random & 1 == 0 && order.count() > 0) {
                let rank = (random >> 1) % order.count();
                order = order.removed(rank);
                want.remove(rank);
            } else {
                let rank = (random >> 1) % (order.count() + 1);
                let (next, slot) = order.inserted(rank);
                order = next;
                want.insert(rank, slot);
            }
            assert!(order.is_whole(), "I1");
            assert_eq!(slots(order), want);
        }
    }

    #[test]
    fn a_cut_order_keeps_its_first_places() {
        let mut order = Permutation::empty();
        for rank in [0, 0, 1, 3] {
            order = order.inserted(rank).0;
        }
        let before = slots(order);
        assert_eq!(slots(order.cut(2)), before[..2]);
        assert!(order.cut(2).is_whole());
    }
}
