//! Parts of the index that a session has unlinked: they wait for their grace period, and are freed
//! a few at a time.
//!
//! ```text
//!  unlinked ─▶ tag: the grace period begins ─▶ all sessions have passed the tag ─▶ free
//! ```
//!
//! # Invariants
//! G1: a part gets its tag after it has left the index.
//! G2: tags grow from front to back, except for parts of sessions that have ended: these only wait
//!     longer.

use std::collections::VecDeque;

use index::hash::Block;
use index::tree::NodeMemory;

use crate::inner::Inner;

/// Blocks of the index that one step frees, beyond the number that it retired: some 10 us.
pub(super) const FREED_MAX: usize = 128;

/// Memory of the index that no other session may reach soon.
#[derive(Default)]
pub(super) struct Retired {
    /// Overflow buckets that have left their chain since the last quiescent point.
    pub lines: Vec<u32>,
    /// Nodes that have left the tree since then.
    pub nodes: Vec<u32>,
    /// Blocks in their grace period, oldest first.
    waiting: VecDeque<(u64, Block)>,
    /// Blocks that were freed, for bounding steps.
    freed_count: u64,
}

impl Retired {
    /// The number of lines and nodes whose grace period has not begun.
    #[inline]
    pub(super) fn unlinked_count(&self) -> usize {
        self.lines.len() + self.nodes.len()
    }

    /// The number of blocks freed since the session began.
    #[cfg(all(test, not(any(loom, miri))))]
    pub(super) fn freed_count(&self) -> u64 {
        self.freed_count
    }

    /// The number of blocks in their grace period.
    #[cfg(all(test, not(any(loom, miri))))]
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Starts the grace period of a block that has left the index.
    pub(super) fn add(&mut self, inner: &Inner, block: Block) {
        self.waiting.push_back((inner.epochs.advance(), block));
    }

    /// Starts the grace period of unlinked memory, and frees some older blocks; true: more of them
    /// could be freed.
    pub(super) fn free_some(&mut self, inner: &Inner) -> bool {
        let count = self.retire_unlinked(inner);
        self.free_safe(inner, FREED_MAX + count)
    }

    /// Like [`Retired::free_some`], for all blocks whose grace period is over.
    pub(super) fn drain(&mut self, inner: &Inner) {
        self.retire_unlinked(inner);
        self.free_safe(inner, usize::MAX);
    }

    /// Leaves all blocks to the next session that does housekeeping: other sessions may still read
    /// them.
    pub(super) fn leave(&mut self, inner: &Inner) {
        inner.orphans().extend(self.waiting.drain(..));
    }

    /// Starts the grace period of unlinked memory; returns the number of blocks.
    fn retire_unlinked(&mut self, inner: &Inner) -> usize {
        let count = self.unlinked_count();
        if !self.lines.is_empty() {
            let tag = inner.epochs.advance();
            let lines = self.lines.drain(..).map(|line| (tag, Block::line(line)));
            self.waiting.extend(lines);
        }
        if !self.nodes.is_empty() {
            let tag = inner.epochs.advance();
            let nodes = self.nodes.drain(..);
            self.waiting.extend(nodes.map(|node| (tag, NodeMemory::block_of(node))));
        }
        self.waiting.extend(inner.adopt_orphans());
        count
    }

    fn free_safe(&mut self, inner: &Inner, count_max: usize) -> bool {
        for _ in 0..count_max {
            let front = self.waiting.front().copied();
            let Some((_, block)) = front.filter(|(tag, _)| inner.epochs.is_safe(*tag)) else {
                return false;
            };
            inner.index.free(block);
            self.waiting.pop_front();
            self.freed_count += 1;
        }
        true
    }
}
