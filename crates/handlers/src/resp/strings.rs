//! Commands on one string.

use commands::reply::Shape;
use commands::rmw::{Bounded, Rmw};
use commands::work::{SMALL_FLOAT_DIGITS, Work};
use runtime::engine::Engine;
use runtime::walks::Caller;
use store::request::{Condition, Expiry, Op, Set};
use wire::resp::number::float_digits;
use wire::resp::{
    Command, ErrorReply, ExpireTime, ExpireTtl, InvalidTime, SetCommand, SetCondition, SetIf,
};

use crate::gather::Gather;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs `command` if it is one of these.
    pub(super) fn run_strings(
        &mut self,
        caller: Caller,
        command: Command<'a>,
    ) -> Option<Command<'a>> {
        match command {
            Command::Get { key } => self.single(caller, key, Op::Get, Shape::Value),
            Command::Set(set) => self.set(caller, &set),
            Command::SetIf(set_if) => self.set_if(caller, &set_if),
            Command::Digest { key } => {
                self.single(caller, key, Op::Get, Shape::Digest);
                self.weigh();
            }
            Command::SetNx { key, value } => {
                let set = write(value, Expiry::Never, Condition::IfAbsent);
                self.single(caller, key, set, Shape::Done);
            }
            Command::SetEx { key, value, expire } => {
                if let Some(expiry) = self.expiry(caller, expire) {
                    let set = write(value, expiry, Condition::Always);
                    self.single(caller, key, set, Shape::Stored);
                }
            }
            Command::GetSet { key, value } => {
                let set = write(value, Expiry::Never, Condition::Always);
                self.single(caller, key, set, Shape::OldValue);
            }
            Command::GetDel { key } => self.single(caller, key, Op::Delete, Shape::OldValue),
            Command::GetEx { key, ttl } => self.get_ex(caller, key, ttl),
            Command::IncrBy { key, delta, .. } => {
                self.single(caller, key, Op::Update(Rmw::IncrementBy(delta)), Shape::NewInteger);
            }
            Command::IncrByFloat { key, increment } => {
                let update = Op::Update(Rmw::IncrementByFloat(increment));
                self.single(caller, key, update, Shape::NewValue);
                let digits = float_digits(increment);
                if digits > SMALL_FLOAT_DIGITS {
                    self.core.charge(Work::digits(digits));
                    self.weigh();
                }
            }
            Command::Append { key, value } => {
                let update = Op::Update(Rmw::Append(self.bounded(value)));
                self.single(caller, key, update, Shape::NewLength);
                self.weigh();
            }
            Command::SetRange { key, offset_bytes, value } => {
                let value = self.bounded(value);
                let update = Op::Update(Rmw::SetRange { offset_bytes, value });
                self.single(caller, key, update, Shape::NewLength);
                self.weigh();
            }
            Command::StrLen { key } => self.single(caller, key, Op::Get, Shape::Length),
            Command::GetRange { key, start, end, .. } => {
                self.single(caller, key, Op::Get, Shape::Range { start, end });
            }
            other => return Some(other),
        }
        None
    }

    /// SET without GET, with its expiry already computed.
    #[inline]
    pub(super) fn plain_set(&mut self, caller: Caller, set: &SetCommand<'a>, expiry: Expiry) {
        let condition = condition(set.condition);
        self.single(caller, set.key, write(set.value, expiry, condition), Shape::Stored);
    }

    fn set(&mut self, caller: Caller, set: &SetCommand<'a>) {
        let expiry = match set.expiry {
            wire::resp::Expiry::Never => Expiry::Never,
            wire::resp::Expiry::Keep => Expiry::Keep,
            wire::resp::Expiry::At(expire) => match self.expiry(caller, expire) {
                Some(expiry) => expiry,
                None => return,
            },
        };
        if set.returns_old {
            let write = write(set.value, expiry, condition(set.condition));
            self.single(caller, set.key, write, Shape::OldValue);
        } else {
            self.plain_set(caller, set, expiry);
        }
    }

    fn set_if(&mut self, caller: Caller, set_if: &SetIf<'a>) {
        // It was validated once, when it was parsed.
        let Some((set, comparison)) = set_if.read() else { return };
        let expiry = match set.expiry {
            wire::resp::Expiry::Never => Expiry::Never,
            wire::resp::Expiry::Keep => Expiry::Keep,
            wire::resp::Expiry::At(expire) => match self.expiry(caller, expire) {
                Some(expiry) => expiry,
                None => return,
            },
        };
        let expiry = expiry.into();
        let update = Op::Update(Rmw::SetIf { comparison, value: set.value, expiry });
        let shape = if set.returns_old { Shape::OldValue } else { Shape::StoredIf };
        self.single(caller, set.key, update, shape);
        self.weigh();
    }

    fn get_ex(&mut self, caller: Caller, key: &'a [u8], ttl: Option<ExpireTtl>) {
        let expires_at = match ttl {
            None => return self.single(caller, key, Op::Get, Shape::Value),
            Some(ExpireTtl::Persist) => None,
            Some(ExpireTtl::At(expire)) => match expire.absolute(self.core.now) {
                Some(at) => Some(at),
                None => return self.refuse_get_ex(caller, key, InvalidTime::OutOfRange),
            },
            Some(ExpireTtl::Invalid(reason)) => return self.refuse_get_ex(caller, key, reason),
        };
        self.single(caller, key, Op::Update(Rmw::SetExpiry(expires_at)), Shape::OldValue);
        self.weigh();
    }

    /// A bad time is an error only for a key that exists.
    fn refuse_get_ex(&mut self, caller: Caller, key: &'a [u8], reason: InvalidTime) {
        self.single(caller, key, Op::Get, Shape::RefusedTime(reason));
    }

    /// The absolute expiry time; answers the error itself.
    pub(super) fn expiry(&mut self, caller: Caller, expire: ExpireTime) -> Option<Expiry> {
        match expire.absolute(self.core.now) {
            Some(at) => Some(Expiry::At(at)),
            None => {
                self.fail(caller, &ErrorReply::InvalidExpireTime(expire.id));
                None
            }
        }
    }

    fn bounded(&self, bytes: &'a [u8]) -> Bounded<'a> {
        Bounded { bytes, max_bytes: self.core.value_max_bytes }
    }
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
