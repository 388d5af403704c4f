//! Model-checked: publishing, replacing, moving and removing slots under concurrent readers.
//!
//! Loom remembers one last access of each atomic. A thread's own plain load hides an earlier load
//! of another thread from it, and the interleaving in which this thread's store comes first is
//! never tried. So under loom the holder of a lock reads by an exchange that always fails
//! (`load_held` of bucket.rs), which loom does track.

use base::KeyHash;
use base::sync::Arc;

use super::slot::{Slot, Tag};
use super::{Index, SLOTS};

/// An index of one chain (eight buckets, of which six are heads; all keys hash to head 0).
fn one_chain(entries: u64) -> Index {
    let index = Index::new(8 * super::BUCKET_BYTES, false).unwrap();
    let mut chain = index.lock(0);
    for id in 0..entries {
        chain.insert(slot_of(id)).unwrap();
    }
    chain.finish();
    index
}

fn tag_of(id: u64) -> Tag {
    Tag::of(KeyHash(id + 1))
}

fn slot_of(id: u64) -> Slot {
    Slot::entry(tag_of(id), id * 8)
}

fn find(index: &Index, id: u64) -> Option<u64> {
    index.find(0, tag_of(id), |_| true).map(|position| position.slot.offset_bytes())
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
            let mut chain = index.lock(0);
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
            let mut chain = index.lock(0);
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
            let mut chain = index.lock(0);
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
            let mut chain = other.lock(0);
            chain.insert(slot_of(1)).unwrap();
            chain.finish();
        });
        let mut chain = index.lock(0);
        chain.insert(slot_of(2)).unwrap();
        chain.finish();
        thread.join().unwrap();
        assert_eq!((find(&index, 1), find(&index, 2)), (Some(8), Some(16)));
        assert_eq!(index.word(0).version(), 3);
    });
}
