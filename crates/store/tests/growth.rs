//! Tests of the hash index growing and shrinking while sessions are in the middle of operations.

use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use store::{
    Condition, Eviction, Expiry, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Session,
    Set, Sink, Store, StoreConfig,
};

use crate::support::{self, set};

const NOW: UnixMillis = UnixMillis(1);
const SEGMENT_BYTES: u64 = 64 << 10;
/// Free segments below which a write to a cache of two sessions makes room by itself: the rest of
/// their reserve once half of it is lent.
const RESERVE_SEGMENTS: u64 = 2;
/// A value that has a segment for itself.
const LARGE_BYTES: usize = 60_000;
/// A byte that makes neither a locked nor a moved word if a reader takes it for a head's.
const LARGE_BYTE: u8 = 0x3f;

fn open(mode: Mode) -> Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 512,
        eviction: Eviction::LruApprox,
        session_max: 2,
        ..support::config(IndexKind::Hash, mode)
    })
    .unwrap()
}

/// Runs one request on key `id`.
fn run(
    store: &Store,
    session: &mut Session,
    id: u64,
    op: Op<'_, NoUpdate>,
    sink: &mut impl Sink<NoUpdate>,
) {
    let key = id.to_le_bytes();
    let hash = store.key_hasher().hash(&key);
    session.execute(NOW, &[Request { key: &key, hash, op }], sink);
}

/// A sink that ignores outcomes.
struct Ignore;

impl Sink<NoUpdate> for Ignore {
    fn outcome(&mut self, _index: usize, _outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {}
}

/// Checks that every hit has the value written.
#[derive(Default)]
struct LargeValues {
    hits: u64,
}

impl Sink<NoUpdate> for LargeValues {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.hits += 1;
            assert!(item.value.iter().all(|byte| *byte == LARGE_BYTE), "others wrote here");
        }
    }
}

/// Another session, active while the first one is in the middle of a batch.
struct Meanwhile<'a> {
    store: &'a Store,
    other: Session,
    next_id: u64,
    heads_before: u64,
}

impl Meanwhile<'_> {
    /// Writes large values until only the reserve is free.
    fn fill(&mut self) {
        let value = vec![LARGE_BYTE; LARGE_BYTES];
        while self.store.stats().space.free_bytes > RESERVE_SEGMENTS * SEGMENT_BYTES {
            run(self.store, &mut self.other, self.next_id, set(&value), &mut Ignore);
            self.next_id += 1;
        }
    }

    /// Empties the store; the index shrinks to its initial size.
    fn shrink(&mut self) {
        self.other.flush();
        while self.other.maintain(NOW) {}
        let heads = self.store.stats().index_heads;
        assert!(heads < self.heads_before / 64, "{heads} of {} heads", self.heads_before);
    }
}

impl Sink<NoUpdate> for Meanwhile<'_> {
    fn outcome(&mut self, index: usize, _outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match index {
            // The old heads wait for the end of the batch ...
            0 => self.shrink(),
            // ... in which making room for request 1 reuses them.
            1 => {
                self.other.unpark();
                while self.other.maintain(NOW) {}
                let lent_bytes = self.store.stats().index_bytes;
                assert!(lent_bytes <= 4 * SEGMENT_BYTES, "{lent_bytes} bytes of index");
            }
            _ => return,
        }
        self.fill();
        self.other.park();
    }
}

#[test]
fn a_batch_that_made_room_forgets_the_heads_it_has_seen_before() {
    const KEYS: u64 = 30_000;
    let store = open(Mode::Evict);
    let (mut session, mut other) = (store.session().unwrap(), store.session().unwrap());
    for id in 0..KEYS {
        run(&store, &mut other, id, set(&id.to_le_bytes()), &mut Ignore);
    }
    session.quiesce();
    while other.maintain(NOW) {
        session.quiesce();
    }
    let heads_before = store.stats().index_heads;
    let keys: Vec<[u8; 8]> = (0..30_u64).map(|id| (id * KEYS / 30).to_le_bytes()).collect();
    let large = vec![LARGE_BYTE; LARGE_BYTES];
    let request = |key, op| Request { key, hash: store.key_hasher().hash(key), op };
    let mut requests = vec![request(&b"absent"[..], Op::Get), request(b"large", set(&large))];
    requests.extend(keys.iter().map(|key| request(&key[..], set(b"in place"))));
    let mut sink = Meanwhile { store: &store, other, next_id: KEYS, heads_before };
    session.execute(NOW, &requests, &mut sink);
    let (end, mut found) = (sink.next_id, LargeValues::default());
    for id in KEYS..end {
        run(&store, &mut session, id, Op::Get, &mut found);
    }
    assert!(found.hits > 0);
    store.validate();
}

#[test]
fn an_index_grows_with_items_that_are_only_ever_written_several_at_a_time() {
    for keys_at_once in [2, 10, 1000] {
        let store = open(Mode::Clean);
        let mut session = store.session().unwrap();
        for first in (0..40_000_u64).step_by(keys_at_once) {
            let keys: Vec<[u8; 8]> =
                (first..first + keys_at_once as u64).map(u64::to_le_bytes).collect();
            let hashes: Vec<KeyHash> =
                keys.iter().map(|key| store.key_hasher().hash(key)).collect();
            let requests: Vec<Request<'_, NoUpdate>> = keys
                .iter()
                .zip(&hashes)
                .map(|(key, hash)| Request { key, hash: *hash, op: set(b"a value") })
                .collect();
            session.lock_keys(NOW, &hashes, store::Room::of([0])).execute(
                NOW,
                &requests,
                &mut Ignore,
            );
        }
        let stats = store.stats();
        assert_eq!(stats.items, 40_000);
        assert!(stats.items < 6 * stats.index_heads, "{} heads", stats.index_heads);
        drop(session);
        store.validate();
    }
}

#[test]
fn an_index_hears_of_items_that_only_housekeeping_removes() {
    let store = open(Mode::Clean);
    let mut session = store.session().unwrap();
    for id in 0..40_000_u64 {
        let (expiry, condition) = (Expiry::At(UnixMillis(10)), Condition::Always);
        let op = Op::Set(Set { value: b"a value", client_flags: 0, expiry, condition });
        run(&store, &mut session, id, op, &mut Ignore);
    }
    let heads_before = store.stats().index_heads;
    for now_ms in 11..20_000 {
        session.maintain(UnixMillis(now_ms));
    }
    let stats = store.stats();
    assert_eq!(stats.items, 0);
    assert!(stats.index_heads < heads_before / 64, "{} of {heads_before}", stats.index_heads);
    drop(session);
    store.validate();
}
