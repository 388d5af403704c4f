//! The simulated machine of a server: a clock with an error, a disk, a replica store.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::Instant;
use cluster::message::Hold;
use cluster::record::{Entry, Kind, Session, append_mark, append_session};
use cluster::{
    Above, Done, Installed, Landed, MemoryReplicaStore, Part, Plain, ReplicaStore, ShardId, Version,
};

use crate::cluster::dice::Dice;

/// A monotonic clock: its own zero, its own speed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero_ns: i64,
    /// Parts of a million faster than true time.
    fast_ppm: i64,
}

impl Clock {
    pub(super) fn draw(drift_ppm: u64, dice: &mut Dice) -> Clock {
        if drift_ppm == 0 {
            return Clock { zero_ns: 0, fast_ppm: 0 };
        }
        let fast_ppm = dice.between(0, 2 * drift_ppm) as i64 - drift_ppm as i64;
        Clock { zero_ns: dice.below(1 << 40) as i64, fast_ppm }
    }

    pub(super) fn at(&self, true_ns: u64) -> Instant {
        let fast_ns = true_ns as i64 / 1_000 * self.fast_ppm / 1_000;
        Instant { ns: true_ns.saturating_add_signed(self.zero_ns + fast_ns) }
    }

    /// Moves the clock forward by this amount.
    pub(super) fn jump(&mut self, by_ns: i64) {
        self.zero_ns += by_ns;
    }
}

/// A log on a medium: a crash keeps the synced part, and some of the rest, perhaps torn.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    bytes: Vec<u8>,
    synced_bytes: usize,
    /// The length at the start of the present incarnation.
    incarnation_start_bytes: usize,
}

impl Disk {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Ends a sync that was requested at that length; returns the length that the node is told. A
    /// lying disk keeps nothing.
    pub(super) fn synced(&mut self, len_bytes: usize, lies: bool) -> u64 {
        if !lies {
            self.synced_bytes = self.synced_bytes.max(len_bytes);
        }
        (len_bytes - self.incarnation_start_bytes) as u64
    }

    /// The power fails.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        let unsynced = self.bytes.len() - self.synced_bytes;
        let kept = dice.below(unsynced as u64 + 1) as usize;
        self.bytes.truncate(self.synced_bytes + kept);
        if kept > 0 && dice.happens(500_000) {
            // The last sector was being written.
            let torn = self.synced_bytes.max(self.bytes.len().saturating_sub(64));
            let len = self.bytes.len();
            self.bytes[torn..len].fill(0xa5);
        }
        self.synced_bytes = self.bytes.len();
    }

    /// A bit flips somewhere.
    pub(super) fn rot(&mut self, dice: &mut Dice) {
        if !self.bytes.is_empty() {
            let at = dice.index(self.bytes.len());
            self.bytes[at] ^= 1 << dice.below(8);
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins an incarnation whose recovery found this much of the log whole.
    pub(super) fn begin(&mut self, whole_bytes: usize) {
        self.bytes.truncate(whole_bytes);
        self.synced_bytes = whole_bytes;
        self.incarnation_start_bytes = whole_bytes;
    }
}

/// Digest threads: landed entries reach the replica store later, in order only within their shard.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    dice: Dice,
    /// The entries to install, by shard.
    waiting: BTreeMap<ShardId, VecDeque<(Landed, Arc<Entry>)>>,
    /// Shards whose last entry had no room.
    full: BTreeSet<ShardId>,
    done: Vec<Done>,
    /// Whether it acknowledges entries that still wait.
    is_hasty: bool,
}

/// Entries that the replica store has no room for when their turn comes, in a million.
const NO_ROOM_PPM: u64 = 30_000;

impl Crew {
    pub(super) fn new(seed: u64, incarnation: u32, is_hasty: bool) -> Crew {
        let dice = Dice::new(seed, 1_000 + u64::from(incarnation));
        let (waiting, full) = (BTreeMap::new(), BTreeSet::new());
        Crew { dice, waiting, full, done: Vec::new(), is_hasty }
    }
}

/// A replica store finds the entries above a version only by a search, except every `LOOKS`th time
/// ...
const LOOKS: u32 = 2;
/// ... and returns this many entries at once.
const ABOVE_ENTRIES: usize = 3;

/// The nodes' replica store, with an option to forget deletes.
#[derive(Clone, Debug, Default)]
pub(super) struct TestReplicaStore {
    pub(super) inner: RefCell<MemoryReplicaStore>,
    /// The threads that install landed entries; `None`: the node installs them itself.
    pub(super) crew: Option<RefCell<Crew>>,
    /// Whether the time of the crew's next step is known.
    pub(super) is_woken: Cell<bool>,
    /// How often it was asked for entries above a version.
    pub(super) looked_count: Cell<u32>,
    /// Of the server.
    pub(super) incarnation: u32,
    pub(super) loses_deletes: bool,
    /// Whether a flush deletes but rejects no older entry.
    pub(super) loses_flushes: bool,
    /// Whether it is the node's log; then `unlogged` is the data to write to the disk.
    pub(super) is_log: bool,
    pub(super) unlogged: RefCell<Vec<u8>>,
    /// Each incomplete entry of several blocks holds it.
    pub(super) assembling: Arc<()>,
}

/// Entries of several blocks that a replica store has memory to put together at a time, if it is
/// the log: few enough that they wait for one another.
const ASSEMBLING_MAX: usize = 2;

impl ReplicaStore for TestReplicaStore {
    fn get(&self, shard: ShardId, key: &[u8]) -> Option<Arc<Entry>> {
        self.finish_shard(shard);
        let entry = self.inner.borrow().get(shard, key)?;
        (!self.loses_deletes || entry.value.is_some()).then_some(entry)
    }

    fn install(&mut self, entry: Arc<Entry>) -> Installed {
        self.finish_shard(entry.shard);
        self.put(entry)
    }

    fn take_in(&mut self, landed: Landed, plain: &Plain<'_>) -> Installed {
        self.hand_over(landed, Arc::new(plain.to_entry()))
    }

    fn take_in_entry(&mut self, landed: Landed, entry: &Arc<Entry>) -> Installed {
        self.hand_over(landed, entry.clone())
    }

    fn finish(&mut self) {
        while self.digest_some() {}
    }

    fn try_hold(&self, _bytes: u64) -> Option<Hold> {
        (self.assembling_count() < ASSEMBLING_MAX).then(|| Hold::new(Arc::clone(&self.assembling)))
    }

    fn take_done(&mut self, done: &mut Vec<Done>) {
        if let Some(crew) = &mut self.crew {
            done.append(&mut crew.get_mut().done);
        }
    }

    fn is_log(&self) -> bool {
        self.is_log
    }

    fn remember(&mut self, session: &Session) {
        append_session(session, self.unlogged.get_mut());
    }

    fn above(&self, shard: ShardId, floor: Version, entry_max: usize) -> Option<Above> {
        self.finish_shard(shard);
        self.looked_count.set(self.looked_count.get() + 1);
        if !self.looked_count.get().is_multiple_of(LOOKS) {
            return None;
        }
        let above = self.inner.borrow().above(shard, floor, entry_max.min(ABOVE_ENTRIES))?;
        Some(Above { entries: self.visible(above.entries), ..above })
    }

    fn part(&self, shard: ShardId, cursor: u64, entry_max: usize) -> Part {
        self.finish_shard(shard);
        let part = self.inner.borrow().part(shard, cursor, entry_max);
        Part { entries: self.visible(part.entries), ..part }
    }

    fn clear(&mut self, shard: ShardId) {
        self.finish_shard(shard);
        self.inner.get_mut().clear(shard);
        if self.is_log {
            // Like a node's own mark: earlier listings have more than later ones.
            let incarnation = Version::from_bits(self.incarnation.into()).unwrap_or(Version::ZERO);
            append_mark(Kind::Reset, shard, incarnation, self.unlogged.get_mut());
        }
    }

    fn commit(&mut self, shard: ShardId, version: Version) {
        self.finish_shard(shard);
        self.inner.get_mut().commit(shard, version);
    }

    fn forget_deletes(&mut self, shard: ShardId, through: Version) {
        self.finish_shard(shard);
        self.inner.get_mut().forget_deletes(shard, through);
    }
}

impl TestReplicaStore {
    /// The number of incomplete entries.
    pub(super) fn assembling_count(&self) -> usize {
        Arc::strong_count(&self.assembling) - 1
    }

    /// All entries of a shard, for the judge.
    pub(super) fn all_of(&self, shard: ShardId) -> Vec<Arc<Entry>> {
        self.finish_shard(shard);
        self.inner.borrow().all_above(shard, Version::ZERO)
    }

    fn put(&self, entry: Arc<Entry>) -> Installed {
        let mut inner = self.inner.borrow_mut();
        if self.loses_deletes
            && let Some(present) = inner.get(entry.shard, &entry.key)
            && present.value.is_none()
        {
            // The delete is forgotten: any entry is accepted.
            let version = Version::ZERO;
            let forgotten = Entry { version, ..(*present).clone() };
            inner.replace(Arc::new(forgotten));
        }
        if self.is_log {
            entry.append(&mut self.unlogged.borrow_mut());
        }
        let shard = entry.shard;
        let installed = inner.install(entry);
        if self.loses_flushes {
            inner.forget_flush(shard);
        }
        installed
    }

    fn hand_over(&mut self, landed: Landed, entry: Arc<Entry>) -> Installed {
        let Some(crew) = &mut self.crew else { return self.put(entry) };
        let crew = crew.get_mut();
        crew.waiting.entry(entry.shard).or_default().push_back((landed, entry));
        if crew.is_hasty { Installed::Newest } else { Installed::Later }
    }

    /// Whether entries wait for the crew.
    pub(super) fn has_waiting(&self) -> bool {
        self.crew.as_ref().is_some_and(|crew| !crew.borrow().waiting.is_empty())
    }

    /// Installs some of the waiting entries, of any shard; returns whether there were any.
    pub(super) fn digest_some(&self) -> bool {
        let Some(crew) = &self.crew else { return false };
        let shard = {
            let Crew { dice, waiting, .. } = &mut *crew.borrow_mut();
            let place = dice.index(waiting.len().max(1));
            waiting.keys().nth(place).copied()
        };
        let Some(shard) = shard else { return false };
        let count = crew.borrow_mut().dice.between(1, 4);
        for _ in 0..count {
            self.digest_one(shard);
        }
        true
    }

    /// Installs all waiting entries of a shard: any other question about it comes after that.
    fn finish_shard(&self, shard: ShardId) {
        while self.digest_one(shard) {}
    }

    fn digest_one(&self, shard: ShardId) -> bool {
        let Some(crew) = &self.crew else { return false };
        let Crew { dice, waiting, full, done, is_hasty } = &mut *crew.borrow_mut();
        let Some(queue) = waiting.get_mut(&shard) else { return false };
        let Some((landed, entry)) = queue.pop_front() else { return false };
        if queue.is_empty() {
            waiting.remove(&shard);
        }
        let is_behind = landed.follows && full.contains(&shard); // S5
        let is_there = !is_behind && !dice.happens(NO_ROOM_PPM);
        match is_there {
            true => full.remove(&shard),
            false => full.insert(shard),
        };
        if is_there {
            self.put(entry.clone());
        }
        if !*is_hasty {
            done.push(Done { landed, entry: Some(entry), is_there });
        }
        true
    }

    fn visible(&self, mut entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
        entries.retain(|entry| !self.loses_deletes || entry.value.is_some());
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_keeps_within_its_drift() {
        let dice = &mut Dice::new(3, 3);
        for _ in 0..100 {
            let clock = Clock::draw(1_000, dice);
            let passed_ns = clock.at(2_000_000_000).ns - clock.at(1_000_000_000).ns;
            assert!((999_000_000..=1_001_000_000).contains(&passed_ns), "{passed_ns}");
        }
    }

    #[test]
    fn a_crash_keeps_what_was_synced() {
        let dice = &mut Dice::new(4, 4);
        for _ in 0..100 {
            let mut disk = Disk::default();
            disk.append(&[1; 640]);
            assert_eq!(disk.synced(640, false), 640);
            disk.append(&[2; 640]);
            disk.crash(dice);
            assert!((640..=1280).contains(&disk.len_bytes()));
            assert!(disk.bytes()[..640].iter().all(|byte| *byte == 1));
        }
    }
}
