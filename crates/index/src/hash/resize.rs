//! Moves partitions to blocks of twice or half the size, some chains at a time.
//!
//! ```text
//!  old block:  | moved | moved | chain | chain |         directory: old block, "moving"
//!                  \       \       ^ next                 target: new block
//!  new block:  | c | c | c | c |  not yet used  |
//! ```
//!
//! When a partition grows, the next bit of the hash splits the chain of old head i into the heads
//! 2i and 2i + 1; when it shrinks, those two become one. A step locks the old chain or chains,
//! completes the new ones, which no other thread can reach yet, empties the old heads and marks
//! them moved. The last step makes the directory name the new block; the old block is reused after
//! a grace period.
//!
//! # Invariants
//! I1: one thread at a time works on a move: it takes the move from the list, or creates it, and
//!     puts it back.
//! I2: a new head's version is above those of the heads it replaces (K1).
//! I3: a step does not wait for a chain that another session has locked: it ends there, and a later
//!     step continues.
//!
//! # Concurrency
//! Any number of moves run at once, each of another partition. The list and the shape are under one
//! mutex, taken once a step.

use std::collections::VecDeque;

use base::KeyHash;
use base::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crossbeam_utils::CachePadded;

use super::bucket::SLOTS;
use super::directory::Word;
use super::shape::{Bounds, Shape};
use super::slot::Slot;
use super::{Block, Chain, Index};

/// Heads whose entries are prefetched together.
const GROUP_HEADS: u32 = 8;

/// The partitions that are moving, and those that are next.
pub(super) struct Resizer {
    bounds: Bounds,
    /// The number of items as reported by sessions; each reports several at a time.
    items: CachePadded<AtomicU64>,
    /// The item count at which the shape changes next; written under the mutex, read without.
    grows_above: AtomicU64,
    shrinks_below: AtomicU64,
    /// The number of moves that no session works on.
    idle_count: AtomicU64,
    state: Mutex<State>,
}

struct State {
    shape: Shape,
    idle: VecDeque<Move>,
    moving: u64,
    moved: u64,
    /// Lines in blocks of moving partitions, beyond those of the shape.
    extra_lines: u64,
}

/// A partition's move to another block.
pub struct Move {
    partition: u32,
    from: Block,
    to: Block,
    target: Word,
    /// The next head of the old block, counted from its start.
    next: u32,
    /// Entries of the chains being moved, for each new chain; kept to reuse their memory.
    sides: [Vec<Slot>; 2],
}

/// The progress of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This many old heads have moved.
    Heads(u32),
    /// A chain is locked, or no overflow bucket is left: try again later.
    Blocked,
    /// No head is left: end the move.
    All,
}

/// Counters for statistics.
pub(super) struct Counts {
    pub heads: u64,
    pub head_lines: u64,
    pub moved: u64,
    pub moving: u64,
}

impl Resizer {
    pub(super) fn new(bounds: Bounds, is_fixed: bool) -> Resizer {
        let shape = bounds.least;
        let grows_above = if is_fixed { u64::MAX } else { shape.grows_above(&bounds) };
        Resizer {
            bounds,
            items: CachePadded::new(AtomicU64::new(0)),
            grows_above: AtomicU64::new(grows_above),
            shrinks_below: AtomicU64::new(0),
            idle_count: AtomicU64::new(0),
            state: Mutex::new(State {
                shape,
                idle: VecDeque::new(),
                moving: 0,
                moved: 0,
                extra_lines: 0,
            }),
        }
    }

    #[inline]
    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code that holds this lock panics")
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.state();
        let heads = state.shape.head_count(self.bounds.partition_log2);
        let head_lines = heads + state.extra_lines;
        Counts { heads, head_lines, moved: state.moved, moving: state.moving }
    }

    /// The items added minus those removed by sessions, wrapped; below zero while one session's
    /// removal is known and another's insert is not.
    #[inline]
    fn items(&self) -> u64 {
        u64::try_from(self.items.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// Whether the shape should change, judged without the lock.
    #[inline]
    fn is_change_due(&self) -> bool {
        let items = self.items();
        items > self.grows_above.load(Ordering::Relaxed)
            || items < self.shrinks_below.load(Ordering::Relaxed)
    }

    /// The lines of all partitions, and both blocks of moving ones; checks the shape.
    pub(super) fn validate(&self, index: &Index) -> u64 {
        let state = self.state();
        assert_eq!(state.idle.len() as u64, state.moving, "no session works on a move");
        let directory = &index.directory;
        let mut lines = 0;
        for partition in 0..directory.partition_count() {
            let word = directory.word(partition);
            let block = word.block(partition, directory.partition_log2());
            let wanted = state.shape.heads_log2_of(partition);
            lines += block.line_count();
            match state.idle.iter().find(|job| job.partition == partition) {
                Some(job) => {
                    assert!(word.is_moving() && job.from == block);
                    assert_eq!(job.to.log2_lines, wanted);
                    lines += job.to.line_count();
                }
                None => assert!(!word.is_moving() && block.log2_lines == wanted),
            }
        }
        assert_eq!(lines, state.shape.head_count(self.bounds.partition_log2) + state.extra_lines);
        lines
    }
}

impl Index {
    /// Counts added items, or removed ones if `net` is below zero. Returns whether
    /// [`Index::next_move`] may have work.
    #[inline]
    pub fn count_items(&self, net: i64) -> bool {
        // Relaxed: only the choice of a size depends on this count.
        self.resizer.items.fetch_add(net.cast_unsigned(), Ordering::Relaxed);
        self.wants_move()
    }

    /// Whether [`Index::next_move`] may have work; costs some loads.
    #[inline]
    pub fn wants_move(&self) -> bool {
        self.resizer.idle_count.load(Ordering::Relaxed) > 0 || self.resizer.is_change_due()
    }

    /// Takes a move that has begun, or begins the one that is due; `None` if there is none, or no
    /// memory for it.
    pub fn next_move(&self) -> Option<Move> {
        let resizer = &self.resizer;
        let mut state = resizer.state();
        if let Some(job) = state.idle.pop_front() {
            resizer.idle_count.store(state.idle.len() as u64, Ordering::Relaxed);
            return Some(job);
        }
        if !resizer.is_change_due() {
            return None;
        }
        let change = state.shape.change_for(resizer.items(), &resizer.bounds)?;
        let partition = change.partition;
        let word = self.directory.word(partition);
        if word.is_moving() {
            return None;
        }
        let first_line = self.arena.take(change.heads_log2)?;
        let to = Block { first_line, log2_lines: change.heads_log2 };
        let from = word.block(partition, self.directory.partition_log2());
        state.shape = change.shape;
        state.moving += 1;
        state.extra_lines += from.line_count();
        resizer.grows_above.store(change.shape.grows_above(&resizer.bounds), Ordering::Relaxed);
        resizer.shrinks_below.store(change.shape.shrinks_below(&resizer.bounds), Ordering::Relaxed);
        let target = self.directory.start_move(partition, to);
        Some(Move { partition, from, to, target, next: 0, sides: [Vec::new(), Vec::new()] })
    }

    /// Called before the first item and the first session: makes as many heads as `items` will
    /// need, as far as there is memory, so that hardly a chain is moved while they are inserted.
    pub fn presize(&self, items: u64) {
        let Resizer { bounds, grows_above, .. } = &self.resizer;
        let mut state = self.resizer.state();
        if items <= grows_above.load(Ordering::Relaxed) {
            return;
        }
        let partition_log2 = self.directory.partition_log2();
        while let Some(change) = state.shape.change_for(items, bounds) {
            let Some(first_line) = self.arena.take(change.heads_log2) else { break };
            let to = Block { first_line, log2_lines: change.heads_log2 };
            let from =
                self.directory.word(change.partition).block(change.partition, partition_log2);
            self.directory.start_move(change.partition, to);
            self.directory.end_move(change.partition);
            self.free(from);
            state.shape = change.shape;
        }
        self.clear_heads();
        grows_above.store(state.shape.grows_above(bounds), Ordering::Relaxed);
        // Set before the items are there: otherwise the index would shrink.
    }

    /// Empties all heads, whatever their lines contained; called before any other use of the index.
    pub fn clear_heads(&self) {
        let partition_log2 = self.directory.partition_log2();
        for partition in 0..self.directory.partition_count() {
            let block = self.directory.word(partition).block(partition, partition_log2);
            for line in block.first_line..block.first_line + block.line_count() as u32 {
                self.memory[line].start_with(0, std::iter::empty());
            }
        }
    }

    /// Ends [`Index::presize`]: the announced items have come, or were fewer.
    pub fn end_presize(&self) {
        let Resizer { bounds, shrinks_below, .. } = &self.resizer;
        let state = self.resizer.state();
        if !self.is_lossy {
            shrinks_below.store(state.shape.shrinks_below(bounds), Ordering::Relaxed);
        }
    }

    /// Puts back an unfinished move.
    pub fn put_back(&self, job: Move) {
        let mut state = self.resizer.state();
        // Behind the others: a blocked move delays no other.
        state.idle.push_back(job);
        self.resizer.idle_count.store(state.idle.len() as u64, Ordering::Relaxed);
    }

    /// Ends a move after [`Moved::All`]; returns the old block, to be freed after a grace period.
    pub fn end_move(&self, job: Move) -> Block {
        assert!(job.is_at_end());
        self.directory.end_move(job.partition);
        let mut state = self.resizer.state();
        state.moving -= 1;
        state.moved += 1;
        state.extra_lines -= job.from.line_count();
        job.from
    }

    /// Calls `visit` with the entries that a growing move will hash some heads later, and
    /// prefetches the lines that lie beyond, so that their cache misses overlap with work.
    ///
    /// ```text
    ///  | moved | group at work | entries asked for | heads asked for |
    ///          ^ next
    /// ```
    pub fn foresee(&self, job: &Move, mut visit: impl FnMut(Slot)) {
        if !job.next.is_multiple_of(GROUP_HEADS) {
            return;
        }
        let end = job.from.line_count() as u32;
        // A new move has had no step before it to look ahead.
        let near = if job.next == 0 { 0 } else { job.next + GROUP_HEADS };
        let middle = end.min(job.next + 2 * GROUP_HEADS);
        let far = end.min(job.next + 3 * GROUP_HEADS);
        for head in near..middle {
            let bucket = &self.memory[job.from.first_line + head];
            if job.is_growing() {
                let entries = (0..SLOTS).map(|i| bucket.slot(i)).filter(|slot| slot.is_entry());
                entries.for_each(&mut visit);
                for new in [2 * head, 2 * head + 1] {
                    let line = &self.memory[job.to.first_line + new];
                    crate::prefetch::line_for_write(std::ptr::from_ref(line).cast());
                }
            }
        }
        (middle..far).for_each(|head| self.prefetch(job.from.first_line + head));
    }

    /// Moves the next chain, or the next two when shrinking.
    pub fn move_next(
        &self,
        job: &mut Move,
        mut hash_of: impl FnMut(Slot) -> KeyHash,
        retired: &mut Vec<u32>,
    ) -> Moved {
        if job.is_at_end() {
            return Moved::All;
        }
        let head = job.from.first_line + job.next;
        let Ok(first) = Chain::try_lock(self, head) else { return Moved::Blocked };
        job.sides.iter_mut().for_each(Vec::clear);
        if job.is_growing() {
            let low = job.to.first_line + 2 * job.next;
            first.entries(|position| {
                let to = job.target.head_of(hash_of(position.slot));
                assert!(to == low || to == low + 1, "a chain splits by the next bit (K9)");
                job.sides[(to - low) as usize].push(position.slot);
            });
            let version = first.next_version(); // I2.
            let sides = [&job.sides[0][..], &job.sides[1][..]];
            if !self.write_chains(low, &sides, version) {
                return Moved::Blocked;
            }
            first.finish_moved(version, retired);
            job.next += 1;
            return Moved::Heads(1);
        }
        let Ok(second) = Chain::try_lock(self, head + 1) else { return Moved::Blocked };
        first.entries(|position| job.sides[0].push(position.slot));
        second.entries(|position| job.sides[0].push(position.slot));
        let version = first.next_version().max(second.next_version()); // I2.
        let low = job.to.first_line + job.next / 2;
        if !self.write_chains(low, &[&job.sides[0][..]], version) {
            return Moved::Blocked;
        }
        first.finish_moved(version, retired);
        second.finish_moved(version, retired);
        job.next += 2;
        Moved::Heads(2)
    }

    /// Writes chains that no other thread can reach, or into an empty index without other threads,
    /// from the head `low` on. False: too few overflow buckets are left for them, and none was
    /// taken.
    pub(super) fn write_chains(&self, low: u32, chains: &[&[Slot]], version: u64) -> bool {
        let overflow_of = |slots: &&[Slot]| slots.len().saturating_sub(SLOTS).div_ceil(SLOTS - 1);
        let wanted: usize = chains.iter().map(overflow_of).sum();
        let mut fresh = Vec::new(); // Allocates only for chains with overflow.
        while fresh.len() < wanted {
            let Some(line) = self.take_overflow() else {
                fresh.into_iter().for_each(|line| self.free(Block::line(line)));
                return false;
            };
            fresh.push(line);
        }
        for (head, slots) in (low..).zip(chains) {
            let (mut at, mut word, mut rest) = (head, version, *slots);
            while rest.len() > SLOTS {
                let next = fresh.pop().expect("as many as were counted");
                let (here, beyond) = rest.split_at(SLOTS - 1);
                let here = here.iter().copied().chain([Slot::link(next)]);
                self.memory[at].start_with(word, here);
                (at, word, rest) = (next, 0, beyond);
            }
            self.memory[at].start_with(word, rest.iter().copied());
        }
        true
    }
}

impl Move {
    fn is_growing(&self) -> bool {
        self.to.log2_lines > self.from.log2_lines
    }

    fn is_at_end(&self) -> bool {
        u64::from(self.next) == self.from.line_count()
    }
}
