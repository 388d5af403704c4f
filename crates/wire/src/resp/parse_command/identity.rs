//! Which row of the table a `Command` came from.

use crate::resp::command::Command;
use crate::resp::table::CommandId;

/// The row; `None` for [`Command::Empty`] and [`Command::Quoted`].
pub(in crate::resp) fn id_of(command: &Command<'_>) -> Option<CommandId> {
    Some(match command {
        Command::Empty | Command::Quoted(_) => return None,
        Command::Get { .. } => CommandId::Get,
        Command::Set(_) => CommandId::Set,
        Command::GetEx { .. } => CommandId::GetEx,
        Command::GetDel { .. } => CommandId::GetDel,
        Command::GetSet { .. } => CommandId::GetSet,
        Command::SetNx { .. } => CommandId::SetNx,
        Command::SetEx { expire, .. } => expire.id,
        Command::MGet { .. } => CommandId::MGet,
        Command::MSet { .. } => CommandId::MSet,
        Command::MSetNx { .. } => CommandId::MSetNx,
        Command::IncrBy { id, .. } => *id,
        Command::IncrByFloat { .. } => CommandId::IncrByFloat,
        Command::Append { .. } => CommandId::Append,
        Command::StrLen { .. } => CommandId::StrLen,
        Command::GetRange { id, .. } => *id,
        Command::SetRange { .. } => CommandId::SetRange,
        Command::Del { id, .. } => *id,
        Command::Exists { .. } => CommandId::Exists,
        Command::Touch { .. } => CommandId::Touch,
        Command::Type { .. } => CommandId::Type,
        Command::Expire { expire, .. } => expire.id,
        Command::Ttl { id, .. } => *id,
        Command::Persist { .. } => CommandId::Persist,
        Command::Rename { .. } => CommandId::Rename,
        Command::RenameNx { .. } => CommandId::RenameNx,
        Command::Copy(_) => CommandId::Copy,
        Command::RandomKey => CommandId::RandomKey,
        Command::Keys { .. } => CommandId::Keys,
        Command::Scan(_) => CommandId::Scan,
        Command::KvRange(_) => CommandId::KvRange,
        Command::Object { id, .. } | Command::Help { id } | Command::Operator { id, .. } => *id,
        Command::MemoryUsage { .. } => CommandId::MemoryUsage,
        Command::Wait { .. } => CommandId::Wait,
        Command::WaitAof { .. } => CommandId::WaitAof,
        _ => return Some(id_of_others(command)),
    })
}

/// The commands that have nothing to do with keys.
fn id_of_others(command: &Command<'_>) -> CommandId {
    match command {
        Command::Cluster(request) => request.id(),
        Command::ReadOnly => CommandId::ReadOnly,
        Command::ReadWrite => CommandId::ReadWrite,
        Command::Asking => CommandId::Asking,
        Command::DbSize => CommandId::DbSize,
        Command::Flush { id, .. } => *id,
        Command::Info { .. } => CommandId::Info,
        Command::ConfigGet { .. } => CommandId::ConfigGet,
        Command::ConfigSet { .. } => CommandId::ConfigSet,
        Command::ConfigResetStat => CommandId::ConfigResetStat,
        Command::ConfigRewrite => CommandId::ConfigRewrite,
        Command::Time => CommandId::Time,
        Command::LastSave => CommandId::LastSave,
        Command::Role => CommandId::Role,
        Command::Shutdown(_) => CommandId::Shutdown,
        Command::Hello(_) => CommandId::Hello,
        Command::Auth(_) => CommandId::Auth,
        Command::Echo { .. } => CommandId::Echo,
        Command::Select { .. } => CommandId::Select,
        Command::Quit => CommandId::Quit,
        Command::Reset => CommandId::Reset,
        Command::Multi => CommandId::Multi,
        Command::Exec => CommandId::Exec,
        Command::Discard => CommandId::Discard,
        Command::Watch { .. } => CommandId::Watch,
        Command::Unwatch => CommandId::Unwatch,
        Command::ClientId => CommandId::ClientId,
        Command::ClientInfo => CommandId::ClientInfo,
        Command::ClientList(_) => CommandId::ClientList,
        Command::ClientSetName { .. } => CommandId::ClientSetName,
        Command::ClientGetName => CommandId::ClientGetName,
        Command::ClientSetLibName { .. } | Command::ClientSetLibVersion { .. } => {
            CommandId::ClientSetInfo
        }
        Command::ClientKill(_) => CommandId::ClientKill,
        Command::ClientNoEvict { .. } => CommandId::ClientNoEvict,
        Command::ClientNoTouch { .. } => CommandId::ClientNoTouch,
        Command::ClientReply { .. } => CommandId::ClientReply,
        Command::ClientPause { .. } => CommandId::ClientPause,
        Command::ClientUnpause => CommandId::ClientUnpause,
        Command::CommandTable => CommandId::Command,
        Command::CommandCount => CommandId::CommandCount,
        Command::CommandDocs { .. } => CommandId::CommandDocs,
        Command::CommandInfo { .. } => CommandId::CommandInfo,
        Command::CommandGetKeys { .. } => CommandId::CommandGetKeys,
        Command::CommandList(_) => CommandId::CommandList,
        _ => CommandId::Ping,
    }
}
