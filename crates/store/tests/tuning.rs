//! Tests of the cost of a store with an optimisation switched off. model.rs tests that its answers
//! are the same.

use base::UnixMillis;
use store::{
    Condition, Expiry, HugePages, IndexKind, Mode, NoUpdate, Op, Outcome, Pins, Request, Set, Sink,
    Store, StoreConfig, Tuning,
};

use crate::support;

struct Ignore;

impl Sink<NoUpdate> for Ignore {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        assert!(matches!(outcome, Outcome::Stored { .. }));
    }
}

/// Bytes of the log in use after one counter was rewritten ten thousand times.
fn log_used_bytes(tuning: Tuning) -> u64 {
    let config = StoreConfig {
        memory_bytes: 4 << 20,
        index_bytes: 4096,
        hash_seed: 7,
        huge_pages: HugePages::Auto,
        ..support::config(IndexKind::Hash, Mode::Clean)
    };
    let store = Store::open_tuned(config, tuning).unwrap();
    let mut session = store.session().unwrap();
    let key = b"counters";
    for value in 0..10_000_u64 {
        let value = value.to_le_bytes();
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let op: Op<'_, NoUpdate> =
            Op::Set(Set { value: &value, client_flags: 0, expiry, condition });
        let request = Request { key, hash: store.key_hasher().hash(key), op };
        session.execute(UnixMillis(1), &[request], &mut Ignore);
    }
    store.stats().log_used_bytes
}

#[test]
fn a_counter_that_is_not_replaced_in_place_fills_segments() {
    let segment_bytes = 64 << 10;
    let in_place = log_used_bytes(Tuning::default());
    let appended = log_used_bytes(Tuning { replaces_in_place: false, ..Tuning::default() });
    assert!(appended >= in_place + 4 * segment_bytes, "{in_place} to {appended}");
}
