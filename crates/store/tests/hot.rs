//! Tests of reads and ranges through the places of hot keys, against a plain ordered map, while
//! keys come and go.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::UnixMillis;
use proptest::collection::vec;
use proptest::prelude::*;
use store::{
    Condition, Direction, Eviction, Expiry, HotArray, IndexKind, Mode, NoUpdate, Op, Outcome, Pins,
    Range, Request, Session, Set, Sink, Store, StoreConfig,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1000);

fn open(index: IndexKind, mode: Mode) -> Arc<Store> {
    let eviction = Eviction::Fifo;
    Store::open(StoreConfig {
        memory_bytes: 4 << 20,
        index_bytes: 64 << 10,
        eviction,
        session_max: 4,
        item_max_bytes: 64 << 10,
        hash_seed: 5,
        batch: 8,
        ..support::config(index, mode)
    })
    .unwrap()
}

/// The results of a batch of reads.
#[derive(Default)]
struct Found(Vec<Option<Vec<u8>>>);

impl Sink<NoUpdate> for Found {
    fn outcome(&mut self, index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        assert_eq!(index, self.0.len());
        self.0.push(match outcome {
            Outcome::Hit(item) => Some(item.value.to_vec()),
            _ => None,
        });
    }
}

fn request<'a>(store: &Store, key: &'a [u8], op: Op<'a, NoUpdate>) -> Request<'a, NoUpdate> {
    Request { key, hash: store.key_hasher().hash(key), op }
}

fn set(store: &Store, session: &mut Session, key: &[u8], value: &[u8]) {
    let (expiry, condition) = (Expiry::Never, Condition::Always);
    let op = Op::Set(Set { value, client_flags: 0, expiry, condition });
    session.execute(NOW, &[request(store, key, op)], &mut Found::default());
}

fn delete(store: &Store, session: &mut Session, key: &[u8]) {
    session.execute(NOW, &[request(store, key, Op::Delete)], &mut Found::default());
}

fn read(store: &Store, session: &mut Session, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let requests: Vec<_> = keys.iter().map(|key| request(store, key, Op::Get)).collect();
    let mut found = Found::default();
    session.read_hot(NOW, &requests, &mut found);
    found.0
}

/// Keys that share borders, groups and layers.
fn key(id: usize) -> Vec<u8> {
    match id % 3 {
        0 => format!("{id}").into_bytes(),
        1 => format!("a shared prefix {id:03}").into_bytes(),
        _ => format!("abcdefgh{id}").into_bytes(),
    }
}

const KEYS: usize = 90;

#[derive(Clone, Debug)]
enum Step {
    Set(usize, u8),
    Delete(usize),
    Read(Vec<usize>),
    Range(usize, bool, bool),
    /// Makes every `n`-th key hot from now on.
    Watch(usize),
    /// Adds or removes `n` other keys, so that nodes come and go.
    Crowd(bool, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..KEYS;
    prop_oneof![
        4 => (id(), any::<u8>()).prop_map(|(id, value)| Step::Set(id, value)),
        2 => id().prop_map(Step::Delete),
        4 => vec(id(), 1..20).prop_map(Step::Read),
        2 => (id(), any::<bool>(), any::<bool>())
            .prop_map(|(id, is_reverse, is_behind)| Step::Range(id, is_reverse, is_behind)),
        1 => (1_usize..4).prop_map(Step::Watch),
        1 => (any::<bool>(), 1_usize..300).prop_map(|(comes, count)| Step::Crowd(comes, count)),
    ]
}

struct World {
    store: Arc<Store>,
    writer: Session,
    dispatcher: Session,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl World {
    fn new(index: IndexKind) -> World {
        let store = open(index, Mode::Clean);
        let (writer, dispatcher) = (store.session().unwrap(), store.session().unwrap());
        World { store, writer, dispatcher, model: BTreeMap::new() }
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) {
        set(&self.store, &mut self.writer, &key, &value);
        self.model.insert(key, value);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Set(id, value) => self.set(key(id), vec![value; 1 + usize::from(value)]),
            Step::Delete(id) => {
                delete(&self.store, &mut self.writer, &key(id));
                self.model.remove(&key(id));
            }
            Step::Read(ids) => {
                let keys: Vec<Vec<u8>> = ids.into_iter().map(key).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let want: Vec<_> = keys.iter().map(|key| self.model.get(*key).cloned()).collect();
                assert_eq!(read(&self.store, &mut self.dispatcher, &keys), want);
            }
            Step::Range(id, is_reverse, is_behind) => self.range(&key(id), is_reverse, is_behind),
            Step::Watch(every) => {
                let keys: Vec<Vec<u8>> = (0..KEYS).step_by(every).map(key).collect();
                let keys = HotArray::new(keys.iter().map(Vec::as_slice));
                self.dispatcher.set_hot_array(Some(Arc::new(keys)));
            }
            Step::Crowd(comes, count) => {
                for at in 0..count {
                    let key = format!("abcdefgh crowd {at:04}").into_bytes();
                    if comes {
                        self.set(key, b"crowd".to_vec());
                    } else {
                        delete(&self.store, &mut self.writer, &key);
                        self.model.remove(&key);
                    }
                }
                self.writer.maintain(NOW);
            }
        }
    }

    fn range(&mut self, from: &[u8], is_reverse: bool, is_behind: bool) {
        let near = if is_behind { Bound::Excluded(from) } else { Bound::Included(from) };
        let (start, end, direction) = match is_reverse {
            false => (near, Bound::Unbounded, Direction::Forward),
            true => (Bound::Unbounded, near, Direction::Reverse),
        };
        let range = Range { start, end, direction, item_limit: 20 };
        let mut found = Vec::new();
        let visit = |item: &store::Item<'_>| found.push((item.key.to_vec(), item.value.to_vec()));
        self.dispatcher.range_from_hot(NOW, &range, visit).unwrap();
        let items = self.model.range::<[u8], _>((start, end));
        let items = items.map(|(key, value)| (key.clone(), value.clone()));
        let want: Vec<_> = match is_reverse {
            false => items.take(20).collect(),
            true => items.rev().take(20).collect(),
        };
        assert_eq!(found, want);
    }
}

proptest! {
    #[test]
    fn hot_reads_and_ranges_agree_with_a_map(steps in vec(step(), 1..200)) {
        let mut world = World::new(IndexKind::Tree);
        world.take(Step::Watch(2));
        for step in steps {
            world.take(step);
        }
        world.store.validate();
    }
}

#[test]
fn a_place_is_found_once_and_holds_while_the_key_is_written() {
    let world = &mut World::new(IndexKind::Tree);
    (0..KEYS).for_each(|id| world.take(Step::Set(id, 1)));
    world.take(Step::Watch(1));
    world.take(Step::Read((0..KEYS).collect()));
    assert_eq!(world.dispatcher.take_hot_reads(), 0);
    for value in 2..10 {
        (0..KEYS).for_each(|id| world.take(Step::Set(id, value)));
        world.take(Step::Read((0..KEYS).collect()));
        assert_eq!(world.dispatcher.take_hot_reads(), KEYS as u64);
    }
    world.take(Step::Range(3, false, false));
    assert_eq!(world.dispatcher.take_hot_reads(), 1);
    // Removed, and back at another place: each needs a descent.
    world.take(Step::Delete(3));
    world.take(Step::Read(vec![3]));
    world.take(Step::Set(3, 1));
    world.take(Step::Read(vec![3]));
    world.take(Step::Read(vec![3]));
    assert!(world.dispatcher.take_hot_reads() >= 1);
}

#[test]
fn a_hash_index_keeps_no_places() {
    let world = &mut World::new(IndexKind::Hash);
    world.take(Step::Watch(1));
    for value in 0..3 {
        world.take(Step::Set(1, value));
        world.take(Step::Read(vec![1, 2, 1]));
    }
    assert_eq!(world.dispatcher.take_hot_reads(), 0);
}

/// Nodes leave the tree, and their lines become entries of the log and nodes again, while a
/// dispatcher keeps reading.
#[test]
fn places_in_nodes_that_go_are_never_read() {
    let store = open(IndexKind::Tree, Mode::Evict);
    let keys: Vec<Vec<u8>> = (0..2000).map(|id| format!("{:07}", id * 4999).into()).collect();
    let hot = HotArray::new(keys.iter().step_by(7).map(Vec::as_slice));
    let answered: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = store.session().unwrap();
            let mut draw = 1_u64;
            for round in 1..=60_000_u64 {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let id = (draw >> 33) as usize % keys.len();
                // Runs of neighbours go, so that borders do; large values, so that segments do.
                if round % 50 == 0 {
                    let run = &keys[id..(id + 40).min(keys.len())];
                    run.iter().for_each(|key| delete(&store, &mut session, key));
                }
                let mut value = vec![0x5a; 8 + (draw >> 55) as usize * 8];
                value[..8].copy_from_slice(&round.to_le_bytes());
                set(&store, &mut session, &keys[id], &value);
                answered[id].store(round, Ordering::Release);
                session.maintain(NOW);
            }
            is_over.store(1, Ordering::Relaxed);
        });
        let mut session = store.session().unwrap();
        session.set_hot_array(Some(Arc::new(hot)));
        let mut at = 0;
        while is_over.load(Ordering::Relaxed) == 0 {
            let ids: Vec<usize> = (0..20).map(|step| (at + step * 7) % keys.len()).collect();
            let least: Vec<u64> =
                ids.iter().map(|id| answered[*id].load(Ordering::Acquire)).collect();
            let asked: Vec<&[u8]> = ids.iter().map(|id| &keys[*id][..]).collect();
            for (value, least) in read(&store, &mut session, &asked).iter().zip(least) {
                let Some(value) = value else { continue };
                let (round, filling) = value.split_first_chunk::<8>().unwrap();
                assert!(u64::from_le_bytes(*round) >= least);
                assert!(filling.iter().all(|byte| *byte == 0x5a));
            }
            at += 140;
        }
        assert!(session.take_hot_reads() > 0);
    });
    store.validate();
}
