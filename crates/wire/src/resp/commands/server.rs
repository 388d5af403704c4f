//! Commands about the server and its whole store.

use super::{Read, is_word, lookup, next};
use crate::resp::args::{ArgIter, Keys, Pairs};
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::{CommandId, Spec};

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A command about the server or its whole store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerCommand<'a> {
    /// `DBSIZE`.
    DbSize,
    /// `SWAPDB index index`.
    SwapDb { indexes: [i32; 2] },
    /// FLUSHDB and FLUSHALL.
    Flush { mode: FlushMode, id: CommandId },
    /// `INFO [section ...]`.
    Info { sections: ArgIter<'a> },
    /// `MEMORY USAGE key [SAMPLES n]`.
    MemoryUsage { key: &'a [u8] },
    /// `CONFIG GET pattern [pattern ...]`.
    ConfigGet { patterns: ArgIter<'a> },
    /// `CONFIG SET name value [name value ...]`.
    ConfigSet { pairs: ConfigPairs<'a> },
    /// `CONFIG RESETSTAT`.
    ConfigResetStat,
    /// `CONFIG REWRITE`.
    ConfigRewrite,
    /// `TIME`.
    Time,
    /// `LASTSAVE`.
    LastSave,
    /// `ROLE`.
    Role,
    /// `SHUTDOWN [options]`.
    Shutdown(ShutdownRequest),
    /// `COMMAND`: all of [`super::Spec::all`].
    CommandTable,
    /// `COMMAND COUNT`.
    CommandCount,
    /// `COMMAND DOCS [name ...]`; no name means all.
    CommandDocs { names: ArgIter<'a> },
    /// `COMMAND INFO [name ...]`; no name means all.
    CommandInfo { names: ArgIter<'a> },
    /// `COMMAND GETKEYS command [argument ...]`: the keys, as indexes into `arguments`.
    CommandGetKeys { keys: Keys<'a> },
    /// `COMMAND LIST [FILTERBY kind value]`.
    CommandList(CommandList<'a>),
}

impl ServerCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            ServerCommand::DbSize => CommandId::DbSize,
            ServerCommand::SwapDb { .. } => CommandId::SwapDb,
            ServerCommand::Flush { id, .. } => *id,
            ServerCommand::Info { .. } => CommandId::Info,
            ServerCommand::MemoryUsage { .. } => CommandId::MemoryUsage,
            ServerCommand::ConfigGet { .. } => CommandId::ConfigGet,
            ServerCommand::ConfigSet { .. } => CommandId::ConfigSet,
            ServerCommand::ConfigResetStat => CommandId::ConfigResetStat,
            ServerCommand::ConfigRewrite => CommandId::ConfigRewrite,
            ServerCommand::Time => CommandId::Time,
            ServerCommand::LastSave => CommandId::LastSave,
            ServerCommand::Role => CommandId::Role,
            ServerCommand::Shutdown(_) => CommandId::Shutdown,
            ServerCommand::CommandTable => CommandId::Command,
            ServerCommand::CommandCount => CommandId::CommandCount,
            ServerCommand::CommandDocs { .. } => CommandId::CommandDocs,
            ServerCommand::CommandInfo { .. } => CommandId::CommandInfo,
            ServerCommand::CommandGetKeys { .. } => CommandId::CommandGetKeys,
            ServerCommand::CommandList(_) => CommandId::CommandList,
        }
    }
}

/// `FLUSHALL [ASYNC|SYNC]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// Neither was given.
    Default,
    /// ASYNC.
    Async,
    /// SYNC.
    Sync,
}

/// `SHUTDOWN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// NOSAVE.
    pub nosave: bool,
    /// SAVE.
    pub save: bool,
    /// NOW.
    pub now: bool,
    /// FORCE.
    pub force: bool,
    /// ABORT: cancel a shutdown in progress.
    pub abort: bool,
}

/// The filter of `COMMAND LIST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandList<'a> {
    /// No filter.
    All,
    /// `FILTERBY MODULE name`: always an empty answer.
    Module(&'a [u8]),
    /// `FILTERBY ACLCAT category`.
    AclCategory(&'a [u8]),
    /// `FILTERBY PATTERN glob`.
    Pattern(&'a [u8]),
}

/// Name and value pairs of CONFIG SET.
pub type ConfigPairs<'a> = Pairs<'a>;

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::DbSize => Command::Server(ServerCommand::DbSize),
        CommandId::FlushDb | CommandId::FlushAll => {
            Command::Server(ServerCommand::Flush { mode: flush_mode(rest)?, id })
        }
        CommandId::SwapDb => return swap_databases(rest),
        CommandId::Info => Command::Server(ServerCommand::Info { sections: rest }),
        CommandId::Time => Command::Server(ServerCommand::Time),
        CommandId::LastSave => Command::Server(ServerCommand::LastSave),
        CommandId::Role => Command::Server(ServerCommand::Role),
        CommandId::Shutdown => return shutdown(rest),
        CommandId::ConfigGet => Command::Server(ServerCommand::ConfigGet { patterns: rest }),
        CommandId::ConfigSet => return config_set(rest),
        CommandId::ConfigResetStat => Command::Server(ServerCommand::ConfigResetStat),
        CommandId::ConfigRewrite => Command::Server(ServerCommand::ConfigRewrite),
        CommandId::Command => Command::Server(ServerCommand::CommandTable),
        CommandId::CommandCount => Command::Server(ServerCommand::CommandCount),
        CommandId::CommandDocs => Command::Server(ServerCommand::CommandDocs { names: rest }),
        CommandId::CommandInfo => Command::Server(ServerCommand::CommandInfo { names: rest }),
        CommandId::CommandGetKeys => return get_keys(rest),
        CommandId::CommandList => return command_list(rest),
        CommandId::AclHelp
        | CommandId::ConfigHelp
        | CommandId::CommandHelp
        | CommandId::HotKeysHelp
        | CommandId::LatencyHelp
        | CommandId::MemoryHelp
        | CommandId::ModuleHelp
        | CommandId::SlowlogHelp => Command::Help { id },
        CommandId::MemoryUsage => {
            let key = next(args);
            memory_usage_options(rest)?;
            Command::Server(ServerCommand::MemoryUsage { key })
        }
        _ => Command::Operator { id, args: rest },
    })
}

fn config_set(rest: ArgIter<'_>) -> Read<'_> {
    if !rest.len().is_multiple_of(2) {
        return Err(ErrorReply::Syntax);
    }
    Ok(Command::Server(ServerCommand::ConfigSet { pairs: Pairs::new(rest) }))
}

fn flush_mode<'a>(mut rest: ArgIter<'a>) -> Result<FlushMode, ErrorReply<'a>> {
    match (rest.next(), rest.next()) {
        (None, _) => Ok(FlushMode::Default),
        (Some(word), None) if is_word(word, "async") => Ok(FlushMode::Async),
        (Some(word), None) if is_word(word, "sync") => Ok(FlushMode::Sync),
        _ => Err(ErrorReply::Syntax),
    }
}

fn shutdown(rest: ArgIter<'_>) -> Read<'_> {
    let mut request = ShutdownRequest::default();
    for option in rest {
        let flag = if is_word(option, "nosave") {
            &mut request.nosave
        } else if is_word(option, "save") {
            &mut request.save
        } else if is_word(option, "now") {
            &mut request.now
        } else if is_word(option, "force") {
            &mut request.force
        } else if is_word(option, "abort") {
            &mut request.abort
        } else {
            return Err(ErrorReply::Syntax);
        };
        *flag = true;
    }
    let ShutdownRequest { nosave, save, now, force, abort } = request;
    if (abort && (nosave || save || now || force)) || (nosave && save) {
        return Err(ErrorReply::Syntax);
    }
    Ok(Command::Server(ServerCommand::Shutdown(request)))
}

fn memory_usage_options<'a>(mut rest: ArgIter<'a>) -> Result<(), ErrorReply<'a>> {
    while let Some(option) = rest.next() {
        if !is_word(option, "samples") {
            return Err(ErrorReply::Syntax);
        }
        let samples = parse_i64(rest.next().ok_or(ErrorReply::Syntax)?);
        if samples.ok_or(ErrorReply::NotAnInteger)? < 0 {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(())
}

/// `COMMAND GETKEYS`: `rest` is a whole command.
fn get_keys(rest: ArgIter<'_>) -> Read<'_> {
    let (_, keys) = keys_asked(rest)?;
    Ok(Command::Server(ServerCommand::CommandGetKeys { keys }))
}

/// A whole command's row and its keys, for COMMAND GETKEYS and GETKEYSANDFLAGS.
pub fn keys_asked(rest: ArgIter<'_>) -> Result<(&'static Spec, Keys<'_>), ErrorReply<'_>> {
    let spec = asked_command(rest).ok_or(ErrorReply::GetKeysUnknown)?;
    if spec.keys.first == 0 {
        return Err(ErrorReply::GetKeysNone);
    }
    if !spec.accepts_count(rest.len()) {
        return Err(ErrorReply::GetKeysArity);
    }
    Ok((spec, spec.keys.of(rest)))
}

/// The row of a whole command, whose arguments are not checked.
pub fn asked_command(mut words: ArgIter<'_>) -> Option<&'static Spec> {
    let spec = lookup::by_name(words.next()?)?.spec();
    let Some(subcommand) = words.next().filter(|_| spec.id.is_container()) else {
        return Some(spec);
    };
    spec.subcommands().find(|sub| sub.own_name().as_bytes().eq_ignore_ascii_case(subcommand))
}

fn command_list(mut rest: ArgIter<'_>) -> Read<'_> {
    let filter = match (rest.next(), rest.next(), rest.next(), rest.next()) {
        (None, ..) => CommandList::All,
        (Some(filterby), Some(kind), Some(value), None) if is_word(filterby, "filterby") => {
            if is_word(kind, "module") {
                CommandList::Module(value)
            } else if is_word(kind, "aclcat") {
                CommandList::AclCategory(value)
            } else if is_word(kind, "pattern") {
                CommandList::Pattern(value)
            } else {
                return Err(ErrorReply::Syntax);
            }
        }
        _ => return Err(ErrorReply::Syntax),
    };
    Ok(Command::Server(ServerCommand::CommandList(filter)))
}

fn swap_databases(mut rest: ArgIter<'_>) -> Read<'_> {
    let mut read = |error| {
        let index = parse_i64(next(&mut rest)).and_then(|index| i32::try_from(index).ok());
        index.ok_or(error)
    };
    let first = read(ErrorReply::FirstDatabase)?;
    let second = read(ErrorReply::SecondDatabase)?;
    Ok(Command::Server(ServerCommand::SwapDb { indexes: [first, second] }))
}
