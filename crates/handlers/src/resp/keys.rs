//! Commands on keys, independent of their values.

use base::UnixMillis;
use commands::reply::Shape;
use commands::rmw::Rmw;
use commands::rmw::meta::MetaGet;
use runtime::walks::Caller;
use store::request::Op;
use wire::resp::{CommandId, ErrorReply, ExpireCondition, ExpireTime, KeyCommand, Keys};

use crate::gather::Gather;
use crate::resp::cluster::{wait, wait_aof};
use crate::resp::counting::count_keys;
use crate::resp::key_range::key_range;
use crate::resp::names::keys;
use crate::resp::restore::{move_key, restore_value};
use crate::resp::scan::{random_key, scan};
use crate::resp::several::{rename, run_copy};

/// Runs a command on keys.
pub(super) fn run_key<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, command: KeyCommand<'a>) {
    match command {
        KeyCommand::Del { keys, .. } => count_keys(gather, caller, keys, true),
        KeyCommand::DelIf { key, comparison, .. } => {
            gather.single(caller, key, Op::Update(Rmw::DeleteIf(comparison)), Shape::Done);
            gather.weigh();
        }
        KeyCommand::Exists { keys } | KeyCommand::Touch { keys } => {
            count_keys(gather, caller, keys, false);
        }
        KeyCommand::Type { key } => gather.single(caller, key, Op::Get, Shape::TypeName),
        KeyCommand::Ttl { key, unit, .. } => {
            gather.single(caller, key, Op::Get, Shape::ExpiresIn(unit));
        }
        KeyCommand::Expire { key, expire, condition } => {
            run_expire(gather, caller, key, expire, condition);
        }
        KeyCommand::Persist { key } => {
            gather.single(caller, key, Op::Update(Rmw::Persist), Shape::Done);
            gather.weigh();
        }
        KeyCommand::Object { key, id } => object(gather, caller, key, id),
        KeyCommand::Rename { source, target } => {
            rename(gather, caller, source, target, super::several::Target::Any);
        }
        KeyCommand::RenameNx { source, target } => {
            rename(gather, caller, source, target, super::several::Target::Absent);
        }
        KeyCommand::Copy(copy) => run_copy(gather, caller, &copy),
        KeyCommand::Dump { key } => {
            gather.single(caller, key, Op::Get, Shape::Dump);
            // The reply copies a value: only after it is it known whether there is room for the
            // next one.
            gather.flush();
        }
        KeyCommand::Restore(restore) => restore_value(gather, caller, restore),
        KeyCommand::Move { database_index, .. } => move_key(gather, caller, database_index),
        KeyCommand::KvRange(request) => key_range(gather, caller, &request),
        KeyCommand::Keys { pattern } => keys(gather, caller, pattern),
        KeyCommand::Scan(request) => scan(gather, caller, &request),
        KeyCommand::RandomKey => random_key(gather, caller),
        KeyCommand::Wait { .. } => wait(gather, caller),
        KeyCommand::WaitAof { is_local, .. } => wait_aof(gather, caller, is_local),
    }
}

/// Whether a key is too long; answers the error itself. Checked before the first request of a
/// command, so that a refused command has no effect at all.
pub(super) fn refuse_long_keys<'a>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    keys: Keys<'a>,
) -> bool {
    keys.len_bytes_bound() > store::KEY_LEN_MAX_BYTES && refuse_long_key(gather, caller, keys)
}

/// The check for any keys.
pub(super) fn refuse_long_key<'a, 'k>(
    gather: &mut Gather<'_, 'a>,
    caller: Caller,
    mut keys: impl Iterator<Item = &'k [u8]>,
) -> bool {
    let is_long = keys.any(|key| key.len() > store::KEY_LEN_MAX_BYTES);
    if is_long {
        gather.fail(caller, &ErrorReply::KeyTooLong);
    }
    is_long
}

fn run_expire<'a>(
    gather: &mut Gather<'_, 'a>,
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

fn object<'a>(gather: &mut Gather<'_, 'a>, caller: Caller, key: &'a [u8], id: CommandId) {
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
