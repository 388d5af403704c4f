//! Tests of a durable store against a model, with crashes at any point: after each crash, every key
//! has a value that it had at or after its last acknowledged write.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;
use store::durable::check::{CheckpointState, check};
use store::durable::checkpoint::{Checkpoint, CheckpointError, Checkpointer};
use store::durable::{self, Beside, Committer, DataError, NewData, Opened, UsedCheckpoint};
use store::medium::{Faults, FaultyMedium, MediumError, MemoryMedium};
use store::pin::Pins;
use store::{
    Condition, Expiry, Flush, IndexKind, Mode, NoUpdate, Op, Outcome, Request, Session, Set, Sink,
    Store, StoreConfig, Tuning,
};

use crate::support::{Rng, durable_config, open_durable};

const START_MS: u64 = 1_000_000;

/// A configuration with places for two or three sessions, which is the number of recovery threads.
fn of_life(seed: u64, index: IndexKind) -> StoreConfig {
    StoreConfig { session_max: 2 + (seed % 2) as usize, ..durable_config(index, MEMORY_BYTES) }
}

pub fn new_data() -> NewData {
    NewData { now_ms: START_MS, data_id: 0x1234_5678, recovers_damaged: false, threads: 3 }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Value(Vec<u8>),
    Nothing,
    Stored(u64),
    Refused,
    Full,
}

struct Answers(Vec<Answer>);

impl Sink<NoUpdate> for Answers {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0.push(match outcome {
            Outcome::Hit(item) => Answer::Value(item.value.to_vec()),
            Outcome::Miss | Outcome::Deleted { .. } => Answer::Nothing,
            Outcome::Stored { version, .. } => Answer::Stored(version),
            Outcome::Unwritable => Answer::Refused,
            Outcome::OutOfMemory => Answer::Full,
            other => panic!("not asked for: {other:?}"),
        });
    }
}

fn ask(session: &mut Session, store: &Store, now: u64, key: &[u8], op: Op<'_, NoUpdate>) -> Answer {
    let request = Request { key, hash: store.key_hasher().hash(key), op };
    let mut answers = Answers(Vec::new());
    session.execute(UnixMillis(now), &[request], &mut answers);
    answers.0.pop().expect("one request has one answer")
}

fn set(value: &[u8], expiry: Expiry) -> Op<'_, NoUpdate> {
    Op::Set(Set { value, client_flags: 0, expiry, condition: Condition::Always })
}

/// The states of a key: values with their expiries, the last one known to be acknowledged first.
type States = Vec<(Option<Vec<u8>>, u64)>;

/// A store on a disk, and its expected contents.
struct World {
    store: Arc<Store>,
    session: Option<Session>,
    committer: Committer<FaultyMedium>,
    states: BTreeMap<Vec<u8>, States>,
    /// The versions assigned, and those of them that were acknowledged.
    newest: BTreeMap<Vec<u8>, u64>,
    acknowledged: BTreeMap<Vec<u8>, u64>,
    now_ms: u64,
    rng: Rng,
    index: IndexKind,
    faults: Faults,
    recovered_entries: u64,
    torn_tails: u64,
    cleaned_bytes: u64,
    failure: Option<String>,
    checkpoints: Checkpoints,
}

/// Checkpoints of a world.
#[derive(Default)]
struct Checkpoints {
    are_taken: bool,
    planted: Option<Planted>,
    /// A checkpoint under way, and the collected one.
    next: Option<(Checkpointer, Option<Checkpoint>)>,
    /// The checkpoint stored beside the log.
    kept: Option<Vec<u8>>,
    /// Whether the power fails at once.
    is_crash_due: bool,
    used: u64,
    damaged: u64,
    misfits: u64,
    /// The number of checkpoints found to contradict their log, by comparing both.
    wrong: u64,
}

/// The planted bug.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// A checkpoint's data about a segment is applied to any later use of it.
    Freed,
    /// The checkpoint is stored before the entries that it names are on the disk.
    Early,
}

impl Checkpoints {
    fn step(&mut self, committer: &Committer<FaultyMedium>) {
        match &mut self.next {
            None => {
                let mut next = committer.checkpointer();
                next.begin();
                self.next = Some((next, None));
            }
            Some((next, collected @ None)) if next.is_ready() => {
                *collected = next.collect();
                if self.planted == Some(Planted::Early) {
                    self.keep();
                    self.is_crash_due = true;
                }
            }
            Some(_) => {}
        }
    }

    /// Notes that everything seen is on the disk.
    fn keep(&mut self) {
        let is_collected = |next: &mut (Checkpointer, Option<Checkpoint>)| next.1.is_some();
        if let Some((next, Some(checkpoint))) = self.next.take_if(is_collected) {
            assert!(next.is_ready() || self.planted.is_some(), "everybody was parked");
            let mut bytes = Vec::new();
            checkpoint.write_to(&mut bytes).expect("memory");
            self.kept = Some(bytes);
        }
    }

    /// Reads the checkpoint as the next start does; returns whether it was damaged meanwhile.
    fn read(
        &mut self,
        rng: &mut Rng,
        disk: &MemoryMedium,
    ) -> (Option<Result<Checkpoint, CheckpointError>>, bool) {
        self.next = None;
        let Some(mut bytes) = self.kept.clone() else { return (None, false) };
        let len = bytes.len() as u64;
        let is_damaged = match rng.below(8) {
            0 => {
                bytes.truncate(rng.below(len) as usize);
                true
            }
            1 => {
                bytes[rng.below(len) as usize] ^= 1 << rng.below(8);
                true
            }
            _ => false,
        };
        let mut read = Checkpoint::read_from(&mut &bytes[..]);
        if let (Some(Planted::Freed), Ok(checkpoint)) = (self.planted, &mut read) {
            for covered in &mut checkpoint.covered {
                covered.sequence = sequence_of(disk, covered.segment);
            }
        }
        (Some(read), is_damaged)
    }

    /// Checks that verification without a start gives the same result as the start.
    fn count_checked(&mut self, state: &CheckpointState, is_damaged: bool) -> Result<(), String> {
        self.wrong += u64::from(matches!(state, CheckpointState::Wrong { .. }));
        let is_expected = match state {
            CheckpointState::None => self.kept.is_none(),
            CheckpointState::Unusable(_) => is_damaged,
            CheckpointState::Good { .. } => !is_damaged,
            CheckpointState::Wrong { .. } => false,
        };
        match is_expected || self.planted.is_some() {
            true => Ok(()),
            false => Err(format!("damaged: {is_damaged}, and the checkpoint is {state:?}")),
        }
    }

    fn count(&mut self, used: &UsedCheckpoint, is_damaged: bool) -> Result<(), String> {
        match used {
            UsedCheckpoint::None => {}
            UsedCheckpoint::Ignored(_) if is_damaged => self.damaged += 1,
            UsedCheckpoint::Ignored(error) if self.planted.is_none() => {
                return Err(format!("a good checkpoint is ignored: {error}"));
            }
            UsedCheckpoint::Ignored(_) => self.misfits += 1,
            UsedCheckpoint::Used { .. } if is_damaged => {
                return Err("a damaged checkpoint is used".to_owned());
            }
            UsedCheckpoint::Used { .. } => self.used += 1,
        }
        Ok(())
    }
}

/// The sequence of a segment's present use on a disk (docs/formats/data-directory.md).
fn sequence_of(disk: &MemoryMedium, segment: u32) -> u64 {
    let page = (64 << 10) + segment as usize * (4096 + (64 << 10));
    let word = |at: usize| {
        let word = disk.bytes().get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let newer = if word(page + 16) > word(page + 2048 + 16) { page } else { page + 2048 };
    word(newer + 24)
}

impl World {
    fn new(seed: u64, index: IndexKind, faults: Faults) -> World {
        let medium = FaultyMedium::new(seed, faults);
        let Opened { store, committer, .. } =
            open_durable(medium, of_life(seed, index), new_data()).expect("an empty disk");
        let session = Some(store.session().expect("a place"));
        let (states, newest) = (BTreeMap::new(), BTreeMap::new());
        World {
            store,
            session,
            committer,
            states,
            newest,
            acknowledged: BTreeMap::new(),
            now_ms: START_MS,
            rng: Rng(seed),
            index,
            faults,
            recovered_entries: 0,
            torn_tails: 0,
            cleaned_bytes: 0,
            failure: None,
            // Half of the lives with a hash index; a tree has none yet.
            checkpoints: Checkpoints {
                are_taken: seed.is_multiple_of(2) && index == IndexKind::Hash,
                ..Checkpoints::default()
            },
        }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("the store is open")
    }

    fn step(&mut self) {
        let key = format!("key-{}", self.rng.below(60)).into_bytes();
        match self.rng.below(100) {
            0..=54 => self.set(&key),
            55..=69 => self.delete(&key),
            70..=79 => self.get(&key),
            80..=91 => self.commit(),
            92..=94 => self.now_ms += self.rng.below(400),
            95..=98 => {
                let now = UnixMillis(self.now_ms);
                self.session().maintain(now);
            }
            _ if self.rng.below(20) == 0 => self.flush(),
            _ if self.checkpoints.are_taken => self.checkpoints.step(&self.committer),
            _ => {}
        }
    }

    fn set(&mut self, key: &[u8]) {
        let len = match self.rng.below(40) {
            0 => 20_000 + self.rng.below(60_000),
            1..=10 => self.rng.below(9),
            _ => self.rng.below(3000),
        };
        let value = vec![(self.rng.next() & 0xff) as u8; len as usize];
        let (expiry, ends_ms) = match self.rng.below(6) {
            0 => {
                let at = self.now_ms + 1 + self.rng.below(600);
                (Expiry::At(UnixMillis(at)), at)
            }
            _ => (Expiry::Never, u64::MAX),
        };
        let (store, now) = (Arc::clone(&self.store), self.now_ms);
        match ask(self.session(), &store, now, key, set(&value, expiry)) {
            Answer::Stored(version) => {
                let newest = self.newest.entry(key.to_vec()).or_default();
                if version <= *newest {
                    self.failure = Some(format!("K1: version {version} after {newest}"));
                }
                *newest = version;
                self.states.entry(key.to_vec()).or_default().push((Some(value), ends_ms));
            }
            Answer::Full => {}
            other => panic!("a SET is not answered by {other:?}"),
        }
    }

    fn delete(&mut self, key: &[u8]) {
        let (store, now) = (Arc::clone(&self.store), self.now_ms);
        if ask(self.session(), &store, now, key, Op::Delete) != Answer::Full {
            self.states.entry(key.to_vec()).or_default().push((None, u64::MAX));
        }
    }

    fn flush(&mut self) {
        self.session().flush();
        for states in self.states.values_mut() {
            states.push((None, u64::MAX));
        }
    }

    fn value_of(&self, state: &(Option<Vec<u8>>, u64)) -> Option<Vec<u8>> {
        state.0.clone().filter(|_| state.1 > self.now_ms)
    }

    fn read(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let (store, now) = (Arc::clone(&self.store), self.now_ms);
        match ask(self.session(), &store, now, key, Op::Get) {
            Answer::Value(value) => Some(value),
            Answer::Nothing => None,
            other => panic!("a GET is not answered by {other:?}"),
        }
    }

    fn get(&mut self, key: &[u8]) {
        let found = self.read(key);
        let wanted = self.states.get(key).and_then(|states| states.last()).cloned();
        assert_eq!(found, wanted.and_then(|state| self.value_of(&state)));
    }

    fn commit(&mut self) {
        self.session().park();
        let committed = self.committer.commit(|| unreachable!("everybody is parked"));
        self.session().unpark();
        if committed.is_ok() {
            self.acknowledged = self.newest.clone();
            self.checkpoints.keep();
            assert!(self.store.durable().expect("it is durable").is_settled());
            for states in self.states.values_mut() {
                states.drain(..states.len().saturating_sub(1));
            }
        }
    }

    /// Stops at any step of a commit, loses what a disk may lose, and opens the rest.
    fn crash(&mut self) -> Result<(), String> {
        self.session().park();
        let steps = self.rng.below(4);
        if steps > 0 {
            self.committer.begin();
            assert!(self.committer.is_ready());
            let _ = self.committer.write();
        }
        if steps > 2 {
            // Acknowledged or not: the power fails before any client gets an answer.
            let _ = self.committer.sync();
        }
        let kill = self.rng.below(4) == 0;
        // No client has seen the others (K1).
        self.newest = self.acknowledged.clone();
        self.session = None;
        let medium =
            std::mem::replace(self.committer.medium_mut(), FaultyMedium::new(0, Faults::default()));
        let left = if kill { medium.kill() } else { medium.crash() };
        self.reopen(left)
    }

    fn reopen(&mut self, left: MemoryMedium) -> Result<(), String> {
        let (checkpoint, is_damaged) = self.checkpoints.read(&mut self.rng, &left);
        let report = check(&left, self.now_ms, checkpoint.clone(), &mut |_, _| {});
        let report = report.map_err(|error| error.to_string())?;
        self.checkpoints.count_checked(&report.checkpoint, is_damaged)?;
        let medium = FaultyMedium::over(left, self.rng.next(), self.faults);
        let config = of_life(self.rng.next(), self.index);
        let beside = Beside { is_gone: &|_| false, checkpoint };
        let tuning = (Tuning::default(), &[][..]);
        let opened = durable::open_with(medium, config, tuning, new_data(), beside, &mut |_, _| {});
        let Opened { store, committer, recovery } = opened.map_err(|error| error.to_string())?;
        self.checkpoints.count(&recovery.checkpoint, is_damaged)?;
        store.validate();
        self.recovered_entries += recovery.entries;
        self.torn_tails += recovery.torn_tails;
        self.session = Some(store.session().expect("a place"));
        (self.store, self.committer) = (store, committer);
        let keys: Vec<_> = self.states.keys().cloned().collect();
        for key in keys {
            let found = self.read(&key);
            let states = &self.states[&key];
            let possible: Vec<_> = states.iter().map(|state| self.value_of(state)).collect();
            let Some(at) = possible.iter().rposition(|value| *value == found) else {
                return Err(format!(
                    "{}: found {:?}, possible {:?}",
                    String::from_utf8_lossy(&key),
                    found.map(|value| value.len()),
                    possible.iter().map(|v| v.as_ref().map(Vec::len)).collect::<Vec<_>>(),
                ));
            };
            // The recovered data is on the disk from now on.
            let state = self.states[&key][at].clone();
            self.states.insert(key, vec![state]);
        }
        Ok(())
    }

    /// Keys that were never acknowledged may be missing.
    fn begin_key_states(&mut self) {
        for id in 0..60 {
            let key = format!("key-{id}").into_bytes();
            self.states.entry(key).or_insert_with(|| vec![(None, u64::MAX)]);
        }
    }
}

pub const MEMORY_BYTES: u64 = 9 << 18;

/// Several lives of one store, each ended by a crash.
fn run(seed: u64, index: IndexKind, faults: Faults) -> Result<World, String> {
    run_world(seed, World::new(seed, index, faults))
}

fn run_world(seed: u64, mut world: World) -> Result<World, String> {
    world.begin_key_states();
    for _ in 0..4 {
        for _ in 0..world.rng.below(3000) {
            world.step();
            if std::mem::take(&mut world.checkpoints.is_crash_due) {
                break;
            }
        }
        world.cleaned_bytes += world.store.stats().cleaned_bytes;
        world.crash().map_err(|error| format!("seed {seed}: {error}"))?;
        world.store.validate();
        if let Some(failure) = &world.failure {
            return Err(format!("seed {seed}: {failure}"));
        }
    }
    Ok(world)
}

#[test]
fn no_acknowledged_write_is_lost_and_nothing_resurrects() {
    let (mut entries, mut torn, mut freed) = (0, 0, 0);
    let (mut used, mut damaged) = (0, 0);
    for seed in 0..60 {
        let index = if seed % 4 == 3 { IndexKind::Tree } else { IndexKind::Hash };
        let world = run(seed, index, Faults::default()).unwrap_or_else(|error| panic!("{error}"));
        entries += world.recovered_entries;
        torn += world.torn_tails;
        freed += world.cleaned_bytes;
        used += world.checkpoints.used;
        damaged += world.checkpoints.damaged;
    }
    // The test would say nothing if none of this had happened.
    assert!(entries > 10_000, "{entries} entries recovered");
    assert!(torn > 0, "{torn} torn tails");
    assert!(freed > 0, "nothing was ever cleaned");
    assert!(used > 30, "{used} checkpoints used");
    assert!(damaged > 5, "{damaged} damaged checkpoints ignored");
}

/// In how many of ten lives a planted bug shows.
fn caught(planted: Planted) -> usize {
    let shows = |seed: &u64| {
        let mut world = World::new(*seed, IndexKind::Hash, Faults::default());
        world.checkpoints.planted = Some(planted);
        run_world(*seed, world).map_or(true, |world| {
            let Checkpoints { misfits, wrong, .. } = world.checkpoints;
            misfits + wrong > 0
        })
    };
    (0..20).step_by(2).filter(shows).count()
}

#[test]
fn a_checkpoint_of_another_log_or_of_a_later_one_is_named() {
    let mut world = World::new(4, IndexKind::Hash, Faults::default());
    for id in 0..200 {
        world.set(format!("key-{}", id % 60).as_bytes());
    }
    world.commit();
    for _ in 0..2 {
        world.checkpoints.step(&world.committer);
        world.session().park();
        world.session().unpark();
    }
    world.commit();
    world.commit();
    let bytes = world.checkpoints.kept.clone().expect("it was taken");
    let kept = Checkpoint::read_from(&mut &bytes[..]).expect("it is good");
    let state = |disk: &MemoryMedium, checkpoint: Checkpoint| {
        let report = check(disk, START_MS, Some(Ok(checkpoint)), &mut |_, _| {});
        report.expect("a log").checkpoint
    };
    let disk = world.committer.medium_mut().clone().kill();
    let good = state(&disk, kept.clone());
    assert!(matches!(good, CheckpointState::Good { named, .. } if named > 0), "{good:?}");
    // One word less, with a good checksum: only the entries can say so.
    let at = kept.words.iter().position(|word| word >> 48 != 0 && word & 4 == 0);
    let mut short = kept.clone();
    short.words.remove(at.expect("a chain of two"));
    assert_eq!(state(&disk, short), CheckpointState::Wrong { keys: 1 });
    let other = Checkpoint { data_id: 1, ..kept.clone() };
    assert_eq!(state(&disk, other), CheckpointState::Unusable(CheckpointError::OtherLog));
    let later = state(&disk, Checkpoint { generation: kept.generation + 9, ..kept });
    assert_eq!(later, CheckpointState::Unusable(CheckpointError::LaterLog));
}

#[test]
fn a_checkpoint_that_outlives_its_segments_is_caught() {
    let caught = caught(Planted::Freed);
    assert!(caught > 2, "{caught} of 10");
}

#[test]
fn a_checkpoint_kept_before_its_entries_are_is_caught() {
    let caught = caught(Planted::Early);
    assert!(caught > 2, "{caught} of 10");
}

#[test]
fn a_disk_that_says_it_has_synced_and_has_not_is_caught() {
    let faults = Faults { lies: true, ..Faults::default() };
    let caught = (0..10).filter(|seed| run(*seed, IndexKind::Hash, faults).is_err()).count();
    assert!(caught > 5, "{caught} of 10");
}

/// A store with `count` items, all on the disk.
pub fn filled(count: u64) -> MemoryMedium {
    let mut world = World::new(5, IndexKind::Hash, Faults::default());
    for id in 0..count {
        let (key, store) = (format!("key-{id}").into_bytes(), Arc::clone(&world.store));
        let answer = ask(world.session(), &store, START_MS, &key, set(&[7; 200], Expiry::Never));
        assert!(matches!(answer, Answer::Stored(_)));
    }
    world.commit();
    world.session = None;
    // The second says in the segments' rows what the first has synced.
    world.commit_closed();
    world.commit_closed();
    world.committer.into_medium().crash()
}

impl World {
    fn commit_closed(&mut self) {
        self.committer.commit(|| unreachable!("there is no session")).expect("a good disk");
    }
}

#[test]
fn a_flipped_bit_is_damage_and_is_refused_or_left_out() {
    let mut disk = filled(1000);
    // The middle of the first segment's entries.
    let at = (64 << 10) + 4096 + 20_000;
    disk.bytes_mut()[at] ^= 0x10;
    let config = durable_config(IndexKind::Hash, MEMORY_BYTES);
    let refused = open_durable(disk.clone(), config.clone(), new_data()).map(drop).unwrap_err();
    let DataError::Damaged { damage } = refused else { panic!("{refused}") };
    assert_eq!(damage.len(), 1, "{damage:?}");
    let damaged = damage[0].file_offset..damage[0].file_offset + damage[0].len_bytes;
    assert!(damaged.contains(&(at as u64)), "{damage:?}");
    let new = NewData { recovers_damaged: true, ..new_data() };
    let opened = open_durable(disk, config.clone(), new).expect("without what is damaged");
    let Opened { store, mut committer, recovery } = opened;
    assert_eq!((recovery.damage.len(), recovery.items), (1, 999));
    store.validate();
    // After two commits the valid entries of the segment are elsewhere, and the damage is gone.
    for _ in 0..3 {
        committer.commit(|| unreachable!("there is no session")).expect("a good disk");
    }
    let again =
        open_durable(committer.into_medium(), config, new_data()).expect("no damage is left");
    assert_eq!(again.recovery.items, 999);
}

#[test]
fn a_failed_sync_is_final_and_reads_go_on() {
    let mut world = World::new(1, IndexKind::Hash, Faults::default());
    world.begin_key_states();
    world.set(b"key-1");
    world.commit();
    let syncs = world.committer.medium_mut().sync_count();
    world.committer.medium_mut().faults.failing_sync = Some(syncs);
    world.set(b"key-1");
    world.commit();
    let store = Arc::clone(&world.store);
    let durable = Arc::clone(store.durable().expect("it is durable"));
    assert!(durable.is_refusing() && !durable.is_settled());
    let op = set(b"v", Expiry::Never);
    assert_eq!(ask(world.session(), &store, START_MS, b"key-2", op), Answer::Refused);
    assert!(world.read(b"key-1").is_some());
    // The next sync would succeed, as the kernel's do, and means nothing.
    world.commit();
    assert!(durable.is_refusing());
    assert!(matches!(durable.health(), durable::Health::Failed(_)));
    world.crash().expect("what was acknowledged is there");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let mut world = World::new(1, IndexKind::Hash, Faults::default());
    world.begin_key_states();
    world.committer.medium_mut().faults.full_after_bytes = Some(0);
    world.set(b"key-1");
    world.commit();
    let store = Arc::clone(&world.store);
    let durable = Arc::clone(store.durable().expect("it is durable"));
    assert_eq!(durable.health(), durable::Health::Stalled(MediumError::Full));
    let op = set(b"v", Expiry::Never);
    assert_eq!(ask(world.session(), &store, START_MS, b"key-2", op), Answer::Refused);
    world.committer.medium_mut().faults.full_after_bytes = None;
    world.commit();
    assert!(!durable.is_refusing() && durable.is_settled());
    world.set(b"key-2");
    world.commit();
    world.crash().expect("both are there");
}

#[test]
fn memory_may_grow_and_shrinks_only_to_what_is_used() {
    let disk = filled(1000);
    let grown = open_durable(disk.clone(), durable_config(IndexKind::Hash, 8 << 20), new_data());
    let Opened { store, committer, recovery } = grown.expect("more memory");
    assert_eq!(recovery.items, 1000);
    assert!(store.limits().segment_count >= 127);
    let opened = open_durable(
        committer.into_medium(),
        durable_config(IndexKind::Hash, MEMORY_BYTES),
        new_data(),
    );
    assert_eq!(opened.expect("as much as before").recovery.items, 1000);
    let mut small = World::new(5, IndexKind::Hash, Faults::default());
    small.begin_key_states();
    for id in 0..800_u64 {
        let (key, store) = (id.to_le_bytes(), Arc::clone(&small.store));
        let answer = ask(small.session(), &store, START_MS, &key, set(&[7; 2000], Expiry::Never));
        assert!(matches!(answer, Answer::Stored(_)), "{id}: {answer:?}");
    }
    small.commit();
    small.commit();
    let disk = small.committer.into_medium().crash();
    let tight = || open_durable(disk.clone(), durable_config(IndexKind::Hash, 3 << 19), new_data());
    let refused = tight().map(drop).unwrap_err();
    let DataError::Room(needed) = refused else { panic!("{refused}") };
    assert_eq!(needed.given_bytes, 3 << 19);
    assert!(needed.segments_bytes > 800 * 2000);
    let enough_bytes = needed.enough_bytes;
    assert!(enough_bytes < 2 * MEMORY_BYTES, "{enough_bytes}");
    let opened =
        open_durable(disk.clone(), durable_config(IndexKind::Hash, enough_bytes), new_data());
    assert_eq!(opened.expect("as much as was named").recovery.items, 800);
}

#[test]
fn deletes_do_not_fill_the_log() {
    let mut world = World::new(9, IndexKind::Hash, Faults::default());
    let store = Arc::clone(&world.store);
    for id in 0..40_u64 {
        let (key, op) = (format!("kept-{id}").into_bytes(), set(&[1; 2000], Expiry::Never));
        assert!(matches!(ask(world.session(), &store, START_MS, &key, op), Answer::Stored(_)));
    }
    // Fifteen times the log, in keys that are written and deleted once.
    for id in 0..400_000_u64 {
        let key = id.to_le_bytes();
        let answer = ask(world.session(), &store, START_MS, &key, set(b"12345678", Expiry::Never));
        assert!(matches!(answer, Answer::Stored(_)), "{id}: {answer:?}");
        assert_eq!(ask(world.session(), &store, START_MS, &key, Op::Delete), Answer::Nothing);
        if id % 100 == 0 {
            world.commit();
            world.session().maintain(UnixMillis(START_MS));
        }
    }
    assert_eq!(store.stats().items, 40);
    let kept = store.durable().expect("it is durable").stats().tombstone_bytes;
    assert!(kept < MEMORY_BYTES / 4 * 3, "{kept} bytes of deletes");
}

#[test]
fn another_format_and_other_bytes_are_named() {
    let config = || durable_config(IndexKind::Hash, MEMORY_BYTES);
    let noise = MemoryMedium::new(vec![0x5a; 1 << 20]);
    let refused = open_durable(noise, config(), new_data()).map(drop).unwrap_err();
    assert!(matches!(refused, DataError::NoSuperblock), "{refused}");
    let cache = StoreConfig { mode: Mode::Evict, ..config() };
    let refused = open_durable(MemoryMedium::default(), cache, new_data()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("durable store"), "{refused}");
}

/// Inspects the store from inside a write: a commit that runs meanwhile must not cover it.
struct CommitsInside<'w> {
    committer: &'w mut Committer<FaultyMedium>,
    is_settled: Option<bool>,
}

impl Sink<NoUpdate> for CommitsInside<'_> {
    fn outcome(&mut self, _index: usize, _outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.committer.begin();
        assert!(self.committer.is_ready(), "no segment was retired");
        self.committer.write().expect("a good disk");
        self.committer.sync().expect("a good disk");
        self.is_settled = Some(self.committer.durable().is_settled());
    }
}

#[test]
fn a_commit_covers_nothing_of_a_call_that_is_under_way() {
    let World { store, session, mut committer, .. } =
        World::new(1, IndexKind::Hash, Faults::default());
    let mut session = session.expect("the store is open");
    // More than a batch: the session passes quiescent points between its parts.
    let keys: Vec<[u8; 8]> = (0..30_u64).map(u64::to_le_bytes).collect();
    let requests: Vec<Request<'_, NoUpdate>> = keys
        .iter()
        .map(|key| {
            let hash = store.key_hasher().hash(key);
            Request { key, hash, op: set(b"value", Expiry::Never) }
        })
        .collect();
    let mut sink = CommitsInside { committer: &mut committer, is_settled: None };
    session.execute(UnixMillis(START_MS), &requests, &mut sink);
    assert_eq!(sink.is_settled, Some(false));
    let durable = Arc::clone(committer.durable());
    assert!(!durable.is_settled());
    committer.commit(|| unreachable!("no segment was retired")).expect("a good disk");
    assert!(durable.is_settled());
}

/// U1 of session/flush.rs.
#[test]
fn what_is_changed_during_a_flush_is_gone_where_the_flush_comes_later() {
    const KEYS: u64 = 2_000;
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let mut world = World::new(3, index, Faults::default());
        let store = Arc::clone(&world.store);
        let write_all = |world: &mut World, value: &[u8]| {
            for id in 0..KEYS {
                let (key, op) = (id.to_be_bytes(), set(value, Expiry::Never));
                let answer = ask(world.session(), &store, START_MS, &key, op);
                assert!(matches!(answer, Answer::Stored(_)), "{id}: {answer:?}");
            }
        };
        write_all(&mut world, b"before");
        let mut flush = Flush::begin(world.session()).expect("a good log");
        flush.step(world.session());
        assert!(!flush.is_over());
        write_all(&mut world, b"between");
        while !flush.is_over() {
            flush.step(world.session());
        }
        let left = store.stats().items;
        assert!((1..KEYS / 2).contains(&left), "{index:?}: {left} were written behind the flush");
        world.commit();
        world.session = None;
        world.commit_closed();
        world.commit_closed();
        let disk = world.committer.into_medium().crash();
        let opened = open_durable(disk, of_life(3, index), new_data()).expect("a good disk");
        assert_eq!(opened.recovery.items, left, "{index:?}");
    }
}
