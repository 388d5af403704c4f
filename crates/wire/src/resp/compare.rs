//! Conditions that compare a value with the client's expectation: IFEQ, IFNE, IFDEQ, IFDNE.
//!
//! ```text
//!  SET key value IFEQ old ─▶ only if the value is `old`; IFNE: if it is not, or there is none
//!  SET key value IFDEQ 1f3870be274f6c49 ─▶ the same, by the 16 digits that DIGEST tells
//! ```

use super::args::ArgIter;
use super::commands::SetCommand;
use super::error::ErrorReply;

/// The kind of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compares {
    /// IFEQ: this value.
    Equal,
    /// IFNE: all other values, or none.
    NotEqual,
    /// IFDEQ: values with this digest.
    DigestEqual,
    /// IFDNE: values with another digest, or none.
    DigestNotEqual,
}

/// A condition on the present value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison<'a> {
    /// The kind of comparison.
    pub compares: Compares,
    /// A value, or the 16 digits of a digest in any case.
    pub operand: &'a [u8],
}

/// The number of digits of a digest.
pub const DIGEST_DIGITS: usize = 16;

impl Compares {
    /// Parses IFEQ, IFNE, IFDEQ or IFDNE.
    pub fn read(word: &[u8]) -> Option<Compares> {
        let words = [
            ("ifeq", Compares::Equal),
            ("ifne", Compares::NotEqual),
            ("ifdeq", Compares::DigestEqual),
            ("ifdne", Compares::DigestNotEqual),
        ];
        let found = words.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, compares)| compares)
    }

    /// A comparison with `operand`, if it is valid.
    pub(super) fn with<'a>(self, operand: &'a [u8]) -> Result<Comparison<'a>, ErrorReply<'a>> {
        let is_digest = matches!(self, Compares::DigestEqual | Compares::DigestNotEqual);
        if is_digest && !is_digest_text(operand) {
            return Err(ErrorReply::DigestText);
        }
        Ok(Comparison { compares: self, operand })
    }
}

fn is_digest_text(text: &[u8]) -> bool {
    text.len() == DIGEST_DIGITS && text.iter().all(u8::is_ascii_hexdigit)
}

/// The checked arguments of a SET with a comparison; parsed again by [`SetIf::read`], so that this
/// rare form does not make every `Command` longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SetIf<'a> {
    pub(super) args: ArgIter<'a>,
}

impl<'a> SetIf<'a> {
    /// The command and its comparison; `None` only if the arguments are not those of such a SET.
    pub fn read(&self) -> Option<(SetCommand<'a>, Comparison<'a>)> {
        super::commands::set_if(self.args)
    }
}
