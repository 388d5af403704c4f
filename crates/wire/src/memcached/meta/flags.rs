//! The flags of a meta command, parsed once from its words.
//!
//! # Invariants
//! I1: each letter occurs at most once, so a reply is no longer than its request plus the requested
//!     fields.

use super::super::reply::Reply;
use super::super::words::{parse_signed, parse_unsigned, split_word};
use super::{MetaVerb, base64};

/// The longest flag O, including its letter.
const OPAQUE_MAX_BYTES: usize = 32;

/// The modes of ms and ma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaMode {
    /// set; incr.
    #[default]
    Usual,
    /// ms: only if absent.
    Add,
    /// ms: after the old value.
    Append,
    /// ms: before the old value.
    Prepend,
    /// ms: only if present.
    Replace,
    /// ma: decr.
    Decrease,
}

/// The parsed flags of a meta command; exptimes as given, see `expiry_from_exptime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlags {
    /// b: the key is in base64.
    pub is_base64: bool,
    /// q: the usual outcome is not answered.
    pub is_quiet: bool,
    /// v: with the value.
    pub with_value: bool,
    /// c: with the CAS token.
    pub with_version: bool,
    /// I: md marks the item as stale instead, ms stores an older token's value as stale.
    pub invalidates: bool,
    /// x: md removes the value and leaves the item.
    pub removes_value: bool,
    /// N: a missing item is created, with this exptime.
    pub vivify: Option<i64>,
    /// T: the new exptime of the item.
    pub exptime: Option<i64>,
    /// R: an item with less time left may be won.
    pub recache: Option<i64>,
    /// T is before R, which then checks the new time.
    pub is_touched_first: bool,
    /// T is after N, and also applies to a created item.
    pub is_touched_last: bool,
    /// u: it does not count as a read.
    pub is_unnoted: bool,
    /// F: client flags.
    pub client_flags: u32,
    /// C: only if the token equals this.
    pub version: Option<u64>,
    /// E: the new token.
    pub new_version: Option<u64>,
    /// M.
    pub mode: MetaMode,
    /// J: the initial value of ma.
    pub initial: u64,
    /// D: the amount.
    pub delta: u64,
}

impl Default for MetaFlags {
    fn default() -> MetaFlags {
        MetaFlags {
            is_base64: false,
            is_quiet: false,
            with_value: false,
            with_version: false,
            invalidates: false,
            removes_value: false,
            vivify: None,
            exptime: None,
            recache: None,
            is_touched_first: false,
            is_touched_last: false,
            is_unnoted: false,
            client_flags: 0,
            version: None,
            new_version: None,
            mode: MetaMode::Usual,
            initial: 0,
            delta: 1,
        }
    }
}

impl MetaFlags {
    /// Parses all words. Returns the reply to send if one of them is wrong, by default that of the
    /// last wrong one; an unknown or duplicate flag ends the parsing.
    pub(super) fn read(&mut self, words: &[u8], key: &[u8], verb: MetaVerb) -> Result<(), Reply> {
        let mut seen = 0_u128;
        let (mut wrong, mut mode, mut is_opaque_long) = (None, None, false);
        for word in Flags(words) {
            let letter = word[0];
            let bit = 1_u128.checked_shl(u32::from(letter)).filter(|_| letter < 127);
            let is_new = bit.is_some_and(|bit| seen & bit == 0);
            seen |= bit.unwrap_or(0);
            let read = match is_new {
                false => Err(Wrong::AtOnce(Reply::DuplicateFlag)),
                true if letter == b'x' && verb != MetaVerb::Delete => {
                    Err(Wrong::AtOnce(Reply::InvalidFlag))
                }
                true => self.read_one(word, key),
            };
            match read {
                Ok(()) => {}
                Err(Wrong::AtOnce(reply)) => return Err(of_verb(verb, reply)),
                Err(Wrong::AtEnd(Some(reply))) => wrong = Some(reply),
                Err(Wrong::AtEnd(None)) => wrong = wrong.or(Some(Reply::BadFormat)),
            }
            match letter {
                b'M' => mode = word.get(1),
                b'O' => is_opaque_long = word.len() > OPAQUE_MAX_BYTES,
                _ => {}
            }
        }
        if let Some(reply) = wrong {
            return Err(of_verb(verb, reply));
        }
        self.read_mode(verb, mode.copied())?;
        if is_opaque_long { Err(Reply::OpaqueTooLong) } else { Ok(()) }
    }

    fn read_one(&mut self, word: &[u8], key: &[u8]) -> Result<(), Wrong> {
        let (letter, token) = (word[0], &word[1..]);
        let exptime = || parse_signed(token).ok_or(Wrong::AtEnd(Some(Reply::BadToken)));
        let number = |reply| parse_unsigned(token).ok_or(Wrong::AtEnd(Some(reply)));
        match letter {
            b'b' if base64::decode(key).is_none() => {
                return Err(Wrong::AtEnd(Some(Reply::BadKey)));
            }
            b'b' => self.is_base64 = true,
            b'q' => self.is_quiet = true,
            b'v' => self.with_value = true,
            b'c' => self.with_version = true,
            b'u' => self.is_unnoted = true,
            b'I' => self.invalidates = true,
            b'x' => self.removes_value = true,
            b'N' => self.vivify = Some(exptime()?),
            b'T' => {
                self.is_touched_first = self.recache.is_none();
                self.is_touched_last = self.vivify.is_some();
                self.exptime = Some(exptime()?);
            }
            b'R' => self.recache = Some(exptime()?),
            // memcached parses 64 bits and keeps the low half.
            b'F' => self.client_flags = parse_unsigned(token).ok_or(Wrong::AtEnd(None))? as u32,
            b'C' => self.version = Some(number(Reply::BadToken)?),
            b'E' => self.new_version = Some(number(Reply::BadToken)?),
            b'J' => self.initial = number(Reply::InvalidInitial)?,
            b'D' => self.delta = number(Reply::InvalidDeltaValue)?,
            b'M' if token.len() != 1 => return Err(Wrong::AtEnd(Some(Reply::BadModeLength))),
            // Known, but they concern only the reply, or nothing here.
            b'M' | b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'f' | b'l' | b'h' => {}
            _ => return Err(Wrong::AtOnce(Reply::InvalidFlag)),
        }
        Ok(())
    }

    /// Lower-case letters come from later memcacheds.
    fn read_mode(&mut self, verb: MetaVerb, letter: Option<u8>) -> Result<(), Reply> {
        let Some(letter) = letter else { return Ok(()) };
        self.mode = match (verb, letter) {
            (MetaVerb::Set, b'S' | b's') => MetaMode::Usual,
            (MetaVerb::Set, b'E' | b'e') => MetaMode::Add,
            (MetaVerb::Set, b'A' | b'a') => MetaMode::Append,
            (MetaVerb::Set, b'P' | b'p') => MetaMode::Prepend,
            (MetaVerb::Set, b'R' | b'r') => MetaMode::Replace,
            (MetaVerb::Arithmetic, b'I' | b'i' | b'+') => MetaMode::Usual,
            (MetaVerb::Arithmetic, b'D' | b'd' | b'-') => MetaMode::Decrease,
            (MetaVerb::Set, _) => return Err(Reply::InvalidSetMode),
            (MetaVerb::Arithmetic, _) => return Err(Reply::InvalidArithmeticMode),
            (MetaVerb::Get | MetaVerb::Delete | MetaVerb::Debug, _) => MetaMode::Usual,
        };
        Ok(())
    }
}

/// The effect of a wrong flag.
enum Wrong {
    /// The following words are not parsed.
    AtOnce(Reply),
    /// The rest is parsed; without a reply, an earlier error is reported.
    AtEnd(Option<Reply>),
}

/// md and ma report all errors of flags alike.
fn of_verb(verb: MetaVerb, reply: Reply) -> Reply {
    match verb {
        MetaVerb::Delete | MetaVerb::Arithmetic => Reply::InvalidOrDuplicateFlag,
        MetaVerb::Get | MetaVerb::Set | MetaVerb::Debug => reply,
    }
}

/// The flags of a line, each not empty.
pub(super) struct Flags<'w>(pub &'w [u8]);

impl<'w> Iterator for Flags<'w> {
    type Item = &'w [u8];

    fn next(&mut self) -> Option<&'w [u8]> {
        let (word, rest) = split_word(self.0)?;
        self.0 = rest;
        Some(word)
    }
}

/// The number of flags.
pub(super) fn count(words: &[u8]) -> usize {
    Flags(words).count()
}

/// Whether there is a flag of that letter.
pub(super) fn has(words: &[u8], letter: u8) -> bool {
    Flags(words).any(|word| word[0] == letter)
}
