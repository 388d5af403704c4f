//! Tests of the store against a plain map that models TTL, CAS and eviction: any sequence of
//! requests gets the map's answers, except that a cache may forget items and reports how many it
//! forgot.

use crate::oracle::{Action, Oracle, small_config};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use store::{Eviction, IndexKind, Mode, Prefetch, Store, Tuning};

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few keys, so that requests meet; some long, some empty.
    prop_oneof![
        5 => (0_u32..60).prop_map(|id| format!("key:{id}").into_bytes()),
        // Eight bytes, so that short values are replaced in place (K12).
        3 => (0_u32..30).prop_map(|id| format!("key:{id:04}").into_bytes()),
        2 => (0_u32..2000).prop_map(|id| id.to_le_bytes().to_vec()),
        1 => (0_usize..3).prop_map(|id| vec![id as u8; [0, 251, 65_535][id]]),
    ]
}

fn value_len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..40, 2 => 7_usize..9, 3 => 100_usize..3000, 1 => 10_000_usize..150_000]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => key().prop_map(Action::Get),
        6 => (key(), value_len(), 0_u8..5, 0_u8..4)
            .prop_map(|(key, len, condition, expiry)| Action::Set { key, len, condition, expiry }),
        2 => key().prop_map(Action::Delete),
        2 => (key(), 0_usize..300).prop_map(|(key, len)| Action::Append { key, len }),
        1 => (key(), 0_u64..400).prop_map(|(key, ms)| Action::Touch { key, ms }),
        1 => vec(key(), 1..6).prop_map(Action::ReadSnapshot),
        1 => vec((key(), 0_usize..200), 1..5).prop_map(Action::SetTogether),
        1 => (0_u64..200).prop_map(Action::Wait),
        1 => Just(Action::Maintain),
        1 => Just(Action::Scan),
        1 => (0_u32..40).prop_map(|few| if few == 0 { Action::Flush } else { Action::Maintain }),
        1 => resizing(),
        1 => resizing().prop_map(|action| Action::ScanAround(Box::new(action))),
        2 => vec((key(), option::of(option::of(0_usize..200))), 1..50).prop_map(Action::Batch),
        1 => (any::<bool>(), 1_usize..50)
            .prop_map(|(is_reverse, item_limit)| Action::Walk { is_reverse, item_limit }),
        1 => Just(Action::SwitchSession),
        1 => (0_u64..101).prop_map(Action::Resize),
        1 => Just(Action::Tend),
    ]
}

/// Items that come and go in numbers, so that the index changes its size.
fn resizing() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0_u32..200, 0_u32..120).prop_map(|(first, count)| Action::Fill { first, count }),
        (0_u32..200, 0_u32..120).prop_map(|(first, count)| Action::Drain { first, count }),
    ]
}

/// Also large values, of which the log holds about twenty: it has to evict.
fn crowded() -> impl Strategy<Value = Action> {
    let large = (0_u32..40, 60_000_usize..150_000).prop_map(|(id, len)| {
        let key = format!("large:{id}").into_bytes();
        Action::Set { key, len, condition: 0, expiry: 0 }
    });
    prop_oneof![5 => action(), 1 => large]
}

/// Optimisations that are switched off.
fn tuning() -> impl Strategy<Value = Tuning> {
    let prefetch =
        prop_oneof![Just(Prefetch::On), Just(Prefetch::NonTemporal), Just(Prefetch::Off)];
    (prefetch, any::<[bool; 6]>()).prop_map(|(prefetch, switches)| {
        let [tags, append, in_place, lanes, late, notes_use] = switches;
        Tuning {
            prefetch,
            matches_tags_at_once: tags,
            prefetches_append: append,
            replaces_in_place: in_place,
            counts_in_lanes: lanes,
            notes_use,
            marks_late: late,
        }
    })
}

fn check(mode: Mode, eviction: Eviction, lossy_index: bool, actions: &[Action]) {
    check_tuned(mode, eviction, lossy_index, Tuning::default(), actions);
}

fn check_tuned(
    mode: Mode,
    eviction: Eviction,
    lossy_index: bool,
    tuning: Tuning,
    actions: &[Action],
) {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let config = small_config(index, mode, eviction, lossy_index);
        let room_bytes = 3 * config.memory_bytes;
        let store = Store::open_with_room(config, tuning, &[], room_bytes).unwrap();
        let mut oracle = Oracle::new(&store);
        for action in actions {
            oracle.apply(action);
        }
        oracle.finish();
        drop(oracle);
        store.validate();
    }
}

proptest! {
    #[test]
    fn a_cache_of_two_queues_forgets_only_by_evicting(actions in vec(crowded(), 1..400)) {
        check(Mode::Evict, Eviction::S3Fifo, false, &actions);
    }

    #[test]
    fn a_store_never_forgets(actions in vec(action(), 1..400)) {
        check(Mode::Clean, Eviction::Fifo, false, &actions);
    }

    #[test]
    fn a_fifo_cache_forgets_only_what_it_counts(actions in vec(crowded(), 1..400)) {
        check(Mode::Evict, Eviction::Fifo, false, &actions);
    }

    #[test]
    fn an_lru_cache_forgets_only_what_it_counts(actions in vec(crowded(), 1..400)) {
        check(Mode::Evict, Eviction::Lru, false, &actions);
    }

    #[test]
    fn an_approximate_lru_cache_forgets_only_what_it_counts(actions in vec(crowded(), 1..400)) {
        check(Mode::Evict, Eviction::LruApprox, false, &actions);
    }

    #[test]
    fn a_lossy_index_forgets_only_what_it_counts(actions in vec(action(), 1..400)) {
        check(Mode::Evict, Eviction::LruApprox, true, &actions);
    }
    #[test]
    fn the_answers_are_the_same_whatever_is_switched_off(
        tuning in tuning(),
        actions in vec(action(), 1..400),
    ) {
        check_tuned(Mode::Clean, Eviction::Fifo, false, tuning, &actions);
    }
}
