//! Histories of the embedded store: several threads execute batches while a cleaner moves entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::UnixMillis;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{
    Condition, Eviction, Expiry, HugePages, Item, Mode, Op, Outcome, Pins, Request, Set, Sink,
    Store, StoreConfig, Update, Verdict,
};

use crate::linearizable::check::{Record, Ticks, check};
use crate::linearizable::model::{Answer, Ask, Swap};
use crate::linearizable::value::Value;

const THREADS: usize = 3;
const KEYS: usize = 3;
const ROUNDS: usize = 200;
/// So many that no thread is through before the others have begun.
const BATCHES_PER_ROUND: usize = 30;
const NOW: UnixMillis = UnixMillis(1_000_000);

#[derive(Clone, Copy)]
struct AddOne {
    creates: bool,
}

impl Update for AddOne {
    type Refusal = ();

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<()> {
        if old.is_none() && !self.creates {
            return Verdict::Keep;
        }
        let before = old.map_or(0, |item| number(item.value));
        value.extend_from_slice((before + 1).to_string().as_bytes());
        Verdict::Write { client_flags: 0, expires_at: None }
    }
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Turns outcomes into answers, one for each request.
struct Answers<'a> {
    asks: &'a [Ask],
    answers: Vec<Answer>,
}

impl Sink<()> for Answers<'_> {
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, ()>, _pins: Pins<'_>) {
        assert_eq!(request_index, self.answers.len(), "outcomes come in order (I1)");
        let ask = self.asks[request_index];
        self.answers.push(match (ask, outcome) {
            (Ask::Get, Outcome::Hit(item)) => Answer::Value(Some(Value::of(item.value))),
            (Ask::Get, Outcome::Miss) => Answer::Value(None),
            (Ask::Gets, Outcome::Hit(item)) => {
                Answer::Versioned(Some((Value::of(item.value), item.version)))
            }
            (Ask::Gets, Outcome::Miss) => Answer::Versioned(None),
            (Ask::Set(_), Outcome::Stored { .. }) => Answer::Done,
            (Ask::Delete, Outcome::Deleted { .. }) => Answer::Existed(true),
            (Ask::Delete, Outcome::Miss) => Answer::Existed(false),
            (Ask::Increment | Ask::IncrementExisting, Outcome::Updated { new, .. }) => {
                Answer::Sum(new.map(|item| number(item.value)))
            }
            (Ask::CompareAndSwap { .. }, Outcome::Stored { .. }) => Answer::Swap(Swap::Stored),
            (Ask::CompareAndSwap { .. }, Outcome::VersionMismatch { .. }) => {
                Answer::Swap(Swap::Changed)
            }
            (Ask::CompareAndSwap { .. }, Outcome::Miss) => Answer::Swap(Swap::Absent),
            (ask, outcome) => panic!("{ask:?} was answered {outcome:?}"),
        });
    }
}

fn op<'a>(ask: Ask, value: &'a [u8]) -> Op<'a, AddOne> {
    let set = |condition| Op::Set(Set { value, client_flags: 0, expiry: Expiry::Never, condition });
    match ask {
        Ask::Get | Ask::Gets => Op::Get,
        Ask::Set(_) => set(Condition::Always),
        Ask::CompareAndSwap { version, .. } => set(Condition::IfVersion(version)),
        Ask::Delete => Op::Delete,
        Ask::Increment => Op::Update(AddOne { creates: true }),
        Ask::IncrementExisting => Op::Update(AddOne { creates: false }),
        other => panic!("{other:?} is not drawn"),
    }
}

fn draw(random: &mut SmallRng, version_seen: Option<u64>) -> Ask {
    let value = Value::number(random.random_range(0..1000));
    match random.random_range(0..10) {
        0 | 1 => Ask::Get,
        2 | 3 => Ask::Gets,
        4 => Ask::Set(value),
        5 => Ask::Delete,
        6 => Ask::Increment,
        7 => Ask::IncrementExisting,
        _ => match version_seen {
            Some(version) => Ask::CompareAndSwap { version, value },
            None => Ask::Gets,
        },
    }
}

/// Lets all threads into a round together. A barrier of the kernel's would wake them one after the
/// other, each after the one before was through.
#[derive(Default)]
struct Gate(AtomicUsize);

impl Gate {
    fn wait(&self, round: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
        while self.0.load(Ordering::SeqCst) < (round + 1) * THREADS {
            std::thread::yield_now();
        }
    }
}

/// One thread's rounds; each batch holds one operation on each of the round's keys.
fn run_thread(store: &Store, ticks: &Ticks, gate: &Gate, thread: usize) -> Vec<Record> {
    let mut session = store.session().unwrap();
    let mut random = SmallRng::seed_from_u64(thread as u64);
    let mut records = Vec::new();
    for round in 0..ROUNDS {
        session.park();
        gate.wait(round);
        session.unpark();
        let keys: Vec<String> = (0..KEYS).map(|key| format!("round {round} key {key}")).collect();
        let mut versions = [None; KEYS];
        for _ in 0..BATCHES_PER_ROUND {
            let asks = versions.map(|version| draw(&mut random, version));
            let values = asks.map(|ask| match ask {
                Ask::Set(value) | Ask::CompareAndSwap { value, .. } => {
                    value.as_number().map_or_else(String::new, |number| number.to_string())
                }
                _ => String::new(),
            });
            let requests: Vec<Request<'_, AddOne>> = (0..KEYS)
                .map(|key| Request {
                    key: keys[key].as_bytes(),
                    hash: store.key_hasher().hash(keys[key].as_bytes()),
                    op: op(asks[key], values[key].as_bytes()),
                })
                .collect();
            let mut sink = Answers { asks: &asks, answers: Vec::new() };
            let start_tick = ticks.next();
            session.execute(NOW, &requests, &mut sink);
            let end_tick = ticks.next();
            for (key, answer) in sink.answers.into_iter().enumerate() {
                if let Answer::Versioned(Some((_, version))) = answer {
                    versions[key] = Some(version);
                }
                let (ask, key) = (asks[key], round * KEYS + key);
                // One tick serves several keys, which are checked apart.
                let (connection, answer) = (thread, Some(answer));
                records.push(Record { connection, key, ask, answer, start_tick, end_tick });
            }
        }
        session.maintain(NOW);
    }
    records
}

/// Overwrites half a log's worth of items at random, so that segments die in parts and the
/// cleaner has to move the rest under the readers.
fn churn(store: &Store, stop: &AtomicBool) {
    struct Ignore;
    impl Sink<()> for Ignore {
        fn outcome(&mut self, _index: usize, _outcome: Outcome<'_, ()>, _pins: Pins<'_>) {}
    }
    let mut session = store.session().unwrap();
    let mut random = SmallRng::seed_from_u64(99);
    let value = [b'x'; 400];
    while !stop.load(Ordering::Relaxed) {
        let mut draw_key = |_| random.random_range(0..32_768_u64).to_le_bytes();
        let keys: [[u8; 8]; 32] = std::array::from_fn(&mut draw_key);
        let requests = keys.each_ref().map(|key| Request {
            key,
            hash: store.key_hasher().hash(key),
            op: op(Ask::Set(Value::number(0)), &value),
        });
        session.execute(NOW, &requests, &mut Ignore);
        session.maintain(NOW);
    }
}

fn open() -> Arc<Store> {
    let config = StoreConfig {
        memory_bytes: 32 << 20,
        index_bytes: 2 << 20,
        mode: Mode::Clean,
        eviction: Eviction::Fifo,
        index: store::IndexKind::Hash,
        lossy_index: false,
        session_max: THREADS + 1,
        item_max_bytes: 1 << 20,
        hash_seed: 7,
        batch: 32,
        huge_pages: HugePages::Auto,
    };
    Store::open(config).unwrap()
}

#[test]
fn the_embedded_store_is_linearizable_per_key() {
    let store = open();
    let (ticks, gate, stop) = (Ticks::default(), Gate::default(), AtomicBool::new(false));
    let records: Vec<Record> = std::thread::scope(|scope| {
        scope.spawn(|| churn(&store, &stop));
        // From here on every round runs while entries move.
        let start = Instant::now();
        while store.stats().cleaned_bytes == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing was cleaned in a minute");
            std::thread::yield_now();
        }
        let (store, ticks, gate) = (&store, &ticks, &gate);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || run_thread(store, ticks, gate, thread)))
            .collect();
        let joined: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        joined.into_iter().flat_map(Result::unwrap).collect()
    });
    assert_eq!(records.len(), THREADS * KEYS * ROUNDS * BATCHES_PER_ROUND);
    let found = check(&records).unwrap_or_else(|message| panic!("{message}"));
    // How much met is the machine's affair: where a dozen processes share a core, hardly anything.
    println!("{found:?}");
    store.validate();
}
