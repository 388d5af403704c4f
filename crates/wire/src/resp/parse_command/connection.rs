//! Commands about this connection.

use super::restore::database_index;
use super::{Read, client, is_word, next};
use crate::resp::args::ArgIter;
use crate::resp::command::{AuthRequest, Command, HelloRequest};
use crate::resp::error::ErrorReply;
use crate::resp::number::parse_i64;
use crate::resp::table::CommandId;

#[inline(never)]
pub(super) fn read(id: CommandId, mut rest: ArgIter<'_>) -> Read<'_> {
    let args = &mut rest;
    Ok(match id {
        CommandId::Hello => return hello(rest),
        CommandId::Auth => return auth(rest),
        CommandId::Ping => match (args.next(), args.next()) {
            (message, None) => Command::Ping { message },
            _ => return Err(ErrorReply::WrongArity(id)),
        },
        CommandId::Echo => Command::Echo { message: next(args) },
        CommandId::Select => Command::Select { database_index: database_index(next(args))? },
        CommandId::Quit => Command::Quit,
        CommandId::Reset => Command::Reset,
        _ => return client::read(id, rest),
    })
}

fn auth(mut rest: ArgIter<'_>) -> Read<'_> {
    let request = match (rest.next(), rest.next(), rest.next()) {
        (Some(password), None, _) => AuthRequest { user: None, password },
        (user, Some(password), None) => AuthRequest { user, password },
        _ => return Err(ErrorReply::Syntax),
    };
    Ok(Command::Auth(request))
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
    Ok(Command::Hello(request))
}
