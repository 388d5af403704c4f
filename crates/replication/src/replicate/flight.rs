//! The memory of one write, from before the new value is made until all copies have it.
//!
//! ```text
//!  compute ─▶ begin: `scratch`: the key's old value, and the new one while it is made
//!                    `writes`: the new value                    ─ no room ─▶ tried again
//!          ─▶ settle: `writes` ─▶ hold ─▶ Pending, until it ends
//! ```
//!
//! # Invariants
//! F1: memory of more than [`UNBOOKED_BYTES`] is booked before it is filled, and stays booked until
//!     the node drops the write (K27). Shorter writes are bounded by the dispatchers' request
//!     slots.
//! F2: in a group whose room was kept before its first write, each write takes its part of that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use budget::{BufferBudget, Kind, Reservation};
use cluster::message::{Changed, Hold};
use commands::rmw::Rmw;
use dispatch::lanes::request_slot::payload_of;
use store::request::{Item, Op, Update};

use crate::cluster::{SHORT_BYTES, room_bytes_for};

/// Bytes that each of a request slot's buffers keeps anyway.
const UNBOOKED_BYTES: u64 = 1 << 10;

/// See the module's page.
pub(super) struct Flight {
    budget: Arc<BufferBudget>,
    booked: Mutex<Booked>,
    /// What its group has kept for all its writes.
    group_room: OnceLock<Arc<KeptRoom>>,
    /// The bytes for which there was no room; 0: there was room, or it was not asked.
    wanted_bytes: AtomicU64,
}

#[derive(Default)]
struct Booked {
    scratch: Option<Reservation>,
    kept: Option<Reservation>,
}

/// The memory for all values that a group stores, booked before the first.
pub struct KeptRoom(Mutex<Reservation>);

impl KeptRoom {
    /// All of it.
    pub fn new(all: Reservation) -> KeptRoom {
        KeptRoom(Mutex::new(all))
    }

    fn has(&self, bytes: u64) -> bool {
        self.lock().bytes() >= bytes
    }

    /// Takes a part, if so much is left.
    fn take(&self, budget: &Arc<BufferBudget>, bytes: u64) -> Option<Reservation> {
        let mut left = self.lock();
        let rest_bytes = left.bytes().checked_sub(bytes)?;
        // It shrinks, and the part takes the same bytes.
        let _ = left.try_resize(rest_bytes);
        Some(Reservation::forced(budget, Kind::Writes, bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Reservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    pub fn new(budget: &Arc<BufferBudget>) -> Flight {
        let (budget, group_room) = (Arc::clone(budget), OnceLock::new());
        Flight { budget, booked: Mutex::default(), group_room, wanted_bytes: AtomicU64::new(0) }
    }

    /// Takes what it needs from what its group has kept.
    pub fn draw_from(&self, room: Arc<KeptRoom>) {
        let _ = self.group_room.set(room); // A write is in one group, and runs once in it.
    }

    /// Books the memory for the operation on that value. Returns false if there is no room now.
    pub fn begin(&self, op: &Op<'_, Rmw<'_>>, old: Option<&Item<'_>>, value_max: u64) -> bool {
        let (scratch_bytes, kept_bytes) = made_bytes_max(op, old, value_max);
        let is_short = scratch_bytes + kept_bytes <= UNBOOKED_BYTES;
        let is_booked = is_short || self.book(scratch_bytes, kept_bytes);
        self.wanted_bytes.store(if is_booked { 0 } else { kept_bytes }, Ordering::Relaxed);
        is_booked
    }

    /// The same for an operation that cannot wait: exceeds the share of writes once.
    pub fn begin_past(&self, op: &Op<'_, Rmw<'_>>, old: Option<&Item<'_>>, value_max: u64) -> bool {
        let (_, kept_bytes) = made_bytes_max(op, old, value_max);
        self.begin(op, old, value_max) || {
            let kept = Reservation::past(&self.budget, Kind::Writes, kept_bytes);
            let is_booked = kept.is_some();
            self.booked().kept = kept;
            is_booked
        }
    }

    /// Whether the log has no room for an update's new value beside all its entries, including the
    /// old value: an operation that has begun must end on every copy. Operations that carry their
    /// value were checked before.
    pub fn outgrows(
        &self,
        op: &Op<'_, Rmw<'_>>,
        old: Option<&Item<'_>>,
        value_max: u64,
        room_bytes: impl FnOnce() -> u64,
    ) -> bool {
        let Op::Update(update) = op else { return false };
        if may_free(update) || update.reads(old) {
            return false;
        }
        let new_bytes = written_bytes_max(op, update, old).min(value_max);
        if self.group_room.get().is_some_and(|room| room.has(kept_bytes(new_bytes))) {
            return false;
        }
        // Roughly the bytes of writes under way.
        let coming_bytes = self.budget.kind_bytes(Kind::Writes);
        let room_bytes = || room_bytes_for(new_bytes, room_bytes(), &self.budget);
        new_bytes > SHORT_BYTES && new_bytes + coming_bytes > room_bytes()
    }

    fn book(&self, scratch_bytes: u64, kept_bytes: u64) -> bool {
        let group_room = self.group_room.get();
        let drawn = group_room.and_then(|room| room.take(&self.budget, kept_bytes));
        let is_drawn = drawn.is_some();
        let mut kept = drawn.unwrap_or_else(|| Reservation::empty(&self.budget, Kind::Writes));
        let is_booked = is_drawn || kept.try_grow_or_alone(kept_bytes);
        if is_booked {
            // The control thread makes one value at a time.
            let scratch = Reservation::forced(&self.budget, Kind::Scratch, scratch_bytes);
            *self.booked() = Booked { scratch: Some(scratch), kept: Some(kept) };
        }
        is_booked
    }

    fn booked(&self) -> MutexGuard<'_, Booked> {
        self.booked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adjusts the booking once the new value is known.
    pub fn settle(&self, changed: &Changed) {
        let mut booked = self.booked();
        booked.scratch = None;
        match (changed, booked.kept.as_mut()) {
            (Changed::Value { value, .. }, Some(kept)) => {
                let bytes = kept_bytes(value.len() as u64);
                let _ = kept.try_resize(bytes.min(kept.bytes())); // It shrinks.
            }
            _ => booked.kept = None,
        }
    }

    /// The booking, which the write holds.
    pub fn hold(&self) -> Hold {
        self.booked().kept.take().map(Hold::new).unwrap_or_default()
    }

    /// Whether it was refused for want of room at the last attempt.
    pub fn lacks_room(&self) -> bool {
        self.wanted_bytes.load(Ordering::Relaxed) > 0
    }

    /// Whether an attempt may succeed now.
    pub fn may_begin(&self) -> bool {
        let bytes = self.wanted_bytes.load(Ordering::Relaxed);
        bytes == 0 || Reservation::could_take(&self.budget, Kind::Writes, bytes)
    }
}

/// The booked bytes for a value of that length while its write is under way.
pub(super) fn kept_bytes_of(value_bytes: u64) -> u64 {
    if value_bytes > UNBOOKED_BYTES { kept_bytes(value_bytes) } else { 0 }
}

/// The same, and what an update of a value of that length books, at most.
pub(super) fn kept_bytes_max(value_bytes: u64) -> u64 {
    if value_bytes > UNBOOKED_BYTES / 4 { kept_bytes(value_bytes) } else { 0 }
}

/// The entry's value, and the state of each of its blocks.
fn kept_bytes(value_bytes: u64) -> u64 {
    value_bytes + value_bytes / 16
}

/// The most memory that an operation takes: while its value is made, the old value and the new
/// bytes; then the kept ones.
fn made_bytes_max(op: &Op<'_, Rmw<'_>>, old: Option<&Item<'_>>, value_max: u64) -> (u64, u64) {
    match op {
        Op::Get | Op::Delete => (0, 0),
        Op::Update(update) if update.reads(old) => (0, 0),
        Op::Set(set) => (0, kept_bytes(set.value.len() as u64)),
        Op::Update(update) => {
            let old_bytes = old.map_or(0, |old| old.value.len() as u64);
            let new_bytes = written_bytes_max(op, update, old).min(value_max);
            (old_bytes + new_bytes, kept_bytes(new_bytes))
        }
    }
}

/// Whether the operation may free room.
fn may_free(update: &Rmw<'_>) -> bool {
    match update {
        Rmw::Named(named) => may_free(&named.update),
        Rmw::DeleteVersion(_) | Rmw::DeleteToken(_) | Rmw::DeleteIf(_) | Rmw::MetaInvalidate(_) => {
            true
        }
        _ => false,
    }
}

/// The longest value that an update may make of that one.
fn written_bytes_max(op: &Op<'_, Rmw<'_>>, update: &Rmw<'_>, old: Option<&Item<'_>>) -> u64 {
    let old_bytes = old.map_or(0, |old| old.value.len() as u64);
    let more_bytes = payload_of(op).len() + update.made_len_max(old);
    old_bytes.saturating_add(more_bytes as u64)
}

#[cfg(test)]
mod tests {
    use commands::rmw::Bounded;

    use super::*;

    const MIB: u64 = 1 << 20;
    const TAIL: &[u8] = &[1; 100_000];

    fn append() -> Op<'static, Rmw<'static>> {
        Op::Update(Rmw::Append(Bounded { bytes: TAIL, max_bytes: u64::MAX }))
    }

    #[test]
    fn what_is_made_is_booked_before_and_what_is_kept_until_the_write_ends() {
        let budget = Arc::new(BufferBudget::new(16 * MIB));
        let booked = || budget.kind_bytes(Kind::Writes);
        let (old, new_bytes) = (vec![0; MIB as usize], MIB + TAIL.len() as u64);
        let item = Item::of_stored(b"k", &old, 0, 3, None);
        let flight = Flight::new(&budget);
        assert!(flight.begin(&append(), Some(&item), u64::MAX));
        assert_eq!(booked(), kept_bytes(new_bytes));
        assert_eq!(budget.kind_bytes(Kind::Scratch), MIB + new_bytes);
        let value = vec![0; new_bytes as usize].into();
        flight.settle(&Changed::Value { value, client_flags: 0, expires_at: None });
        let hold = flight.hold();
        drop(flight);
        assert_eq!((booked(), budget.kind_bytes(Kind::Scratch)), (kept_bytes(new_bytes), 0), "F1");
        drop(hold);
        assert_eq!(booked(), 0);
    }

    #[test]
    fn what_has_no_room_may_begin_once_there_is_some() {
        let budget = Arc::new(BufferBudget::new(16 * MIB));
        let others = Reservation::try_new(&budget, Kind::Writes, 2 * MIB).unwrap();
        let old = vec![0; MIB as usize];
        let item = Item::of_stored(b"k", &old, 0, 3, None);
        let flight = Flight::new(&budget);
        assert!(flight.may_begin() && !flight.begin(&append(), Some(&item), u64::MAX));
        assert!(flight.lacks_room() && !flight.may_begin());
        assert_eq!(budget.kind_bytes(Kind::Writes), others.bytes());
        drop(others);
        assert!(flight.may_begin() && flight.begin(&append(), Some(&item), u64::MAX));
        flight.settle(&Changed::Nothing);
        assert_eq!((flight.lacks_room(), budget.kind_bytes(Kind::Writes)), (false, 0));
    }

    #[test]
    fn an_update_needs_room_in_the_log_for_all_that_it_writes() {
        let budget = Arc::new(BufferBudget::new(16 * MIB));
        let (old, new_bytes) = (vec![0; MIB as usize], MIB + TAIL.len() as u64);
        let item = Item::of_stored(b"k", &old, 0, 3, None);
        let flight = Flight::new(&budget);
        let outgrows = |room| flight.outgrows(&append(), Some(&item), u64::MAX, || room);
        assert!(outgrows(new_bytes - 1) && !outgrows(new_bytes));
        let _others = Reservation::try_new(&budget, Kind::Writes, MIB).unwrap();
        assert!(outgrows(new_bytes + MIB - 1) && !outgrows(new_bytes + MIB));
        assert!(!flight.outgrows(&append(), None, 64 << 10, || 0), "it is short");
        for op in [Op::Delete, Op::Update(Rmw::DeleteToken(3))] {
            assert!(!flight.outgrows(&op, Some(&item), u64::MAX, || 0), "it makes room");
        }
    }

    #[test]
    fn an_item_larger_than_the_part_is_written_alone() {
        let budget = Arc::new(BufferBudget::new(4 * MIB));
        let value = vec![0; 2 * MIB as usize];
        let set = store::request::Set {
            value: &value,
            client_flags: 0,
            expiry: store::request::Expiry::Never,
            condition: store::request::Condition::Always,
        };
        let (first, second) = (Flight::new(&budget), Flight::new(&budget));
        assert!(first.begin(&Op::Set(set), None, u64::MAX));
        assert!(!second.begin(&Op::Set(set), None, u64::MAX) && !second.may_begin());
        drop(first);
        assert!(second.may_begin() && second.begin(&Op::Set(set), None, u64::MAX));
    }
}
