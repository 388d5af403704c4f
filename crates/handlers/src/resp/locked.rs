//! Work on several keys that no other client changes meanwhile (K11).
//!
//! ```text
//!  a plain command          lock the keys ─▶ HeldWork::run ─▶ unlock
//!  inside EXEC, in a group             ─▶ HeldWork::run      the keys are held already
//! ```

use base::{KeyHash, KeyHasher, UnixMillis};
use budget::Kind;
use commands::compaction::Answering;
use commands::rmw::{Refusal, Rmw};
use commands::work::{ATOMIC_KEY_BYTES, Work};
use runtime::engine::Engine;
use runtime::walks::Caller;
use store::{Item, Op, Outcome, Pins, Request, Room, Set, Sink, entry_len_max_bytes};
use wire::resp::ErrorReply;

use super::several::NO_ROOM_FOR_VALUES;
use crate::gather::Gather;
use crate::gather::glimpse::Looking;

/// Scratch memory of a command is booked only from this size on.
const SCRATCH_UNBOOKED_BYTES_MAX: u64 = 64 << 10;

/// The reply to a command that would hold a worker for longer than an atomic group may.
pub(super) const TOO_MUCH_AT_ONCE: ErrorReply<'static> = ErrorReply::Other(
    "the command or transaction is larger than max-atomic-size (each key counts 4096 bytes)",
);

/// A copy of an item that outlives the batch.
pub(super) struct OwnedItem {
    pub value: Vec<u8>,
    pub client_flags: u64,
}

/// Records the outcomes of internal requests.
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
            self.item =
                Some(OwnedItem { value: item.value.to_vec(), client_flags: item.client_flags });
        }
    }
}

/// Keys that no other client changes.
pub(super) struct Held<'h> {
    engine: &'h mut (dyn Engine + 'h),
    hasher: KeyHasher,
    now: UnixMillis,
    has_room: bool,
}

impl<'h> Held<'h> {
    /// The engine holds the keys.
    pub fn new(engine: &'h mut (dyn Engine + 'h), hasher: KeyHasher, now: UnixMillis) -> Held<'h> {
        Held { engine, hasher, now, has_room: true }
    }

    /// An error if nothing can be written: before a long value is made for nothing.
    pub fn check_room(&self) -> Result<(), ErrorReply<'static>> {
        if self.has_room { Ok(()) } else { Err(ErrorReply::OutOfMemory) }
    }

    fn execute(&mut self, key: &[u8], op: Op<'_, Rmw<'_>>, keeps_item: bool) -> Observed {
        let mut seen = Observed { keeps_item, ..Observed::default() };
        let request = Request { key, hash: self.hasher.hash(key), op };
        self.engine.execute(self.now, &[request], &mut seen);
        seen
    }

    /// A copy of a key's item.
    pub fn read(&mut self, key: &[u8]) -> Option<OwnedItem> {
        self.execute(key, Op::Get, true).item
    }

    /// Shows a key's value; returns whether it exists.
    pub fn look(&mut self, key: &[u8], see: impl FnMut(&[u8])) -> bool {
        self.show(key, see) != 0
    }

    /// The version of a key's item; 0: there is none.
    pub fn version(&mut self, key: &[u8]) -> u64 {
        self.show(key, |_| ())
    }

    fn show(&mut self, key: &[u8], see: impl FnMut(&[u8])) -> u64 {
        let mut looking = Looking::new(see);
        let request = Request { key, hash: self.hasher.hash(key), op: Op::<Rmw<'_>>::Get };
        self.engine.execute(self.now, &[request], &mut looking);
        looking.version
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

/// Work on held keys.
pub(super) trait HeldWork {
    /// The result of the work.
    type Done;

    /// The log space that it needs, if the values of the keys have at most that length.
    fn room(&self, old_len_max_bytes: usize) -> Room;

    /// The memory that it takes meanwhile, for values of at most that length.
    fn scratch_bytes(&self, old_len_max_bytes: usize) -> u64;

    /// Does it.
    fn run(self, held: &mut Held<'_>) -> Result<Self::Done, ErrorReply<'static>>;
}

/// Counts what a command found by itself.
pub(super) fn count_lookups(gather: &Gather<'_, '_>, caller: Caller, found: u64, absent: u64) {
    let cells = gather.core.counters().command(caller.index);
    cells.hits.add(found);
    cells.misses.add(absent);
}

/// Whether an atomic group may hold so many keys and touch so many bytes; counts a refusal.
pub(super) fn fits_atomic(gather: &Gather<'_, '_>, key_count: usize, bytes: u64) -> bool {
    let keys_bytes = (key_count as u64).saturating_mul(ATOMIC_KEY_BYTES);
    let limit_bytes = gather.core.shared.config().atomic_size_max_bytes;
    let fits = keys_bytes.saturating_add(bytes) <= limit_bytes;
    if !fits {
        gather.core.counters().atomic_refused.add(1);
    }
    fits
}

/// Checks the limits of atomic groups for a command; answers the error itself.
pub(super) fn refuse_atomic(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    key_count: usize,
    bytes: u64,
) -> bool {
    let fits = fits_atomic(gather, key_count, bytes);
    if !fits {
        gather.fail(caller, &TOO_MUCH_AT_ONCE);
    }
    !fits
}

/// Does some work on keys; none of them is too long.
pub(super) fn with_held<'k, W: HeldWork>(
    gather: &mut Gather<'_, '_>,
    slot: usize,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    work: W,
) -> Result<W::Done, ErrorReply<'static>> {
    gather.settle(slot);
    gather.core.connections[slot].has_written = true;
    let (now, hasher) = (gather.core.now, gather.core.hasher.clone());
    // Inside EXEC and in a group the keys are already held, and the room in the log is already
    // made.
    let is_held = gather.engine.session().is_none();
    let hashes: Vec<KeyHash> = keys.clone().map(|key| hasher.hash(key)).collect();
    // Room is made before the locks are taken. A value may grow in between; then the write may
    // find no room and reports it.
    let (mut old_len_max_bytes, mut old_bytes) = (0, 0);
    for key in keys {
        let old_len_bytes = gather.glimpse(key).value_len_bytes;
        old_len_max_bytes = old_len_max_bytes.max(old_len_bytes);
        old_bytes += old_len_bytes as u64;
    }
    if !is_held && !fits_atomic(gather, hashes.len(), old_bytes) {
        return Err(TOO_MUCH_AT_ONCE);
    }
    let room = work.room(old_len_max_bytes);
    let room_bytes = room.bytes();
    let scratch_bytes = work.scratch_bytes(old_len_max_bytes);
    let is_booked = scratch_bytes > SCRATCH_UNBOOKED_BYTES_MAX;
    if is_booked && !gather.core.try_scratch(Kind::Groups, scratch_bytes) {
        return Err(NO_ROOM_FOR_VALUES);
    }
    let done = match gather.engine.session() {
        Some(session) => {
            let mut locked = session.lock_keys(now, &hashes, room);
            let has_room = locked.has_room();
            work.run(&mut Held { has_room, ..Held::new(&mut locked, hasher, now) })
        }
        None => work.run(&mut Held::new(gather.engine, hasher, now)),
    };
    if is_booked {
        gather.core.end_scratch(Kind::Groups, scratch_bytes);
    }
    gather.core.charge(Work::keys(2 * hashes.len()));
    gather.core.charge(Work::bytes(old_bytes + room_bytes + scratch_bytes));
    done
}

/// The log space of one item.
pub(super) fn item_room_bytes(key: &[u8], value_len_bytes: usize) -> u64 {
    entry_len_max_bytes(key.len(), value_len_bytes) as u64
}
