//! Parses the answers to memcached's meta commands, and the lines of its list of keys.
//!
//! ```text
//!  key=any%20bytes exp=1700000000 la=... cas=... fetch=no cls=1 size=63      a line of metadump
//!  VA 5 f7 t-1 / HD s5 t60 f0 / EN / NS                                      answers to mg and ms
//! ```

use std::io::BufRead;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::address::percent_decoded;
use crate::resp::{ReplyError, expect_line_end, number, read_exactly, read_line};

/// memcached's own limit.
pub const KEY_MAX_BYTES: usize = 250;
/// The longest line: a percent-encoded key of metadump, and the fields after it.
const LINE_MAX_BYTES: u64 = 4 << 10;
/// memcached's `-I` goes up to 1 GiB.
const VALUE_MAX_BYTES: u64 = 1 << 30;

/// A line of `lru_crawler metadump all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The key of an item.
    Key(Vec<u8>),
    /// The last line.
    End,
    /// A refusal.
    Refused(Vec<u8>),
}

/// An answer to `mg` or `ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaReply {
    /// `VA`, `HD`, `EN`, `NS`, or all of a refusal's line.
    pub status: Vec<u8>,
    /// The length of the value, after `VA`.
    pub value: Option<Vec<u8>>,
    /// `f`: the client's flags.
    pub flags: u32,
    /// `s`: bytes of the value.
    pub size_bytes: u64,
    /// `t`: remaining seconds; -1: no expiry.
    pub left_seconds: i64,
}

/// Reads one line of the list.
pub fn read_listed(input: &mut impl BufRead) -> Result<Listed, ReplyError> {
    let line = read_line(input, LINE_MAX_BYTES)?;
    if line == b"END" {
        return Ok(Listed::End);
    }
    let Some(rest) = line.strip_prefix(b"key=") else { return Ok(Listed::Refused(line)) };
    let word = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
    match percent_decoded(word) {
        Some(key) if !key.is_empty() && key.len() <= KEY_MAX_BYTES => Ok(Listed::Key(key)),
        _ => Err(ReplyError::Malformed(line)),
    }
}

/// Reads one answer to `mg` or `ms`.
pub fn read_meta(input: &mut impl BufRead) -> Result<MetaReply, ReplyError> {
    let line = read_line(input, LINE_MAX_BYTES)?;
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let status = words.next().unwrap_or_default();
    if !matches!(status, b"VA" | b"HD" | b"EN" | b"NS") {
        return Ok(MetaReply { status: line, ..MetaReply::default() });
    }
    let mut reply = MetaReply { status: status.to_vec(), left_seconds: -1, ..MetaReply::default() };
    let len = if status == b"VA" { Some(words.next().and_then(number)) } else { None };
    for word in words {
        let Some((name, text)) = word.split_first() else { continue };
        let is_read = match name {
            b'f' => number(text).map(|flags| reply.flags = flags),
            b's' => number(text).map(|size| reply.size_bytes = size),
            b't' => number(text).map(|left| reply.left_seconds = left),
            _ => Some(()),
        };
        if is_read.is_none() {
            return Err(ReplyError::Malformed(line));
        }
    }
    match len {
        Some(Some(len)) if len <= VALUE_MAX_BYTES => {
            reply.value = Some(read_exactly(input, len)?);
            expect_line_end(input)?;
            reply.size_bytes = len;
        }
        Some(_) => return Err(ReplyError::Malformed(line)),
        None => {}
    }
    Ok(reply)
}

/// The form of a key on a command line, and the flag after it if it is in base64. `None`: too long.
pub(crate) fn key_word(key: &[u8]) -> Option<(Vec<u8>, &'static str)> {
    let is_plain = key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    let word = if is_plain { key.to_vec() } else { STANDARD.encode(key).into_bytes() };
    let flag = if is_plain { "" } else { " b" };
    (!word.is_empty() && word.len() <= KEY_MAX_BYTES).then_some((word, flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_1_6_18_is_read() {
        let text = b"key=a%20b%00 exp=-1 la=1700000000 cas=3 fetch=no cls=1 size=63\nEND\r\n";
        let mut input = &text[..];
        assert_eq!(read_listed(&mut input).expect("a key"), Listed::Key(b"a b\0".to_vec()));
        assert_eq!(read_listed(&mut input).expect("the end"), Listed::End);
        let mut input = &b"BUSY currently processing crawler request\r\n"[..];
        assert!(matches!(read_listed(&mut input), Ok(Listed::Refused(_))));
        let mut input = &b"key=%zz exp=0\n"[..];
        assert!(matches!(read_listed(&mut input), Err(ReplyError::Malformed(_))));
    }

    #[test]
    fn meta_answers_are_read() {
        let mut input = &b"VA 4 f7 t90\r\na\r\nb\r\nEN\r\nHD s12 t-1\r\nERROR\r\n"[..];
        let value = read_meta(&mut input).expect("a value");
        assert_eq!(value.value.as_deref(), Some(&b"a\r\nb"[..]));
        assert_eq!((value.flags, value.left_seconds, value.size_bytes), (7, 90, 4));
        assert_eq!(read_meta(&mut input).expect("no item").status, b"EN");
        let head = read_meta(&mut input).expect("a head");
        assert_eq!((head.size_bytes, head.left_seconds), (12, -1));
        assert_eq!(read_meta(&mut input).expect("a refusal").status, b"ERROR");
        let mut input = &b"VA x\r\n"[..];
        assert!(matches!(read_meta(&mut input), Err(ReplyError::Malformed(_))));
    }

    #[test]
    fn keys_with_other_bytes_stand_in_base64() {
        assert_eq!(key_word(b"plain"), Some((b"plain".to_vec(), "")));
        assert_eq!(key_word(b"a b"), Some((b"YSBi".to_vec(), " b")));
        assert_eq!(key_word(&[0x80; 187]).map(|(word, _)| word.len()), Some(187));
        assert_eq!(key_word(&[b' '; 188]), None);
        assert_eq!(key_word(b""), None);
    }
}
