//! Tests of stores that grow and shrink while they are in use.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use store::{
    Condition, Eviction, Expiry, IndexKind, Mode, NoResize, NoUpdate, Op, Outcome, Pins, Request,
    Session, Set, Sink, Store, StoreConfig, Tended, Tuning,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1000);
const MIB: u64 = 1 << 20;
const VALUE: [u8; 1000] = [7; 1000];

fn config(mode: Mode) -> StoreConfig {
    StoreConfig {
        memory_bytes: 16 * MIB,
        index_bytes: 64 << 10,
        eviction: Eviction::S3Fifo,
        hash_seed: 42,
        ..support::config(IndexKind::Hash, mode)
    }
}

fn open(mode: Mode) -> Arc<Store> {
    Store::open_with_room(config(mode), Tuning::default(), &[], 64 * MIB).unwrap()
}

#[derive(Default)]
struct Counts {
    stored: u64,
    found: u64,
    refused: u64,
}

impl Sink<NoUpdate> for Counts {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Stored { .. } => self.stored += 1,
            Outcome::Hit(item) => {
                assert_eq!(item.value, VALUE);
                self.found += 1;
            }
            Outcome::OutOfMemory => self.refused += 1,
            _ => {}
        }
    }
}

fn run(store: &Store, session: &mut Session, ids: std::ops::Range<u64>, is_set: bool) -> Counts {
    let mut counts = Counts::default();
    for id in ids {
        let key = id.to_le_bytes();
        let set = Set {
            value: &VALUE,
            client_flags: 0,
            expiry: Expiry::Never,
            condition: Condition::Always,
        };
        let op: Op<'_, NoUpdate> = if is_set { Op::Set(set) } else { Op::Get };
        let request = Request { key: &key, hash: store.key_hasher().hash(&key), op };
        session.execute(NOW, &[request], &mut counts);
    }
    counts
}

/// Does housekeeping until the store has the requested size; returns the number of steps.
fn shrink(store: &Store, session: &mut Session) -> u64 {
    for step in 0..1_000_000 {
        if store.surplus_bytes() == 0 {
            return step;
        }
        session.maintain(NOW);
    }
    panic!("{} bytes are too much for good", store.surplus_bytes());
}

/// Returns the pages of given-up segments to the kernel; counts the segments.
fn discard(store: &Store) -> u64 {
    let mut count = 0;
    while store.tend_memory(0, Duration::ZERO) == Tended::Discarded {
        count += 1;
    }
    count
}

#[test]
fn a_cache_that_shrinks_gives_its_pages_back_and_one_that_grows_holds_more() {
    let store = open(Mode::Evict);
    let mut session = store.session().unwrap();
    let bounds = store.size_bounds().unwrap();
    store.resize(bounds.most_bytes).unwrap();
    assert_eq!(run(&store, &mut session, 0..60_000, true).stored, 60_000);
    let full = run(&store, &mut session, 0..60_000, false).found;
    assert!(full > 50_000, "{full} of 1 KB fit 60 MiB");

    store.resize(bounds.least_bytes).unwrap();
    let surplus_bytes = store.surplus_bytes();
    assert!(surplus_bytes > 30 * MIB, "{surplus_bytes}");
    let steps = shrink(&store, &mut session);
    // No step delays others for long: one visits 128 entries of some 1,050 bytes.
    assert!(steps > surplus_bytes / (256 << 10), "{steps} steps");
    let segment_bytes = store.limits().segment_bytes;
    let parked = (bounds.most_bytes - bounds.least_bytes) / segment_bytes;
    assert!(discard(&store) >= parked * 9 / 10, "nearly all of {parked} were resident");
    let left = run(&store, &mut session, 0..60_000, false).found;
    assert!((4_000..9_000).contains(&left), "{left} of 1 KB fit 8 MiB");

    store.resize(bounds.most_bytes).unwrap();
    assert_eq!(run(&store, &mut session, 0..60_000, true).stored, 60_000);
    assert!(run(&store, &mut session, 0..60_000, false).found > 50_000);
    drop(session);
    store.validate();
}

#[test]
fn a_cache_that_shrinks_under_writes_refuses_none_and_arrives() {
    let store = open(Mode::Evict);
    let mut session = store.session().unwrap();
    let bounds = store.size_bounds().unwrap();
    let mut next = 0;
    for turn in 0..20 {
        let to = if turn % 2 == 0 { bounds.most_bytes } else { bounds.least_bytes };
        store.resize(to).unwrap();
        let counts = run(&store, &mut session, next..next + 20_000, true);
        assert_eq!((counts.stored, counts.refused), (20_000, 0));
        next += 20_000;
        assert_eq!(store.surplus_bytes(), 0, "writes alone have paid for turn {turn}");
        discard(&store);
    }
    drop(session);
    store.validate();
}

#[test]
fn a_store_keeps_every_item_and_refuses_what_they_do_not_fit() {
    let store = open(Mode::Clean);
    let mut session = store.session().unwrap();
    let most_bytes = store.size_bounds().unwrap().most_bytes;
    store.resize(most_bytes).unwrap();
    assert_eq!(run(&store, &mut session, 0..40_000, true).stored, 40_000);
    // Every second write is dead: cleaning has something to do.
    assert_eq!(run(&store, &mut session, 0..10_000, true).stored, 10_000);
    let bounds = store.size_bounds().unwrap();
    assert!(bounds.items_bytes > 40 * MIB && bounds.items_bytes < most_bytes, "{bounds:?}");
    assert_eq!(store.resize(bounds.items_bytes - 1), Err(NoResize::OutOfBounds(bounds)));
    store.resize(bounds.items_bytes).unwrap();
    shrink(&store, &mut session);
    discard(&store);
    assert_eq!(run(&store, &mut session, 0..40_000, false).found, 40_000);
    let refused = run(&store, &mut session, 40_000..60_000, true).refused;
    assert!(refused > 8_000, "it is full at its new size: {refused}");
    assert_eq!(run(&store, &mut session, 0..40_000, false).found, 40_000);
    drop(session);
    store.validate();
}

#[test]
fn a_store_without_room_keeps_its_size() {
    let store = Store::open(config(Mode::Evict)).unwrap();
    assert_eq!(store.size_bounds(), None);
    assert_eq!(store.resize(32 * MIB), Err(NoResize::Fixed));
    assert_eq!(store.memory_bytes(), 16 * MIB);
}

#[test]
fn sizes_outside_of_the_bounds_change_nothing() {
    let store = open(Mode::Evict);
    let bounds = store.size_bounds().unwrap();
    let before = store.memory_bytes();
    for bytes in [0, bounds.least_bytes - 1, bounds.most_bytes + 1, u64::MAX] {
        assert_eq!(store.resize(bytes), Err(NoResize::OutOfBounds(bounds)));
    }
    assert_eq!(store.memory_bytes(), before);
}

#[test]
fn sessions_at_work_see_whole_items_while_the_size_changes() {
    let config = StoreConfig { session_max: 3, ..config(Mode::Evict) };
    let store = Store::open_with_room(config, Tuning::default(), &[], 48 * MIB).unwrap();
    let bounds = store.size_bounds().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let store = &store;
            scope.spawn(move || {
                let mut session = store.session().unwrap();
                for round in 0..15 {
                    let first = thread * 7_000 + round * 500;
                    let counts = run(store, &mut session, first..first + 4_000, true);
                    assert_eq!(counts.refused, 0);
                    run(store, &mut session, 0..8_000, false);
                    session.maintain(NOW);
                }
            });
        }
        scope.spawn(|| {
            for turn in 0..40_u64 {
                let part = (turn * 37) % 100;
                let span = bounds.most_bytes - bounds.least_bytes;
                store.resize(bounds.least_bytes + span * part / 100).unwrap();
                for _ in 0..50 {
                    store.tend_memory(MIB, Duration::from_micros(100));
                }
            }
        });
    });
    store.validate();
}
