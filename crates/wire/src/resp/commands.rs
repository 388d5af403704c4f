//! The commands by group: the types of each, and its parser, from arguments to a `Command`. Names,
//! arity and options are checked in the same order as in Redis.
//!
//! ```text
//!  Args ──▶ lookup: name, subcommand ──▶ arity ──▶ the group of its row (rows: `table/rows.rs`):
//!               strings | bits | keys | server | transactions | connection | client | cluster
//! ```

mod bits;
mod client;
mod cluster;
mod connection;
mod keys;
mod lookup;
mod server;
mod strings;
mod transactions;

pub use bits::BitCommand;
pub use client::{ClientCommand, ClientFilter, ClientQuery, KillSkipMe, PauseMode, ReplyMode};
pub use cluster::ClusterCommand;
pub use connection::{AuthRequest, ConnectionCommand, HelloRequest};
pub use keys::{Copy, ExpireCondition, ExpireTime, KeyCommand, Restore, ScanRequest, Unit};
pub use server::{
    CommandList, ConfigPairs, FlushMode, ServerCommand, ShutdownRequest, asked_command, keys_asked,
};
pub(super) use strings::set_if;
pub use strings::{
    ExpireTtl, Expiry, InvalidTime, MSetEx, SetCommand, SetCondition, StringCommand,
};
pub use transactions::TransactionCommand;

use super::args::{ArgIter, Args};
use super::command::Command;
use super::error::{CommandError, ErrorReply};
use super::limits::Limits;
use super::number::parse_i64;
use super::parser::{Parser, parse_hot};
use super::protocol_error::ProtocolError;
use super::table::Group;
use crate::Parsed;

/// The result of [`next_command`].
pub type NextCommand<'a> = Parsed<Result<Command<'a>, CommandError<'a>>, ProtocolError>;

/// Frames and parses the command at the front of `input`: the one call that a server needs.
#[inline]
pub fn next_command<'a>(parser: &mut Parser, input: &'a [u8], limits: &Limits) -> NextCommand<'a> {
    // An incomplete command failed the fast path once; with its rest it may pass now, and its state
    // in the parser is then stale.
    if let Some((command, consumed_bytes)) = parse_hot(input, limits) {
        parser.reset();
        return Parsed::Done { value: Ok(command), consumed_bytes };
    }
    next_any_command(parser, input, limits)
}

fn next_any_command<'a>(parser: &mut Parser, input: &'a [u8], limits: &Limits) -> NextCommand<'a> {
    match parser.parse(input, limits) {
        Parsed::Done { value, consumed_bytes } => {
            Parsed::Done { value: from_args(&value), consumed_bytes }
        }
        Parsed::NeedMore { at_least_bytes } => Parsed::NeedMore { at_least_bytes },
        Parsed::Bad(error) => Parsed::Bad(error),
    }
}

/// The result of an argument parser.
type Read<'a> = Result<Command<'a>, ErrorReply<'a>>;

pub(super) fn from_args<'a>(args: &Args<'a>) -> Result<Command<'a>, CommandError<'a>> {
    if args.is_empty() {
        return Ok(Command::Empty);
    }
    if let Some(line) = args.quoted_line() {
        return Ok(Command::Quoted(line));
    }
    let (spec, rest) = lookup::find(args)?;
    if !spec.accepts_count(args.len()) {
        return Err(CommandError::WrongArity(spec.id));
    }
    let read = match spec.group {
        Group::String => strings::read(spec.id, rest),
        Group::Bitmap => bits::read(spec.id, rest),
        Group::Generic => keys::read(spec.id, rest),
        Group::Server => server::read(spec.id, rest),
        Group::Transactions => transactions::read(spec.id, rest),
        Group::Connection => connection::read(spec.id, rest),
        Group::Cluster => cluster::read(spec.id, rest),
        Group::PubSub => Ok(Command::Operator { id: spec.id, args: rest }),
    };
    read.map_err(|reply| CommandError::Argument { id: spec.id, reply })
}

/// The next argument; arity has been checked, so the default for an absent one only guards against
/// mistakes. A call, not a copy: there are some eighty of them.
#[inline(never)]
fn next<'a>(rest: &mut ArgIter<'a>) -> &'a [u8] {
    let argument = rest.next();
    debug_assert!(argument.is_some(), "the table's arity promises this argument");
    argument.unwrap_or_default()
}

/// The next argument as an integer.
fn next_i64<'a>(rest: &mut ArgIter<'a>) -> Result<i64, ErrorReply<'a>> {
    parse_i64(next(rest)).ok_or(ErrorReply::NotAnInteger)
}

/// Whether an argument is this word, in any case.
fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Reads ON or OFF.
fn on_or_off<'a>(argument: &[u8]) -> Result<bool, ErrorReply<'a>> {
    if is_word(argument, "on") {
        Ok(true)
    } else if is_word(argument, "off") {
        Ok(false)
    } else {
        Err(ErrorReply::Syntax)
    }
}

#[cfg(test)]
mod tests;
