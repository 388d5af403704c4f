//! Loom tests: inserts, splits, new layers, removals and reuse under readers and walkers.
//!
//! Nodes have three keys here and groups two. `present` are the ids that are in the tree from the
//! start.

use base::sync::Arc;

use super::node::Role;
use super::tests_support::{Table, drain, empty_tree, id_of, slot_of};
use super::validate::Census;
use super::{Direction, Inserted, Origin, SPARE_NODES, Spare, Tree};
use crate::epoch::Epochs;

pub(super) struct Fixture {
    pub tree: Tree,
    pub table: Table,
}

pub(super) fn add(fixture: &Fixture, id: usize, spare: &mut Spare) {
    let Fixture { tree, table } = fixture;
    let inserted = tree.insert(&table.keys[id], slot_of(id, 0), table, spare);
    assert_eq!(inserted, Ok(Inserted::Added));
}

/// A tree with the keys of `present`.
pub(super) fn fixture(keys: &[&[u8]], present: &[usize]) -> (Fixture, Spare) {
    let table = Table { keys: keys.iter().map(|key| key.to_vec()).collect() };
    let fixture = Fixture { tree: empty_tree(20), table };
    let mut spare = Spare::default();
    assert!(spare.fill(fixture.tree.memory(), SPARE_NODES));
    for id in present {
        add(&fixture, *id, &mut spare);
        assert!(spare.fill(fixture.tree.memory(), SPARE_NODES));
    }
    (fixture, spare)
}

/// Writers that hold a lock load by exchanges (held.rs), each of which is a branch.
pub(super) fn model() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 5000;
    model
}

fn check(
    keys: &'static [&'static [u8]],
    present: &'static [usize],
    write: fn(&Fixture, &mut Spare),
    read: fn(&Fixture),
) {
    let model = model();
    model.check(move || {
        let (fixture, mut spare) = fixture(keys, present);
        let fixture = Arc::new(fixture);
        let writing = fixture.clone();
        let thread = loom::thread::spawn(move || write(&writing, &mut spare));
        read(&fixture);
        thread.join().unwrap();
        Census::of(&fixture.tree, &fixture.table, |_| {});
    });
}

fn is_found(fixture: &Fixture, id: usize) -> bool {
    let key = &fixture.table.keys[id];
    let found = fixture.tree.find(key, &fixture.table);
    found.is_some_and(|position| id_of(position.slot) == id)
}

fn remove(fixture: &Fixture, id: usize) {
    let Fixture { tree, table } = fixture;
    let mut retired = Vec::new();
    assert!(tree.remove(&table.keys[id], table, &mut retired).is_some());
}

/// The ids that a walk over everything yields.
fn walk(fixture: &Fixture, direction: Direction) -> Vec<usize> {
    drain(&fixture.tree, &fixture.table, Origin::End, direction, usize::MAX)
}

pub(super) const FULL: &[&[u8]] = &[b"a", b"b", b"c", b"bb"];

#[test]
fn an_insert_hides_no_key() {
    check(FULL, &[0, 2], |tree, spare| add(tree, 1, spare), |tree| assert!(is_found(tree, 2)));
}

#[test]
fn a_split_hides_no_key_from_a_search() {
    check(FULL, &[0, 1, 2], |tree, spare| add(tree, 3, spare), |tree| assert!(is_found(tree, 2)));
}

#[test]
fn a_split_hides_no_key_from_a_walk_up() {
    check(
        FULL,
        &[0, 1, 2],
        |tree, spare| add(tree, 3, spare),
        |tree| {
            let ids = walk(tree, Direction::Forward);
            assert!(ids == [0, 1, 2] || ids == [0, 1, 3, 2], "{ids:?}");
        },
    );
}

#[test]
fn a_split_hides_no_key_from_a_walk_down() {
    check(
        FULL,
        &[0, 1, 2],
        |tree, spare| add(tree, 3, spare),
        |tree| {
            let ids = walk(tree, Direction::Reverse);
            assert!(ids == [2, 1, 0] || ids == [2, 3, 1, 0], "{ids:?}");
        },
    );
}

const TWO_BORDERS: &[&[u8]] = &[b"a", b"b", b"c", b"bb", b"aa", b"ab", b"ac"];

#[test]
fn a_split_on_the_left_hides_no_key_from_a_walk_down() {
    check(
        TWO_BORDERS,
        &[0, 1, 2, 3, 4, 5],
        |tree, spare| add(tree, 6, spare),
        |tree| {
            let ids = walk(tree, Direction::Reverse);
            assert!(ids == [2, 3, 1, 5, 4, 0] || ids == [2, 3, 1, 6, 5, 4, 0], "{ids:?}");
        },
    );
}

#[test]
fn a_removal_hides_no_other_key_and_a_removed_key_is_gone() {
    check(
        FULL,
        &[0, 1, 2],
        |tree, _| {
            remove(tree, 1);
            assert!(!is_found(tree, 1));
        },
        |tree| assert!(is_found(tree, 0) && is_found(tree, 2)),
    );
}

#[test]
fn a_slot_that_is_used_anew_is_never_taken_for_the_old_key() {
    check(
        FULL,
        &[0, 1],
        |tree, spare| {
            remove(tree, 1);
            add(tree, 2, spare);
        },
        |tree| {
            let ids = walk(tree, Direction::Forward);
            assert!([&[0, 1][..], &[0], &[0, 2]].contains(&&ids[..]), "{ids:?}");
        },
    );
}

pub(super) const LAYERED: &[&[u8]] = &[b"samesame-left", b"samesame-right", b"z", b"samesame-up"];

#[test]
fn a_group_that_grows_hides_no_key() {
    check(
        LAYERED,
        &[0, 2],
        |tree, spare| add(tree, 1, spare),
        |tree| {
            assert!(is_found(tree, 0));
            let ids = walk(tree, Direction::Forward);
            assert!(ids == [0, 2] || ids == [0, 1, 2], "{ids:?}");
        },
    );
}

/// The last entry of the group loses its slot, and its key is only in the layer then.
#[test]
fn a_group_that_becomes_a_layer_hides_no_key_from_a_search() {
    check(LAYERED, &[0, 3], |tree, spare| add(tree, 1, spare), |tree| assert!(is_found(tree, 3)));
}

#[test]
fn a_group_that_becomes_a_layer_hides_no_key_from_a_walk() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let model = model();
        model.check(move || {
            let (fixture, mut spare) = fixture(LAYERED, &[0, 3]);
            let fixture = Arc::new(fixture);
            let writing = fixture.clone();
            let thread = loom::thread::spawn(move || add(&writing, 1, &mut spare));
            let mut ids = walk(&fixture, direction);
            if direction == Direction::Reverse {
                ids.reverse();
            }
            assert!(ids == [0, 3] || ids == [0, 1, 3], "{ids:?}");
            thread.join().unwrap();
        });
    }
}

#[test]
fn a_layer_that_goes_hides_no_key() {
    check(
        LAYERED,
        &[0, 3, 1, 2],
        |tree, _| {
            remove(tree, 3);
            remove(tree, 1);
            remove(tree, 0);
        },
        |tree| {
            assert!(is_found(tree, 2));
            is_found(tree, 0);
        },
    );
}

const TWO_BORDERS_BELOW: &[&[u8]] = &[b"samesamea", b"samesameb", b"samesamec", b"samesamed", b"z"];

/// A thread that empties one border may find the other thread at work in the parent: one of them
/// tidies up.
#[test]
fn two_writers_that_empty_a_layer_of_two_borders_leave_none() {
    let model = model();
    model.check(|| {
        let (fixture, _spare) = fixture(TWO_BORDERS_BELOW, &[4, 0, 1, 2, 3]);
        remove(&fixture, 1);
        remove(&fixture, 2);
        let fixture = Arc::new(fixture);
        let writing = fixture.clone();
        let thread = loom::thread::spawn(move || remove(&writing, 0));
        remove(&fixture, 3);
        thread.join().unwrap();
        let census = Census::of(&fixture.tree, &fixture.table, |_| {});
        assert_eq!((census.entry_count, census.layer_count), (1, 0), "{census:?}");
    });
}

#[test]
fn a_border_that_goes_hides_no_key() {
    check(
        FULL,
        &[0, 1, 2, 3],
        |tree, _| {
            remove(tree, 2);
            remove(tree, 3);
        },
        |tree| assert_eq!(walk(tree, Direction::Reverse).last(), Some(&0)),
    );
}

#[test]
fn two_writers_of_one_border_lose_nothing() {
    let model = model();
    model.check(|| {
        let (fixture, mut spare) = fixture(FULL, &[0, 1]);
        let fixture = Arc::new(fixture);
        let writing = fixture.clone();
        let thread = loom::thread::spawn(move || add(&writing, 2, &mut spare));
        let mut spare = Spare::default();
        assert!(spare.fill(fixture.tree.memory(), 2));
        // Both may find the border full: this one's lack of nodes is a valid result as well.
        let key = &fixture.table.keys[3];
        let inserted = fixture.tree.insert(key, slot_of(3, 0), &fixture.table, &mut spare);
        thread.join().unwrap();
        assert!(is_found(&fixture, 2));
        assert_eq!(is_found(&fixture, 3), inserted.is_ok());
        Census::of(&fixture.tree, &fixture.table, |_| {});
    });
}

#[test]
fn a_node_is_reused_only_when_no_reader_is_in_it() {
    let model = model();
    model.check(|| {
        let (fixture, _spare) = fixture(FULL, &[0, 1, 2, 3]);
        let (fixture, epochs) = (Arc::new(fixture), Arc::new(Epochs::new(2)));
        let (writing, writer_epochs) = (fixture.clone(), epochs.clone());
        let reader = epochs.join().unwrap();
        let thread = loom::thread::spawn(move || {
            let mut retired = Vec::new();
            let Fixture { tree, table } = &*writing;
            for id in [1, 2, 3] {
                assert!(tree.remove(&table.keys[id], table, &mut retired).is_some());
            }
            assert!(!retired.is_empty(), "the second border goes");
            let tag = writer_epochs.advance();
            if writer_epochs.is_safe(tag) {
                // The first words that a new owner would write.
                retired.iter().for_each(|node| tree.node(*node).reset(Role::Border));
            }
        });
        assert!(is_found(&fixture, 0));
        epochs.quiesce(reader);
        thread.join().unwrap();
    });
}
