//! Tests that memory for the long values of updates is booked before it is allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::UnixMillis;
use store::request::{Item, NoUpdate, Op, Outcome, Request, Sink, Update, Verdict};
use store::{Eviction, IndexKind, Mode, Pieces, Pins, ScratchRoom, Store, StoreConfig, Tuning};

use crate::support;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// A ledger with this many bytes.
struct Room(Arc<AtomicUsize>);

impl ScratchRoom for Room {
    fn try_take(&self, bytes: usize) -> bool {
        let take = |free: usize| free.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Appends this many bytes.
struct Longer(usize);

impl Update for Longer {
    type Refusal = NoUpdate;

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<NoUpdate> {
        value.extend_from_slice(old.map_or(&[], |item| item.value));
        value.resize(value.len() + self.0, b'x');
        Verdict::Write { client_flags: 0, expires_at: None }
    }

    fn made_len_max(&self, old: Option<&Item<'_>>) -> usize {
        old.map_or(0, |item| item.value.len()) + self.0
    }
}

/// Appends these bytes without copying them first.
struct Joined<'a>(&'a [u8]);

impl Update for Joined<'_> {
    type Refusal = NoUpdate;

    fn apply(&self, _: Option<&Item<'_>>, _: &mut Vec<u8>) -> Verdict<NoUpdate> {
        unreachable!("the store asks for pieces")
    }

    fn apply_in_pieces<'v>(
        &'v self,
        old: Option<&Item<'v>>,
        pieces: &mut Pieces<'v>,
    ) -> Verdict<NoUpdate> {
        pieces.before = old.map_or(&[], |item| item.value);
        pieces.made.extend_from_slice(b"-");
        pieces.after[1] = self.0;
        Verdict::WriteToken { client_flags: 3, expires_at: None, token: 9 }
    }

    fn made_len_max(&self, _: Option<&Item<'_>>) -> usize {
        1
    }
}

/// The new length of the value; `None`: there was no room.
#[derive(Default)]
struct Length(Option<usize>);

impl<R> Sink<R> for Length {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, R>, _: Pins<'_>) {
        self.0 = match outcome {
            Outcome::Hit(item) | Outcome::Updated { new: Some(item), .. } => Some(item.value.len()),
            Outcome::OutOfMemory => None,
            other => panic!("{:?}", std::mem::discriminant(&other)),
        };
    }
}

fn run<U: Update>(store: &Arc<Store>, op: Op<'_, U>) -> Option<usize> {
    let mut length = Length::default();
    let hash = store.key_hasher().hash(b"k");
    let mut session = store.session().unwrap();
    session.execute(NOW, &[Request { key: b"k", hash, op }], &mut length);
    length.0
}

fn open() -> Arc<Store> {
    let config = StoreConfig {
        memory_bytes: 64 << 20,
        index_bytes: 64 << 10,
        eviction: Eviction::S3Fifo,
        session_max: 2,
        item_max_bytes: 4 << 20,
        hash_seed: 7,
        ..support::config(IndexKind::Hash, Mode::Clean)
    };
    Store::open_tuned(config, Tuning::default()).expect("it fits")
}

#[test]
fn what_has_no_room_changes_nothing_and_all_is_given_back() {
    let store = open();
    let free = Arc::new(AtomicUsize::new(1 << 20));
    store.book_scratch(Room(Arc::clone(&free)));
    let by = |bytes| run(&store, Op::Update(Longer(bytes)));
    assert_eq!(by(50_000), Some(50_000), "short ones are not booked");
    assert_eq!(by(500_000), Some(550_000));
    assert_eq!(by(400_000), Some(950_000));
    assert_eq!(by(100_000), None, "longer than 1 MiB");
    assert_eq!(run::<NoUpdate>(&store, Op::Get), Some(950_000));
    assert_eq!(by(10), Some(950_010));
    assert_eq!(free.load(Ordering::Relaxed), 1 << 20);
    store.validate();
}

/// The value of an item and its token.
#[derive(Default)]
struct Value(Vec<u8>, Option<u64>);

impl<R> Sink<R> for Value {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, R>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            *self = Value(item.value.to_vec(), item.token);
        }
    }
}

#[test]
fn what_lies_elsewhere_needs_no_room_of_its_own() {
    let store = open();
    store.book_scratch(Room(Arc::new(AtomicUsize::new(0))));
    let part: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let join = |part: &[u8]| run(&store, Op::Update(Joined(part)));
    assert_eq!(join(&part), Some(1_000_001));
    assert_eq!(join(&part[..500_000]), Some(1_500_002));
    assert_eq!(join(b""), Some(1_500_003));
    let mut value = Value::default();
    let request = Request { key: b"k", hash: store.key_hasher().hash(b"k"), op: Op::Get };
    store.session().unwrap().execute::<NoUpdate, _>(NOW, &[request], &mut value);
    assert_eq!(value.0, [b"-", &part[..], b"-", &part[..500_000], b"-"].concat());
    assert_eq!(value.1, Some(9));
    store.validate();
}

#[test]
fn a_kept_buffer_serves_all_updates_until_it_is_given_back() {
    let store = open();
    let free = Arc::new(AtomicUsize::new(1 << 20));
    store.book_scratch(Room(Arc::clone(&free)));
    let mut session = store.session().unwrap();
    assert!(!session.keep_scratch(2 << 20), "more than there is");
    assert!(session.keep_scratch(900_000));
    assert_eq!(free.swap(0, Ordering::Relaxed), (1 << 20) - 900_000, "others take the rest");
    let hash = store.key_hasher().hash(b"k");
    let op = || Op::Update(Longer(300_000));
    for want in [Some(300_000), Some(600_000), Some(900_000), None] {
        let mut length = Length::default();
        session.execute(NOW, &[Request { key: b"k", hash, op: op() }], &mut length);
        assert_eq!(length.0, want);
    }
    session.end_scratch();
    assert_eq!(free.load(Ordering::Relaxed), 900_000);
}
