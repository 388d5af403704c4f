//! Commands on bits.

use super::{Read, next, next_i64};
use crate::resp::args::{ArgIter, Keys};
use crate::resp::bits::{BitOperation, BitRange, BitSearch, BitUnit};
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

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
            Command::SetBit { key, offset, bit }
        }
        CommandId::GetBit => Command::GetBit { key: next(args), offset: next(args) },
        CommandId::BitCount => return count(rest),
        CommandId::BitPos => return position(rest),
        CommandId::BitOp => {
            let (word, target) = (next(args), next(args));
            let operation = BitOperation::read(word, args.len())?;
            Command::BitOp { operation, target, sources: Keys::all(rest) }
        }
        CommandId::BitField | CommandId::BitFieldRo => {
            Command::BitField { key: next(args), actions: rest, id }
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
    Ok(Command::BitCount { key, range })
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
    Ok(Command::BitPos { key, search })
}
