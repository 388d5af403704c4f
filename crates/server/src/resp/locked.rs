//! Work on several keys that nobody else changes meanwhile (K11).
//!
//! ```text
//!  a plain command          lock the keys ─▶ Work::run ─▶ unlock
//!  inside EXEC, in a group             ─▶ Work::run      the keys are held already
//! ```

use base::{KeyHash, KeyHasher, UnixMillis};
use store::{Item, Op, Outcome, Pins, Request, Set, Sink, entry_len_max_bytes};
use wire::resp::ErrorReply;

use super::Caller;
use crate::compaction::Answering;
use crate::engine::Engine;
use crate::gather::Gather;
use crate::rmw::{Refusal, Rmw};

/// A copy of an item that outlives the batch.
pub(super) struct OwnedItem {
    pub value: Vec<u8>,
    pub client_flags: u64,
    pub expires_at: Option<UnixMillis>,
}

/// Takes down what requests of our own answered.
#[derive(Default)]
pub(super) struct Observed {
    pub hit_count: usize,
    pub failed: Option<ErrorReply<'static>>,
    pub item: Option<OwnedItem>,
    pub value_len_bytes: usize,
    pub was_deleted: bool,
    pub keeps_item: bool,
}

impl Answering for Observed {}

impl Sink<Refusal> for Observed {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        match outcome {
            Outcome::Hit(item) => self.hit(&item),
            Outcome::Deleted { .. } => self.was_deleted = true,
            Outcome::OutOfMemory => self.failed = Some(ErrorReply::OutOfMemory),
            Outcome::Unwritable => self.failed = Some(ErrorReply::LogFailed),
            Outcome::TooLarge { .. } => self.failed = Some(ErrorReply::StringTooLong),
            _ => {}
        }
    }
}

impl Observed {
    fn hit(&mut self, item: &Item<'_>) {
        self.hit_count += 1;
        self.value_len_bytes = item.value.len();
        if self.keeps_item {
            self.item = Some(OwnedItem {
                value: item.value.to_vec(),
                client_flags: item.client_flags,
                expires_at: item.expires_at,
            });
        }
    }
}

/// Keys that nobody else changes.
pub(super) struct Held<'h, E> {
    engine: &'h mut E,
    hasher: KeyHasher,
    now: UnixMillis,
}

impl<E: Engine> Held<'_, E> {
    fn execute(&mut self, key: &[u8], op: Op<'_, Rmw<'_>>, keeps_item: bool) -> Observed {
        let mut seen = Observed { keeps_item, ..Observed::default() };
        let request = Request { key, hash: self.hasher.hash(key), op };
        self.engine.execute(self.now, &[request], &mut seen);
        seen
    }

    /// A copy of what a key holds.
    pub fn read(&mut self, key: &[u8]) -> Option<OwnedItem> {
        self.execute(key, Op::Get, true).item
    }

    /// Whether a key exists.
    pub fn has(&mut self, key: &[u8]) -> bool {
        self.execute(key, Op::Get, false).hit_count > 0
    }

    /// Writes a key.
    pub fn write(&mut self, key: &[u8], set: Set<'_>) -> Result<(), ErrorReply<'static>> {
        self.execute(key, Op::Set(set), false).failed.map_or(Ok(()), Err)
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), ErrorReply<'static>> {
        self.execute(key, Op::Delete, false).failed.map_or(Ok(()), Err)
    }
}

/// What is to be done. (A closure cannot be generic over the engine.)
pub(super) trait Work {
    /// What comes of it.
    type Done;

    /// The log space that it needs, if values of the keys are that long at most.
    fn room_bytes(&self, old_len_max_bytes: usize) -> u64;

    /// Does it.
    fn run<E: Engine>(self, held: &mut Held<'_, E>) -> Self::Done;
}

impl<E: Engine> Gather<'_, '_, E> {
    /// Counts what a command found by itself.
    pub(super) fn count_lookups(&self, caller: Caller, found: u64, absent: u64) {
        let cells = self.core.counters().command(caller.index);
        cells.hits.add(found);
        cells.misses.add(absent);
    }

    /// Does some work on keys; none of them is too long.
    pub(super) fn with_held<'k, W: Work>(
        &mut self,
        slot: usize,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        work: W,
    ) -> W::Done {
        self.settle(slot);
        self.core.connections[slot].has_written = true;
        let (now, hasher) = (self.core.now, self.core.hasher.clone());
        let Some(session) = self.engine.session() else {
            self.flush();
            return work.run(&mut Held { engine: self.engine, hasher, now });
        };
        let hashes: Vec<KeyHash> = keys.clone().map(|key| hasher.hash(key)).collect();
        // Room is made before the locks are taken; a value may grow in between, and then the write
        // may find no room and say so.
        let mut old_len_max_bytes = 0;
        for (key, hash) in keys.zip(&hashes) {
            let mut seen = Observed::default();
            let request = Request { key, hash: *hash, op: Op::<Rmw<'_>>::Get };
            session.execute(now, &[request], &mut seen);
            old_len_max_bytes = old_len_max_bytes.max(seen.value_len_bytes);
        }
        let room_bytes = work.room_bytes(old_len_max_bytes);
        let mut locked = session.lock_keys(now, &hashes, room_bytes);
        work.run(&mut Held { engine: &mut locked, hasher, now })
    }
}

/// The log space of one item.
pub(super) fn item_room_bytes(key: &[u8], value_len_bytes: usize) -> u64 {
    entry_len_max_bytes(key.len(), value_len_bytes) as u64
}
