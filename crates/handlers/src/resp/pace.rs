//! The RESP commands that may be long (`pace`).

use runtime::engine::Engine;
use sessions::slow_log::is_timed_alone;
use wire::resp::{Command, CommandError, CommandId, Flags, Group, Spec};

use crate::gather::Gather;

/// A transaction of at most so many commands, in so many bytes, is no more work than a pipeline.
const SHORT_TRANSACTION_COMMANDS_MAX: usize = 16;
const SHORT_TRANSACTION_BYTES_MAX: usize = 4 << 10;

/// BITOP of more sources is long, however short they are.
const SHORT_SOURCES_MAX: usize = 64;

/// An LCS with a table of so many cells takes less than the part of a turn.
const SHORT_TABLE_CELLS_MAX: u64 = 32 << 10;

/// Whether a command may read or copy a long value, looks at the whole server, or ends a
/// transaction with one of them or with many commands.
pub(super) fn is_long<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    slot: usize,
    parsed: &Result<Command<'a>, CommandError<'a>>,
) -> bool {
    let Ok(command) = parsed else { return false };
    let transaction = gather.core.connections[slot].resp().transaction.as_ref();
    if let Some(transaction) = transaction.filter(|it| it.is_queueing()) {
        return matches!(command, Command::Exec)
            && (transaction.has_long
                || transaction.command_count > SHORT_TRANSACTION_COMMANDS_MAX
                || transaction.queued_bytes() > SHORT_TRANSACTION_BYTES_MAX);
    }
    may_be_long(gather, slot, command)
}

/// The same of a command that is not queued.
fn may_be_long<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    slot: usize,
    command: &Command<'a>,
) -> bool {
    looks_at_server(command) || works_on_long_values(gather, slot, command)
}

/// Whether a transaction with this command may be long: inside EXEC, what is done in slices
/// elsewhere is done in one piece.
pub(super) fn is_long_in_exec<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    slot: usize,
    command: &Command<'a>,
) -> bool {
    let Some(spec) = command.id().map(CommandId::spec) else { return false };
    let is_quick = match command {
        Command::Set(_) | Command::SetEx { .. } | Command::MSet { .. } => true,
        Command::Del { .. } => true,
        _ if spec.keys.first == 0 => spec.group == Group::Connection && is_fast(spec),
        _ => is_fast(spec),
    };
    !is_quick || works_on_long_values(gather, slot, command)
}

fn works_on_long_values<'a, E: Engine>(
    gather: &mut Gather<'_, 'a, E>,
    slot: usize,
    command: &Command<'a>,
) -> bool {
    match command {
        Command::BitOp { sources, .. } => {
            let mut keys = *sources;
            keys.len() > SHORT_SOURCES_MAX || keys.any(|key| gather.has_long_value(slot, key))
        }
        Command::Lcs(request) => {
            let lens = [request.left, request.right].map(|key| match key.len() {
                0..=store::KEY_LEN_MAX_BYTES => gather.glimpse(key).value_len_bytes as u64,
                _ => 0,
            });
            lens[0].saturating_mul(lens[1]) > SHORT_TABLE_CELLS_MAX
        }
        _ => value_key(command).is_some_and(|key| gather.has_long_value(slot, key)),
    }
}

fn is_fast(spec: &Spec) -> bool {
    spec.flags.contains(Flags::FAST)
}

/// Whether a command runs by itself and looks at more than some keys: INFO, SCAN and their like.
fn looks_at_server(command: &Command<'_>) -> bool {
    let spec = command.id().map(CommandId::spec).filter(|spec| is_timed_alone(spec));
    spec.is_some_and(|spec| spec.group != Group::Transactions)
}

/// The key of a command that may read or copy its whole value.
fn value_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    match command {
        Command::Append { key, .. }
        | Command::BitCount { key, .. }
        | Command::BitField { key, .. }
        | Command::BitPos { key, .. }
        | Command::Digest { key }
        | Command::Dump { key }
        | Command::Expire { key, .. }
        | Command::GetEx { key, .. }
        | Command::Persist { key }
        | Command::SetBit { key, .. }
        | Command::SetRange { key, .. } => Some(key),
        Command::Copy(copy) => Some(copy.source),
        Command::Rename { source, .. } => Some(source),
        _ => None,
    }
}
