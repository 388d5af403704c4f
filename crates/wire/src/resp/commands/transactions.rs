//! Transactions.

use super::Read;
use crate::resp::args::{ArgIter, Keys};
use crate::resp::command::Command;
use crate::resp::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A command of transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TransactionCommand<'a> {
    /// `MULTI`.
    Multi,
    /// `EXEC`.
    Exec,
    /// `DISCARD`.
    Discard,
    /// `WATCH key [key ...]`.
    Watch { keys: Keys<'a> },
    /// `UNWATCH`.
    Unwatch,
}

impl TransactionCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            TransactionCommand::Multi => CommandId::Multi,
            TransactionCommand::Exec => CommandId::Exec,
            TransactionCommand::Discard => CommandId::Discard,
            TransactionCommand::Watch { .. } => CommandId::Watch,
            TransactionCommand::Unwatch => CommandId::Unwatch,
        }
    }
}

pub(super) fn read(id: CommandId, rest: ArgIter<'_>) -> Read<'_> {
    Ok(Command::Transaction(match id {
        CommandId::Multi => TransactionCommand::Multi,
        CommandId::Exec => TransactionCommand::Exec,
        CommandId::Discard => TransactionCommand::Discard,
        CommandId::Watch => TransactionCommand::Watch { keys: Keys::all(rest) },
        CommandId::Unwatch => TransactionCommand::Unwatch,
        _ => return Ok(Command::Operator { id, args: rest }),
    }))
}
