//! `Parser`: finds where a command ends and remembers how far it looked.

pub(crate) mod inline;

use super::args::Args;
use super::limits::Limits;
use super::protocol_error::ProtocolError;
use crate::Parsed;

/// What is known of the command at the front of the input. One per connection.
///
/// Every call gets the input from the same start until the command is `Done`; then the caller
/// advances and the parser has forgotten everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// Everything before is validated.
    validated_bytes: usize,
    /// There is no line end between `validated_bytes` and here.
    scanned_bytes: usize,
    /// Arguments in all; 0 until the `*` line is read.
    args_total: u32,
    /// Arguments before `validated_bytes`.
    args_done: u32,
}

impl Parser {
    /// Frames one command.
    pub fn parse<'a>(
        &mut self,
        input: &'a [u8],
        _limits: &Limits,
    ) -> Parsed<Args<'a>, ProtocolError> {
        Parsed::NeedMore { at_least_bytes: input.len() + 1 }
    }

    /// Forgets a command in progress.
    pub fn reset(&mut self) {
        *self = Parser::default();
    }
}
