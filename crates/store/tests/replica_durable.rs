//! Tests of replicas in a durable store, with crashes at any point: after each crash, every key has
//! a value that it had at or after the last commit. Versions come from outside, in any order;
//! shards are dropped as a whole and return under another number with the versions that they had.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

use base::UnixMillis;
use store::durable::checkpoint::{Checkpoint, Checkpointer};
use store::durable::{Beside, Committer, NewData, Opened, UsedCheckpoint, open_with};
use store::medium::{Faults, FaultyMedium};
use store::pin::Pins;
use store::{
    IndexKind, Installed, NoUpdate, NotInstalled, Op, Outcome, Replica, ReplicaChange, Request,
    Session, Sink, Store, StoreConfig, Sweep, Tuning,
};

use crate::support::{self, Rng};

const KEYS: u64 = 60;
const SHARDS: usize = 2;
const EPOCH: u64 = 9 << 32;

#[derive(Default)]
struct Read(Option<(Vec<u8>, u64)>);

impl Sink<NoUpdate> for Read {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.0 = Some((item.value.to_vec(), item.version));
        }
    }
}

/// The states of a key since the last commit, the committed one first.
#[derive(Clone, Debug, PartialEq)]
struct Had {
    version: u64,
    value: Option<Vec<u8>>,
    ends_ms: u64,
}

const NOTHING: Had = Had { version: 0, value: None, ends_ms: u64::MAX };

struct World {
    store: Arc<Store>,
    session: Option<Session>,
    committer: Committer<FaultyMedium>,
    had: Vec<Vec<Had>>,
    /// The shards' present numbers, and the numbers that are gone: recorded before anything else.
    numbers: [u16; SHARDS],
    gone: BTreeSet<u16>,
    /// Versions that were assigned and not installed yet.
    pending: Vec<u64>,
    now_ms: u64,
    rng: Rng,
    index: IndexKind,
    cleaned_bytes: u64,
    recovered_deletes: usize,
    /// A checkpoint under way, and the collected one.
    next: Option<(Checkpointer, Option<Checkpoint>)>,
    takes_checkpoints: bool,
    kept: Option<Checkpoint>,
    used: u64,
}

fn open(
    medium: FaultyMedium,
    index: IndexKind,
    gone: &BTreeSet<u16>,
    checkpoint: Option<&Checkpoint>,
) -> Opened<FaultyMedium> {
    let config = StoreConfig { session_max: 3, ..support::durable_config(index, 9 << 18) };
    let new = NewData { now_ms: 1, data_id: 7, recovers_damaged: false, threads: 3 };
    let is_gone = |shard: u16| gone.contains(&shard);
    let beside = Beside { is_gone: &is_gone, checkpoint: checkpoint.cloned().map(Ok) };
    open_with(medium, config, (Tuning::default(), &[]), new, beside, &mut |_, _| {})
        .expect("what a crash leaves opens")
}

fn key_of(id: usize) -> Vec<u8> {
    format!("key-{id}").into_bytes()
}

impl World {
    fn new(seed: u64, index: IndexKind) -> World {
        let medium = FaultyMedium::new(seed, Faults::default());
        let Opened { store, committer, .. } = open(medium, index, &BTreeSet::new(), None);
        World {
            session: Some(store.session().expect("a place")),
            store,
            committer,
            had: vec![vec![NOTHING]; KEYS as usize],
            numbers: [1, 2],
            gone: BTreeSet::new(),
            pending: (EPOCH + 1..=EPOCH + 10).collect(),
            now_ms: 1_000,
            rng: Rng(seed),
            index,
            cleaned_bytes: 0,
            recovered_deletes: 0,
            next: None,
            // A tree has no checkpoints yet.
            takes_checkpoints: seed.is_multiple_of(2) && index == IndexKind::Hash,
            kept: None,
            used: 0,
        }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("the store is open")
    }

    fn step(&mut self) {
        let id = self.rng.below(KEYS) as usize;
        match self.rng.below(1_000) {
            0..=799 => self.install(id),
            800..=919 => self.commit(),
            920..=949 => self.now_ms += self.rng.below(400),
            990..=997 if self.takes_checkpoints => self.step_checkpoint(),
            950..=997 => {
                let now = UnixMillis(self.now_ms);
                self.session().maintain(now);
            }
            _ => self.clear(self.rng_shard()),
        }
    }

    fn step_checkpoint(&mut self) {
        match &mut self.next {
            None => {
                let mut next = self.committer.checkpointer();
                next.begin();
                self.next = Some((next, None));
            }
            Some((next, collected @ None)) if next.is_ready() => *collected = next.collect(),
            Some(_) => {}
        }
    }

    fn rng_shard(&self) -> usize {
        self.now_ms as usize % SHARDS
    }

    fn install(&mut self, id: usize) {
        let next = self.pending.iter().copied().max().unwrap_or(EPOCH) + 1;
        let place = self.rng.below(self.pending.len() as u64) as usize;
        let version = std::mem::replace(&mut self.pending[place], next);
        let len = [0, 7, 900, 3_000][self.rng.below(4) as usize];
        let (is_put, expires) = (self.rng.below(4) > 0, self.rng.below(6) == 0);
        let ends_ms = if expires { self.now_ms + 1 + self.rng.below(600) } else { u64::MAX };
        let value = is_put.then(|| vec![version as u8; len]);
        self.install_as(id, Had { version, value, ends_ms });
    }

    fn install_as(&mut self, id: usize, new: Had) {
        // Like the replica store, which remembers the versions of deletes.
        let newest = self.had[id].last().map_or(0, |had| had.version);
        if new.version <= newest {
            return;
        }
        let (store, now) = (Arc::clone(&self.store), UnixMillis(self.now_ms));
        let key = key_of(id);
        let change = match &new.value {
            Some(value) => {
                let expires_at = (new.ends_ms < u64::MAX).then_some(UnixMillis(new.ends_ms));
                ReplicaChange::Put { value, client_flags: 0, expires_at }
            }
            None => ReplicaChange::Delete,
        };
        let hash = store.key_hasher().hash(&key);
        let shard = NonZeroU16::new(self.numbers[id % SHARDS]).expect("not 0");
        let replica = Replica { key: &key, hash, change, version: new.version, shard };
        match self.session().install(now, &replica) {
            Ok(Installed::Newest) => self.had[id].push(new),
            Err(NotInstalled::OutOfMemory { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Drops the shard, and reinstalls some of it as from another copy.
    fn clear(&mut self, shard: usize) {
        let number = self.numbers[shard];
        self.gone.insert(number);
        self.numbers[shard] = number + SHARDS as u16;
        let mut sweep = Sweep::default();
        while self.session().sweep_step(&mut sweep, |shard, _| shard == number) {}
        for id in (0..KEYS as usize).filter(|id| id % SHARDS == shard) {
            let last = self.had[id].last().cloned().unwrap_or(NOTHING);
            self.had[id] = vec![NOTHING];
            if last.value.is_some() && self.rng.below(2) == 0 {
                self.install_as(id, last);
            }
        }
    }

    fn seen(&self, had: &Had) -> Option<(Vec<u8>, u64)> {
        let value = had.value.clone().filter(|_| had.ends_ms > self.now_ms)?;
        Some((value, had.version))
    }

    fn read(&mut self, id: usize) -> Option<(Vec<u8>, u64)> {
        let (key, now) = (key_of(id), UnixMillis(self.now_ms));
        let hash = self.store.key_hasher().hash(&key);
        let mut read = Read::default();
        let request = Request { key: &key, hash, op: Op::<NoUpdate>::Get };
        self.session().execute(now, &[request], &mut read);
        read.0
    }

    fn commit(&mut self) {
        self.session().park();
        let committed = self.committer.commit(|| unreachable!("everybody is parked"));
        self.session().unpark();
        if committed.is_ok() {
            self.had.iter_mut().for_each(|had| drop(had.drain(..had.len() - 1)));
            if let Some((_, Some(checkpoint))) = self.next.take_if(|(_, next)| next.is_some()) {
                self.kept = Some(checkpoint);
            }
        }
    }

    fn crash(&mut self, seed: u64) {
        self.session().park();
        if self.rng.below(2) == 0 {
            self.committer.begin();
            assert!(self.committer.is_ready());
            let _ = self.committer.write();
        }
        self.cleaned_bytes += self.store.stats().cleaned_bytes;
        self.session = None;
        let empty = FaultyMedium::new(0, Faults::default());
        let left = std::mem::replace(self.committer.medium_mut(), empty).crash();
        let medium = FaultyMedium::over(left, self.rng.below(1 << 40), Faults::default());
        self.next = None;
        let Opened { store, committer, recovery } =
            open(medium, self.index, &self.gone, self.kept.as_ref());
        if let UsedCheckpoint::Ignored(error) = &recovery.checkpoint {
            panic!("seed {seed}: a good checkpoint is ignored: {error}");
        }
        self.used += u64::from(recovery.checkpoint != UsedCheckpoint::None);
        store.validate();
        self.session = Some(store.session().expect("a place"));
        (self.store, self.committer) = (store, committer);
        let deletes: BTreeMap<Vec<u8>, u64> = self
            .store
            .take_recovered_deletes()
            .into_iter()
            .map(|delete| (delete.key.into_vec(), delete.version))
            .collect();
        self.recovered_deletes += deletes.len();
        for id in 0..KEYS as usize {
            let (found, had) = (self.read(id), self.had[id].clone());
            let at = had.iter().rposition(|had| self.seen(had) == found);
            let at = at.unwrap_or_else(|| panic!("seed {seed}, key {id}: {found:?}, had {had:?}"));
            let version = deletes.get(&key_of(id)).copied().unwrap_or(0);
            assert!(version <= had.last().map_or(0, |had| had.version), "seed {seed}, key {id}");
            self.had[id] = vec![had[at].clone()];
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "many steps of safe code")]
fn no_committed_replica_is_lost_and_nothing_comes_back() {
    let (mut cleaned_bytes, mut deletes, mut used) = (0, 0, 0);
    for seed in 0..60 {
        let index = if seed % 4 == 3 { IndexKind::Tree } else { IndexKind::Hash };
        let mut world = World::new(seed, index);
        for _ in 0..4 {
            for _ in 0..world.rng.below(4_000) {
                world.step();
            }
            world.crash(seed);
        }
        cleaned_bytes += world.cleaned_bytes;
        deletes += world.recovered_deletes;
        used += world.used;
    }
    assert!(cleaned_bytes > 1 << 20, "only {cleaned_bytes} bytes were cleaned");
    assert!(deletes > 100, "only {deletes} deletes were found again");
    assert!(used > 10, "only {used} checkpoints were used");
}
