//! Parses one command at the front of the input.
//!
//! ```text
//!  set k 0 0 5 CRLF hello CRLF
//!  └ line ────────┘ └ data block: its length is in the line, so NeedMore names the whole ┘
//! ```
//!
//! # Limits
//! A line other than a get or gat is at most 2048 bytes, a get at most
//! [`Limits::get_line_max_bytes`].

use memchr::memchr;

use super::command::{Arithmetic, Delete, StoreVerb, Touch};
use super::command::{Keys, Limits, ProtocolError, Rejection, Retrieve, StatsKind, Store};
use super::reply::Reply;
use super::verbs::Command;
use super::words::{Words, parse_signed, parse_unsigned, plain_number, split_key, split_word};
use crate::Parsed;

/// The result of [`next_command`].
pub type NextCommand<'a> = Parsed<Result<Command<'a>, Rejection<'a>>, ProtocolError>;

/// The maximum length of a data block in the protocol: memcached counts in 31 bits, CRLF included.
pub(super) const DATA_MAX_BYTES: u64 = i32::MAX as u64 - 2;

/// The scan state of the line at the front of the input. One per connection.
///
/// Every call gets the input from the same start until the command is `Done`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// There is no line end before here.
    scanned_bytes: usize,
}

impl Parser {
    /// Forgets an unfinished command.
    pub fn reset(&mut self) {
        *self = Parser::default();
    }

    /// Whether a command is incomplete and waits for its rest.
    pub fn is_midway(&self) -> bool {
        self.scanned_bytes > 0
    }
}

/// Parses the command at the front of `input`, which starts where the last one ended.
#[inline]
pub fn next_command<'a>(parser: &mut Parser, input: &'a [u8], limits: &Limits) -> NextCommand<'a> {
    let scan_from = parser.scanned_bytes.min(input.len());
    let Some(distance) = memchr(b'\n', &input[scan_from..]) else {
        parser.scanned_bytes = input.len();
        return match check_line_length(input, input.len(), limits) {
            Ok(()) => Parsed::NeedMore { at_least_bytes: input.len() + 1 },
            Err(error) => Parsed::Bad(error),
        };
    };
    let line_end = scan_from + distance;
    parser.scanned_bytes = line_end;
    if let Err(error) = check_line_length(input, line_end, limits) {
        return Parsed::Bad(error);
    }
    let line = Line { input, line: trim_cr(&input[..line_end]), next_at: line_end + 1 };
    // The most frequent line.
    let answer = match line.line.strip_prefix(b"get ") {
        Some(rest) => line.retrieve(rest, false),
        None => line.read(limits),
    };
    if let Parsed::Done { .. } = answer {
        parser.reset();
    }
    answer
}

/// memcached strips a CR, except from a line that is nothing else.
#[inline]
fn trim_cr(line: &[u8]) -> &[u8] {
    match line {
        [rest @ .., b'\r'] if !rest.is_empty() => rest,
        _ => line,
    }
}

#[inline]
fn check_line_length(
    input: &[u8],
    line_bytes: usize,
    limits: &Limits,
) -> Result<(), ProtocolError> {
    if line_bytes <= Limits::LINE_MAX_BYTES {
        return Ok(());
    }
    let is_get =
        matches!(split_word(&input[..line_bytes]), Some((b"get" | b"gets" | b"gat" | b"gats", _)));
    match (is_get, line_bytes <= limits.get_line_max_bytes) {
        (true, true) => Ok(()),
        (true, false) => Err(ProtocolError::GetTooLong),
        (false, _) => Err(ProtocolError::LineTooLong),
    }
}

/// A whole command line, and where the next command or the data block starts.
pub(super) struct Line<'a> {
    pub(super) input: &'a [u8],
    pub(super) line: &'a [u8],
    pub(super) next_at: usize,
}

impl<'a> Line<'a> {
    #[inline]
    pub(super) fn done(&self, command: Command<'a>) -> NextCommand<'a> {
        Parsed::Done { value: Ok(command), consumed_bytes: self.next_at }
    }

    #[cold]
    pub(super) fn reject(&self, reply: Reply, noreply: bool) -> NextCommand<'a> {
        let rejection = Rejection { reply: (!noreply).then_some(reply), ..Rejection::of(reply) };
        Parsed::Done { value: Err(rejection), consumed_bytes: self.next_at }
    }

    #[inline]
    pub(super) fn retrieve(&self, rest: &'a [u8], with_cas: bool) -> NextCommand<'a> {
        if keys_are_absent(rest) {
            return self.reject(Reply::Error, false);
        }
        match Keys::checked(rest) {
            Some(keys) => self.done(Command::Get(Retrieve { keys, with_cas })),
            None => self.reject(Reply::BadFormat, false),
        }
    }

    pub(super) fn get_and_touch(&self, rest: &'a [u8], with_cas: bool) -> NextCommand<'a> {
        let Some((exptime, rest)) = split_word(rest) else {
            return self.reject(Reply::Error, false);
        };
        let Some(exptime) = parse_signed(exptime) else {
            return self.reject(Reply::InvalidExptime, false);
        };
        match Keys::checked(rest) {
            Some(keys) => {
                let retrieve = Retrieve { keys, with_cas };
                self.done(Command::GetAndTouch { exptime, retrieve })
            }
            None => self.reject(Reply::BadFormat, false),
        }
    }

    pub(super) fn store(
        &self,
        verb: StoreVerb,
        rest: &'a [u8],
        limits: &Limits,
    ) -> NextCommand<'a> {
        if let Some((header, len_bytes)) = plain_store_header(verb, rest) {
            return self.data_block(header, len_bytes, limits);
        }
        let words = Words::split(self.line);
        let least = 5 + usize::from(matches!(verb, StoreVerb::Cas(_)));
        if words.count != least && words.count != least + 1 {
            return self.reject(Reply::Error, false);
        }
        let noreply = words.ends_in_noreply();
        match store_header(verb, &words) {
            Some((header, len_bytes)) => {
                self.data_block(Store { noreply, ..header }, len_bytes, limits)
            }
            None => self.reject(Reply::BadFormat, noreply),
        }
    }

    /// The data block of a storage command whose line is valid.
    #[inline]
    fn data_block(&self, header: Store<'a>, len_bytes: u64, limits: &Limits) -> NextCommand<'a> {
        let reply = |reply| (!header.noreply).then_some(reply);
        if len_bytes > limits.value_max_bytes as u64 {
            let rejection = Rejection {
                reply: reply(Reply::TooLarge),
                swallow_bytes: len_bytes + 2,
                delete_key: (header.verb == StoreVerb::Set).then_some(header.key),
                is_key_base64: false,
            };
            return Parsed::Done { value: Err(rejection), consumed_bytes: self.next_at };
        }
        let value_end = self.next_at + len_bytes as usize;
        let Some(block) = self.input.get(self.next_at..value_end + 2) else {
            return Parsed::NeedMore { at_least_bytes: value_end + 2 };
        };
        let (value, end) = block.split_at(len_bytes as usize);
        let consumed_bytes = value_end + 2;
        if end != b"\r\n" {
            let refusal = Rejection::of(Reply::BadDataChunk);
            let rejection = Rejection { reply: reply(Reply::BadDataChunk), ..refusal };
            return Parsed::Done { value: Err(rejection), consumed_bytes };
        }
        let store = Store { value, ..header };
        Parsed::Done { value: Ok(Command::Store(store)), consumed_bytes }
    }

    pub(super) fn delete(&self) -> NextCommand<'a> {
        let words = Words::split(self.line);
        if !(2..=4).contains(&words.count) {
            return self.reject(Reply::Error, false);
        }
        let noreply = words.count > 2 && words.ends_in_noreply();
        // An old form has a hold time before noreply, which may only be 0.
        let holds_zero = words.get(2) == b"0";
        let is_valid = match words.count {
            2 => true,
            3 => holds_zero || noreply,
            _ => holds_zero && noreply,
        };
        if !is_valid {
            return self.reject(Reply::BadDelete, noreply);
        }
        let key = words.get(1);
        if key.len() > Limits::KEY_MAX_BYTES {
            return self.reject(Reply::BadFormat, noreply);
        }
        self.done(Command::Delete(Delete { key, noreply }))
    }

    /// The words of `name key number [noreply]`; otherwise the reply to send.
    fn key_and_number(&self) -> Result<(&'a [u8], &'a [u8], bool), NextCommand<'a>> {
        let words = Words::split(self.line);
        if words.count != 3 && words.count != 4 {
            return Err(self.reject(Reply::Error, false));
        }
        let noreply = words.ends_in_noreply();
        if words.get(1).len() > Limits::KEY_MAX_BYTES {
            return Err(self.reject(Reply::BadFormat, noreply));
        }
        Ok((words.get(1), words.get(2), noreply))
    }

    pub(super) fn arithmetic(&self, is_decrement: bool) -> NextCommand<'a> {
        let (key, delta, noreply) = match self.key_and_number() {
            Ok(parts) => parts,
            Err(answer) => return answer,
        };
        let Some(delta) = parse_unsigned(delta) else {
            return self.reject(Reply::InvalidDelta, noreply);
        };
        self.done(Command::Arithmetic(Arithmetic { key, delta, is_decrement, noreply }))
    }

    pub(super) fn touch(&self) -> NextCommand<'a> {
        let (key, exptime, noreply) = match self.key_and_number() {
            Ok(parts) => parts,
            Err(answer) => return answer,
        };
        let Some(exptime) = parse_signed(exptime) else {
            return self.reject(Reply::InvalidExptime, noreply);
        };
        self.done(Command::Touch(Touch { key, exptime, noreply }))
    }

    pub(super) fn stats(&self, words: &Words<'a>) -> NextCommand<'a> {
        let kind = match (words.get(1), words.get(2)) {
            (b"detail", b"dump") => StatsKind::DetailDump,
            (b"detail", b"on") => StatsKind::Detail { is_on: true },
            (b"detail", b"off") => StatsKind::Detail { is_on: false },
            (b"detail", _) => return self.reject(Reply::DetailUsage, false),
            (b"cachedump", _) => return self.cache_dump(words),
            _ => stats_kind(words),
        };
        self.done(Command::Stats(kind))
    }

    pub(super) fn flush_all(&self, words: &Words<'_>) -> NextCommand<'a> {
        if words.count > 3 {
            return self.reject(Reply::Error, false);
        }
        let noreply = words.ends_in_noreply();
        if words.count == 1 + usize::from(noreply) {
            return self.done(Command::FlushAll { delay: 0, noreply });
        }
        match parse_signed(words.get(1)) {
            Some(delay) => self.done(Command::FlushAll { delay, noreply }),
            None => self.reject(Reply::InvalidExptime, noreply),
        }
    }

    pub(super) fn verbosity(&self, words: &Words<'_>) -> NextCommand<'a> {
        if words.count != 2 && words.count != 3 {
            return self.reject(Reply::Error, false);
        }
        let noreply = words.ends_in_noreply();
        match parse_unsigned(words.get(1)) {
            Some(_) => self.done(Command::Verbosity { noreply }),
            None => self.reject(Reply::BadFormat, noreply),
        }
    }
}

/// The fast form of [`store_header`] for the usual line: no sign, no noreply, no double spaces.
#[inline]
fn plain_store_header<'a>(verb: StoreVerb, rest: &'a [u8]) -> Option<(Store<'a>, u64)> {
    if matches!(verb, StoreVerb::Cas(_)) {
        return None;
    }
    let (key, rest) = split_key(rest)?;
    let (flags, rest) = plain_number(rest)?;
    let (exptime, rest) = plain_number(rest)?;
    let (len_bytes, rest) = plain_number(rest)?;
    if !rest.is_empty() || key.len() > Limits::KEY_MAX_BYTES {
        return None;
    }
    let exptime = i64::from(exptime);
    Some((Store { verb, key, flags, exptime, value: &[], noreply: false }, u64::from(len_bytes)))
}

/// Key, flags, exptime and CAS token of a storage command, and the length of its data block.
fn store_header<'a>(verb: StoreVerb, words: &Words<'a>) -> Option<(Store<'a>, u64)> {
    let key = words.get(1);
    if key.len() > Limits::KEY_MAX_BYTES {
        return None;
    }
    // memcached reads 64 bits and keeps the low half.
    let flags = parse_unsigned(words.get(2))? as u32;
    let exptime = parse_signed(words.get(3))?;
    let len_bytes = parse_unsigned(words.get(4)).filter(|len| *len <= DATA_MAX_BYTES)?;
    let verb = match verb {
        StoreVerb::Cas(_) => StoreVerb::Cas(parse_unsigned(words.get(5))?),
        other => other,
    };
    Some((Store { verb, key, flags, exptime, value: &[], noreply: false }, len_bytes))
}

fn stats_kind<'a>(words: &Words<'a>) -> StatsKind<'a> {
    match words.get(1) {
        b"" => StatsKind::General,
        b"settings" => StatsKind::Settings,
        b"items" => StatsKind::Items,
        b"slabs" => StatsKind::Slabs,
        b"sizes" => StatsKind::Sizes,
        b"conns" => StatsKind::Connections,
        b"reset" => StatsKind::Reset,
        other => StatsKind::Other(other),
    }
}

/// Whether there are only spaces before the end or a NUL.
#[inline]
fn keys_are_absent(rest: &[u8]) -> bool {
    match rest {
        [b' ', ..] => split_word(rest).is_none(),
        rest => matches!(rest.first(), None | Some(0)),
    }
}

impl<'a> Keys<'a> {
    /// The remaining keys of a line whose beginning is done, and the length of the rest with its
    /// end: `input` starts where its [`Keys::left_bytes`] start. None: it has no line end.
    pub fn left_in(input: &'a [u8]) -> Option<(Keys<'a>, usize)> {
        let line_end = memchr(b'\n', input)?;
        Some((Keys { rest: trim_cr(&input[..line_end]) }, line_end + 1))
    }

    /// The length of the rest of its line, without the line's end.
    pub fn left_bytes(&self) -> usize {
        self.rest.len()
    }

    /// The length of the end of a line with keys.
    pub fn line_end_bytes(line: &[u8]) -> usize {
        line.len() - line.strip_suffix(b"\n").map_or(line, trim_cr).len()
    }

    /// Keys of `line`, unless one of them is too long.
    #[inline]
    fn checked(line: &'a [u8]) -> Option<Keys<'a>> {
        let keys = Keys { rest: line };
        // A short line cannot hold a long key.
        let fits = line.len() <= Limits::KEY_MAX_BYTES
            || keys.into_iter().all(|key| key.len() <= Limits::KEY_MAX_BYTES);
        fits.then_some(keys)
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (key, rest) = split_key(self.rest)?;
        self.rest = rest;
        Some(key)
    }
}

#[cfg(test)]
mod tests;
