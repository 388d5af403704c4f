//! Tests of a store whose memory is divided between NUMA nodes: the answers are the same, wherever
//! the bytes lie. Both regions are on the machine's first node, so that any machine can run the
//! tests.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use store::{
    Condition, Expiry, IndexKind, Mode, NoUpdate, NodeShare, Op, Outcome, Pins, Placement, Request,
    Session, Set, Sink, Store, StoreConfig, Tended, Tuning,
};

use crate::support;

/// `None`, with a message, if the kernel does not let processes place memory.
fn open(index: IndexKind, mode: Mode) -> Option<Arc<Store>> {
    let config = StoreConfig {
        memory_bytes: 32 << 20,
        index_bytes: 4 << 20,
        session_max: 2,
        hash_seed: 7,
        ..support::config(index, mode)
    };
    let nodes = [NodeShare { node_id: 0, weight: 1 }; 2];
    let store = Store::open_on_nodes(config, Tuning::default(), &nodes).unwrap();
    if let Placement::Refused { reason } = store.placement() {
        eprintln!("skipped: memory cannot be bound to a node: {reason}");
        return None;
    }
    assert_eq!(*store.placement(), Placement::Bound { node_count: 2 });
    Some(store)
}

#[derive(Default)]
struct Tally {
    stored: usize,
    found: usize,
}

impl Sink<NoUpdate> for Tally {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Stored { .. } => self.stored += 1,
            Outcome::Hit(item) => {
                let id = &item.value[..8];
                assert!(item.value.chunks(8).all(|words| words == id), "a value is whole");
                self.found += 1;
            }
            _ => {}
        }
    }
}

fn run(store: &Store, session: &mut Session, ids: std::ops::Range<u64>, writes: bool) -> Tally {
    let mut tally = Tally::default();
    for id in ids {
        let (key, value) = (id.to_le_bytes(), id.to_le_bytes().repeat(13));
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let op: Op<'_, NoUpdate> = match writes {
            true => Op::Set(Set { value: &value, client_flags: 0, expiry, condition }),
            false => Op::Get,
        };
        let request = Request { key: &key, hash: store.key_hasher().hash(&key), op };
        session.execute(UnixMillis(1), &[request], &mut tally);
    }
    tally
}

#[track_caller]
fn check_every_item_is_found(index: IndexKind) {
    let Some(store) = open(index, Mode::Clean) else { return };
    let mut sessions = [store.session().unwrap(), store.session().unwrap()];
    const EACH: u64 = 40_000;
    for (at, session) in sessions.iter_mut().enumerate() {
        let first = at as u64 * EACH;
        assert_eq!(run(&store, session, first..first + EACH, true).stored, EACH as usize);
        session.quiesce();
    }
    assert_eq!(run(&store, &mut sessions[0], 0..2 * EACH, false).found, 2 * EACH as usize);
    drop(sessions);
    store.validate();
}

#[test]
fn every_item_of_a_divided_store_is_found_and_the_books_are_right() {
    check_every_item_is_found(IndexKind::Hash);
}

#[test]
fn nodes_of_a_tree_may_lie_in_any_region() {
    check_every_item_is_found(IndexKind::Tree);
}

#[test]
fn one_writer_fills_all_regions_of_a_cache_and_goes_on() {
    let Some(store) = open(IndexKind::Hash, Mode::Evict) else { return };
    let mut session = store.session().unwrap();
    session.prefer_node(0);
    session.prefer_node(99); // Has no memory of its own: nothing changes.
    assert_eq!(run(&store, &mut session, 0..600_000, true).stored, 600_000);
    let found = run(&store, &mut session, 0..600_000, false).found;
    assert!(found > 120_000, "{found} of 28 MiB in entries of 128 bytes");
    drop(session);
    store.validate();
}

#[test]
fn populating_ahead_ends_when_every_region_is_resident() {
    let Some(store) = open(IndexKind::Hash, Mode::Clean) else { return };
    let mut steps = 0;
    loop {
        match store.tend_memory(u64::MAX, Duration::ZERO) {
            Tended::Populated => steps += 1,
            Tended::Rested => break,
            other => return eprintln!("skipped: the kernel cannot populate: {other:?}"),
        }
    }
    assert_eq!(steps, store.limits().segment_count);
}
