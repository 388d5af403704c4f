//! Meta commands: mg, ms, md, ma and me, whose flags are single letters, some with a token.
//!
//! ```text
//!  mg a2V5 s v O17 b q CRLF          flags in any order, each at most once
//!     └key  └───── words ───┘        words are checked once and walked again to reply:
//!  VA 5 s5 O17 CRLF hello CRLF       what is asked for is answered in the order of the question
//! ```
//!
//! # Invariants
//! I1: the words of a [`Meta`] have already been parsed without an error, so [`Meta::flags`] cannot
//!     fail.
//! I2: every reply's flags are in the order of the request's.

pub mod base64;
mod echo;
mod flags;

pub use echo::{MetaEcho, MetaShown};
pub use flags::{MetaFlags, MetaMode};

use super::command::{Limits, Rejection};
use super::parser::{DATA_MAX_BYTES, Line, NextCommand};
use super::reply::Reply;
use super::words::{parse_unsigned, split_word};
use super::{Command, expiry_from_exptime};
use crate::Parsed;

/// The maximum number of words of a meta command, including its name.
const WORDS_MAX: usize = 19;

/// The name of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb {
    /// mg.
    Get,
    /// ms.
    Set,
    /// md.
    Delete,
    /// ma.
    Arithmetic,
    /// me.
    Debug,
}

/// A meta command on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Which one.
    pub verb: MetaVerb,
    /// The key as in the line: 1 to 250 bytes, in base64 if the flags say so.
    pub key: &'a [u8],
    /// The flags as in the line (I1).
    pub words: &'a [u8],
    /// The data block of ms.
    pub value: &'a [u8],
}

impl<'a> Meta<'a> {
    /// The parsed flags.
    pub fn flags(&self) -> MetaFlags {
        let mut flags = MetaFlags::default();
        // It was checked (I1); me reads one flag and ignores the others.
        let _ = flags.read(self.words, self.key, self.verb);
        flags
    }

    /// The decoded key; `None`: the key in the line is already the stored one.
    pub fn decoded_key(&self) -> Option<Vec<u8>> {
        let is_base64 = match self.verb {
            MetaVerb::Debug => is_debug_base64(self.words),
            _ => flags::has(self.words, b'b'),
        };
        if is_base64 { base64::decode(self.key) } else { None }
    }
}

/// me accepts the flag only as its first word, alone.
fn is_debug_base64(words: &[u8]) -> bool {
    split_word(words).is_some_and(|(first, _)| first == b"b")
}

impl<'a> Line<'a> {
    /// Parses a meta command after its name.
    pub(super) fn meta(&self, verb: MetaVerb, rest: &'a [u8], limits: &Limits) -> NextCommand<'a> {
        let rest = &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())];
        let Some((key, words)) = split_word(rest) else {
            let is_debug = verb == MetaVerb::Debug;
            return self.reject(if is_debug { Reply::BadFormat } else { Reply::Error }, false);
        };
        if key.len() > Limits::KEY_MAX_BYTES {
            return self.reject(Reply::BadFormat, false);
        }
        let meta = Meta { verb, key, words, value: &[] };
        if verb == MetaVerb::Debug {
            return match is_debug_base64(words) && base64::decode(key).is_none() {
                true => self.reject(Reply::BadFormat, false),
                false => self.done(Command::Meta(meta)),
            };
        }
        if verb == MetaVerb::Set && split_word(words).is_none() {
            return self.reject(Reply::BadFormat, false);
        }
        if flags::count(words) + 2 > WORDS_MAX {
            return self.reject(too_many_flags(verb), false);
        }
        if verb == MetaVerb::Set {
            return self.meta_set(meta, limits);
        }
        match MetaFlags::default().read(words, key, verb) {
            Ok(()) => self.done(Command::Meta(meta)),
            Err(reply) => self.reject(reply, false),
        }
    }

    /// ms: a length, flags, and a data block that is skipped if the flags are wrong.
    fn meta_set(&self, meta: Meta<'a>, limits: &Limits) -> NextCommand<'a> {
        let Some((len, words)) = split_word(meta.words) else {
            return self.reject(Reply::BadFormat, false);
        };
        let Some(len_bytes) = parse_unsigned(len).filter(|len| *len <= DATA_MAX_BYTES) else {
            return self.reject(Reply::BadFormat, false);
        };
        let mut flags = MetaFlags::default();
        if let Err(reply) = flags.read(words, meta.key, MetaVerb::Set) {
            return self.refuse_block(reply, len_bytes, None);
        }
        if len_bytes > limits.value_max_bytes as u64 {
            let delete = Some((meta.key, flags.is_base64));
            return self.refuse_block(Reply::TooLarge, len_bytes, delete);
        }
        let value_end = self.next_at + len_bytes as usize;
        let Some(block) = self.input.get(self.next_at..value_end + 2) else {
            return Parsed::NeedMore { at_least_bytes: value_end + 2 };
        };
        let (value, end) = block.split_at(len_bytes as usize);
        let value = if end == b"\r\n" {
            Ok(Command::Meta(Meta { words, value, ..meta }))
        } else {
            Err(Rejection::of(Reply::BadDataChunk))
        };
        Parsed::Done { value, consumed_bytes: value_end + 2 }
    }

    /// The data block of a refused ms is skipped.
    fn refuse_block(
        &self,
        reply: Reply,
        len_bytes: u64,
        delete: Option<(&'a [u8], bool)>,
    ) -> NextCommand<'a> {
        let rejection = Rejection {
            swallow_bytes: len_bytes + 2,
            delete_key: delete.map(|(key, _)| key),
            is_key_base64: delete.is_some_and(|(_, is_base64)| is_base64),
            ..Rejection::of(reply)
        };
        Parsed::Done { value: Err(rejection), consumed_bytes: self.next_at }
    }
}

fn too_many_flags(verb: MetaVerb) -> Reply {
    if verb == MetaVerb::Get { Reply::TooManyFlags } else { Reply::TooManyFlagsToWrite }
}

#[cfg(test)]
mod tests;
