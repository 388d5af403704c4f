//! A batch gives the same replies and leaves the same values with compaction as without.

mod cost;
mod runs;

use std::sync::Arc;

use base::UnixMillis;
use store::pin::Pins;
use store::request::{Condition, Expiry, Item, Op, Outcome, Request, Set, Sink};
use store::{Session, Store, StoreConfig};
use wire::resp::{Compares, Comparison, ExpireCondition};

use super::*;
use crate::rmw::{Bounded, Side};

pub(super) const NOW: UnixMillis = UnixMillis(10_000);

/// A small store.
pub fn store() -> Arc<Store> {
    let config = StoreConfig {
        memory_bytes: 16 << 20,
        index_bytes: 1 << 20,
        mode: store::Mode::Clean,
        eviction: store::Eviction::default(),
        index: store::IndexKind::Hash,
        lossy_index: false,
        session_max: 4,
        item_max_bytes: 64 << 10,
        hash_seed: 11,
        batch: 32,
        huge_pages: store::HugePages::Off,
    };
    Store::open(config).unwrap()
}

/// The contents of an outcome, except for versions.
#[derive(Default)]
struct Heard {
    outcomes: Vec<(usize, String)>,
    tells: Vec<Tells>,
    /// The connection of each request; empty: all belong to one.
    connections: Vec<u64>,
}

impl Heard {
    fn of(tells: Vec<Tells>) -> Heard {
        Heard { tells, ..Heard::default() }
    }
}

fn item_text(item: &Item<'_>) -> String {
    let value = String::from_utf8_lossy(item.value);
    let len_bytes = item.value.len();
    format!("{value:.20} ({len_bytes} bytes) {} {:?}", item.client_flags, item.expires_at)
}

impl Sink<Refusal> for Heard {
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        // Fields that no reply contains may differ.
        let tells_old = self.tells.get(request_index) == Some(&Tells::Old);
        let old_text = |old: Option<Item<'_>>| match old {
            Some(item) if tells_old => item_text(&item),
            Some(_) => "some".into(),
            None => "none".into(),
        };
        let text = match outcome {
            Outcome::Hit(item) => format!("hit {}", item_text(&item)),
            Outcome::Miss => "miss".into(),
            Outcome::Stored { old, .. } if tells_old => format!("stored over {}", old_text(old)),
            Outcome::Stored { .. } => "stored".into(),
            Outcome::NotStored { old } => format!("not stored, {}", old_text(old)),
            Outcome::VersionMismatch { .. } => "another version".into(),
            Outcome::Deleted { old } => format!("deleted {}", old_text(old)),
            Outcome::Updated { old, new } => {
                let new = new.map(|item| item_text(&item));
                format!("updated {} to {new:?}", old_text(old))
            }
            Outcome::Refused(Refusal::OtherVersion(_)) => "refused: another version".into(),
            Outcome::Refused(refusal) => format!("refused: {refusal:?}"),
            Outcome::OutOfMemory => "out of memory".into(),
            Outcome::Untold => "untold".into(),
            Outcome::Unwritable => "unwritable".into(),
            Outcome::TooLarge { len_bytes, max_bytes } => format!("{len_bytes} > {max_bytes}"),
        };
        self.outcomes.push((request_index, text));
    }
}

impl Answering for Heard {
    fn tells(&self, request_index: usize) -> Tells {
        self.tells[request_index]
    }

    fn connection(&self, request_index: usize) -> u64 {
        self.connections.get(request_index).copied().unwrap_or(0)
    }
}

/// The version of a key, or one that no key has.
fn version(store: &Store, session: &mut Session, key: &[u8]) -> u64 {
    struct Version(u64);
    impl Sink<Refusal> for Version {
        fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
            if let Outcome::Hit(item) = outcome {
                self.0 = item.version;
            }
        }
    }
    // For an absent key: a version that no item of these tests reaches.
    let mut found = Version((1 << 48) - 1);
    let request = Request { key, hash: store.key_hasher().hash(key), op: Op::<Rmw<'_>>::Get };
    session.execute(NOW, &[request], &mut found);
    found.0
}

/// A reproducible stream of draws.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

const VALUES: [&[u8]; 8] =
    [b"", b"1", b"41", b"12345678", b"a word", b"several words", b"-7", &[b'x'; 3000]];
const TOO_LARGE: &[u8] = &[b'y'; 70 << 10];

fn expiry(draws: &mut Draws) -> Expiry {
    match draws.below(8) {
        0 => Expiry::Keep,
        1 => Expiry::At(UnixMillis(NOW.0 + 5)),
        2 => Expiry::At(UnixMillis(NOW.0 - 5)),
        _ => Expiry::Never,
    }
}

fn comparison(draws: &mut Draws) -> Comparison<'static> {
    let compares = match draws.below(2) {
        0 => Compares::Equal,
        _ => Compares::NotEqual,
    };
    Comparison { compares, operand: VALUES[draws.below(3) as usize] }
}

fn update(draws: &mut Draws, value: &'static [u8], version: u64) -> Rmw<'static> {
    let bounded = Bounded { bytes: value, max_bytes: 6000 };
    match draws.below(16) {
        0..=3 => Rmw::IncrementBy(draws.below(100).cast_signed() - 50),
        4 => Rmw::Append(bounded),
        5 => Rmw::Prepend(bounded),
        6 => Rmw::SetRange { offset_bytes: draws.below(9), value: bounded },
        7 => Rmw::SetExpiry(Some(UnixMillis(NOW.0 + 7)).filter(|_| draws.below(2) == 0)),
        8 => Rmw::Expire {
            at: UnixMillis(NOW.0 - 10 + draws.below(30)),
            condition: ExpireCondition::default(),
        },
        9 => Rmw::Persist,
        10 => Rmw::Join(bounded, if draws.below(2) == 0 { Side::Behind } else { Side::Before }),
        11 => Rmw::Increase(draws.below(9)),
        12 => Rmw::SetBit { offset_bits: draws.below(90), bit: draws.below(2) == 0 },
        13 => Rmw::DeleteIf(comparison(draws)),
        14 => Rmw::SetIf { comparison: comparison(draws), value, expiry: expiry(draws).into() },
        _ => Rmw::DeleteVersion(version),
    }
}

/// One request and what its reply reports; the same draws give the same, except for versions.
fn draw(draws: &mut Draws, version: u64) -> (Op<'static, Rmw<'static>>, Tells) {
    let is_too_large = draws.below(60) == 0;
    let value = VALUES[draws.below(VALUES.len() as u64) as usize];
    let value = if is_too_large { TOO_LARGE } else { value };
    let tells = match draws.below(12) {
        0 => Tells::Old,
        _ => Tells::Nothing,
    };
    let condition = match draws.below(10) {
        0 => Condition::IfAbsent,
        1 => Condition::IfPresent,
        2 => Condition::IfVersion(version),
        _ => Condition::Always,
    };
    let client_flags = draws.below(3) as u32;
    let expiry = expiry(draws);
    let op = match draws.below(10) {
        0 | 1 => Op::Get,
        2..=5 => Op::Set(Set { value, client_flags: client_flags.into(), expiry, condition }),
        6 => Op::Delete,
        _ => Op::Update(update(draws, value, version)),
    };
    (op, tells)
}

#[test]
fn batches_answer_and_leave_what_they_would_one_by_one() {
    check_batches(Compacts::Long, 500);
    check_batches(Compacts::All, 1000);
}

/// Random batches, with compaction and without.
fn check_batches(compacts: Compacts, windows_min: u64) {
    let (plain, compacting) = (store(), store());
    let mut plain_session = plain.session().unwrap();
    let mut session = compacting.session().unwrap();
    let mut compaction = Compaction::new(compacts);
    let keys: [&[u8]; 5] =
        [b"hot", b"warm", b"h", b"", b"another key, longer than a line of a cache"];
    let (mut windows, mut given_up) = (0, 0);
    for seed in 0..4000 {
        let length = 1 + Draws(seed).below(BATCH_REQUESTS_MAX as u64);
        let key_count = 1 + Draws(seed).below(keys.len() as u64);
        let batch = |store: &Store, session: &mut Session| {
            let versions = keys.map(|key| version(store, session, key));
            let mut draws = Draws(seed);
            let requests = (0..length).map(|_| {
                let at = draws.below(key_count) as usize;
                let (op, tells) = draw(&mut draws, versions[at]);
                let hash = store.key_hasher().hash(keys[at]);
                (Request { key: keys[at], hash, op }, tells)
            });
            requests.unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let (requests, tells) = batch(&plain, &mut plain_session);
        let mut want = Heard::of(tells);
        plain_session.execute(NOW, &requests, &mut want);
        let (requests, tells) = batch(&compacting, &mut session);
        let mut heard = Heard::of(tells);
        compaction.pace = SearchPace::default(); // Each batch is searched.
        compaction.execute(&mut session, NOW, &requests, &mut heard);
        for (at, (heard, want)) in heard.outcomes.iter().zip(&want.outcomes).enumerate() {
            assert_eq!(heard, want, "batch {seed}: {:.200}", format!("{:?}", requests[at].op));
        }
        assert_eq!(heard.outcomes.len(), requests.len(), "I1");
        let counted = compaction.take_counted();
        windows += counted.windows;
        given_up += counted.given_up;
    }
    assert!(windows > windows_min, "only {windows} windows");
    assert!(given_up > 10, "values too large were drawn, and only {given_up} were given up");
}

pub(super) fn blind_set(value: &[u8]) -> Op<'_, Rmw<'_>> {
    Op::Set(Set { value, client_flags: 0, expiry: Expiry::Never, condition: Condition::Always })
}

/// Runs requests on one key; returns the counts, and the growth of the key's version.
fn run_on_one_key(ops: &[Op<'static, Rmw<'static>>], tells: Tells) -> (Compacted, u64) {
    let store = store();
    let mut session = store.session().unwrap();
    let hash = store.key_hasher().hash(b"k");
    let of = |op| Request { key: b"k".as_slice(), hash, op };
    let mut heard = Heard::of(vec![tells; ops.len()]);
    session.execute(NOW, &[of(blind_set(b"before"))], &mut Heard::default());
    let before = version(&store, &mut session, b"k");
    let mut compaction = Compaction::default();
    let requests: Vec<_> = ops.iter().map(|op| of(*op)).collect();
    compaction.execute(&mut session, NOW, &requests, &mut heard);
    (compaction.take_counted(), version(&store, &mut session, b"k") - before)
}

#[test]
fn many_writes_of_a_key_reach_the_store_as_one() {
    let sets = [blind_set(&[b'v'; 1200]); 10];
    // Ten are more than 8 and at most 16.
    let by_writes = [0, 0, 0, 1, 0, 0, 0];
    let counted = Compacted { windows: 1, writes_saved: 9, given_up: 0, by_writes };
    assert_eq!(run_on_one_key(&sets, Tells::Nothing), (counted, 1));
}

#[test]
fn nothing_is_compacted_where_a_version_is_told() {
    let sets = [blind_set(&[b'v'; 1200]); 10];
    assert_eq!(run_on_one_key(&sets, Tells::Version), (Compacted::default(), 10));
}

#[test]
fn no_long_value_is_made_in_memory_that_is_not_booked() {
    static LONG: [u8; 1 << 20] = [0; 1 << 20];
    let store = store();
    let mut session = store.session().unwrap();
    let hash = store.key_hasher().hash(b"k");
    let max_bytes = u64::MAX;
    for update in [
        Rmw::SetRange { offset_bytes: 1 << 20, value: Bounded { bytes: b"x", max_bytes } },
        Rmw::SetBit { offset_bits: 8 << 20, bit: true },
        Rmw::Append(Bounded { bytes: &LONG, max_bytes }),
    ] {
        let requests = [Request { key: b"k", hash, op: Op::Update(update) }; 10];
        let mut compaction = Compaction::default();
        compaction.execute(&mut session, NOW, &requests, &mut Lengths(Vec::new()));
        assert_eq!(compaction.take_counted().given_up, 1, "{update:?}");
        assert!(compaction.value.capacity() <= SCRATCH_BYTES_MAX, "{update:?}");
    }
}

#[test]
fn one_write_among_reads_goes_its_usual_way() {
    let ops = [Op::Get, blind_set(b"new"), Op::Get, Op::Get];
    assert_eq!(run_on_one_key(&ops, Tells::Nothing), (Compacted::default(), 1));
}

#[test]
fn classes_of_windows_end_at_powers_of_two() {
    let classes = [1, 2, 3, 4, 5, 8, 9, 64, 65, 128].map(size_class);
    assert_eq!(classes, [0, 0, 1, 1, 2, 2, 3, 5, 6, 6]);
}

#[test]
fn two_short_writes_are_put_together_where_all_are() {
    let store = store();
    let mut session = store.session().unwrap();
    let hash = store.key_hasher().hash(b"k");
    let requests = [blind_set(b"12345678"), Op::Get, blind_set(b"87654321"), Op::Get]
        .map(|op| Request { key: b"k".as_slice(), hash, op });
    let mut heard = Heard::of(vec![Tells::Nothing; 4]);
    let mut compaction = Compaction::new(Compacts::All);
    compaction.execute(&mut session, NOW, &requests, &mut heard);
    let starts = ["stored", "hit 12345678", "stored", "hit 87654321"];
    for ((_, text), want) in heard.outcomes.iter().zip(starts) {
        assert!(text.starts_with(want), "{text}");
    }
    assert_eq!(compaction.take_counted().writes_saved, 1);
}

/// Records when windows open and close, and the number of outcomes by then.
#[derive(Default)]
struct Opens {
    changes: std::cell::RefCell<Vec<(usize, usize)>>,
    outcome_count: usize,
}

impl Sink<Refusal> for Opens {
    fn outcome(&mut self, _: usize, _: Outcome<'_, Refusal>, _: Pins<'_>) {
        self.outcome_count += 1;
    }
}

impl Answering for Opens {
    fn tells(&self, _: usize) -> Tells {
        Tells::Nothing
    }

    fn opened(&self, windows: usize) {
        self.changes.borrow_mut().push((windows, self.outcome_count));
    }
}

#[test]
fn windows_are_open_from_the_first_look_to_the_last_reply() {
    let store = store();
    let mut session = store.session().unwrap();
    let of = |key: &'static [u8], op| Request { key, hash: store.key_hasher().hash(key), op };
    let set = |key| of(key, blind_set(b"v"));
    let mut compaction = Compaction::new(Compacts::All);
    let mut opens = Opens::default();
    let requests = [set(b"a"), set(b"b"), set(b"a"), of(b"c", Op::Get), set(b"b"), set(b"b")];
    compaction.execute(&mut session, NOW, &requests, &mut opens);
    assert_eq!(opens.changes.take(), [(2, 0), (0, 6)]);
    compaction.execute(&mut session, NOW, &requests[..2], &mut opens);
    assert_eq!(opens.changes.take(), [], "a batch without windows is no news");
}

#[test]
fn short_values_are_stored_one_by_one() {
    let sets = [blind_set(b"12345678"); 100];
    assert_eq!(run_on_one_key(&sets, Tells::Nothing), (Compacted::default(), 100));
}

#[test]
fn a_read_sees_its_own_earlier_writes_and_none_of_its_later_ones() {
    let store = store();
    let mut session = store.session().unwrap();
    let hash = store.key_hasher().hash(b"k");
    let values: Vec<Vec<u8>> = (0..8).map(|n| format!("{n}{}", "-".repeat(1200)).into()).collect();
    // Connection 1 writes, reads and writes; 2 only reads; 3 writes, then reads.
    let (set, get) = (|n: usize| blind_set(&values[n]), Op::Get);
    let script = [
        (1, set(0), "stored"),
        (2, get, "hit 6"),
        (1, get, "hit 0"),
        (3, set(1), "stored"),
        (3, get, "hit 6"),
        (1, set(2), "stored"),
        (1, get, "hit 2"),
        (1, set(3), "stored"),
        (1, set(4), "stored"),
        (1, set(6), "stored"),
        (1, get, "hit 6"),
    ];
    let requests: Vec<_> =
        script.iter().map(|(_, op, _)| Request { key: b"k", hash, op: *op }).collect();
    let mut heard = Heard::of(vec![Tells::Nothing; script.len()]);
    heard.connections = script.iter().map(|(connection, ..)| *connection).collect();
    Compaction::default().execute(&mut session, NOW, &requests, &mut heard);
    assert_eq!(heard.outcomes.len(), script.len());
    for ((at, text), (_, _, want)) in heard.outcomes.iter().zip(&script) {
        assert!(text.starts_with(want), "{at}: {text}");
    }
}

#[test]
fn appends_of_several_workers_all_count() {
    const WORKERS: usize = 3;
    const BATCHES: usize = 1200;
    const APPENDS: usize = 15;
    let store = store();
    let hash = store.key_hasher().hash(b"k");
    let start = std::sync::Barrier::new(WORKERS);
    let work = || {
        start.wait();
        let mut session = store.session().unwrap();
        let mut compaction = Compaction::default();
        let append = Rmw::Append(Bounded { bytes: b"x", max_bytes: 60_000 });
        let requests = [Request { key: b"k", hash, op: Op::Update(append) }; APPENDS];
        let mut last = 0;
        for _ in 0..BATCHES {
            let mut lengths = Lengths(Vec::new());
            compaction.execute(&mut session, NOW, &requests, &mut lengths);
            assert_eq!(lengths.0.len(), APPENDS);
            for length in lengths.0 {
                assert!(length > last, "{length} after {last}");
                last = length;
            }
        }
        compaction.take_counted()
    };
    let counted: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert!(counted.iter().any(|counted| counted.windows > 0), "{counted:?}");
    assert!(counted.iter().any(|counted| counted.given_up > 0), "{counted:?}");
    let mut session = store.session().unwrap();
    let mut lengths = Lengths(Vec::new());
    session.execute(NOW, &[Request { key: b"k", hash, op: Op::<Rmw<'_>>::Get }], &mut lengths);
    assert_eq!(lengths.0, [WORKERS * BATCHES * APPENDS]);
}

/// The lengths of the values that were found or left.
struct Lengths(Vec<usize>);

impl Sink<Refusal> for Lengths {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) | Outcome::Updated { new: Some(item), .. } = outcome {
            self.0.push(item.value.len());
        }
    }
}

impl Answering for Lengths {
    fn tells(&self, _: usize) -> Tells {
        Tells::Nothing
    }
}

#[test]
fn a_group_that_finds_a_long_value_runs_one_by_one() {
    let store = store();
    let mut session = store.session().unwrap();
    let hash = store.key_hasher().hash(b"k");
    let of = |op| Request { key: b"k".as_slice(), hash, op };
    let long = [b'l'; 50_000];
    session.execute(NOW, &[of(blind_set(&long))], &mut Heard::default());
    let new = [b'n'; 2000];
    let (expiry, condition) = (Expiry::Never, Condition::IfAbsent);
    let refused = Op::Set(Set { value: &new, client_flags: 0, expiry, condition });
    let requests = [[of(refused); 5], [of(Op::Get); 5]].concat();
    let mut heard = Heard::of(vec![Tells::Nothing; requests.len()]);
    let mut compaction = Compaction::default();
    compaction.execute(&mut session, NOW, &requests, &mut heard);
    assert!(heard.outcomes[..5].iter().all(|(_, text)| text.starts_with("not stored")));
    assert!(heard.outcomes[5..].iter().all(|(_, text)| text.starts_with("hit lll")));
    assert_eq!(compaction.take_counted().given_up, 1);
}
