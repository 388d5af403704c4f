//! Tests of the tree against a plain ordered map, with one thread and with several.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;

use super::tests_support::{Table, drain, drain_from, empty_tree, id_of, slot_of};
use super::*;

mod threads;

/// A tree with its model.
struct Pair {
    tree: Tree,
    table: Table,
    model: BTreeMap<Vec<u8>, usize>,
    spare: Spare,
    retired: Vec<u32>,
}

impl Pair {
    fn new(keys: Vec<Vec<u8>>) -> Pair {
        let (model, spare) = (BTreeMap::new(), Spare::default());
        Pair { tree: empty_tree(1 << 20), table: Table { keys }, model, spare, retired: Vec::new() }
    }

    fn insert(&mut self, id: usize) {
        let key = &self.table.keys[id];
        let inserted = loop {
            match self.tree.insert(key, slot_of(id, 0), &self.table, &mut self.spare) {
                Ok(inserted) => break inserted,
                Err(Shortage { node_count }) => {
                    assert!(self.spare.fill(self.tree.memory(), node_count));
                }
            }
        };
        match inserted {
            Inserted::Added => assert!(self.model.insert(key.clone(), id).is_none()),
            Inserted::Exists(position) => {
                assert_eq!(self.model.get(key), Some(&id_of(position.slot)));
                self.tree.replace(position, key, slot_of(id, 1), &self.table);
                self.model.insert(key.clone(), id);
            }
        }
    }

    fn remove(&mut self, id: usize) {
        let key = &self.table.keys[id];
        let removed = self.tree.remove(key, &self.table, &mut self.retired);
        assert_eq!(removed.map(id_of), self.model.remove(key));
        // No other session reads: the grace period is over at once.
        for node in self.retired.drain(..) {
            self.tree.memory().give(node);
        }
    }

    fn find(&self, id: usize) {
        let key = &self.table.keys[id];
        let found = self.tree.find(key, &self.table).map(|position| id_of(position.slot));
        assert_eq!(found, self.model.get(key).copied(), "{key:?}");
    }

    fn find_batch(&self, ids: &[usize]) {
        let mut hints = [Hint::NONE; BATCH_MAX];
        let hints = &mut hints[..ids.len()];
        let sought = |at: usize| Sought { key: &self.table.keys[ids[at]], tag: None };
        self.tree.seek_batch(&self.table, sought, hints);
        for (id, hint) in ids.iter().zip(hints) {
            let key = &self.table.keys[*id];
            let found = self.tree.find_hinted(*hint, key, &self.table);
            assert_eq!(found.map(|position| id_of(position.slot)), self.model.get(key).copied());
            for direction in [Direction::Forward, Direction::Reverse] {
                for from in [Origin::At(key), Origin::Behind(key)] {
                    let found = drain_from(&self.tree, &self.table, *hint, from, direction, 3);
                    assert_eq!(found, self.walk(from, direction, 3), "{from:?} by a hint");
                }
            }
        }
    }

    fn walk(&self, from: Origin<'_>, direction: Direction, limit: usize) -> Vec<usize> {
        drain(&self.tree, &self.table, from, direction, limit)
    }

    fn check_walks(&self, from: Origin<'_>, limit: usize) {
        let (above, below) = match from {
            Origin::End => (Bound::Unbounded, Bound::Unbounded),
            Origin::At(key) => (Bound::Included(key), Bound::Included(key)),
            Origin::Behind(key) => (Bound::Excluded(key), Bound::Excluded(key)),
        };
        let up = self.model.range::<[u8], _>((above, Bound::Unbounded));
        let want: Vec<_> = up.map(|(_, id)| *id).take(limit).collect();
        assert_eq!(self.walk(from, Direction::Forward, limit), want, "up {from:?}");
        let down = self.model.range::<[u8], _>((Bound::Unbounded, below));
        let want: Vec<_> = down.rev().map(|(_, id)| *id).take(limit).collect();
        assert_eq!(self.walk(from, Direction::Reverse, limit), want, "down {from:?}");
    }

    fn validate(&self) {
        let mut found = Vec::new();
        let census = Census::of(&self.tree, &self.table, |slot| found.push(id_of(slot)));
        assert_eq!(census.entry_count, self.model.len() as u64);
        found.sort_unstable();
        let mut want: Vec<_> = self.model.values().copied().collect();
        want.sort_unstable();
        assert_eq!(found, want);
        let spare_count = self.spare.count() as u64;
        let nodes = census.border_count + census.interior_count;
        assert_eq!(self.tree.memory().used_count(), nodes + spare_count, "no node is lost");
    }
}

#[test]
fn scattered_keys_come_back_in_order() {
    let count = if cfg!(miri) { 300 } else { 100_000 };
    let scatter = |id: usize| (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let keys = (0..count).map(|id| (scatter(id) >> 33).to_string().into_bytes()).collect();
    let mut pair = Pair::new(keys);
    for id in 0..count {
        pair.insert(id);
    }
    pair.validate();
    pair.check_walks(Origin::End, usize::MAX);
    let ids: Vec<usize> = (0..count).collect();
    for ids in ids.chunks(BATCH_MAX) {
        pair.find_batch(ids);
    }
    for id in 0..count {
        pair.remove(id);
    }
    pair.validate();
    assert!(pair.model.is_empty());
    pair.check_walks(Origin::End, usize::MAX);
}

#[test]
fn keys_that_come_in_order_fill_their_nodes() {
    let count = 10_000_usize;
    let mut pair = Pair::new((0..count).map(|id| id.to_be_bytes().to_vec()).collect());
    for id in 0..count {
        pair.insert(id);
    }
    let census = Census::of(&pair.tree, &pair.table, |_| {});
    assert!(census.border_count <= (count / node::WIDTH + 2) as u64, "{census:?}");
    for id in 0..count {
        pair.remove(id);
    }
    let census = Census::of(&pair.tree, &pair.table, |_| {});
    assert_eq!(census.border_count, 1, "empty nodes go");
    pair.validate();
}

#[test]
fn all_prefixes_of_a_long_key_of_zeros_are_different_keys() {
    let lens = [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 4095, 65_534, 65_535];
    let mut pair = Pair::new(lens.iter().map(|len| vec![0; *len]).collect());
    for id in (0..lens.len()).rev() {
        pair.insert(id);
        pair.validate();
    }
    pair.check_walks(Origin::End, usize::MAX);
    for id in 0..lens.len() {
        pair.find(id);
        pair.check_walks(Origin::At(&pair.table.keys[id]), 3);
        pair.check_walks(Origin::Behind(&pair.table.keys[id]), 3);
    }
    for id in 0..lens.len() {
        pair.remove(id);
        pair.validate();
    }
    assert_eq!(Census::of(&pair.tree, &pair.table, |_| {}).layer_count, 0, "empty layers go");
}

#[test]
fn a_layer_below_grows_its_own_tree_and_goes_with_its_last_key() {
    let keys: Vec<_> = (0..500).map(|id| format!("prefix88{id:09}").into_bytes()).collect();
    let mut pair = Pair::new(keys);
    for id in (0..500).rev() {
        pair.insert(id);
    }
    pair.validate();
    for id in 0..500 {
        pair.find(id);
        pair.remove(id);
    }
    pair.validate();
    let census = Census::of(&pair.tree, &pair.table, |_| {});
    assert_eq!((census.layer_count, census.border_count), (0, 1), "{census:?}");
}

#[test]
fn a_few_keys_of_one_slice_need_no_layer_and_one_more_has_them_all_in_one() {
    // The short keys have places of their own beside the group.
    let group = node::GROUP_MAX;
    let mut keys: Vec<_> = (0..=group).map(|id| format!("prefix88-{id}").into_bytes()).collect();
    keys.extend([b"prefix88".to_vec(), b"prefix8".to_vec(), b"prefix89".to_vec()]);
    let mut pair = Pair::new(keys);
    // Not in key order.
    for id in (1..=group).chain(group + 1..group + 4).rev() {
        pair.insert(id);
    }
    let count_layers = |pair: &Pair| Census::of(&pair.tree, &pair.table, |_| {}).layer_count;
    assert_eq!(count_layers(&pair), 0);
    check_all(&pair);
    pair.insert(0);
    assert_eq!(count_layers(&pair), 1);
    check_all(&pair);
    for id in 1..=group {
        pair.remove(id);
        check_all(&pair);
    }
    pair.remove(0);
    assert_eq!(count_layers(&pair), 0, "an empty layer goes");
    check_all(&pair);
}

/// Checks that each key is found, and that a walk from it works.
#[track_caller]
fn check_all(pair: &Pair) {
    pair.validate();
    pair.check_walks(Origin::End, usize::MAX);
    let ids: Vec<usize> = (0..pair.table.keys.len()).collect();
    pair.find_batch(&ids);
    for id in ids {
        pair.find(id);
        for limit in [1, 3, usize::MAX] {
            pair.check_walks(Origin::At(&pair.table.keys[id]), limit);
            pair.check_walks(Origin::Behind(&pair.table.keys[id]), limit);
        }
    }
}

#[test]
fn scattered_decimal_keys_take_under_32_bytes_of_nodes_each() {
    // As dense as ten million numbers below 2^31: two keys of five share eight digits with others.
    let (count, range) = if cfg!(miri) { (300, 64_000) } else { (100_000, 21_474_836_u64) };
    let scatter = |id: usize| (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let number = |id| format!("00{}", scatter(id) % range).into_bytes();
    let mut pair = Pair::new((0..count).map(number).collect());
    for id in 0..count {
        pair.insert(id);
    }
    let census = Census::of(&pair.tree, &pair.table, |_| {});
    let node_bytes = (census.border_count + census.interior_count) * node::NODE_BYTES as u64;
    let per_key = node_bytes as f64 / census.entry_count as f64;
    assert!(per_key < 32.0, "{per_key:.1} bytes a key: {census:?}");
}

/// One step of an op stream; numbers pick keys of the universe.
#[derive(Clone, Debug)]
enum Step {
    Insert(usize),
    Remove(usize),
    Find(usize),
    FindBatch(Vec<usize>),
    WalkAt(usize, usize),
    WalkBehind(usize, usize),
    WalkAll,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0_usize..1 << 16;
    prop_oneof![
        8 => id().prop_map(Step::Insert),
        5 => id().prop_map(Step::Remove),
        2 => id().prop_map(Step::Find),
        1 => vec(id(), 1..40).prop_map(Step::FindBatch),
        1 => (id(), 0_usize..40).prop_map(|(id, limit)| Step::WalkAt(id, limit)),
        1 => (id(), 0_usize..40).prop_map(|(id, limit)| Step::WalkBehind(id, limit)),
        1 => Just(Step::WalkAll),
    ]
}

/// Keys that share their first bytes and differ around the borders of slices.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(0xff), any::<u8>()];
    let shared = prop_oneof![
        4 => Just(0_usize),
        2 => Just(7_usize),
        3 => Just(8_usize),
        2 => Just(9_usize),
        2 => Just(16_usize),
        1 => Just(24_usize),
        1 => Just(160_usize),
    ];
    let fill = prop_oneof![Just(0_u8), Just(b'p')];
    (shared, fill, vec(byte(), 0..8)).prop_map(|(shared, fill, tail)| {
        let mut key = vec![fill; shared];
        key.extend(tail);
        key
    })
}

fn check(keys: Vec<Vec<u8>>, steps: &[Step]) {
    let universe = keys.len();
    let mut pair = Pair::new(keys);
    for step in steps {
        match step {
            Step::Insert(id) => pair.insert(id % universe),
            Step::Remove(id) => pair.remove(id % universe),
            Step::Find(id) => pair.find(id % universe),
            Step::FindBatch(ids) => {
                let ids: Vec<_> = ids.iter().map(|id| id % universe).collect();
                pair.find_batch(&ids);
            }
            Step::WalkAt(id, limit) => {
                pair.check_walks(Origin::At(&pair.table.keys[id % universe]), *limit);
            }
            Step::WalkBehind(id, limit) => {
                pair.check_walks(Origin::Behind(&pair.table.keys[id % universe]), *limit);
            }
            Step::WalkAll => pair.check_walks(Origin::End, usize::MAX),
        }
    }
    pair.validate();
    for id in 0..universe {
        pair.remove(id);
    }
    pair.validate();
    let census = Census::of(&pair.tree, &pair.table, |_| {});
    assert_eq!((census.layer_count, census.border_count), (0, 1), "an empty tree is one border");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]
    #[test]
    fn any_steps_on_awkward_keys_match_a_plain_map(
        keys in vec(key(), 1..120),
        steps in vec(step(), 1..400),
    ) {
        check(keys, &steps);
    }

    #[test]
    fn any_steps_on_numbers_match_a_plain_map(
        count in 1_u32..3000,
        steps in vec(step(), 1..2000),
    ) {
        check((0..count).map(|id| id.to_string().into_bytes()).collect(), &steps);
    }
}
