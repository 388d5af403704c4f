//! DUMP, RESTORE and MSETEX; also MOVE and SWAPDB, which have no second database to act on.

use std::cell::Cell;

use base::UnixMillis;
use commands::work::Work;
use runtime::walks::Caller;
use store::Room;
use store::request::{Condition, Expiry, Set};
use wire::resp::dump::Dumped;
use wire::resp::{ErrorReply, MSetEx, Pairs, Restore, SetCondition, dump};

use super::locked::{Held, HeldWork, item_room_bytes};
use crate::gather::Gather;
use crate::resp::keys::{refuse_long_key, refuse_long_keys};
use crate::resp::locked::{refuse_atomic, with_held};
use crate::resp::several::refuse_pairs_in_group;
use crate::resp::strings::set_expiry;

pub(super) fn restore_value<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, restore: Restore<'a>) {
    let keys = std::iter::once(restore.key);
    if refuse_long_key(gather, caller, keys.clone()) {
        return;
    }
    let dumped = dump::load(restore.payload, gather.core.value_max_bytes);
    let unpacked_from_bytes = Cell::new(0);
    let now = gather.core.now;
    let work = Restoring { restore, now, dumped, unpacked_from_bytes: &unpacked_from_bytes };
    let done = with_held(gather, caller.slot, keys, work);
    // Charged whatever the outcome. The value itself is charged with the key.
    gather.core.charge(Work::unpacked(unpacked_from_bytes.get()));
    match done {
        Ok(()) => gather.say(caller, |encoder| encoder.ok()),
        Err(error) => gather.fail(caller, &error),
    }
}

pub(super) fn mset_ex<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, request: &MSetEx<'a>) {
    if refuse_long_keys(gather, caller, request.pairs.keys()) {
        return;
    }
    let Some(expiry) = set_expiry(gather, caller, request.expiry) else { return };
    let bytes = request.pairs.map(|(key, value)| (key.len() + value.len()) as u64).sum();
    if refuse_atomic(gather, caller, request.pairs.len(), bytes) {
        return;
    }
    let is_in_group = gather.engine.session().is_none();
    if is_in_group && refuse_pairs_in_group(gather, caller, request.pairs) {
        return;
    }
    let work = StoreAll { pairs: request.pairs, expiry, condition: request.condition };
    match with_held(gather, caller.slot, request.pairs.keys(), work) {
        Ok(is_done) => gather.say(caller, |encoder| encoder.integer(i64::from(is_done))),
        Err(error) => gather.fail(caller, &error),
    }
}

pub(super) fn move_key(gather: &mut Gather<'_, '_>, caller: Caller, database_index: i32) {
    let error = if gather.core.cluster.is_some() {
        ErrorReply::MoveInCluster
    } else if database_index == 0 {
        ErrorReply::SameSourceAndTarget
    } else {
        ErrorReply::DatabaseIndex
    };
    gather.fail(caller, &error);
}

pub(super) fn swap_databases(gather: &mut Gather<'_, '_>, caller: Caller, indexes: [i32; 2]) {
    if gather.core.cluster.is_some() {
        gather.fail(caller, &ErrorReply::SwapDbInCluster);
    } else if indexes == [0, 0] {
        gather.say(caller, |encoder| encoder.ok());
    } else {
        gather.fail(caller, &ErrorReply::DatabaseIndex);
    }
}

/// RESTORE.
struct Restoring<'a, 'c> {
    restore: Restore<'a>,
    now: UnixMillis,
    dumped: Result<Dumped<'a>, ErrorReply<'static>>,
    /// The number of compressed bytes, once they are read.
    unpacked_from_bytes: &'c Cell<u64>,
}

impl Restoring<'_, '_> {
    /// The expiry: `Some(None)` is never; `None`: an error.
    fn expiry(&self) -> Result<Expiry, ErrorReply<'static>> {
        let ttl_ms = self.restore.ttl_ms().ok_or(ErrorReply::NotAnInteger)?;
        let ttl_ms = u64::try_from(ttl_ms).map_err(|_| ErrorReply::RestoreTtl)?;
        Ok(match (ttl_ms, self.restore.is_absolute) {
            (0, _) => Expiry::Never,
            (at_ms, true) => Expiry::At(UnixMillis(at_ms)),
            // Redis lets a sum that is too large wrap around, into the past.
            (ttl_ms, false) => Expiry::At(UnixMillis(
                ttl_ms.checked_add(self.now.0).filter(|at| i64::try_from(*at).is_ok()).unwrap_or(0),
            )),
        })
    }
}

impl HeldWork for Restoring<'_, '_> {
    type Done = ();

    fn room(&self, _: usize) -> Room {
        let len_max_bytes = self.dumped.map_or(0, |it| it.len_max_bytes());
        Room::of([item_room_bytes(self.restore.key, len_max_bytes)])
    }

    /// A compressed value is unpacked into memory that is booked by then.
    fn scratch_bytes(&self, _: usize) -> u64 {
        self.dumped.map_or(0, |dumped| dumped.unpacked_bytes() as u64)
    }

    /// Checks in the same order as Redis.
    fn run(self, held: &mut Held<'_>) -> Result<Self::Done, ErrorReply<'static>> {
        let Restore { key, replaces, .. } = self.restore;
        if !replaces && held.has(key) {
            return Err(ErrorReply::BusyKey);
        }
        let expiry = self.expiry()?;
        let dumped = self.dumped?;
        held.check_room()?;
        if let Dumped::Packed { packed, .. } = dumped {
            self.unpacked_from_bytes.set(packed.len() as u64);
        }
        let value = dumped.value()?;
        let condition = Condition::Always;
        held.write(key, Set { value: &value, client_flags: 0, expiry, condition })
    }
}

/// MSETEX.
struct StoreAll<'a> {
    pairs: Pairs<'a>,
    expiry: Expiry,
    condition: SetCondition,
}

impl HeldWork for StoreAll<'_> {
    type Done = bool;

    fn room(&self, _: usize) -> Room {
        Room::of(self.pairs.map(|(key, value)| item_room_bytes(key, value.len())))
    }

    fn scratch_bytes(&self, _: usize) -> u64 {
        0
    }

    fn run(self, held: &mut Held<'_>) -> Result<Self::Done, ErrorReply<'static>> {
        let is_met = match self.condition {
            SetCondition::Always => true,
            SetCondition::IfAbsent => !self.pairs.keys().any(|key| held.has(key)),
            SetCondition::IfPresent => self.pairs.keys().all(|key| held.has(key)),
        };
        if !is_met {
            return Ok(false);
        }
        for (key, value) in self.pairs {
            let condition = Condition::Always;
            held.write(key, Set { value, client_flags: 0, expiry: self.expiry, condition })?;
        }
        Ok(true)
    }
}
