//! Tests that a durable store which is full, or whose log is full of dead entries, reopens in the
//! same amount of memory, with every key, and continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;
use store::durable::{Committer, NewData, Opened};
use store::medium::MemoryMedium;
use store::pin::Pins;
use store::{
    Condition, Expiry, IndexKind, Mode, NoUpdate, Op, Outcome, Request, Session, Set, Sink, Store,
    StoreConfig,
};

use crate::support;

const NOW: UnixMillis = UnixMillis(1_000_000);
const MEMORY_BYTES: u64 = 8 << 20;
/// The number of keys in half a store.
const HALF: u64 = 30_000;
/// How often a write is tried.
const PATIENCE: usize = 100;

/// The last value of each key, by its number.
type Had = BTreeMap<u64, u64>;

fn open(medium: MemoryMedium, index: IndexKind) -> Opened<MemoryMedium> {
    open_as(medium, index, false)
}

fn open_as(medium: MemoryMedium, index: IndexKind, recovers_damaged: bool) -> Opened<MemoryMedium> {
    let config = StoreConfig {
        memory_bytes: MEMORY_BYTES,
        index_bytes: 4096,
        session_max: 3,
        hash_seed: 7,
        ..support::config(index, Mode::Clean)
    };
    let new = NewData { now_ms: NOW.0, data_id: 1, recovers_damaged, threads: 3 };
    support::open_durable(medium, config, new).unwrap()
}

#[derive(Default)]
struct One {
    value: Option<u64>,
    is_done: bool,
}

impl Sink<NoUpdate> for One {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => {
                let bytes: [u8; 8] = item.value.to_vec().try_into().unwrap();
                self.value = Some(u64::from_le_bytes(bytes));
            }
            Outcome::Stored { .. } | Outcome::Deleted { .. } => self.is_done = true,
            _ => {}
        }
    }
}

/// A store with a session, and its expected contents.
struct Life {
    store: Arc<Store>,
    committer: Committer<MemoryMedium>,
    session: Option<Session>,
    had: Had,
    calls: u64,
}

impl Life {
    fn begin(medium: MemoryMedium, index: IndexKind, had: Had) -> Life {
        let Opened { store, committer, recovery } = open(medium, index);
        assert_eq!(recovery.items, had.len() as u64);
        store.validate();
        let session = Some(store.session().unwrap());
        let mut life = Life { store, committer, session, had, calls: 0 };
        for (id, value) in life.had.clone() {
            assert_eq!(life.ask(id, Op::Get).value, Some(value), "key {id}");
        }
        life
    }

    fn ask(&mut self, id: u64, op: Op<'_, NoUpdate>) -> One {
        let mut one = One::default();
        // In the order of their numbers, and four of each first slice.
        let key = format!("{:07}:of-{id:09}", id / 3);
        let hash = self.store.key_hasher().hash(key.as_bytes());
        let session = self.session.as_mut().unwrap();
        session.execute(NOW, &[Request { key: key.as_bytes(), hash, op }], &mut one);
        self.calls += 1;
        if self.calls.is_multiple_of(64) {
            self.rest();
        }
        one
    }

    /// Does the work of sessions and the committer between requests.
    fn rest(&mut self) {
        let session = self.session.as_mut().unwrap();
        session.maintain(NOW);
        session.park();
        self.committer.commit(|| unreachable!("the session is parked")).unwrap();
        session.unpark();
    }

    /// Repeats a write that is refused for lack of room, as a client does.
    fn patiently(&mut self, write: impl Fn(&mut Life) -> bool) -> bool {
        (0..PATIENCE).any(|_| {
            let is_done = write(self);
            if !is_done {
                self.rest();
            }
            is_done
        })
    }

    fn set(&mut self, id: u64, value: u64) -> bool {
        let bytes = value.to_le_bytes();
        let (expiry, condition) = (Expiry::Never, Condition::Always);
        let set = Set { value: &bytes, client_flags: 0, expiry, condition };
        let is_done = self.ask(id, Op::Set(set)).is_done;
        if is_done {
            self.had.insert(id, value);
        }
        is_done
    }

    fn delete(&mut self, id: u64) -> bool {
        let is_done = self.ask(id, Op::Delete).is_done;
        if is_done {
            self.had.remove(&id);
        }
        is_done
    }

    /// Writes from `id` on, up to the first that is refused.
    fn fill(&mut self, mut id: u64) {
        while self.patiently(|life| life.set(id, id)) {
            id += 1;
        }
    }

    /// Overwrites keys in random order, several times the log.
    fn churn(&mut self, count: u64) {
        let mut id = 1;
        for turn in 0..8 * HALF {
            id = (id * 48_271) % 2_147_483_647;
            assert!(self.patiently(|life| life.set(id % count, turn)));
        }
    }

    /// The process is killed, once the last write is on the disk, and starts again. Returns how
    /// many segments it finds in use.
    fn kill(&mut self, index: IndexKind) -> u64 {
        self.session.as_mut().unwrap().park();
        self.committer.commit(|| unreachable!("the session is parked")).unwrap();
        let medium = self.committer.medium().clone();
        self.session = None;
        let Opened { store, committer, recovery } = open(medium, index);
        assert_eq!(recovery.items, self.had.len() as u64);
        self.session = Some(store.session().unwrap());
        (self.store, self.committer) = (store, committer);
        recovery.segments
    }

    fn end(mut self) -> (MemoryMedium, Had) {
        drop(self.session.take());
        for _ in 0..3 {
            self.committer.commit(|| unreachable!("there is no session")).unwrap();
        }
        (self.committer.into_medium(), self.had)
    }
}

/// Reopens the store again and again, with every key; and with room once there are fewer.
fn live_on(mut life: Life, index: IndexKind) {
    for _ in 0..3 {
        let (medium, had) = life.end();
        life = Life::begin(medium, index, had);
    }
    let ids: Vec<u64> = life.had.keys().copied().collect();
    for id in &ids[ids.len() / 4..] {
        assert!(life.patiently(|life| life.delete(*id)), "there is room for deletes");
    }
    assert!(life.patiently(|life| life.set(u64::MAX, 5)), "there is room again");
    let (medium, had) = life.end();
    Life::begin(medium, index, had);
}

fn in_both(fill: impl Fn(&mut Life)) {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let mut life = Life::begin(MemoryMedium::new(Vec::new()), index, Had::new());
        fill(&mut life);
        live_on(life, index);
    }
}

#[test]
fn a_store_of_keys_in_order_that_is_full_opens_again() {
    in_both(|life| life.fill(0));
}

#[test]
fn a_full_store_whose_log_has_lost_the_order_opens_again() {
    in_both(|life| {
        for id in 0..HALF {
            assert!(life.set(id, id));
        }
        life.churn(HALF);
        life.fill(HALF);
    });
}

#[test]
fn a_log_full_of_what_was_overwritten_opens_again() {
    in_both(|life| life.churn(HALF / 2));
}

#[test]
fn a_log_full_of_what_was_deleted_opens_again() {
    in_both(|life| {
        for id in 0..8 * HALF {
            assert!(life.patiently(|life| life.set(id, id)));
            let is_young = id < HALF / 2;
            assert!(is_young || life.patiently(|life| life.delete(id - HALF / 2)));
        }
    });
}

/// Each life of a killed server fills what the one before has left.
#[test]
fn kills_leave_no_segments_that_are_nearly_empty() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let mut life = Life::begin(MemoryMedium::new(Vec::new()), index, Had::new());
        for id in 0..HALF {
            assert!(life.set(id, id));
        }
        let first_count = life.kill(index);
        for turn in 0..200 {
            assert!(life.set(HALF + turn, turn));
            assert!(life.delete(turn));
            let count = life.kill(index);
            assert!(count <= first_count + 2, "{count} segments, and {first_count} before");
        }
        live_on(life, index);
    }
}

/// Each segment has a damaged entry, and most others are dead: only those that live are copied.
#[test]
fn a_damaged_log_full_of_what_was_overwritten_opens_again() {
    for index in [IndexKind::Hash, IndexKind::Tree] {
        let mut life = Life::begin(MemoryMedium::new(Vec::new()), index, Had::new());
        life.churn(HALF / 8);
        life.kill(index);
        let superblock = *life.committer.superblock();
        let mut medium = life.committer.medium().clone();
        for segment in 0..superblock.segment_count {
            let at = superblock.segment_offset(segment) as usize + 70;
            if let Some(byte) = medium.bytes_mut().get_mut(at) {
                *byte ^= 1;
            }
        }
        let Opened { store, recovery, .. } = open_as(medium, index, true);
        let damage_count = recovery.damage.len() as u64;
        assert!(damage_count > 10, "{damage_count} places");
        assert!(recovery.items + damage_count >= life.had.len() as u64);
        store.validate();
    }
}
