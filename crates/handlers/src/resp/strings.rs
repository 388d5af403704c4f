//! Commands on one string.

use commands::reply::Shape;
use commands::rmw::{Bounded, Rmw};
use commands::work::{SMALL_FLOAT_DIGITS, Work};
use runtime::walks::Caller;
use store::request::{Condition, Expiry, Op, Set};
use wire::resp::number::float_digits;
use wire::resp::{
    ErrorReply, ExpireTime, ExpireTtl, InvalidTime, SetCommand, SetCondition, SetIf, StringCommand,
};

use crate::gather::Gather;
use crate::resp::lcs::lcs;
use crate::resp::restore::mset_ex;
use crate::resp::several::{mget, mset, mset_nx};

/// Runs a command on strings.
pub(super) fn run_string<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    command: StringCommand<'a>,
) {
    match command {
        StringCommand::Get { key } => gather.single(caller, key, Op::Get, Shape::Value),
        StringCommand::Set(set) => run_set(gather, caller, &set),
        StringCommand::SetIf(set_if) => run_set_if(gather, caller, &set_if),
        StringCommand::Digest { key } => {
            gather.single(caller, key, Op::Get, Shape::Digest);
            gather.weigh();
        }
        StringCommand::SetNx { key, value } => {
            let set = write(value, Expiry::Never, Condition::IfAbsent);
            gather.single(caller, key, set, Shape::Done);
        }
        StringCommand::SetEx { key, value, expire } => {
            if let Some(expiry) = expiry(gather, caller, expire) {
                let set = write(value, expiry, Condition::Always);
                gather.single(caller, key, set, Shape::Stored);
            }
        }
        StringCommand::GetSet { key, value } => {
            let set = write(value, Expiry::Never, Condition::Always);
            take(gather, caller, key, set);
        }
        StringCommand::GetDel { key } => take(gather, caller, key, Op::Delete),
        StringCommand::GetEx { key, ttl } => get_ex(gather, caller, key, ttl),
        StringCommand::IncrBy { key, delta, .. } => {
            gather.single(caller, key, Op::Update(Rmw::IncrementBy(delta)), Shape::NewInteger);
        }
        StringCommand::IncrByFloat { key, increment } => {
            let update = Op::Update(Rmw::IncrementByFloat(increment));
            gather.single(caller, key, update, Shape::NewValue);
            let digits = float_digits(increment);
            if digits > SMALL_FLOAT_DIGITS {
                gather.core.charge(Work::digits(digits));
                gather.weigh();
            }
        }
        StringCommand::Append { key, value } => {
            let update = Op::Update(Rmw::Append(bounded(gather, value)));
            gather.single(caller, key, update, Shape::NewLength);
            gather.weigh();
        }
        StringCommand::SetRange { key, offset_bytes, value } => {
            let value = bounded(gather, value);
            let update = Op::Update(Rmw::SetRange { offset_bytes, value });
            gather.single(caller, key, update, Shape::NewLength);
            gather.weigh();
        }
        StringCommand::StrLen { key } => gather.single(caller, key, Op::Get, Shape::Length),
        StringCommand::GetRange { key, start, end, .. } => {
            gather.single(caller, key, Op::Get, Shape::Range { start, end });
        }
        StringCommand::MGet { keys } => mget(gather, caller, keys),
        StringCommand::MSet { pairs } => mset(gather, caller, pairs),
        StringCommand::MSetNx { pairs } => mset_nx(gather, caller, pairs),
        StringCommand::Lcs(request) => lcs(gather, caller, &request),
        StringCommand::MSetEx(request) => mset_ex(gather, caller, &request),
    }
}

/// A change that tells the old value: few are gathered, because a long value that finds no room in
/// its reply is not changed.
fn take<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, key: &'a [u8], change: Op<'a, Rmw<'a>>) {
    gather.single(caller, key, change, Shape::OldValue);
    gather.weigh();
}

/// The expiry that an option of SET, SETIF or MSETEX gives; answers the error itself.
pub(super) fn set_expiry(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    given: wire::resp::Expiry,
) -> Option<Expiry> {
    match given {
        wire::resp::Expiry::Never => Some(Expiry::Never),
        wire::resp::Expiry::Keep => Some(Expiry::Keep),
        wire::resp::Expiry::At(expire) => expiry(gather, caller, expire),
    }
}

/// SET without GET, with its expiry already computed.
#[inline]
pub(super) fn plain_set<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    set: &SetCommand<'a>,
    expiry: Expiry,
) {
    let condition = condition(set.condition);
    gather.single(caller, set.key, write(set.value, expiry, condition), Shape::Stored);
}

fn run_set<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, set: &SetCommand<'a>) {
    let Some(expiry) = set_expiry(gather, caller, set.expiry) else { return };
    if set.returns_old {
        let write = write(set.value, expiry, condition(set.condition));
        take(gather, caller, set.key, write);
    } else {
        plain_set(gather, caller, set, expiry);
    }
}

fn run_set_if<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, set_if: &SetIf<'a>) {
    // It was validated once, when it was parsed.
    let Some((set, comparison)) = set_if.read() else { return };
    let Some(expiry) = set_expiry(gather, caller, set.expiry) else { return };
    let expiry = expiry.into();
    let update = Op::Update(Rmw::SetIf { comparison, value: set.value, expiry });
    let shape = if set.returns_old { Shape::OldValue } else { Shape::StoredIf };
    gather.single(caller, set.key, update, shape);
    gather.weigh();
}

fn get_ex<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, key: &'a [u8], ttl: Option<ExpireTtl>) {
    let update = match ttl {
        None => return gather.single(caller, key, Op::Get, Shape::Value),
        Some(ExpireTtl::Persist) => Rmw::Persist,
        Some(ExpireTtl::At(expire)) => match expire.absolute(gather.core.now) {
            Some(at) => Rmw::SetExpiry(Some(at)),
            None => return refuse_get_ex(gather, caller, key, InvalidTime::OutOfRange),
        },
        Some(ExpireTtl::Invalid(reason)) => return refuse_get_ex(gather, caller, key, reason),
    };
    take(gather, caller, key, Op::Update(update));
}

/// A bad time is an error only for a key that exists.
fn refuse_get_ex<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    key: &'a [u8],
    reason: InvalidTime,
) {
    gather.single(caller, key, Op::Get, Shape::RefusedTime(reason));
}

/// The absolute expiry time; answers the error itself.
pub(super) fn expiry(
    gather: &mut Gather<'_, '_>,
    caller: Caller,
    expire: ExpireTime,
) -> Option<Expiry> {
    match expire.absolute(gather.core.now) {
        Some(at) => Some(Expiry::At(at)),
        None => {
            gather.fail(caller, &ErrorReply::InvalidExpireTime(expire.id));
            None
        }
    }
}

fn bounded<'a>(gather: &Gather<'_, 'a>, bytes: &'a [u8]) -> Bounded<'a> {
    Bounded { bytes, max_bytes: gather.core.value_max_bytes }
}

/// A write of `value`.
#[inline]
pub(super) fn write<'a>(value: &'a [u8], expiry: Expiry, condition: Condition) -> Op<'a, Rmw<'a>> {
    Op::Set(Set { value, client_flags: 0, expiry, condition })
}

#[inline]
fn condition(condition: SetCondition) -> Condition {
    match condition {
        SetCondition::Always => Condition::Always,
        SetCondition::IfAbsent => Condition::IfAbsent,
        SetCondition::IfPresent => Condition::IfPresent,
    }
}
