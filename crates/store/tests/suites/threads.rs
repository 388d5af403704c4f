//! Tests with several sessions at once on a small log: a reader always sees one whole value of the
//! key it asked for, whatever is evicted, cleaned, moved, expired or flushed meanwhile.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::UnixMillis;
use store::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Item, Mode, NoUpdate, Op, Outcome,
    PinnedValue, Pins, Request, Set, Sink, Store, StoreConfig, Update, Verdict,
};

use crate::support;

/// The index that this copy of the suite runs with.
fn index_kind() -> IndexKind {
    support::index_kind(module_path!())
}

const KEYS: u64 = 400;
const KEYS_BESIDE: u64 = 30_000;

fn open(mode: Mode, lossy_index: bool, sessions: usize, memory_bytes: u64) -> Arc<Store> {
    Store::open(config(mode, lossy_index, sessions, memory_bytes)).unwrap()
}

fn config(mode: Mode, lossy_index: bool, session_max: usize, memory_bytes: u64) -> StoreConfig {
    StoreConfig {
        memory_bytes,
        index_bytes: 1,
        eviction: Eviction::LruApprox,
        lossy_index,
        session_max,
        hash_seed: 7,
        batch: 16,
        huge_pages: HugePages::Auto,
        ..support::config(index_kind(), mode)
    }
}

/// A value that tells its key and writer, and whose every word must agree.
fn value_of(key: u64, nonce: u64, len_words: usize) -> Vec<u8> {
    (0..len_words.max(1)).flat_map(|_| (key << 32 | nonce).to_le_bytes()).collect()
}

fn check_whole(key: &[u8], value: &[u8]) {
    let words: Vec<u64> =
        value.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a torn value");
    assert_eq!((words[0] >> 32).to_le_bytes(), key, "another key's value");
}

#[derive(Default)]
struct Checker {
    hits: u64,
    pins: Vec<(Vec<u8>, PinnedValue)>,
}

impl Sink<NoUpdate> for Checker {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, pins: Pins<'_>) {
        let old = match outcome {
            Outcome::Hit(item) => {
                self.hits += 1;
                if self.hits.is_multiple_of(64) {
                    self.pins.push((item.key.to_vec(), pins.pin(&item)));
                }
                Some(item)
            }
            Outcome::Stored { old, .. } | Outcome::Deleted { old } => old,
            _ => None,
        };
        if let Some(item) = old {
            check_whole(item.key, item.value);
        }
    }
}

/// A small deterministic stream of numbers for each thread.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

fn churn(store: &Store, seed: u64, rounds: u64) {
    let mut session = store.session().unwrap();
    let mut checker = Checker::default();
    let mut draw = Draw(seed);
    for round in 0..rounds {
        let now = UnixMillis(1000 + round);
        // Few keys, so that threads meet, beside more than a cache holds.
        let end = |at: u64| if at.is_multiple_of(2) { KEYS } else { KEYS_BESIDE };
        let ids: Vec<u64> = (0..24).map(|at| draw.below(end(at))).collect();
        let keys: Vec<[u8; 8]> = ids.iter().map(|id| id.to_le_bytes()).collect();
        let lens = ids.iter().map(|_| match draw.below(60) {
            0 => 6000,
            n => n as usize * 6,
        });
        let values: Vec<Vec<u8>> =
            ids.iter().zip(lens).map(|(id, len)| value_of(*id, round + seed, len)).collect();
        let requests: Vec<Request<'_, NoUpdate>> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| {
                let expiry = match draw.below(8) {
                    0 => Expiry::At(UnixMillis(now.0 + 20)),
                    _ => Expiry::Never,
                };
                let set = Set { value, client_flags: 0, expiry, condition: Condition::Always };
                let op = match draw.below(10) {
                    0..6 => Op::Get,
                    6..9 => Op::Set(set),
                    _ => Op::Delete,
                };
                Request { key, hash: store.key_hasher().hash(key), op }
            })
            .collect();
        session.execute(now, &requests, &mut checker);
        for (key, pinned) in checker.pins.drain(..checker.pins.len().saturating_sub(4)) {
            check_whole(&key, &pinned);
        }
        session.maintain(now);
        if round % 64 == 63 {
            session.scan(now, 0, 100, |item| check_whole(item.key, item.value)).unwrap();
            session.park();
            session.unpark();
        }
        if round % 1000 == 999 {
            session.flush();
        }
    }
    for (key, pinned) in checker.pins.drain(..) {
        check_whole(&key, &pinned);
    }
}

fn check_churn(config: StoreConfig) {
    let mode = config.mode;
    let store = Store::open(config).unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let store = &store;
            scope.spawn(move || churn(store, seed, 1500));
        }
    });
    store.validate();
    let stats = store.stats();
    // Slow threads flush and expire so much that no live item has to be evicted: then entries are
    // copied. A lossy index has so few items that whole segments die.
    let emptied = stats.evicted_by_log + stats.reinserted + stats.dead_space_copied_bytes;
    let made_room = emptied + stats.evicted_by_index;
    assert!(mode == Mode::Clean || made_room > 0, "room was made: {stats:?}");
    assert!(mode == Mode::Evict || stats.evicted_by_log + stats.evicted_by_index == 0);
}

#[test]
fn a_cache_under_churn_shows_only_whole_values() {
    check_churn(config(Mode::Evict, false, 4, 4 << 20));
}

#[test]
fn a_cache_of_two_queues_under_churn_shows_only_whole_values() {
    let eviction = Eviction::S3Fifo;
    check_churn(StoreConfig { eviction, ..config(Mode::Evict, false, 4, 4 << 20) });
}

#[test]
fn a_lossy_cache_under_churn_shows_only_whole_values() {
    check_churn(config(Mode::Evict, true, 4, 4 << 20));
}

#[test]
fn a_store_under_churn_shows_only_whole_values() {
    check_churn(config(Mode::Clean, false, 4, 8 << 20));
}

/// Adds one to a decimal number.
#[derive(Clone, Copy)]
struct Increment;

impl Update for Increment {
    type Refusal = NoUpdate;

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<NoUpdate> {
        let number = old.map_or(0, |item| u64::from_le_bytes(item.value.try_into().unwrap()));
        value.extend_from_slice(&(number + 1).to_le_bytes());
        Verdict::Write { client_flags: 0, expires_at: None }
    }
}

struct Ignore;

impl<R> Sink<R> for Ignore {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, R>, _pins: Pins<'_>) {
        assert!(!matches!(outcome, Outcome::OutOfMemory));
    }
}

#[test]
fn concurrent_increments_are_all_counted() {
    let store = open(Mode::Clean, false, 4, 4 << 20);
    let key = b"counter";
    let hash = store.key_hasher().hash(key);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = store.session().unwrap();
                let request = Request { key: &key[..], hash, op: Op::Update(Increment) };
                for round in 0..5000 {
                    session.execute(UnixMillis(round), &[request; 4], &mut Ignore);
                }
            });
        }
    });
    struct Total(u64);
    impl Sink<NoUpdate> for Total {
        fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
            let Outcome::Hit(item) = outcome else { panic!("the counter exists") };
            self.0 = u64::from_le_bytes(item.value.try_into().unwrap());
        }
    }
    let mut total = Total(0);
    let request: Request<'_, NoUpdate> = Request { key: &key[..], hash, op: Op::Get };
    store.session().unwrap().execute(UnixMillis(0), &[request], &mut total);
    assert_eq!(total.0, 4 * 4 * 5000);
    store.validate();
}

#[test]
fn keys_written_together_are_read_together() {
    let store = open(Mode::Clean, false, 3, 4 << 20);
    let keys: Vec<[u8; 8]> = (0..5_u64).map(u64::to_le_bytes).collect();
    let hashes: Vec<_> = keys.iter().map(|key| store.key_hasher().hash(key)).collect();
    let done = AtomicBool::new(false);
    let torn = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (store, keys, hashes, done) = (&store, &keys, &hashes, &done);
            scope.spawn(move || {
                let mut session = store.session().unwrap();
                let mut round = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let value = (round * 2 + writer).to_le_bytes();
                    let set = Set {
                        value: &value,
                        client_flags: 0,
                        expiry: Expiry::Never,
                        condition: Condition::Always,
                    };
                    let op: Op<'_, NoUpdate> = Op::Set(set);
                    let requests: Vec<_> = keys
                        .iter()
                        .zip(hashes)
                        .map(|(key, hash)| Request { key, hash: *hash, op })
                        .collect();
                    let mut locked =
                        session.lock_keys(UnixMillis(0), hashes, store::Room::of([1024]));
                    locked.execute(UnixMillis(0), &requests, &mut Ignore);
                }
            });
        }
        scope.spawn(|| {
            #[derive(Default)]
            struct Values(Vec<Option<Vec<u8>>>);
            impl Sink<NoUpdate> for Values {
                fn outcome(
                    &mut self,
                    _index: usize,
                    outcome: Outcome<'_, NoUpdate>,
                    _pins: Pins<'_>,
                ) {
                    self.0.push(match outcome {
                        Outcome::Hit(item) => Some(item.value.to_vec()),
                        _ => None,
                    });
                }
            }
            let mut session = store.session().unwrap();
            let asked: Vec<_> =
                hashes.iter().zip(&keys).map(|(hash, key)| (*hash, &key[..])).collect();
            for _ in 0..5000 {
                let mut values = Values::default();
                session.read_snapshot(UnixMillis(0), &asked, &mut values);
                let is_torn = values.0.iter().any(|value| *value != values.0[0]);
                torn.fetch_add(u64::from(is_torn), Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    assert_eq!(torn.load(Ordering::Relaxed), 0);
}

/// Reads one key's item: its version, and its value as a number.
#[derive(Default)]
struct Pair(Option<(u64, u64)>);

impl Sink<NoUpdate> for Pair {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.0 = Some((item.version, u64::from_le_bytes(item.value.try_into().unwrap())));
        }
    }
}

/// K12: eight bytes are replaced in place. A version that a reader sees never goes with a value
/// older than it: a CAS with it would overwrite a write that its client has not seen.
#[test]
fn a_version_never_goes_with_an_older_value() {
    const WRITES: u64 = 20_000;
    let store = open(Mode::Clean, false, 2, 4 << 20);
    let (key, hash) = (b"8 bytes!", store.key_hasher().hash(b"8 bytes!"));
    let set = |session: &mut store::Session, value: u64| {
        let bytes = value.to_le_bytes();
        let set = Set {
            value: &bytes,
            client_flags: 0,
            expiry: Expiry::Never,
            condition: Condition::Always,
        };
        let request = Request { key, hash, op: Op::<NoUpdate>::Set(set) };
        session.execute(UnixMillis(1), &[request], &mut Pair::default());
    };
    let read = |session: &mut store::Session| {
        let mut pair = Pair::default();
        session.execute(
            UnixMillis(1),
            &[Request { key, hash, op: Op::<NoUpdate>::Get }],
            &mut pair,
        );
        pair.0.unwrap()
    };
    let mut reader = store.session().unwrap();
    let mut writer = store.session().unwrap();
    set(&mut writer, 0);
    let (version_first, _) = read(&mut reader);
    let used_before = store.stats().log_used_bytes;
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=WRITES).for_each(|value| set(&mut writer, value)));
        let mut last = (0, 0);
        while last.1 < WRITES {
            let (version, value) = read(&mut reader);
            assert!(value >= version - version_first, "version {version} with value {value}");
            assert!((version, value) >= last && value >= last.1, "nothing goes back in time");
            last = (version, value);
        }
    });
    assert_eq!(read(&mut reader), (version_first + WRITES, WRITES));
    assert_eq!(store.stats().log_used_bytes, used_before, "nothing was appended");
}

/// Writes `ids`, or deletes them, in batches.
fn write_all(
    store: &Store,
    session: &mut store::Session,
    ids: impl Iterator<Item = u64>,
    is_delete: bool,
) {
    let ids: Vec<u64> = ids.collect();
    for some in ids.chunks(20) {
        let keys: Vec<[u8; 8]> = some.iter().map(|id| id.to_le_bytes()).collect();
        let values: Vec<Vec<u8>> = some.iter().map(|id| value_of(*id, 1, 2)).collect();
        let requests: Vec<Request<'_, NoUpdate>> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| {
                let (expiry, condition) = (Expiry::Never, Condition::Always);
                let set = Set { value, client_flags: 0, expiry, condition };
                let op = if is_delete { Op::Delete } else { Op::Set(set) };
                Request { key, hash: store.key_hasher().hash(key), op }
            })
            .collect();
        session.execute(UnixMillis(1), &requests, &mut Ignore);
    }
}

/// Two writers make the index grow to thousands of heads and shrink again, over and over; the keys
/// below `KEYS` stay, and a reader looks them up in every possible way (K9, K11).
#[test]
fn what_stays_is_always_found_while_the_index_grows_and_shrinks() {
    let store = open(Mode::Clean, false, 3, 16 << 20);
    write_all(&store, &mut store.session().unwrap(), 0..KEYS, false);
    let heads_at_first = store.stats().index_heads;
    let (done, ended) = (AtomicBool::new(false), AtomicU64::new(0));
    let most_heads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (store, done, ended, most_heads) = (&store, &done, &ended, &most_heads);
            scope.spawn(move || {
                let mut session = store.session().unwrap();
                let ids = |round: u64| {
                    let first = KEYS + writer * 1_000_000 + round * 10_000;
                    first..first + 6_000
                };
                for round in 0..6 {
                    write_all(store, &mut session, ids(round), false);
                    most_heads.fetch_max(store.stats().index_heads, Ordering::Relaxed);
                    write_all(store, &mut session, ids(round), true);
                }
                if ended.fetch_add(1, Ordering::Relaxed) == 1 {
                    done.store(true, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            #[derive(Default)]
            struct Count(u64);
            impl Sink<NoUpdate> for Count {
                fn outcome(
                    &mut self,
                    _index: usize,
                    outcome: Outcome<'_, NoUpdate>,
                    _pins: Pins<'_>,
                ) {
                    let Outcome::Hit(item) = outcome else { panic!("a key that stays is missed") };
                    check_whole(item.key, item.value);
                    self.0 += 1;
                }
            }
            let mut session = store.session().unwrap();
            let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_le_bytes).collect();
            let hash = |key: &[u8; 8]| store.key_hasher().hash(key);
            let mut draw = Draw(5);
            let mut rounds = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let mut count = Count::default();
                let op: Op<'_, NoUpdate> = Op::Get;
                let requests: Vec<_> =
                    keys.iter().map(|key| Request { key, hash: hash(key), op }).collect();
                session.execute(UnixMillis(1), &requests, &mut count);
                let some: Vec<_> = (0..5).map(|_| &keys[draw.below(KEYS) as usize]).collect();
                let asked: Vec<_> = some.iter().map(|key| (hash(key), &key[..])).collect();
                session.read_snapshot(UnixMillis(1), &asked, &mut count);
                let hashes: Vec<_> = some.iter().map(|key| hash(key)).collect();
                let gets: Vec<_> =
                    some.iter().map(|key| Request { key: &key[..], hash: hash(key), op }).collect();
                let mut locked = session.lock_keys(UnixMillis(1), &hashes, store::Room::of([0]));
                locked.execute(UnixMillis(1), &gets, &mut count);
                drop(locked);
                assert_eq!(count.0, KEYS + 10);
                if rounds.is_multiple_of(8) {
                    let (mut seen, mut cursor) = (std::collections::BTreeSet::new(), 0);
                    loop {
                        cursor = session
                            .scan(UnixMillis(1), cursor, 50, |item| {
                                let id = u64::from_le_bytes(item.key.try_into().unwrap());
                                seen.extend((id < KEYS).then_some(id));
                            })
                            .unwrap();
                        if cursor == 0 {
                            break;
                        }
                    }
                    assert_eq!(
                        seen.len() as u64,
                        KEYS,
                        "K9: SCAN returns what is there throughout"
                    );
                }
                session.maintain(UnixMillis(rounds));
                rounds += 1;
            }
        });
    });
    // With a tree the number of stripes is fixed; its nodes come and go.
    let grows = index_kind() == IndexKind::Hash;
    let most_heads = most_heads.load(Ordering::Relaxed);
    assert!(!grows || most_heads > 4 * heads_at_first, "it grew");
    store.validate();
    let mut session = store.session().unwrap();
    while session.maintain(UnixMillis(2)) {}
    drop(session);
    let stats = store.stats();
    assert!(stats.index_heads <= 2 * heads_at_first, "it shrank: {stats:?}");
    store.validate();
}
