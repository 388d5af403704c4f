//! Tests of a replica store over a durable store, with crashes at any point: each key has a value
//! that it had at or after the last commit, and after a restart the gathered entries are those that
//! are not known to be on all copies.

use std::sync::Mutex;

use store::durable::{Committer, NewData, Opened, open_replicas};
use store::medium::{Faults, FaultyMedium};
use store::{IndexKind, StoreConfig, Tuning};

use super::super::*;
use super::{Rng, config};

const KEYS: usize = 50;
const SHARDS: usize = 2;
/// Contents that mark a file which cannot be written.
const FULL: &[u8] = b"full";

/// A file that is written some time later, as by another thread.
struct Later {
    file: Arc<Mutex<Vec<u8>>>,
    given: Option<Vec<u8>>,
    /// The number of looks until it is written.
    left: u64,
    rng: Rng,
    write_count: Arc<Mutex<usize>>,
}

impl Keep for Later {
    fn give(&mut self, bytes: Vec<u8>) {
        assert!(self.given.is_none(), "one at a time");
        self.given = Some(bytes);
        self.left = self.rng.below(4);
        *self.write_count.lock().unwrap() += 1;
    }

    fn done(&mut self) -> Option<std::io::Result<()>> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        let bytes = self.given.take()?;
        let mut file = self.file.lock().unwrap();
        if *file == FULL {
            return Some(Err(std::io::ErrorKind::StorageFull.into()));
        }
        *file = bytes;
        Some(Ok(()))
    }
}

type State = Option<Arc<Entry>>;

struct World {
    replica_store: ServerReplicaStore,
    committer: Committer<FaultyMedium>,
    file: Arc<Mutex<Vec<u8>>>,
    write_count: Arc<Mutex<usize>>,
    /// The states of each key at the last commit and since.
    had: Vec<Vec<State>>,
    pending: Vec<u64>,
    rng: Rng,
}

fn open(
    medium: FaultyMedium,
    kept: Kept,
    file: &Arc<Mutex<Vec<u8>>>,
    write_count: &Arc<Mutex<usize>>,
) -> (ServerReplicaStore, Committer<FaultyMedium>) {
    let (memory_bytes, session_max, hash_seed) = (9 << 18, 1, 77);
    let config = StoreConfig { memory_bytes, session_max, hash_seed, ..config(IndexKind::Hash) };
    let new = NewData { now_ms: 1, data_id: 7, recovers_damaged: false, threads: 1 };
    let is_gone = |number: u16| kept.is_gone(number);
    let tuning = (Tuning::default(), &[][..]);
    let Opened { store, committer, .. } =
        open_replicas(medium, config, tuning, new, &is_gone, &mut |_, _| {}).unwrap();
    let (file, write_count, rng) = (Arc::clone(file), Arc::clone(write_count), Rng(3));
    let keep = Box::new(Later { file, given: None, left: 0, rng, write_count });
    (ServerReplicaStore::durable(&store, kept, keep).unwrap(), committer)
}

fn shard_of(id: usize) -> ShardId {
    ShardId((id % SHARDS) as u16)
}

impl World {
    fn new(seed: u64) -> World {
        let (file, write_count) = (Arc::default(), Arc::default());
        let medium = FaultyMedium::new(seed, Faults::default());
        let (replica_store, committer) = open(medium, Kept::new(1), &file, &write_count);
        let (had, pending) = (vec![vec![None]; KEYS], (1..=8).collect());
        World { replica_store, committer, file, write_count, had, pending, rng: Rng(seed) }
    }

    fn step(&mut self) {
        let id = self.rng.below(KEYS as u64) as usize;
        match self.rng.below(1_000) {
            0..850 => self.install(id),
            850..950 => self.commit(),
            950..980 => drop(self.replica_store.work()),
            980..995 => self.replica_store.keep_step().unwrap(),
            995..997 => self.flush(shard_of(id)),
            _ => self.clear(shard_of(id)),
        }
    }

    fn install(&mut self, id: usize) {
        let next = self.pending.iter().copied().max().unwrap_or(0) + 1;
        let place = self.rng.below(self.pending.len() as u64) as usize;
        let version = std::mem::replace(&mut self.pending[place], next);
        let len = [1, 30, 2_000][self.rng.below(3) as usize];
        let value = (self.rng.below(4) > 0).then(|| vec![version as u8; len].into());
        let key: Arc<[u8]> = format!("key {id}").into_bytes().into();
        let version = Version::from_bits(version).unwrap();
        let entry = Arc::new(Entry { value, ..Entry::delete_of(shard_of(id), key, version) });
        if self.replica_store.install(entry.clone()) == Installed::Newest {
            self.had[id].push(Some(entry));
        }
    }

    fn flush(&mut self, shard: ShardId) {
        let next = self.pending.iter().copied().max().unwrap_or(0) + 1;
        let place = self.rng.below(self.pending.len() as u64) as usize;
        let version = std::mem::replace(&mut self.pending[place], next);
        let version = Version::from_bits(version).unwrap();
        let delete = Entry::delete_of(shard, Arc::default(), version);
        let flush = Entry { is_flush: true, ..delete.clone() };
        if self.replica_store.install(Arc::new(flush)) == Installed::Older {
            return;
        }
        for id in (0..KEYS).filter(|id| shard_of(*id) == shard) {
            let newest = self.had[id].last().cloned().flatten();
            if newest.is_some_and(|newest| newest.version < version) {
                self.had[id].push(Some(Arc::new(delete.clone())));
            }
        }
    }

    /// Everything that all copies have on their media may be committed.
    fn commit(&mut self) {
        while !self.replica_store.has_kept_floors() {
            self.replica_store.keep_step().unwrap();
        }
        self.replica_store.park();
        let committed = self.committer.commit(|| unreachable!("everybody is parked"));
        self.replica_store.unpark();
        if committed.is_err() {
            return;
        }
        self.had.iter_mut().for_each(|had| drop(had.drain(..had.len() - 1)));
        let first = self.pending.iter().copied().min().unwrap_or(1);
        for shard in 0..SHARDS {
            if self.rng.below(3) == 0 {
                let through = Version::from_bits(first - 1).unwrap();
                self.replica_store.commit(ShardId(shard as u16), through);
                self.replica_store.forget_deletes(ShardId(shard as u16), through);
            }
        }
        if self.rng.below(3) == 0 {
            self.replica_store.ask_to_keep();
        }
    }

    fn clear(&mut self, shard: ShardId) {
        self.replica_store.clear(shard);
        while !self.replica_store.is_ready(shard) {
            self.replica_store.keep_step().unwrap();
            self.replica_store.work();
        }
        for id in (0..KEYS).filter(|id| shard_of(*id) == shard) {
            // Some come back, as another copy has them.
            let last = self.had[id].last().cloned().flatten();
            self.had[id] = vec![None];
            if let Some(entry) = last.filter(|entry| entry.value.is_some() && id % 3 == 0)
                && self.replica_store.install(entry.clone()) == Installed::Newest
            {
                self.had[id].push(Some(entry));
            }
        }
    }

    fn crash(&mut self, seed: u64) {
        self.replica_store.park();
        if self.rng.below(2) == 0 {
            self.committer.begin();
            let _ = self.committer.write();
        }
        let empty = FaultyMedium::new(0, Faults::default());
        let left = std::mem::replace(self.committer.medium_mut(), empty).crash();
        let medium = FaultyMedium::over(left, self.rng.below(1 << 40), Faults::default());
        let kept = Kept::decode(&self.file.lock().unwrap()).unwrap_or(Kept::new(1));
        let (replica_store, committer) = open(medium, kept.clone(), &self.file, &self.write_count);
        (self.replica_store, self.committer) = (replica_store, committer);
        let value = |state: &State| {
            let entry = state.clone().filter(|entry| entry.value.is_some())?;
            Some((entry.version, entry.value.clone()))
        };
        for id in 0..KEYS {
            let found =
                value(&self.replica_store.get(shard_of(id), format!("key {id}").as_bytes()));
            let at = self.had[id].iter().rposition(|state| value(state) == found);
            let at = at.unwrap_or_else(|| panic!("seed {seed}, key {id}: found {found:?}"));
            // The entries gathered at the last commit are gathered now, or newer ones of their
            // keys.
            let (shard, first) = (shard_of(id), self.had[id][0].clone());
            let commit = kept.commit_of(shard);
            if let Some(first) = first.filter(|first| first.version > commit && at == 0) {
                // A start walks the index once; no promotion does.
                let gathered =
                    self.replica_store.above(shard, commit, usize::MAX).expect("it is known");
                let is_there = gathered
                    .entries
                    .iter()
                    .any(|entry| entry.key == first.key && entry.version >= first.version);
                assert!(is_there || first.value.is_none(), "seed {seed}, key {id}: not gathered");
            }
            self.had[id] = vec![self.had[id][at].clone()];
        }
    }
}

#[test]
fn what_was_committed_is_on_the_replica_store_after_a_crash() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..4 {
            for _ in 0..world.rng.below(3_000) {
                world.step();
            }
            world.crash(seed);
        }
        let recovered = world.replica_store.recovered();
        assert!(recovered.iter().all(|(shard, _)| shard.index() < SHARDS));
    }
}

#[test]
fn a_replica_store_that_could_not_write_down_what_is_void_takes_nothing_until_it_can() {
    let mut world = World::new(1);
    (0..KEYS).for_each(|id| world.install(id));
    let kept = std::mem::replace(&mut *world.file.lock().unwrap(), FULL.to_vec());
    world.replica_store.clear(ShardId(0));
    let until_written = |world: &World| loop {
        assert!(
            !world.replica_store.work() && !world.replica_store.is_ready(ShardId(0)),
            "nothing is removed"
        );
        if let Err(error) = world.replica_store.keep_step() {
            return error;
        }
    };
    until_written(&world);
    let version = Version::from_bits(1 << 30).unwrap();
    let entry =
        Entry { value: Some([1].into()), ..Entry::delete_of(ShardId(0), (*b"a").into(), version) };
    let entry = Arc::new(entry);
    assert_eq!(world.replica_store.install(entry.clone()), Installed::NoRoom);
    let before = *world.write_count.lock().unwrap();
    (0..10).for_each(|_| world.replica_store.keep_step().unwrap());
    assert_eq!(*world.write_count.lock().unwrap(), before, "it is not tried before it is asked");
    world.replica_store.ask_to_keep();
    until_written(&world);
    assert_eq!(
        world.replica_store.install(entry.clone()),
        Installed::NoRoom,
        "the disk is still full"
    );
    *world.file.lock().unwrap() = kept;
    world.replica_store.ask_to_keep();
    while !world.replica_store.is_ready(ShardId(0)) {
        world.replica_store.keep_step().unwrap();
        world.replica_store.work();
    }
    assert_eq!(world.replica_store.install(entry), Installed::Newest);
}

#[test]
fn what_came_for_a_shard_that_was_cleared_waits_until_it_fits() {
    let mut world = World::new(1);
    (0..KEYS).for_each(|id| world.install(id));
    let shards = [ShardId(0), ShardId(1)];
    world.replica_store.clear(shards[0]);
    let version = Version::from_bits(1 << 30).unwrap();
    let entry =
        Entry { value: Some([1].into()), ..Entry::delete_of(shards[0], (*b"a").into(), version) };
    let entry = Arc::new(entry);
    assert_eq!(world.replica_store.install(entry.clone()), Installed::Newest, "it waits");
    while !world.replica_store.work() {
        world.replica_store.keep_step().unwrap();
    }
    // The walk has begun; meanwhile the disk is full.
    let kept = std::mem::replace(&mut *world.file.lock().unwrap(), FULL.to_vec());
    world.replica_store.clear(shards[1]);
    while world.replica_store.keep_step().is_ok() {}
    while world.replica_store.work() {}
    (0..3).for_each(|_| {
        assert!(!world.replica_store.work() && !world.replica_store.is_ready(shards[0]))
    });
    *world.file.lock().unwrap() = kept;
    world.replica_store.ask_to_keep();
    while !shards.iter().all(|shard| world.replica_store.is_ready(*shard)) {
        world.replica_store.keep_step().unwrap();
        world.replica_store.work();
    }
    assert_eq!(world.replica_store.get(shards[0], b"a"), Some(entry));
}

#[test]
fn shards_that_are_void_together_are_written_down_together_and_hold_up_no_other() {
    const COUNT: u16 = 64;
    let world = &mut World::new(2);
    // A key has one shard.
    let key = |shard: u16| format!("key {shard}").into_bytes();
    let entry = |shard, bits| {
        let version = Version::from_bits(bits).unwrap();
        let delete = Entry::delete_of(ShardId(shard), key(shard).into(), version);
        Arc::new(Entry { value: Some([1].into()), ..delete })
    };
    let install = |replica_store: &mut ServerReplicaStore, shard, bits| {
        assert_eq!(replica_store.install(entry(shard, bits)), Installed::Newest);
    };
    (0..=COUNT).for_each(|shard| install(&mut world.replica_store, shard, 7));
    (0..COUNT).for_each(|shard| world.replica_store.clear(ShardId(shard)));
    assert_eq!(*world.write_count.lock().unwrap(), 0, "nothing waits for the disk");
    install(&mut world.replica_store, COUNT, 8);
    assert_eq!(world.replica_store.get(ShardId(COUNT), &key(COUNT)), Some(entry(COUNT, 8)));
    // Entries that arrive meanwhile are there when the shard is.
    install(&mut world.replica_store, 0, 9);
    while (0..COUNT).any(|shard| !world.replica_store.is_ready(ShardId(shard))) {
        world.replica_store.keep_step().unwrap();
        world.replica_store.work();
    }
    assert_eq!(*world.write_count.lock().unwrap(), 1);
    assert_eq!(world.replica_store.get(ShardId(0), &key(0)), Some(entry(0, 9)));
    assert_eq!(world.replica_store.get(ShardId(1), &key(1)), None);
}
