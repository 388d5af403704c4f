//! Tests of chains, partitions and moves of the index alone: entries are numbers, and a number's
//! hash is its mix.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;

use super::arena::tests::FewLines;
use super::*;
use crate::mapping::Mapping;

/// Lines of a segment of these tests, as a power of two.
const SEGMENT_LOG2: u32 = 10;

fn hash_of_id(id: u64) -> KeyHash {
    KeyHash(base::hash::mix(id + 1))
}

fn slot_of_id(id: u64) -> Slot {
    Slot::entry(Tag::of(hash_of_id(id)), id * 8)
}

fn hash_of_slot(slot: Slot) -> KeyHash {
    hash_of_id(slot.offset_bytes() / 8)
}

struct World {
    index: Index,
    retired: Vec<Block>,
    unlinked: Vec<u32>,
}

impl World {
    fn new(segments: u32, plan: IndexPlan) -> World {
        let mapping = Mapping::new(
            (segments as usize) << (SEGMENT_LOG2 + 6),
            crate::mapping::HugePages::Auto,
        )
        .unwrap();
        let lender = FewLines::new(SEGMENT_LOG2, segments);
        let index = Index::new(Lines::over(Arc::new(mapping)), lender, plan).unwrap();
        World { index, retired: Vec::new(), unlinked: Vec::new() }
    }

    fn insert(&mut self, id: u64) -> u64 {
        let mut chain = self.index.lock(hash_of_id(id));
        let version = chain.next_version();
        chain.insert(slot_of_id(id)).unwrap();
        chain.finish();
        self.index.count_items(1);
        version
    }

    fn remove(&mut self, id: u64) {
        let mut chain = self.index.lock(hash_of_id(id));
        let position = chain.find_entry(Tag::of(hash_of_id(id)), id * 8).expect("it is there");
        chain.remove(position, &mut self.unlinked);
        chain.finish();
        self.index.count_items(-1);
    }

    fn has(&self, id: u64) -> bool {
        let hash = hash_of_id(id);
        let is_id = |slot: Slot| slot.offset_bytes() == id * 8;
        self.index.find(self.index.head_of(hash), hash, is_id).is_some()
    }

    /// Moves up to `heads` old heads; retired lines stay retired.
    fn step(&mut self, heads: u32) {
        let mut left = heads;
        while left > 0 {
            let Some(mut job) = self.index.next_move() else { return };
            loop {
                if left == 0 {
                    self.index.put_back(job);
                    return;
                }
                self.index.foresee(&job, |_| {});
                match self.index.move_next(&mut job, hash_of_slot, &mut self.unlinked) {
                    Moved::Heads(heads) => left = left.saturating_sub(heads),
                    Moved::All => {
                        self.retired.push(self.index.end_move(job));
                        break;
                    }
                    Moved::Blocked => {
                        self.index.put_back(job);
                        return;
                    }
                }
            }
        }
    }

    /// Ends all grace periods.
    fn free_retired(&mut self) {
        let lines = self.unlinked.drain(..).map(Block::line);
        for block in self.retired.drain(..).chain(lines) {
            self.index.free(block);
        }
    }

    fn validate(&self) -> u64 {
        let retired: u64 = self.retired.iter().map(|block| block.line_count()).sum();
        self.index.validate(Some(retired + self.unlinked.len() as u64))
    }
}

const SMALL: IndexPlan = IndexPlan { partition_log2: 2, heads: 4, is_lossy: false };

#[test]
fn an_index_grows_with_its_items_and_shrinks_back_and_loses_none() {
    let mut world = World::new(32, SMALL);
    let count = if cfg!(miri) { 150 } else { 10_000 };
    for id in 0..count {
        world.insert(id);
        world.step(1);
        if id % 97 == 0 {
            world.free_retired();
            assert_eq!(world.validate(), id + 1);
            assert!((0..=id).step_by(53).all(|id| world.has(id)));
        }
    }
    let size = world.index.size();
    assert!((count * 16 / 100..=count / 2).contains(&size.heads), "{size:?}");
    for id in 0..count {
        world.remove(id);
        assert!(!world.has(id));
        world.step(2);
        if id % 97 == 0 {
            world.free_retired();
            assert_eq!(world.validate(), count - 1 - id);
        }
    }
    world.step(u32::MAX);
    world.free_retired();
    let size = world.index.size();
    assert_eq!((size.heads, size.used_bytes), (4, 4 * BUCKET_BYTES), "as opened");
    assert_eq!(size.partitions_moving, 0);
    assert_eq!(size.lent_bytes, BUCKET_BYTES << SEGMENT_LOG2, "the log has its segments back");
}

#[test]
#[cfg_attr(miri, ignore = "thousands of items; the others move chains as well")]
fn one_head_for_each_insert_is_work_enough() {
    let mut world = World::new(32, SMALL);
    for id in 0..20_000 {
        world.insert(id);
        world.step(1);
        world.free_retired();
        let size = world.index.size();
        assert!(size.partitions_moving <= 1, "one partition after another");
        let fill = (id + 1) as f64 / size.heads as f64;
        assert!(fill < 6.0, "{fill} items a head at {id}");
    }
}

#[test]
fn a_key_s_versions_grow_while_its_chain_moves_to_and_fro() {
    let mut world = World::new(32, SMALL);
    let watched = hash_of_id(0);
    let mut last = world.insert(0);
    let check = |world: &World, last: &mut u64| {
        let version = world.index.lock(watched).next_version();
        assert!(version >= *last, "K1");
        *last = version;
    };
    let (rounds, count) = if cfg!(miri) { (2, 60) } else { (3, 3_000) };
    for round in 0..rounds {
        for id in 1..count {
            world.insert(id);
            world.step(1);
            check(&world, &mut last);
        }
        for id in 1..count {
            world.remove(id);
            world.step(2);
            check(&world, &mut last);
        }
        world.free_retired();
        assert!(world.has(0), "round {round}");
    }
    assert!(cfg!(miri) || last > 20, "it moved in each round");
}

#[test]
fn a_moved_chain_looks_changed_to_readers_of_several_keys() {
    let mut world = World::new(32, SMALL);
    (0..17).for_each(|id| _ = world.insert(id));
    let hash = (0..17).map(hash_of_id).min().unwrap();
    let before = world.index.word(hash);
    world.step(1);
    assert_ne!(world.index.word(hash), before, "K11");
}

#[test]
fn a_locked_chain_is_not_moved_and_its_partition_is_finished_later() {
    let mut world = World::new(32, SMALL);
    (0..17).for_each(|id| _ = world.insert(id));
    let hash = (0..17).map(hash_of_id).min().unwrap();
    let mut held = Vec::new();
    world.index.lock_all([hash].into_iter(), &mut held);
    world.step(10);
    assert_eq!(world.index.size().partitions_moving, 1);
    assert_eq!(world.index.head_of(hash), held[0], "K11: found where it was locked");
    world.index.unlock_raw(held[0]);
    world.step(10);
    assert_eq!(world.index.size().partitions_moving, 0);
    assert_eq!(world.validate(), 17);
}

#[test]
fn what_resolved_before_a_move_finds_its_way_after_it() {
    let mut world = World::new(32, SMALL);
    (0..17).for_each(|id| _ = world.insert(id));
    let stale: Vec<u32> = (0..17).map(|id| world.index.head_of(hash_of_id(id))).collect();
    world.step(u32::MAX);
    for (id, head) in (0..17).zip(stale) {
        let hash = hash_of_id(id);
        assert!(world.index.find(head, hash, |slot| slot.offset_bytes() == id * 8).is_some());
    }
    assert!(world.index.find(world.index.head_of(KeyHash(0)), KeyHash(0), |_| true).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "thousands of items; the others move chains as well")]
fn without_memory_the_index_stays_small_and_works() {
    let mut world = World::new(1, SMALL);
    let mut count = 0;
    while world.index.lock(hash_of_id(count)).insert(slot_of_id(count)).is_ok() {
        world.index.count_items(1);
        count += 1;
        world.step(4);
        world.free_retired();
    }
    assert!(count > 4000, "1024 lines hold {count} items");
    assert!((0..count).all(|id| world.has(id)));
    assert_eq!(world.validate(), count);
}

#[test]
fn a_lossy_index_keeps_its_size() {
    let plan = IndexPlan { partition_log2: 2, heads: 7, is_lossy: true };
    let mut world = World::new(4, plan);
    for id in 0..if cfg!(miri) { 100 } else { 1000 } {
        let _ = world.index.lock(hash_of_id(id)).insert(slot_of_id(id));
        world.index.count_items(1);
        world.step(10);
    }
    assert_eq!((world.index.size().heads, world.index.size().overflow), (7, 0));
}

#[test]
fn a_store_s_plan_has_a_partition_for_each_quarter_of_a_mebibyte() {
    for (memory_bytes, want) in [(1 << 20, 2), (1 << 30, 12), (64 << 30, 18), (1 << 45, 20)] {
        assert_eq!(IndexPlan::new(memory_bytes, 0, false).partition_log2, want);
    }
}

proptest! {
    /// I4, K5: the bits that name a partition of the write table are the same for all keys of a
    /// chain.
    #[test]
    fn chains_of_any_size_lie_in_one_partition(
        heads in 0..if cfg!(miri) { 20 } else { 3000_u64 },
        partition_log2 in 1..7_u32,
        items in 0..if cfg!(miri) { 60 } else { 2000_u64 },
        step in 0..50_u32,
    ) {
        let mut world = World::new(32, IndexPlan { partition_log2, heads, is_lossy: false });
        (0..items).for_each(|id| _ = world.insert(id));
        world.step(step);
        let bits = world.index.partition_bits();
        let mut next = Some(KeyHash(0));
        let mut slots = Vec::new();
        while let Some(hash) = next {
            let place = world.index.collect(hash, &mut slots);
            next = place.next_hash(hash);
            let last = KeyHash(next.map_or(u64::MAX, |next| next.0 - 1));
            prop_assert_eq!(hash.partition(bits), last.partition(bits));
            prop_assert_eq!(world.index.head_of(last), place.head);
        }
        prop_assert_eq!(slots.len() as u64, items);
        prop_assert_eq!(world.validate(), items);
    }
}
