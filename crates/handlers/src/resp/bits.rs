//! Commands on bits: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD.
//!
//! A command on one key is one request, except for BITFIELD: its reply may be longer than an old
//! value, so it runs while it holds its key. BITOP is in `bit_operation`.

use commands::reply::Shape;
use commands::rmw::Rmw;
use commands::rmw::bits::{self, Fields};
use runtime::engine::Engine;
use runtime::walks::Caller;
use store::Room;
use store::request::{Condition, Expiry, Op, Set};
use wire::resp::{ArgIter, Command, CommandId, ErrorReply, FieldAction, FieldActions, read_offset};

use super::locked::{Held, HeldWork, item_room_bytes};
use crate::gather::Gather;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs `command` if it is one of these.
    pub(super) fn run_bits(&mut self, caller: Caller, command: Command<'a>) -> Option<Command<'a>> {
        match command {
            Command::SetBit { key, offset, bit } => self.set_bit(caller, key, offset, bit),
            Command::GetBit { key, offset } => match self.bit_offset(offset) {
                Ok(offset_bits) => self.single(caller, key, Op::Get, Shape::Bit { offset_bits }),
                Err(error) => self.fail(caller, &error),
            },
            Command::BitCount { key, range } => {
                self.single(caller, key, Op::Get, Shape::BitCount(range));
                self.weigh();
            }
            Command::BitPos { key, search } => {
                self.single(caller, key, Op::Get, Shape::BitPosition(search));
                self.weigh();
            }
            Command::BitOp { operation, target, sources } => {
                self.bit_op(caller, operation, target, sources);
            }
            Command::BitField { key, actions, id } => self.bit_field(caller, key, actions, id),
            other => return Some(other),
        }
        None
    }

    fn bit_offset(&self, offset: &'a [u8]) -> Result<u64, ErrorReply<'a>> {
        read_offset(offset, None, self.core.value_max_bytes)
    }

    fn set_bit(&mut self, caller: Caller, key: &'a [u8], offset: &'a [u8], bit: Option<bool>) {
        let offset_bits = match (self.bit_offset(offset), bit) {
            (Ok(offset_bits), Some(_)) => offset_bits,
            (Ok(_), None) => return self.fail(caller, &ErrorReply::Bit),
            (Err(error), _) => return self.fail(caller, &error),
        };
        let bit = bit == Some(true);
        let update = Op::Update(Rmw::SetBit { offset_bits, bit });
        self.single(caller, key, update, Shape::OldBit { offset_bits });
        self.weigh();
    }

    fn bit_field(&mut self, caller: Caller, key: &'a [u8], args: ArgIter<'a>, id: CommandId) {
        let actions = FieldActions::new(args, self.core.value_max_bytes);
        let mut writes = false;
        for action in actions {
            match action {
                Ok((_, action)) => writes |= action != FieldAction::Get,
                Err(error) => return self.fail(caller, &error),
            }
        }
        if writes && id == CommandId::BitFieldRo {
            return self.fail(caller, &ErrorReply::FieldReadOnly);
        }
        let keys = std::iter::once(key);
        if self.refuse_long_key(caller, keys.clone()) {
            return;
        }
        match self.with_held(caller.slot, keys, Act { key, actions, writes }) {
            Ok((answers, is_found)) => {
                // Redis does not count the lookup of a key that is about to be written.
                if !writes {
                    self.count_lookups(caller, u64::from(is_found), u64::from(!is_found));
                }
                self.say(caller, |encoder| {
                    encoder.array_header(answers.len());
                    for answer in answers {
                        match answer {
                            Some(number) => encoder.integer(number),
                            None => encoder.null(),
                        }
                    }
                });
            }
            Err(error) => self.fail(caller, &error),
        }
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

    fn run<E: Engine>(self, held: &mut Held<'_, E>) -> Result<Self::Done, ErrorReply<'static>> {
        if !self.writes {
            let mut answers = None;
            let is_found =
                held.look(self.key, |value| answers = Some(bits::look(self.actions, value)));
            return Ok((answers.unwrap_or_else(|| bits::look(self.actions, &[])), is_found));
        }
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
