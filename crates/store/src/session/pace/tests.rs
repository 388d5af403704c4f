//! Tests that one call does a bounded step of housekeeping, by counts: whichever session calls, and
//! however seldom.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base::UnixMillis;

use super::ENTRIES_MAX;
use crate::session::Work;
use crate::session::retired::FREED_MAX;
use crate::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request,
    Session, Set, Sink, Store, StoreConfig,
};

const BATCH: usize = 32;
/// Entries of a victim whose buckets are prefetched together: the most by which a step may exceed
/// its bound.
const GROUP: u64 = 16;

fn open(mode: Mode, eviction: Eviction, session_max: usize, index_bytes: u64) -> Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 12 << 20,
        index_bytes,
        mode,
        eviction,
        index: IndexKind::Hash,
        lossy_index: false,
        session_max,
        item_max_bytes: 1 << 20,
        hash_seed: 3,
        batch: BATCH,
        huge_pages: HugePages::Off,
    })
    .unwrap()
}

/// Checks that no request is refused.
struct Served;

impl Sink<NoUpdate> for Served {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        assert!(!matches!(outcome, Outcome::OutOfMemory), "there is room to be made");
    }
}

fn set(value: &[u8]) -> Op<'_, NoUpdate> {
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    Op::Set(Set { value, client_flags: 0, expiry, condition })
}

/// Makes one call with a request for each id; returns the housekeeping that it did, and the number
/// of blocks of the index that it freed.
fn call<'v>(
    store: &Store,
    session: &mut Session,
    ids: impl Iterator<Item = u64>,
    op: impl Fn(u64) -> Op<'v, NoUpdate>,
) -> (Work, u64) {
    let keys: Vec<(u64, [u8; 8])> = ids.map(|id| (id, id.to_le_bytes())).collect();
    let request = |(id, key): &'_ (u64, [u8; 8])| (*key, op(*id));
    let owned: Vec<_> = keys.iter().map(request).collect();
    let requests: Vec<Request<'_, NoUpdate>> = owned
        .iter()
        .map(|(key, op)| Request { key, hash: store.key_hasher().hash(key), op: *op })
        .collect();
    let (before, freed_before) = (session.local.work, session.local.retired.freed_count());
    session.execute(UnixMillis(1), &requests, &mut Served);
    let after = session.local.work;
    let work = Work {
        seen_entries: after.seen_entries - before.seen_entries,
        seen_bytes: after.seen_bytes - before.seen_bytes,
        segments_in_writes: after.segments_in_writes - before.segments_in_writes,
    };
    (work, session.local.retired.freed_count() - freed_before)
}

/// A pseudo-random number below `end`.
fn shuffled(round: u64, end: u64) -> u64 {
    (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % end
}

/// No caller calls `maintain`, ever.
#[track_caller]
fn check(mode: Mode, eviction: Eviction, key_count: u64, value_lens: &[usize]) {
    let store = open(mode, eviction, 1, 2 << 20);
    let mut session = store.session().unwrap();
    let value = vec![7_u8; 64 << 10];
    let (mut most, mut freed_most) = (Work::default(), 0);
    for round in 0..12_000_u64 {
        let ids = (0..BATCH as u64).map(|at| match round * BATCH as u64 + at {
            place if place < key_count => place,
            place => shuffled(place, key_count),
        });
        let (work, freed_count) = call(&store, &mut session, ids, |id| match round % 4 {
            3 if mode == Mode::Evict => Op::Get,
            _ => set(&value[..value_lens[(id + round) as usize % value_lens.len()]]),
        });
        most.seen_entries = most.seen_entries.max(work.seen_entries);
        freed_most = freed_most.max(freed_count);
        most.segments_in_writes += work.segments_in_writes;
    }
    let stats = store.stats();
    let made_room = stats.evicted_by_log + stats.cleaned_bytes + stats.dead_space_copied_bytes;
    assert!(made_room > 1000, "the log was full: {stats:?}");
    let what = format!("{mode:?} {eviction:?} {value_lens:?}");
    assert_eq!(most.segments_in_writes, 0, "{what}: no write has emptied a segment");
    assert!(most.seen_entries <= ENTRIES_MAX as u64 + GROUP, "{most:?}");
    let retired_max = ENTRIES_MAX as u64 + GROUP + BATCH as u64;
    assert!(freed_most <= FREED_MAX as u64 + retired_max, "{freed_most}");
    drop(session);
    store.validate();
}

#[test]
#[cfg_attr(miri, ignore = "fills a log, which takes hours under Miri")]
fn a_cache_makes_room_in_step_with_its_writes_whatever_survives() {
    for eviction in [Eviction::Fifo, Eviction::Lru, Eviction::LruApprox, Eviction::S3Fifo] {
        check(Mode::Evict, eviction, 400_000, &[9]);
        check(Mode::Evict, eviction, 60_000, &[100, 300, 30]);
        check(Mode::Evict, eviction, 20_000, &[100, 900, 9]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "fills a log, which takes hours under Miri")]
fn a_store_is_cleaned_in_step_with_its_writes() {
    // 48 bytes an entry: three fifths of the log, and four fifths.
    check(Mode::Clean, Eviction::Fifo, 130_000, &[24]);
    check(Mode::Clean, Eviction::Fifo, 160_000, &[24]);
}

#[test]
#[cfg_attr(miri, ignore = "fills a log, which takes hours under Miri")]
fn lines_that_wait_for_a_reader_are_freed_some_at_a_time_when_it_has_gone() {
    const KEYS: u64 = 120_000;
    let store = open(Mode::Clean, Eviction::Fifo, 2, 64 << 10);
    let (mut session, mut reader) = (store.session().unwrap(), store.session().unwrap());
    let freed_max = (FREED_MAX + 4 * BATCH) as u64;
    // The reader does nothing while the index grows, which leaves old heads and lines behind.
    for first in (0..KEYS).step_by(BATCH) {
        let ids = first..first + BATCH as u64;
        let (_, freed_count) = call(&store, &mut session, ids, |_| set(b"too long for a word"));
        assert!(freed_count <= freed_max, "{freed_count}");
    }
    let waiting = session.local.retired.waiting_count();
    assert!(waiting > 10 * FREED_MAX, "{waiting} blocks wait");
    let mut calls = 0;
    while session.local.retired.waiting_count() > FREED_MAX {
        reader.quiesce();
        // Keys that come and go, so that the session does housekeeping; no caller calls `maintain`.
        let op = |_| if calls % 2 == 0 { Op::Delete } else { set(b"too long for a word") };
        let (_, freed_count) = call(&store, &mut session, 0..BATCH as u64, op);
        assert!(freed_count <= freed_max, "{freed_count}");
        calls += 1;
        assert!(calls <= waiting, "{} blocks are left", session.local.retired.waiting_count());
    }
    drop((session, reader));
    store.validate();
}
