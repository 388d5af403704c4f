//! Commands on bits.

use super::{Read, next, next_i64};
use crate::resp::args::{ArgIter, Keys};
use crate::resp::bits::{BitOperation, BitRange, BitSearch, BitUnit};
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A command on the bits of a string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BitCommand<'a> {
    /// `SETBIT key offset bit`; the offset is parsed once the longest value is known, and an
    /// invalid bit is reported only after it.
    SetBit { key: &'a [u8], offset: &'a [u8], bit: Option<bool> },
    /// `GETBIT key offset`.
    GetBit { key: &'a [u8], offset: &'a [u8] },
    /// `BITCOUNT key [start end [BYTE|BIT]]`.
    BitCount { key: &'a [u8], range: Option<BitRange> },
    /// `BITPOS key bit [start [end [BYTE|BIT]]]`.
    BitPos { key: &'a [u8], search: BitSearch },
    /// `BITOP operation target source [source ...]`.
    BitOp { operation: BitOperation, target: &'a [u8], sources: Keys<'a> },
    /// BITFIELD and BITFIELD_RO; the actions are parsed by `FieldActions`.
    BitField { key: &'a [u8], actions: ArgIter<'a>, id: CommandId },
}

impl BitCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            BitCommand::SetBit { .. } => CommandId::SetBit,
            BitCommand::GetBit { .. } => CommandId::GetBit,
            BitCommand::BitCount { .. } => CommandId::BitCount,
            BitCommand::BitPos { .. } => CommandId::BitPos,
            BitCommand::BitOp { .. } => CommandId::BitOp,
            BitCommand::BitField { id, .. } => *id,
        }
    }
}

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::SetBit => {
            let (key, offset, bit) = (next(args), next(args), next(args));
            let bit = parse_i64(bit).and_then(|bit| match bit {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            });
            Command::Bit(BitCommand::SetBit { key, offset, bit })
        }
        CommandId::GetBit => {
            Command::Bit(BitCommand::GetBit { key: next(args), offset: next(args) })
        }
        CommandId::BitCount => return count(rest),
        CommandId::BitPos => return position(rest),
        CommandId::BitOp => {
            let (word, target) = (next(args), next(args));
            let operation = BitOperation::read(word, args.len())?;
            Command::Bit(BitCommand::BitOp { operation, target, sources: Keys::all(rest) })
        }
        CommandId::BitField | CommandId::BitFieldRo => {
            Command::Bit(BitCommand::BitField { key: next(args), actions: rest, id })
        }
        _ => return Err(ErrorReply::Syntax),
    })
}

fn count(mut rest: ArgIter<'_>) -> Read<'_> {
    let key = next(&mut rest);
    let range = match rest.len() {
        0 => None,
        2 | 3 => {
            let (start, end) = (next_i64(&mut rest)?, next_i64(&mut rest)?);
            let unit = rest.next().map(BitUnit::read).transpose()?.unwrap_or_default();
            Some(BitRange { start, end, unit })
        }
        _ => return Err(ErrorReply::Syntax),
    };
    Ok(Command::Bit(BitCommand::BitCount { key, range }))
}

fn position(mut rest: ArgIter<'_>) -> Read<'_> {
    let key = next(&mut rest);
    let bit = match next_i64(&mut rest)? {
        0 => false,
        1 => true,
        _ => return Err(ErrorReply::BitArgument),
    };
    let unit = BitUnit::Byte;
    let mut search = BitSearch { bit, start: 0, end: -1, has_end: false, unit };
    if rest.len() > 3 {
        return Err(ErrorReply::Syntax);
    }
    if let Some(start) = rest.next() {
        search.start = parse_i64(start).ok_or(ErrorReply::NotAnInteger)?;
    }
    let (end, unit) = (rest.next(), rest.next());
    // Checked in the same order as in Redis.
    search.unit = unit.map(BitUnit::read).transpose()?.unwrap_or_default();
    if let Some(end) = end {
        search.end = parse_i64(end).ok_or(ErrorReply::NotAnInteger)?;
        search.has_end = true;
    }
    Ok(Command::Bit(BitCommand::BitPos { key, search }))
}
