//! Tests of the log's use of space: dead and expired bytes are reclaimed first, and the loss to
//! headers, padding and the ends of segments is bounded and reported.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base::UnixMillis;
use store::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request,
    Session, Set, Sink, Store, StoreConfig, StoreStats,
};

use crate::support;

/// The index that this copy of the suite runs with.
fn index_kind() -> IndexKind {
    support::index_kind(module_path!())
}

const POLICIES: [Eviction; 4] =
    [Eviction::Fifo, Eviction::Lru, Eviction::LruApprox, Eviction::S3Fifo];

#[derive(Default)]
struct Seen {
    hits: u64,
    refused: u64,
}

impl Sink<NoUpdate> for Seen {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.hits += u64::from(matches!(outcome, Outcome::Hit(_)));
        self.refused += u64::from(matches!(outcome, Outcome::OutOfMemory));
    }
}

struct Driver {
    store: Arc<Store>,
    session: Session,
    now: UnixMillis,
    seen: Seen,
}

/// A write's parameters besides key and length.
#[derive(Clone, Copy)]
struct Extras {
    client_flags: u64,
    expiry: Expiry,
}

const PLAIN: Extras = Extras { client_flags: 0, expiry: Expiry::Never };

impl Driver {
    fn new(mode: Mode, eviction: Eviction) -> Driver {
        let store = Store::open(StoreConfig {
            memory_bytes: 9 << 20,
            index_bytes: 1 << 20,
            eviction,
            item_max_bytes: 4 << 20,
            huge_pages: HugePages::Auto,
            ..support::config(index_kind(), mode)
        })
        .unwrap();
        let session = store.session().unwrap();
        Driver { store, session, now: UnixMillis(1), seen: Seen::default() }
    }

    fn run(&mut self, key: &[u8], op: Op<'_, NoUpdate>) {
        let hash = self.store.key_hasher().hash(key);
        self.session.execute(self.now, &[Request { key, hash, op }], &mut self.seen);
    }

    fn set_key(&mut self, key: &[u8], len_bytes: usize, extras: Extras) {
        let Extras { client_flags, expiry } = extras;
        let (value, condition) = (vec![5; len_bytes], Condition::Always);
        self.run(key, Op::Set(Set { value: &value, client_flags, expiry, condition }));
    }

    fn set(&mut self, id: u64, len_bytes: usize, expiry: Expiry) {
        self.set_key(&id.to_le_bytes(), len_bytes, Extras { expiry, ..PLAIN });
    }

    fn hits_among(&mut self, ids: impl Iterator<Item = u64>) -> u64 {
        let before = self.seen.hits;
        for id in ids {
            self.run(&id.to_le_bytes(), Op::Get);
        }
        self.seen.hits - before
    }

    /// The counters, after checking that they add up.
    fn stats(&self) -> StoreStats {
        let stats = self.store.stats();
        let space = stats.space;
        let full_bytes = space.live_bytes + space.dead_bytes + space.tail_bytes;
        let sum = space.free_bytes + space.open_bytes + space.waiting_bytes + full_bytes;
        assert_eq!(sum, stats.log_bytes, "{stats:?}");
        assert!(space.live_bytes <= stats.entry_bytes && space.long_tail_bytes <= space.tail_bytes);
        stats
    }
}

/// The `at`-th of a fixed stream of numbers below `end`.
fn draw(at: u64, end: u64) -> u64 {
    base::hash::mix(at + 1) % end
}

#[test]
fn a_cache_that_is_only_overwritten_evicts_nothing() {
    for eviction in POLICIES {
        let mut driver = Driver::new(Mode::Evict, eviction);
        let log_bytes = driver.stats().log_bytes;
        let key_count = log_bytes * 60 / 100 / 1000;
        for id in 0..key_count {
            driver.set(id, 960, Expiry::Never);
        }
        for at in 0..key_count * 12 {
            driver.set(draw(at, key_count), 960, Expiry::Never);
        }
        let stats = driver.stats();
        assert_eq!((stats.items, stats.evicted_by_log), (key_count, 0), "{eviction:?}");
        let copied_pct = stats.dead_space_copied_bytes * 100 / (key_count * 12 * 984);
        assert!((1..=100).contains(&copied_pct), "{copied_pct} % copied for {eviction:?}");
        driver.store.validate();
    }
}

#[test]
fn index_log_and_ghosts_stay_within_the_memory() {
    for eviction in POLICIES {
        let mut driver = Driver::new(Mode::Evict, eviction);
        for id in 0..50_000 {
            driver.set(id, 300, Expiry::Never);
        }
        let stats = driver.stats();
        let sum = stats.log_bytes + stats.index_bytes + stats.ghost_bytes;
        assert!(sum <= driver.store.config().memory_bytes, "{eviction:?}: {stats:?}");
        assert_eq!(stats.ghost_bytes > 0, eviction == Eviction::S3Fifo);
    }
}

#[test]
fn expired_space_is_won_back_before_anything_alive_is_given_up() {
    for (mode, eviction) in POLICIES
        .map(|eviction| (Mode::Evict, eviction))
        .into_iter()
        .chain([(Mode::Clean, Eviction::Fifo)])
    {
        let mut driver = Driver::new(mode, eviction);
        let share = driver.stats().log_bytes / 1000 * 35 / 100;
        for round in 0..6 {
            driver.now = UnixMillis(1 + round * 1000);
            for id in 0..share {
                let (id, expiry) = match round {
                    0 => (id, Expiry::Never),
                    _ => (round << 32 | id, Expiry::At(UnixMillis(driver.now.0 + 1000))),
                };
                driver.set(id, 960, expiry);
            }
        }
        let stats = driver.stats();
        assert_eq!((stats.evicted_by_log, driver.seen.refused), (0, 0), "{mode:?} {eviction:?}");
        assert_eq!(driver.hits_among(0..share), share);
        assert!(stats.expired > 2 * share, "{} expired", stats.expired);
        driver.store.validate();
    }
}

#[test]
fn a_full_store_that_has_no_run_for_a_long_entry_is_not_copied_again_for_the_next() {
    const LONG_BYTES: usize = 1 << 20;
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let mut count = 0;
    while driver.seen.refused == 0 {
        driver.set(count, 960, Expiry::At(UnixMillis(60_000)));
        count += 1;
    }
    let refused = |driver: &mut Driver| {
        let before = (driver.seen.refused, driver.stats().cleaned_bytes);
        driver.set(u64::MAX, LONG_BYTES, Expiry::Never);
        (driver.seen.refused - before.0, driver.stats().cleaned_bytes - before.1)
    };
    for id in (0..count).step_by(25) {
        driver.run(&id.to_le_bytes(), Op::Delete);
    }
    let (refused_count, copied_bytes) = refused(&mut driver);
    assert!(refused_count == 1 && copied_bytes > 0, "it has looked");
    let cleaned_bytes = driver.stats().cleaned_bytes;
    for step in 0..20 {
        // Somewhat shorter ones are not searched for, either.
        driver.set(u64::MAX, LONG_BYTES - step * 20_000, Expiry::Never);
    }
    assert_eq!(driver.stats().cleaned_bytes, cleaned_bytes, "nothing is copied");
    // As soon as there is room, and once entries may have expired, it looks again.
    for id in (0..count).step_by(2) {
        driver.run(&id.to_le_bytes(), Op::Delete);
    }
    assert_eq!(refused(&mut driver).0, 0);
    driver.run(&u64::MAX.to_le_bytes(), Op::Delete);
    let refused_count = driver.seen.refused;
    while driver.seen.refused == refused_count {
        driver.set(count, 960, Expiry::At(UnixMillis(60_000)));
        count += 1;
    }
    assert_eq!(refused(&mut driver).0, 1);
    driver.now = UnixMillis(60_000);
    assert_eq!(refused(&mut driver).0, 0);
    driver.store.validate();
}

#[test]
fn a_store_of_random_sizes_is_nine_tenths_alive_when_it_first_refuses() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let (mut count, mut at) = (0, 0);
    while driver.seen.refused == 0 {
        driver.set(count, draw(count, 2000) as usize, Expiry::Never);
        count += 1;
        for _ in 0..3 {
            at += 1;
            driver.set(draw(at, count), draw(at * 7, 2000) as usize, Expiry::Never);
        }
    }
    let stats = driver.stats();
    let live_pct = stats.entry_bytes * 100 / stats.log_bytes;
    assert!(live_pct >= 88, "{live_pct} % alive: {stats:?}");
    driver.store.validate();
}

#[test]
fn a_cleaned_store_keeps_its_used_segments_dense() {
    let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
    let log_bytes = driver.stats().log_bytes;
    let key_count = log_bytes * 75 / 100 / 1024;
    for at in 0..key_count * 8 {
        let id = if at < key_count { at } else { draw(at, key_count) };
        driver.set(id, draw(at * 3, 2000) as usize, Expiry::Never);
        while driver.session.wants_room() && driver.session.maintain(driver.now) {}
    }
    assert_eq!(driver.seen.refused, 0);
    let stats = driver.stats();
    let full_bytes = stats.space.live_bytes + stats.space.dead_bytes + stats.space.tail_bytes;
    let live_pct = stats.space.live_bytes * 100 / full_bytes;
    assert!(live_pct >= 75, "{live_pct} % of full segments is alive: {stats:?}");
    let tail_pct = stats.space.tail_bytes * 100 / full_bytes;
    assert!(tail_pct <= 2, "{tail_pct} % of full segments is tails: {stats:?}");
    driver.store.validate();
}

#[test]
fn long_entries_waste_at_most_half_of_their_segments() {
    // Shares of a segment, and how much of the segments that they fill may be tails.
    for (share_pct, tail_max_pct) in [(26, 23), (34, 33), (51, 50), (70, 31), (101, 50), (160, 21)]
    {
        let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
        let len_bytes = driver.store.limits().segment_bytes as usize * share_pct / 100 - 40;
        for id in 0..20 {
            driver.set(id, len_bytes, Expiry::Never);
        }
        let space = driver.stats().space;
        let full_bytes = space.live_bytes + space.tail_bytes;
        let tail_pct = space.long_tail_bytes * 100 / full_bytes;
        assert!(tail_pct > 0 && tail_pct <= tail_max_pct, "{share_pct} %: {tail_pct} % tails");
    }
}

#[test]
fn an_item_takes_at_most_32_bytes_of_log_beside_key_and_value() {
    let at = Expiry::At(UnixMillis(u64::MAX / 2));
    let flagged = Extras { client_flags: 9, ..PLAIN };
    let expiring = Extras { expiry: at, ..PLAIN };
    let both = Extras { client_flags: 9, expiry: at };
    // Key and value lengths, what else an item has, and the overhead of its entry.
    for (key_len, value_len, extras, overhead_bytes) in [
        (8, 8, PLAIN, 16),
        (16, 64, PLAIN, 16),
        (9, 0, PLAIN, 23),
        (8, 8, flagged, 24),
        (8, 8, expiring, 24),
        (16, 64, both, 32),
    ] {
        let mut driver = Driver::new(Mode::Clean, Eviction::Fifo);
        // A tree's nodes take more of so small a log than buckets do.
        let count = if index_kind() == IndexKind::Hash { 60_000 } else { 55_000 };
        for id in 0..count as u64 {
            let mut key = id.to_le_bytes().to_vec();
            key.resize(key_len, 1);
            driver.set_key(&key, value_len, extras);
        }
        let stats = driver.stats();
        assert_eq!((stats.items, driver.seen.refused), (count as u64, 0));
        let payload_bytes = count * (key_len + value_len);
        assert_eq!(stats.entry_bytes as usize, payload_bytes + count * overhead_bytes);
        // Measured on the segments, open one and tails included.
        let used_bytes = stats.log_used_bytes as usize - payload_bytes;
        let tail_bytes = 120_000 + if index_kind() == IndexKind::Hash { 0 } else { 64 << 10 };
        assert!(used_bytes <= count * 32 + tail_bytes, "{} bytes an item", used_bytes / count);
    }
}
