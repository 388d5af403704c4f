//! Commands about this connection.

use super::keys::database_index;
use super::{Read, client, is_word, next};
use crate::resp::args::ArgIter;
use crate::resp::command::Command;
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

#[expect(missing_docs, reason = "each variant quotes the syntax that names its fields")]
/// A command about its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConnectionCommand<'a> {
    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    Hello(HelloRequest<'a>),
    /// `AUTH [user] password`.
    Auth(AuthRequest<'a>),
    /// `PING [message]`.
    Ping { message: Option<&'a [u8]> },
    /// `ECHO message`.
    Echo { message: &'a [u8] },
    /// `SELECT index`; the server knows the number of databases.
    Select { database_index: i32 },
    /// `QUIT`: reply OK and close.
    Quit,
    /// `RESET`: reply `+RESET`.
    Reset,
}

impl ConnectionCommand<'_> {
    /// The row of the table it came from.
    pub fn id(&self) -> CommandId {
        match self {
            ConnectionCommand::Hello(_) => CommandId::Hello,
            ConnectionCommand::Auth(_) => CommandId::Auth,
            ConnectionCommand::Ping { .. } => CommandId::Ping,
            ConnectionCommand::Echo { .. } => CommandId::Echo,
            ConnectionCommand::Select { .. } => CommandId::Select,
            ConnectionCommand::Quit => CommandId::Quit,
            ConnectionCommand::Reset => CommandId::Reset,
        }
    }
}

/// `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelloRequest<'a> {
    /// 2 or 3; `None` keeps the current one.
    pub version: Option<u8>,
    /// AUTH.
    pub auth: Option<AuthRequest<'a>>,
    /// SETNAME; the name is valid.
    pub name: Option<&'a [u8]>,
}

/// User and password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRequest<'a> {
    /// `None`: the one-argument AUTH, which means the default user.
    pub user: Option<&'a [u8]>,
    /// The password.
    pub password: &'a [u8],
}

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Hello => return hello(rest),
        CommandId::Auth => return auth(rest),
        CommandId::Ping => match (args.next(), args.next()) {
            (message, None) => Command::Connection(ConnectionCommand::Ping { message }),
            _ => return Err(ErrorReply::WrongArity(id)),
        },
        CommandId::Echo => Command::Connection(ConnectionCommand::Echo { message: next(args) }),
        CommandId::Select => Command::Connection(ConnectionCommand::Select {
            database_index: database_index(next(args))?,
        }),
        CommandId::Quit => Command::Connection(ConnectionCommand::Quit),
        CommandId::Reset => Command::Connection(ConnectionCommand::Reset),
        _ => return client::read(id, rest),
    })
}

fn auth(mut rest: ArgIter<'_>) -> Read<'_> {
    let request = match (rest.next(), rest.next(), rest.next()) {
        (Some(password), None, _) => AuthRequest { user: None, password },
        (user, Some(password), None) => AuthRequest { user, password },
        _ => return Err(ErrorReply::Syntax),
    };
    Ok(Command::Connection(ConnectionCommand::Auth(request)))
}

fn hello(mut rest: ArgIter<'_>) -> Read<'_> {
    let mut request = HelloRequest::default();
    if let Some(version) = rest.next() {
        let version = parse_i64(version).ok_or(ErrorReply::ProtocolVersionNotAnInteger)?;
        request.version = match version {
            2 => Some(2),
            3 => Some(3),
            _ => return Err(ErrorReply::NoProtocol),
        };
    }
    while let Some(option) = rest.next() {
        if is_word(option, "auth") && rest.len() >= 2 {
            let (user, password) = (rest.next(), next(&mut rest));
            request.auth = Some(AuthRequest { user, password });
        } else if is_word(option, "setname") && rest.len() >= 1 {
            request.name = Some(client::checked_name(next(&mut rest))?);
        } else {
            return Err(ErrorReply::HelloOption(option));
        }
    }
    Ok(Command::Connection(ConnectionCommand::Hello(request)))
}
