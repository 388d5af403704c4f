//! Tests of the pass that removes expired items, without reads.

use base::UnixMillis;
use store::request::{NoUpdate, Op, Outcome, Request, Set, Sink};
use store::{Condition, Eviction, Expiry, IndexKind, Mode, Pins, Store, StoreConfig, Tuning};

use crate::support;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

struct Stored;

impl Sink<NoUpdate> for Stored {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, NoUpdate>, _: Pins<'_>) {
        assert!(matches!(outcome, Outcome::Stored { .. }));
    }
}

/// However short the time since the last step: a session without requests continues as long as many
/// items had expired.
#[test]
fn what_expires_together_goes_together() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let config = StoreConfig {
            memory_bytes: 16 << 20,
            index_bytes: 256 << 10,
            eviction: Eviction::S3Fifo,
            session_max: 2,
            hash_seed: 7,
            ..support::config(index, Mode::Clean)
        };
        let store = Store::open_tuned(config, Tuning::default()).expect("it fits");
        let mut session = store.session().unwrap();
        for number in 0..20_000_u32 {
            let key = format!("k{number}");
            // Some stay.
            let expires_at = if number % 16 == 0 { 60_000 } else { 1000 };
            let expiry = Expiry::At(UnixMillis(NOW.0 + expires_at));
            let set = Set { value: b"v", client_flags: 0, expiry, condition: Condition::Always };
            let (key, hash) = (key.as_bytes(), store.key_hasher().hash(key.as_bytes()));
            session.execute(
                NOW,
                &[Request { key, hash, op: Op::<NoUpdate>::Set(set) }],
                &mut Stored,
            );
        }
        session.maintain(UnixMillis(NOW.0 + 999));
        assert_eq!(store.stats().items, 20_000);
        let later = UnixMillis(NOW.0 + 1001);
        let steps = (0..10_000).take_while(|_| session.maintain(later)).count();
        assert!(steps < 10_000, "it ends");
        let left = store.stats().items;
        assert!((1250..1250 + 1250).contains(&left), "{index:?}: {left} after {steps} steps");
    }
}
