//! Tests of writes of several keys in a store that is full, or nearly: all of their entries are
//! written, or none is.

use base::{KeyHash, UnixMillis};
use store::{
    Eviction, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Room, Session, Sink, Store,
    StoreConfig,
};

use crate::support::{self, set};

const NOW: UnixMillis = UnixMillis(1);
/// Longer than two segments of the smallest kind.
const VALUE_MAX_BYTES: usize = 200_000;
const KEYS: u64 = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    /// Short, long in a segment, and longer than one, about as often.
    fn len_bytes(&mut self) -> usize {
        let bound = [300, 16_000, 66_000, VALUE_MAX_BYTES as u64][self.below(4) as usize];
        self.below(bound) as usize
    }
}

#[derive(Default)]
struct Tally {
    stored: usize,
    refused: usize,
}

impl Sink<NoUpdate> for Tally {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, NoUpdate>, _: Pins<'_>) {
        match outcome {
            Outcome::Stored { .. } => self.stored += 1,
            Outcome::OutOfMemory => self.refused += 1,
            Outcome::Deleted { .. } | Outcome::Miss => {}
            other => panic!("{other:?}"),
        }
    }
}

fn open(mode: Mode, eviction: Eviction) -> std::sync::Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 1 << 20,
        eviction,
        session_max: 2,
        ..support::config(IndexKind::Hash, mode)
    })
    .expect("the sizes are valid")
}

fn write_all(session: &mut Session, store: &Store, pairs: &[(String, Vec<u8>)]) -> Tally {
    let hash = |key: &String| store.key_hasher().hash(key.as_bytes());
    let hashes: Vec<KeyHash> = pairs.iter().map(|(key, _)| hash(key)).collect();
    let requests: Vec<Request<'_, NoUpdate>> = pairs
        .iter()
        .map(|(key, value)| Request { key: key.as_bytes(), hash: hash(key), op: set(value) })
        .collect();
    let len =
        |(key, value): &(String, _)| store::entry_len_max_bytes(key.len(), Vec::len(value)) as u64;
    let mut tally = Tally::default();
    let mut locked = session.lock_keys(NOW, &hashes, Room::of(pairs.iter().map(len)));
    locked.execute(NOW, &requests, &mut tally);
    tally
}

/// Writes, deletes and writes of several keys in turn; returns how many of the last kind were
/// stored, and how many were refused.
fn torture(store: &std::sync::Arc<Store>, seed: u64, rounds: u64) -> (usize, usize) {
    let mut session = store.session().expect("a place is free");
    let mut random = Random(seed);
    let (mut all, mut none) = (0, 0);
    for round in 0..rounds {
        let keys = 2 + random.below(7);
        let pairs: Vec<(String, Vec<u8>)> = (0..keys)
            .map(|_| {
                let value = vec![b'v'; random.len_bytes()];
                (format!("key:{}", random.below(KEYS)), value)
            })
            .collect();
        let lens: Vec<usize> = pairs.iter().map(|(_, value)| value.len()).collect();
        let tally = write_all(&mut session, store, &pairs);
        let is_whole = tally.stored == 0 || tally.refused == 0;
        assert!(
            is_whole,
            "round {round}: {} stored, {} refused of {lens:?}",
            tally.stored, tally.refused
        );
        all += usize::from(tally.refused == 0);
        none += usize::from(tally.stored == 0);
        // Now and then a plain write or delete, so that room comes and goes.
        let key = format!("key:{}", random.below(KEYS));
        let value = vec![b'w'; random.len_bytes()];
        let op = if random.below(3) == 0 { set(&value) } else { Op::Delete };
        let hash = store.key_hasher().hash(key.as_bytes());
        let request = Request { key: key.as_bytes(), hash, op };
        session.execute(NOW, &[request], &mut Tally::default());
        if random.below(4) == 0 {
            session.maintain(NOW);
        }
    }
    (all, none)
}

#[test]
fn a_write_of_several_keys_in_a_full_store_is_whole_or_not_there() {
    for seed in 0..8 {
        let store = open(Mode::Clean, Eviction::Fifo);
        let (all, none) = torture(&store, seed, 600);
        assert!(all > 30 && none > 30, "seed {seed}: {all} whole, {none} refused");
        store.validate();
    }
}

#[test]
fn a_write_of_several_keys_is_whole_or_not_there_beside_other_writers() {
    for (mode, eviction) in [
        (Mode::Clean, Eviction::Fifo),
        (Mode::Evict, Eviction::Fifo),
        (Mode::Evict, Eviction::S3Fifo),
    ] {
        let store = open(mode, eviction);
        let threads = if cfg!(miri) { 1 } else { 2 };
        std::thread::scope(|scope| {
            for seed in 0..threads {
                let store = &store;
                scope.spawn(move || torture(store, 100 + seed, 1_500));
            }
        });
        store.validate();
    }
}
