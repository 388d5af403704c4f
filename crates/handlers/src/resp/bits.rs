//! Commands on bits: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD.
//!
//! A command on one key is one request, except for BITFIELD: its reply may be longer than an old
//! value, so it runs while it holds its key. BITOP is in `bit_operation`.

use commands::reply::Shape;
use commands::rmw::Rmw;
use commands::rmw::bits::{self, Fields};
use runtime::walks::Caller;
use store::Room;
use store::request::{Condition, Expiry, Op, Set};
use wire::resp::{
    ArgIter, BitCommand, CommandId, ErrorReply, FieldAction, FieldActions, read_offset,
};

use super::locked::{Held, HeldWork, item_room_bytes};
use crate::gather::Gather;
use crate::resp::bit_operation::bit_op;
use crate::resp::keys::refuse_long_key;
use crate::resp::locked::{count_lookups, with_held};

/// Runs a command on bits.
pub(super) fn run_bit<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, command: BitCommand<'a>) {
    match command {
        BitCommand::SetBit { key, offset, bit } => set_bit(gather, caller, key, offset, bit),
        BitCommand::GetBit { key, offset } => match bit_offset(gather, offset) {
            Ok(offset_bits) => gather.single(caller, key, Op::Get, Shape::Bit { offset_bits }),
            Err(error) => gather.fail(caller, &error),
        },
        BitCommand::BitCount { key, range } => {
            gather.single(caller, key, Op::Get, Shape::BitCount(range));
            gather.weigh();
        }
        BitCommand::BitPos { key, search } => {
            gather.single(caller, key, Op::Get, Shape::BitPosition(search));
            gather.weigh();
        }
        BitCommand::BitOp { operation, target, sources } => {
            bit_op(gather, caller, operation, target, sources);
        }
        BitCommand::BitField { key, actions, id } => bit_field(gather, caller, key, actions, id),
    }
}

fn bit_offset<'a>(gather: &Gather<'_, 'a>, offset: &'a [u8]) -> Result<u64, ErrorReply<'a>> {
    read_offset(offset, None, gather.core.value_max_bytes)
}

fn set_bit<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    key: &'a [u8],
    offset: &'a [u8],
    bit: Option<bool>,
) {
    let offset_bits = match (bit_offset(gather, offset), bit) {
        (Ok(offset_bits), Some(_)) => offset_bits,
        (Ok(_), None) => return gather.fail(caller, &ErrorReply::Bit),
        (Err(error), _) => return gather.fail(caller, &error),
    };
    let bit = bit == Some(true);
    let update = Op::Update(Rmw::SetBit { offset_bits, bit });
    gather.single(caller, key, update, Shape::OldBit { offset_bits });
    gather.weigh();
}

fn bit_field<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    key: &'a [u8],
    args: ArgIter<'a>,
    id: CommandId,
) {
    let actions = FieldActions::new(args, gather.core.value_max_bytes);
    let mut writes = false;
    for action in actions {
        match action {
            Ok((_, action)) => writes |= action != FieldAction::Get,
            Err(error) => return gather.fail(caller, &error),
        }
    }
    if writes && id == CommandId::BitFieldRo {
        return gather.fail(caller, &ErrorReply::FieldReadOnly);
    }
    let keys = std::iter::once(key);
    if refuse_long_key(gather, caller, keys.clone()) {
        return;
    }
    match with_held(gather, caller.slot, keys, Act { key, actions, writes }) {
        Ok((answers, is_found)) => {
            // Redis does not count the lookup of a key that is about to be written.
            if !writes {
                count_lookups(gather, caller, u64::from(is_found), u64::from(!is_found));
            }
            gather.say(caller, |encoder| {
                encoder.array_header(answers.len());
                for answer in answers {
                    match answer {
                        Some(number) => encoder.integer(number),
                        None => encoder.null(),
                    }
                }
            });
        }
        Err(error) => gather.fail(caller, &error),
    }
}

/// BITFIELD.
struct Act<'a> {
    key: &'a [u8],
    actions: FieldActions<'a>,
    writes: bool,
}

impl HeldWork for Act<'_> {
    /// The answers, and whether the key existed.
    type Done = (Vec<Option<i64>>, bool);

    fn room(&self, old_len_max_bytes: usize) -> Room {
        if !self.writes {
            return Room::default();
        }
        let written_bytes = bits::written_bytes(self.actions) as usize;
        Room::of([item_room_bytes(self.key, old_len_max_bytes.max(written_bytes))])
    }

    /// Memory for the old value, which becomes the new one.
    fn scratch_bytes(&self, old_len_max_bytes: usize) -> u64 {
        let room_bytes = self.room(old_len_max_bytes).bytes();
        if self.writes { old_len_max_bytes as u64 + room_bytes } else { 0 }
    }

    fn run(self, held: &mut Held<'_>) -> Result<Self::Done, ErrorReply<'static>> {
        if !self.writes {
            let mut answers = None;
            let is_found =
                held.look(self.key, |value| answers = Some(bits::look(self.actions, value)));
            return Ok((answers.unwrap_or_else(|| bits::look(self.actions, &[])), is_found));
        }
        held.check_room()?;
        let item = held.read(self.key);
        let is_found = item.is_some();
        let (old, client_flags) =
            item.map_or_else(Default::default, |item| (item.value, item.client_flags));
        let Fields { value, answers } = bits::act(self.actions, old);
        if let Some(value) = value {
            let condition = Condition::Always;
            let set = Set { value: &value, client_flags, expiry: Expiry::Keep, condition };
            held.write(self.key, set)?;
        }
        Ok((answers, is_found))
    }
}
