//! Tests of replicated entries against a model: of each key the highest version counts, concurrent
//! readers never see a version go back or half a value, and a swept shard is gone.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};

use base::UnixMillis;
use store::pin::Pins;
use store::{
    IndexKind, Installed, Mode, NoUpdate, NotInstalled, Op, Outcome, Replica, ReplicaChange,
    Request, Session, Sink, Store, StoreConfig, Sweep,
};

use crate::support::{self, Rng};

const NOW: UnixMillis = UnixMillis(1_000_000);

fn open(index: IndexKind, memory_bytes: u64) -> std::sync::Arc<Store> {
    let config = StoreConfig {
        memory_bytes,
        index_bytes: 64 << 10,
        session_max: 3,
        hash_seed: 5,
        batch: 8,
        ..support::config(index, Mode::Clean)
    };
    Store::open(config).expect("a store")
}

#[derive(Default)]
struct Read(Option<(Vec<u8>, u64, u16)>);

impl Sink<NoUpdate> for Read {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0 = match outcome {
            Outcome::Hit(item) => Some((item.value.to_vec(), item.version, item.shard)),
            _ => None,
        };
    }
}

fn get(store: &Store, session: &mut Session, key: &[u8]) -> Option<(Vec<u8>, u64, u16)> {
    let request = Request { key, hash: store.key_hasher().hash(key), op: Op::<NoUpdate>::Get };
    let mut read = Read::default();
    session.execute(NOW, &[request], &mut read);
    read.0
}

fn install(
    store: &Store,
    session: &mut Session,
    key: &[u8],
    value: Option<&[u8]>,
    (version, shard): (u64, u16),
) -> Result<Installed, NotInstalled> {
    let change = match value {
        Some(value) => ReplicaChange::Put { value, client_flags: 0, expires_at: None },
        None => ReplicaChange::Delete,
    };
    let (hash, shard) = (store.key_hasher().hash(key), NonZeroU16::new(shard).expect("not 0"));
    session.install(NOW, &Replica { key, hash, change, version, shard })
}

/// A value that repeats its version, so that a mixture shows.
fn value_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(1 + version as usize % 9)
}

fn check_model(index: IndexKind, seed: u64) {
    let store = open(index, 16 << 20);
    let mut session = store.session().expect("a place");
    session.count_shards();
    let (mut rng, mut model) = (Rng(seed), BTreeMap::<Vec<u8>, (u64, u16)>::new());
    let step_count = if cfg!(miri) { 100 } else { 40_000 };
    for step in 0..step_count {
        let key = format!("key {}", rng.below(3_000)).into_bytes();
        let shard = 1 + u16::from(key[key.len() - 1] % 4);
        // Versions come in any order, from an epoch far above the chain's own counter.
        let version = (3 << 32) + 1 + rng.below(100_000);
        let is_newer = model.get(&key).is_none_or(|(present, _)| *present < version);
        let is_put = rng.below(8) > 0;
        let value = value_of(version);
        let put = is_put.then_some(&value[..]);
        let installed = install(&store, &mut session, &key, put, (version, shard)).expect("room");
        assert_eq!(installed == Installed::Newest, is_newer, "step {step}");
        match is_newer {
            true if is_put => drop(model.insert(key, (version, shard))),
            true => drop(model.remove(&key)),
            false => {}
        }
        if step % 10_000 == 9_999 {
            let gone = 1 + rng.below(4) as u16;
            let mut sweep = Sweep::default();
            while session.sweep_step(&mut sweep, |shard, _| shard == gone) {}
            model.retain(|_, (_, shard)| *shard != gone);
        }
        session.maintain(NOW);
    }
    for number in 0..3_000 {
        let key = format!("key {number}").into_bytes();
        let want = model.get(&key).map(|(version, shard)| (value_of(*version), *version, *shard));
        assert_eq!(get(&store, &mut session, &key), want);
    }
    for shard in 1..=4 {
        let want = model.values().filter(|(_, of)| *of == shard).count() as u64;
        assert_eq!(store.shard_item_count(shard), want);
    }
    drop(session);
    store.validate();
}

#[test]
fn of_each_key_the_highest_version_counts() {
    check_model(IndexKind::Hash, 1);
    check_model(IndexKind::Tree, 2);
}

#[test]
fn a_later_write_of_another_kind_is_above() {
    let store = open(IndexKind::Hash, 16 << 20);
    let mut session = store.session().expect("a place");
    let version = (7 << 32) + 5;
    install(&store, &mut session, b"k", Some(b"v"), (version, 1)).expect("room");
    let set = store::Set {
        value: b"w",
        client_flags: 0,
        expiry: store::Expiry::Never,
        condition: store::Condition::Always,
    };
    let hash = store.key_hasher().hash(b"k");
    let request = Request { key: b"k", hash, op: Op::<NoUpdate>::Set(set) };
    session.execute(NOW, &[request], &mut Read::default());
    let (value, above, shard) = get(&store, &mut session, b"k").expect("it is there");
    assert_eq!((&value[..], shard), (&b"w"[..], 0));
    assert!(above > version);
}

#[test]
fn a_full_store_says_so_and_keeps_what_it_has() {
    let store = open(IndexKind::Hash, 16 << 20);
    let mut session = store.session().expect("a place");
    let value = vec![7; 100_000];
    let mut last = 0;
    let refused = (1..1_000).find_map(|number: u64| {
        let key = number.to_le_bytes();
        let installed = install(&store, &mut session, &key, Some(&value), (number, 1));
        last = number;
        installed.err()
    });
    assert_eq!(refused, Some(NotInstalled::OutOfMemory { len_bytes: 100_000 }));
    for number in 1..last {
        assert!(get(&store, &mut session, &number.to_le_bytes()).is_some());
    }
    assert!(install(&store, &mut session, &1_u64.to_le_bytes(), None, (9_999, 1)).is_ok());
    assert_eq!(get(&store, &mut session, &1_u64.to_le_bytes()), None);
}

fn check_readers(index: IndexKind) {
    let store = open(index, 16 << 20);
    let is_over = AtomicBool::new(false);
    let keys: Vec<Vec<u8>> = (0..16).map(|id| format!("hot key {id}").into_bytes()).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = store.session().expect("a place");
                let mut newest = vec![0; keys.len()];
                while !is_over.load(Ordering::Relaxed) {
                    for (key, newest) in keys.iter().zip(&mut newest) {
                        let Some((value, version, shard)) = get(&store, &mut session, key) else {
                            assert_eq!(*newest, 0, "an item that was never deleted");
                            continue;
                        };
                        assert_eq!((value, shard), (value_of(version), 2));
                        assert!(version >= *newest, "a version went back");
                        *newest = version;
                    }
                }
            });
        }
        let mut session = store.session().expect("a place");
        let mut rng = Rng(9);
        for _ in 0..if cfg!(miri) { 200 } else { 100_000 } {
            let key = &keys[rng.below(16) as usize];
            let version = (2 << 32) + 1 + rng.below(1 << 30);
            install(&store, &mut session, key, Some(&value_of(version)), (version, 2))
                .expect("room");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn readers_beside_see_whole_entries_and_versions_that_only_grow() {
    check_readers(IndexKind::Hash);
    check_readers(IndexKind::Tree);
}

/// The values that a snapshot has found.
#[derive(Default)]
struct Values(Vec<Option<Vec<u8>>>);

impl Sink<NoUpdate> for Values {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        self.0.push(match outcome {
            Outcome::Hit(item) => Some(item.value.to_vec()),
            _ => None,
        });
    }
}

fn check_groups(index: IndexKind) {
    let store = open(index, 16 << 20);
    let is_over = AtomicBool::new(false);
    let keys: Vec<Vec<u8>> = (0..7).map(|id| format!("group key {id}").into_bytes()).collect();
    let hash = |key: &[u8]| store.key_hasher().hash(key);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = store.session().expect("a place");
            let hashed: Vec<_> = keys.iter().map(|key| (hash(key), &key[..])).collect();
            while !is_over.load(Ordering::Relaxed) {
                let mut values = Values::default();
                session.read_snapshot(NOW, &hashed, &mut values);
                let Values(values) = values;
                assert!(values.iter().all(|value| *value == values[0]), "half a group: {values:?}");
            }
        });
        let mut session = store.session().expect("a place");
        for version in 1..if cfg!(miri) { 50 } else { 30_000 } {
            let (value, version) = (value_of(version), (2 << 32) + version);
            let change = match version % 4 {
                0 => ReplicaChange::Delete,
                _ => ReplicaChange::Put { value: &value, client_flags: 0, expires_at: None },
            };
            let replicas = keys.iter().map(|key| {
                let shard = NonZeroU16::new(2).expect("not 0");
                Replica { key, hash: hash(key), change, version, shard }
            });
            let replicas: Vec<_> = replicas.collect();
            let mut count = 0;
            session.install_all(NOW, &replicas, |_, installed| {
                assert_eq!(installed, Ok(Installed::Newest));
                count += 1;
            });
            assert_eq!(count, keys.len());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    store.validate();
}

#[test]
fn a_snapshot_beside_sees_all_of_a_group_or_none() {
    check_groups(IndexKind::Hash);
    check_groups(IndexKind::Tree);
}

#[test]
fn of_a_group_without_room_for_all_none_is_installed() {
    let store = open(IndexKind::Hash, 16 << 20);
    let mut session = store.session().expect("a place");
    let value = vec![7; 100_000];
    let keys: Vec<[u8; 8]> = (0..1_000).map(u64::to_le_bytes).collect();
    let install = |session: &mut Session, keys: &[[u8; 8]], value: Option<&[u8]>, version| {
        let replicas = keys.iter().map(|key| {
            let put = |value| ReplicaChange::Put { value, client_flags: 0, expires_at: None };
            let change = value.map_or(ReplicaChange::Delete, put);
            let (hash, shard) = (store.key_hasher().hash(key), NonZeroU16::MIN);
            Replica { key, hash, change, version, shard }
        });
        let replicas: Vec<_> = replicas.collect();
        let mut results = Vec::new();
        session.install_all(NOW, &replicas, |_, installed| results.push(installed));
        results.dedup();
        results
    };
    let full = [Err(NotInstalled::OutOfMemory { len_bytes: 100_000 })];
    assert_eq!(install(&mut session, &keys, Some(&value), 5), full);
    assert!(keys.iter().all(|key| get(&store, &mut session, key).is_none()));
    // Groups of ten until there is no room: each is there whole or not at all.
    let mut is_there =
        |keys: &[[u8; 8]]| install(&mut session, keys, Some(&value), 6) == [Ok(Installed::Newest)];
    let there_count = keys.chunks(10).take_while(|keys| is_there(keys)).count();
    assert!(there_count > 5, "{there_count}");
    for (number, keys) in keys.chunks(10).enumerate() {
        for key in keys {
            assert_eq!(get(&store, &mut session, key).is_some(), number < there_count);
        }
    }
    // What only deletes has room.
    let whole = &keys[..10 * there_count];
    assert_eq!(install(&mut session, whole, None, 7), [Ok(Installed::Newest)]);
}

/// A key that needs hundreds of nodes of a tree, because it shares a long prefix with four others.
fn key_beside(id: u64, last: u8) -> Vec<u8> {
    let mut key = id.to_le_bytes().repeat(200);
    key.push(last);
    key
}

/// In a store so full that nodes are there only after reclaiming, which no session does under
/// locks.
#[test]
fn a_value_is_not_installed_behind_the_delete_of_its_group() {
    const TESTED_COUNT: u64 = 40;
    let store = open(IndexKind::Tree, 16 << 20);
    let mut session = store.session().expect("a place");
    let shard = NonZeroU16::MIN;
    let put = ReplicaChange::Put { value: &[2], client_flags: 0, expires_at: None };
    for id in 0..TESTED_COUNT {
        for last in 0..4 {
            let installed =
                install(&store, &mut session, &key_beside(id, last), Some(&[1]), (5, 1));
            assert_eq!(installed, Ok(Installed::Newest));
        }
    }
    let key = |id: u64| id.to_be_bytes();
    let mut fill = |id| install(&store, &mut session, &key(id), Some(&[1; 100]), (5, 1)).is_err();
    let full_at = (0..).find(|id| fill(*id)).expect("it fills up");
    for id in (0..full_at).filter(|id| id % 3 > 0) {
        let deleted = install(&store, &mut session, &key(id), None, (6, 1));
        assert_eq!(deleted, Ok(Installed::Newest));
    }
    let mut older_count = 0;
    for id in 0..TESTED_COUNT {
        let key = key_beside(id, 4);
        let hash = store.key_hasher().hash(&key);
        let replicas = [(put, 7), (ReplicaChange::Delete, 8)].map(|(change, version)| Replica {
            key: &key,
            hash,
            change,
            version,
            shard,
        });
        let mut results = Vec::new();
        session.install_all(NOW, &replicas, |index, installed| results.push((index, installed)));
        results.sort_unstable_by_key(|(index, _)| *index);
        let values = results.iter().map(|(_, installed)| *installed);
        match values.collect::<Vec<_>>()[..] {
            [Ok(Installed::Older { present: 8 }), Ok(Installed::Newest)] => older_count += 1,
            [Ok(Installed::Newest), Ok(Installed::Newest)] => {}
            ref other => panic!("{other:?}"),
        }
        assert_eq!(get(&store, &mut session, &key), None, "{id}");
    }
    assert!(older_count > 0);
}
