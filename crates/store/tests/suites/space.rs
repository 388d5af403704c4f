//! Tests of a store whose log is full.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base::UnixMillis;
use store::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, PinnedValue,
    Pins, Request, Session, Set, Sink, Store, StoreConfig,
};

use crate::support;

/// The index that this copy of the suite runs with.
fn index_kind() -> IndexKind {
    support::index_kind(module_path!())
}

fn open(mode: Mode, eviction: Eviction) -> Arc<Store> {
    open_with_index(mode, eviction, 1 << 20)
}

fn open_with_index(mode: Mode, eviction: Eviction, index_bytes: u64) -> Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 5 << 20,
        index_bytes,
        eviction,
        item_max_bytes: 4 << 20,
        huge_pages: HugePages::Auto,
        ..support::config(index_kind(), mode)
    })
    .unwrap()
}

#[derive(Default)]
struct Last {
    stored: u64,
    hits: u64,
    refused: u64,
    too_large: u64,
    pins: Vec<PinnedValue>,
    is_pinning: bool,
}

impl Sink<NoUpdate> for Last {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => {
                self.hits += 1;
                if self.is_pinning {
                    self.pins.extend(pins.try_pin(&item));
                }
            }
            Outcome::Stored { .. } => self.stored += 1,
            Outcome::OutOfMemory => self.refused += 1,
            Outcome::TooLarge { .. } => self.too_large += 1,
            _ => {}
        }
    }
}

struct Driver {
    store: Arc<Store>,
    session: Session,
    now: UnixMillis,
    seen: Last,
}

impl Driver {
    fn new(mode: Mode, eviction: Eviction) -> Driver {
        Driver::of(open(mode, eviction))
    }

    fn of(store: Arc<Store>) -> Driver {
        let session = store.session().unwrap();
        Driver { store, session, now: UnixMillis(1), seen: Last::default() }
    }

    fn run(&mut self, id: u64, op: Op<'_, NoUpdate>) {
        let key = id.to_le_bytes();
        let hash = self.store.key_hasher().hash(&key);
        self.session.execute(self.now, &[Request { key: &key, hash, op }], &mut self.seen);
    }

    fn set(&mut self, id: u64, len_bytes: usize, expiry: Expiry) {
        let value = vec![id as u8; len_bytes];
        let condition = Condition::Always;
        self.run(id, Op::Set(Set { value: &value, client_flags: 0, expiry, condition }));
    }

    fn hits_among(&mut self, ids: impl Iterator<Item = u64>) -> u64 {
        let before = self.seen.hits;
        for id in ids {
            self.run(id, Op::Get);
        }
        self.seen.hits - before
    }
}

#[test]
fn a_store_refuses_only_when_nothing_can_be_cleaned() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let mut id = 0;
    while driver.seen.refused == 0 {
        driver.set(id, 1000, Expiry::Never);
        id += 1;
    }
    let stats = driver.store.stats();
    let full_pct = stats.entry_bytes * 100 / stats.log_bytes;
    assert!(full_pct >= 85, "refused at {full_pct} %");
    assert_eq!(driver.hits_among(0..id - 1), id - 1, "nothing was dropped");
    // Deletes give room back, and overwriting needs no permanent room.
    for gone in 0..id / 4 {
        driver.run(gone, Op::Delete);
    }
    driver.seen.refused = 0;
    for round in 0..3 {
        for again in id / 4..id - 1 {
            driver.set(again, 1000, Expiry::Never);
        }
        assert_eq!(driver.seen.refused, 0, "round {round}");
    }
    driver.store.validate();
}

#[test]
fn an_index_without_memory_gets_what_cleaning_wins_back() {
    let mut driver = Driver::of(open_with_index(Mode::Clean, Eviction::Fifo, 4096));
    let mut large = 0;
    while driver.seen.refused == 0 {
        driver.set(large, 1000, Expiry::Never);
        large += 1;
    }
    driver.seen.refused = 0;
    // Every other one, so that no segment is free before it is cleaned.
    for gone in (0..large).step_by(2) {
        driver.run(gone, Op::Delete);
    }
    let small_ids = 1_000_000..1_030_000;
    for id in small_ids.clone() {
        driver.set(id, 1, Expiry::Never);
    }
    assert_eq!(driver.seen.refused, 0, "half of the log was dead");
    assert_eq!(driver.hits_among(small_ids), 30_000);
    driver.store.validate();
}

#[test]
fn a_full_store_answers_conditions_that_fail_without_room() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let mut count = 0;
    while driver.seen.refused == 0 {
        driver.set(count, 1000, Expiry::Never);
        count += 1;
    }
    driver.seen.refused = 0;
    let mut conditional = |id, condition| {
        let set = Set { value: &[0; 1000], client_flags: 0, expiry: Expiry::Never, condition };
        driver.run(id, Op::Set(set));
        std::mem::take(&mut driver.seen.refused)
    };
    assert_eq!(conditional(1, Condition::IfAbsent), 0, "the key is there");
    assert_eq!(conditional(count + 1, Condition::IfPresent), 0, "the key is not there");
    assert_eq!(conditional(count + 1, Condition::IfVersion(7)), 0, "the key is not there");
    assert_eq!(conditional(count + 1, Condition::IfAbsent), 1);
    assert_eq!(conditional(1, Condition::IfPresent), 1);
}

#[test]
fn a_full_store_drops_what_has_expired_before_it_refuses() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let mut id = 0;
    while driver.seen.refused == 0 {
        driver.set(id, 1000, Expiry::At(UnixMillis(1000)));
        id += 1;
    }
    driver.seen.refused = 0;
    driver.now = UnixMillis(5000);
    for next in id..id + 500 {
        driver.set(next, 1000, Expiry::Never);
    }
    assert_eq!(driver.seen.refused, 0);
    driver.store.validate();
}

#[test]
fn what_was_read_survives_in_an_lru_cache_and_not_in_a_fifo_one() {
    for (eviction, keeps) in
        [(Eviction::Lru, true), (Eviction::LruApprox, true), (Eviction::Fifo, false)]
    {
        let mut driver = Driver::new(Mode::Evict, eviction);
        for id in 0..200 {
            driver.set(id, 100, Expiry::Never);
        }
        for filler in 1000..60_000 {
            driver.set(filler, 100, Expiry::Never);
            driver.run(filler % 200, Op::Get);
        }
        let kept = driver.hits_among(0..200);
        assert_eq!(kept > 150, keeps, "{eviction:?} kept {kept} of 200");
        assert!(driver.store.stats().evicted_by_log > 10_000);
        driver.store.validate();
    }
}

#[test]
fn pins_of_slow_readers_never_stop_a_cache() {
    let mut driver = Driver::new(Mode::Evict, Eviction::LruApprox);
    for id in 0..100_u64 {
        driver.set(id, 30_000, Expiry::Never);
        driver.seen.is_pinning = true;
        driver.run(id, Op::Get);
        driver.seen.is_pinning = false;
    }
    assert!(!driver.seen.pins.is_empty() && driver.seen.pins.len() < 100);
    for id in 100..400 {
        driver.set(id, 30_000, Expiry::Never);
    }
    assert_eq!((driver.seen.stored, driver.seen.refused), (400, 0));
    for pinned in driver.seen.pins.drain(..) {
        assert!(pinned.len() == 30_000 && pinned.iter().all(|byte| *byte == pinned[0]));
    }
    driver.store.validate();
}

#[test]
fn large_values_take_runs_up_to_a_quarter_of_the_log() {
    for mode in [Mode::Evict, Mode::Clean] {
        let mut driver = Driver::new(mode, Eviction::LruApprox);
        let max = driver.store.limits().item_max_bytes as usize - 8;
        for round in 0..20 {
            driver.set(round % 2, max - round as usize, Expiry::Never);
            driver.set(100 + round, 5000, Expiry::Never);
        }
        assert_eq!((driver.seen.stored, driver.seen.refused), (40, 0), "{mode:?}");
        driver.set(7, max + 1, Expiry::Never);
        assert_eq!(driver.seen.too_large, 1);
        assert_eq!(driver.hits_among(0..2), 2);
        driver.store.validate();
    }
}

#[test]
fn values_of_a_third_of_a_segment_waste_little() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let len_bytes = driver.store.limits().segment_bytes as usize / 3 - 100;
    for id in 0.. {
        driver.set(id, len_bytes, Expiry::Never);
        if driver.seen.refused > 0 {
            break;
        }
    }
    let stats = driver.store.stats();
    let full_pct = stats.entry_bytes * 100 / stats.log_bytes;
    assert!(full_pct >= 85, "refused at {full_pct} %");
    driver.store.validate();
}

#[test]
fn a_live_run_does_not_stand_in_the_way_of_cleaning() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let segment_bytes = driver.store.limits().segment_bytes as usize;
    driver.set(u64::MAX, segment_bytes + 100, Expiry::Never);
    let mut count = 0;
    while driver.seen.refused == 0 {
        driver.set(count, 1000, Expiry::Never);
        count += 1;
    }
    for id in (0..count).filter(|id| id % 5 < 2) {
        driver.run(id, Op::Delete);
    }
    driver.seen.refused = 0;
    for id in count..count + count / 10 {
        driver.set(id, 1000, Expiry::Never);
    }
    assert_eq!(driver.seen.refused, 0, "two fifths of every segment are dead");
    driver.store.validate();
}

#[test]
fn cleaning_ends_when_nothing_is_dead() {
    for percent in [30, 36, 60, 80] {
        let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
        let len_bytes = driver.store.limits().segment_bytes as usize * percent / 100;
        for id in 0.. {
            driver.set(id, len_bytes, Expiry::Never);
            if driver.seen.refused > 0 {
                break;
            }
        }
        let copied_before = driver.store.stats().cleaned_bytes;
        driver.set(u64::MAX, len_bytes, Expiry::Never);
        let steps = (0..1000).take_while(|_| driver.session.maintain(driver.now)).count();
        let copied_bytes = driver.store.stats().cleaned_bytes - copied_before;
        assert!(steps < 100, "{percent} %: housekeeping goes on");
        let segment_bytes = driver.store.limits().segment_bytes;
        assert!(copied_bytes < 4 * segment_bytes, "{percent} %: {copied_bytes} bytes copied");
    }
}

#[test]
fn locks_for_more_than_the_log_holds_evict_nothing() {
    let mut driver = Driver::new(Mode::Evict, Eviction::LruApprox);
    for id in 0..1000 {
        driver.set(id, 1000, Expiry::Never);
    }
    let hash = driver.store.key_hasher().hash(b"a");
    drop(driver.session.lock_keys(driver.now, &[hash], store::Room::of([1 << 30])));
    assert_eq!(driver.store.stats().items, 1000);
}

#[test]
fn pinned_runs_leave_half_of_the_log_and_may_be_pinned_again() {
    let mut driver = Driver::new(Mode::Evict, Eviction::LruApprox);
    let limits = driver.store.limits();
    let len_bytes = 5 * limits.segment_bytes as usize;
    driver.seen.is_pinning = true;
    let mut id = 0;
    while driver.seen.pins.len() == id as usize {
        driver.set(id, len_bytes, Expiry::Never);
        driver.run(id, Op::Get);
        id += 1;
    }
    let pinned_segments = driver.seen.pins.len() * 6;
    assert!(pinned_segments <= limits.segment_count as usize / 2 + 6, "{pinned_segments}");
    assert!(driver.store.is_pin_share_reached());
    let pins = driver.seen.pins.len();
    driver.run(0, Op::Get);
    assert_eq!(driver.seen.pins.len(), pins + 1, "what is pinned may be pinned again");
    driver.seen.is_pinning = false;
    driver.set(9, len_bytes, Expiry::Never);
    assert_eq!(driver.seen.refused, 0);
}

#[test]
fn a_part_of_a_value_is_pinned_with_the_whole() {
    let mut driver = Driver::new(Mode::Evict, Eviction::LruApprox);
    driver.seen.is_pinning = true;
    let whole: Vec<u8> = (0..3000).map(|index| index as u8).collect();
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    driver.run(1, Op::Set(Set { value: &whole, client_flags: 0, expiry, condition }));
    driver.run(1, Op::Get);
    let mut pinned = driver.seen.pins.pop().unwrap();
    assert_eq!(*pinned, whole);
    pinned.narrow(1..2999);
    assert_eq!(*pinned, whole[1..2999]);
    pinned.narrow(2..3);
    assert_eq!(*pinned, whole[3..4]);
    pinned.narrow(1..1);
    assert!(pinned.is_empty());
}
