//! From arguments to a `Command`: names, arity, options.

use super::args::Args;
use super::command::Command;
use super::error::{CommandError, ErrorReply};
use super::limits::Limits;
use super::parser::Parser;
use super::protocol_error::ProtocolError;
use super::table::CommandId;
use crate::Parsed;

/// What [`next_command`] answers.
pub type NextCommand<'a> = Parsed<Result<Command<'a>, CommandError<'a>>, ProtocolError>;

/// Frames and reads the command at the front of `input`: the one call that a server needs.
#[inline]
pub fn next_command<'a>(parser: &mut Parser, input: &'a [u8], limits: &Limits) -> NextCommand<'a> {
    match parser.parse(input, limits) {
        Parsed::Done { value, consumed_bytes } => {
            Parsed::Done { value: from_args(&value), consumed_bytes }
        }
        Parsed::NeedMore { at_least_bytes } => Parsed::NeedMore { at_least_bytes },
        Parsed::Bad(error) => Parsed::Bad(error),
    }
}

pub(super) fn from_args<'a>(args: &Args<'a>) -> Result<Command<'a>, CommandError<'a>> {
    if args.is_empty() {
        return Ok(Command::Empty);
    }
    Err(CommandError::UnknownCommand { args: *args })
}

pub(super) fn id_of(_command: &Command<'_>) -> Option<CommandId> {
    None
}

impl ErrorReply {
    /// Appends the reply, `-` and CRLF included.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"-ERR\r\n");
    }
}

impl CommandError<'_> {
    /// Appends the reply; nothing for [`CommandError::CrossProtocol`].
    pub fn encode(&self, _out: &mut Vec<u8>) {}
}
