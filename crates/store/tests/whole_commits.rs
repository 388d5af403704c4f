//! D7: after a crash at any point, the writes of several keys under their locks are all there or
//! none of them is. Values are moved from name to name, as by RENAME, and written to several keys
//! at once, as by MSET; some are longer than a segment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base::{KeyHash, UnixMillis};
use store::durable::backup::backup;
use store::durable::{self, Committer, DataError, NewData, Opened};
use store::medium::{Faults, FaultyMedium, Medium, MediumError, MemoryMedium};
use store::pin::Pins;
use store::{
    Condition, Expiry, IndexKind, NoUpdate, Op, Outcome, Request, Room, Session, Set, Sink, Store,
    StoreConfig,
};

use crate::support::{self, Rng};

const NOW: UnixMillis = UnixMillis(1_000_000);
/// Values that are moved; each has a name of its own at first.
const VALUES: u64 = 6;
const NAMES: u64 = 10;
/// Keys that are always written together, and have one value.
const TOGETHER: u64 = 5;

/// A medium that outlives a failed opening.
#[derive(Clone)]
struct Shared(Arc<Mutex<FaultyMedium>>);

impl Medium for Shared {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.0.lock().unwrap().write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.0.lock().unwrap().read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        self.0.lock().unwrap().sync()
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        self.0.lock().unwrap().len_bytes()
    }

    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError> {
        self.0.lock().unwrap().reserve(len_bytes)
    }
}

fn open<M: Medium>(medium: M, index: IndexKind) -> Opened<M> {
    try_open(medium, index).unwrap()
}

fn try_open<M: Medium>(medium: M, index: IndexKind) -> Result<Opened<M>, DataError> {
    let config = StoreConfig { session_max: 2, ..support::durable_config(index, 24 << 20) };
    let new = NewData { now_ms: NOW.0, data_id: 0x5678, recovers_damaged: false, threads: 2 };
    support::open_durable(medium, config, new)
}

#[derive(Default)]
struct Found(Vec<Option<Vec<u8>>>);

impl Sink<NoUpdate> for Found {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => self.0.push(Some(item.value.to_vec())),
            Outcome::OutOfMemory | Outcome::Unwritable => panic!("there is room"),
            _ => self.0.push(None),
        }
    }
}

/// The value with this number: some fit into a segment beside others, some take one, some several.
fn value(number: u64) -> Vec<u8> {
    let len = [100, 30_000, 150_000, 60_000, 400_000, 9][number as usize % 6];
    let mut value = vec![number as u8; len];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Writes of several keys, in order: a value, or a delete.
type Writes = Vec<(String, Option<Vec<u8>>)>;

/// Executes them as one step; `during` is called after the last and before the locks are released.
fn write_at_once(session: &mut Session, store: &Store, writes: &Writes, during: impl FnOnce()) {
    let hash = |key: &String| store.key_hasher().hash(key.as_bytes());
    let hashes: Vec<KeyHash> = writes.iter().map(|(key, _)| hash(key)).collect();
    let mut room = Room::default();
    let mut requests = Vec::new();
    for (key, value) in writes {
        let op: Op<'_, NoUpdate> = match value {
            Some(value) => {
                room.add(store::entry_len_max_bytes(key.len(), value.len()) as u64);
                let (expiry, condition) = (Expiry::Never, Condition::Always);
                Op::Set(Set { value, client_flags: 0, expiry, condition })
            }
            None => Op::Delete,
        };
        requests.push(Request { key: key.as_bytes(), hash: hash(key), op });
    }
    let mut locked = session.lock_keys(NOW, &hashes, room);
    locked.execute(NOW, &requests, &mut Found::default());
    during();
}

fn read(session: &mut Session, store: &Store, key: &str) -> Option<Vec<u8>> {
    let hash = store.key_hasher().hash(key.as_bytes());
    let mut found = Found::default();
    let get: Op<'_, NoUpdate> = Op::Get;
    session.execute(NOW, &[Request { key: key.as_bytes(), hash, op: get }], &mut found);
    found.0.pop().unwrap()
}

/// A store whose values have names.
struct World {
    store: Arc<Store>,
    session: Option<Session>,
    committer: Committer<FaultyMedium>,
    /// By name.
    names: BTreeMap<String, u64>,
    rng: Rng,
    index: IndexKind,
    rounds: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let index = if seed.is_multiple_of(4) { IndexKind::Tree } else { IndexKind::Hash };
        let medium = FaultyMedium::new(seed, Faults::default());
        let Opened { store, committer, .. } = open(medium, index);
        let session = Some(store.session().unwrap());
        let names = (0..VALUES).map(|number| (format!("name-{number}"), number)).collect();
        let mut world =
            World { store, session, committer, names, rng: Rng(seed), index, rounds: 0 };
        let first = world.names.iter().map(|(name, at)| (name.clone(), Some(value(*at))));
        let first: Writes = first.collect();
        world.write(&first);
        world.write_together();
        world.committer.commit(|| ()).unwrap();
        world
    }

    fn write(&mut self, writes: &Writes) {
        write_at_once(self.session.as_mut().unwrap(), &self.store, writes, || ());
        self.session.as_mut().unwrap().quiesce();
    }

    /// RENAME of one name to another that is free.
    fn moving(&mut self) -> Writes {
        let at = self.rng.below(self.names.len() as u64) as usize;
        let (old, number) =
            self.names.iter().nth(at).map(|(name, at)| (name.clone(), *at)).unwrap();
        let mut new = old.clone();
        while self.names.contains_key(&new) {
            new = format!("name-{}", self.rng.below(NAMES));
        }
        self.names.remove(&old);
        self.names.insert(new.clone(), number);
        vec![(new, Some(value(number))), (old, None)]
    }

    fn write_together(&mut self) {
        self.rounds += 1;
        let writes = (0..TOGETHER).map(|at| (format!("together-{at}"), Some(value(self.rounds))));
        self.write(&writes.collect());
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..=5 => {
                let writes = self.moving();
                self.write(&writes);
            }
            6..=7 => self.write_together(),
            8 => {
                self.session.as_mut().unwrap().maintain(NOW);
            }
            _ => {
                self.session.as_mut().unwrap().park();
                self.committer.commit(|| unreachable!("it is parked")).unwrap();
                self.session.as_mut().unwrap().unpark();
            }
        }
    }

    /// The process is killed within the writes of a commit, or the power fails.
    fn crash(&mut self) {
        self.session.as_mut().unwrap().park();
        let part = 1 + self.rng.below(1_500_000);
        let medium = self.committer.medium_mut();
        medium.faults.full_after_bytes = Some(medium.written_bytes() + part);
        self.committer.begin();
        assert!(self.committer.is_ready());
        let _ = self.committer.write();
        let is_kill = self.rng.below(2) == 0;
        let medium =
            std::mem::replace(self.committer.medium_mut(), FaultyMedium::new(0, Faults::default()));
        let left = if is_kill { medium.kill() } else { medium.crash() };
        self.reopen(left);
    }

    fn reopen(&mut self, left: MemoryMedium) {
        self.session = None;
        let medium = FaultyMedium::over(left, self.rng.below(1 << 40), Faults::default());
        let Opened { store, committer, .. } = open(medium, self.index);
        self.session = Some(store.session().unwrap());
        (self.store, self.committer) = (store, committer);
        self.check();
    }

    /// Every value has one name, and keys that are written together have one value.
    fn check(&mut self) {
        let (store, session) = (Arc::clone(&self.store), self.session.as_mut().unwrap());
        self.names.clear();
        for name in (0..NAMES).map(|at| format!("name-{at}")) {
            let Some(found) = read(session, &store, &name) else { continue };
            let number = u64::from_le_bytes(*found.first_chunk().unwrap());
            assert_eq!(found, value(number));
            self.names.insert(name, number);
        }
        let mut numbers: Vec<u64> = self.names.values().copied().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..VALUES).collect::<Vec<_>>(), "each value has one name");
        let together = (0..TOGETHER).map(|at| read(session, &store, &format!("together-{at}")));
        let together: Vec<_> = together.collect();
        assert!(together.iter().all(|found| found.is_some() && *found == together[0]));
    }
}

#[test]
fn writes_of_several_keys_are_there_whole_or_not_at_all_after_a_crash() {
    let (lives, crashes) = if cfg!(miri) { (1, 1) } else { (40, 12) };
    for seed in 1..=lives {
        let mut world = World::new(seed);
        for _ in 0..crashes {
            for _ in 0..world.rng.below(12) {
                world.step();
            }
            world.crash();
        }
    }
}

/// A crash while a recovery writes down what it has found.
#[test]
fn a_recovery_that_is_interrupted_is_followed_by_one_that_finds_the_same() {
    for seed in 1..=40 {
        let mut world = World::new(seed);
        (0..6).for_each(|_| world.step());
        world.session.as_mut().unwrap().park();
        world.committer.begin();
        let part = world.rng.below(600_000);
        let medium = world.committer.medium_mut();
        medium.faults.full_after_bytes = Some(medium.written_bytes() + part);
        let _ = world.committer.write();
        let mut left = world.committer.medium_mut().clone().crash();
        for _ in 0..4 {
            // The disk is full somewhere within the rows that the recovery writes.
            let full_after_bytes = Some(world.rng.below(1_000));
            let faults = Faults { full_after_bytes, ..Faults::default() };
            let medium = FaultyMedium::over(left, world.rng.below(1 << 40), faults);
            let shared = Shared(Arc::new(Mutex::new(medium)));
            let _ = try_open(shared.clone(), world.index);
            left = shared.0.lock().unwrap().clone().crash();
        }
        world.reopen(left);
    }
}

/// A commit while several keys are being written has none of these writes.
#[test]
fn a_commit_beside_writes_of_several_keys_has_none_of_them() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let Opened { store, mut committer, .. } = open(MemoryMedium::default(), index);
        let mut session = store.session().unwrap();
        let (old, new) = (String::from("old"), String::from("new"));
        write_at_once(&mut session, &store, &vec![(old.clone(), Some(value(4)))], || ());
        committer.commit(|| ()).unwrap();
        // Runs of segments are closed as soon as they are written.
        let writes = vec![(new, Some(value(4))), (old.clone(), Some(value(2))), (old, None)];
        write_at_once(&mut session, &store, &writes, || {
            committer.commit(|| ()).unwrap();
        });
        let left = committer.into_medium();
        drop(session);
        let Opened { store, .. } = open(left, index);
        let mut session = store.session().unwrap();
        assert_eq!(read(&mut session, &store, "old"), Some(value(4)));
        assert_eq!(read(&mut session, &store, "new"), None);
    }
}

#[test]
fn a_backup_has_writes_of_several_keys_whole() {
    for seed in 1..=40 {
        let mut world = World::new(seed);
        (0..world.rng.below(9)).for_each(|_| world.step());
        world.session.as_mut().unwrap().park();
        // The copy is made between two writes of a commit.
        world.committer.begin();
        let part = 1 + world.rng.below(900_000);
        let medium = world.committer.medium_mut();
        medium.faults.full_after_bytes = Some(medium.written_bytes() + part);
        let _ = world.committer.write();
        let source = world.committer.medium_mut().clone().kill();
        let mut target = MemoryMedium::default();
        let copied = backup(&source, &mut target, &mut |_, _| {}).unwrap();
        assert!(!copied.has_parts);
        world.reopen(target);
    }
}

/// `to`, with the entries of the segments that `is_taken` names as `from` has them; rows stay.
fn with_entries(
    to: &MemoryMedium,
    from: &MemoryMedium,
    superblock: &durable::Superblock,
    is_taken: impl Fn(u32) -> bool,
) -> MemoryMedium {
    let mut mixed = to.clone();
    let mut bytes = vec![0; superblock.segment_bytes as usize];
    for segment in (0..superblock.segment_count).filter(|segment| is_taken(*segment)) {
        let offset = superblock.segment_offset(segment);
        from.read_at(offset, &mut bytes).unwrap();
        mixed.write_at(offset, &bytes).unwrap();
    }
    mixed
}

/// A start goes on in the segments that it finds, where a commit that does not count may have left
/// entries.
#[test]
fn entries_of_a_commit_that_does_not_count_are_never_taken_for_those_of_the_next() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let Opened { store, mut committer, .. } = open(MemoryMedium::default(), index);
        let mut session = store.session().unwrap();
        // The values and the deletes are in different segments.
        let names = [("old-1", "new-1", value(3)), ("old-2", "new-2", value(9))];
        let moving = |at: usize| {
            let (old, new, value) = &names[at];
            vec![(new.to_string(), Some(value.clone())), (old.to_string(), None)]
        };
        let first = names.each_ref().map(|(old, _, value)| (old.to_string(), Some(value.clone())));
        write_at_once(&mut session, &store, &first.to_vec(), || ());
        write_at_once(&mut session, &store, &vec![("short".into(), Some(value(0)))], || ());
        session.park();
        committer.commit(|| ()).unwrap();
        drop(session);

        let Opened { store, mut committer, .. } = open(committer.into_medium(), index);
        let mut session = store.session().unwrap();
        let before = committer.medium().clone();
        write_at_once(&mut session, &store, &moving(0), || ());
        session.park();
        committer.commit(|| ()).unwrap();
        let superblock = *committer.superblock();
        // The power fails: the disk has all entries of the last commit and none of its rows.
        let left = with_entries(&before, committer.medium(), &superblock, |_| true);
        drop(session);

        let Opened { store, mut committer, .. } = open(left, index);
        let mut session = store.session().unwrap();
        let before = committer.medium().clone();
        write_at_once(&mut session, &store, &moving(1), || ());
        session.park();
        committer.commit(|| ()).unwrap();
        // It fails again: the disk has all rows, and the new entries of all segments but one.
        for lost in 0..superblock.segment_count {
            let left = with_entries(committer.medium(), &before, &superblock, |at| at == lost);
            let Opened { store, .. } = open(left, index);
            let mut session = store.session().unwrap();
            for (old, new, value) in &names {
                let found = [old, new].map(|name| read(&mut session, &store, name));
                let has_one = found.iter().flatten().collect::<Vec<_>>() == [value];
                assert!(has_one, "{old} and {new} without the entries of segment {lost}");
            }
        }
    }
}
