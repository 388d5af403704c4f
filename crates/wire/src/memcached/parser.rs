//! Reads one command from the front of the input.

use super::command::{Command, Keys, Limits, ProtocolError, Rejection};
use crate::Parsed;

/// What [`next_command`] answers.
pub type NextCommand<'a> = Parsed<Result<Command<'a>, Rejection<'a>>, ProtocolError>;

/// What is known of the line at the front of the input. One per connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// There is no line end before here.
    scanned_bytes: usize,
}

/// Reads the command at the front of `input`, which starts where the last one ended.
#[inline]
pub fn next_command<'a>(parser: &mut Parser, input: &'a [u8], _limits: &Limits) -> NextCommand<'a> {
    parser.scanned_bytes = input.len();
    Parsed::NeedMore { at_least_bytes: input.len() + 1 }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let _ = self.rest;
        None
    }
}
