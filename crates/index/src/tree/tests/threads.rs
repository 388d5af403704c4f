//! Tests with writers, point readers and walkers at once.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::epoch::Epochs;

/// Writers of one key take turns, as they do under the store's bucket locks.
const STRIPES: usize = 64;
const THREADS: usize = 4;
const STEPS: usize = if cfg!(miri) { 40 } else { 30_000 };

struct Shared {
    tree: Tree,
    table: Table,
    /// Keys that are never removed.
    fixed: Vec<usize>,
    epochs: Epochs,
    stripes: Vec<Mutex<()>>,
    is_over: AtomicBool,
}

/// Even ids stay in the tree throughout, odd ones come and go.
fn shared(keys: Vec<Vec<u8>>) -> Shared {
    let mut pair = Pair::new(keys);
    let fixed: Vec<_> = (0..pair.table.keys.len()).step_by(2).collect();
    for id in &fixed {
        pair.insert(*id);
    }
    pair.spare.cut(pair.tree.memory(), 0);
    let mut fixed: Vec<_> = pair.model.values().copied().collect();
    fixed.sort_unstable_by(|left, right| pair.table.keys[*left].cmp(&pair.table.keys[*right]));
    Shared {
        tree: pair.tree,
        table: pair.table,
        fixed,
        epochs: Epochs::new(THREADS),
        stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        is_over: AtomicBool::new(false),
    }
}

fn draw(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

fn write(shared: &Shared, seed: u64) {
    let Shared { tree, table, epochs, .. } = shared;
    let place = epochs.join().unwrap();
    let (mut state, mut spare, mut graces) = (seed, Spare::default(), Vec::new());
    for _ in 0..STEPS {
        let id = draw(&mut state) % table.keys.len();
        let key = &table.keys[id];
        let mut retired = Vec::new();
        assert!(spare.fill(tree.memory(), SPARE_NODES));
        let stripe = shared.stripes[id % STRIPES].lock().unwrap();
        if id.is_multiple_of(2) {
            // A key that stays gets a new entry.
            let position = tree.find(key, table).expect("it stays");
            tree.replace(position, key, slot_of(id, seed), table);
        } else if draw(&mut state).is_multiple_of(2) {
            let inserted = tree.insert(key, slot_of(id, seed), table, &mut spare);
            assert!(inserted.is_ok(), "no key here shares more than a few slices");
        } else {
            tree.remove(key, table, &mut retired);
            assert!(tree.find(key, table).is_none(), "no other thread writes this key");
        }
        drop(stripe);
        epochs.quiesce(place);
        if !retired.is_empty() {
            graces.push((epochs.advance(), retired));
        }
        graces.retain(|(tag, nodes)| {
            let is_over = epochs.is_safe(*tag);
            if is_over {
                nodes.iter().for_each(|node| tree.memory().give(*node));
            }
            !is_over
        });
    }
    epochs.leave(place);
    spare.cut(tree.memory(), 0);
}

fn read(shared: &Shared) {
    let Shared { tree, table, epochs, fixed, .. } = shared;
    let place = epochs.join().unwrap();
    let mut state = 99;
    while !shared.is_over.load(Ordering::Relaxed) {
        let ids: [usize; 32] = std::array::from_fn(|_| fixed[draw(&mut state) % fixed.len()]);
        let mut hints = [Hint::NONE; 32];
        let sought = |at: usize| Sought { key: &table.keys[ids[at]], tag: None };
        tree.seek_batch(table, sought, &mut hints);
        for (id, hint) in ids.iter().zip(hints) {
            let found = tree.find_hinted(hint, &table.keys[*id], table).expect("a fixed key");
            assert_eq!(id_of(found.slot), *id);
            assert!(tree.find(&table.keys[*id], table).is_some(), "a fixed key");
        }
        epochs.quiesce(place);
    }
    epochs.leave(place);
}

/// Checks that a walk yields every fixed key exactly once and in order, in both directions: all of
/// them, and those from one of them on, with the hint of a search among others.
fn walk(shared: &Shared) {
    let Shared { tree, table, epochs, fixed, .. } = shared;
    let place = epochs.join().unwrap();
    let (mut direction, mut round) = (Direction::Forward, 0_usize);
    while !shared.is_over.load(Ordering::Relaxed) {
        let mut walk = Walk::new(tree, table);
        let from = round.is_multiple_of(3).then_some(round * 7 % fixed.len());
        match from {
            None => walk.start(direction, Origin::End, usize::MAX, Hint::NONE),
            Some(from) => {
                let key = &table.keys[fixed[from]];
                let mut hints = [Hint::NONE; 2];
                tree.seek_batch(table, |_| Sought { key, tag: None }, &mut hints);
                // Gives other threads time to change the border.
                std::thread::yield_now();
                walk.start(direction, Origin::At(key), usize::MAX, hints[1]);
            }
        }
        round += 1;
        let (mut seen, mut last) = (Vec::new(), None::<usize>);
        while let Some(slot) = walk.next_slot() {
            let id = id_of(slot);
            if let Some(last) = last {
                let is_behind = match direction {
                    Direction::Forward => table.keys[last] < table.keys[id],
                    Direction::Reverse => table.keys[last] > table.keys[id],
                };
                assert!(is_behind, "{:?} then {:?}", table.keys[last], table.keys[id]);
            }
            last = Some(id);
            if id.is_multiple_of(2) {
                seen.push(id);
            }
        }
        direction = match direction {
            Direction::Forward => {
                assert_eq!(seen, fixed[from.unwrap_or(0)..], "up");
                Direction::Reverse
            }
            Direction::Reverse => {
                let end = from.map_or(fixed.len(), |from| from + 1);
                assert!(seen.iter().rev().eq(&fixed[..end]), "down");
                Direction::Forward
            }
        };
        epochs.quiesce(place);
    }
    epochs.leave(place);
}

fn check(keys: Vec<Vec<u8>>) {
    let shared = shared(keys);
    std::thread::scope(|scope| {
        let (reader, walker) = (scope.spawn(|| read(&shared)), scope.spawn(|| walk(&shared)));
        let writers = [scope.spawn(|| write(&shared, 1)), scope.spawn(|| write(&shared, 2))];
        for writer in writers {
            writer.join().unwrap();
        }
        shared.is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        walker.join().unwrap();
    });
    Census::of(&shared.tree, &shared.table, |_| {});
}

#[test]
fn fixed_keys_are_seen_while_numbers_come_and_go() {
    let count = if cfg!(miri) { 60 } else { 2000 };
    check(
        (0..count).map(|id| format!("{:07}", id * 7919 % 10_007)).map(String::into_bytes).collect(),
    );
}

#[test]
fn fixed_keys_are_seen_while_layers_come_and_go() {
    // Of each group of eight keys, one slice; the fixed ones are few, so layers empty and fill.
    let count = if cfg!(miri) { 64 } else { 1600 };
    let key = |id: usize| format!("{:08}{}", (id / 2 % 40) * (id % 2), id);
    check((0..count).map(|id| key(id).into_bytes()).collect());
}

#[test]
fn fixed_keys_are_seen_while_most_nodes_empty_and_fill() {
    // One fixed key in a hundred.
    let key = |id: usize| match id % 2 {
        0 => format!("{:06}", id * 100),
        _ => format!("{:06}", id * 100 % 9973 * 10 + 1),
    };
    let count = if cfg!(miri) { 60 } else { 1000 };
    check((0..count).map(|id| key(id).into_bytes()).collect());
}
