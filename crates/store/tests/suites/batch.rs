//! Tests that each request of a batch sees the effects of the requests before it (K8), even if a
//! bucket prefetched for it has left its chain meanwhile.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base::UnixMillis;
use store::{
    Eviction, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Sink, Store,
    StoreConfig,
};

use crate::support::{self, set};

/// The index that this copy of the suite runs with.
fn index_kind() -> IndexKind {
    support::index_kind(module_path!())
}

/// Heads of the smallest index: one for each of its partitions. Eight keys do not let it grow.
const HEADS_LOG2: u32 = 4;

fn open() -> Arc<Store> {
    Store::open(StoreConfig {
        memory_bytes: 5 << 20,
        index_bytes: 512,
        eviction: Eviction::LruApprox,
        huge_pages: HugePages::Auto,
        ..support::config(index_kind(), Mode::Evict)
    })
    .unwrap()
}

#[derive(Default)]
struct Values(Vec<String>);

impl Sink<NoUpdate> for Values {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0.push(match outcome {
            Outcome::Hit(item) => String::from_utf8_lossy(item.value).into_owned(),
            Outcome::Miss => "miss".to_owned(),
            _ => "written".to_owned(),
        });
    }
}

/// Fills one chain with eight keys, so that it has an overflow bucket, and runs `batch` on them.
#[track_caller]
fn check(batch: &[(usize, Op<'_, NoUpdate>)], want: &[&str]) {
    let store = open();
    let hasher = store.key_hasher();
    let in_first_chain = |key: &Vec<u8>| hasher.hash(key).0 >> (64 - HEADS_LOG2) == 0;
    let keys: Vec<Vec<u8>> = (0..10_000)
        .map(|id: u32| format!("k{id}").into_bytes())
        .filter(in_first_chain)
        .take(8)
        .collect();
    let request = |(key, op): &(usize, Op<'static, NoUpdate>)| Request {
        key: &keys[*key],
        hash: hasher.hash(&keys[*key]),
        op: *op,
    };
    let mut session = store.session().unwrap();
    for key in 0..keys.len() {
        session.execute(UnixMillis(1), &[request(&(key, set(b"old")))], &mut Values::default());
    }
    let requests: Vec<Request<'_, NoUpdate>> = batch
        .iter()
        .map(|(key, op)| Request { key: &keys[*key], hash: hasher.hash(&keys[*key]), op: *op })
        .collect();
    let mut values = Values::default();
    session.execute(UnixMillis(1), &requests, &mut values);
    assert_eq!(values.0, want);
    drop(session);
    store.validate();
}

#[test]
fn a_get_sees_the_set_before_it_although_the_overflow_bucket_has_gone() {
    for key in 0..8 {
        check(&[(key, set(b"new")), (key, Op::Get)], &["written", "new"]);
    }
    check(&[(0, Op::Delete), (6, set(b"new")), (6, Op::Get)], &["written", "written", "new"]);
}

#[test]
fn a_get_sees_the_delete_before_it_although_the_overflow_bucket_has_gone() {
    check(&[(0, Op::Delete), (6, Op::Delete), (6, Op::Get)], &["written", "written", "miss"]);
}
