//! CLIENT and its subcommands.

use super::{Read, is_word, next, on_or_off};
use crate::resp::args::ArgIter;
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A subcommand of CLIENT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientCommand<'a> {
    /// `CLIENT ID`.
    Id,
    /// `CLIENT INFO`.
    Info,
    /// `CLIENT LIST [TYPE t] [ID id ...]`.
    List(ClientQuery<'a>),
    /// `CLIENT SETNAME name`; the name is valid, empty clears it.
    SetName { name: &'a [u8] },
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT SETINFO LIB-NAME name`.
    SetLibName { name: &'a [u8] },
    /// `CLIENT SETINFO LIB-VER version`.
    SetLibVersion { version: &'a [u8] },
    /// `CLIENT KILL` by address (old form: answers OK or an error) or by filters (answers a count).
    Kill(ClientQuery<'a>),
    /// `CLIENT NO-EVICT ON|OFF`.
    NoEvict { on: bool },
    /// `CLIENT NO-TOUCH ON|OFF`.
    NoTouch { on: bool },
    /// `CLIENT REPLY ON|OFF|SKIP`.
    Reply { mode: ReplyMode },
    /// `CLIENT PAUSE timeout [WRITE|ALL]`.
    Pause { timeout_ms: u64, mode: PauseMode },
    /// `CLIENT UNPAUSE`.
    Unpause,
}

impl ClientCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            ClientCommand::Id => CommandId::ClientId,
            ClientCommand::Info => CommandId::ClientInfo,
            ClientCommand::List(_) => CommandId::ClientList,
            ClientCommand::SetName { .. } => CommandId::ClientSetName,
            ClientCommand::GetName => CommandId::ClientGetName,
            ClientCommand::SetLibName { .. } | ClientCommand::SetLibVersion { .. } => {
                CommandId::ClientSetInfo
            }
            ClientCommand::Kill(_) => CommandId::ClientKill,
            ClientCommand::NoEvict { .. } => CommandId::ClientNoEvict,
            ClientCommand::NoTouch { .. } => CommandId::ClientNoTouch,
            ClientCommand::Reply { .. } => CommandId::ClientReply,
            ClientCommand::Pause { .. } => CommandId::ClientPause,
            ClientCommand::Unpause => CommandId::ClientUnpause,
        }
    }
}

/// The checked options of CLIENT LIST or CLIENT KILL; parsed again by [`ClientQuery::filter`], so
/// that this rare command does not make every `Command` twice as large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientQuery<'a> {
    options: ArgIter<'a>,
    is_kill: bool,
}

impl<'a> ClientQuery<'a> {
    /// The filter that the options describe.
    pub fn filter(&self) -> ClientFilter<'a> {
        client_filter(self).unwrap_or_default()
    }
}

/// Which clients CLIENT LIST shows or CLIENT KILL closes; absent fields match every client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientFilter<'a> {
    /// ID (LIST takes several, KILL one).
    pub ids: Option<ArgIter<'a>>,
    /// KILL's ID.
    pub id: Option<u64>,
    /// TYPE: normal, master, replica or pubsub, lower case; only `normal` can match.
    pub type_name: Option<&'static str>,
    /// ADDR ip:port.
    pub address: Option<&'a [u8]>,
    /// LADDR ip:port.
    pub local_address: Option<&'a [u8]>,
    /// MAXAGE: connected for at least so many seconds.
    pub max_age_seconds: Option<u64>,
    /// USER.
    pub user: Option<&'a [u8]>,
    /// SKIPME.
    pub skip_me: KillSkipMe,
    /// The old form `CLIENT KILL ip:port`: answers OK or `ERR No such client`.
    pub old_form: bool,
}

/// Whether CLIENT KILL spares the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KillSkipMe {
    /// The caller is spared (default of the filter form).
    #[default]
    Yes,
    /// The caller may be closed, after its reply.
    No,
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Reply to everything, and answer OK.
    On,
    /// Reply to nothing, this command included.
    Off,
    /// Do not reply to this command and the next.
    Skip,
}

/// `CLIENT PAUSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMode {
    /// Every command waits.
    All,
    /// Commands that write wait.
    Write,
}

pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::ClientId => Command::Client(ClientCommand::Id),
        CommandId::ClientInfo => Command::Client(ClientCommand::Info),
        CommandId::ClientGetName => Command::Client(ClientCommand::GetName),
        CommandId::ClientUnpause => Command::Client(ClientCommand::Unpause),
        CommandId::ClientHelp => Command::Help { id },
        CommandId::ClientSetName => {
            Command::Client(ClientCommand::SetName { name: checked_name(next(args))? })
        }
        CommandId::ClientNoEvict => {
            Command::Client(ClientCommand::NoEvict { on: on_or_off(next(args))? })
        }
        CommandId::ClientNoTouch => {
            Command::Client(ClientCommand::NoTouch { on: on_or_off(next(args))? })
        }
        CommandId::ClientReply => {
            Command::Client(ClientCommand::Reply { mode: reply_mode(next(args))? })
        }
        CommandId::ClientSetInfo => return set_info(rest),
        CommandId::ClientList => {
            let query = ClientQuery { options: rest, is_kill: false };
            client_filter(&query)?;
            Command::Client(ClientCommand::List(query))
        }
        CommandId::ClientKill => {
            let query = ClientQuery { options: rest, is_kill: true };
            client_filter(&query)?;
            Command::Client(ClientCommand::Kill(query))
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
        Command::Client(ClientCommand::SetLibName { name: value })
    } else if is_word(attribute, "lib-ver") {
        Command::Client(ClientCommand::SetLibVersion { version: value })
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
fn client_filter<'a>(query: &ClientQuery<'a>) -> Result<ClientFilter<'a>, ErrorReply<'a>> {
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
    Ok(Command::Client(ClientCommand::Pause { timeout_ms, mode }))
}
