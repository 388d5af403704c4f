//! Tests of backups of a log that is written, cleaned and flushed between any two reads: each key
//! has a value in the copy that it had when the copy began, or later.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base::UnixMillis;
use store::durable::backup::{Copied, backup};
use store::durable::check::check;
use store::durable::{Committer, DataError, NewData, Opened};
use store::medium::{Medium, MediumError, MemoryMedium};
use store::pin::Pins;
use store::{
    Condition, Expiry, IndexKind, NoUpdate, Op, Outcome, Request, Session, Set, Sink, Store,
};

use crate::support::{self, Rng};

const NOW_MS: u64 = 1_000_000;
const KEYS: u64 = 60;

fn open(medium: MemoryMedium) -> Opened<MemoryMedium> {
    let config = support::durable_config(IndexKind::Hash, 9 << 18);
    let new = NewData { now_ms: NOW_MS, data_id: 0x1234, recovers_damaged: false, threads: 1 };
    support::open_durable(medium, config, new).expect("a log that opens")
}

/// A request's result: a value, a stored value, or nothing to do.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Value(Vec<u8>),
    Nothing,
    Stored,
    Full,
}

struct Last(Option<Answer>);

impl Sink<NoUpdate> for Last {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0 = Some(match outcome {
            Outcome::Hit(item) => Answer::Value(item.value.to_vec()),
            Outcome::Miss | Outcome::Deleted { .. } => Answer::Nothing,
            Outcome::Stored { .. } => Answer::Stored,
            Outcome::OutOfMemory => Answer::Full,
            other => panic!("not asked for: {other:?}"),
        });
    }
}

fn ask(session: &mut Session, store: &Store, key: &[u8], op: Op<'_, NoUpdate>) -> Answer {
    let request = Request { key, hash: store.key_hasher().hash(key), op };
    let mut last = Last(None);
    session.execute(UnixMillis(NOW_MS), &[request], &mut last);
    last.0.expect("one request has one answer")
}

/// A store under writes, and all values that each key has had since the copy began.
struct World {
    store: Arc<Store>,
    session: Session,
    committer: Committer<MemoryMedium>,
    states: BTreeMap<u64, Vec<Option<Vec<u8>>>>,
    rng: Rng,
    /// The most steps between two reads.
    haste: u64,
}

impl World {
    fn new(seed: u64, haste: u64) -> World {
        let Opened { store, committer, .. } = open(MemoryMedium::default());
        let session = store.session().expect("a place");
        let states = (0..KEYS).map(|key| (key, vec![None])).collect();
        World { store, session, committer, states, rng: Rng(seed), haste }
    }

    fn step(&mut self) {
        let key = self.rng.below(KEYS);
        let name = format!("key-{key}").into_bytes();
        match self.rng.below(100) {
            0..=59 => {
                let len = match self.rng.below(40) {
                    0 => 20_000 + self.rng.below(60_000),
                    _ => self.rng.below(3000),
                };
                let value = vec![self.rng.below(256) as u8; len as usize];
                let set = Set {
                    value: &value,
                    client_flags: 0,
                    expiry: Expiry::Never,
                    condition: Condition::Always,
                };
                if ask(&mut self.session, &self.store, &name, Op::Set(set)) == Answer::Stored {
                    self.states.entry(key).or_default().push(Some(value));
                }
            }
            60..=79 => {
                let answer = ask(&mut self.session, &self.store, &name, Op::Delete);
                if answer != Answer::Full {
                    self.states.entry(key).or_default().push(None);
                }
            }
            80..=93 => self.commit(),
            94..=98 => drop(self.session.maintain(UnixMillis(NOW_MS))),
            _ if self.rng.below(20) == 0 => {
                self.session.flush();
                self.states.values_mut().for_each(|states| states.push(None));
            }
            _ => {}
        }
    }

    fn commit(&mut self) {
        self.session.park();
        let committed = self.committer.commit(|| unreachable!("everybody is parked"));
        self.session.unpark();
        committed.expect("memory");
    }

    /// Notes that everything is acknowledged: from here on each key must have at least its present
    /// value.
    fn acknowledge(&mut self) {
        self.commit();
        for states in self.states.values_mut() {
            states.drain(..states.len() - 1);
        }
    }
}

/// The world's log, which changes with every read.
struct Live(Mutex<World>);

impl Medium for Live {
    fn write_at(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        panic!("a copy writes nothing to its source")
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        let mut world = self.0.lock().expect("one thread");
        let haste = world.haste;
        for _ in 0..world.rng.below(haste + 1) {
            world.step();
        }
        world.committer.medium().read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        panic!("a copy writes nothing to its source")
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        self.0.lock().expect("one thread").committer.medium().len_bytes()
    }

    fn reserve(&mut self, _len_bytes: u64) -> Result<(), MediumError> {
        panic!("a copy writes nothing to its source")
    }
}

/// Makes a copy while at most `haste` steps run between two reads, and looks every key up in the
/// copy.
fn run(seed: u64, haste: u64) -> Result<Copied, DataError> {
    let mut world = World::new(seed, haste);
    for _ in 0..2000 {
        world.step();
    }
    world.acknowledge();
    let live = Live(Mutex::new(world));
    let mut copy = MemoryMedium::default();
    let copied = backup(&live, &mut copy, &mut |_, _| {})?;
    let report = check(&copy, NOW_MS, None, &mut |_, _| {}).expect("a log");
    assert!(report.found.damage.is_empty(), "seed {seed}: {:?}", report.found.damage);
    let world = live.0.into_inner().expect("one thread");
    let Opened { store, .. } = open(copy);
    store.validate();
    let mut session = store.session().expect("a place");
    for (key, states) in &world.states {
        let name = format!("key-{key}").into_bytes();
        let found = match ask(&mut session, &store, &name, Op::Get) {
            Answer::Value(value) => Some(value),
            _ => None,
        };
        let place = states.iter().position(|state| *state == found);
        assert!(place.is_some(), "seed {seed}: key-{key} has {:?}", found.map(|value| value.len()));
    }
    Ok(copied)
}

#[test]
fn a_copy_has_all_that_was_acknowledged_before_it_began() {
    let (mut several_rounds, mut given_up) = (0, 0);
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        // From a server at rest to one that frees segments between any two reads.
        match run(seed, seed % 12) {
            Ok(copied) => several_rounds += u64::from(copied.rounds > 1),
            Err(DataError::Restless { .. }) => given_up += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(cfg!(miri) || several_rounds > 3, "{several_rounds} copies took several rounds");
    assert!(given_up < 30, "{given_up} of 60 were given up");
}

#[test]
fn a_log_at_rest_is_copied_in_one_round() {
    let copied = run(7, 0).expect("nothing moves");
    assert_eq!(copied.rounds, 1);
    assert!(copied.segments > 0 && copied.bytes > 0);
}
