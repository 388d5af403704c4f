//! The shelf of a node over the store: workers read what replication fills.
//!
//! ```text
//!  control thread: Node ─ install ─▶ StoreShelf ─ Session::install ─▶ index ◀─ GET ─ workers
//!                                       └ remembered.rs: deletes, recent versions
//! ```
//!
//! # Invariants
//! S1: a key's newest entry is in the store, or its delete is remembered, never both.
//! S2: while a shard is being cleared its old entries are still in the index, and nobody is told:
//!     what is installed meanwhile waits, and the node asks for no copy before [`Shelf::is_ready`].
//! S3: the store knows a shard as its id plus one; 0 is what is not replicated.
//! S4: an entry that does not fit is not acknowledged, and its sender tries again;
//!     [`StoreShelf::refused_count`] says how often that was.
//!
//! # Concurrency
//! One thread, the control thread, installs. Workers read, and drop what has expired.

mod remembered;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

use base::UnixMillis;
use cluster::record::{Answered, Entry};
use cluster::{ClientId, Installed, Part, ShardId, Shelf, Slot, Version};
use store::pin::Pins;
use store::{
    Item, NoSession, NoUpdate, Op, Outcome, Replica, ReplicaChange, Request, Session, Sink, Store,
    Sweep,
};

use remembered::{Kept, Remembered};

/// A cursor of a part whose low bits are the version behind which remembered deletes go on ...
const DELETES: u64 = 1 << 63;
/// ... and one whose low bits are a cursor of the store.
const ITEMS: u64 = 1 << 62;
/// Items of all shards that one part looks at.
const PART_ITEMS_SEEN: usize = 8_192;
/// Items that one call of the store's scan looks at.
const SCAN_ITEMS: usize = 256;

/// See the module's page.
pub struct StoreShelf {
    state: RefCell<State>,
}

struct State {
    store: Arc<Store>,
    session: Session,
    now: UnixMillis,
    shards: BTreeMap<ShardId, Remembered>,
    clearing: Clearing,
    refused_count: u64,
}

/// Shards whose entries are being removed.
#[derive(Default)]
struct Clearing {
    sweep: Sweep,
    /// Those that this walk removes from its beginning on ...
    now: BTreeSet<ShardId>,
    /// ... and those that the next one will.
    next: BTreeSet<ShardId>,
    /// What came for them meanwhile.
    waiting: Vec<Arc<Entry>>,
}

impl Clearing {
    fn has(&self, shard: ShardId) -> bool {
        self.now.contains(&shard) || self.next.contains(&shard)
    }
}

impl StoreShelf {
    /// A shelf over a store that is empty, or was recovered; nobody writes to it but this shelf.
    ///
    /// # Errors
    /// All places for sessions are taken.
    pub fn new(store: &Arc<Store>) -> Result<StoreShelf, NoSession> {
        let mut session = store.session()?;
        session.count_shards();
        let (now, shards) = (UnixMillis(0), BTreeMap::new());
        let (store, clearing) = (Arc::clone(store), Clearing::default());
        let state = State { store, session, now, shards, clearing, refused_count: 0 };
        Ok(StoreShelf { state: RefCell::new(state) })
    }

    /// What time it is: whether items have expired is asked as of then.
    pub fn set_now(&self, now: UnixMillis) {
        self.state.borrow_mut().now = now;
    }

    /// A bounded step of what is left to do; true: there is more. Between the node's inputs.
    pub fn work(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let clears_more = state.clear_step();
        let now = state.now;
        state.session.maintain(now) || clears_more
    }

    /// Before the control thread waits: holds nothing of the store back.
    pub fn park(&self) {
        self.state.borrow_mut().session.park();
    }

    /// After it has waited.
    pub fn unpark(&self) {
        self.state.borrow_mut().session.unpark();
    }

    /// How often an entry did not fit into the store (S4).
    pub fn refused_count(&self) -> u64 {
        self.state.borrow().refused_count
    }
}

/// Keys that a shard has, expired ones that are still there among them (DBSIZE); for any thread.
pub fn key_count(store: &Store, shard: ShardId) -> u64 {
    store.shard_item_count(tag_of(shard).get())
}

/// At most `key_max` keys of a slot, by a walk over the whole store (CLUSTER GETKEYSINSLOT); their
/// number, all of them, comes first (CLUSTER COUNTKEYSINSLOT).
pub fn keys_in_slot(
    session: &mut Session,
    now: UnixMillis,
    (slot, shard): (Slot, ShardId),
    key_max: usize,
) -> (u64, Vec<Vec<u8>>) {
    let tag = tag_of(shard).get();
    let (mut cursor, mut count, mut keys) = (0, 0, BTreeSet::new());
    loop {
        let next = session.scan(now, cursor, SCAN_ITEMS, |item| {
            if item.shard == tag && Slot::of(item.key) == slot {
                count += 1;
                if keys.len() < key_max {
                    keys.insert(item.key.to_vec());
                }
            }
        });
        match next {
            Ok(0) | Err(_) => return (count, keys.into_iter().collect()),
            Ok(next) => cursor = next,
        }
    }
}

/// S3.
fn tag_of(shard: ShardId) -> NonZeroU16 {
    NonZeroU16::MIN.saturating_add(shard.0)
}

/// One item, out of the store.
struct Found {
    shard: ShardId,
    entry: Option<Arc<Entry>>,
}

impl Sink<NoUpdate> for Found {
    fn outcome(&mut self, _index: usize, outcome: Outcome<'_, NoUpdate>, _pins: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            self.entry = entry_of(self.shard, &item);
        }
    }
}

/// An item as the entry that it was installed as. Who asked for it is not kept: sessions know what
/// they were answered.
fn entry_of(shard: ShardId, item: &Item<'_>) -> Option<Arc<Entry>> {
    if item.shard != tag_of(shard).get() {
        return None;
    }
    let version = Version::from_bits(item.version)?;
    let (client_flags, expires_at) = (item.client_flags, item.expires_at);
    let value = Some(item.value.into());
    let put =
        Entry { value, client_flags, expires_at, ..delete_of(shard, item.key.into(), version) };
    Some(Arc::new(put))
}

fn delete_of(shard: ShardId, key: Arc<[u8]>, version: Version) -> Entry {
    Entry {
        shard,
        version,
        client: ClientId::NOBODY,
        sequence: 0,
        answered: Answered::Done,
        key,
        value: None,
        client_flags: 0,
        expires_at: None,
    }
}

impl State {
    fn get(&mut self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        if self.clearing.has(shard) {
            return None;
        }
        let remembered = self.shards.get(&shard);
        if let Some(version) = remembered.and_then(|remembered| remembered.delete_of(key)) {
            return Some(Arc::new(delete_of(shard, key.into(), version)));
        }
        let hash = self.store.key_hasher().hash(key);
        let request = Request { key, hash, op: Op::<NoUpdate>::Get };
        let mut found = Found { shard, entry: None };
        self.session.execute(self.now, &[request], &mut found);
        found.entry
    }

    fn install(&mut self, entry: &Arc<Entry>) -> Installed {
        if self.clearing.has(entry.shard) {
            self.clearing.waiting.push(entry.clone());
            return Installed::Newest;
        }
        let Entry { shard, version, key, value, client_flags, expires_at, .. } = &**entry;
        let remembered = self.shards.entry(*shard).or_default();
        if remembered.version_of(key).is_some_and(|present| present >= *version) {
            return Installed::Older;
        }
        let (client_flags, expires_at) = (*client_flags, *expires_at);
        let change = match value {
            Some(value) => ReplicaChange::Put { value, client_flags, expires_at },
            None => ReplicaChange::Delete,
        };
        let hash = self.store.key_hasher().hash(key);
        let (version_bits, tag) = (version.bits(), tag_of(*shard));
        let replica = Replica { key, hash, change, version: version_bits, shard: tag };
        match self.session.install(self.now, &replica) {
            Ok(store::Installed::Newest) => {}
            Ok(store::Installed::Older { .. }) => return Installed::Older,
            Err(_) => {
                self.refused_count += 1;
                return Installed::NoRoom;
            }
        }
        let kept = match value {
            None => Kept::Delete,
            Some(_) if expires_at.is_some() => Kept::MayExpire,
            Some(_) => Kept::InIndex,
        };
        remembered.add(key, *version, kept);
        Installed::Newest
    }

    fn above(&mut self, shard: ShardId, floor: Version) -> Vec<Arc<Entry>> {
        let remembered = self.shards.entry(shard).or_default();
        let recent = remembered.recent_above(floor);
        let recent: Option<Vec<_>> =
            recent.map(|recent| recent.map(|(version, key)| (version, key.clone())).collect());
        if let Some(recent) = recent {
            let newest = recent.into_iter().filter_map(|(version, key)| {
                self.get(shard, &key).filter(|entry| entry.version == version)
            });
            return newest.collect();
        }
        let (mut cursor, mut entries) = (0, Vec::new());
        loop {
            let part = self.part(shard, cursor, usize::MAX);
            entries.extend(part.entries.into_iter().filter(|entry| entry.version > floor));
            match part.next {
                Some(next) => cursor = next,
                None => return entries,
            }
        }
    }

    fn part(&mut self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        if self.clearing.has(shard) {
            return Part::default();
        }
        if cursor & ITEMS == 0 {
            let part = self.part_of_deletes(shard, cursor & !DELETES, entry_max);
            if part.next.is_some() || part.entries.len() >= entry_max {
                return Part { next: part.next.or(Some(ITEMS)), ..part };
            }
            let left = entry_max - part.entries.len();
            return self.part_of_items(shard, 0, left, part.entries);
        }
        self.part_of_items(shard, cursor & !ITEMS, entry_max, Vec::new())
    }

    /// Remembered deletes behind a version. New ones come at the end, and land at who walks.
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
            part.entries.push(Arc::new(delete_of(shard, key.clone(), version)));
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
        let (mut cursor, mut seen) = (cursor, 0);
        while seen < PART_ITEMS_SEEN && entries.len() < enough {
            let scanned = self.session.scan(self.now, cursor, SCAN_ITEMS, |item| {
                entries.extend(entry_of(shard, item));
                seen += 1;
            });
            match scanned {
                Ok(0) => return Part { entries, next: None },
                Ok(next) => cursor = next,
                // The store has forgotten its own cursor: the walk begins anew.
                Err(_) => return Part { entries, next: Some(ITEMS) },
            }
            // An index with few items in many buckets.
            seen += SCAN_ITEMS / 8;
        }
        Part { entries, next: Some(ITEMS | cursor) }
    }

    fn clear(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.clearing.waiting.retain(|entry| entry.shard != shard);
        // What is being removed goes with the walk that began before, or the next one.
        let is_empty = self.store.shard_item_count(tag_of(shard).get()) == 0;
        if !is_empty && !self.clearing.now.contains(&shard) {
            self.clearing.next.insert(shard);
        }
    }

    fn clear_step(&mut self) -> bool {
        if self.clearing.now.is_empty() {
            self.clearing.now = std::mem::take(&mut self.clearing.next);
        }
        if self.clearing.now.is_empty() {
            return false;
        }
        let Clearing { sweep, now, .. } = &mut self.clearing;
        let is_gone = |tag: u16| tag > 0 && now.contains(&ShardId(tag - 1));
        if self.session.sweep_step(sweep, is_gone) {
            return true;
        }
        self.clearing.sweep = Sweep::default();
        self.clearing.now.clear();
        let (next, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.clearing.waiting)
            .into_iter()
            .partition(|entry| self.clearing.has(entry.shard));
        self.clearing.waiting = next;
        for entry in waiting {
            self.install(&entry);
        }
        !self.clearing.next.is_empty()
    }
}

impl Shelf for StoreShelf {
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.state.borrow_mut().get(shard, key)
    }

    fn install(&mut self, entry: Arc<Entry>) -> Installed {
        self.state.borrow_mut().install(&entry)
    }

    fn is_log(&self) -> bool {
        true
    }

    fn above(&self, shard: ShardId, floor: Version) -> Vec<Arc<Entry>> {
        self.state.borrow_mut().above(shard, floor)
    }

    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        self.state.borrow_mut().part(shard, cursor, entry_max)
    }

    fn clear(&mut self, shard: ShardId) {
        self.state.borrow_mut().clear(shard);
    }

    fn is_ready(&self, shard: ShardId) -> bool {
        !self.state.borrow().clearing.has(shard)
    }

    fn commit(&mut self, shard: ShardId, version: Version) {
        self.state.borrow_mut().shards.entry(shard).or_default().commit(version);
    }

    fn forget_deletes(&mut self, shard: ShardId, through: Version) {
        self.state.borrow_mut().shards.entry(shard).or_default().forget(through);
    }
}

#[cfg(test)]
mod tests;
