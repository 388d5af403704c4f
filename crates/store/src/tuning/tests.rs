//! Tests that each switch takes effect, by counting what a batch does, not what it costs.

use std::cell::RefCell;

use base::UnixMillis;

use super::*;
use crate::{
    Condition, Eviction, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request,
    Set, Sink, Store, StoreConfig,
};

thread_local! {
    /// How often each [`Way`] was taken on this thread.
    pub(super) static TAKEN: RefCell<[u32; 5]> = const { RefCell::new([0; 5]) };
}

struct Ignore;

impl Sink<NoUpdate> for Ignore {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, NoUpdate>, _: Pins<'_>) {
        assert!(matches!(outcome, Outcome::Stored { .. } | Outcome::Hit(_)));
    }
}

fn small_config() -> StoreConfig {
    StoreConfig {
        memory_bytes: 4 << 20,
        index_bytes: 4096,
        mode: Mode::Clean,
        eviction: Eviction::default(),
        index: IndexKind::Hash,
        lossy_index: false,
        session_max: 1,
        item_max_bytes: 1 << 20,
        hash_seed: 7,
        batch: 32,
        huge_pages: HugePages::Off,
    }
}

/// The ways that a batch of 32 SETs and one of 32 GETs take.
fn ways_of(tuning: Tuning) -> Vec<Way> {
    let store = Store::open_tuned(small_config(), tuning).expect("a small store");
    let mut session = store.session().expect("the first session");
    TAKEN.with_borrow_mut(|taken| *taken = [0; 5]);
    let keys: Vec<[u8; 8]> = (0..32_u64).map(u64::to_le_bytes).collect();
    let batch = |op: Op<'static, NoUpdate>| {
        let request = |key: &'_ [u8; 8]| store.key_hasher().hash(key);
        keys.iter()
            .map(|key| Request { key: key.as_slice(), hash: request(key), op })
            .collect::<Vec<_>>()
    };
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    let set = Op::Set(Set { value: &[7; 64], client_flags: 0, expiry, condition });
    session.execute(UnixMillis(1), &batch(set), &mut Ignore);
    session.execute(UnixMillis(1), &batch(Op::Get), &mut Ignore);
    let all = [Way::Near, Way::NonTemporal, Way::ForWrite, Way::TagsAtOnce, Way::TagBySlot];
    let taken = TAKEN.with_borrow(|taken| *taken);
    all.into_iter().filter(|way| taken[*way as usize] > 0).collect()
}

#[track_caller]
fn check(tuning: Tuning, want: &[Way]) {
    assert_eq!(ways_of(tuning), want, "{tuning:?}");
}

#[test]
fn every_switch_changes_what_a_batch_does() {
    let all = Tuning::default();
    check(all, &[Way::Near, Way::ForWrite, Way::TagsAtOnce]);
    let nta = Tuning { prefetch: Prefetch::NonTemporal, ..all };
    check(nta, &[Way::NonTemporal, Way::ForWrite, Way::TagsAtOnce]);
    let off = Tuning { prefetch: Prefetch::Off, ..all };
    check(off, &[Way::ForWrite, Way::TagsAtOnce]);
    check(Tuning { prefetches_append: false, ..all }, &[Way::Near, Way::TagsAtOnce]);
    check(
        Tuning { matches_tags_at_once: false, ..all },
        &[Way::Near, Way::ForWrite, Way::TagBySlot],
    );
}

/// The marks of a slot after two reads, in a cache of 4 MiB that holds `item_count` items of 1 KiB.
fn marks_of(tuning: Tuning, item_count: u64) -> u64 {
    let config = StoreConfig { mode: Mode::Evict, eviction: Eviction::S3Fifo, ..small_config() };
    let store = Store::open_tuned(config, tuning).expect("a small store");
    let mut session = store.session().expect("the first session");
    let now = UnixMillis(1);
    for key in 0..item_count {
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let set = Set { value: &[7; 1024], client_flags: 0, expiry, condition };
        let key = key.to_le_bytes();
        let (hash, op) = (store.key_hasher().hash(&key), Op::Set(set));
        session.execute::<NoUpdate, _>(now, &[Request { key: &key, hash, op }], &mut Ignore);
    }
    let key = (item_count - 1).to_le_bytes();
    let hash = store.key_hasher().hash(&key);
    let get = Request { key: &key, hash, op: Op::Get };
    session.execute::<NoUpdate, _>(now, &[get, get], &mut Ignore);
    let index = &store.inner.index;
    index.find(index.head_of(hash), hash, |_| true).expect("just read").slot.marks()
}

#[test]
fn reads_leave_marks_only_in_a_nearly_full_log() {
    let all = Tuning::default();
    let always = Tuning { marks_late: false, ..all };
    assert_eq!(marks_of(all, 100), 0, "most of the log is free");
    assert_eq!(marks_of(always, 100), 2);
    assert_eq!(marks_of(all, 10_000), 2, "the log is full");
}
