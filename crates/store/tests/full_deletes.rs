//! Tests that a durable store which is full to the last write takes every delete until it is empty:
//! before and after it is reopened, also while another session keeps an old segment open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::UnixMillis;
use store::durable::{Committer, NewData, Opened};
use store::medium::MemoryMedium;
use store::pin::Pins;
use store::{
    Condition, Expiry, IndexKind, Item, Mode, Op, Outcome, Request, Room, Session, Set, Sink,
    Store, StoreConfig, Update, Verdict,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1_000_000);
const MEMORY_BYTES: u64 = 8 << 20;
/// A store counts as full after this many consecutive refused writes.
const REFUSED_MIN: u32 = 3;
/// The most steps of housekeeping until a write has room.
const PATIENCE: u64 = 1_000_000;
/// The number of deletes after which the other session does housekeeping, like a sleeping worker of
/// a server.
const HOUSE_EVERY: u64 = 512;

/// As GETDEL, and EXPIRE into the past.
struct Remove;

impl Update for Remove {
    type Refusal = ();

    fn apply(&self, item: Option<&Item<'_>>, _new_value: &mut Vec<u8>) -> Verdict<()> {
        if item.is_some() { Verdict::Delete } else { Verdict::Keep }
    }
}

#[derive(Default)]
struct Last {
    is_done: bool,
}

impl Sink<()> for Last {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, ()>, _pins: Pins<'_>) {
        self.is_done = matches!(outcome, Outcome::Stored { .. } | Outcome::Deleted { .. });
    }
}

struct World {
    store: Arc<Store>,
    session: Option<Session>,
    /// A session that wrote once and nothing since.
    idle: Option<Session>,
    is_ended: Arc<AtomicBool>,
    committing: JoinHandle<Committer<MemoryMedium>>,
    delete_count: u64,
}

impl World {
    fn open(medium: MemoryMedium, index: IndexKind) -> World {
        let config = StoreConfig {
            memory_bytes: MEMORY_BYTES,
            index_bytes: 4096,
            session_max: 3,
            hash_seed: 7,
            ..support::config(index, Mode::Clean)
        };
        let new = NewData { now_ms: NOW.0, data_id: 1, recovers_damaged: false, threads: 1 };
        let opened = support::open_durable(medium, config, new);
        let Opened { store, mut committer, .. } = opened.unwrap();
        let durable = Arc::clone(store.durable().unwrap());
        durable.drive();
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_ended);
        let committing = std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                if durable.wait_wanted(Duration::from_millis(10)) {
                    committer.commit(std::thread::yield_now).unwrap();
                }
            }
            committer.commit(std::thread::yield_now).unwrap();
            committer
        });
        let session = Some(store.session().unwrap());
        let mut idle = store.session().unwrap();
        idle.park();
        World { store, session, idle: Some(idle), is_ended, committing, delete_count: 0 }
    }

    fn ask(&mut self, key: &[u8], op: Op<'_, Remove>) -> bool {
        let hash = self.store.key_hasher().hash(key);
        let mut last = Last::default();
        let session = self.session.as_mut().unwrap();
        session.execute(NOW, &[Request { key, hash, op }], &mut last);
        last.is_done
    }

    fn set(&mut self, id: u64) -> bool {
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let set = Set { value: b"12345678", client_flags: 0, expiry, condition };
        self.ask(&key_of(id), Op::Set(set))
    }

    /// Writes keys up to the first that finds no room, with a few more attempts.
    fn fill(&mut self) -> Vec<u64> {
        let (mut ids, mut refused) = (Vec::new(), 0);
        for id in 0.. {
            let is_done = self.set(id);
            if id == 0 {
                self.write_once();
            }
            match is_done {
                true => ids.push(id),
                false => refused += 1,
            }
            if refused == REFUSED_MIN {
                break;
            }
        }
        ids
    }

    /// Makes the other session open a segment, older than all others from now on.
    fn write_once(&mut self) {
        let mut idle = self.idle.take().unwrap();
        idle.unpark();
        std::mem::swap(self.session.as_mut().unwrap(), &mut idle);
        assert!(self.set(u64::MAX));
        std::mem::swap(self.session.as_mut().unwrap(), &mut idle);
        idle.park();
        self.idle = Some(idle);
    }

    /// Makes the other session do housekeeping.
    fn wake_idle(&mut self) {
        let idle = self.idle.as_mut().unwrap();
        idle.unpark();
        idle.maintain(NOW);
        idle.park();
    }

    /// Deletes in one of several ways.
    fn delete(&mut self, id: u64) -> bool {
        let key = key_of(id);
        self.delete_count += 1;
        if self.delete_count.is_multiple_of(HOUSE_EVERY) {
            self.wake_idle();
        }
        match self.delete_count % 4 {
            0 => self.ask(&key, Op::Update(Remove)),
            1 => {
                let (expiry, condition) = (Expiry::At(UnixMillis(1)), Condition::Always);
                let set = Set { value: b"", client_flags: 0, expiry, condition };
                self.ask(&key, Op::Set(set))
            }
            2 => self.delete_locked(&key),
            _ => self.ask(&key, Op::Delete),
        }
    }

    /// Deletes under the key's lock, as in a transaction.
    fn delete_locked(&mut self, key: &[u8]) -> bool {
        let hash = self.store.key_hasher().hash(key);
        let request = Request { key, hash, op: Op::<Remove>::Delete };
        let mut last = Last::default();
        let session = self.session.as_mut().unwrap();
        session.lock_keys(NOW, &[hash], Room::default()).execute(NOW, &[request], &mut last);
        last.is_done
    }

    fn end(mut self) -> MemoryMedium {
        drop((self.session.take(), self.idle.take()));
        self.is_ended.store(true, Ordering::Release);
        self.committing.join().unwrap().into_medium()
    }
}

fn key_of(id: u64) -> Vec<u8> {
    format!("key:{id:012}").into_bytes()
}

/// An order that keeps each segment nearly full of live entries as long as possible.
fn shuffled(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable_by_key(|id| id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    ids
}

/// Fills a store and deletes everything; with `opens_again` the last part after reopening it.
fn fill_and_empty(index: IndexKind, opens_again: bool) {
    let mut world = World::open(MemoryMedium::new(Vec::new()), index);
    let mut ids = shuffled(world.fill());
    if opens_again {
        world = World::open(world.end(), index);
    }
    while let Some(id) = ids.pop() {
        assert!(world.delete(id), "{index:?}: key {id} stays, {} are left", ids.len());
    }
    world.store.validate();
    assert!(world.set(1), "there is room again");
    world.end();
}

/// Deletes soon give room to writes, although they take room themselves: housekeeping passes over
/// the log.
fn delete_some(index: IndexKind) {
    let mut world = World::open(MemoryMedium::new(Vec::new()), index);
    let ids = shuffled(world.fill());
    for id in &ids[..ids.len() / 32] {
        assert!(world.delete(*id), "{index:?}: key {id} stays");
    }
    let has_room = (0..PATIENCE).any(|turn| {
        if turn % HOUSE_EVERY == 0 {
            world.wake_idle();
            // The thread that commits may not have a processor: what is deleted frees nothing
            // before it is durable.
            std::thread::sleep(Duration::from_millis(1));
        }
        world.session.as_mut().unwrap().maintain(NOW);
        world.set(ids[0])
    });
    assert!(has_room, "{index:?}: there is room again");
    world.end();
}

#[test]
fn a_full_store_takes_writes_after_a_few_deletes() {
    delete_some(IndexKind::Hash);
    delete_some(IndexKind::Tree);
}

#[test]
fn a_full_hash_index_takes_every_delete() {
    fill_and_empty(IndexKind::Hash, false);
    fill_and_empty(IndexKind::Hash, true);
}

#[test]
fn a_full_tree_takes_every_delete() {
    fill_and_empty(IndexKind::Tree, false);
    fill_and_empty(IndexKind::Tree, true);
}
