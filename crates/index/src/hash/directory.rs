//! The directory: maps a hash to the head of its chain, also while partitions change their size.
//!
//! ```text
//!  hash:  63        64-g                                          0
//!         +-----------+---------------+---------------------------+
//!         | partition | head in it (k)|                           |     shift = 64 - g - k
//!         +-----------+---------------+---------------------------+
//!              |
//!              v   63         32 31          7   6   5      0
//!  words[]:       +-------------+--------------+---+---------+
//!                 |    bias     |       0      | m |  shift  |     m: this partition is moving
//!                 +-------------+--------------+---+---------+
//!  head = (hash >> shift) + bias, modulo 2^32:  bias = first line - (partition << k)
//! ```
//!
//! While a partition moves, its word still names the old block and `targets[]` names the new one.
//! An old head whose word says "moved" has been emptied into the new block; only then does a reader
//! look at the target.
//!
//! # Invariants
//! I1: a partition's heads lie in the order of their hashes (K9), and never hold another's keys
//!     (K5).
//! I2: a target is stored before its word says "moving", and stays until the next move starts.
//!
//! # Concurrency
//! Any thread resolves, between two quiescent points of its session: a block that a word named is
//! not reused before all sessions have passed one. The session that has claimed a partition's move
//! stores its words (resize.rs). A resolved head may be stale at once: a session that then meets a
//! moved head resolves again.

use base::KeyHash;
use base::sync::{AtomicU64, Ordering};

use super::arena::Block;
use super::memory::Lines;

/// The head of a hash's chain, and the hashes that share the chain: those that agree above `shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line of the chain's head.
    pub head: u32,
    /// The hashes of the chain differ below this bit.
    pub shift: u32,
}

impl Place {
    /// The first hash of the next chain; `None` for the last chain.
    #[inline]
    pub fn next_hash(self, hash: KeyHash) -> Option<KeyHash> {
        let next = (hash.0 >> self.shift) + 1;
        // The last chain's next would be 2^64.
        (next << self.shift >> self.shift == next).then_some(KeyHash(next << self.shift))
    }

    /// The first hash of this chain.
    #[inline]
    pub fn first_hash(self, hash: KeyHash) -> KeyHash {
        KeyHash(hash.0 >> self.shift << self.shift)
    }
}

/// One partition's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

const SHIFT_MASK: u64 = 63;
const MOVING_BIT: u64 = 1 << 6;
const BIAS_SHIFT: u32 = 32;

impl Word {
    /// `block` holds the heads of `partition`, of 2^`partition_log2`.
    pub(super) fn new(block: Block, partition: u32, partition_log2: u32) -> Word {
        let shift = 64 - partition_log2 - block.log2_lines;
        assert!((1..64).contains(&shift), "a partition is half of all hashes at most");
        let bias = block.first_line.wrapping_sub(partition << block.log2_lines);
        Word(u64::from(bias) << BIAS_SHIFT | u64::from(shift))
    }

    fn moving(self) -> Word {
        Word(self.0 | MOVING_BIT)
    }

    #[inline]
    pub(super) fn is_moving(self) -> bool {
        self.0 & MOVING_BIT != 0
    }

    #[inline(always)]
    pub(super) fn head_of(self, hash: KeyHash) -> u32 {
        // `wrapping_shr` takes the low six bits: the shift.
        let prefix = hash.0.wrapping_shr(self.0 as u32) as u32;
        prefix.wrapping_add((self.0 >> BIAS_SHIFT) as u32)
    }

    fn place_of(self, hash: KeyHash) -> Place {
        Place { head: self.head_of(hash), shift: (self.0 & SHIFT_MASK) as u32 }
    }

    /// The block of `partition`; `partition_log2` as in `new`.
    pub(super) fn block(self, partition: u32, partition_log2: u32) -> Block {
        let log2_lines = 64 - partition_log2 - (self.0 & SHIFT_MASK) as u32;
        let bias = (self.0 >> BIAS_SHIFT) as u32;
        Block { first_line: bias.wrapping_add(partition << log2_lines), log2_lines }
    }
}

/// One word for each partition.
pub(super) struct Directory {
    words: Box<[AtomicU64]>,
    targets: Box<[AtomicU64]>,
    partition_log2: u32,
    /// 64 - `partition_log2`.
    partition_shift: u32,
}

impl Directory {
    /// `blocks[p]` holds partition p's heads; their number is a power of two, at least two.
    pub(super) fn new(blocks: &[Block]) -> Directory {
        let partition_log2 = blocks.len().trailing_zeros();
        assert!(blocks.len() == 1 << partition_log2 && partition_log2 > 0);
        let word = |(partition, block): (usize, &Block)| {
            AtomicU64::new(Word::new(*block, partition as u32, partition_log2).0)
        };
        Directory {
            words: blocks.iter().enumerate().map(word).collect(),
            targets: blocks.iter().map(|_| AtomicU64::new(0)).collect(),
            partition_log2,
            partition_shift: 64 - partition_log2,
        }
    }

    pub(super) fn partition_log2(&self) -> u32 {
        self.partition_log2
    }

    pub(super) fn partition_count(&self) -> u32 {
        self.words.len() as u32
    }

    #[inline(always)]
    fn partition_of(&self, hash: KeyHash) -> usize {
        (hash.0 >> self.partition_shift) as usize
    }

    /// The head of a hash's chain.
    #[inline(always)] // Called twice for each GET; out of line it is 8 % of its instructions.
    pub(super) fn head_of(&self, lines: &Lines, hash: KeyHash) -> u32 {
        // SAFETY: `words` has 2^g entries, and the shift leaves g bits of the hash (`new`).
        let word = unsafe { self.words.get_unchecked(self.partition_of(hash)) };
        // Acquire pairs with `end_move`: the new block's heads are complete.
        let word = Word(word.load(Ordering::Acquire));
        if word.is_moving() {
            return self.moving_head_of(lines, hash);
        }
        word.head_of(hash)
    }

    #[cold]
    #[inline(never)]
    fn moving_head_of(&self, lines: &Lines, hash: KeyHash) -> u32 {
        self.place_of(lines, hash).head
    }

    /// The present place of a hash's chain.
    pub(super) fn place_of(&self, lines: &Lines, hash: KeyHash) -> Place {
        let partition = self.partition_of(hash);
        loop {
            let word = Word(self.words[partition].load(Ordering::Acquire));
            let place = word.place_of(hash);
            if !word.is_moving() || !lines[place.head].word().is_moved() {
                return place;
            }
            // Acquire: a thread that sees a later move's target also sees, below, that this one
            // ended (I2).
            let target = Word(self.targets[partition].load(Ordering::Acquire));
            if Word(self.words[partition].load(Ordering::Relaxed)) == word {
                return target.place_of(hash);
            }
        }
    }

    /// The partition's present word.
    pub(super) fn word(&self, partition: u32) -> Word {
        Word(self.words[partition as usize].load(Ordering::Acquire))
    }

    /// The target of a moving partition.
    pub(super) fn target(&self, partition: u32) -> Word {
        Word(self.targets[partition as usize].load(Ordering::Acquire))
    }

    /// Begins a move of the partition to `block`; returns the word for finding heads there.
    pub(super) fn start_move(&self, partition: u32, block: Block) -> Word {
        let old = self.word(partition);
        assert!(!old.is_moving(), "a partition makes one move at a time");
        let target = Word::new(block, partition, self.partition_log2);
        self.targets[partition as usize].store(target.0, Ordering::Release);
        self.words[partition as usize].store(old.moving().0, Ordering::Release);
        target
    }

    /// Ends a move: all heads have moved.
    pub(super) fn end_move(&self, partition: u32) {
        let target = self.target(partition);
        self.words[partition as usize].store(target.0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// docs/formats/index-bucket.md, "Worked example".
    #[test]
    fn the_worked_example_of_the_format_page_holds() {
        let word = Word::new(Block { first_line: 512, log2_lines: 3 }, 2, 2);
        assert_eq!(word.0, 496 << BIAS_SHIFT | 59);
        let hash = KeyHash(0x8800_0000_0000_1234);
        assert_eq!(word.head_of(hash), 513);
        assert_eq!(word.moving().head_of(hash), 513);
        assert_eq!(word.block(2, 2), Block { first_line: 512, log2_lines: 3 });
    }

    #[test]
    fn heads_of_any_block_follow_the_order_of_hashes() {
        for (partition, partition_log2, first_line, log2_lines) in
            [(0, 1, 0, 0), (1, 1, 7, 0), (5, 3, 4096, 12), (1023, 10, u32::MAX - 63, 6)]
        {
            let block = Block { first_line, log2_lines };
            let word = Word::new(block, partition, partition_log2);
            let start = u64::from(partition) << (64 - partition_log2);
            let shift = 64 - partition_log2 - log2_lines;
            let count = 1 << log2_lines;
            for head in [0, count / 2, count - 1] {
                let first = KeyHash(start + (u64::from(head) << shift));
                let last = KeyHash(first.0 + ((1_u64 << shift) - 1));
                let place = word.place_of(last);
                assert_eq!(place, Place { head: first_line + head, shift });
                assert_eq!((word.head_of(first), place.first_hash(last)), (place.head, first));
                let next = place.next_hash(first);
                assert_eq!(next, last.0.checked_add(1).map(KeyHash));
            }
            assert_eq!(word.block(partition, partition_log2), block);
        }
    }
}
