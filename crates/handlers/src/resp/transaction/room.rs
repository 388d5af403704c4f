//! The room in the log for a transaction: estimated before its keys are locked, and again under the
//! locks.
//!
//! ```text
//!  EXEC ─▶ lengths of all entries ─▶ room kept, keys locked ─▶ lengths again: no longer? ─▶ run
//!                ▲                                                 │ a value has grown
//!                └───────────────── unlock ◀───────────────────────┘
//! ```
//!
//! A node of a cluster estimates once its group has begun: no other client's write comes between.
//!
//! # Invariants
//! R1: every command that may write an entry adds one at least as long: a command either finds its
//!     place, or the transaction is refused before its first command.
//! R2: a delete adds only what a durable log records, and a part that only deletes is never refused
//!     for want of room: deletes are the way to empty a full store.

use std::collections::BTreeMap;

use base::KeyHash;
use commands::compaction::Answering;
use commands::rmw::bits::Combined;
use commands::rmw::{Refusal, Rmw};
use commands::work::Work;
use replication::replicate::GroupRoom;
use store::{Op, Outcome, Pins, Request, Room, Sink};
use wire::resp::number::float_digits;
use wire::resp::{BitCommand, Command, CommandId, KeyCommand, MSetEx, StringCommand};

use super::{Queued, grows_to_bytes, is_write, keys_of};
use crate::gather::Gather;
use crate::resp::locked::item_room_bytes;

/// The longest integer.
const INTEGER_TEXT_BYTES: u64 = 20;
/// The longest number that INCRBYFLOAT writes ...
const FLOAT_TEXT_BYTES: u64 = 5 << 10;
/// ... and what it has besides the digits that its operands stand for: a sign, a carry, a point
/// and decimals.
const FLOAT_MORE_BYTES: u64 = 24;
/// Behind a value there may be a token of memcached's, which a new expiry copies.
const TOKEN_BYTES: usize = 8;

/// What a command takes in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    Nothing,
    /// What a durable log records.
    Delete,
    /// The same entry with a new expiry.
    Touch,
    Entry,
}

/// The entries that a part of a transaction may write.
#[derive(Default)]
pub(super) struct Plan {
    lens_bytes: Vec<u64>,
    effect: Option<Effect>,
    /// Whether some are as long as what other clients may write meanwhile.
    pub builds_on_old: bool,
    /// The longest value that an update makes in the store's buffer.
    pub made_bytes_max: u64,
    /// The memory in which another command makes its value, at most.
    pub scratch_bytes_max: u64,
}

impl Plan {
    /// The room to keep. `is_first`: without it the transaction can still be refused.
    pub fn room(&self, is_first: bool) -> Room {
        let room = Room::of(self.lens_bytes.iter().copied());
        match (self.effect, is_first) {
            (Some(Effect::Entry), _) => room,
            (Some(Effect::Touch), true) => room.of_touches(),
            _ => room.or_less(),
        }
    }

    /// The room to keep in a group of a cluster, where a new expiry is an entry like others.
    /// `None`: nothing is stored.
    pub fn group_room(&self) -> Option<GroupRoom> {
        let stores = matches!(self.effect, Some(Effect::Entry | Effect::Touch));
        stores.then(|| GroupRoom::of(self.lens_bytes.iter().copied()))
    }

    /// Whether the entries of the same commands fit into what was planned.
    pub fn covers(&self, now: &Plan) -> bool {
        debug_assert!(self.lens_bytes.len() == now.lens_bytes.len(), "of the same commands");
        self.lens_bytes.iter().zip(&now.lens_bytes).all(|(planned, now)| now <= planned)
    }

    /// The same entries, as long as in the longer of two plans.
    #[must_use]
    pub fn or_longer(mut self, other: &Plan) -> Plan {
        for (len_bytes, other) in self.lens_bytes.iter_mut().zip(&other.lens_bytes) {
            *len_bytes = (*len_bytes).max(*other);
        }
        self
    }
}

/// The values that keys may have by now, at most, by the keys' hashes. Only of keys that commands
/// before may have changed.
type Lengths = BTreeMap<u64, Longest>;

/// A part whose commands are planned in their order.
#[derive(Default)]
pub(super) struct Planned {
    lens_bytes: Vec<u64>,
    lengths: Lengths,
    /// Whether `lengths` is kept.
    builds_on_old: bool,
    /// As in [`Plan`].
    made_bytes_max: u64,
    scratch_bytes_max: u64,
}

impl Planned {
    /// None yet, and the value of each key is kept.
    pub fn of_all() -> Planned {
        Planned { builds_on_old: true, ..Planned::default() }
    }

    /// Notes the memory in which a command makes an entry of that length.
    fn note_scratch(&mut self, queued: &Queued<'_>, len_bytes: u64) {
        let scratch_bytes = match queued.parsed {
            Ok(
                Command::String(StringCommand::SetRange { .. })
                | Command::Bit(BitCommand::SetBit { .. }),
            ) => {
                self.made_bytes_max = self.made_bytes_max.max(len_bytes);
                0
            }
            // The old value and the new one.
            Ok(Command::Bit(BitCommand::BitField { .. })) => 2 * len_bytes,
            Ok(Command::Bit(BitCommand::BitOp { operation, .. })) => {
                Combined::held_bytes(operation, len_bytes as usize)
            }
            Ok(Command::Key(KeyCommand::Restore(_))) => len_bytes,
            _ => 0,
        };
        self.scratch_bytes_max = self.scratch_bytes_max.max(scratch_bytes);
    }

    /// The value of a key that commands may have changed.
    pub fn changed(&self, hash: KeyHash) -> Option<Longest> {
        self.lengths.get(&hash.0).copied()
    }
}

/// The entries that these commands may write, by the values that are there now.
pub(super) fn plan_of(gather: &mut Gather<'_, '_>, part: &[Queued<'_>]) -> Plan {
    let builds_on_old = part.iter().any(builds_on_old_values);
    let mut planned = Planned { builds_on_old, ..Planned::default() };
    let records_deletes = gather.core.shared.store().durable().is_some();
    gather.core.charge(Work::keys(part.len()));
    for queued in part {
        plan_command(gather, queued, &mut planned);
        if records_deletes && may_delete(queued) {
            planned.lens_bytes.extend(keys_of(queued).map(|key| item_room_bytes(key, 0)));
        }
    }
    let effect = part.iter().map(effect_of).max();
    let Planned { lens_bytes, made_bytes_max, scratch_bytes_max, .. } = planned;
    Plan { lens_bytes, effect, builds_on_old, made_bytes_max, scratch_bytes_max }
}

/// Adds the entries of the next command.
pub(super) fn plan_command(
    gather: &mut Gather<'_, '_>,
    queued: &Queued<'_>,
    planned: &mut Planned,
) {
    match (&queued.parsed, effect_of(queued)) {
        (
            Ok(Command::String(
                StringCommand::MSet { pairs }
                | StringCommand::MSetNx { pairs }
                | StringCommand::MSetEx(MSetEx { pairs, .. }),
            )),
            _,
        ) => {
            for (key, value) in *pairs {
                plan_value(gather, key, Longest::of(value.len() as u64), planned);
            }
        }
        (
            Ok(Command::Key(
                KeyCommand::Rename { source, target } | KeyCommand::RenameNx { source, target },
            )),
            _,
        ) => plan_copy(gather, source, target, planned),
        (Ok(Command::Key(KeyCommand::Copy(copy))), _) => {
            plan_copy(gather, copy.source, copy.target, planned)
        }
        (_, Effect::Touch) => {
            for key in keys_of(queued) {
                let len_bytes = value_now(gather, key, planned).entry_bytes(key);
                planned.lens_bytes.push(len_bytes);
            }
        }
        (_, Effect::Entry) => {
            let value = value_max(gather, queued, planned);
            let lens_bytes = keys_of(queued).map(|key| value.entry_bytes(key));
            let len_bytes = lens_bytes.max().unwrap_or(0);
            planned.lens_bytes.push(len_bytes);
            planned.note_scratch(queued, len_bytes);
            keys_of(queued).for_each(|key| note_longer(gather, key, value, planned));
        }
        (_, Effect::Nothing | Effect::Delete) => {}
    }
}

/// Adds a value of a key that may stay as it was.
fn plan_value(gather: &mut Gather<'_, '_>, key: &[u8], value: Longest, planned: &mut Planned) {
    planned.lens_bytes.push(value.entry_bytes(key));
    note_longer(gather, key, value, planned);
}

/// Notes that a key has this value by now, or still the one before.
fn note_longer(gather: &mut Gather<'_, '_>, key: &[u8], value: Longest, planned: &mut Planned) {
    if planned.builds_on_old {
        let longest = value_now(gather, key, planned).or_longer(value);
        planned.lengths.insert(gather.core.hash(key).0, longest);
    }
}

/// Adds a copy of the source, if it is there, under the name of the target.
fn plan_copy(gather: &mut Gather<'_, '_>, source: &[u8], target: &[u8], planned: &mut Planned) {
    let source = value_now(gather, source, planned);
    planned.scratch_bytes_max = planned.scratch_bytes_max.max(source.len_bytes());
    plan_value(gather, target, source, planned);
}

/// The value that a key has by now, at most.
pub(super) fn value_now(gather: &mut Gather<'_, '_>, key: &[u8], planned: &Planned) -> Longest {
    let hash = gather.core.hash(key);
    if let Some(value) = planned.lengths.get(&hash.0) {
        return *value;
    }
    let mut sink = ValueSink::default();
    let request: Request<'_, Rmw<'_>> = Request { key, hash, op: Op::Get };
    gather.engine.execute(gather.core.now, &[request], &mut sink);
    sink.0
}

/// The longest value that a command may write: its own bytes and, if it builds on the old value,
/// that.
fn value_max(gather: &mut Gather<'_, '_>, queued: &Queued<'_>, planned: &Planned) -> Longest {
    let mut old = Longest::default();
    if builds_on_old_values(queued) {
        for key in keys_of(queued) {
            old = old.or_longer(value_now(gather, key, planned));
        }
    }
    let old_bytes = old.value_bytes.unwrap_or(0);
    let value_max_bytes = gather.core.value_max_bytes;
    let grows_to = grows_to_bytes(queued, value_max_bytes);
    let value = match queued.parsed {
        Ok(Command::String(StringCommand::Append { value, .. })) => {
            Longest::of(old_bytes + value.len() as u64)
        }
        Ok(Command::String(StringCommand::SetRange { value, .. })) => {
            Longest::of(old_bytes.max(grows_to + value.len() as u64))
        }
        Ok(Command::Bit(_)) => Longest::of(old_bytes.max(grows_to)),
        Ok(Command::String(StringCommand::IncrBy { .. })) => {
            Longest { digits: INTEGER_TEXT_BYTES, ..Longest::of(INTEGER_TEXT_BYTES) }
        }
        Ok(Command::String(StringCommand::IncrByFloat { increment, .. })) => {
            // A carry; its decimals are bounded whatever they were before.
            let digits = (digits_of(increment).max(old.digits) + 1).min(FLOAT_TEXT_BYTES);
            let text_bytes = (digits + FLOAT_MORE_BYTES).min(FLOAT_TEXT_BYTES);
            Longest { digits, ..Longest::of(text_bytes) }
        }
        _ => Longest::of(old_bytes + queued.raw.len() as u64 + grows_to),
    };
    Longest { value_bytes: value.value_bytes.map(|bytes| bytes.min(value_max_bytes)), ..value }
}

/// What a command takes in the log, at most.
fn effect_of(queued: &Queued<'_>) -> Effect {
    use CommandId::{
        Del, DelEx, DelIfEq, Expire, ExpireAt, FlushAll, FlushDb, GetDel, GetEx, Move, PExpire,
        PExpireAt, Persist, SwapDb, Unlink,
    };
    let id = queued.parsed.as_ref().ok().and_then(Command::id);
    match id {
        Some(Del | Unlink | GetDel | DelEx | DelIfEq) => Effect::Delete,
        Some(Expire | ExpireAt | PExpire | PExpireAt | Persist | GetEx) => Effect::Touch,
        // Always an error; or not a part of this.
        Some(Move | SwapDb | FlushAll | FlushDb) => Effect::Nothing,
        _ if is_write(queued) => Effect::Entry,
        _ => Effect::Nothing,
    }
}

/// Whether a durable log may have to record deletes of its keys besides an entry.
fn may_delete(queued: &Queued<'_>) -> bool {
    let is_rename = || {
        matches!(
            queued.parsed,
            Ok(Command::Key(KeyCommand::Rename { .. } | KeyCommand::RenameNx { .. }))
        )
    };
    matches!(effect_of(queued), Effect::Delete | Effect::Touch) || is_rename()
}

/// Whether the written entry may be as long as the old one and more.
fn builds_on_old_values(queued: &Queued<'_>) -> bool {
    use CommandId::{
        Append, BitField, BitOp, Copy, IncrByFloat, Rename, RenameNx, SetBit, SetRange,
    };
    let id = queued.parsed.as_ref().ok().and_then(Command::id);
    let builders = [Append, BitField, BitOp, Copy, IncrByFloat, Rename, RenameNx, SetBit, SetRange];
    effect_of(queued) == Effect::Touch || id.is_some_and(|id| builders.contains(&id))
}

/// The digits that a number stands for, before and after its point.
fn digits_of(number: &[u8]) -> u64 {
    // The length first: old values of all commands come here.
    let is_long = number.len() as u64 > FLOAT_TEXT_BYTES;
    if is_long || number.iter().any(|byte| matches!(byte, b'x' | b'X')) {
        return FLOAT_TEXT_BYTES;
    }
    float_digits(number) as u64
}

/// A value, at most.
#[derive(Clone, Copy, Default)]
pub(super) struct Longest {
    /// None: there is none.
    value_bytes: Option<u64>,
    /// As a number.
    digits: u64,
}

impl Longest {
    /// Any value of that length.
    fn of(value_bytes: u64) -> Longest {
        Longest { value_bytes: Some(value_bytes), digits: FLOAT_TEXT_BYTES }
    }

    /// Its length; 0: there is none.
    pub fn len_bytes(self) -> u64 {
        self.value_bytes.unwrap_or(0)
    }

    fn or_longer(self, other: Longest) -> Longest {
        let value_bytes = self.value_bytes.max(other.value_bytes);
        Longest { value_bytes, digits: self.digits.max(other.digits) }
    }

    /// Its entry, if there is one.
    fn entry_bytes(self, key: &[u8]) -> u64 {
        self.value_bytes.map_or(0, |bytes| item_room_bytes(key, bytes as usize + TOKEN_BYTES))
    }
}

/// Notes the longest value.
#[derive(Default)]
struct ValueSink(Longest);

impl Answering for ValueSink {}

impl Sink<Refusal> for ValueSink {
    fn outcome(&mut self, _: usize, outcome: Outcome<'_, Refusal>, _: Pins<'_>) {
        if let Outcome::Hit(item) = outcome {
            let value_bytes = Some(item.value.len() as u64);
            self.0 = self.0.or_longer(Longest { value_bytes, digits: digits_of(item.value) });
        }
    }
}
