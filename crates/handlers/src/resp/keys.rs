//! Commands on keys, independent of their values.

use base::UnixMillis;
use commands::reply::Shape;
use commands::rmw::Rmw;
use commands::rmw::meta::MetaGet;
use runtime::engine::Engine;
use runtime::walks::Caller;
use store::request::Op;
use wire::resp::{Command, CommandId, ErrorReply, ExpireCondition, ExpireTime, Keys};

use crate::gather::Gather;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Runs `command` if it is one of these.
    pub(super) fn run_keys(&mut self, caller: Caller, command: Command<'a>) -> Option<Command<'a>> {
        match command {
            Command::Del { keys, .. } => self.count_keys(caller, keys, true),
            Command::DelIf { key, comparison, .. } => {
                self.single(caller, key, Op::Update(Rmw::DeleteIf(comparison)), Shape::Done);
                self.weigh();
            }
            Command::Exists { keys } | Command::Touch { keys } => {
                self.count_keys(caller, keys, false);
            }
            Command::Type { key } => self.single(caller, key, Op::Get, Shape::TypeName),
            Command::Ttl { key, unit, .. } => {
                self.single(caller, key, Op::Get, Shape::ExpiresIn(unit));
            }
            Command::Expire { key, expire, condition } => {
                self.expire(caller, key, expire, condition);
            }
            Command::Persist { key } => {
                self.single(caller, key, Op::Update(Rmw::Persist), Shape::Done);
                self.weigh();
            }
            Command::Object { key, id } => self.object(caller, key, id),
            Command::MemoryUsage { key } => {
                self.single(caller, key, Op::Get, Shape::MemoryUsage);
            }
            Command::MGet { keys } => self.mget(caller, keys),
            Command::MSet { pairs } => self.mset(caller, pairs),
            Command::MSetNx { pairs } => self.mset_nx(caller, pairs),
            Command::Rename { source, target } => {
                self.rename(caller, source, target, super::several::Target::Any);
            }
            Command::RenameNx { source, target } => {
                self.rename(caller, source, target, super::several::Target::Absent);
            }
            Command::Copy(copy) => self.copy(caller, &copy),
            other => return Some(other),
        }
        None
    }

    /// Whether a key is too long; answers the error itself. Checked before the first request of a
    /// command, so that a refused command has no effect at all.
    pub(super) fn refuse_long_keys(&mut self, caller: Caller, keys: Keys<'a>) -> bool {
        self.refuse_long_key(caller, keys)
    }

    /// The check for any keys.
    pub(super) fn refuse_long_key<'k>(
        &mut self,
        caller: Caller,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let is_long = keys.any(|key| key.len() > store::KEY_LEN_MAX_BYTES);
        if is_long {
            self.fail(caller, &ErrorReply::KeyTooLong);
        }
        is_long
    }

    fn expire(
        &mut self,
        caller: Caller,
        key: &'a [u8],
        expire: ExpireTime,
        condition: ExpireCondition,
    ) {
        let at: Option<UnixMillis> = expire.absolute(self.core.now);
        match at {
            Some(at) => {
                let update = Op::Update(Rmw::Expire { at, condition });
                self.single(caller, key, update, Shape::Done);
                self.weigh();
            }
            None => self.fail(caller, &ErrorReply::InvalidExpireTime(expire.id)),
        }
    }

    fn object(&mut self, caller: Caller, key: &'a [u8], id: CommandId) {
        let shape = match id {
            CommandId::ObjectEncoding => Shape::Encoding,
            CommandId::ObjectRefCount => Shape::ReferenceCount,
            CommandId::ObjectFreq => Shape::AccessFrequency,
            _ => Shape::IdleTime,
        };
        // Looking at an object does not count as using it.
        let op = match self.core.shared.store().notes_use() {
            true => Op::Update(Rmw::MetaGet(MetaGet::LOOK)),
            false => Op::Get,
        };
        self.single(caller, key, op, shape);
    }
}
