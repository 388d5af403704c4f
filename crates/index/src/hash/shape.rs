//! The size that the index should have: partitions are doubled one after another as items come, and
//! halved in the opposite order as they go.
//!
//! ```text
//!  items per head of a partition not yet doubled:
//!     0        1   1.375       2.75      4         5.5
//!     +--------+-----+-----------+-------+----------+
//!     | halved | ... |      nothing      | doubled .|    ...: one partition after another
//!     +--------+-----+-----------+-------+----------+
//!  partitions:  | 2^(k+1) heads | 2^(k+1) | 2^k | 2^k | 2^k |
//!                 0               1    ^ doubled = 2
//! ```
//!
//! A doubling at 4 to 5.5 items a head leaves 2 to 2.75, and the next doubling comes at 4. A
//! halving at 1.375 to 1 leaves 2.75 to 2. So a load that swings by less than a factor of 2.9 never
//! moves an entry back and forth, and memory follows the items without a jump: each partition takes
//! one block twice as large and gives one back.
//!
//! # Invariants
//! I1: `doubled` is below the number of partitions.
//! I2: a shape never falls below the one it was opened with.

/// The number of heads of each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    /// Heads of a partition that is not doubled, as a power of two: k.
    pub heads_log2: u32,
    /// The partitions below this one have twice as many.
    pub doubled: u32,
}

/// The limits of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub partition_log2: u32,
    /// The shape that the index was opened with (I2).
    pub least: Shape,
    /// Lines of the largest block, as a power of two.
    pub heads_log2_max: u32,
}

/// A change of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub partition: u32,
    /// The number of its heads afterwards.
    pub heads_log2: u32,
    /// The shape with this change.
    pub shape: Shape,
}

impl Shape {
    /// The largest shape of at most `heads` heads; at least one head a partition.
    pub(super) fn for_heads(heads: u64, partition_log2: u32, heads_log2_max: u32) -> Shape {
        let each = (heads >> partition_log2).max(1);
        let heads_log2 = each.ilog2();
        if heads_log2 >= heads_log2_max {
            return Shape { heads_log2: heads_log2_max, doubled: 0 };
        }
        let beyond = heads.saturating_sub(1 << (partition_log2 + heads_log2));
        Shape { heads_log2, doubled: (beyond >> heads_log2) as u32 }
    }

    /// The number of heads of one partition, as a power of two.
    pub(super) fn heads_log2_of(self, partition: u32) -> u32 {
        self.heads_log2 + u32::from(partition < self.doubled)
    }

    /// The number of heads of all partitions.
    #[inline]
    pub(super) fn head_count(self, partition_log2: u32) -> u64 {
        (1 << (partition_log2 + self.heads_log2)) + (u64::from(self.doubled) << self.heads_log2)
    }

    /// With more items than this the next partition is doubled: 4 a head, and 1.5 more while the
    /// partitions take their turns.
    #[inline]
    pub(super) fn grows_above(self, bounds: &Bounds) -> u64 {
        if self.heads_log2 >= bounds.heads_log2_max {
            return u64::MAX;
        }
        (4 << (bounds.partition_log2 + self.heads_log2))
            + ((3 * u64::from(self.doubled)) << self.heads_log2) / 2
    }

    /// With fewer items than this the last doubled partition is halved: 1 for each of its heads,
    /// and 0.375 more while the partitions take their turns.
    #[inline]
    pub(super) fn shrinks_below(self, bounds: &Bounds) -> u64 {
        if self <= bounds.least {
            return 0;
        }
        let Shape { heads_log2, doubled } = self.as_doubled(bounds.partition_log2);
        (2 << (bounds.partition_log2 + heads_log2)) + ((3 * u64::from(doubled)) << heads_log2) / 4
    }

    /// The same heads, seen as at least one doubled partition.
    fn as_doubled(self, partition_log2: u32) -> Shape {
        match self.doubled {
            0 => Shape { heads_log2: self.heads_log2 - 1, doubled: 1 << partition_log2 },
            _ => self,
        }
    }

    /// The next change towards what `items` need, if any is due.
    pub(super) fn change_for(self, items: u64, bounds: &Bounds) -> Option<Change> {
        if items > self.grows_above(bounds) {
            let doubled = self.doubled + 1;
            let shape = match doubled >> bounds.partition_log2 {
                0 => Shape { doubled, ..self },
                _ => Shape { heads_log2: self.heads_log2 + 1, doubled: 0 },
            };
            let heads_log2 = self.heads_log2 + 1;
            return Some(Change { partition: self.doubled, heads_log2, shape });
        }
        if items < self.shrinks_below(bounds) {
            let Shape { heads_log2, doubled } = self.as_doubled(bounds.partition_log2);
            let shape = Shape { heads_log2, doubled: doubled - 1 };
            return Some(Change { partition: doubled - 1, heads_log2, shape });
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { partition_log2: 6, least: Shape { heads_log2: 1, doubled: 3 }, heads_log2_max: 8 };

    /// Applies every due change; returns their number.
    fn settle(shape: &mut Shape, items: u64) -> u32 {
        let mut changes = 0;
        while let Some(change) = shape.change_for(items, &BOUNDS) {
            let before = shape.heads_log2_of(change.partition);
            *shape = change.shape;
            assert_eq!(shape.heads_log2_of(change.partition), change.heads_log2);
            assert_eq!(before.abs_diff(change.heads_log2), 1, "a partition doubles or halves");
            assert!(shape.doubled < 64, "I1");
            assert!(*shape >= BOUNDS.least, "I2");
            changes += 1;
            assert!(changes < 1000, "growing and shrinking chase each other");
        }
        changes
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn items_a_head_stay_between_two_and_five_and_a_half_while_growing() {
        let mut shape = BOUNDS.least;
        for items in 0..60_000 {
            assert!(settle(&mut shape, items) <= 2, "one insert, about one partition");
            if shape > BOUNDS.least && shape.heads_log2 < BOUNDS.heads_log2_max {
                let fill = items as f64 / (64 << shape.heads_log2) as f64;
                assert!((2.7..=5.6).contains(&fill), "{items} items in {shape:?}");
            }
        }
        assert_eq!(shape, Shape { heads_log2: 8, doubled: 0 }, "as large as it may be");
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn what_goes_lets_the_index_shrink_to_what_it_was_opened_with() {
        let mut shape = BOUNDS.least;
        settle(&mut shape, 60_000);
        for items in (0..60_000).rev() {
            assert!(settle(&mut shape, items) <= 2, "one removal, about one partition");
            if shape > BOUNDS.least {
                let fill = items as f64 / shape.head_count(6) as f64;
                assert!(fill >= 0.99, "{items} items in {shape:?}");
            }
        }
        assert_eq!(shape, BOUNDS.least);
    }

    #[test]
    #[cfg_attr(miri, ignore = "many steps of safe code")]
    fn a_load_that_swings_by_half_moves_nothing_after_the_first_time() {
        let mut shape = BOUNDS.least;
        for high in [500, 1_000, 3_000, 7_777, 12_000] {
            settle(&mut shape, high);
            let settled = shape;
            for items in (high / 2..high).rev().chain(high / 2..=high) {
                assert_eq!(settle(&mut shape, items), 0, "{items} of {high} in {settled:?}");
            }
        }
    }

    #[track_caller]
    fn check_for_heads(heads: u64, want: Shape, want_heads: u64) {
        let shape = Shape::for_heads(heads, 6, 8);
        assert_eq!((shape, shape.head_count(6)), (want, want_heads));
    }

    #[test]
    fn a_first_shape_uses_the_heads_it_is_given() {
        check_for_heads(0, Shape { heads_log2: 0, doubled: 0 }, 64);
        check_for_heads(100, Shape { heads_log2: 0, doubled: 36 }, 100);
        check_for_heads(1000, Shape { heads_log2: 3, doubled: 61 }, 1000);
        check_for_heads(1 << 30, Shape { heads_log2: 8, doubled: 0 }, 64 << 8);
    }
}
