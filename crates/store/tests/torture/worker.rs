//! One thread of a torture test: it draws requests, sends them, and checks each answer.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use base::UnixMillis;
use base::hash::mix;
use store::{
    Condition, Direction, Expiry, Item, Op, Outcome, PinnedValue, Pins, Range, Request, Session,
    Set, Sink, Update, Verdict,
};

use super::ledger::{Ledger, Sight};
use super::shared::{COUNTERS, KEYS, Shared, counter_key};
use super::values::{self, Kind, STABLE, kind_of};

/// Groups of keys that are always written together, and the lengths of their values: in place,
/// short, longer.
const GROUPS: u64 = 3;
const GROUP_LENS: [usize; 4] = [8, 8, 40, 700];
/// The number of keys with which one thread fills and empties the index.
const CROWD: u64 = 4000;
const CROWD_STEP: u64 = 250;
/// Values that a thread keeps pinned.
const PINS_MAX: usize = 12;
/// A time beyond the end of every torture test.
const FAR: UnixMillis = UnixMillis(1 << 40);

/// A read-modify-write of the torture.
#[derive(Clone, Copy, Debug)]
enum Change<'a> {
    Put { value: &'a [u8], client_flags: u64 },
    Touch(Option<UnixMillis>),
    Increment,
}

impl Update for Change<'_> {
    type Refusal = ();

    fn apply(&self, old: Option<&Item<'_>>, out: &mut Vec<u8>) -> Verdict<()> {
        match *self {
            Change::Put { value, client_flags } => {
                out.extend_from_slice(value);
                Verdict::Write { client_flags, expires_at: None }
            }
            Change::Touch(expires_at) => Verdict::Touch { expires_at },
            Change::Increment => {
                out.extend_from_slice(&(old.map_or(0, number_of) + 1).to_le_bytes());
                Verdict::Write { client_flags: 0, expires_at: None }
            }
        }
    }
}

fn number_of(item: &Item<'_>) -> u64 {
    u64::from_le_bytes(item.value.try_into().expect("a number has eight bytes"))
}

/// An answer without borrows: the item's number or the write that made it, and its version.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Hit(u64, u64),
    Miss,
    Stored { version: u64 },
    Deleted,
    Updated { old: Option<u64>, new: Option<(u64, u64)> },
    Refused,
    OutOfMemory,
}

/// Collects answers about numbers.
#[derive(Default)]
struct Numbers(Vec<Answer>);

impl<R> Sink<R> for Numbers {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, R>, _pins: Pins<'_>) {
        self.0.push(match outcome {
            Outcome::Hit(item) => Answer::Hit(number_of(&item), item.version),
            Outcome::Miss => Answer::Miss,
            Outcome::Stored { version, .. } => Answer::Stored { version },
            Outcome::NotStored { .. } | Outcome::VersionMismatch { .. } | Outcome::Refused(_) => {
                Answer::Refused
            }
            Outcome::Deleted { .. } => Answer::Deleted,
            Outcome::Updated { old, new } => Answer::Updated {
                old: old.as_ref().map(number_of),
                new: new.map(|new| (number_of(&new), new.version)),
            },
            Outcome::OutOfMemory => Answer::OutOfMemory,
            Outcome::TooLarge { .. } | Outcome::Untold | Outcome::Unwritable => {
                panic!("no value is that large")
            }
        });
    }
}

/// One request of a mixed batch.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Get {
        floor: u64,
    },
    /// Write number `sequence`.
    Write {
        sequence: u64,
        expires_at: Option<UnixMillis>,
    },
    Touch {
        expires_at: Option<UnixMillis>,
    },
}

/// Checks a mixed batch while its answers come.
struct Batch<'b, 's> {
    ledger: &'b mut Ledger<'s>,
    plans: &'b [(u64, Plan)],
    now: UnixMillis,
    sights: Vec<Sight>,
    pins: &'b mut VecDeque<(u64, PinnedValue)>,
    wants_pin: bool,
}

impl<R> Sink<R> for Batch<'_, '_> {
    fn outcome(&mut self, index: usize, outcome: Outcome<'_, R>, pins: Pins<'_>) {
        let (key, plan) = self.plans[index];
        if let (Outcome::Hit(item), true) = (&outcome, self.wants_pin) {
            self.pins.push_back((key, pins.pin(item)));
            self.wants_pin = false;
        }
        match plan {
            Plan::Get { floor } => {
                let found = match outcome {
                    Outcome::Hit(item) => Some(self.ledger.read(key, &item, self.now)),
                    _ => None,
                };
                // An own key may be written by a later request of the batch: judged at once.
                match self.ledger.is_own(key) {
                    true => self.ledger.see_own(key, found),
                    false => self.sights.push(Sight { key, floor, found }),
                }
            }
            Plan::Write { sequence, expires_at } => {
                self.written(key, sequence, expires_at, outcome);
            }
            Plan::Touch { expires_at } => match outcome {
                Outcome::Updated { old, new } => {
                    self.see_old(key, old);
                    if let Some(new) = new {
                        self.ledger.was_touched(key, new.version, expires_at);
                    }
                }
                Outcome::OutOfMemory => {}
                _ => panic!("not an answer to a touch of key {key}"),
            },
        }
    }
}

impl Batch<'_, '_> {
    fn see_old(&mut self, key: u64, old: Option<Item<'_>>) {
        let old = old.map(|item| self.ledger.read(key, &item, self.now));
        self.ledger.see_own(key, old);
    }

    fn written<R>(
        &mut self,
        key: u64,
        sequence: u64,
        expires_at: Option<UnixMillis>,
        outcome: Outcome<'_, R>,
    ) {
        let version = match outcome {
            Outcome::Stored { version, old } => {
                self.see_old(key, old);
                version
            }
            Outcome::Updated { old, new } => {
                self.see_old(key, old);
                let new = new.expect("a write leaves an item");
                assert_eq!(values::sequence_of(key, new.value), sequence, "key {key}");
                new.version
            }
            Outcome::Deleted { old } => {
                self.see_old(key, old);
                0
            }
            Outcome::Miss => {
                self.ledger.see_own(key, None);
                0
            }
            Outcome::OutOfMemory => return,
            _ => panic!("not an answer to a write of key {key}"),
        };
        let is_delete = kind_of(key, sequence) == Kind::Delete;
        assert_eq!(version == 0, is_delete, "write {sequence} of key {key}");
        self.ledger.took_effect(key, sequence, version, expires_at);
    }
}

pub struct Worker<'s> {
    shared: &'s Shared<'s>,
    session: Option<Session>,
    ledger: Ledger<'s>,
    thread: u64,
    draw: u64,
    pins: VecDeque<(u64, PinnedValue)>,
    /// How many keys of the crowd are present, and whether it grows.
    crowd: u64,
    crowd_grows: bool,
    nonce: u64,
}

impl<'s> Worker<'s> {
    pub fn new(shared: &'s Shared<'s>, thread: usize, seed: u64) -> Worker<'s> {
        Worker {
            shared,
            session: None,
            ledger: Ledger::new(shared, thread),
            thread: thread as u64,
            draw: mix(seed << 8 | thread as u64),
            pins: VecDeque::new(),
            crowd: 0,
            crowd_grows: true,
            nonce: 0,
        }
    }

    fn session(&mut self) -> &mut Session {
        self.session.get_or_insert_with(|| self.shared.store.session().unwrap())
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mix(self.draw)) * u128::from(end)) >> 64) as u64
    }

    /// Writes this thread's stable keys.
    pub fn write_stable(&mut self) {
        let thread = self.thread;
        for key in (0..STABLE).filter(|key| key % 2 == thread) {
            self.batch(&[(key, true)]);
        }
        self.rest();
    }

    pub fn step(&mut self) {
        match self.below(128) {
            0..70 => {
                let count = 1 + self.below(24);
                let wanted: Vec<(u64, bool)> = (0..count)
                    .map(|_| {
                        let writes = self.below(3) == 0;
                        let key = self.below(KEYS);
                        // Its own keys only are a thread's to write.
                        (if writes { key - key % 2 + self.thread } else { key }, writes)
                    })
                    .collect();
                self.batch(&wanted);
            }
            70..80 => self.increment(),
            80..90 => self.swap(),
            90..96 => self.write_group(),
            96..104 => self.read_group(),
            104..110 => self.fill_or_drain(),
            110..111 => self.scan(),
            116..117 => self.walk(),
            111..112 => self.see_random_item(),
            112..113 => {
                self.session().park();
                self.session().unpark();
            }
            113..114 => self.session = None,
            114..115 if self.shared.forgets() && self.below(8) == 0 => {
                self.session().flush();
            }
            115..116 => self.read_snapshot_of_keys(),
            _ => {
                let now = self.shared.tick();
                self.session().maintain(now);
            }
        }
    }

    /// A batch of gets and of writes of own keys.
    fn batch(&mut self, wanted: &[(u64, bool)]) {
        let now = self.shared.tick();
        let mut plans = Vec::new();
        let mut contents = Vec::new();
        for (key, writes) in wanted.iter().copied() {
            let mut value = Vec::new();
            let is_lasting = |known: u64| kind_of(key, known) != Kind::Expiring;
            let started = self.ledger.known[key as usize].started;
            let plan = match writes {
                false => Plan::Get { floor: self.ledger.floor(key) },
                // An item that is about to expire is not touched: the other thread may be ahead.
                true if started > 0 && self.below(12) == 0 && self.all_last(key, started) => {
                    Plan::Touch { expires_at: (self.below(2) == 0).then_some(FAR) }
                }
                true => {
                    let sequence = self.ledger.start(key);
                    values::fill(&mut value, key, sequence);
                    let soon = UnixMillis(now.0 + 1 + self.below(40));
                    Plan::Write { sequence, expires_at: (!is_lasting(sequence)).then_some(soon) }
                }
            };
            plans.push((key, plan));
            contents.push((values::key_bytes(key), value));
        }
        let hasher = self.shared.store.key_hasher();
        let requests: Vec<Request<'_, Change<'_>>> = plans
            .iter()
            .zip(&contents)
            .map(|((key, plan), (name, value))| Request {
                key: name,
                hash: hasher.hash(name),
                op: op_of(*key, plan, value),
            })
            .collect();
        let wants_pin = self.below(8) == 0;
        let Worker { session, ledger, pins, .. } = self;
        let session = session.get_or_insert_with(|| self.shared.store.session().unwrap());
        let mut sink = Batch { ledger, plans: &plans, now, sights: Vec::new(), pins, wants_pin };
        session.execute(now, &requests, &mut sink);
        let sights = sink.sights;
        sights.into_iter().for_each(|sight| self.ledger.see(sight));
        while self.pins.len() > PINS_MAX {
            self.drop_pin();
        }
    }

    /// Whether no write of the key that could be the one in effect expires.
    fn all_last(&self, key: u64, started: u64) -> bool {
        let floor = self.ledger.floor(key);
        (floor..=started).all(|write| kind_of(key, write) != Kind::Expiring)
    }

    fn drop_pin(&mut self) {
        if let Some((key, pinned)) = self.pins.pop_front() {
            values::sequence_of(key, &pinned);
        }
    }

    /// Holds no reference: an idle session would keep the other thread from making room.
    pub fn rest(&mut self) {
        while !self.pins.is_empty() {
            self.drop_pin();
        }
        self.session = None;
    }

    /// One request on a counter.
    fn count(&mut self, key: &[u8], op: Op<'_, Change<'_>>) -> Answer {
        let now = self.shared.tick();
        let request = Request { key, hash: self.shared.store.key_hasher().hash(key), op };
        let mut answers = Numbers::default();
        self.session().execute(now, &[request], &mut answers);
        answers.0[0]
    }

    pub fn read_counter(&mut self, index: usize, is_swap: bool) -> u64 {
        match self.count(&counter_key(index, is_swap), Op::Get) {
            Answer::Hit(number, _) => number,
            _ => 0,
        }
    }

    fn increment(&mut self) {
        let index = self.below(COUNTERS as u64) as usize;
        let key = counter_key(index, false);
        for _ in 0..4 {
            match self.count(&key, Op::Update(Change::Increment)) {
                Answer::Updated { old, new: Some((new, _)) } => {
                    assert_eq!(new, old.unwrap_or(0) + 1, "counter {index}");
                    self.shared.increments[index].fetch_add(1, Ordering::Relaxed);
                }
                answer => assert_eq!(answer, Answer::OutOfMemory),
            }
        }
    }

    /// Adds one by compare-and-swap.
    fn swap(&mut self) {
        let index = self.below(COUNTERS as u64) as usize;
        let key = counter_key(index, true);
        for _ in 0..4 {
            let (number, condition) = match self.count(&key, Op::Get) {
                Answer::Hit(number, version) => (number, Condition::IfVersion(version)),
                _ => (0, Condition::IfAbsent),
            };
            let value = (number + 1).to_le_bytes();
            let set = Set { value: &value, client_flags: 0, expiry: Expiry::Never, condition };
            if let Answer::Stored { .. } = self.count(&key, Op::Set(set)) {
                self.shared.swaps[index].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Under their locks the keys of a group agree; then all get a new value.
    fn write_group(&mut self) {
        let keys = group_keys(self.below(GROUPS));
        self.nonce += 1;
        let nonce = self.nonce << 1 | self.thread;
        let contents: Vec<Vec<u8>> =
            GROUP_LENS.iter().map(|len| group_value(nonce, *len)).collect();
        let (hasher, now) = (self.shared.store.key_hasher(), self.shared.tick());
        let hashes: Vec<_> = keys.iter().map(|key| hasher.hash(key)).collect();
        let requests = |op: &dyn Fn(usize) -> Op<'static, Change<'static>>| -> Vec<_> {
            let request = |at: usize| Request { key: &keys[at][..], hash: hashes[at], op: op(at) };
            (0..keys.len()).map(request).collect()
        };
        let mut locked = self.session().lock_keys(now, &hashes, store::Room::of([2048]));
        let mut before = Group::default();
        locked.execute(now, &requests(&|_| Op::Get), &mut before);
        let mut after = Group::default();
        let sets: Vec<Request<'_, Change<'_>>> = contents
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let (expiry, condition) = (Expiry::Never, Condition::Always);
                let set = Set { value, client_flags: 0, expiry, condition };
                Request { key: &keys[at], hash: hashes[at], op: Op::Set(set) }
            })
            .collect();
        locked.execute(now, &sets, &mut after);
        if after.refused > 0 {
            // Otherwise the other thread would find a part of the group.
            locked.execute(now, &requests(&|_| Op::Delete), &mut Group::default());
        }
        drop(locked);
        before.check(self.shared.forgets());
    }

    fn read_group(&mut self) {
        let keys = group_keys(self.below(GROUPS));
        let (hasher, now) = (self.shared.store.key_hasher(), self.shared.tick());
        let asked: Vec<_> = keys.iter().map(|key| (hasher.hash(key), &key[..])).collect();
        let forgets = self.shared.forgets();
        for _ in 0..4 {
            let mut group = Group::default();
            self.session().read_snapshot::<(), _>(now, &asked, &mut group);
            group.check(forgets);
        }
    }

    /// Reads keys of the owners as of one moment, and judges each as if it had been read alone.
    fn read_snapshot_of_keys(&mut self) {
        let now = self.shared.tick();
        let first = self.below(KEYS - 8);
        let names: Vec<_> = (first..first + 8).map(|key| (key, values::key_bytes(key))).collect();
        let hasher = self.shared.store.key_hasher();
        let asked: Vec<_> = names.iter().map(|(_, name)| (hasher.hash(name), &name[..])).collect();
        let plans: Vec<(u64, Plan)> = (first..first + 8)
            .map(|key| (key, Plan::Get { floor: self.ledger.floor(key) }))
            .collect();
        let Worker { session, ledger, pins, .. } = self;
        let session = session.get_or_insert_with(|| self.shared.store.session().unwrap());
        let sights = Vec::new();
        let mut sink = Batch { ledger, plans: &plans, now, sights, pins, wants_pin: false };
        session.read_snapshot::<(), _>(now, &asked, &mut sink);
        let sights = sink.sights;
        sights.into_iter().for_each(|sight| self.ledger.see(sight));
    }

    /// Adds many small items to the index, or removes them: it grows and shrinks, and chains have
    /// overflow buckets.
    fn fill_or_drain(&mut self) {
        let (now, grows) = (self.shared.tick(), self.crowd_grows);
        let ids: Vec<u64> = match grows {
            true => (self.crowd..(self.crowd + CROWD_STEP).min(CROWD)).collect(),
            false => (self.crowd.saturating_sub(CROWD_STEP)..self.crowd).collect(),
        };
        let names: Vec<String> =
            ids.iter().map(|id| format!("crowd{}-{id:06}", self.thread)).collect();
        // A store has to keep them all; a cache gets more than it has room for.
        let repeat = if self.shared.forgets() { 150 } else { 1 };
        let contents: Vec<Vec<u8>> = ids.iter().map(|id| id.to_le_bytes().repeat(repeat)).collect();
        let hasher = self.shared.store.key_hasher();
        let requests: Vec<Request<'_, Change<'_>>> = names
            .iter()
            .zip(&contents)
            .map(|(name, value)| {
                let (expiry, condition) = (Expiry::Never, Condition::Always);
                let set = Set { value, client_flags: 0, expiry, condition };
                let key = name.as_bytes();
                let op = if grows { Op::Set(set) } else { Op::Delete };
                Request { key, hash: hasher.hash(key), op }
            })
            .collect();
        let mut answers = Numbers::default();
        self.session().execute(now, &requests, &mut answers);
        let may_lack = self.shared.forgets();
        let mut stored = 0;
        for answer in answers.0 {
            let is_right = match answer {
                Answer::Stored { .. } => grows,
                Answer::Deleted => !grows,
                Answer::Miss => !grows && may_lack,
                _ => grows && answer == Answer::OutOfMemory,
            };
            assert!(is_right, "{answer:?} to a crowd that grows: {grows}");
            stored += u64::from(matches!(answer, Answer::Stored { .. }));
        }
        self.move_crowd(grows, ids.len() as u64, stored);
    }

    /// Sets the size of the crowd, which is the first `n` keys; writes refused in between do not
    /// belong to it.
    fn move_crowd(&mut self, grows: bool, asked: u64, stored: u64) {
        if !grows {
            self.crowd -= asked;
            self.crowd_grows = self.crowd == 0;
            return;
        }
        self.crowd += asked;
        self.crowd_grows = self.crowd < CROWD;
        if stored < asked {
            // The store is full: delete all of the crowd, found or not.
            self.delete_crowd();
        }
    }

    fn delete_crowd(&mut self) {
        for id in 0..std::mem::take(&mut self.crowd) {
            self.count(format!("crowd{}-{id:06}", self.thread).as_bytes(), Op::Delete);
        }
        self.crowd_grows = true;
    }

    /// A whole scan, with other work between its parts.
    fn scan(&mut self) {
        let mut is_found = vec![false; STABLE as usize];
        let mut cursor = 0;
        loop {
            let now = self.shared.tick();
            let target = 1 + self.below(300) as usize;
            let mut sights = Vec::new();
            let Worker { session, ledger, .. } = self;
            let session = session.get_or_insert_with(|| self.shared.store.session().unwrap());
            let next = session.scan(now, cursor, target, |item| {
                let Some(key) = values::key_id(item.key) else { return };
                if let Some(is_found) = is_found.get_mut(key as usize) {
                    *is_found = true;
                }
                sights.push((key, ledger.read(key, item, now)));
            });
            // Cursors of a tree are forgotten after others: this thread never has two.
            let next = next.expect("a cursor that was just given");
            cursor = next;
            for (key, found) in sights {
                // Gathered before it was visited: only an older state can be excluded.
                assert!(
                    found.0 <= self.shared.progress[key as usize].started.load(Ordering::Acquire)
                );
            }
            if cursor == 0 {
                break;
            }
            if self.below(4) == 0 {
                self.fill_or_drain();
            }
        }
        let missed = is_found.iter().position(|is_found| !is_found);
        let is_whole = missed.is_none() || self.shared.forgets();
        assert!(is_whole, "K9: key {missed:?} was there throughout and not returned");
    }

    /// A walk over the owners' keys in order, with other work between its calls: each stable key
    /// exactly once. A hash index has no order to walk in.
    fn walk(&mut self) {
        let direction = match self.below(2) {
            0 => Direction::Forward,
            _ => Direction::Reverse,
        };
        let mut counts = vec![0; STABLE as usize];
        let mut last: Option<Vec<u8>> = None;
        loop {
            let (now, item_limit) = (self.shared.tick(), 1 + self.below(200) as usize);
            let (start, end) = (Bound::Included(&b"k"[..]), Bound::Excluded(&b"l"[..]));
            let whole = Range { start, end, direction, item_limit };
            let before = last.take();
            let range = before.as_ref().map_or(whole, |key| whole.after(key));
            let mut previous = before.clone();
            let Worker { session, ledger, .. } = self;
            let session = session.get_or_insert_with(|| self.shared.store.session().unwrap());
            let ended = session.range(now, &range, |item| {
                let is_next = previous.as_deref().is_none_or(|previous| match direction {
                    Direction::Forward => item.key > previous,
                    Direction::Reverse => item.key < previous,
                });
                assert!(is_next, "{:?} after {previous:?}", item.key);
                previous = Some(item.key.to_vec());
                let key = values::key_id(item.key).expect("only owners' keys are in the range");
                ledger.read(key, item, now);
                if let Some(count) = counts.get_mut(key as usize) {
                    *count += 1;
                }
            });
            let Ok(ended) = ended else { return };
            last = ended.resume_key;
            if last.is_none() {
                break;
            }
            if self.below(4) == 0 {
                self.fill_or_drain();
            }
        }
        let missed = counts.iter().position(|count| *count != 1);
        let is_whole = missed.is_none() || self.shared.forgets();
        assert!(is_whole, "key {missed:?} was there throughout: {counts:?}");
    }

    fn see_random_item(&mut self) {
        let (now, random) = (self.shared.tick(), self.below(u64::MAX));
        self.session().random_item(now, random, u64::MAX, |item| {
            if let Some(key) = values::key_id(item.key) {
                values::sequence_of(key, item.value);
            }
        });
    }

    /// After the other thread has ended: every own key is as this thread left it.
    pub fn finish(&mut self) {
        let own: Vec<(u64, bool)> =
            (0..KEYS).filter(|key| key % 2 == self.thread).map(|key| (key, false)).collect();
        own.chunks(20).for_each(|keys| self.batch(keys));
        self.scan();
        self.delete_crowd();
        self.rest();
    }
}

fn op_of<'v>(key: u64, plan: &Plan, value: &'v [u8]) -> Op<'v, Change<'v>> {
    let (sequence, expires_at) = match plan {
        Plan::Get { .. } => return Op::Get,
        Plan::Touch { expires_at } => return Op::Update(Change::Touch(*expires_at)),
        Plan::Write { sequence, expires_at } => (*sequence, *expires_at),
    };
    let client_flags = values::client_flags(key, sequence);
    let expiry = expires_at.map_or(Expiry::Never, Expiry::At);
    match kind_of(key, sequence) {
        Kind::Delete => Op::Delete,
        Kind::Update => Op::Update(Change::Put { value, client_flags }),
        Kind::Expiring | Kind::Lasting => {
            Op::Set(Set { value, client_flags, expiry, condition: Condition::Always })
        }
    }
}

fn group_keys(group: u64) -> Vec<Vec<u8>> {
    // The first is eight bytes long, so that its value is in place.
    (0..GROUP_LENS.len() as u64)
        .map(|member| match member {
            0 => format!("group{group:03}").into_bytes(),
            _ => format!("group{group:03}-{member}").into_bytes(),
        })
        .collect()
}

fn group_value(nonce: u64, len_bytes: usize) -> Vec<u8> {
    nonce.to_le_bytes().iter().copied().cycle().take(len_bytes).collect()
}

/// The nonces of the members found.
#[derive(Default)]
struct Group {
    nonces: Vec<u64>,
    missed: usize,
    refused: usize,
}

impl Group {
    fn check(&self, forgets: bool) {
        let agree = self.nonces.iter().all(|nonce| *nonce == self.nonces[0]);
        assert!(agree, "K11: what was written together differs: {:?}", self.nonces);
        let is_whole = self.missed == 0 || self.nonces.is_empty() || forgets;
        assert!(is_whole, "K11: {} found, {} missed", self.nonces.len(), self.missed);
    }
}

impl<R> Sink<R> for Group {
    fn outcome(&mut self, index: usize, outcome: Outcome<'_, R>, _pins: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => {
                let nonce = u64::from_le_bytes(*item.value.first_chunk().expect("a nonce"));
                assert_eq!(item.value, group_value(nonce, GROUP_LENS[index]), "a torn value");
                self.nonces.push(nonce);
            }
            Outcome::Miss => self.missed += 1,
            Outcome::OutOfMemory => self.refused += 1,
            _ => {}
        }
    }
}
