//! Commands on keys of any type.

use base::UnixMillis;

use super::{Read, is_word, next, next_i64};
use crate::resp::args::{ArgIter, Keys};
use crate::resp::command::Command;
use crate::resp::compare::Comparison;
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::range::RangeRequest;
use crate::resp::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A command on keys of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyCommand<'a> {
    /// DEL and UNLINK.
    Del { keys: Keys<'a>, id: CommandId },
    /// DELEX with a condition, and DELIFEQ.
    DelIf { key: &'a [u8], comparison: Comparison<'a>, id: CommandId },
    /// `EXISTS key [key ...]`; a key named twice counts twice.
    Exists { keys: Keys<'a> },
    /// `TOUCH key [key ...]`.
    Touch { keys: Keys<'a> },
    /// `TYPE key`.
    Type { key: &'a [u8] },
    /// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
    Expire { key: &'a [u8], expire: ExpireTime, condition: ExpireCondition },
    /// TTL, PTTL, EXPIRETIME and PEXPIRETIME.
    Ttl { key: &'a [u8], unit: Unit, id: CommandId },
    /// `PERSIST key`.
    Persist { key: &'a [u8] },
    /// `RENAME source target`.
    Rename { source: &'a [u8], target: &'a [u8] },
    /// `RENAMENX source target`.
    RenameNx { source: &'a [u8], target: &'a [u8] },
    /// `COPY source target [DB n] [REPLACE]`.
    Copy(Copy<'a>),
    /// `MOVE key index`.
    Move { key: &'a [u8], database_index: i32 },
    /// `DUMP key`.
    Dump { key: &'a [u8] },
    /// `RESTORE key ttl payload [options]`.
    Restore(Restore<'a>),
    /// `RANDOMKEY`.
    RandomKey,
    /// `KEYS pattern`.
    Keys { pattern: &'a [u8] },
    /// `SCAN cursor [MATCH p] [COUNT n] [TYPE t]`.
    Scan(ScanRequest<'a>),
    /// `KV.RANGE start end [LIMIT n] [REV] [KEYSONLY]`.
    KvRange(RangeRequest<'a>),
    /// OBJECT ENCODING, FREQ, IDLETIME and REFCOUNT.
    Object { key: &'a [u8], id: CommandId },
    /// `WAIT replicas timeout`.
    Wait { replica_count: i64, timeout_ms: i64 },
    /// `WAITAOF local replicas timeout`.
    WaitAof { is_local: bool, replica_count: i64, timeout_ms: i64 },
}

impl KeyCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            KeyCommand::Del { id, .. }
            | KeyCommand::DelIf { id, .. }
            | KeyCommand::Ttl { id, .. }
            | KeyCommand::Object { id, .. } => *id,
            KeyCommand::Exists { .. } => CommandId::Exists,
            KeyCommand::Touch { .. } => CommandId::Touch,
            KeyCommand::Type { .. } => CommandId::Type,
            KeyCommand::Expire { expire, .. } => expire.id,
            KeyCommand::Persist { .. } => CommandId::Persist,
            KeyCommand::Rename { .. } => CommandId::Rename,
            KeyCommand::RenameNx { .. } => CommandId::RenameNx,
            KeyCommand::Copy(_) => CommandId::Copy,
            KeyCommand::Move { .. } => CommandId::Move,
            KeyCommand::Dump { .. } => CommandId::Dump,
            KeyCommand::Restore(_) => CommandId::Restore,
            KeyCommand::RandomKey => CommandId::RandomKey,
            KeyCommand::Keys { .. } => CommandId::Keys,
            KeyCommand::Scan(_) => CommandId::Scan,
            KeyCommand::KvRange(_) => CommandId::KvRange,
            KeyCommand::Wait { .. } => CommandId::Wait,
            KeyCommand::WaitAof { .. } => CommandId::WaitAof,
        }
    }
}

/// An expiry time as the client gave it, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpireTime {
    /// Milliseconds; negative only in the EXPIRE family.
    pub ms: i64,
    /// Whether `ms` counts from now instead of 1970.
    pub relative: bool,
    /// The command, which the error names if the sum with the clock overflows.
    pub id: CommandId,
}

impl ExpireTime {
    /// The absolute time; a time before 1970 is 0, which has always passed.
    /// `None`: answer [`super::ErrorReply::InvalidExpireTime`] with `self.id`.
    pub fn absolute(self, now: UnixMillis) -> Option<UnixMillis> {
        let now_ms = i64::try_from(now.0).unwrap_or(i64::MAX);
        let at_ms = if self.relative { self.ms.checked_add(now_ms)? } else { self.ms };
        Some(UnixMillis(u64::try_from(at_ms).unwrap_or(0)))
    }
}

/// NX, XX, GT and LT of the EXPIRE family. GT or LT may join XX; no other two may be set together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireCondition {
    /// Only if the key has no expiry.
    pub if_none: bool,
    /// Only if the key has an expiry.
    pub if_some: bool,
    /// Only if the new expiry is later; no expiry counts as infinitely late.
    pub if_later: bool,
    /// Only if the new expiry is earlier; no expiry counts as infinitely late.
    pub if_earlier: bool,
}

impl ExpireCondition {
    /// Whether a key with the expiry `old` may get the expiry `new`.
    pub fn allows(self, old: Option<UnixMillis>, new: UnixMillis) -> bool {
        !(self.if_none && old.is_some()
            || self.if_some && old.is_none()
            || self.if_later && old.is_none_or(|old| new <= old)
            || self.if_earlier && old.is_some_and(|old| new >= old))
    }
}

/// The unit and base of a returned time: TTL, PTTL, EXPIRETIME, PEXPIRETIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// TTL: seconds left, rounded to nearest.
    SecondsLeft,
    /// PTTL: milliseconds left.
    MillisecondsLeft,
    /// EXPIRETIME: seconds since 1970, rounded to nearest.
    SecondsAt,
    /// PEXPIRETIME: milliseconds since 1970.
    MillisecondsAt,
}

impl Unit {
    /// The number to return for a key that expires at `at` and has not expired yet.
    pub fn answer(self, now: UnixMillis, at: UnixMillis) -> i64 {
        let left_ms = at.0.saturating_sub(now.0);
        let answer = match self {
            Unit::SecondsLeft => left_ms.saturating_add(500) / 1000,
            Unit::MillisecondsLeft => left_ms,
            Unit::SecondsAt => at.0.saturating_add(500) / 1000,
            Unit::MillisecondsAt => at.0,
        };
        i64::try_from(answer).unwrap_or(i64::MAX)
    }
}

/// `COPY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'a> {
    /// The source key.
    pub source: &'a [u8],
    /// The target key.
    pub target: &'a [u8],
    /// `DB n`.
    pub database_index: Option<i32>,
    /// REPLACE.
    pub replaces: bool,
}

/// `RESTORE`. IDLETIME and FREQ are checked and have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The payload from DUMP, not parsed yet.
    pub payload: &'a [u8],
    /// Milliseconds, 0 is never; 0 too if it is not an integer.
    ttl_or_zero_ms: i64,
    is_ttl_an_integer: bool,
    /// ABSTTL: the time counts from 1970.
    pub is_absolute: bool,
    /// REPLACE.
    pub replaces: bool,
}

impl Restore<'_> {
    /// The time in milliseconds, 0 is never; `None`: it is not an integer, which Redis reports
    /// after it has looked for the key.
    pub fn ttl_ms(&self) -> Option<i64> {
        self.is_ttl_an_integer.then_some(self.ttl_or_zero_ms)
    }
}

/// `SCAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequest<'a> {
    /// The cursor that the last call returned.
    pub cursor: u64,
    /// MATCH, absent if none or `*`.
    pub pattern: Option<&'a [u8]>,
    /// COUNT, 10 by default, at least 1.
    pub count: u64,
    /// TYPE: only `string` (any case) can match.
    pub type_name: Option<&'a [u8]>,
}

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Del | CommandId::Unlink => {
            Command::Key(KeyCommand::Del { keys: Keys::all(rest), id })
        }
        CommandId::Exists => Command::Key(KeyCommand::Exists { keys: Keys::all(rest) }),
        CommandId::Touch => Command::Key(KeyCommand::Touch { keys: Keys::all(rest) }),
        CommandId::Type => Command::Key(KeyCommand::Type { key: next(args) }),
        CommandId::Expire | CommandId::PExpire | CommandId::ExpireAt | CommandId::PExpireAt => {
            return expire(id, rest);
        }
        CommandId::Ttl => {
            Command::Key(KeyCommand::Ttl { key: next(args), unit: Unit::SecondsLeft, id })
        }
        CommandId::PTtl => {
            Command::Key(KeyCommand::Ttl { key: next(args), unit: Unit::MillisecondsLeft, id })
        }
        CommandId::ExpireTime => {
            Command::Key(KeyCommand::Ttl { key: next(args), unit: Unit::SecondsAt, id })
        }
        CommandId::PExpireTime => {
            Command::Key(KeyCommand::Ttl { key: next(args), unit: Unit::MillisecondsAt, id })
        }
        CommandId::Persist => Command::Key(KeyCommand::Persist { key: next(args) }),
        CommandId::Rename => {
            Command::Key(KeyCommand::Rename { source: next(args), target: next(args) })
        }
        CommandId::RenameNx => {
            Command::Key(KeyCommand::RenameNx { source: next(args), target: next(args) })
        }
        CommandId::Copy => return copy(rest),
        CommandId::Move => return move_key(rest),
        CommandId::Dump => Command::Key(KeyCommand::Dump { key: next(args) }),
        CommandId::Restore => return restore(rest),
        CommandId::RandomKey => Command::Key(KeyCommand::RandomKey),
        CommandId::Keys => Command::Key(KeyCommand::Keys { pattern: next(args) }),
        CommandId::Scan => return scan(rest),
        CommandId::KvRange => return key_range(rest),
        CommandId::ObjectHelp => Command::Help { id },
        CommandId::ObjectEncoding
        | CommandId::ObjectFreq
        | CommandId::ObjectIdleTime
        | CommandId::ObjectRefCount => Command::Key(KeyCommand::Object { key: next(args), id }),
        CommandId::Wait => {
            let replica_count = next_i64(args)?;
            Command::Key(KeyCommand::Wait { replica_count, timeout_ms: wait_ms(args)? })
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
            Command::Key(KeyCommand::WaitAof { is_local, replica_count, timeout_ms })
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
    Ok(Command::Key(KeyCommand::Expire { key, expire: ExpireTime { ms, relative, id }, condition }))
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
            copy.database_index = Some(database_index(next(&mut rest))?);
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::Key(KeyCommand::Copy(copy)))
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
    Ok(Command::Key(KeyCommand::Scan(scan)))
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
            range.limit = u64::try_from(limit).map_err(|_| ErrorReply::NotPositive)?;
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::Key(KeyCommand::KvRange(range)))
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

fn restore(mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, ttl, payload) = (next(&mut rest), next(&mut rest), next(&mut rest));
    let ttl_ms = parse_i64(ttl);
    let mut restore = Restore {
        key,
        payload,
        ttl_or_zero_ms: ttl_ms.unwrap_or(0),
        is_ttl_an_integer: ttl_ms.is_some(),
        is_absolute: false,
        replaces: false,
    };
    let (mut has_idle_time, mut has_frequency) = (false, false);
    while let Some(option) = rest.next() {
        if is_word(option, "replace") {
            restore.replaces = true;
        } else if is_word(option, "absttl") {
            restore.is_absolute = true;
        } else if is_word(option, "idletime") && rest.len() > 0 && !has_frequency {
            let seconds = parse_i64(next(&mut rest)).ok_or(ErrorReply::NotAnInteger)?;
            if seconds < 0 {
                return Err(ErrorReply::RestoreIdleTime);
            }
            has_idle_time = true;
        } else if is_word(option, "freq") && rest.len() > 0 && !has_idle_time {
            let frequency = parse_i64(next(&mut rest)).ok_or(ErrorReply::NotAnInteger)?;
            if !(0..=255).contains(&frequency) {
                return Err(ErrorReply::RestoreFrequency);
            }
            has_frequency = true;
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(Command::Key(KeyCommand::Restore(restore)))
}

fn move_key(mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, index) = (next(&mut rest), next(&mut rest));
    Ok(Command::Key(KeyCommand::Move { key, database_index: database_index(index)? }))
}

/// An index of a database, which need not exist.
pub(super) fn database_index<'a>(text: &[u8]) -> Result<i32, ErrorReply<'a>> {
    let index = parse_i64(text).ok_or(ErrorReply::NotAnInteger)?;
    i32::try_from(index).map_err(|_| ErrorReply::NotA32BitInteger)
}

#[cfg(test)]
mod tests {
    use super::{CommandId, ExpireCondition, ExpireTime, Unit, UnixMillis};

    #[test]
    fn times_become_absolute_or_overflow() {
        let time = |ms, relative| ExpireTime { ms, relative, id: CommandId::Expire };
        let now = UnixMillis(1_000);
        assert_eq!(time(5, true).absolute(now), Some(UnixMillis(1_005)));
        assert_eq!(time(5, false).absolute(now), Some(UnixMillis(5)));
        assert_eq!(time(-5, true).absolute(now), Some(UnixMillis(995)));
        assert_eq!(time(-5_000, true).absolute(now), Some(UnixMillis(0)));
        assert_eq!(time(i64::MAX, true).absolute(now), None);
        assert_eq!(time(i64::MAX, false).absolute(now), Some(UnixMillis(i64::MAX as u64)));
    }

    #[test]
    fn no_expiry_counts_as_infinitely_late() {
        let nothing = ExpireCondition::default();
        let later = ExpireCondition { if_later: true, ..nothing };
        let earlier = ExpireCondition { if_earlier: true, ..nothing };
        let none = ExpireCondition { if_none: true, ..nothing };
        let some = ExpireCondition { if_some: true, ..nothing };
        let (old, new) = (Some(UnixMillis(10)), UnixMillis(20));
        // (condition, allowed without an expiry, with an earlier one, with the same one)
        let cases = [
            (nothing, true, true, true),
            (later, false, true, false),
            (earlier, true, false, false),
            (none, true, false, false),
            (some, false, true, true),
        ];
        for (condition, without, with_earlier, with_same) in cases {
            assert_eq!(condition.allows(None, new), without, "{condition:?}");
            assert_eq!(condition.allows(old, new), with_earlier, "{condition:?}");
            assert_eq!(condition.allows(Some(new), new), with_same, "{condition:?}");
        }
    }

    #[test]
    fn answered_times_are_rounded_to_seconds() {
        let (now, at) = (UnixMillis(10_000), UnixMillis(11_500));
        assert_eq!(Unit::SecondsLeft.answer(now, at), 2);
        assert_eq!(Unit::SecondsLeft.answer(now, UnixMillis(11_499)), 1);
        assert_eq!(Unit::MillisecondsLeft.answer(now, at), 1_500);
        assert_eq!(Unit::SecondsAt.answer(now, at), 12);
        assert_eq!(Unit::MillisecondsAt.answer(now, at), 11_500);
    }
}
