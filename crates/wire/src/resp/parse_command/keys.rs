//! Commands on keys of any type.

use super::{Read, is_word, next, next_i64, restore};
use crate::resp::args::{ArgIter, Keys};
use crate::resp::command::{Command, Copy, ExpireCondition, ExpireTime, ScanRequest, Unit};
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::range::RangeRequest;
use crate::resp::table::CommandId;

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Del | CommandId::Unlink => Command::Del { keys: Keys::all(rest), id },
        CommandId::Exists => Command::Exists { keys: Keys::all(rest) },
        CommandId::Touch => Command::Touch { keys: Keys::all(rest) },
        CommandId::Type => Command::Type { key: next(args) },
        CommandId::Expire | CommandId::PExpire | CommandId::ExpireAt | CommandId::PExpireAt => {
            return expire(id, rest);
        }
        CommandId::Ttl => Command::Ttl { key: next(args), unit: Unit::SecondsLeft, id },
        CommandId::PTtl => Command::Ttl { key: next(args), unit: Unit::MillisecondsLeft, id },
        CommandId::ExpireTime => Command::Ttl { key: next(args), unit: Unit::SecondsAt, id },
        CommandId::PExpireTime => Command::Ttl { key: next(args), unit: Unit::MillisecondsAt, id },
        CommandId::Persist => Command::Persist { key: next(args) },
        CommandId::Rename => Command::Rename { source: next(args), target: next(args) },
        CommandId::RenameNx => Command::RenameNx { source: next(args), target: next(args) },
        CommandId::Copy => return copy(rest),
        CommandId::Move => return restore::move_key(rest),
        CommandId::Dump => Command::Dump { key: next(args) },
        CommandId::Restore => return restore::restore(rest),
        CommandId::RandomKey => Command::RandomKey,
        CommandId::Keys => Command::Keys { pattern: next(args) },
        CommandId::Scan => return scan(rest),
        CommandId::KvRange => return key_range(rest),
        CommandId::ObjectHelp => Command::Help { id },
        CommandId::ObjectEncoding
        | CommandId::ObjectFreq
        | CommandId::ObjectIdleTime
        | CommandId::ObjectRefCount => Command::Object { key: next(args), id },
        CommandId::Wait => {
            let replica_count = next_i64(args)?;
            Command::Wait { replica_count, timeout_ms: wait_ms(args)? }
        }
        CommandId::WaitAof => {
            let (local_count, replica_count) = (next_i64(args)?, next_i64(args));
            if !(0..=1).contains(&local_count) {
                return Err(ErrorReply::Other("value is out of range, value must between 0 and 1"));
            }
            // Redis reports this error for words that are not numbers, too.
            let is_count = |count: &i64| *count >= 0;
            let replica_count = replica_count.ok().filter(is_count);
            let replica_count = replica_count.ok_or(ErrorReply::NotPositive)?;
            let (is_local, timeout_ms) = (local_count == 1, wait_ms(args)?);
            Command::WaitAof { is_local, replica_count, timeout_ms }
        }
        _ => Command::Operator { id, args: rest },
    })
}

/// The timeout of commands that wait.
fn wait_ms<'a>(args: &mut ArgIter<'a>) -> Result<i64, ErrorReply<'a>> {
    match parse_i64(next(args)) {
        None => Err(ErrorReply::TimeoutNotAnInteger),
        Some(timeout_ms) if timeout_ms < 0 => Err(ErrorReply::TimeoutNegative),
        Some(timeout_ms) => Ok(timeout_ms),
    }
}

fn expire(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, number) = (next(&mut rest), next(&mut rest));
    let mut condition = ExpireCondition::default();
    for option in rest {
        let flag = if is_word(option, "nx") {
            &mut condition.if_none
        } else if is_word(option, "xx") {
            &mut condition.if_some
        } else if is_word(option, "gt") {
            &mut condition.if_later
        } else if is_word(option, "lt") {
            &mut condition.if_earlier
        } else {
            return Err(ErrorReply::UnsupportedOption(option));
        };
        *flag = true;
    }
    let ExpireCondition { if_none, if_some, if_later, if_earlier } = condition;
    if if_none && (if_some || if_later || if_earlier) {
        return Err(ErrorReply::NxWithOthers);
    }
    if if_later && if_earlier {
        return Err(ErrorReply::GtWithLt);
    }
    let number = parse_i64(number).ok_or(ErrorReply::NotAnInteger)?;
    let in_seconds = matches!(id, CommandId::Expire | CommandId::ExpireAt);
    let ms = if in_seconds { number.checked_mul(1000) } else { Some(number) };
    let ms = ms.ok_or(ErrorReply::InvalidExpireTime(id))?;
    let relative = matches!(id, CommandId::Expire | CommandId::PExpire);
    Ok(Command::Expire { key, expire: ExpireTime { ms, relative, id }, condition })
}

fn copy(mut rest: ArgIter<'_>) -> Read<'_> {
    let (source, target) = (next(&mut rest), next(&mut rest));
    let mut copy = Copy { source, target, database_index: None, replaces: false };
    while let Some(option) = rest.next() {
        // Redis checks the database at once.
        if copy.database_index.is_some_and(|index| index != 0) {
            return Err(ErrorReply::DatabaseIndex);
        }
        if is_word(option, "replace") {
            copy.replaces = true;
        } else if is_word(option, "db") && rest.len() > 0 {
            copy.database_index = Some(restore::database_index(next(&mut rest))?);
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::Copy(copy))
}

fn scan(mut rest: ArgIter<'_>) -> Read<'_> {
    let cursor = parse_cursor(next(&mut rest)).ok_or(ErrorReply::InvalidCursor)?;
    let mut scan = ScanRequest { cursor, pattern: None, count: 10, type_name: None };
    while let Some(option) = rest.next() {
        let argument = rest.next().ok_or(ErrorReply::Syntax)?;
        if is_word(option, "count") {
            let count = parse_i64(argument).ok_or(ErrorReply::NotAnInteger)?;
            scan.count = u64::try_from(count).ok().filter(|n| *n > 0).ok_or(ErrorReply::Syntax)?;
        } else if is_word(option, "match") {
            scan.pattern = (argument != b"*").then_some(argument);
        } else if is_word(option, "type") {
            scan.type_name = Some(argument);
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::Scan(scan))
}

fn key_range(mut rest: ArgIter<'_>) -> Read<'_> {
    let (start, end) = (next(&mut rest), next(&mut rest));
    let mut range = RangeRequest::new(start, end).ok_or(ErrorReply::LexBound)?;
    while let Some(option) = rest.next() {
        if is_word(option, "rev") {
            range.is_reverse = true;
        } else if is_word(option, "keysonly") {
            range.is_keys_only = true;
        } else if is_word(option, "limit") && rest.len() > 0 {
            let limit = next_i64(&mut rest)?;
            range.limit = Some(u64::try_from(limit).map_err(|_| ErrorReply::NotPositive)?);
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::KvRange(range))
}

/// Parses a cursor as generously as C's `strtoul`: a sign is allowed, an empty text is 0, and a NUL
/// ends it.
fn parse_cursor(text: &[u8]) -> Option<u64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() && !text.is_empty() {
        return None;
    }
    let mut cursor = 0_u64;
    for byte in digits {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        cursor = cursor.checked_mul(10)?.checked_add(digit)?;
    }
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}
