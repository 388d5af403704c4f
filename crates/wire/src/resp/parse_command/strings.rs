//! Commands on strings.

use super::{Read, is_word, next, next_i64, several};
use crate::resp::args::{ArgIter, Keys, Pairs};
use crate::resp::command::{
    Command, ExpireTime, ExpireTtl, Expiry, InvalidTime, SetCommand, SetCondition,
};
use crate::resp::compare::{Compares, Comparison, SetIf};
use crate::resp::error::ErrorReply;
use crate::resp::number::{is_float, parse_i64};
use crate::resp::table::CommandId;

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Get => Command::Get { key: next(args) },
        CommandId::Set => return set(rest),
        CommandId::GetEx => return get_ex(rest),
        CommandId::GetDel => Command::GetDel { key: next(args) },
        CommandId::GetSet => Command::GetSet { key: next(args), value: next(args) },
        CommandId::SetNx => Command::SetNx { key: next(args), value: next(args) },
        CommandId::SetEx | CommandId::PSetEx => return set_ex(id, rest),
        CommandId::MGet => Command::MGet { keys: Keys::all(rest) },
        CommandId::MSet | CommandId::MSetNx => return set_pairs(id, rest),
        CommandId::MSetEx => return several::set_pairs_ex(rest),
        CommandId::DelEx | CommandId::DelIfEq => return several::delete(id, rest),
        CommandId::Digest => Command::Digest { key: next(args) },
        CommandId::Lcs => return several::lcs(rest),
        CommandId::Incr | CommandId::Decr | CommandId::IncrBy | CommandId::DecrBy => {
            return increment(id, rest);
        }
        CommandId::IncrByFloat => {
            let (key, increment) = (next(args), next(args));
            if !is_float(increment) {
                return Err(ErrorReply::NotAFloat);
            }
            Command::IncrByFloat { key, increment }
        }
        CommandId::Append => Command::Append { key: next(args), value: next(args) },
        CommandId::StrLen => Command::StrLen { key: next(args) },
        CommandId::GetRange | CommandId::Substr => {
            Command::GetRange { key: next(args), start: next_i64(args)?, end: next_i64(args)?, id }
        }
        CommandId::SetRange => {
            let (key, offset) = (next(args), next_i64(args)?);
            let offset_bytes = u64::try_from(offset).map_err(|_| ErrorReply::OffsetOutOfRange)?;
            Command::SetRange { key, offset_bytes, value: next(args) }
        }
        _ => return Err(ErrorReply::Syntax),
    })
}

fn set(args: ArgIter<'_>) -> Read<'_> {
    let (set, comparison) = set_with_options(args)?;
    Ok(match comparison {
        None => Command::Set(set),
        Some(_) => Command::SetIf(SetIf { args }),
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
    Ok(Command::GetEx { key, ttl })
}

fn set_ex(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let (key, number, value) = (next(&mut rest), next(&mut rest), next(&mut rest));
    let kind = if id == CommandId::SetEx { TtlKind::Seconds } else { TtlKind::Milliseconds };
    Ok(Command::SetEx { key, value, expire: positive_time(id, kind, number)? })
}

fn set_pairs(id: CommandId, rest: ArgIter<'_>) -> Read<'_> {
    if !rest.len().is_multiple_of(2) {
        return Err(ErrorReply::WrongArity(id));
    }
    let pairs = Pairs::new(rest);
    Ok(if id == CommandId::MSet { Command::MSet { pairs } } else { Command::MSetNx { pairs } })
}

fn increment(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let key = next(&mut rest);
    let delta = match id {
        CommandId::Incr => 1,
        CommandId::Decr => -1,
        CommandId::IncrBy => next_i64(&mut rest)?,
        _ => next_i64(&mut rest)?.checked_neg().ok_or(ErrorReply::DecrementOverflow)?,
    };
    Ok(Command::IncrBy { key, delta, id })
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
pub(super) struct TtlOption<'a> {
    kind: TtlKind,
    number: &'a [u8],
}

impl<'a> TtlOption<'a> {
    /// An option may be repeated, but not combined with another one.
    fn may_be(&self, kind: TtlKind) -> bool {
        self.kind == TtlKind::Unset || self.kind == kind
    }

    /// Parses KEEPTTL, EX, PX, EXAT or PXAT.
    pub(super) fn take_or_keep(
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
    pub(super) fn expiry(&self, id: CommandId) -> Result<Expiry, ErrorReply<'a>> {
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
