//! The RESP commands that may be long (`pace`).

use wire::resp::{Command, CommandError, CommandId, Group};

use crate::engine::Engine;
use crate::gather::Gather;
use crate::slow_log::is_timed_alone;

/// A transaction of at most so many commands, in so many bytes, is no more work than a pipeline.
const SHORT_TRANSACTION_COMMANDS_MAX: usize = 16;
const SHORT_TRANSACTION_BYTES_MAX: usize = 4 << 10;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Whether a command may read or copy a long value, looks at the whole server, or ends a
    /// transaction with one of them or with many commands.
    pub(super) fn is_long(
        &mut self,
        slot: usize,
        parsed: &Result<Command<'a>, CommandError<'a>>,
    ) -> bool {
        let Ok(command) = parsed else { return false };
        let transaction = self.core.connections[slot].resp().transaction.as_ref();
        if let Some(transaction) = transaction.filter(|it| it.is_queueing()) {
            return matches!(command, Command::Exec)
                && (transaction.has_long
                    || transaction.command_count > SHORT_TRANSACTION_COMMANDS_MAX
                    || transaction.queued_bytes() > SHORT_TRANSACTION_BYTES_MAX);
        }
        self.may_be_long(slot, command)
    }

    /// The same of a command that is run alone, or is queued.
    pub(super) fn may_be_long(&mut self, slot: usize, command: &Command<'a>) -> bool {
        looks_at_server(command)
            || value_key(command).is_some_and(|key| self.has_long_value(slot, key))
    }
}

/// Whether a command runs by itself and looks at more than some keys: INFO, SCAN and their like.
fn looks_at_server(command: &Command<'_>) -> bool {
    let spec = command.id().map(CommandId::spec).filter(|spec| is_timed_alone(spec));
    spec.is_some_and(|spec| matches!(spec.group, Group::Server | Group::Generic | Group::Cluster))
}

/// The key of a command that may read or copy its whole value.
fn value_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    match command {
        Command::Append { key, .. }
        | Command::BitCount { key, .. }
        | Command::BitField { key, .. }
        | Command::BitPos { key, .. }
        | Command::Digest { key }
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
