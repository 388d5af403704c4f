//! Replies to meta commands: the requested fields, in the order of the request.
//!
//! ```text
//!  note of a request:  | kind 1 | key len 2 | key as it is answered | words |
//! ```
//!
//! The words and key of a request are noted when it is read, because the reply may be made by
//! another thread, or by another node of a cluster, after the line is gone.

use base::UnixMillis;

use super::super::reply::{Encoder, Reply};
use super::super::words::parse_signed;
use super::flags::Flags;
use super::{MetaVerb, base64, expiry_from_exptime, flags};

/// The parts of a request that its reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaEcho<'n> {
    is_base64: bool,
    token_base: u64,
    key: &'n [u8],
    words: &'n [u8],
}

/// An item as mg shows it.
#[derive(Clone, Copy, Debug)]
pub struct MetaShown {
    /// The length of the value.
    pub len_bytes: usize,
    /// The client flags as the client wrote them.
    pub client_flags: u32,
    /// The CAS token.
    pub version: u64,
    /// Its expiry before the command.
    pub expires_at: Option<UnixMillis>,
    /// Whether it was read since it was written, before the command.
    pub is_read: bool,
    /// Seconds since its last use, before the command.
    pub idle_seconds: u64,
    /// The command has created it.
    pub is_created: bool,
    /// W: this client is to make the new value.
    pub is_won: bool,
    /// X: the value is out of date.
    pub is_stale: bool,
    /// Z: another client is to make the new value.
    pub has_winner: bool,
}

impl<'n> MetaEcho<'n> {
    /// Appends the note of a request whose stored key is `key`; `token_base` is the part of a
    /// stored item's CAS token beside its version.
    pub fn note(
        (verb, words): (MetaVerb, &[u8]),
        (key, is_base64): (&[u8], bool),
        token_base: u64,
        note: &mut Vec<u8>,
    ) {
        note.push(u8::from(is_base64));
        note.extend_from_slice(&token_base.to_le_bytes());
        let len_at = note.len();
        note.extend([0; 2]);
        if verb == MetaVerb::Debug || flags::has(words, b'k') {
            match is_base64 {
                true => base64::encode(key, note),
                false => note.extend_from_slice(key),
            }
        }
        // A key has at most 250 bytes, in base64 a third more.
        let key_len = (note.len() - len_at - 2) as u16;
        note[len_at..len_at + 2].copy_from_slice(&key_len.to_le_bytes());
        note.extend_from_slice(words);
    }

    /// Parses a note; `None`: it is invalid.
    pub fn read(note: &'n [u8]) -> Option<MetaEcho<'n>> {
        let (is_base64, rest) = note.split_first()?;
        let (token_base, rest) = rest.split_first_chunk()?;
        let (key_len, rest) = rest.split_first_chunk()?;
        let (key, words) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
        let token_base = u64::from_le_bytes(*token_base);
        Some(MetaEcho { is_base64: *is_base64 == 1, token_base, key, words })
    }

    /// The part of a stored item's CAS token beside its version.
    pub fn token_base(&self) -> u64 {
        self.token_base
    }

    /// Whether there is a flag of that letter.
    pub fn has(&self, letter: u8) -> bool {
        flags::has(self.words, letter)
    }

    /// The key in the reply; only for me and where k is given.
    pub fn key(&self) -> &'n [u8] {
        self.key
    }
}

impl Encoder<'_> {
    /// The line of an item that mg found or created; with v its value follows, and
    /// [`Encoder::line_end`].
    pub fn meta_hit(&mut self, echo: &MetaEcho<'_>, shown: &MetaShown, now: UnixMillis) {
        self.meta_start(echo, shown.len_bytes);
        let mut expires_at = shown.expires_at;
        for word in Flags(echo.words) {
            let new_time = || expiry_from_exptime(parse_signed(&word[1..]).unwrap_or(0), now);
            match word[0] {
                b'T' => expires_at = new_time(),
                b'N' if shown.is_created => expires_at = new_time(),
                b's' => self.flag(b's', shown.len_bytes as u64),
                b't' => self.time_left(expires_at, now),
                b'c' => self.flag(b'c', shown.version),
                b'f' => self.flag(b'f', u64::from(shown.client_flags)),
                b'l' => self.flag(b'l', shown.idle_seconds),
                b'h' => self.flag(b'h', u64::from(shown.is_read)),
                _ => self.repeat(echo, word),
            }
        }
        for (is_so, letter) in
            [(shown.has_winner, b" Z"), (shown.is_stale, b" X"), (shown.is_won, b" W")]
        {
            if is_so {
                self.text(letter);
            }
        }
        self.line_end();
    }

    /// The start of a line before its flags; with v it has the length of the value.
    fn meta_start(&mut self, echo: &MetaEcho<'_>, len_bytes: usize) {
        if echo.has(b'v') {
            self.text(b"VA ");
            self.digits(len_bytes as u64);
        } else {
            self.text(b"HD");
        }
    }

    /// A reply of two letters, with the fields that every reply repeats; `version` where it is
    /// requested.
    pub fn meta_status(&mut self, status: &[u8; 2], echo: &MetaEcho<'_>, version: Option<u64>) {
        self.text(status);
        for word in Flags(echo.words) {
            match (word[0], version) {
                (b'c', Some(version)) => self.flag(b'c', version),
                _ => self.repeat(echo, word),
            }
        }
        self.line_end();
    }

    /// The reply of ma with a number.
    pub fn meta_number(
        &mut self,
        echo: &MetaEcho<'_>,
        number: &[u8],
        shown: &MetaShown,
        now: UnixMillis,
    ) {
        self.meta_start(echo, number.len());
        let mut expires_at = shown.expires_at;
        for word in Flags(echo.words) {
            let new_time = || expiry_from_exptime(parse_signed(&word[1..]).unwrap_or(0), now);
            match word[0] {
                b'T' => expires_at = new_time(),
                b'N' if shown.is_created => expires_at = new_time(),
                b't' => self.time_left(expires_at, now),
                b'c' => self.flag(b'c', shown.version),
                _ => self.repeat(echo, word),
            }
        }
        self.line_end();
        if echo.has(b'v') {
            self.text(number);
            self.line_end();
        }
    }

    /// The reply of me: an item of `size_bytes`.
    pub fn meta_debug(
        &mut self,
        echo: &MetaEcho<'_>,
        shown: &MetaShown,
        size_bytes: usize,
        now: UnixMillis,
    ) {
        self.text(b"ME ");
        self.text(echo.key);
        self.text(b" exp=");
        self.seconds_left(shown.expires_at, now);
        self.text(b" la=");
        self.digits(shown.idle_seconds);
        self.text(b" cas=");
        self.digits(shown.version);
        self.text(if shown.is_read { b" fetch=yes" } else { b" fetch=no" });
        self.text(b" cls=1 size=");
        self.digits(size_bytes as u64);
        self.line_end();
    }

    /// EN alone.
    pub fn meta_debug_miss(&mut self) {
        self.reply(Reply::MetaMiss);
    }

    fn repeat(&mut self, echo: &MetaEcho<'_>, word: &[u8]) {
        match word[0] {
            b'O' => {
                self.text(b" ");
                self.text(word);
            }
            b'k' => {
                self.text(b" k");
                self.text(echo.key);
                if echo.is_base64 {
                    self.text(b" b");
                }
            }
            _ => {}
        }
    }

    fn flag(&mut self, letter: u8, number: u64) {
        self.text(&[b' ', letter]);
        self.digits(number);
    }

    fn time_left(&mut self, expires_at: Option<UnixMillis>, now: UnixMillis) {
        self.text(b" t");
        self.seconds_left(expires_at, now);
    }

    fn seconds_left(&mut self, expires_at: Option<UnixMillis>, now: UnixMillis) {
        match expires_at {
            None => self.text(b"-1"),
            // As memcached counts, an item has one second left until it expires.
            Some(at) => self.digits(at.0.saturating_sub(now.0).div_ceil(1000)),
        }
    }
}
