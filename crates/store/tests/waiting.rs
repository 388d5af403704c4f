//! Tests that a write which finds no room waits for the current work of other sessions, never for
//! work that they might do later.

use std::sync::atomic::{AtomicU64, Ordering};

use base::UnixMillis;
use store::{
    Eviction, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Session, Sink, Store,
    StoreConfig,
};

use crate::support::{self, set};

const NOW: UnixMillis = UnixMillis(1000);
/// More batches of reads than one write should have to wait for.
const READS_MAX: u64 = 5_000_000;
/// The requests of a session that writes nothing, given the id of an item.
type Read = fn(&Store, &mut Session, u64);
const FINISHED: u64 = u64::MAX;

#[derive(Default)]
struct Refused(u64);

impl Sink<NoUpdate> for Refused {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0 += u64::from(matches!(outcome, Outcome::OutOfMemory));
    }
}

fn is_refused(store: &Store, session: &mut Session, id: u64, op: Op<'_, NoUpdate>) -> bool {
    let key = id.to_le_bytes();
    let mut refused = Refused::default();
    let request = Request { key: &key, hash: store.key_hasher().hash(&key), op };
    session.execute(NOW, &[request], &mut refused);
    refused.0 > 0
}

/// One session rewrites `rewritten` of its items in a store that is nearly full, then only calls
/// `read`; another fills the store up. Returns whether the other was told meanwhile that the store
/// is full.
fn is_told_while_another(index: IndexKind, rewritten: u64, read: Read) -> bool {
    let store = Store::open(StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 1 << 20,
        session_max: 2,
        ..support::config(index, Mode::Clean)
    });
    let store = store.unwrap();
    let (mut reader, mut writer) = (store.session().unwrap(), store.session().unwrap());
    writer.park();
    let value = [7; 100];
    let fill = 36_000;
    assert!((0..fill).all(|id| !is_refused(&store, &mut reader, id, set(&value))));
    for at in 0..rewritten {
        assert!(!is_refused(&store, &mut reader, at * 7919 % fill, set(&value)));
    }
    // Writes of the second session so far.
    let written = AtomicU64::new(0);
    let reads = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut session = reader;
            let (mut reads, mut seen) = (0, 0);
            while reads < READS_MAX && seen != FINISHED {
                read(&store, &mut session, reads % fill);
                let before = std::mem::replace(&mut seen, written.load(Ordering::Acquire));
                reads = if seen == before { reads + 1 } else { 0 };
                if reads % 1000 == 999 {
                    std::thread::yield_now();
                }
            }
            reads
        });
        writer.unpark();
        let mut id = fill;
        while !is_refused(&store, &mut writer, id, set(&value)) {
            id += 1;
            written.store(id, Ordering::Release);
        }
        written.store(FINISHED, Ordering::Release);
        reading.join().unwrap()
    });
    store.validate();
    reads < READS_MAX
}

#[track_caller]
fn check(index: IndexKind, read: Read) {
    for rewritten in (30_000..31_000).step_by(130) {
        let is_told = is_told_while_another(index, rewritten, read);
        assert!(is_told, "{index:?}, after {rewritten} rewrites");
    }
}

#[test]
fn a_write_to_a_full_store_is_refused_though_another_session_only_reads() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        check(index, |store, session, id| {
            is_refused(store, session, id, Op::Get);
        });
    }
}

#[test]
fn a_write_to_a_full_store_is_refused_though_another_session_only_scans() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        check(index, |_, session, _| {
            session.scan(NOW, 0, 1, |_| {}).unwrap();
        });
    }
}

#[test]
fn a_write_to_a_full_store_is_refused_though_another_session_does_nothing() {
    check(IndexKind::Hash, |_, session, _| session.quiesce());
}

/// Threads that write large values beside small ones into a cache of few segments.
const WRITERS: u64 = 4;
const WRITES_EACH: u64 = 4_000;

/// The number of writes that a cache refused, although it may drop any item.
fn refusals_of_a_cache(index: IndexKind, seed: u64) -> u64 {
    let store = Store::open(StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 1 << 20,
        eviction: Eviction::S3Fifo,
        session_max: WRITERS as usize,
        hash_seed: 5,
        ..support::config(index, Mode::Evict)
    });
    let store = store.unwrap();
    let write = |writer: u64| {
        let mut session = store.session().unwrap();
        let large = vec![1; 470_000];
        let mut refused = 0;
        for count in 0..WRITES_EACH {
            let draw = (seed + writer * WRITES_EACH + count).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let len_bytes = match draw >> 58 {
                0..3 => 70_000 + (draw >> 20) as usize % 400_000,
                3..6 => 10_000 + (draw >> 20) as usize % 50_000,
                _ => (draw >> 20) as usize % 3000,
            };
            let id = (draw >> 40) % 500;
            refused += u64::from(is_refused(&store, &mut session, id, set(&large[..len_bytes])));
        }
        refused
    };
    let refused = std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    store.validate();
    refused
}

#[test]
fn a_cache_refuses_no_large_value_while_others_make_room_too() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        for seed in 0..4 {
            assert_eq!(refusals_of_a_cache(index, seed * 1_000_003), 0, "{index:?}, {seed}");
        }
    }
}

/// A slow sink, so that entries that die meanwhile have a long grace period.
#[derive(Default)]
struct Slow {
    misses: u64,
}

impl Sink<NoUpdate> for Slow {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.misses += u64::from(matches!(outcome, Outcome::Miss));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// One session rewrites a cache again and again, in values of `len_bytes`; the items that another
/// one reads are never dropped while all overwritten entries are on their way to be free.
fn check_cache_waits(index: IndexKind, len_bytes: usize) {
    let store = Store::open(StoreConfig {
        memory_bytes: 16 << 20,
        index_bytes: 1 << 20,
        session_max: 2,
        item_max_bytes: 4 << 20,
        ..support::config(index, Mode::Evict)
    });
    let store = store.unwrap();
    let (mut reader, mut writer) = (store.session().unwrap(), store.session().unwrap());
    reader.park();
    let value = vec![7; len_bytes];
    assert!(!is_refused(&store, &mut writer, 0, set(&value)));
    let is_over = AtomicU64::new(0);
    let misses = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            reader.unpark();
            let mut slow = Slow::default();
            let key = 0_u64.to_le_bytes();
            let hash = store.key_hasher().hash(&key);
            while is_over.load(Ordering::Acquire) == 0 {
                let get = Request::<NoUpdate> { key: &key, hash, op: Op::Get };
                reader.execute(NOW, &[get], &mut slow);
            }
            reader.park();
            slow.misses
        });
        // Some ten times the memory.
        for _ in 0..(160 << 20) / len_bytes {
            assert!(!is_refused(&store, &mut writer, 1, set(&value)));
        }
        is_over.store(1, Ordering::Release);
        reading.join().unwrap()
    });
    assert_eq!(misses, 0, "{index:?}, {len_bytes} bytes");
    assert_eq!(store.stats().evicted_by_log, 0, "{index:?}, {len_bytes} bytes");
}

#[test]
fn a_cache_gives_nothing_up_for_dead_space_that_is_on_its_way() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        check_cache_waits(index, 2 << 20);
        check_cache_waits(index, 8 << 10);
    }
}
