//! Tests: the replica store over a store gives the same answers to the same calls as the one in
//! plain maps.

mod crash;
mod digest;

use std::sync::atomic::{AtomicBool, Ordering};

use base::UnixMillis;
use cluster::{MemoryReplicaStore, NodeId, Term};
use store::{Eviction, HugePages, IndexKind, Mode, StoreConfig};

use super::*;

const SHARDS: u64 = 3;
/// Digest threads, where there are any: fewer than shards, so that one has two.
const DIGEST_THREADS: usize = 2;

fn config(index: IndexKind) -> StoreConfig {
    StoreConfig {
        memory_bytes: 32 << 20,
        index_bytes: 64 << 10,
        index,
        mode: Mode::Clean,
        eviction: Eviction::default(),
        lossy_index: false,
        session_max: 3 + DIGEST_THREADS,
        item_max_bytes: 1 << 20,
        hash_seed: 5,
        batch: 8,
        huge_pages: HugePages::Off,
    }
}

fn open(index: IndexKind) -> Arc<Store> {
    Store::open(config(index)).unwrap()
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) >> 11) % bound
    }
}

fn version(bits: u64) -> Version {
    Version::from_bits(bits).unwrap()
}

fn put(shard: ShardId, key: &str, version_bits: u64) -> Arc<Entry> {
    let value = version_bits.to_le_bytes().repeat(1 + version_bits as usize % 5);
    let delete = Entry::delete_of(shard, key.as_bytes().into(), version(version_bits));
    Arc::new(Entry { value: Some(value.into()), client_flags: 7, ..delete })
}

/// Both replica stores, and what the node would know.
struct Pair {
    tested: ServerReplicaStore,
    model: MemoryReplicaStore,
    commits: [u64; SHARDS as usize],
    /// Versions of writes that are not on all copies yet.
    pending: Vec<u64>,
    digest_threads: usize,
    /// The number of entries that are still to be installed, and what is known of them.
    later_count: usize,
    done: Vec<Done>,
    rng: Rng,
}

impl Pair {
    fn new(index: IndexKind, seed: u64, digest_threads: usize) -> Pair {
        let mut tested = ServerReplicaStore::new(&open(index)).unwrap();
        tested.employ(digest_threads, &digest::ring_nothing()).unwrap();
        let (model, commits) = (MemoryReplicaStore::default(), [1 << 32; SHARDS as usize]);
        let pending = ((1 << 32) + 1..=(1 << 32) + 40).collect();
        let (done, rng) = (Vec::new(), Rng(seed));
        Pair { tested, model, commits, pending, digest_threads, later_count: 0, done, rng }
    }

    fn key(&mut self) -> (ShardId, String) {
        let number = self.rng.below(2_000);
        (ShardId((number % SHARDS) as u16), format!("key {number}"))
    }

    fn step(&mut self) {
        let (shard, key) = self.key();
        let commit = self.commits[shard.index()];
        match self.rng.below(1_000) {
            0 => {
                self.tested.clear(shard);
                self.model.clear(shard);
                self.commits[shard.index()] = 1 << 32;
            }
            1..30 => {
                let first = self.pending.iter().copied().min().unwrap_or(0);
                let through = commit + self.rng.below(first - commit);
                self.commits[shard.index()] = through;
                self.tested.commit(shard, version(through));
                self.model.commit(shard, version(through));
                self.tested.forget_deletes(shard, version(through));
                self.model.forget_deletes(shard, version(through));
            }
            30..40 => self.compare_above(shard, commit),
            40..45 => self.compare_parts(shard),
            45..48 => self.flush(shard),
            48..90 => self.install_group(shard),
            kind => {
                // Above CommitVer in any order, as a node receives them.
                let next = self.pending.iter().copied().max().unwrap_or(0) + 1;
                let place = self.rng.below(self.pending.len() as u64) as usize;
                let entry = put(shard, &key, std::mem::replace(&mut self.pending[place], next));
                let entry = match kind % 4 {
                    0 => Arc::new(Entry { value: None, client_flags: 0, ..(*entry).clone() }),
                    _ => entry,
                };
                let is_ready = self.tested.is_ready(shard);
                let is_newer = self.model.install(entry.clone());
                let installed = self.install(kind, entry);
                assert!(installed == is_newer || installed == Installed::Later || !is_ready);
            }
        }
        self.tested.work();
        let (shard, key) = self.key();
        // Reading a shard waits for its digest thread: reads are rare, so that the thread has work.
        let looks = self.digest_threads == 0 || self.rng.below(50) == 0;
        if looks && self.tested.is_ready(shard) {
            let tested = self.tested.get(shard, key.as_bytes());
            assert_eq!(tested, self.model.get(shard, key.as_bytes()));
        }
    }

    /// Installs an entry in one of the three ways in which entries arrive.
    fn install(&mut self, kind: u64, entry: Arc<Entry>) -> Installed {
        let landed = digest::landed(&entry, false);
        let installed = match kind % 7 {
            0 => self.tested.install(entry),
            1..3 => self.tested.take_in_entry(landed, &entry),
            _ => self.tested.take_in(landed, &entry.as_plain()),
        };
        self.later_count += usize::from(installed == Installed::Later);
        if kind.is_multiple_of(11) {
            self.tested.hand_on();
        }
        if self.tested.has_digested() {
            self.tested.take_done(&mut self.done);
        }
        installed
    }

    /// Installs puts and deletes of some keys, of which two may be the same, as a group.
    fn install_group(&mut self, shard: ShardId) {
        let mut entries = Vec::new();
        for _ in 0..1 + self.rng.below(5) {
            let number = self.rng.below(2_000 / SHARDS) * SHARDS + u64::from(shard.0);
            let next = self.pending.iter().copied().max().unwrap_or(0) + 1;
            let entry = put(shard, &format!("key {number}"), next);
            entries.push(match self.rng.below(4) {
                0 => Arc::new(Entry { value: None, client_flags: 0, ..(*entry).clone() }),
                _ => entry,
            });
            let place = self.rng.below(self.pending.len() as u64) as usize;
            self.pending[place] = next + 1;
        }
        assert_eq!(self.tested.install_all(&entries), self.model.install_all(&entries));
    }

    fn flush(&mut self, shard: ShardId) {
        self.finish_clearing();
        let next = self.pending.iter().copied().max().unwrap_or(0) + 1;
        let place = self.rng.below(self.pending.len() as u64) as usize;
        let bits = std::mem::replace(&mut self.pending[place], next);
        let delete = Entry::delete_of(shard, Arc::default(), version(bits));
        let flush = Arc::new(Entry { is_flush: true, ..delete });
        assert_eq!(self.tested.install(flush.clone()), self.model.install(flush));
        assert!(self.tested.take_flushed() || self.tested.floor(shard) > version(bits));
    }

    fn finish_clearing(&self) {
        let is_left =
            |shard: ShardId| !self.tested.is_ready(shard) || self.tested.is_flushing(shard);
        while (0..SHARDS).any(|shard| is_left(ShardId(shard as u16))) {
            self.tested.work();
        }
    }

    fn compare_above(&mut self, shard: ShardId, floor: u64) {
        self.finish_clearing();
        let mut tested = above(&self.tested, shard, floor);
        tested.sort_by_key(|entry| entry.version);
        assert_eq!(tested, self.model.all_above(shard, version(floor)));
    }

    fn compare_parts(&mut self, shard: ShardId) {
        self.finish_clearing();
        let walk = |replica_store: &dyn ReplicaStore| {
            let (mut cursor, mut found) = (0, BTreeMap::new());
            loop {
                let part = replica_store.part(shard, cursor, 100);
                found.extend(part.entries.into_iter().map(|entry| (entry.key.clone(), entry)));
                match part.next {
                    Some(next) => cursor = next,
                    None => return found,
                }
            }
        };
        assert_eq!(walk(&self.tested), walk(&self.model));
        let live = walk(&self.model).into_values().filter(|entry| entry.value.is_some());
        let store = self.tested.state.borrow().store.clone();
        assert_eq!(self.tested.numbers().key_count(&store, shard), live.count() as u64);
    }
}

/// All entries of a shard above a version, slice by slice, however long the replica store takes.
fn above(replica_store: &ServerReplicaStore, shard: ShardId, floor: u64) -> Vec<Arc<Entry>> {
    let (mut floor, mut entries) = (version(floor), Vec::new());
    loop {
        let Some(above) = replica_store.above(shard, floor, 100) else {
            assert!(replica_store.work(), "it looks for them");
            continue;
        };
        assert!(above.entries.len() <= 101);
        entries.extend(above.entries);
        match above.next {
            Some(next) => floor = next,
            None => return entries,
        }
    }
}

fn check(index: IndexKind, seed: u64, digest_threads: usize) -> Pair {
    let mut pair = Pair::new(index, seed, digest_threads);
    for _ in 0..20_000 {
        pair.step();
    }
    for shard in 0..SHARDS {
        let shard = ShardId(shard as u16);
        pair.compare_parts(shard);
        pair.compare_above(shard, 0);
    }
    assert_eq!(pair.tested.refused_count(), 0);
    pair
}

#[test]
fn it_answers_as_the_one_in_plain_maps_does() {
    for seed in 1..4 {
        check(IndexKind::Hash, seed, 0);
        check(IndexKind::Tree, seed, 0);
    }
}

#[test]
fn recent_versions_that_are_too_many_are_found_by_a_walk() {
    let mut replica_store = ServerReplicaStore::new(&open(IndexKind::Hash)).unwrap();
    let shard = ShardId(1);
    for number in 1..=30_000 {
        replica_store.install(put(shard, &format!("key {number}"), number));
    }
    assert_eq!(replica_store.above(shard, version(10_000), 100), None);
    assert_eq!(above(&replica_store, shard, 10_000).len(), 20_000);
    replica_store.commit(shard, version(29_999));
    assert_eq!(above(&replica_store, shard, 29_999).len(), 1);
}

#[test]
fn one_walk_over_the_index_finds_the_versions_of_all_shards_that_ask() {
    let steps_for = |shards: u16| {
        let mut replica_store = ServerReplicaStore::new(&open(IndexKind::Hash)).unwrap();
        for number in 1..=32_000 {
            let shard = ShardId(number as u16 % 2);
            replica_store.install(put(shard, &format!("key {number}"), number));
        }
        for _ in 0..3 {
            // Asked again and again, as when no answer arrives.
            for shard in 0..shards {
                assert_eq!(replica_store.above(ShardId(shard), version(0), 100), None);
            }
            replica_store.work();
        }
        for shard in 0..shards {
            assert_eq!(above(&replica_store, ShardId(shard), 0).len(), 16_000);
        }
        replica_store.state.borrow().finding.step_count
    };
    let steps = steps_for(1);
    assert!(steps > 32_000 / 600, "{steps} steps are not bounded");
    // Stores differ in their hashes, so that a step may end a chain earlier or later.
    assert!(steps_for(2) <= steps + 2);
}

#[test]
fn a_walk_counts_for_nothing_if_recent_versions_were_lost_meanwhile() {
    let mut remembered = Remembered::default();
    remembered.begin_above(version(100_000));
    remembered.begin_finding(version(0));
    for number in 1..=20_000 {
        let key = format!("key {number}");
        remembered.add(key.as_bytes(), None, version(number), Why::Deleted);
    }
    remembered.end_finding(vec![(version(100_000), b"found".as_slice().into())]);
    assert!(remembered.recent_above(version(50_000)).is_none());
    assert!(remembered.recent_above(version(100_000)).is_some());
}

#[test]
fn what_is_installed_while_the_index_is_walked_is_found() {
    let mut replica_store = ServerReplicaStore::new(&open(IndexKind::Hash)).unwrap();
    let shard = ShardId(1);
    (1..=30_000).for_each(|number| {
        replica_store.install(put(shard, &format!("key {number}"), 2 * number));
    });
    assert_eq!(replica_store.above(shard, version(0), 100), None);
    (1..=200).for_each(|number| {
        replica_store.work();
        // A new key, older than many; a newer version of one; a delete.
        replica_store.install(put(shard, &format!("new {number}"), 2 * number + 1));
        replica_store.install(put(shard, &format!("key {number}"), 100_000 + number));
        let key = format!("key {}", 1_000 + number);
        let delete = Entry::delete_of(shard, key.as_bytes().into(), version(200_000 + number));
        replica_store.install(Arc::new(delete));
    });
    let found = above(&replica_store, shard, 0);
    assert_eq!(found.len(), 30_000 + 200);
    let bits = |entry: &Arc<Entry>| entry.version.bits();
    assert!(found.iter().map(bits).is_sorted());
    assert_eq!(found.iter().filter(|entry| bits(entry) % 2 == 1 && bits(entry) < 500).count(), 200);
    assert_eq!(found.iter().filter(|entry| bits(entry) > 100_000).count(), 400);
}

#[test]
fn what_expires_keeps_older_entries_away_until_these_cannot_come() {
    let mut replica_store = ServerReplicaStore::new(&open(IndexKind::Hash)).unwrap();
    let shard = ShardId(0);
    replica_store.set_now(UnixMillis(1_000));
    let entry = put(shard, "k", 9);
    let expires_at = Some(UnixMillis(2_000));
    replica_store.install(Arc::new(Entry { expires_at, ..(*entry).clone() }));
    replica_store.set_now(UnixMillis(600_000));
    let (store, numbers) = (replica_store.state.borrow().store.clone(), replica_store.numbers());
    while numbers.key_count(&store, shard) > 0 {
        let now = replica_store.state.borrow().now;
        replica_store.set_now(UnixMillis(now.0 + 1_000));
        replica_store.work();
    }
    assert_eq!(replica_store.install(put(shard, "k", 8)), Installed::Older);
    assert_eq!(replica_store.get(shard, b"k"), None);
}

#[test]
fn readers_beside_see_whole_entries_and_versions_that_only_grow() {
    let store = open(IndexKind::Hash);
    let mut replica_store = ServerReplicaStore::new(&store).unwrap();
    let (is_over, shard) = (AtomicBool::new(false), ShardId(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = store.session().unwrap();
            let mut newest = version(0);
            while !is_over.load(Ordering::Relaxed) {
                let hash = store.key_hasher().hash(b"k 0");
                let request = Request { key: b"k 0", hash, op: Op::<NoUpdate>::Get };
                let mut found = Found { shard, number: NonZeroU16::MIN, entry: None };
                session.execute(UnixMillis(0), &[request], &mut found);
                let Some(entry) = found.entry else { continue };
                assert_eq!(entry.value, put(shard, "k 0", entry.version.bits()).value);
                assert!(entry.version >= newest);
                newest = entry.version;
            }
        });
        for number in 1..50_000 {
            replica_store.install(put(shard, &format!("k {}", number % 5), number));
            if number % 100 == 0 {
                replica_store.work();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_part_of_large_values_is_short() {
    let store = open(IndexKind::Hash);
    let mut replica_store = ServerReplicaStore::new(&store).unwrap();
    let value: Arc<[u8]> = vec![7; 256 << 10].into();
    for number in 1..=64 {
        let key = format!("k{number}");
        let delete = Entry::delete_of(ShardId(0), key.as_bytes().into(), version(number));
        let entry = Entry { value: Some(value.clone()), ..delete };
        assert_eq!(replica_store.install(Arc::new(entry)), Installed::Newest);
    }
    let (mut cursor, mut count) = (0, 0);
    loop {
        let part = replica_store.part(ShardId(0), cursor, 256);
        assert!(part.entries.len() <= 16, "{} at once", part.entries.len());
        count += part.entries.len();
        match part.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert_eq!(count, 64);
}
