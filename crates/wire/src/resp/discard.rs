//! `Discard`: skips the rest of a command that was refused before all of it had arrived.
//!
//! ```text
//!  *3 CRLF $3 CRLF SET CRLF $1 CRLF k CRLF $99999999 CRLF vvvvv... CRLF *1 CRLF $4 CRLF PING ...
//!  └──────── skip_bytes, from Parser ────┘ └── header ──┘ └skip_bytes─┘ └ the next command
//! ```
//!
//! # Limits
//! It skips no more bytes than the command's headers announce, each at most
//! [`Limits::DISCARD_MAX_BYTES`]. Skipped bytes are not kept.

use memchr::memchr;

use super::limits::Limits;
use super::number::parse_i64;
use super::protocol_error::ProtocolError;

/// The maximum length of a header: `$`, the digits of the longest skipped length, and CRLF.
const HEADER_MAX_BYTES: usize = 24;

/// The rest of a refused command. One per connection, from [`super::Parser::give_up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    skip_bytes: u64,
    args_left: u32,
}

impl Discard {
    /// Skips `skip_bytes` bytes and then so many arguments.
    pub(super) fn new(skip_bytes: usize, args_left: u32) -> Discard {
        Discard { skip_bytes: skip_bytes as u64, args_left }
    }

    /// Skips the bytes that have arrived; returns how many bytes of `input` that is. Bytes left
    /// over while the command [has not ended](Discard::has_ended) are an incomplete header.
    pub fn skip(&mut self, input: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
        let mut at = 0;
        loop {
            let arrived = (input.len() - at) as u64;
            let skipped = self.skip_bytes.min(arrived);
            self.skip_bytes -= skipped;
            at += skipped as usize;
            if self.skip_bytes > 0 || self.args_left == 0 {
                return Ok(at);
            }
            let Some((header_bytes, len_bytes)) = header(&input[at..], limits)? else {
                return Ok(at);
            };
            at += header_bytes;
            self.skip_bytes = len_bytes + 2;
            self.args_left -= 1;
        }
    }

    /// Whether the next byte begins another command.
    pub fn has_ended(&self) -> bool {
        self.skip_bytes == 0 && self.args_left == 0
    }
}

/// Parses `$len CRLF`: its length and the argument's. `None`: it is incomplete.
fn header(input: &[u8], limits: &Limits) -> Result<Option<(usize, u64)>, ProtocolError> {
    let Some(first) = input.first() else { return Ok(None) };
    if *first != b'$' {
        return Err(ProtocolError::ExpectedDollar { got: *first });
    }
    let head = &input[..input.len().min(HEADER_MAX_BYTES)];
    let Some(line_end) = memchr(b'\r', head) else {
        let is_too_long = input.len() >= HEADER_MAX_BYTES;
        return if is_too_long { Err(ProtocolError::InvalidBulkLength) } else { Ok(None) };
    };
    if input.len() < line_end + 2 {
        return Ok(None);
    }
    let len_bytes = parse_i64(&input[1..line_end])
        .and_then(|len| u64::try_from(len).ok())
        .filter(|len_bytes| *len_bytes <= Limits::DISCARD_MAX_BYTES)
        .ok_or(ProtocolError::InvalidBulkLength)?;
    if limits.before_auth && len_bytes > Limits::BULK_MAX_BYTES_BEFORE_AUTH as u64 {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    Ok(Some((line_end + 2, len_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parsed;
    use crate::resp::Parser;

    const LIMITS: Limits = Limits::new(10);

    /// Refuses the command at the front of `input`, and skips it however it arrives; returns the
    /// bytes after it.
    #[track_caller]
    fn rest_behind(input: &[u8]) -> &[u8] {
        let mut rests = Vec::new();
        for step in [1, 2, 3, 7, input.len()] {
            let mut parser = Parser::default();
            let mut discard = loop_until_refused(&mut parser, input, step);
            assert!(!parser.is_midway());
            let (mut start, mut end) = (0, 0);
            while !discard.has_ended() {
                assert!(end < input.len(), "it needs more than was announced");
                end = (end + step).min(input.len());
                start += discard.skip(&input[start..end], &LIMITS).unwrap();
            }
            rests.push(&input[start..]);
        }
        assert!(rests.iter().all(|rest| *rest == rests[0]), "how it arrives changes nothing");
        rests[0]
    }

    fn loop_until_refused(parser: &mut Parser, input: &[u8], step: usize) -> Discard {
        let mut end = step;
        loop {
            match parser.parse(&input[..end.min(input.len())], &LIMITS) {
                Parsed::NeedMore { .. } => end += step,
                Parsed::Bad(ProtocolError::BulkTooLarge { .. }) => {
                    return parser.give_up().expect("it is a multibulk");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_next_command_follows_a_refused_one() {
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$11\r\n01234\r\n7890\r\nPING\r\n";
        assert_eq!(rest_behind(set), b"PING\r\n");
    }

    #[test]
    fn arguments_behind_the_refused_one_are_skipped_whatever_their_size() {
        let mset =
            b"*5\r\n$4\r\nMSET\r\n$11\r\n0123456789a\r\n$0\r\n\r\n$12\r\n*1\r\n$4\r\nPING\r\n\
            $1\r\nv\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(rest_behind(mset), b"*1\r\n$4\r\nPING\r\n");
    }

    #[test]
    fn a_broken_header_behind_the_refused_argument_is_an_error() {
        for (header, want) in [
            (&b"x"[..], ProtocolError::ExpectedDollar { got: b'x' }),
            (b"$x\r\n", ProtocolError::InvalidBulkLength),
            (b"$-1\r\n", ProtocolError::InvalidBulkLength),
            (b"$4294967297\r\n", ProtocolError::InvalidBulkLength),
            (b"$111111111111111111111111", ProtocolError::InvalidBulkLength),
        ] {
            let mut discard = Discard::new(0, 1);
            assert_eq!(discard.skip(header, &LIMITS), Err(want), "{header:?}");
        }
        let mut discard = Discard::new(0, 1);
        let before_auth = LIMITS.before_auth();
        let skipped = discard.skip(b"$16385\r\n", &before_auth);
        assert_eq!(skipped, Err(ProtocolError::UnauthenticatedBulkLength));
    }
}
