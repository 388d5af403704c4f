//! The RESP commands that may be long (`pace`).

use sessions::slow_log::is_timed_alone;
use wire::resp::{
    BitCommand, Command, CommandError, CommandId, Flags, Group, Handling, KeyCommand, Spec,
    StringCommand, TransactionCommand,
};

use crate::gather::Gather;
use crate::resp::redirect::keys_in;

/// A transaction of at most so many commands, in so many bytes, is no more work than a pipeline.
const SHORT_TRANSACTION_COMMANDS_MAX: usize = 16;
const SHORT_TRANSACTION_BYTES_MAX: usize = 4 << 10;

/// BITOP of more sources is long, however short they are.
const SHORT_SOURCES_MAX: usize = 64;

/// An LCS with a table of so many cells takes less than the part of a turn.
const SHORT_TABLE_CELLS_MAX: u64 = 32 << 10;

/// Whether a command may read or copy a long value, looks at the whole server, or ends a
/// transaction with one of them or with many commands.
pub(super) fn is_long<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    parsed: &Result<Command<'a>, CommandError<'a>>,
    raw: &[u8],
) -> bool {
    let Ok(command) = parsed else { return false };
    let transaction = gather.core.connections[slot].resp().transaction.as_ref();
    if let Some(transaction) = transaction.filter(|it| it.is_queueing()) {
        return matches!(command, Command::Transaction(TransactionCommand::Exec))
            && (transaction.has_long
                || transaction.command_count > SHORT_TRANSACTION_COMMANDS_MAX
                || transaction.queued_bytes() > SHORT_TRANSACTION_BYTES_MAX);
    }
    looks_at_server(command) || works_on_long_values(gather, slot, command, raw)
}

/// Whether a transaction with this command may be long: inside EXEC, what is done in slices
/// elsewhere is done in one piece.
pub(super) fn is_long_in_exec<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    command: &Command<'a>,
    raw: &[u8],
) -> bool {
    let Some(spec) = command.id().map(CommandId::spec) else { return false };
    let is_quick = match command {
        Command::String(
            StringCommand::Set(_) | StringCommand::SetEx { .. } | StringCommand::MSet { .. },
        )
        | Command::Key(KeyCommand::Del { .. }) => true,
        _ if spec.keys.first == 0 => spec.group == Group::Connection && is_fast(spec),
        _ => is_fast(spec),
    };
    !is_quick || works_on_long_values(gather, slot, command, raw)
}

fn works_on_long_values<'a>(
    gather: &mut Gather<'_, 'a>,
    slot: usize,
    command: &Command<'a>,
    raw: &[u8],
) -> bool {
    match command {
        Command::Bit(BitCommand::BitOp { sources, .. }) => {
            let mut keys = *sources;
            keys.len() > SHORT_SOURCES_MAX || keys.any(|key| gather.has_long_value(slot, key))
        }
        Command::String(StringCommand::Lcs(request)) => {
            let lens = [request.left, request.right].map(|key| match key.len() {
                0..=store::KEY_LEN_MAX_BYTES => gather.glimpse(key).value_len_bytes as u64,
                _ => 0,
            });
            lens[0].saturating_mul(lens[1]) > SHORT_TABLE_CELLS_MAX
        }
        _ if command.is_handled(Handling::Value) => {
            let mut keys = command.id().and_then(|id| keys_in(id, raw)).into_iter().flatten();
            keys.next().is_some_and(|key| gather.has_long_value(slot, key))
        }
        _ => false,
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
