//! Tests of a cache that is written only several keys at a time: it makes room for them with every
//! index and every eviction policy.

use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use store::{
    Condition, Eviction, Expiry, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Set, Sink,
    Store, StoreConfig,
};

use crate::support;

fn open(index: IndexKind, eviction: Eviction) -> Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 16 << 20,
        index_bytes: 1 << 20,
        eviction,
        session_max: 2,
        ..support::config(index, Mode::Evict)
    })
    .unwrap()
}

#[derive(Default)]
struct Tally {
    stored: usize,
    refused: usize,
}

impl Sink<NoUpdate> for Tally {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Stored { .. } => self.stored += 1,
            _ => self.refused += 1,
        }
    }
}

/// Keys in order, as a loader writes them: each split of the tree leaves a node half full.
fn fill(store: &Store, keys_at_once: u64, value_bytes: fn(u64) -> usize) -> Tally {
    let mut session = store.session().unwrap();
    let (mut tally, value) = (Tally::default(), [b'v'; 100]);
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    for (round, first) in (0..300_000).step_by(keys_at_once as usize).enumerate() {
        let now = UnixMillis(1 + round as u64);
        let names: Vec<String> =
            (first..first + keys_at_once).map(|number| format!("k{number}")).collect();
        let hashes: Vec<KeyHash> =
            names.iter().map(|name| store.key_hasher().hash(name.as_bytes())).collect();
        let mut requests = Vec::new();
        let mut room = store::Room::default();
        for (index, (name, hash)) in names.iter().zip(&hashes).enumerate() {
            let value = &value[..value_bytes(first + index as u64)];
            room.add(store::entry_len_max_bytes(name.len(), value.len()) as u64);
            let op: Op<'_, NoUpdate> = Op::Set(Set { value, client_flags: 0, expiry, condition });
            requests.push(Request { key: name.as_bytes(), hash: *hash, op });
        }
        session.lock_keys(now, &hashes, room).execute(now, &requests, &mut tally);
        if round % 3 == 0 {
            session.maintain(now);
        }
    }
    drop(session);
    store.validate();
    tally
}

#[test]
fn a_cache_makes_room_for_writes_of_several_keys_and_for_what_finds_them() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        for eviction in [Eviction::Fifo, Eviction::Lru, Eviction::LruApprox, Eviction::S3Fifo] {
            for keys_at_once in [10, 1_000, 5_000] {
                let store = open(index, eviction);
                let tally = fill(&store, keys_at_once, |number| (number % 100) as usize);
                let what = format!("{index:?}, {eviction:?}, {keys_at_once} at once");
                assert_eq!(tally.refused, 0, "{what}: {} stored", tally.stored);
                assert!(store.stats().items > 30_000, "{what}");
            }
        }
    }
}

#[test]
fn keys_with_nothing_in_them_need_more_room_in_the_index_than_in_the_log() {
    for keys_at_once in [1_000, 10_000, 50_000] {
        let store = open(IndexKind::Tree, Eviction::S3Fifo);
        let tally = fill(&store, keys_at_once, |_| 0);
        assert_eq!(tally.refused, 0, "{keys_at_once} at once: {} stored", tally.stored);
    }
}

/// The size of a segment: the space that a session has open behind its first write.
fn segment_bytes(eviction: Eviction) -> usize {
    let store = open(IndexKind::Hash, eviction);
    let mut session = store.session().unwrap();
    let hash = store.key_hasher().hash(b"k");
    let op: Op<'_, NoUpdate> = Op::Set(Set {
        value: b"v",
        client_flags: 0,
        expiry: Expiry::Never,
        condition: Condition::Always,
    });
    session.execute(UnixMillis(1), &[Request { key: b"k", hash, op }], &mut Tally::default());
    store.stats().space.open_bytes as usize
}

/// Two sessions that write all keys at once, in a cache of few segments: without the promise of
/// kept segments, one would take by a plain write the room that the other has made. Values are
/// shorter and longer than a segment.
#[test]
fn room_that_was_made_is_not_taken_by_others() {
    let sizes = [(Eviction::S3Fifo, 3), (Eviction::S3Fifo, 7), (Eviction::S3Fifo, 18)];
    for (eviction, eighths) in sizes.into_iter().chain([(Eviction::Fifo, 6), (Eviction::Fifo, 12)])
    {
        let store = open(IndexKind::Hash, eviction);
        let value_bytes = segment_bytes(eviction) * eighths / 8;
        let refused: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|thread| {
                    let store = &store;
                    scope.spawn(move || write_at_once(store, thread, value_bytes))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(refused, 0, "{eviction:?}, {value_bytes} bytes");
        store.validate();
    }
}

/// Writes five long values under locks and one alone, in turns; returns how many were refused.
fn write_at_once(store: &Arc<Store>, thread: u64, value_bytes: usize) -> usize {
    let mut session = store.session().unwrap();
    let (mut tally, value) = (Tally::default(), vec![b'v'; value_bytes]);
    let op: Op<'_, NoUpdate> = Op::Set(Set {
        value: &value,
        client_flags: 0,
        expiry: Expiry::Never,
        condition: Condition::Always,
    });
    for round in 0..600 {
        let now = UnixMillis(1 + round);
        let names: Vec<String> = (0..5).map(|at| format!("{thread}:{at}:{round}")).collect();
        let requests: Vec<_> = names
            .iter()
            .map(|name| name.as_bytes())
            .map(|key| Request { key, hash: store.key_hasher().hash(key), op })
            .collect();
        let hashes: Vec<KeyHash> = requests.iter().map(|request| request.hash).collect();
        let len_bytes = store::entry_len_max_bytes(8, value_bytes) as u64;
        let room = store::Room::of([len_bytes; 5]);
        session.lock_keys(now, &hashes, room).execute(now, &requests, &mut tally);
        session.execute(now, &requests[..1], &mut tally);
    }
    tally.refused
}
