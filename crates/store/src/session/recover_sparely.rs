//! Recovery into an index with little room: only live keys are inserted, and in key order.
//!
//! ```text
//!  lists, sorted in place   | a5 b2 z1 |   | a7 b9 |   | c1 d(3) |      by key, newest first
//!                              └──────── heap of fronts ────┘
//!  merged                   a7 (a5) b9 (b2) c1 (d3) z1                  ( ) superseded or deleted
//!  lists                    | z1 |   | a7 b9 |   | c1 |                 four keys: so many heads
//!  indexed                  a7, b9, c1, z1, in this order in a tree
//! ```
//!
//! The log of a full store holds more keys than are live: superseded entries and deletes, whose
//! slots come and go when entries are recovered in log order. Also, a tree whose keys are inserted
//! in random order has a third more nodes than one whose keys are inserted in key order, which
//! fills each node.
//!
//! # Invariants
//! I1: a key gets a slot only if it keeps the slot; a delete gets one only where entries follow
//!     that are not in the lists.
//! I2: no memory is allocated per entry: the lists are sorted in place, and the heap has one front
//!     for each list.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use index::hash::IndexFull;

use super::recover::{
    RECOVER_ENTRIES, count_delete, end_recover_chunk, recover_all, recover_found, tell_delete,
};
use super::{Local, Session};
use crate::entry::{ALIGN_BYTES, Entry};
use crate::inner::Inner;
use crate::log::Reserve;

/// The positions of entries: in words behind a first place.
pub(crate) struct Starts<'l> {
    pub first_bytes: u64,
    pub words: &'l mut [u32],
}

/// The first entry of a list that was not taken yet.
struct Front<'i> {
    entry: Entry<'i>,
    list: usize,
    at: usize,
}

/// Recovers all entries of `lists` whose versions are above the floors of their shards, with
/// the same result as [`recover_all`] and, unless `keeps_deletes`,
/// [`drop_deletes`]. No other session is active. `threads` threads sort.
pub(crate) fn recover_sparely(
    session: &mut Session,
    lists: &mut [Starts<'_>],
    (threads, keeps_deletes): (usize, bool),
    floor_of: &impl Fn(u16) -> u64,
) -> Result<(), IndexFull> {
    let Session { inner, local } = session;
    // The segments kept for sessions that make room may have been in use.
    inner.log.allocator().set_reserve(Reserve::default());
    sort(inner, lists, threads);
    let (mut newest, mut count): (Option<Entry<'_>>, u64) = (None, 0);
    merge(inner, lists, |entry, offset_bytes| {
        let is_dead = entry.version() <= floor_of(entry.shard())
            || newest.is_some_and(|newest| newest.key() == entry.key());
        if !is_dead {
            newest = Some(entry);
        }
        let keeps = !is_dead && (keeps_deletes || !entry.is_delete());
        if !keeps {
            pass_over(local, inner, (entry, offset_bytes), is_dead);
        }
        count += u64::from(keeps);
        Ok(keeps)
    })?;
    inner.index.presize(count);
    match &inner.tree {
        Some(_) => recover_in_order(local, inner, lists),
        None => lists
            .iter()
            .try_for_each(|list| recover_all(session, list.first_bytes, list.words, &|_| 0)),
    }
}

/// Visits all entries of sorted lists in one order; those that `visit` keeps stay in their lists.
fn merge<'i>(
    inner: &'i Inner,
    lists: &mut [Starts<'_>],
    mut visit: impl FnMut(Entry<'i>, u64) -> Result<bool, IndexFull>,
) -> Result<(), IndexFull> {
    let mut kept = vec![0; lists.len()];
    let mut fronts: BinaryHeap<Reverse<Front<'i>>> =
        (0..lists.len()).filter_map(|list| Front::of(inner, lists, list, 0)).collect();
    while let Some(mut first) = fronts.peek_mut() {
        let Front { entry, list, at } = first.0;
        let (offset_bytes, word) = (offset_of(&lists[list], at), lists[list].words[at]);
        match Front::of(inner, lists, list, at + 1) {
            Some(next) => *first = next,
            None => drop(PeekMut::pop(first)),
        }
        if visit(entry, offset_bytes)? {
            lists[list].words[kept[list]] = word;
            kept[list] += 1;
        }
    }
    for (list, kept) in lists.iter_mut().zip(kept) {
        list.words = &mut std::mem::take(&mut list.words)[..kept];
    }
    Ok(())
}

/// Sorts by key, newest first, on several threads.
fn sort(inner: &Inner, lists: &mut [Starts<'_>], threads: usize) {
    let sort = |list: &mut Starts<'_>| {
        let first_bytes = list.first_bytes;
        let entry = |word: u32| entry_at(inner, first_bytes + u64::from(word) * ALIGN_BYTES as u64);
        list.words.sort_unstable_by(|one, other| order(&entry(*one), &entry(*other)));
    };
    let part_len = lists.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for part in lists.chunks_mut(part_len) {
            scope.spawn(move || part.iter_mut().for_each(sort));
        }
    });
}

fn offset_of(list: &Starts<'_>, at: usize) -> u64 {
    list.first_bytes + u64::from(list.words[at]) * ALIGN_BYTES as u64
}

fn entry_at(inner: &Inner, offset_bytes: u64) -> Entry<'_> {
    // SAFETY: restored before this call, and no thread frees segments during recovery.
    unsafe { inner.log.entry(offset_bytes) }
}

/// Orders by key; for one key the highest version comes first, and a delete before the put that it
/// superseded.
fn order(one: &Entry<'_>, other: &Entry<'_>) -> Ordering {
    let age = |entry: &Entry<'_>| Reverse((entry.version(), entry.is_delete()));
    one.key().cmp(other.key()).then_with(|| age(one).cmp(&age(other)))
}

impl<'i> Front<'i> {
    fn of(
        inner: &'i Inner,
        lists: &[Starts<'_>],
        list: usize,
        at: usize,
    ) -> Option<Reverse<Front<'i>>> {
        let starts = &lists[list];
        let is_there = at < starts.words.len();
        is_there.then(|| Reverse(Front { entry: entry_at(inner, offset_of(starts, at)), list, at }))
    }
}

impl Ord for Front<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.entry, &other.entry)
    }
}

impl PartialOrd for Front<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Front<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Front<'_> {}

/// Recovers lists in which each key occurs once.
fn recover_in_order(
    local: &mut Local,
    inner: &Inner,
    lists: &mut [Starts<'_>],
) -> Result<(), IndexFull> {
    let mut seen = 0;
    merge(inner, lists, |entry, offset_bytes| {
        let hash = inner.hasher.hash(entry.key());
        recover_found(local, inner, hash, (entry, offset_bytes), 0)?;
        seen += 1;
        if seen % RECOVER_ENTRIES == 0 {
            end_recover_chunk(local, inner);
        }
        Ok(true)
    })?;
    end_recover_chunk(local, inner);
    Ok(())
}

/// Handles an entry that gets no slot. A delete stays in the log (I2 of recover.rs), and is
/// reported if it is the newest entry of its key.
fn pass_over(local: &mut Local, inner: &Inner, found: (Entry<'_>, u64), is_dead: bool) {
    let (entry, _) = found;
    if entry.is_delete() {
        count_delete(local, inner, found);
        if !is_dead {
            tell_delete(inner, entry);
        }
    }
}
