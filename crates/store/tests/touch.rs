//! Tests of EXPIRE and PERSIST in a full store: users can still change how long their items live.

use std::convert::Infallible;

use base::UnixMillis;
use store::{
    Condition, Expiry, HugePages, IndexKind, Item, Mode, Op, Outcome, Pins, Request, Session, Set,
    Sink, Store, StoreConfig, Update, Verdict,
};

use crate::support;

struct Touch(Option<UnixMillis>);

impl Update for Touch {
    type Refusal = Infallible;

    fn apply(&self, old: Option<&Item<'_>>, _value: &mut Vec<u8>) -> Verdict<Infallible> {
        assert!(old.is_some(), "a store never forgets");
        Verdict::Touch { expires_at: self.0 }
    }
}

#[derive(Default)]
struct Seen {
    refused: u64,
    expiries: Vec<Option<UnixMillis>>,
}

impl Sink<Infallible> for Seen {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, Infallible>, _pins: Pins<'_>) {
        match outcome {
            Outcome::OutOfMemory => self.refused += 1,
            Outcome::Hit(item) => self.expiries.push(item.expires_at),
            Outcome::Stored { .. } | Outcome::Updated { .. } => {}
            Outcome::Deleted { .. } => {}
            _ => panic!("neither refused nor done"),
        }
    }
}

const NOW: UnixMillis = UnixMillis(1000);

fn run(store: &Store, session: &mut Session, id: u64, op: Op<'_, Touch>) -> Seen {
    let key = id.to_le_bytes();
    let mut seen = Seen::default();
    let request = Request { key: &key, hash: store.key_hasher().hash(&key), op };
    session.execute(NOW, &[request], &mut seen);
    seen
}

fn set(value: &[u8]) -> Op<'_, Touch> {
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    Op::Set(Set { value, client_flags: 0, expiry, condition })
}

#[track_caller]
fn check(index: IndexKind, value_len: usize) {
    let store = Store::open(StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 1 << 20,
        huge_pages: HugePages::Auto,
        ..support::config(index, Mode::Clean)
    });
    let store = store.unwrap();
    let mut session = store.session().unwrap();
    let value = vec![7; value_len];
    let mut count = 0;
    while run(&store, &mut session, count, set(&value)).refused == 0 {
        count += 1;
    }
    let at = Some(UnixMillis(9_000_000));
    for (id, expires_at) in [(0, at), (1, at), (count / 2, at), (0, None), (count - 1, at)] {
        let touched = run(&store, &mut session, id, Op::Update(Touch(expires_at)));
        assert_eq!(touched.refused, 0, "{index:?}, {value_len} bytes: item {id} of {count}");
        assert_eq!(run(&store, &mut session, id, Op::Get).expiries, [expires_at]);
    }
    assert_eq!(run(&store, &mut session, count, set(&value)).refused, 1, "it is still full");
    // However many there are, what cleaning needs stays: deletes make room again.
    for round in 0..2 {
        for id in 0..count {
            let expires_at = Some(UnixMillis(9_000_000 + round));
            run(&store, &mut session, id, Op::Update(Touch(expires_at)));
        }
    }
    store.validate();
    for id in (0..count).step_by(2) {
        run(&store, &mut session, id, Op::Update(Touch(Some(NOW))));
    }
    for id in 0..count / 4 {
        let written = run(&store, &mut session, count + id, set(&value));
        assert_eq!(written.refused, 0, "{index:?}, {value_len} bytes: write {id}");
    }
    store.validate();
}

#[test]
fn a_full_store_takes_a_new_expiry() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        for value_len in [8, 100, 1000, 10_000] {
            check(index, value_len);
        }
    }
}
