//! The oracle: a map that computes the store's expected answers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use store::{
    Changes, Condition, Direction, Eviction, Expiry, HugePages, IndexKind, Item, Mode, NoUpdate,
    Op, Outcome, Pins, Range, Request, Session, Set, Sink, Store, StoreConfig, Update, Verdict,
};

/// One step of a test, in terms of keys and lengths; contents follow from the step's number.
#[derive(Clone, Debug)]
pub enum Action {
    Get(Vec<u8>),
    Set {
        key: Vec<u8>,
        len: usize,
        condition: u8,
        expiry: u8,
    },
    Delete(Vec<u8>),
    Append {
        key: Vec<u8>,
        len: usize,
    },
    Touch {
        key: Vec<u8>,
        ms: u64,
    },
    ReadSnapshot(Vec<Vec<u8>>),
    SetTogether(Vec<(Vec<u8>, usize)>),
    Wait(u64),
    Maintain,
    Scan,
    Flush,
    /// Writes many small items, ...
    Fill {
        first: u32,
        count: u32,
    },
    /// ... or deletes them: the index grows and shrinks.
    Drain {
        first: u32,
        count: u32,
    },
    /// A scan, half of which comes after other steps.
    ScanAround(Box<Action>),
    /// Gets (`None`), sets and deletes (no length) in one call: later ones see earlier ones (K8).
    Batch(Vec<(Vec<u8>, Option<Write>)>),
    /// A walk over everything in order, this many items a call; for a hash index, a check that it
    /// refuses.
    Walk {
        is_reverse: bool,
        item_limit: usize,
    },
    /// Makes the other session the active one; this one parks.
    SwitchSession,
    /// Resizes, in percent of the way from the least to the most.
    Resize(u64),
    /// Makes some steps of the thread for the log's memory.
    Tend,
}

/// A write of a batch: a set of this many bytes, or a delete.
pub type Write = Option<usize>;

/// Sessions that take turns.
const SESSIONS: usize = 2;

/// The smallest useful store: segments of 64 KiB, so that everything happens soon.
pub fn small_config(
    index: IndexKind,
    mode: Mode,
    eviction: Eviction,
    lossy_index: bool,
) -> StoreConfig {
    StoreConfig {
        memory_bytes: (2 << 20) + 4096,
        // One head for each partition: the index grows and shrinks many times.
        index_bytes: 1,
        mode,
        eviction,
        index,
        lossy_index,
        session_max: SESSIONS,
        item_max_bytes: 1 << 20,
        hash_seed: 42,
        batch: 32,
        huge_pages: HugePages::Auto,
    }
}

/// The model's state of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    value: Vec<u8>,
    client_flags: u64,
    version: u64,
    token: Option<u64>,
    expires_at: Option<UnixMillis>,
}

impl Known {
    fn cas(&self, key: &[u8]) -> u64 {
        self.token.unwrap_or_else(|| store::token_base(key) + self.version)
    }
}

/// A read-modify-write of the tests.
#[derive(Clone, Copy, Debug)]
enum TestUpdate<'a> {
    /// Appends; with the token that the longer value gets.
    Append(&'a [u8], Option<u64>),
    Touch(Option<UnixMillis>),
}

impl Update for TestUpdate<'_> {
    type Refusal = NoUpdate;

    fn apply(&self, old: Option<&Item<'_>>, value: &mut Vec<u8>) -> Verdict<NoUpdate> {
        match self {
            TestUpdate::Append(tail, token) => {
                value.extend_from_slice(old.map_or(&[], |item| item.value));
                value.extend_from_slice(tail);
                let client_flags = old.map_or(0, |item| item.client_flags);
                let expires_at = old.and_then(|item| item.expires_at);
                match *token {
                    None => Verdict::Write { client_flags, expires_at },
                    Some(token) => Verdict::WriteToken { client_flags, expires_at, token },
                }
            }
            TestUpdate::Touch(expires_at) => Verdict::Touch { expires_at: *expires_at },
        }
    }
}

/// An outcome without borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Hit(Known),
    Miss,
    Stored { version: u64, old: Option<Known> },
    NotStored,
    Mismatch,
    Deleted(Option<Known>),
    Updated { old: Option<Known>, new: Option<Known> },
    OutOfMemory,
}

#[derive(Default)]
struct Answers(Vec<Answer>);

fn known(item: &Item<'_>) -> Known {
    Known {
        value: item.value.to_vec(),
        client_flags: item.client_flags,
        version: item.version,
        token: item.token,
        expires_at: item.expires_at,
    }
}

impl Sink<NoUpdate> for Answers {
    fn outcome(&mut self, index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        assert_eq!(index, self.0.len(), "outcomes come in order, each once");
        self.0.push(match outcome {
            Outcome::Hit(item) => Answer::Hit(known(&item)),
            Outcome::Miss => Answer::Miss,
            Outcome::Stored { version, old } => {
                Answer::Stored { version, old: old.as_ref().map(known) }
            }
            Outcome::NotStored { .. } => Answer::NotStored,
            Outcome::VersionMismatch { .. } => Answer::Mismatch,
            Outcome::Deleted { old } => Answer::Deleted(old.as_ref().map(known)),
            Outcome::Updated { old, new } => {
                Answer::Updated { old: old.as_ref().map(known), new: new.as_ref().map(known) }
            }
            Outcome::OutOfMemory => Answer::OutOfMemory,
            Outcome::TooLarge { .. }
            | Outcome::Untold
            | Outcome::Unwritable
            | Outcome::Refused(_) => {
                panic!("not asked for: {outcome:?}")
            }
        });
    }
}

/// The store under test and its expected contents.
pub struct Oracle {
    store: Arc<Store>,
    session: Session,
    asleep: Session,
    model: BTreeMap<Vec<u8>, Known>,
    now: UnixMillis,
    step: u64,
    forgotten: u64,
    /// A client's copies: the values it has read, until it is told of a change.
    copies: BTreeMap<Vec<u8>, Known>,
}

impl Oracle {
    pub fn new(store: &Arc<Store>) -> Oracle {
        let (mut session, mut asleep) = (store.session().unwrap(), store.session().unwrap());
        session.record_changes(true);
        asleep.record_changes(true);
        asleep.park();
        Oracle {
            store: Arc::clone(store),
            session,
            asleep,
            model: BTreeMap::new(),
            now: UnixMillis(1000),
            step: 0,
            forgotten: 0,
            copies: BTreeMap::new(),
        }
    }

    fn forgets(&self) -> bool {
        self.store.config().mode == Mode::Evict
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        (0..len).map(|at| (self.step as usize * 31 + at * 7) as u8).collect()
    }

    fn execute(&mut self, key: &[u8], op: Op<'_, TestUpdate<'_>>) -> Answer {
        let mut answers = Answers::default();
        let request = Request { key, hash: self.store.key_hasher().hash(key), op };
        self.session.execute(self.now, &[request], &mut answers);
        answers.0.pop().unwrap()
    }

    /// The model's item, unless it has expired.
    fn expected(&mut self, key: &[u8]) -> Option<Known> {
        let now = self.now;
        if self.model.get(key).is_some_and(|known| known.expires_at.is_some_and(|at| at <= now)) {
            self.model.remove(key);
        }
        self.model.get(key).cloned()
    }

    /// Adjusts the model if the store has lost an item: legal for a cache, and counted.
    fn reconcile(&mut self, key: &[u8], seen: Option<&Known>) -> Option<Known> {
        let expected = self.expected(key);
        if seen.is_none() && expected.is_some() && self.forgets() {
            self.forgotten += 1;
            self.model.remove(key);
            return None;
        }
        assert_eq!(seen, expected.as_ref(), "step {}, key {key:?}", self.step);
        if let Some(seen) = seen {
            self.copies.insert(key.to_vec(), seen.clone());
        }
        expected
    }

    /// Drops the copies of changed keys.
    fn tell(&mut self) {
        for session in [&mut self.session, &mut self.asleep] {
            let mut changes = Changes::default();
            session.take_changes(&mut changes);
            if changes.has_all() {
                self.copies.clear();
            }
            changes.iter().for_each(|(key, _)| drop(self.copies.remove(key)));
        }
    }

    /// Checks that each remaining copy equals the key's item, or that its item has expired and no
    /// session has met it since.
    fn check_copies(&self) {
        for (key, copy) in &self.copies {
            let is_over = copy.expires_at.is_some_and(|at| at <= self.now);
            let known = self.model.get(key);
            let versions = (copy.version, known.map(|known| known.version));
            assert!(is_over || known == Some(copy), "{key:?} is kept as of {versions:?}");
        }
    }

    pub fn apply(&mut self, action: &Action) {
        self.act(action);
        self.tell();
        if self.step.is_multiple_of(64) {
            // Evictions become known only by looking.
            let keys: Vec<_> = self.copies.keys().cloned().collect();
            keys.iter().for_each(|key| self.get(key));
            self.tell();
        }
        self.check_copies();
    }

    fn act(&mut self, action: &Action) {
        self.step += 1;
        match action {
            Action::Get(key) => self.get(key),
            Action::Set { key, len, condition, expiry } => {
                self.set(key, *len, *condition, *expiry);
            }
            Action::Delete(key) => match self.execute(key, Op::Delete) {
                Answer::Deleted(old) => {
                    self.reconcile(key, old.as_ref());
                    self.model.remove(key);
                }
                Answer::Miss => drop(self.reconcile(key, None)),
                answer => panic!("{answer:?} to a delete"),
            },
            Action::Append { key, len } => self.append(key, *len),
            Action::Touch { key, ms } => self.touch(key, *ms),
            Action::ReadSnapshot(keys) => self.read_snapshot(keys),
            Action::SetTogether(pairs) => self.set_together(pairs),
            Action::Wait(ms) => self.now.0 += ms,
            Action::Maintain => drop(self.session.maintain(self.now)),
            Action::Scan => self.scan(),
            Action::Flush => {
                self.session.flush();
                self.model.clear();
            }
            Action::Fill { first, count } => {
                for id in *first..first + count {
                    self.set(&id.to_le_bytes(), 4, 0, 0);
                }
            }
            Action::Drain { first, count } => {
                for id in *first..first + count {
                    self.apply(&Action::Delete(id.to_le_bytes().to_vec()));
                }
            }
            Action::ScanAround(inner) => self.scan_around(inner),
            Action::Batch(requests) => self.batch(requests),
            Action::Walk { is_reverse, item_limit } => self.walk(*is_reverse, *item_limit),
            Action::SwitchSession => {
                self.session.park();
                self.asleep.unpark();
                std::mem::swap(&mut self.session, &mut self.asleep);
            }
            Action::Resize(percent) => self.resize(*percent),
            Action::Tend => {
                for _ in 0..20 {
                    self.store.tend_memory(0, Duration::ZERO);
                }
            }
        }
    }

    /// Resizes the store at any time: no stored item may be lost by it (in a cache: uncounted).
    fn resize(&mut self, percent: u64) {
        let bounds = self.store.size_bounds().expect("it was opened with room");
        let span_bytes = bounds.most_bytes - bounds.least_bytes;
        let memory_bytes = bounds.least_bytes + span_bytes * percent / 100;
        let is_shrinking = memory_bytes < self.store.memory_bytes();
        match self.store.resize(memory_bytes) {
            Ok(()) => assert!(self.store.memory_bytes() <= memory_bytes),
            Err(_) => assert!(is_shrinking && memory_bytes < bounds.items_bytes),
        }
        if self.step.is_multiple_of(4) {
            if !self.forgets() {
                self.session.flush();
                self.model.clear();
            }
            self.reach_size();
        }
    }

    /// Checks that a cache gives up its surplus, and so does an empty store.
    fn reach_size(&mut self) {
        for _ in 0..100_000 {
            if self.store.surplus_bytes() == 0 {
                return;
            }
            self.session.maintain(self.now);
        }
        panic!("{} bytes are too much for good", self.store.surplus_bytes());
    }

    fn get(&mut self, key: &[u8]) {
        match self.execute(key, Op::Get) {
            Answer::Hit(seen) => drop(self.reconcile(key, Some(&seen))),
            Answer::Miss => {
                self.reconcile(key, None);
                self.tell();
                assert!(!self.copies.contains_key(key), "{key:?} is kept, and gone");
            }
            answer => panic!("{answer:?} to a get"),
        }
    }

    fn set(&mut self, key: &[u8], len: usize, condition: u8, expiry: u8) {
        // First learn what a cache may have forgotten, so that it is known whether the condition
        // holds.
        self.get(key);
        let old = self.expected(key);
        let value = self.bytes(len);
        let condition = match condition {
            0 => Condition::Always,
            1 => Condition::IfAbsent,
            2 => Condition::IfPresent,
            3 => Condition::IfToken(old.as_ref().map_or(1, |known| known.cas(key))),
            _ => Condition::IfVersion(old.as_ref().map_or(1, |known| known.version)),
        };
        let expiry = match expiry {
            0 => Expiry::Never,
            1 => Expiry::Keep,
            2 => Expiry::At(UnixMillis(self.now.0 + 100)),
            _ => Expiry::At(UnixMillis(self.now.0 + 10_000)),
        };
        // Without flags a short value may be replaced in place (K12).
        let client_flags = match self.step % 4 {
            0 | 2 => 0,
            1 => u64::from(self.step as u32),
            _ => u64::from(self.step as u32) | store::request::STALE,
        };
        let set = Set { value: &value, client_flags, expiry, condition };
        let expires_at = match expiry {
            Expiry::Never => None,
            Expiry::Keep => old.as_ref().and_then(|known| known.expires_at),
            Expiry::At(at) => Some(at),
        };
        match self.execute(key, Op::Set(set)) {
            Answer::Stored { version, old: seen } => {
                if !(seen.is_none() && self.forgets()) {
                    assert_eq!(seen, old, "what was replaced");
                }
                let floor = old.as_ref().map_or(0, |known| known.version);
                assert!(version > floor, "versions grow (K1)");
                assert!(condition != Condition::IfAbsent || seen.is_none());
                // A cache may have dropped the old one to make room for the new one.
                let kept = seen.as_ref().and_then(|seen| seen.expires_at);
                let expires_at = if expiry == Expiry::Keep { kept } else { expires_at };
                let known = Known { value, client_flags, version, token: None, expires_at };
                self.model.insert(key.to_vec(), known);
            }
            Answer::NotStored => match condition {
                Condition::IfAbsent => assert!(old.is_some()),
                _ => assert!(old.is_none() || self.forgets()),
            },
            Answer::Miss => assert!(old.is_none() || self.forgets()),
            Answer::OutOfMemory => assert!(!self.forgets(), "a cache always makes room"),
            answer => panic!("{answer:?} to a set"),
        }
    }

    fn append(&mut self, key: &[u8], len: usize) {
        let tail = self.bytes(len);
        // A token may be any number, other items' among them.
        let token = self.step.is_multiple_of(3).then_some(self.step % 7);
        match self.execute(key, Op::Update(TestUpdate::Append(&tail, token))) {
            Answer::Updated { old, new: Some(new) } => {
                let old = self.reconcile(key, old.as_ref());
                let mut value = old.as_ref().map_or(Vec::new(), |known| known.value.clone());
                value.extend_from_slice(&tail);
                assert_eq!((&new.value, new.token), (&value, token));
                assert_eq!(new.expires_at, old.as_ref().and_then(|known| known.expires_at));
                assert!(new.version > old.map_or(0, |known| known.version), "versions grow (K1)");
                self.model.insert(key.to_vec(), new);
            }
            Answer::OutOfMemory => assert!(!self.forgets()),
            answer => panic!("{answer:?} to an append"),
        }
    }

    fn touch(&mut self, key: &[u8], ms: u64) {
        let expires_at = (ms > 0).then(|| UnixMillis(self.now.0 + ms - 1));
        match self.execute(key, Op::Update(TestUpdate::Touch(expires_at))) {
            Answer::Updated { old, new } => {
                let old = self.reconcile(key, old.as_ref());
                assert_eq!(old.is_some(), new.is_some());
                if let (Some(old), Some(new)) = (old, new) {
                    assert_eq!((&new.value, new.client_flags), (&old.value, old.client_flags));
                    assert_eq!(new.token, old.token);
                    assert_eq!(new.expires_at, expires_at);
                    self.model.insert(key.to_vec(), new);
                }
            }
            Answer::Deleted(old) => {
                self.reconcile(key, old.as_ref());
                assert!(expires_at.is_some_and(|at| at <= self.now));
                self.model.remove(key);
            }
            Answer::OutOfMemory => assert!(!self.forgets()),
            answer => panic!("{answer:?} to a touch"),
        }
    }

    fn read_snapshot(&mut self, keys: &[Vec<u8>]) {
        let mut answers = Answers::default();
        let hasher = self.store.key_hasher();
        let hashed: Vec<_> = keys.iter().map(|key| (hasher.hash(key), &key[..])).collect();
        self.session.read_snapshot(self.now, &hashed, &mut answers);
        assert_eq!(answers.0.len(), keys.len());
        for (key, answer) in keys.iter().zip(answers.0) {
            match answer {
                Answer::Hit(seen) => drop(self.reconcile(key, Some(&seen))),
                Answer::Miss => drop(self.reconcile(key, None)),
                answer => panic!("{answer:?} to a read"),
            }
        }
    }

    fn set_together(&mut self, pairs: &[(Vec<u8>, usize)]) {
        let values: Vec<Vec<u8>> = pairs.iter().map(|(_, len)| self.bytes(*len)).collect();
        let hasher = self.store.key_hasher();
        let requests: Vec<Request<'_, NoUpdate>> = pairs
            .iter()
            .zip(&values)
            .map(|((key, _), value)| {
                let (expiry, condition) = (Expiry::Never, Condition::Always);
                let set = Set { value, client_flags: 0, expiry, condition };
                Request { key, hash: hasher.hash(key), op: Op::Set(set) }
            })
            .collect();
        let hashes: Vec<_> = requests.iter().map(|request| request.hash).collect();
        let mut answers = Answers::default();
        let mut locked = self.session.lock_keys(self.now, &hashes, store::Room::of([1 << 16]));
        locked.execute(self.now, &requests, &mut answers);
        drop(locked);
        for (((key, _), value), answer) in pairs.iter().zip(values).zip(answers.0) {
            match answer {
                Answer::Stored { version, .. } => {
                    let (client_flags, token, expires_at) = (0, None, None);
                    let known = Known { value, client_flags, version, token, expires_at };
                    self.model.insert(key.clone(), known);
                }
                Answer::OutOfMemory => {}
                answer => panic!("{answer:?} to a set of several"),
            }
        }
    }

    fn batch(&mut self, requests: &[(Vec<u8>, Option<Write>)]) {
        let values: Vec<Vec<u8>> = requests
            .iter()
            .map(|(_, write)| self.bytes(write.flatten().unwrap_or_default()))
            .collect();
        let hasher = self.store.key_hasher();
        let asked: Vec<Request<'_, NoUpdate>> = requests
            .iter()
            .zip(&values)
            .map(|((key, write), value)| {
                let (expiry, condition) = (Expiry::Keep, Condition::Always);
                let op = match write {
                    None => Op::Get,
                    Some(None) => Op::Delete,
                    Some(Some(_)) => Op::Set(Set { value, client_flags: 0, expiry, condition }),
                };
                Request { key, hash: hasher.hash(key), op }
            })
            .collect();
        let mut answers = Answers::default();
        self.session.execute(self.now, &asked, &mut answers);
        assert_eq!(answers.0.len(), requests.len());
        for (((key, write), value), answer) in requests.iter().zip(values).zip(answers.0) {
            match (write, answer) {
                (None, Answer::Hit(seen)) => drop(self.reconcile(key, Some(&seen))),
                (None | Some(None), Answer::Miss) => drop(self.reconcile(key, None)),
                (Some(None), Answer::Deleted(old)) => {
                    self.reconcile(key, old.as_ref());
                    self.model.remove(key);
                }
                (Some(Some(_)), Answer::Stored { version, old }) => {
                    let old = self.reconcile(key, old.as_ref());
                    assert!(version > old.as_ref().map_or(0, |old| old.version), "K1");
                    let expires_at = old.and_then(|old| old.expires_at);
                    let (client_flags, token) = (0, None);
                    let known = Known { value, client_flags, version, token, expires_at };
                    self.model.insert(key.clone(), known);
                }
                (Some(Some(_)), Answer::OutOfMemory) => {
                    assert!(!self.forgets(), "a cache always makes room");
                }
                (write, answer) => panic!("{answer:?} to {write:?} of a batch"),
            }
        }
    }

    fn walk(&mut self, is_reverse: bool, item_limit: usize) {
        let direction = if is_reverse { Direction::Reverse } else { Direction::Forward };
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        let whole = Range { start, end, direction, item_limit };
        let mut found: Vec<(Vec<u8>, Known)> = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let range = last.as_ref().map_or(whole, |last| whole.after(last));
            let visit = |item: &Item<'_>| found.push((item.key.to_vec(), known(item)));
            let Ok(ended) = self.session.range(self.now, &range, visit) else {
                assert_eq!(self.store.config().index, IndexKind::Hash);
                return;
            };
            last = ended.resume_key;
            if last.is_none() {
                break;
            }
        }
        if is_reverse {
            found.reverse();
        }
        assert!(found.is_sorted_by(|left, right| left.0 < right.0), "in order, each once");
        let found: BTreeMap<_, _> = found.into_iter().collect();
        let keys: Vec<Vec<u8>> = self.model.keys().chain(found.keys()).cloned().collect();
        for key in keys {
            self.reconcile(&key, found.get(&key));
        }
    }

    /// Checks that every item of the store is in the model; the model's other items were forgotten.
    fn scan(&mut self) {
        let mut found = BTreeMap::new();
        let mut cursor = 0;
        loop {
            let next = self.session.scan(self.now, cursor, 5, |item| {
                let before = found.insert(item.key.to_vec(), known(item));
                assert!(before.is_none(), "nothing changes meanwhile: each item once");
            });
            cursor = next.expect("the last call gave this cursor");
            if cursor == 0 {
                break;
            }
        }
        let keys: Vec<Vec<u8>> = self.model.keys().chain(found.keys()).cloned().collect();
        for key in keys {
            self.reconcile(&key, found.get(&key));
        }
    }

    /// Checks that a scan returns every item that is present throughout, whatever size the index
    /// gets meanwhile (K9).
    fn scan_around(&mut self, inner: &Action) {
        let before = self.model.clone();
        let mut found = BTreeMap::new();
        let (mut cursor, mut calls) = (0, 0);
        loop {
            let next = self.session.scan(self.now, cursor, 7, |item| {
                found.insert(item.key.to_vec(), ());
            });
            cursor = next.expect("the last call gave this cursor");
            calls += 1;
            if cursor == 0 {
                break;
            }
            if calls == 3 {
                self.apply(inner);
            }
        }
        let keys: Vec<Vec<u8>> = before.keys().cloned().collect();
        for key in keys {
            // Read from the store, which may have forgotten it meanwhile.
            self.get(&key);
            let is_unchanged = self.model.get(&key) == before.get(&key);
            assert!(!is_unchanged || found.contains_key(&key), "step {}, {key:?}", self.step);
        }
    }

    /// The final check: contents, counts and forgotten items.
    pub fn finish(&mut self) {
        self.scan();
        let stats = self.store.stats();
        let evicted = stats.evicted_by_log + stats.evicted_by_index;
        assert!(self.forgotten <= evicted, "{} forgotten, {evicted} counted", self.forgotten);
        assert!(self.forgets() || evicted == 0, "a store evicts nothing");
        // The check itself may have evicted keys that it had passed already.
        let unnoticed = evicted - self.forgotten;
        assert!(stats.items + unnoticed >= self.model.len() as u64);
        let given_bytes = self.store.memory_bytes() + self.store.surplus_bytes();
        assert!(stats.log_used_bytes + stats.index_bytes <= given_bytes);
    }
}
