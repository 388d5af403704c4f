//! A node's replica store, over the store: replication fills it, workers read from it.
//!
//! ```text
//!  control thread: Node ─ install ─▶ this ─ Session::install ─▶ index ◀─ GET ─ workers
//!                          │            └ remembered.rs: deletes, recent versions
//!                          └ take_in ─▶ crew.rs: digest threads, if there are any ─▶ the same
//! ```
//!
//! # Invariants
//! S1: a key's newest entry is in the store, or its delete is remembered, never both.
//! S2: while a shard is being cleared, its old entries are still in the index, and no reader sees
//!     them. Entries installed meanwhile wait, and the node asks for no copy before
//!     [`ReplicaStore::is_ready`].
//! S3: the store knows a shard by a number (kept.rs), at first its id plus one; 0 marks entries
//!     that are not replicated. In a durable store a cleared shard gets another number, which is
//!     written down before any old entry is removed or any new one installed.
//! S4: an entry that does not fit is not acknowledged, and its sender tries again;
//!     [`ServerReplicaStore::refused_count`] counts these cases. An entry that waited for its shard
//!     to be cleared is acknowledged: it waits until it fits, and the shard is not ready before.
//!
//! # Concurrency
//! One thread installs a shard's entries: the control thread, or the digest thread to which the
//! shard is lent (crew.rs). Workers read, and drop expired entries.

mod clearing;
mod crew;
mod digester;
mod finding;
mod flushing;
mod installing;
mod keeping;
mod load;
mod numbers;
mod recent;
mod remembered;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

use base::{KeyHash, UnixMillis};
use budget::{BufferBudget, Kind, Reservation};
use cluster::message::Hold;
use cluster::record::{self, Entry};
use cluster::slot::SLOT_COUNT;
use cluster::{Above, Done, Installed, Landed, Part, Plain, ReplicaStore, ShardId, Version};
use store::pin::Pins;
use store::{Item, NoSession, NoUpdate, Op, Outcome, Request, Session, Sink, Store};

use clearing::Clearing;
use crew::Crew;
use finding::{Finding, Found as FoundKey};
use installing::{install_all_in, install_in};
use keeping::Keeping;
use remembered::{RECENT_BYTES, RECENT_MAX_BYTES, Remembered, Why};

use crate::durable::Kept;

pub use crew::DigestFigures;
pub use digester::Call;
pub use keeping::Keep;
pub use numbers::ShardNumbers;

/// A cursor of a part whose low bits are the version behind which remembered deletes continue ...
const DELETES: u64 = 1 << 63;
/// ... and one whose low bits are a cursor of the store.
const ITEMS: u64 = 1 << 62;
/// Items of all shards that one part examines.
const PART_ITEMS_SEEN: usize = 8_192;
/// Items that one call of the store's scan examines, ...
const SCAN_ITEMS: usize = 256;
/// ... and buckets, where a part is made: an index may have few items in many of them.
const PART_BUCKETS: u32 = 512;
/// A call counts as this many examined items.
const CALL_ITEMS: usize = 64;
/// Entries whose keys are prefetched: those of one datagram.
const FORESEEN_MAX: usize = 16;
/// Bytes of keys and values at which a part is long enough: one message carries it, and a lease
/// does not end while it is made and taken in.
const PART_BYTES: usize = 1 << 20;

/// See the module's page.
pub struct ServerReplicaStore {
    state: RefCell<State>,
    /// The budget in which entries in several blocks are booked.
    budget: Option<Arc<BufferBudget>>,
}

struct State {
    store: Arc<Store>,
    session: Session,
    now: UnixMillis,
    /// Except those that are lent to digest threads.
    shards: BTreeMap<ShardId, Remembered>,
    /// None: this thread installs landed entries.
    crew: Option<Crew>,
    kept: Kept,
    /// Writes the records beside the log; none: nothing outlives this node.
    keeping: Option<Keeping>,
    /// Shards of which the log may have entries; only if records are kept.
    used: BTreeSet<ShardId>,
    numbers: Arc<ShardNumbers>,
    clearing: Clearing,
    finding: Finding,
    /// A flush was begun or has ended since the last call.
    has_flushed: bool,
    /// Changes of the kept record: the last shard that became void, ...
    void_change: u64,
    /// ... and the last floor.
    floor_change: u64,
    /// All numbers of a shard were given: the store takes no entries any more.
    is_broken: bool,
    refused_count: u64,
}

impl ServerReplicaStore {
    /// A replica store over a store that is empty and does not outlive this node; only the replica
    /// store writes to it.
    ///
    /// # Errors
    /// All places for sessions are taken.
    pub fn new(store: &Arc<Store>) -> Result<ServerReplicaStore, NoSession> {
        ServerReplicaStore::over(store, Kept::new(0), None)
    }

    /// A replica store over a durable store, as recovered under its kept record; nothing has been
    /// written to it since.
    ///
    /// # Errors
    /// All places for sessions are taken.
    pub fn durable(
        store: &Arc<Store>,
        kept: Kept,
        keep: Box<dyn Keep>,
    ) -> Result<ServerReplicaStore, NoSession> {
        ServerReplicaStore::over(store, kept, Some(Keeping::new(keep)))
    }

    fn over(
        store: &Arc<Store>,
        kept: Kept,
        keeping: Option<Keeping>,
    ) -> Result<ServerReplicaStore, NoSession> {
        let mut session = store.session()?;
        session.count_shards();
        let numbers = (0..SLOT_COUNT).map(|shard| kept.number_of(ShardId(shard)).into()).collect();
        let floors = (0..SLOT_COUNT).map(|_| 0.into()).collect();
        let mut state = State {
            store: Arc::clone(store),
            session,
            now: UnixMillis(0),
            shards: BTreeMap::new(),
            crew: None,
            kept,
            keeping,
            used: BTreeSet::new(),
            numbers: Arc::new(ShardNumbers(numbers, floors)),
            clearing: Clearing::default(),
            finding: Finding::default(),
            has_flushed: false,
            void_change: 0,
            floor_change: 0,
            is_broken: false,
            refused_count: 0,
        };
        state.remember_recovered();
        Ok(ServerReplicaStore { state: RefCell::new(state), budget: None })
    }

    /// Books entries that come in several blocks from now on.
    pub fn book(&mut self, budget: &Arc<BufferBudget>) {
        self.budget = Some(Arc::clone(budget));
    }

    /// Asks to write down CommitVer, and any record whose write failed; about once a second.
    pub fn ask_to_keep(&self) {
        self.state.borrow_mut().keeping.iter_mut().for_each(Keeping::ask);
    }

    /// Takes the result of the last write, and starts the next one. Called between the node's
    /// inputs.
    ///
    /// # Errors
    /// The last write failed.
    pub fn keep_step(&self) -> std::io::Result<()> {
        let State { keeping, kept, .. } = &mut *self.state.borrow_mut();
        keeping.as_mut().map_or(Ok(()), |keeping| keeping.step(|| kept.encode()))
    }

    /// Shards of which entries were recovered, and what of each is on all copies.
    pub fn recovered(&self) -> Vec<(ShardId, Version)> {
        let state = self.state.borrow();
        state.used.iter().map(|shard| (*shard, state.kept.commit_of(*shard))).collect()
    }

    /// The numbers by which the store knows shards, for other threads.
    pub fn numbers(&self) -> Arc<ShardNumbers> {
        Arc::clone(&self.state.borrow().numbers)
    }

    /// Sets the time as of which items count as expired.
    pub fn set_now(&self, now: UnixMillis) {
        self.state.borrow_mut().now = now;
    }

    /// Does a bounded step of the remaining work; returns true if there is more. Called between the
    /// node's inputs.
    pub fn work(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let clears_more = state.clear_step();
        let finds_more = state.find_step();
        let now = state.now;
        state.session.maintain(now) || clears_more || finds_more
    }

    /// Parks the session before the control thread waits.
    pub fn park(&self) {
        self.state.borrow_mut().session.park();
    }

    /// Unparks it after the wait.
    pub fn unpark(&self) {
        self.state.borrow_mut().session.unpark();
    }

    /// Prefetches the state of the keys in frames that are about to land, so that it arrives for
    /// one while another is installed. A hint.
    pub fn foresee<'f>(&self, frames: impl Iterator<Item = &'f [u8]>) {
        let state = self.state.borrow();
        if state.crew.is_some() {
            return; // Their threads look ahead.
        }
        let hasher = state.store.key_hasher();
        let mut keys = [(KeyHash(0), &[][..]); FORESEEN_MAX];
        let mut count = 0;
        for key in frames.filter_map(record::key_of).take(FORESEEN_MAX) {
            keys[count] = (hasher.hash(key), key);
            count += 1;
        }
        state.session.foresee(&keys[..count]);
    }

    /// How often an entry did not fit into the store (S4).
    pub fn refused_count(&self) -> u64 {
        let digested = self.digest_figures().iter().map(|of| of.refused).sum::<u64>();
        self.state.borrow().refused_count + digested
    }
}

/// One item, copied out of the store.
struct Found {
    shard: ShardId,
    number: NonZeroU16,
    entry: Option<Arc<Entry>>,
}

impl Sink<NoUpdate> for Found {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.entry = entry_of((self.shard, self.number), &item);
        }
    }
}

/// An item as the entry as which it was installed. The client that wrote it is not kept: sessions
/// remember their answers.
fn entry_of((shard, number): (ShardId, NonZeroU16), item: &Item<'_>) -> Option<Arc<Entry>> {
    if item.shard != number.get() {
        return None;
    }
    let version = Version::from_bits(item.version)?;
    let expires_at = item.expires_at;
    let (value, client_flags) = item.folded();
    let value = Some(Arc::from(&*value));
    let delete = Entry::delete_of(shard, item.key.into(), version);
    Some(Arc::new(Entry { value, client_flags, expires_at, ..delete }))
}

impl State {
    fn get(&mut self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        if self.clearing.has(shard) {
            return None;
        }
        self.recall(shard);
        let remembered = self.shards.get(&shard);
        if let Some(version) = remembered.and_then(|remembered| remembered.delete_of(key)) {
            return Some(Arc::new(Entry::delete_of(shard, key.into(), version)));
        }
        let hash = self.store.key_hasher().hash(key);
        let request = Request { key, hash, op: Op::<NoUpdate>::Get };
        let mut found = Found { shard, number: self.numbers.of(shard), entry: None };
        self.session.execute(self.now, &[request], &mut found);
        let floor = self.floor(shard);
        found.entry.filter(|entry| entry.version > floor)
    }

    /// `own_key`: the key, if the caller has it in an `Arc` already.
    fn install(&mut self, plain: &Plain<'_>, own_key: Option<&Arc<[u8]>>) -> Installed {
        if self.takes_nothing() {
            return Installed::NoRoom;
        }
        if self.clearing.has(plain.shard) {
            return self.wait(Arc::new(plain.to_entry()));
        }
        self.recall(plain.shard);
        let number = self.numbers.of(plain.shard);
        let State { store, session, now, shards, .. } = self;
        let remembered = shards.entry(plain.shard).or_default();
        let hash = || store.key_hasher().hash(plain.key);
        let installed = install_in(session, *now, remembered, (plain, number), own_key, hash);
        match installed {
            Installed::NoRoom => self.refused_count += 1,
            Installed::Newest if self.keeping.is_some() => drop(self.used.insert(plain.shard)),
            _ => {}
        }
        installed
    }

    fn install_all(&mut self, shard: ShardId, entries: &[Arc<Entry>]) -> Installed {
        if self.takes_nothing() {
            return Installed::NoRoom;
        }
        self.recall(shard);
        let number = self.numbers.of(shard);
        let State { store, session, now, shards, .. } = self;
        let remembered = shards.entry(shard).or_default();
        let hash = |key: &[u8]| store.key_hasher().hash(key);
        let is_full = install_all_in(session, *now, remembered, (entries, number), hash);
        self.refused_count += u64::from(is_full);
        if self.keeping.is_some() {
            self.used.insert(shard);
        }
        if is_full { Installed::NoRoom } else { Installed::Newest }
    }

    /// A record that had to be written could not be: no entry is taken until it is.
    fn takes_nothing(&self) -> bool {
        self.is_broken || self.keeping.as_ref().is_some_and(Keeping::is_stuck)
    }

    /// Makes an entry wait until the shard is cleared.
    fn wait(&mut self, entry: Arc<Entry>) -> Installed {
        self.clearing.waiting.push(entry);
        Installed::Newest
    }

    fn above(&mut self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above> {
        self.recall(shard);
        let Some(recent) = self.shards.entry(shard).or_default().recent_above(floor) else {
            self.find(shard, floor);
            return None;
        };
        let recent = recent.take(entry_max.max(1));
        let recent: Vec<_> = recent.map(|(version, key)| (version, key.to_vec())).collect();
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, floor);
        for (version, key) in &recent {
            let entry = self.get(shard, key).filter(|entry| entry.version == *version);
            bytes += entry.iter().map(|entry| entry.key.len() + value_len(entry)).sum::<usize>();
            entries.extend(entry);
            last = *version;
            if bytes >= PART_BYTES {
                break;
            }
        }
        let is_last = recent.len() < entry_max && recent.last().is_none_or(|it| it.0 == last);
        let next = (!is_last).then_some(last);
        // A flush is part of the slice into which its version falls.
        let flush = self.flush_above(shard, floor);
        entries.extend(flush.filter(|flush| is_last || flush.version <= last));
        entries.sort_by_key(|entry| entry.version);
        Some(Above { entries, next })
    }

    fn part(&mut self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        if self.clearing.has(shard) {
            return Part::default();
        }
        self.recall(shard);
        if cursor & ITEMS == 0 {
            let mut part = self.part_of_deletes(shard, cursor & !DELETES, entry_max);
            if cursor == 0 {
                part.entries.extend(self.flush_above(shard, Version::ZERO));
            }
            if part.next.is_some() || part.entries.len() >= entry_max {
                return Part { next: part.next.or(Some(ITEMS)), ..part };
            }
            let left = entry_max.saturating_sub(part.entries.len());
            return self.part_of_items(shard, 0, left, part.entries);
        }
        self.part_of_items(shard, cursor & !ITEMS, entry_max, Vec::new())
    }

    /// Remembered deletes behind a version. New ones are added at the end, and a walk under way
    /// finds them.
    fn part_of_deletes(&self, shard: ShardId, floor: u64, entry_max: usize) -> Part {
        let (Some(remembered), Some(floor)) = (self.shards.get(&shard), Version::from_bits(floor))
        else {
            return Part::default();
        };
        let mut part = Part::default();
        for (version, key) in remembered.deletes_above(floor) {
            if part.entries.len() >= entry_max.max(1) {
                let last = part.entries.last().map(|entry| entry.version.bits());
                part.next = last.map(|last| DELETES | last);
                break;
            }
            part.entries.push(Arc::new(Entry::delete_of(shard, key.clone(), version)));
        }
        part
    }

    fn part_of_items(
        &mut self,
        shard: ShardId,
        cursor: u64,
        entry_max: usize,
        mut entries: Vec<Arc<Entry>>,
    ) -> Part {
        let enough = entries.len() + entry_max.clamp(1, PART_ITEMS_SEEN);
        let (mut cursor, mut seen, number) = (cursor, 0, self.numbers.of(shard));
        let floor = self.floor(shard);
        let (mut bytes, mut target) = (0, 1);
        while seen < PART_ITEMS_SEEN && entries.len() < enough && bytes < PART_BYTES {
            let limits = (target, PART_BUCKETS);
            let scanned = self.session.scan_within(self.now, cursor, limits, |item| {
                let entry = entry_of((shard, number), item);
                let entry = entry.filter(|entry| entry.version > floor);
                bytes += entry.iter().map(|_| item.key.len() + item.value.len()).sum::<usize>();
                entries.extend(entry);
                seen += 1;
            });
            // Large steps past small items only, because a step is not cut in its middle.
            target = match bytes < PART_BYTES / 16 {
                true => SCAN_ITEMS.min(target * 2),
                false => 1,
            };
            match scanned {
                Ok(0) => return Part { entries, next: None },
                Ok(next) => cursor = next,
                // The store has forgotten its own cursor: the walk starts again.
                Err(_) => return Part { entries, next: Some(ITEMS) },
            }
            seen += CALL_ITEMS;
        }
        Part { entries, next: Some(ITEMS | cursor) }
    }

    /// Takes up the findings of a recovery: deletes that may still have to keep older entries away,
    /// and the versions that only the index knows.
    fn remember_recovered(&mut self) {
        let recovered = self.walk_recovered();
        for (shard, newest, found) in recovered.values().filter_map(Recovered::of_shard) {
            self.used.insert(shard);
            let commit = self.kept.commit_of(shard);
            let remembered = self.shards.entry(shard).or_default();
            remembered.commit(commit);
            remembered.begin_above(newest);
            if found.is_some() {
                remembered.begin_finding(commit);
            }
        }
        for (shard, floor) in self.kept.floors() {
            self.used.insert(shard);
            let commit = self.kept.commit_of(shard);
            let remembered = self.shards.entry(shard).or_default();
            remembered.commit(commit);
            remembered.flush(floor);
            self.sweep_below(shard, floor);
        }
        let mut deletes = self.store.take_recovered_deletes();
        deletes.sort_unstable_by_key(|delete| delete.version);
        for delete in deletes {
            let version = Version::from_bits(delete.version).unwrap_or_default();
            let Some(shard) = self.kept.shard_of(delete.shard.get()) else { continue };
            self.used.insert(shard);
            let commit = self.kept.commit_of(shard);
            let remembered = self.shards.entry(shard).or_default();
            remembered.commit(commit);
            if version > commit {
                remembered.add(&delete.key, None, version, Why::Deleted);
            }
        }
        for Recovered { shard, found, .. } in recovered.into_values() {
            if let Some(remembered) = shard.and_then(|shard| self.shards.get_mut(&shard)) {
                remembered.end_finding(found.unwrap_or_default());
            }
        }
    }

    /// One walk over the index for all shards, by their numbers.
    fn walk_recovered(&mut self) -> BTreeMap<u16, Recovered> {
        let mut recovered: BTreeMap<u16, Recovered> = BTreeMap::new();
        let State { session, kept, keeping, now, .. } = self;
        let mut cursor = 0;
        while keeping.is_some() {
            let next = session.scan(*now, cursor, SCAN_ITEMS, |item| {
                let of_number =
                    recovered.entry(item.shard).or_insert_with(|| Recovered::new(item.shard, kept));
                of_number.see(Version::from_bits(item.version).unwrap_or_default(), item.key);
            });
            match next {
                Ok(0) | Err(_) => break,
                Ok(next) => cursor = next,
            }
        }
        recovered
    }
}

/// The findings in the index under one number, at a start.
struct Recovered {
    /// None: the number no longer belongs to a shard.
    shard: Option<ShardId>,
    commit: Version,
    newest: Version,
    /// Versions that are not known to be on all copies; none: more than is remembered of a shard.
    found: Option<Vec<FoundKey>>,
    found_bytes: usize,
}

impl Recovered {
    fn new(number: u16, kept: &Kept) -> Recovered {
        let shard = kept.shard_of(number);
        let commit = shard.map(|shard| kept.commit_of(shard)).unwrap_or_default();
        let (newest, found) = (Version::ZERO, Some(Vec::new()));
        Recovered { shard, commit, newest, found, found_bytes: 0 }
    }

    fn see(&mut self, version: Version, key: &[u8]) {
        self.newest = self.newest.max(version);
        if version <= self.commit || self.shard.is_none() {
            return;
        }
        self.found_bytes += key.len() + RECENT_BYTES;
        if self.found_bytes > RECENT_MAX_BYTES {
            self.found = None;
        }
        if let Some(found) = &mut self.found {
            found.push((version, key.into()));
        }
    }

    fn of_shard(&self) -> Option<(ShardId, Version, Option<&Vec<FoundKey>>)> {
        Some((self.shard?, self.newest, self.found.as_ref()))
    }
}

fn value_len(entry: &Entry) -> usize {
    entry.value.as_ref().map_or(0, |value| value.len())
}

impl ReplicaStore for ServerReplicaStore {
    fn try_hold(&self, bytes: u64) -> Option<Hold> {
        let Some(budget) = &self.budget else { return Some(Hold::default()) };
        let booked = Reservation::try_new(budget, Kind::Landing, bytes);
        // Too long for the share: an entry of a node with more memory than this one. It may be as
        // long as a value that may wait for clients here.
        let is_longer = bytes > budget.kind_limit_bytes(Kind::Landing);
        let beside = || Reservation::try_new(budget, Kind::Scratch, bytes);
        booked.or_else(|| beside().filter(|_| is_longer)).map(Hold::new)
    }

    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.state.borrow_mut().get(shard, key)
    }

    fn install(&mut self, entry: Arc<Entry>) -> Installed {
        let mut state = self.state.borrow_mut();
        match entry.is_flush {
            true if entry.version <= state.floor(entry.shard) => Installed::Older,
            true if state.clearing.has(entry.shard) => state.wait(entry),
            true => state.flush(entry.shard, entry.version),
            false => state.install(&entry.as_plain(), Some(&entry.key)),
        }
    }

    fn install_all(&mut self, entries: &[Arc<Entry>]) -> Installed {
        let Some(first) = entries.first() else { return Installed::Newest };
        let is_plain = entries.iter().all(|one| !one.is_flush && one.shard == first.shard);
        if is_plain && !self.state.get_mut().clearing.has(first.shard) {
            return self.state.get_mut().install_all(first.shard, entries);
        }
        let mut installed = entries.iter().map(|entry| self.install(entry.clone()));
        installed.find(|one| *one == Installed::NoRoom).unwrap_or(Installed::Newest)
    }

    fn install_plain(&mut self, plain: &Plain<'_>) -> Installed {
        self.state.borrow_mut().install(plain, None)
    }

    fn take_in(&mut self, landed: Landed, plain: &Plain<'_>) -> Installed {
        self.state.get_mut().take_in(landed, plain)
    }

    fn take_in_entry(&mut self, landed: Landed, entry: &Arc<Entry>) -> Installed {
        let installed = self.state.get_mut().take_in_entry(landed, entry);
        installed.unwrap_or_else(|| self.install(entry.clone()))
    }

    fn finish(&mut self) {
        self.finish_digest();
    }

    fn take_done(&mut self, done: &mut Vec<Done>) {
        self.collect_done(done);
    }

    fn is_log(&self) -> bool {
        true
    }

    fn above(&self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above> {
        self.state.borrow_mut().above(shard, floor, entry_max)
    }

    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        self.state.borrow_mut().part(shard, cursor, entry_max)
    }

    fn clear(&mut self, shard: ShardId) {
        self.state.borrow_mut().clear(shard);
    }

    fn is_ready(&self, shard: ShardId) -> bool {
        self.state.borrow().clearing.is_over(shard)
    }

    fn commit(&mut self, shard: ShardId, version: Version) {
        self.state.get_mut().commit(shard, version);
    }

    fn forget_deletes(&mut self, shard: ShardId, through: Version) {
        self.state.get_mut().forget(shard, through);
    }
}

#[cfg(test)]
mod tests;
