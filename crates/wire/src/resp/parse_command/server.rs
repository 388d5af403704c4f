//! Commands about the server, and transactions.

use super::{Read, is_word, lookup, next, restore};
use crate::resp::args::{ArgIter, Keys, Pairs};
use crate::resp::command::{Command, CommandList, FlushMode, ShutdownRequest};
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::{CommandId, Spec};

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Multi => Command::Multi,
        CommandId::Exec => Command::Exec,
        CommandId::Discard => Command::Discard,
        CommandId::Watch => Command::Watch { keys: Keys::all(rest) },
        CommandId::Unwatch => Command::Unwatch,
        CommandId::DbSize => Command::DbSize,
        CommandId::FlushDb | CommandId::FlushAll => Command::Flush { mode: flush_mode(rest)?, id },
        CommandId::SwapDb => return restore::swap_databases(rest),
        CommandId::Info => Command::Info { sections: rest },
        CommandId::Time => Command::Time,
        CommandId::LastSave => Command::LastSave,
        CommandId::Role => Command::Role,
        CommandId::Shutdown => return shutdown(rest),
        CommandId::ConfigGet => Command::ConfigGet { patterns: rest },
        CommandId::ConfigSet => return config_set(rest),
        CommandId::ConfigResetStat => Command::ConfigResetStat,
        CommandId::ConfigRewrite => Command::ConfigRewrite,
        CommandId::Command => Command::CommandTable,
        CommandId::CommandCount => Command::CommandCount,
        CommandId::CommandDocs => Command::CommandDocs { names: rest },
        CommandId::CommandInfo => Command::CommandInfo { names: rest },
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
            Command::MemoryUsage { key }
        }
        _ => Command::Operator { id, args: rest },
    })
}

fn config_set(rest: ArgIter<'_>) -> Read<'_> {
    if !rest.len().is_multiple_of(2) {
        return Err(ErrorReply::Syntax);
    }
    Ok(Command::ConfigSet { pairs: Pairs::new(rest) })
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
    Ok(Command::Shutdown(request))
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
    Ok(Command::CommandGetKeys { keys })
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
    Ok(Command::CommandList(filter))
}
