//! `Parser`: finds the end of a command and remembers how far it has scanned.
//!
//! ```text
//!  *3 CRLF  $3 CRLF SET CRLF  $1 CRLF k CRLF  $9999 CRLF vvvvv...            (input ends here)
//!  └ first_argument           validated_bytes ┘└─ header read again ─┘  NeedMore up to the CRLF
//! ```
//!
//! # Invariants
//! P1: `validated_bytes` is the start of the input, of an argument, or the end of the command.
//! P2: between `validated_bytes` and `scanned_bytes` there is no line end.
//!
//! # Limits
//! See [`Limits`]. As in Redis, the two bytes after an argument are skipped without a check.

mod hot;
pub(crate) mod inline;

use memchr::memchr;

use super::args::Args;
use super::discard::Discard;
use super::limits::Limits;
use super::number::parse_i64;
use super::protocol_error::ProtocolError;
use crate::Parsed;

pub use hot::parse_hot;
pub use inline::split_words;

/// The scan state of the command at the front of the input. One per connection.
///
/// Every call gets the input from the same start until the command is `Done`; then the caller
/// advances and the parser has forgotten everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    validated_bytes: usize,
    scanned_bytes: usize,
    first_argument: usize,
    /// 0 until the `*` line is parsed.
    args_total: u32,
    args_done: u32,
}

/// Why the parser stops before the command's end.
enum Stop {
    NeedMore { at_least_bytes: usize },
    Bad(ProtocolError),
}

impl From<ProtocolError> for Stop {
    fn from(error: ProtocolError) -> Stop {
        Stop::Bad(error)
    }
}

impl Parser {
    /// Frames one command.
    pub fn parse<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Parsed<Args<'a>, ProtocolError> {
        let framed = match input.first() {
            None => Err(Stop::NeedMore { at_least_bytes: 1 }),
            Some(b'*') => self.multibulk(input, limits),
            Some(_) => self.inline(input, limits),
        };
        match framed {
            Ok((value, consumed_bytes)) => {
                self.reset();
                Parsed::Done { value, consumed_bytes }
            }
            Err(Stop::NeedMore { at_least_bytes }) => Parsed::NeedMore { at_least_bytes },
            Err(Stop::Bad(error)) => Parsed::Bad(error),
        }
    }

    /// Forgets an unfinished command.
    pub fn reset(&mut self) {
        *self = Parser::default();
    }

    /// Whether a command is incomplete and waits for its rest.
    pub fn is_midway(&self) -> bool {
        *self != Parser::default()
    }

    /// Forgets an unfinished command, whose arguments can be skipped as they come. `None`: it has
    /// no multibulk header, so its end is not known.
    pub fn give_up(&mut self) -> Option<Discard> {
        let args_left = self.args_total.checked_sub(self.args_done).filter(|left| *left > 0)?;
        let discard = Discard::new(self.validated_bytes, args_left);
        self.reset();
        Some(discard)
    }

    fn multibulk<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
    ) -> Result<(Args<'a>, usize), Stop> {
        if self.args_total == 0 {
            self.multibulk_header(input, limits)?;
        }
        // The usual argument first, without touching `self`; `bulk` handles all others.
        let (mut at, mut done) = (self.validated_bytes, self.args_done);
        while done < self.args_total {
            let whole = match input.get(at) {
                Some(b'$') => hot::bulk(input, at + 1, limits),
                _ => None,
            };
            match whole {
                Some((_, end)) => at = end,
                None => {
                    if at != self.validated_bytes {
                        self.advance(at);
                    }
                    self.args_done = done;
                    self.bulk(input, limits)?;
                    at = self.validated_bytes;
                }
            }
            done += 1;
        }
        Ok((Args::bulks(&input[self.first_argument..at], self.args_total), at))
    }

    /// Parses `*count CRLF`.
    #[inline]
    fn multibulk_header(&mut self, input: &[u8], limits: &Limits) -> Result<(), Stop> {
        let line_end = match input.first_chunk::<4>() {
            // One digit: nearly every command.
            Some([_, b'0'..=b'9', b'\r', _]) => 2,
            _ => self.line_end(input, b'\r', limits, ProtocolError::TooBigMbulkCount)?,
        };
        self.args_total = multibulk_count(&input[1..line_end], limits)?;
        self.first_argument = line_end + 2;
        self.advance(line_end + 2);
        Ok(())
    }

    /// Validates one `$len CRLF bytes CRLF`, which may be incomplete or wrong; does not count it
    /// yet.
    fn bulk(&mut self, input: &[u8], limits: &Limits) -> Result<(), Stop> {
        let start = self.validated_bytes;
        let line_end = self.line_end(input, b'\r', limits, ProtocolError::TooBigBulkCount)?;
        if input[start] != b'$' {
            return Err(ProtocolError::ExpectedDollar { got: input[start] }.into());
        }
        let len_bytes = bulk_length(&input[start + 1..line_end], limits)?;
        let end = line_end + 2 + len_bytes + 2;
        if input.len() < end {
            return Err(Stop::NeedMore { at_least_bytes: end });
        }
        self.advance(end);
        Ok(())
    }

    fn inline<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(Args<'a>, usize), Stop> {
        let line_end = self.line_end(input, b'\n', limits, ProtocolError::TooBigInlineRequest)?;
        let line = &input[..line_end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(words) = inline::count_words(line) else {
            return Err(ProtocolError::UnbalancedQuotes.into());
        };
        Ok((Args::words(line, words.count, words.needs_rewrite), line_end + 1))
    }

    /// The index of the `end` byte of the line at `validated_bytes`; after a CR one more byte must
    /// have arrived, which counts as an LF unchecked.
    #[inline]
    fn line_end(
        &mut self,
        input: &[u8],
        end: u8,
        limits: &Limits,
        too_long: ProtocolError,
    ) -> Result<usize, Stop> {
        let start = self.validated_bytes;
        let scan_from = self.scanned_bytes.max(start).min(input.len());
        let found = memchr(end, &input[scan_from..]).map(|distance| scan_from + distance);
        let line_bytes = found.unwrap_or(input.len()).saturating_sub(start);
        self.scanned_bytes = found.unwrap_or(input.len());
        if line_bytes > limits.inline_max_bytes {
            return Err(too_long.into());
        }
        let whole_bytes = 1 + usize::from(end == b'\r');
        match found {
            Some(at) if at + whole_bytes <= input.len() => Ok(at),
            Some(at) => Err(Stop::NeedMore { at_least_bytes: at + whole_bytes }),
            None => Err(Stop::NeedMore { at_least_bytes: input.len().max(start) + 1 }),
        }
    }

    #[inline]
    fn advance(&mut self, validated_bytes: usize) {
        self.validated_bytes = validated_bytes;
        self.scanned_bytes = validated_bytes;
    }
}

/// The number after `*`; everything up to 0 is an empty command.
fn multibulk_count(digits: &[u8], limits: &Limits) -> Result<u32, ProtocolError> {
    let count = parse_i64(digits).ok_or(ProtocolError::InvalidMultibulkLength)?;
    if count > i64::from(limits.args_max) {
        return Err(ProtocolError::InvalidMultibulkLength);
    }
    if limits.before_auth && count > i64::from(Limits::ARGS_MAX_BEFORE_AUTH) {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    Ok(u32::try_from(count).unwrap_or(0))
}

/// The number after `$`.
#[inline]
fn bulk_length(digits: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
    let len_bytes = parse_i64(digits)
        .and_then(|len| usize::try_from(len).ok())
        .ok_or(ProtocolError::InvalidBulkLength)?;
    if len_bytes > limits.bulk_max_bytes {
        return Err(too_large(len_bytes as u64, limits));
    }
    if limits.before_auth && len_bytes > Limits::BULK_MAX_BYTES_BEFORE_AUTH {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    Ok(len_bytes)
}

/// The error for a too large argument: the connection skips a bounded length, and nothing before a
/// login.
#[cold]
fn too_large(len_bytes: u64, limits: &Limits) -> ProtocolError {
    if limits.before_auth || len_bytes > Limits::DISCARD_MAX_BYTES {
        return ProtocolError::InvalidBulkLength;
    }
    ProtocolError::BulkTooLarge { len_bytes, max_bytes: limits.bulk_max_bytes as u64 }
}

#[cfg(test)]
mod tests;
