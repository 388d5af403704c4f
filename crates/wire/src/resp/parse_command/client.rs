//! CLIENT and its subcommands.

use super::{Read, is_word, next, on_or_off};
use crate::resp::args::ArgIter;
use crate::resp::command::{ClientFilter, ClientQuery, Command, KillSkipMe, PauseMode, ReplyMode};
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::ClientId => Command::ClientId,
        CommandId::ClientInfo => Command::ClientInfo,
        CommandId::ClientGetName => Command::ClientGetName,
        CommandId::ClientUnpause => Command::ClientUnpause,
        CommandId::ClientHelp => Command::Help { id },
        CommandId::ClientSetName => Command::ClientSetName { name: checked_name(next(args))? },
        CommandId::ClientNoEvict => Command::ClientNoEvict { on: on_or_off(next(args))? },
        CommandId::ClientNoTouch => Command::ClientNoTouch { on: on_or_off(next(args))? },
        CommandId::ClientReply => Command::ClientReply { mode: reply_mode(next(args))? },
        CommandId::ClientSetInfo => return set_info(rest),
        CommandId::ClientList => {
            let query = ClientQuery { options: rest, is_kill: false };
            client_filter(&query)?;
            Command::ClientList(query)
        }
        CommandId::ClientKill => {
            let query = ClientQuery { options: rest, is_kill: true };
            client_filter(&query)?;
            Command::ClientKill(query)
        }
        CommandId::ClientPause => return pause(rest),
        _ => Command::Operator { id, args: rest },
    })
}

/// Names and versions are printable ASCII without blanks, so that clients can split CLIENT LIST.
fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

pub(super) fn checked_name(name: &[u8]) -> Result<&[u8], ErrorReply<'_>> {
    if is_printable(name) { Ok(name) } else { Err(ErrorReply::ClientName) }
}

fn reply_mode<'a>(word: &[u8]) -> Result<ReplyMode, ErrorReply<'a>> {
    if is_word(word, "skip") {
        return Ok(ReplyMode::Skip);
    }
    Ok(if on_or_off(word)? { ReplyMode::On } else { ReplyMode::Off })
}

fn set_info(mut rest: ArgIter<'_>) -> Read<'_> {
    let (attribute, value) = (next(&mut rest), next(&mut rest));
    let command = if is_word(attribute, "lib-name") {
        Command::ClientSetLibName { name: value }
    } else if is_word(attribute, "lib-ver") {
        Command::ClientSetLibVersion { version: value }
    } else {
        return Err(ErrorReply::ClientInfoOption(attribute));
    };
    if is_printable(value) { Ok(command) } else { Err(ErrorReply::ClientInfoValue(attribute)) }
}

fn client_type<'a>(word: &'a [u8]) -> Result<&'static str, ErrorReply<'a>> {
    let types = [
        ("normal", "normal"),
        ("master", "master"),
        ("replica", "replica"),
        ("slave", "replica"),
        ("pubsub", "pubsub"),
    ];
    let found = types.into_iter().find(|(name, _)| is_word(word, name));
    found.map(|(_, name)| name).ok_or(ErrorReply::ClientType(word))
}

/// Client ids are positive.
fn client_id(text: &[u8]) -> Option<u64> {
    parse_i64(text).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0)
}

/// Parses the options of CLIENT LIST or CLIENT KILL.
pub(in crate::resp) fn client_filter<'a>(
    query: &ClientQuery<'a>,
) -> Result<ClientFilter<'a>, ErrorReply<'a>> {
    if query.is_kill { kill(query.options) } else { list(query.options) }
}

fn list(mut rest: ArgIter<'_>) -> Result<ClientFilter<'_>, ErrorReply<'_>> {
    let mut filter = ClientFilter { skip_me: KillSkipMe::No, ..ClientFilter::default() };
    match rest.next() {
        None => {}
        Some(option) if is_word(option, "type") && rest.len() == 1 => {
            filter.type_name = Some(client_type(next(&mut rest))?);
        }
        Some(option) if is_word(option, "id") && rest.len() > 0 => {
            // Ids that no client can have are simply not found.
            if rest.into_iter().any(|id| parse_i64(id).is_none()) {
                return Err(ErrorReply::InvalidClientId);
            }
            filter.ids = Some(rest);
        }
        Some(_) => return Err(ErrorReply::Syntax),
    }
    Ok(filter)
}

fn kill(mut rest: ArgIter<'_>) -> Result<ClientFilter<'_>, ErrorReply<'_>> {
    let mut filter = ClientFilter::default();
    if rest.len() == 1 {
        filter.address = rest.next();
        filter.skip_me = KillSkipMe::No;
        filter.old_form = true;
        return Ok(filter);
    }
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or(ErrorReply::Syntax)?;
        if is_word(option, "id") {
            filter.id = Some(client_id(value).ok_or(ErrorReply::ClientId)?);
        } else if is_word(option, "type") {
            filter.type_name = Some(client_type(value)?);
        } else if is_word(option, "addr") {
            filter.address = Some(value);
        } else if is_word(option, "laddr") {
            filter.local_address = Some(value);
        } else if is_word(option, "maxage") {
            let age = parse_i64(value).ok_or(ErrorReply::Other(MAX_AGE_NO_NUMBER))?;
            let age = u64::try_from(age).ok().filter(|age| *age > 0);
            filter.max_age_seconds = Some(age.ok_or(ErrorReply::Other(MAX_AGE_NOT_POSITIVE))?);
        } else if is_word(option, "user") {
            filter.user = Some(value);
        } else if is_word(option, "skipme") && is_word(value, "yes") {
            filter.skip_me = KillSkipMe::Yes;
        } else if is_word(option, "skipme") && is_word(value, "no") {
            filter.skip_me = KillSkipMe::No;
        } else {
            return Err(ErrorReply::Syntax);
        }
    }
    Ok(filter)
}

const MAX_AGE_NO_NUMBER: &str = "maxage is not an integer or out of range";
const MAX_AGE_NOT_POSITIVE: &str = "maxage should be greater than 0";

fn pause(mut rest: ArgIter<'_>) -> Read<'_> {
    let timeout = next(&mut rest);
    let mode = match (rest.next(), rest.next()) {
        (None, _) => PauseMode::All,
        (Some(word), None) if is_word(word, "all") => PauseMode::All,
        (Some(word), None) if is_word(word, "write") => PauseMode::Write,
        (Some(_), None) => return Err(ErrorReply::PauseMode),
        _ => return Err(ErrorReply::SubcommandSyntax(CommandId::ClientPause)),
    };
    let timeout_ms = parse_i64(timeout).ok_or(ErrorReply::TimeoutNotAnInteger)?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| ErrorReply::TimeoutNegative)?;
    Ok(Command::ClientPause { timeout_ms, mode })
}
