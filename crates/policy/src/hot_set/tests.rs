//! Tests of the hot set against exact counts, and through shifts of the hot keys.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn sample(hot_set: &mut HotSet<u64>, key: u64, times: u32) {
    for _ in 0..times {
        hot_set.sample(hash_of(key), || key);
    }
}

fn hash_of(key: u64) -> KeyHash {
    KeyHash(base::hash::mix(key.wrapping_add(1)))
}

fn snapshot_of(hot_set: &mut HotSet<u64>, size: usize) -> Snapshot<u64> {
    let mut snapshot = Snapshot::default();
    hot_set.switch_epoch(size, &mut snapshot);
    snapshot
}

#[test]
fn the_most_frequent_keys_are_hot_and_sorted() {
    let mut hot_set = HotSet::new(4, 1);
    for (key, times) in [(50, 9), (10, 2), (40, 8), (20, 1), (30, 7), (60, 3)] {
        sample(&mut hot_set, key, times);
    }
    let tracked_share_ratio = hot_set.tracked_share_ratio();
    let snapshot = snapshot_of(&mut hot_set, 3);
    assert_eq!(tracked_share_ratio, (9 + 8 + 7 + 3) as f64 / 30.0);
    assert_eq!(snapshot.keys(), [30, 40, 50]);
    assert!(snapshot.contains(&40) && !snapshot.contains(&60));
    assert_eq!(snapshot.share_ratio(), (9 + 8 + 7) as f64 / 30.0);
    assert_eq!(snapshot.epoch_id, 1);
}

#[test]
fn an_empty_hot_set_calls_nothing_hot() {
    let mut hot_set = HotSet::new(4, 1);
    let snapshot = snapshot_of(&mut hot_set, 4);
    assert!(!snapshot.contains(&1));
    assert_eq!(snapshot.share_ratio(), 0.0);
}

#[test]
fn a_key_that_turns_hot_overtakes_one_that_was() {
    let mut hot_set = HotSet::new(8, 1);
    let mut hottest_by_epoch = Vec::new();
    for epoch in 0..6 {
        sample(&mut hot_set, if epoch < 3 { 1 } else { 2 }, 100);
        hottest_by_epoch.push(snapshot_of(&mut hot_set, 1).keys()[0]);
    }
    // 175 samples of the first key are worth 87 when 100 of the second have come.
    assert_eq!(hottest_by_epoch, [1, 1, 1, 2, 2, 2]);
}

#[test]
fn keys_may_be_bytes() {
    let mut hot_set = HotSet::<Box<[u8]>>::new(2, 1);
    hot_set.sample(KeyHash(1), || (*b"user:1").into());
    let mut snapshot = Snapshot::default();
    hot_set.switch_epoch(2, &mut snapshot);
    assert!(snapshot.contains(&b"user:1"[..]));
}

#[test]
fn a_key_is_asked_for_only_when_it_enters() {
    let mut hot_set = HotSet::new(1, 1);
    sample(&mut hot_set, 1, 5);
    hot_set.sample(hash_of(2), || panic!("a cold key was copied"));
    hot_set.sample(hash_of(1), || panic!("a tracked key was copied"));
}

#[test]
fn the_sampler_takes_one_of_n_on_average_and_not_in_step() {
    for every in [1, 2, 16, 1000] {
        let mut sampler = Sampler::new(every, 42);
        let access_count = 1000 * every as usize;
        let taken: Vec<_> = (0..access_count).filter(|_| sampler.wants()).collect();
        // The distances are uniform: their sum is within 5 standard deviations, 5 / sqrt(3 * 1000).
        let error_ratio = (taken.len() as f64 / 1000.0 - 1.0).abs();
        assert!(error_ratio < 0.09, "{} of {access_count}", taken.len());
        let is_in_step = taken.windows(2).all(|pair| pair[1] - pair[0] == every as usize);
        assert_eq!(is_in_step, every == 1);
    }
}

#[test]
fn a_skewed_stream_much_longer_than_the_sketch_keeps_its_hottest_keys() {
    // Key k comes 20,000 / k times, 1 <= k <= 20,000; 64 tracked keys, 512 counters a row.
    let mut hot_set = HotSet::new(64, 7);
    let mut order: Vec<u64> = (1..=20_000_u64)
        .flat_map(|key| std::iter::repeat_n(key, (20_000 / key) as usize))
        .collect();
    let mut state = 1;
    for index in (1..order.len()).rev() {
        state = base::hash::mix(state + 1);
        order.swap(index, state as usize % (index + 1));
    }
    for key in order {
        sample(&mut hot_set, key, 1);
    }
    let snapshot = snapshot_of(&mut hot_set, 64);
    let found_count = (1..=32).filter(|key| snapshot.contains(key)).count();
    assert_eq!(found_count, 32, "the 32 hottest are among the 64 tracked");
}

proptest! {
    #[test]
    fn the_sketch_never_says_too_little(
        keys in prop::collection::vec(0..40_u64, 0..400),
        column_count in 1..32_usize,
        halve_after in 0..400_usize,
    ) {
        let mut sketch = CountMin::new(column_count, 3);
        let mut exact = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            if index == halve_after {
                sketch.halve();
                exact.values_mut().for_each(|count| *count /= 2);
            }
            *exact.entry(*key).or_insert(0) += 1;
            sketch.add(hash_of(*key));
        }
        for (key, count) in exact {
            prop_assert!(sketch.estimate(hash_of(key)) >= count);
        }
    }

    /// With one column per key and more to spare no counter is shared, and the heap is exact.
    #[test]
    fn the_heap_is_the_exact_top_while_the_sketch_is_exact(
        keys in prop::collection::vec(0..12_u64, 0..300),
        key_max in 1..8_usize,
        halve_after in 0..300_usize,
    ) {
        let mut sketch = CountMin::new(1 << 12, 5);
        let mut top = Top::new(key_max);
        let mut exact = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            if index == halve_after {
                sketch.halve();
                top.halve();
                exact.values_mut().for_each(|count| *count /= 2);
            }
            *exact.entry(*key).or_insert(0_u32) += 1;
            top.offer(hash_of(*key), sketch.add(hash_of(*key)), || *key);
            top.validate();
        }
        let mut tracked: Vec<_> =
            top.counts().enumerate().map(|(place, count)| (count, *top.key_at(place))).collect();
        tracked.sort_unstable_by(|one, other| other.cmp(one));
        for (count, key) in &tracked {
            prop_assert_eq!(exact[key], *count);
        }
        let mut counts: Vec<_> = exact.into_values().collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts.truncate(key_max);
        prop_assert_eq!(tracked.iter().map(|(count, _)| *count).collect::<Vec<_>>(), counts);
    }
}
