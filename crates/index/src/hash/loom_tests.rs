//! Loom tests: publishing, replacing, moving and removing slots under concurrent readers.
//!
//! Loom remembers one last access of each atomic. A thread's own plain load hides an earlier load
//! of another thread, so loom never tries the interleaving in which this thread's store comes
//! first. Under loom, therefore, the holder of a lock reads by an exchange that always fails
//! (`load_held` of bucket.rs), which loom does track.

use base::KeyHash;
use base::sync::{Arc, AtomicU64, Ordering, fence};

use super::arena::tests::FewLines;
use super::slot::{Slot, Tag};
use super::{Block, Index, IndexPlan, Lines, Moved, SLOTS};
use crate::epoch::Epochs;
use crate::in_place::InPlace;

/// An index of two heads, one a partition, in eight lines. Ids below 50 have their chain in the
/// first partition; an odd one goes to the second head when the partition is doubled.
fn one_chain(entries: u64) -> Index {
    let plan = IndexPlan { partition_log2: 1, heads: 2, is_lossy: false };
    let index = Index::new(Lines::new(8), FewLines::new(3, 1), plan).unwrap();
    let mut chain = index.lock(hash_of(0));
    for id in 0..entries {
        chain.insert(slot_of(id)).unwrap();
    }
    chain.finish();
    index
}

fn hash_of(id: u64) -> KeyHash {
    KeyHash((id & 1) << 62 | (id + 1))
}

fn tag_of(id: u64) -> Tag {
    Tag::of(hash_of(id))
}

fn slot_of(id: u64) -> Slot {
    Slot::entry(tag_of(id), id * 8)
}

fn hash_of_slot(slot: Slot) -> KeyHash {
    hash_of(slot.offset_bytes() / 8 % 100)
}

fn find(index: &Index, id: u64) -> Option<u64> {
    let hash = hash_of(id);
    let found = index.find(index.head_of(hash), hash, |_| true);
    found.map(|position| position.slot.offset_bytes())
}

/// Doubles the first partition (`net` > 0) or halves it again. Returns its old block, which may be
/// freed after a grace period, and overflow buckets.
fn resize(index: &Index, net: i64) -> (Block, Vec<u32>) {
    index.count_items(net);
    let mut job = index.next_move().expect("it is due");
    let mut unlinked = Vec::new();
    loop {
        match index.move_next(&mut job, hash_of_slot, &mut unlinked) {
            Moved::Heads(_) => {}
            Moved::Blocked => loom::thread::yield_now(),
            Moved::All => return (index.end_move(job), unlinked),
        }
    }
}

fn grow(index: &Index) -> (Block, Vec<u32>) {
    resize(index, 100)
}

fn shrink(index: &Index) -> (Block, Vec<u32>) {
    resize(index, -100)
}

fn check(entries: u64, write: impl Fn(&Index) + Send + Sync + Clone + 'static, read: fn(&Index)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let index = Arc::new(one_chain(entries));
        let (writing, write) = (index.clone(), write.clone());
        let thread = loom::thread::spawn(move || write(&writing));
        read(&index);
        thread.join().unwrap();
    });
}

#[test]
fn a_replaced_key_is_never_missed() {
    check(
        1,
        |index| {
            let mut chain = index.lock(hash_of(0));
            let position = chain.find_entry(tag_of(0), 0).unwrap();
            chain.replace(position, Slot::entry(tag_of(0), 800));
            chain.finish();
        },
        |index| assert!(matches!(find(index, 0), Some(0 | 800))),
    );
}

#[test]
fn growing_a_chain_hides_no_key() {
    check(
        SLOTS as u64,
        |index| {
            let mut chain = index.lock(hash_of(0));
            chain.insert(slot_of(50)).unwrap();
            chain.finish();
        },
        |index| assert_eq!(find(index, SLOTS as u64 - 1), Some((SLOTS as u64 - 1) * 8)),
    );
}

#[test]
fn removing_from_a_chain_with_overflow_hides_no_other_key() {
    check(
        SLOTS as u64 + 2,
        |index| {
            let mut retired = Vec::new();
            let mut chain = index.lock(hash_of(0));
            let position = chain.find_entry(tag_of(0), 0).unwrap();
            chain.remove(position, &mut retired);
            chain.finish();
        },
        |index| {
            let moved = SLOTS as u64 + 1;
            assert_eq!(find(index, moved), Some(moved * 8));
        },
    );
}

#[test]
fn two_writers_do_not_lose_each_others_changes() {
    loom::model(|| {
        let index = Arc::new(one_chain(0));
        let other = index.clone();
        let thread = loom::thread::spawn(move || {
            let mut chain = other.lock(hash_of(0));
            chain.insert(slot_of(1)).unwrap();
            chain.finish();
        });
        let mut chain = index.lock(hash_of(0));
        chain.insert(slot_of(2)).unwrap();
        chain.finish();
        thread.join().unwrap();
        assert_eq!((find(&index, 1), find(&index, 2)), (Some(8), Some(16)));
        assert_eq!(index.word(hash_of(0)).version(), 3);
    });
}

/// Like `check`, with the first partition doubled before.
fn check_grown(
    entries: u64,
    write: impl Fn(&Index) + Send + Sync + Clone + 'static,
    read: fn(&Index),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let index = one_chain(entries);
        grow(&index);
        let index = Arc::new(index);
        let (writing, write) = (index.clone(), write.clone());
        let thread = loom::thread::spawn(move || write(&writing));
        read(&index);
        thread.join().unwrap();
    });
}

#[test]
fn doubling_a_partition_hides_no_key() {
    check(2, |index| drop(grow(index)), |index| assert_eq!(find(index, 0), Some(0)));
    check(2, |index| drop(grow(index)), |index| assert_eq!(find(index, 1), Some(8)));
}

#[test]
fn doubling_a_partition_with_overflow_hides_no_key() {
    check(4, |index| drop(grow(index)), |index| assert_eq!(find(index, 3), Some(24)));
}

#[test]
fn halving_a_partition_hides_no_key() {
    check_grown(2, |index| drop(shrink(index)), |index| assert_eq!(find(index, 1), Some(8)));
}

#[test]
fn what_is_inserted_while_its_chain_moves_stays() {
    let insert: fn(&Index) = |index| {
        let mut chain = index.lock(hash_of(1));
        chain.insert(slot_of(1)).unwrap();
        chain.finish();
        assert_eq!((find(index, 0), find(index, 1)), (Some(0), Some(8)));
    };
    check(1, |index| drop(grow(index)), insert);
    check_grown(1, |index| drop(shrink(index)), insert);
}

#[test]
fn what_is_removed_while_its_chain_moves_stays_away() {
    let remove: fn(&Index) = |index| {
        let mut chain = index.lock(hash_of(0));
        let position = chain.find_entry(tag_of(0), 0).unwrap();
        chain.remove(position, &mut Vec::new());
        chain.finish();
        assert_eq!((find(index, 0), find(index, 1)), (None, Some(8)));
    };
    check(2, |index| drop(grow(index)), remove);
    check_grown(2, |index| drop(shrink(index)), remove);
}

#[test]
fn a_reader_sees_its_own_replacement_while_the_chain_moves() {
    let replace: fn(&Index) = |index| {
        let hash = hash_of(0);
        let stale_head = index.head_of(hash);
        let mut chain = index.lock(hash);
        let position = chain.find_entry(tag_of(0), 0).unwrap();
        chain.replace(position, Slot::entry(tag_of(0), 800));
        chain.finish();
        let found = index.find(stale_head, hash, |_| true).unwrap();
        assert_eq!(found.slot.offset_bytes(), 800, "K8: also by the head it had resolved before");
    };
    check(1, |index| drop(grow(index)), replace);
    check_grown(1, |index| drop(shrink(index)), replace);
}

#[test]
fn versions_never_fall_while_the_chain_moves() {
    check(
        1,
        |index| drop(grow(index)),
        |index| {
            let first = index.word(hash_of(0)).version();
            let second = index.word(hash_of(0)).version();
            assert!(second >= first, "K1");
        },
    );
}

#[test]
fn an_old_block_is_reused_only_when_no_reader_can_be_in_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let world = Arc::new((one_chain(1), Epochs::new(1)));
        let reading = world.clone();
        let place = world.1.join().unwrap();
        let thread = loom::thread::spawn(move || {
            let (index, epochs) = &*reading;
            for _ in 0..2 {
                assert_eq!(find(index, 0), Some(0));
                epochs.quiesce(place);
            }
        });
        let (index, epochs) = &*world;
        let (block, _) = grow(index);
        if epochs.is_safe(epochs.advance()) {
            index.free(block);
            // A reader that still read there would take this for its own chain.
            let reused = index.arena.take(0).unwrap();
            assert_eq!(reused, block.first_line);
            index.memory[reused].start_with(1, [Slot::entry(tag_of(0), 8000)].into_iter());
        }
        thread.join().unwrap();
    });
}

/// Two entries of the first chain with in-place values.
struct InPlacePair {
    index: Index,
    words: [[AtomicU64; 2]; 2],
}

impl InPlacePair {
    fn member(&self, at: usize) -> InPlace<'_, AtomicU64> {
        InPlace { version: &self.words[at][0], value: &self.words[at][1] }
    }
}

fn check_pair(read: fn(&InPlacePair)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let words = || [AtomicU64::new(1), AtomicU64::new(1)];
        let pair = Arc::new(InPlacePair { index: one_chain(2), words: [words(), words()] });
        let writing = pair.clone();
        let thread = loom::thread::spawn(move || {
            let chain = writing.index.lock(hash_of(0));
            writing.member(0).replace(2, 2);
            writing.member(1).replace(2, 2);
            chain.finish();
        });
        read(&pair);
        thread.join().unwrap();
    });
}

#[test]
fn a_version_in_place_never_goes_with_an_older_value() {
    check_pair(|pair| {
        let (version, value) = pair.member(0).see();
        assert!(value >= version, "version {version} with value {value}");
        let again = pair.member(0).see();
        assert!(again.0 >= version && again.1 >= value, "nothing goes back");
    });
}

#[test]
fn a_snapshot_has_both_values_in_place_or_neither() {
    check_pair(|pair| {
        let before = pair.index.word(hash_of(0));
        let values = [pair.member(0).see().1, pair.member(1).see().1];
        fence(Ordering::Acquire);
        let is_snapshot = !before.is_locked() && pair.index.word(hash_of(0)) == before;
        assert!(!is_snapshot || values[0] == values[1], "K11: {values:?}");
    });
}
