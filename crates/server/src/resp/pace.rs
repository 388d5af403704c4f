//! The RESP commands that may be long (`pace`).

use wire::resp::{Command, CommandError, CommandId, Group};

use crate::engine::Engine;
use crate::gather::Gather;
use crate::slow_log::is_timed_alone;

/// A transaction of at most so many commands is no more work than a pipeline.
const SHORT_TRANSACTION_COMMANDS_MAX: usize = 16;

impl<'a, E: Engine> Gather<'_, 'a, E> {
    /// Whether a command may read or copy a long value, looks at the whole server, or is a long
    /// transaction.
    pub(super) fn is_long(
        &mut self,
        slot: usize,
        parsed: &Result<Command<'a>, CommandError<'a>>,
    ) -> bool {
        let Ok(command) = parsed else { return false };
        let resp = self.core.connections[slot].resp();
        if let Some(transaction) = &resp.transaction {
            return matches!(command, Command::Exec)
                && transaction.command_count > SHORT_TRANSACTION_COMMANDS_MAX;
        }
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
