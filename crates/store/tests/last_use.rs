//! Tests of items' times of last use: the effect of reads, writes and cleaning on them.

use std::sync::Arc;

use base::UnixMillis;
use store::request::{Item, NoUpdate, Op, Outcome, Request, Set, Sink, Update, Use, Verdict};
use store::{
    Condition, Eviction, Expiry, IndexKind, LastUse, Mode, Pins, Store, StoreConfig, Tuning,
};

use crate::support;

fn open(index: IndexKind, notes_use: bool) -> Arc<Store> {
    let config = StoreConfig {
        memory_bytes: 8 << 20,
        index_bytes: 64 << 10,
        eviction: Eviction::S3Fifo,
        session_max: 2,
        hash_seed: 7,
        ..support::config(index, Mode::Clean)
    };
    Store::open_tuned(config, Tuning { notes_use, ..Tuning::default() }).expect("it fits")
}

/// For each outcome the item's earlier uses.
#[derive(Default)]
struct Seen(Vec<Option<LastUse>>);

impl<R> Sink<R> for Seen {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, R>, _: Pins<'_>) {
        self.0.push(match outcome {
            Outcome::Hit(item) => Some(item.last_use),
            Outcome::Updated { new: Some(new), .. } => Some(new.last_use),
            _ => None,
        });
    }
}

fn at(second: u64) -> UnixMillis {
    UnixMillis(1_700_000_000_000 + second * 1000)
}

/// Makes one request at a given second; returns the item's earlier use.
fn run<U: Update>(store: &Arc<Store>, second: u64, key: &[u8], op: Op<'_, U>) -> Option<LastUse> {
    let mut session = store.session().expect("there is one");
    let mut seen = Seen::default();
    let hash = store.key_hasher().hash(key);
    session.execute(at(second), &[Request { key, hash, op }], &mut seen);
    seen.0[0]
}

fn set(store: &Arc<Store>, second: u64, key: &[u8], value: &[u8]) {
    let condition = Condition::Always;
    let set = Set { value, client_flags: 0, expiry: Expiry::Never, condition };
    run::<NoUpdate>(store, second, key, Op::Set(set));
}

fn get(store: &Arc<Store>, second: u64, key: &[u8]) -> (bool, u64) {
    let said = run::<NoUpdate>(store, second, key, Op::Get).expect("it is there");
    (said.is_read(), said.seconds_ago(at(second)))
}

/// Appends a byte, with the given usage.
struct Longer(Use);

impl Update for Longer {
    type Refusal = NoUpdate;

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<NoUpdate> {
        value.extend_from_slice(old.map_or(&[], |item| item.value));
        value.push(b'x');
        Verdict::Write { client_flags: 0, expires_at: None }
    }

    fn usage(&self) -> Use {
        self.0
    }
}

#[test]
fn a_read_tells_of_the_uses_before_it() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let store = open(index, true);
        // In place, and not.
        for (key, value, other) in [(&b"8 bytes!"[..], b"1", b"2"), (b"odd", b"3", b"4")] {
            set(&store, 0, key, value);
            assert_eq!(get(&store, 3, key), (false, 3));
            assert_eq!(get(&store, 4, key), (true, 1));
            assert_eq!(get(&store, 4, key), (true, 0));
            set(&store, 5, key, other);
            assert_eq!(get(&store, 7, key), (false, 2), "a new value was not read");
        }
        let reads = [(&b"8 bytes!"[..]), b"odd"].map(|key| (store.key_hasher().hash(key), key));
        let mut seen = Seen::default();
        let mut session = store.session().unwrap();
        session.read_snapshot::<NoUpdate, _>(at(9), &reads, &mut seen);
        let told: Vec<_> = seen.0.iter().map(|it| it.unwrap().seconds_ago(at(9))).collect();
        assert_eq!(told, [2, 2]);
        drop(session);
        assert_eq!(get(&store, 9, b"odd"), (true, 0));
        store.validate();
    }
}

#[test]
fn an_update_says_what_it_means() {
    let store = open(IndexKind::Hash, true);
    set(&store, 0, b"k", b"value");
    get(&store, 0, b"k");
    let after = |second, usage| {
        let said = run(&store, second, b"k", Op::Update(Longer(usage))).unwrap();
        (said.is_read(), said.seconds_ago(at(second)))
    };
    assert_eq!(after(2, Use::NoRead), (true, 0));
    assert_eq!(after(3, Use::Usual), (false, 0));
    assert_eq!(after(4, Use::NoRead), (false, 0));
    assert_eq!(after(5, Use::Read), (true, 0));
}

#[test]
fn cleaning_moves_what_is_known_of_uses() {
    let store = open(IndexKind::Hash, true);
    for at in 0..100_u32 {
        set(&store, 0, &at.to_le_bytes(), &[7; 100]);
        if at % 2 == 0 {
            get(&store, 10, &at.to_le_bytes());
        }
    }
    // Several times the memory, so that every segment is emptied.
    for round in 0..400_u32 {
        for key in 0..50_u32 {
            set(&store, 20, &(1000 + key).to_le_bytes(), &vec![round as u8; 5000]);
        }
    }
    for at in 0..100_u32 {
        let want = if at % 2 == 0 { (true, 20) } else { (false, 30) };
        assert_eq!(get(&store, 30, &at.to_le_bytes()), want);
    }
    store.validate();
}

#[test]
fn where_nothing_is_noted_nothing_is_told() {
    let store = open(IndexKind::Hash, false);
    set(&store, 0, b"k", b"value");
    for second in [5, 9] {
        let said = run::<NoUpdate>(&store, second, b"k", Op::Get);
        assert_eq!(said, Some(LastUse::UNKNOWN));
    }
    assert!(!store.notes_use());
    store.validate();
}
