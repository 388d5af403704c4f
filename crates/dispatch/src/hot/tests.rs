//! Tests of the hot set from samples to dispatchers: turning hot and cold, sizes, and buffers that
//! overflow.

use base::{Instant, KeyHash};

use super::epochs::HotChange;
use super::*;
use crate::controller::{Controller, Observed};

fn hash_of(key: u64) -> KeyHash {
    KeyHash(base::hash::mix(key.wrapping_add(1)))
}

/// A dispatcher that samples every access, and the manager.
struct Bench {
    keys: Arc<HotKeys>,
    tracker: HotTracker,
    epochs: HotEpochs,
    now_ns: u64,
}

impl Bench {
    fn new(size: HotSetSize) -> Bench {
        let keys = HotKeys::new(size, 1, true, true).expect("it is on");
        let mut tracker = HotTracker::new(&keys, 0);
        tracker.sampler = Sampler::new(1, 0);
        let epochs = HotEpochs::new(Arc::clone(&keys), Instant { ns: 0 });
        Bench { keys, tracker, epochs, now_ns: 0 }
    }

    /// One epoch with `times(k)` accesses to key k, and then a round of the dispatcher.
    fn epoch(&mut self, key_count: u64, times: impl Fn(u64) -> u64) -> Option<HotChange> {
        let mut noted_count = 0;
        for key in 0..key_count {
            for _ in 0..times(key) {
                self.tracker.note(hash_of(key), format!("key:{key}").as_bytes());
                noted_count += 1;
                if noted_count % SAMPLES_WAITING_MAX == 0 {
                    let is_over = self.epochs.look(Instant { ns: self.now_ns }, true);
                    assert_eq!(is_over, None, "no epoch ends before its time");
                }
            }
        }
        self.now_ns += 400_000_000;
        let change = self.epochs.look(Instant { ns: self.now_ns }, true);
        self.tracker.look();
        change
    }

    fn hot_among(&self, keys: std::ops::Range<u64>) -> Vec<u64> {
        keys.filter(|key| self.tracker.is_hot(hash_of(*key))).collect()
    }
}

#[test]
fn frequent_keys_turn_hot_and_are_listed_with_their_share() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    assert_eq!(bench.hot_among(0..100), [0; 0]);
    let change = bench.epoch(100, |key| if key < 2 { 300 - 200 * key } else { 4 });
    assert_eq!(change.map(|change| (change.item_count_before, change.item_count)), Some((0, 2)));
    assert_eq!(bench.hot_among(0..100), [0, 1]);
    let now = bench.keys.now();
    let listed: Vec<_> =
        now.listed().iter().map(|key| (&*key.head, key.len_bytes, key.share_ratio)).collect();
    assert_eq!(listed, [(&b"key:0"[..], 5, 300.0 / 792.0), (b"key:1", 5, 100.0 / 792.0)]);
    assert_eq!((now.item_count(), now.share_ratio()), (2, 400.0 / 792.0));
}

#[test]
fn a_key_that_is_no_longer_asked_for_turns_cold_and_another_hot() {
    let bench = &mut Bench::new(HotSetSize::Items(1));
    bench.epoch(2, |key| if key == 0 { 200 } else { 0 });
    assert_eq!(bench.hot_among(0..2), [0]);
    bench.epoch(2, |key| if key == 1 { 200 } else { 0 });
    assert_eq!(bench.hot_among(0..2), [1]);
}

#[test]
fn an_idle_server_and_one_whose_keys_are_all_alike_have_no_hot_set() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    bench.epoch(2, |_| 100);
    assert_eq!(bench.hot_among(0..2), [0, 1]);
    let change = bench.epoch(0, |_| 0);
    assert_eq!(change.map(|change| change.item_count), Some(0));
    assert_eq!(bench.hot_among(0..2), [0; 0]);
    bench.epoch(20_000, |_| 1);
    bench.epoch(20_000, |_| 1);
    assert_eq!(bench.keys.now().item_count(), 0);
}

#[test]
fn another_size_holds_from_the_managers_next_look_on() {
    let bench = &mut Bench::new(HotSetSize::Items(10));
    bench.epoch(40, |_| 100);
    assert_eq!(bench.keys.now().item_count(), 10);
    bench.keys.set_size(20);
    let layers = Observed { has_two_layers: true, ..Observed::default() };
    assert!(!bench.keys.is_in_force(true) && bench.epochs.is_urgent(&layers));
    assert_eq!(bench.keys.now().item_count(), 10);
    assert_eq!(bench.epochs.look(Instant { ns: bench.now_ns }, true), None, "a size is no news");
    assert!(bench.keys.is_in_force(true) && !bench.epochs.is_urgent(&layers));
    bench.tracker.look();
    assert_eq!(bench.hot_among(0..40).len(), 20);
    assert_eq!(bench.keys.eligible_count(), 40);
    bench.epoch(40, |_| 100);
    assert_eq!(bench.hot_among(0..40).len(), 20);
    bench.keys.set_size(0);
    bench.epoch(40, |_| 100);
    assert_eq!(bench.hot_among(0..40), [0; 0]);
    bench.keys.set_size(usize::MAX);
    assert_eq!(bench.keys.size(), TRACKED_MAX);
}

/// As a search does: it tries size zero, for longer than an epoch, and then larger sets.
#[test]
fn a_set_of_no_keys_for_a_while_does_not_have_to_begin_anew() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    // A tenth of the accesses is enough to stay hot, a fifth to become it.
    bench.epoch(1000, |key| if key < 3 { 100 } else { 1 });
    assert_eq!(bench.keys.now().item_count(), 3);
    bench.keys.set_size(0);
    bench.epoch(1000, |key| if key < 3 { 50 } else { 1 });
    assert_eq!(bench.hot_among(0..1000), [0; 0]);
    bench.keys.set_size(2);
    bench.epochs.look(Instant { ns: bench.now_ns }, true);
    bench.tracker.look();
    assert_eq!(bench.hot_among(0..1000).len(), 2);
}

/// Run to completion: counts are kept, for a tuner that tries two layers next.
#[test]
fn the_hot_set_ends_without_readers_and_begins_at_once_with_some() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    bench.epoch(40, |_| 100);
    assert_eq!((bench.keys.now().item_count(), bench.keys.eligible_count()), (40, 40));
    let [rtc, layers] =
        [false, true].map(|has_two_layers| Observed { has_two_layers, ..Observed::default() });
    assert!(bench.epochs.is_urgent(&rtc) && !bench.epochs.is_urgent(&layers));
    for _ in 0..3 {
        bench.now_ns += 400_000_000;
        (0..200).for_each(|_| bench.tracker.note(hash_of(1), b"key:1"));
        assert_eq!(bench.epochs.tick(Instant { ns: bench.now_ns }, &rtc), None);
        let now = bench.keys.now();
        assert_eq!((now.item_count(), now.array.as_ref().map(|array| array.len())), (0, Some(0)));
        assert!(bench.keys.eligible_count() > 0 && now.popularity().is_some(), "still counted");
    }
    assert!(!bench.epochs.is_urgent(&rtc) && bench.epochs.is_urgent(&layers));
    bench.epochs.tick(Instant { ns: bench.now_ns }, &layers);
    assert!(bench.keys.now().item_count() > 0);
}

#[test]
fn what_the_tuner_observes_does_not_depend_on_the_size() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    bench.epoch(10, |key| if key < 2 { 300 } else { 4 });
    let share_ratio = bench.keys.now().frequent_share_ratio();
    assert_eq!(share_ratio, 600.0 / 632.0);
    bench.keys.set_size(1);
    bench.epoch(10, |key| if key < 2 { 300 } else { 4 });
    let (now, before) = (bench.keys.now().frequent_share_ratio(), share_ratio);
    assert!(now >= before, "{now} after {before}");
}

#[test]
fn samples_that_are_not_fetched_are_dropped() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    for _ in 0..3 * SAMPLES_WAITING_MAX {
        bench.tracker.note(hash_of(1), b"key:1");
    }
    let change = bench.epoch(0, |_| 0);
    assert_eq!(change.map(|change| change.sample_count), Some(SAMPLES_WAITING_MAX as u64));
}

#[test]
fn long_keys_are_listed_by_their_heads() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    let long = [b'x'; SAMPLE_KEY_BYTES_MAX + 1];
    for key in [&long[..], &long[1..]] {
        for _ in 0..200 {
            bench.tracker.note(hash_of(key.len() as u64), key);
        }
    }
    bench.epoch(0, |_| 0);
    let now = bench.keys.now();
    let mut lengths: Vec<_> =
        now.listed().iter().map(|key| (key.head.len(), key.len_bytes)).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(52, 52), (52, 53)]);
}

/// H2: a dispatcher that cannot take the new epoch at once continues with the old one.
#[test]
fn a_dispatcher_that_meets_a_publication_takes_it_in_its_next_round() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    let keys = Arc::clone(&bench.keys);
    let published = Published { members: Members::new(&[hash_of(1)]), ..Published::default() };
    keys.publish(published, 1);
    let being_replaced = keys.published.lock();
    bench.tracker.look();
    assert_eq!(bench.hot_among(0..2), [0; 0]);
    drop(being_replaced);
    bench.tracker.look();
    assert_eq!(bench.hot_among(0..2), [1]);
}

#[test]
fn off_is_off() {
    assert!(HotKeys::new(HotSetSize::Off, 4, false, false).is_none());
}

#[test]
fn the_decision_log_hears_of_the_beginning_and_the_end() {
    let bench = &mut Bench::new(HotSetSize::Auto);
    let mut tick = |has_two_layers, key_count: u64| {
        for key in 0..key_count {
            (0..200).for_each(|_| bench.tracker.note(hash_of(key), b"key"));
        }
        bench.now_ns += 400_000_000;
        let observed = Observed { has_two_layers, ..Observed::default() };
        let told = bench.epochs.tick(Instant { ns: bench.now_ns }, &observed);
        told.map(|decision| decision.change)
    };
    assert_eq!([tick(false, 1), tick(false, 0)], [None, None], "no thread reads them");
    assert_eq!(tick(true, 1).as_deref(), Some("hot keys from 0 to 1"));
    assert_eq!(tick(true, 3), None);
    assert_eq!(tick(true, 0).as_deref(), Some("hot keys from 3 to 0"));
}

/// The memory of a tree's hot keys beyond a table's: two arrays, and each dispatcher's places.
#[test]
fn the_arrays_and_places_of_a_tree_are_counted() {
    for threads in [1, 4, 16] {
        let bytes = |index| {
            let config = config::Config { index, threads, ..config::Config::default() };
            HotKeys::memory_bytes(&config, true)
        };
        let array_bytes = HotArray::memory_bytes_max(TRACKED_MAX, SAMPLE_KEY_BYTES_MAX) as u64;
        let places_bytes = (threads * TRACKED_MAX * store::HOT_PLACE_BYTES) as u64;
        assert!(array_bytes < 700_000 && places_bytes <= threads as u64 * 240_000);
        let beyond = bytes(IndexKind::Tree) - bytes(IndexKind::Hash);
        assert_eq!(beyond, 2 * array_bytes + places_bytes);
    }
}
