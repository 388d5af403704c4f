//! Commands on strings.

use super::keys::{ExpireTime, KeyCommand};
use super::{Read, is_word, next, next_i64};
use crate::resp::args::{ArgIter, Keys, Pairs};
use crate::resp::bits::{LcsRequest, LcsWants};
use crate::resp::command::Command;
use crate::resp::compare::{Compares, Comparison, SetIf};
use crate::resp::error::ErrorReply;
use crate::resp::number::{is_float, parse_i64};
use crate::resp::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A command on strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StringCommand<'a> {
    /// `GET key`.
    Get { key: &'a [u8] },
    /// `SET key value [options]`, and SETNX, SETEX, PSETEX, GETSET by their own variants.
    Set(SetCommand<'a>),
    /// `SET key value IFEQ|IFNE|IFDEQ|IFDNE operand [options]`.
    SetIf(SetIf<'a>),
    /// `GETEX key [options]`; `None` leaves the expiry alone.
    GetEx { key: &'a [u8], ttl: Option<ExpireTtl> },
    /// `GETDEL key`.
    GetDel { key: &'a [u8] },
    /// `GETSET key value`.
    GetSet { key: &'a [u8], value: &'a [u8] },
    /// `SETNX key value`: answers 1 or 0.
    SetNx { key: &'a [u8], value: &'a [u8] },
    /// `SETEX` and `PSETEX`.
    SetEx { key: &'a [u8], value: &'a [u8], expire: ExpireTime },
    /// `MGET key [key ...]`.
    MGet { keys: Keys<'a> },
    /// `MSET key value [key value ...]`.
    MSet { pairs: Pairs<'a> },
    /// `MSETNX key value [key value ...]`.
    MSetNx { pairs: Pairs<'a> },
    /// `MSETEX numkeys key value [key value ...] [options]`.
    MSetEx(MSetEx<'a>),
    /// INCR, DECR, INCRBY and DECRBY; DECRBY's number is already negated.
    IncrBy { key: &'a [u8], delta: i64, id: CommandId },
    /// `INCRBYFLOAT key increment`; the increment is a valid float, see `number::add_float`.
    IncrByFloat { key: &'a [u8], increment: &'a [u8] },
    /// `APPEND key value`.
    Append { key: &'a [u8], value: &'a [u8] },
    /// `STRLEN key`.
    StrLen { key: &'a [u8] },
    /// GETRANGE and SUBSTR; both ends inclusive, negative from the end.
    GetRange { key: &'a [u8], start: i64, end: i64, id: CommandId },
    /// `SETRANGE key offset value`; the offset is not negative.
    SetRange { key: &'a [u8], offset_bytes: u64, value: &'a [u8] },
    /// `DIGEST key`.
    Digest { key: &'a [u8] },
    /// `LCS left right [options]`.
    Lcs(LcsRequest<'a>),
}

impl StringCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            StringCommand::Get { .. } => CommandId::Get,
            StringCommand::Set(_) | StringCommand::SetIf(_) => CommandId::Set,
            StringCommand::GetEx { .. } => CommandId::GetEx,
            StringCommand::GetDel { .. } => CommandId::GetDel,
            StringCommand::GetSet { .. } => CommandId::GetSet,
            StringCommand::SetNx { .. } => CommandId::SetNx,
            StringCommand::SetEx { expire, .. } => expire.id,
            StringCommand::MGet { .. } => CommandId::MGet,
            StringCommand::MSet { .. } => CommandId::MSet,
            StringCommand::MSetNx { .. } => CommandId::MSetNx,
            StringCommand::MSetEx(_) => CommandId::MSetEx,
            StringCommand::IncrBy { id, .. } | StringCommand::GetRange { id, .. } => *id,
            StringCommand::IncrByFloat { .. } => CommandId::IncrByFloat,
            StringCommand::Append { .. } => CommandId::Append,
            StringCommand::StrLen { .. } => CommandId::StrLen,
            StringCommand::SetRange { .. } => CommandId::SetRange,
            StringCommand::Digest { .. } => CommandId::Digest,
            StringCommand::Lcs(_) => CommandId::Lcs,
        }
    }
}

/// `SET` with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetCommand<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// EX, PX, EXAT, PXAT, KEEPTTL or none of them.
    pub expiry: Expiry,
    /// NX, XX or neither.
    pub condition: SetCondition,
    /// GET: answer the old value (null if none) instead of OK.
    pub returns_old: bool,
}

/// The condition of a SET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCondition {
    /// Neither NX nor XX.
    #[default]
    Always,
    /// NX: only if the key does not exist.
    IfAbsent,
    /// XX: only if the key exists.
    IfPresent,
}

/// The effect of a SET on the expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Expiry {
    /// No expiry.
    #[default]
    Never,
    /// KEEPTTL.
    Keep,
    /// EX, PX, EXAT or PXAT.
    At(ExpireTime),
}

/// The effect of GETEX on the expiry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpireTtl {
    /// PERSIST.
    Persist,
    /// EX, PX, EXAT or PXAT.
    At(ExpireTime),
    /// One of these with an invalid time: null for an absent key, the error for an existing one.
    Invalid(InvalidTime),
}

/// The error in an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidTime {
    /// It is not a 64-bit integer.
    NotAnInteger,
    /// It is not positive, or too large for milliseconds.
    OutOfRange,
}

impl InvalidTime {
    /// The error reply of `id`.
    pub fn error_reply(self, id: CommandId) -> ErrorReply<'static> {
        match self {
            InvalidTime::NotAnInteger => ErrorReply::NotAnInteger,
            InvalidTime::OutOfRange => ErrorReply::InvalidExpireTime(id),
        }
    }
}

/// `MSETEX`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MSetEx<'a> {
    /// Keys and values.
    pub pairs: Pairs<'a>,
    /// The expiry of each key.
    pub expiry: Expiry,
    /// The condition on all keys together.
    pub condition: SetCondition,
}

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Get => Command::String(StringCommand::Get { key: next(args) }),
        CommandId::Set => return set(rest),
        CommandId::GetEx => return get_ex(rest),
        CommandId::GetDel => Command::String(StringCommand::GetDel { key: next(args) }),
        CommandId::GetSet => {
            Command::String(StringCommand::GetSet { key: next(args), value: next(args) })
        }
        CommandId::SetNx => {
            Command::String(StringCommand::SetNx { key: next(args), value: next(args) })
        }
        CommandId::SetEx | CommandId::PSetEx => return set_ex(id, rest),
        CommandId::MGet => Command::String(StringCommand::MGet { keys: Keys::all(rest) }),
        CommandId::MSet | CommandId::MSetNx => return set_pairs(id, rest),
        CommandId::MSetEx => return set_pairs_ex(rest),
        CommandId::DelEx | CommandId::DelIfEq => return delete(id, rest),
        CommandId::Digest => Command::String(StringCommand::Digest { key: next(args) }),
        CommandId::Lcs => return lcs(rest),
        CommandId::Incr | CommandId::Decr | CommandId::IncrBy | CommandId::DecrBy => {
            return increment(id, rest);
        }
        CommandId::IncrByFloat => {
            let (key, increment) = (next(args), next(args));
            if !is_float(increment) {
                return Err(ErrorReply::NotAFloat);
            }
            Command::String(StringCommand::IncrByFloat { key, increment })
        }
        CommandId::Append => {
            Command::String(StringCommand::Append { key: next(args), value: next(args) })
        }
        CommandId::StrLen => Command::String(StringCommand::StrLen { key: next(args) }),
        CommandId::GetRange | CommandId::Substr => Command::String(StringCommand::GetRange {
            key: next(args),
            start: next_i64(args)?,
            end: next_i64(args)?,
            id,
        }),
        CommandId::SetRange => {
            let (key, offset) = (next(args), next_i64(args)?);
            let offset_bytes = u64::try_from(offset).map_err(|_| ErrorReply::OffsetOutOfRange)?;
            Command::String(StringCommand::SetRange { key, offset_bytes, value: next(args) })
        }
        _ => return Err(ErrorReply::Syntax),
    })
}

fn set(args: ArgIter<'_>) -> Read<'_> {
    let (set, comparison) = set_with_options(args)?;
    Ok(match comparison {
        None => Command::String(StringCommand::Set(set)),
        Some(_) => Command::String(StringCommand::SetIf(SetIf { args })),
    })
}

/// Parses a SET again that was found to have a comparison.
pub(in crate::resp) fn set_if(args: ArgIter<'_>) -> Option<(SetCommand<'_>, Comparison<'_>)> {
    let (set, comparison) = set_with_options(args).ok()?;
    Some((set, comparison?))
}

type SetOptions<'a> = (SetCommand<'a>, Option<Comparison<'a>>);

fn set_with_options<'a>(mut rest: ArgIter<'a>) -> Result<SetOptions<'a>, ErrorReply<'a>> {
    let (key, value) = (next(&mut rest), next(&mut rest));
    let mut condition = SetCondition::Always;
    let mut comparison = None;
    let mut returns_old = false;
    let mut ttl = TtlOption::default();
    while let Some(option) = rest.next() {
        let is_free = comparison.is_none();
        if is_word(option, "nx") && condition != SetCondition::IfPresent && is_free {
            condition = SetCondition::IfAbsent;
        } else if is_word(option, "xx") && condition != SetCondition::IfAbsent && is_free {
            condition = SetCondition::IfPresent;
        } else if is_word(option, "get") {
            returns_old = true;
        } else if let Some(compares) = Compares::read(option) {
            let operand = rest.next().ok_or(ErrorReply::Syntax)?;
            if !is_free || condition != SetCondition::Always {
                return Err(ErrorReply::Syntax);
            }
            comparison = Some((compares, operand));
        } else {
            ttl.take_or_keep(option, &mut rest)?;
        }
    }
    let expiry = ttl.expiry(CommandId::Set)?;
    let set = SetCommand { key, value, expiry, condition, returns_old };
    Ok((set, comparison.map(|(compares, operand)| compares.with(operand)).transpose()?))
}

fn get_ex(mut rest: ArgIter<'_>) -> Read<'_> {
    let key = next(&mut rest);
    let mut ttl = TtlOption::default();
    while let Some(option) = rest.next() {
        if is_word(option, "persist") && ttl.may_be(TtlKind::Persist) {
            ttl.kind = TtlKind::Persist;
        } else {
            ttl.take(option, &mut rest)?;
        }
    }
    let ttl = match ttl.kind {
        TtlKind::Unset | TtlKind::Keep => None,
        TtlKind::Persist => Some(ExpireTtl::Persist),
        // Redis checks the key before the time.
        kind => Some(match checked_time(CommandId::GetEx, kind, ttl.number) {
            Ok(expire) => ExpireTtl::At(expire),
            Err(reason) => ExpireTtl::Invalid(reason),
        }),
    };
    Ok(Command::String(StringCommand::GetEx { key, ttl }))
}

fn set_ex(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, number, value) = (next(&mut rest), next(&mut rest), next(&mut rest));
    let kind = if id == CommandId::SetEx { TtlKind::Seconds } else { TtlKind::Milliseconds };
    Ok(Command::String(StringCommand::SetEx {
        key,
        value,
        expire: positive_time(id, kind, number)?,
    }))
}

fn set_pairs(id: CommandId, rest: ArgIter<'_>) -> Read<'_> {
    if !rest.len().is_multiple_of(2) {
        return Err(ErrorReply::WrongArity(id));
    }
    let pairs = Pairs::new(rest);
    Ok(if id == CommandId::MSet {
        Command::String(StringCommand::MSet { pairs })
    } else {
        Command::String(StringCommand::MSetNx { pairs })
    })
}

fn increment(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let key = next(&mut rest);
    let delta = match id {
        CommandId::Incr => 1,
        CommandId::Decr => -1,
        CommandId::IncrBy => next_i64(&mut rest)?,
        _ => next_i64(&mut rest)?.checked_neg().ok_or(ErrorReply::DecrementOverflow)?,
    };
    Ok(Command::String(StringCommand::IncrBy { key, delta, id }))
}

/// The kinds of options that exclude one another.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum TtlKind {
    #[default]
    Unset,
    Keep,
    Persist,
    Seconds,
    Milliseconds,
    SecondsAt,
    MillisecondsAt,
}

/// The given expiry option, of those that exclude one another.
#[derive(Default)]
struct TtlOption<'a> {
    kind: TtlKind,
    number: &'a [u8],
}

impl<'a> TtlOption<'a> {
    /// An option may be repeated, but not combined with another one.
    fn may_be(&self, kind: TtlKind) -> bool {
        self.kind == TtlKind::Unset || self.kind == kind
    }

    /// Parses KEEPTTL, EX, PX, EXAT or PXAT.
    fn take_or_keep(
        &mut self,
        option: &'a [u8],
        rest: &mut ArgIter<'a>,
    ) -> Result<(), ErrorReply<'a>> {
        if is_word(option, "keepttl") && self.may_be(TtlKind::Keep) {
            self.kind = TtlKind::Keep;
            return Ok(());
        }
        self.take(option, rest)
    }

    /// The combined effect of the options on the expiry of the written value.
    fn expiry(&self, id: CommandId) -> Result<Expiry, ErrorReply<'a>> {
        Ok(match self.kind {
            TtlKind::Unset | TtlKind::Persist => Expiry::Never,
            TtlKind::Keep => Expiry::Keep,
            kind => Expiry::At(positive_time(id, kind, self.number)?),
        })
    }

    /// Parses EX, PX, EXAT or PXAT and its number.
    fn take(&mut self, option: &'a [u8], rest: &mut ArgIter<'a>) -> Result<(), ErrorReply<'a>> {
        let kinds = [
            ("ex", TtlKind::Seconds),
            ("px", TtlKind::Milliseconds),
            ("exat", TtlKind::SecondsAt),
            ("pxat", TtlKind::MillisecondsAt),
        ];
        let kind = kinds.into_iter().find(|(word, _)| is_word(option, word)).map(|(_, kind)| kind);
        let kind = kind.filter(|kind| self.may_be(*kind)).ok_or(ErrorReply::Syntax)?;
        self.number = rest.next().ok_or(ErrorReply::Syntax)?;
        self.kind = kind;
        Ok(())
    }
}

/// [`checked_time`] with the error's text.
fn positive_time<'a>(
    id: CommandId,
    kind: TtlKind,
    number: &'a [u8],
) -> Result<ExpireTime, ErrorReply<'a>> {
    checked_time(id, kind, number).map_err(|reason| reason.error_reply(id))
}

/// A time that must be positive; the sum with the clock is checked once the clock is known.
fn checked_time(id: CommandId, kind: TtlKind, number: &[u8]) -> Result<ExpireTime, InvalidTime> {
    let number = parse_i64(number).ok_or(InvalidTime::NotAnInteger)?;
    let in_seconds = matches!(kind, TtlKind::Seconds | TtlKind::SecondsAt);
    let ms = if in_seconds { number.checked_mul(1000) } else { Some(number) };
    let ms = ms.filter(|ms| *ms > 0).ok_or(InvalidTime::OutOfRange)?;
    let relative = matches!(kind, TtlKind::Seconds | TtlKind::Milliseconds);
    Ok(ExpireTime { ms, relative, id })
}

fn set_pairs_ex(mut rest: ArgIter<'_>) -> Read<'_> {
    let id = CommandId::MSetEx;
    let count =
        parse_i64(next(&mut rest)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or(ErrorReply::KeyCount)?;
    let arg_count = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(2);
    if rest.len() < arg_count {
        return Err(ErrorReply::PairCount);
    }
    let pairs = Pairs::new(rest.take_first(arg_count));
    for _ in 0..arg_count {
        rest.next();
    }
    let mut condition = SetCondition::Always;
    let mut ttl = TtlOption::default();
    while let Some(option) = rest.next() {
        if is_word(option, "nx") && condition != SetCondition::IfPresent {
            condition = SetCondition::IfAbsent;
        } else if is_word(option, "xx") && condition != SetCondition::IfAbsent {
            condition = SetCondition::IfPresent;
        } else {
            ttl.take_or_keep(option, &mut rest)?;
        }
    }
    Ok(Command::String(StringCommand::MSetEx(MSetEx { pairs, expiry: ttl.expiry(id)?, condition })))
}

/// DELEX: without a condition it is a DEL.
fn delete(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let keys = Keys::all(rest);
    let key = next(&mut rest);
    let comparison = match (id, rest.next(), rest.next(), rest.next()) {
        (CommandId::DelIfEq, Some(operand), None, None) => {
            Comparison { compares: Compares::Equal, operand }
        }
        (CommandId::DelEx, None, ..) => return Ok(Command::Key(KeyCommand::Del { keys, id })),
        (CommandId::DelEx, Some(word), Some(operand), None) => {
            Compares::read(word).ok_or(ErrorReply::DeleteCondition)?.with(operand)?
        }
        _ => return Err(ErrorReply::WrongArity(id)),
    };
    Ok(Command::Key(KeyCommand::DelIf { key, comparison, id }))
}

fn lcs(mut rest: ArgIter<'_>) -> Read<'_> {
    let (left, right) = (next(&mut rest), next(&mut rest));
    let (mut wants_length, mut wants_matches) = (false, false);
    let (mut match_min_bytes, mut with_lengths) = (0, false);
    while let Some(option) = rest.next() {
        if is_word(option, "idx") {
            wants_matches = true;
        } else if is_word(option, "len") {
            wants_length = true;
        } else if is_word(option, "withmatchlen") {
            with_lengths = true;
        } else if is_word(option, "minmatchlen") && rest.len() > 0 {
            match_min_bytes = u64::try_from(next_i64(&mut rest)?).unwrap_or(0);
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    let wants = match (wants_length, wants_matches) {
        (true, true) => return Err(ErrorReply::LcsLengthAndIndexes),
        (true, false) => LcsWants::Length,
        (false, true) => LcsWants::Matches,
        (false, false) => LcsWants::Text,
    };
    Ok(Command::String(StringCommand::Lcs(LcsRequest {
        left,
        right,
        wants,
        match_min_bytes,
        with_lengths,
    })))
}
