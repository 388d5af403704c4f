//! Loom tests: kept places of keys while nodes change, leave the tree and are reused.

use base::sync::Arc;

use super::loom_tests::{FULL, Fixture, LAYERED, add, fixture, model};
use super::node::Role;
use super::tests_support::{id_of, slot_of};
use super::{Hint, HotPlace, Tree};
use crate::epoch::Epochs;
use crate::hash::Position;

fn find(Fixture { tree, table }: &Fixture, id: usize) -> Position {
    tree.find(&table.keys[id], table).unwrap()
}

fn place(fixture: &Fixture, id: usize) -> HotPlace {
    HotPlace::of(&fixture.tree, Hint::NONE, find(fixture, id))
}

fn find_at(Fixture { tree, table }: &Fixture, place: &HotPlace, id: usize) -> Option<Position> {
    if !place.is_there(tree) {
        return None;
    }
    place.find(tree, &table.keys[id], table)
}

/// A writer of a key of the group may already write in the new layer.
#[test]
fn a_write_in_a_new_layer_is_seen_by_readers_of_the_old_place() {
    model().check(|| {
        let (fixture, mut spare) = fixture(LAYERED, &[0, 3]);
        let kept = place(&fixture, 3);
        let fixture = Arc::new(fixture);
        let growing = fixture.clone();
        let thread = loom::thread::spawn(move || add(&growing, 1, &mut spare));
        let Fixture { tree, table } = &*fixture;
        tree.replace(find(&fixture, 3), &table.keys[3], slot_of(3, 1), table);
        if let Some(found) = find_at(&fixture, &kept, 3) {
            assert_eq!(found.slot, slot_of(3, 1));
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_key_that_is_there_throughout_is_found_at_its_place_or_by_the_way_down() {
    model().check(|| {
        let (fixture, mut spare) = fixture(FULL, &[0, 1, 2]);
        let kept = place(&fixture, 2);
        let fixture = Arc::new(fixture);
        let splitting = fixture.clone();
        let thread = loom::thread::spawn(move || add(&splitting, 3, &mut spare));
        let found = find_at(&fixture, &kept, 2).unwrap_or_else(|| find(&fixture, 2));
        assert_eq!(id_of(found.slot), 2);
        thread.join().unwrap();
    });
}

/// I2: the writes of a later owner of the node's lines are never read as the node.
#[test]
fn a_place_in_a_node_that_is_used_anew_is_not_looked_at() {
    model().check(|| {
        let (fixture, _spare) = fixture(FULL, &[0, 1, 2, 3]);
        let kept = place(&fixture, 2);
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
            while !writer_epochs.is_safe(tag) {
                loom::thread::yield_now();
            }
            use_anew(tree, &retired);
        });
        epochs.quiesce(reader);
        loom::thread::yield_now(); // The writer looks again.
        if let Some(found) = find_at(&fixture, &kept, 2) {
            assert_eq!(found.slot, slot_of(2, 0), "I2");
        }
        epochs.leave(reader);
        thread.join().unwrap();
    });
}

/// Writes words that look like the key's slot everywhere.
fn use_anew(tree: &Tree, nodes: &[u32]) {
    for node in nodes {
        tree.node(*node).reset(Role::Border);
        (0..super::node::WIDTH).for_each(|index| tree.node(*node).set_slot(index, slot_of(2, 7)));
    }
}
