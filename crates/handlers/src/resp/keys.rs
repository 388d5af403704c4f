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
use crate::resp::counting::count_keys;
use crate::resp::several::{mget, mset, mset_nx, rename, run_copy};

/// Runs `command` if it is one of these.
pub(super) fn run_keys<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    command: Command<'a>,
) -> Option<Command<'a>> {
    match command {
        Command::Del { keys, .. } => count_keys(gather, caller, keys, true),
        Command::DelIf { key, comparison, .. } => {
            gather.single(caller, key, Op::Update(Rmw::DeleteIf(comparison)), Shape::Done);
            gather.weigh();
        }
        Command::Exists { keys } | Command::Touch { keys } => {
            count_keys(gather, caller, keys, false);
        }
        Command::Type { key } => gather.single(caller, key, Op::Get, Shape::TypeName),
        Command::Ttl { key, unit, .. } => {
            gather.single(caller, key, Op::Get, Shape::ExpiresIn(unit));
        }
        Command::Expire { key, expire, condition } => {
            run_expire(gather, caller, key, expire, condition);
        }
        Command::Persist { key } => {
            gather.single(caller, key, Op::Update(Rmw::Persist), Shape::Done);
            gather.weigh();
        }
        Command::Object { key, id } => object(gather, caller, key, id),
        Command::MemoryUsage { key } => {
            gather.single(caller, key, Op::Get, Shape::MemoryUsage);
        }
        Command::MGet { keys } => mget(gather, caller, keys),
        Command::MSet { pairs } => mset(gather, caller, pairs),
        Command::MSetNx { pairs } => mset_nx(gather, caller, pairs),
        Command::Rename { source, target } => {
            rename(gather, caller, source, target, super::several::Target::Any);
        }
        Command::RenameNx { source, target } => {
            rename(gather, caller, source, target, super::several::Target::Absent);
        }
        Command::Copy(copy) => run_copy(gather, caller, &copy),
        other => return Some(other),
    }
    None
}

/// Whether a key is too long; answers the error itself. Checked before the first request of a
/// command, so that a refused command has no effect at all.
pub(super) fn refuse_long_keys<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    keys: Keys<'a>,
) -> bool {
    refuse_long_key(gather, caller, keys)
}

/// The check for any keys.
pub(super) fn refuse_long_key<'a, 'k, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    mut keys: impl Iterator<Item = &'k [u8]>,
) -> bool {
    let is_long = keys.any(|key| key.len() > store::KEY_LEN_MAX_BYTES);
    if is_long {
        gather.fail(caller, &ErrorReply::KeyTooLong);
    }
    is_long
}

fn run_expire<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    key: &'a [u8],
    expire: ExpireTime,
    condition: ExpireCondition,
) {
    let at: Option<UnixMillis> = expire.absolute(gather.core.now);
    match at {
        Some(at) => {
            let update = Op::Update(Rmw::Expire { at, condition });
            gather.single(caller, key, update, Shape::Done);
            gather.weigh();
        }
        None => gather.fail(caller, &ErrorReply::InvalidExpireTime(expire.id)),
    }
}

fn object<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    caller: Caller,
    key: &'a [u8],
    id: CommandId,
) {
    let shape = match id {
        CommandId::ObjectEncoding => Shape::Encoding,
        CommandId::ObjectRefCount => Shape::ReferenceCount,
        CommandId::ObjectFreq => Shape::AccessFrequency,
        _ => Shape::IdleTime,
    };
    // Looking at an object does not count as using it.
    let op = match gather.core.shared.store().notes_use() {
        true => Op::Update(Rmw::MetaGet(MetaGet::LOOK)),
        false => Op::Get,
    };
    gather.single(caller, key, op, shape);
}
