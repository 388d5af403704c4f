//! The client's side of RESP2: requests to bytes, bytes to replies.
//!
//! # Limits
//! A bulk string has at most 1 GiB, an array at most 2^20 elements, and arrays nest at most 16
//! deep. Memory grows with the bytes received, not with the lengths that they claim.

use std::io::{self, BufRead, Read};

/// Redis takes 512 MiB; some setups more.
const BULK_MAX_BYTES: u64 = 1 << 30;
const ELEMENTS_MAX: u64 = 1 << 20;
const DEPTH_MAX: u32 = 16;
/// The longest line: an error's text, a number.
const LINE_MAX_BYTES: u64 = 64 << 10;

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(Vec<u8>),
    /// `-ERR ...`
    Error(Vec<u8>),
    /// `:1`
    Integer(i64),
    /// `$3`; `None` where there is nothing.
    Bulk(Option<Vec<u8>>),
    /// `*2`; `None` where there is nothing.
    Array(Option<Vec<Reply>>),
}

/// The reasons for which there is no reply.
#[derive(Debug)]
pub enum ReplyError {
    /// The connection's error, including its end.
    Io(io::Error),
    /// The bytes are not a reply.
    Malformed(Vec<u8>),
}

impl From<io::Error> for ReplyError {
    fn from(error: io::Error) -> ReplyError {
        ReplyError::Io(error)
    }
}

/// Appends a request of these words.
pub fn write_request(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads one reply.
pub fn read_reply(input: &mut impl BufRead) -> Result<Reply, ReplyError> {
    reply_at(input, 0)
}

fn reply_at(input: &mut impl BufRead, depth: u32) -> Result<Reply, ReplyError> {
    let line = read_line(input, LINE_MAX_BYTES)?;
    let Some((kind, text)) = line.split_first() else { return Err(ReplyError::Malformed(line)) };
    match kind {
        b'+' => Ok(Reply::Simple(text.to_vec())),
        b'-' => Ok(Reply::Error(text.to_vec())),
        b':' => number(text).map(Reply::Integer).ok_or(ReplyError::Malformed(line)),
        b'$' => match number(text) {
            Some(-1) => Ok(Reply::Bulk(None)),
            Some(len) if (0..=BULK_MAX_BYTES as i64).contains(&len) => {
                let bytes = read_exactly(input, len as u64)?;
                expect_line_end(input)?;
                Ok(Reply::Bulk(Some(bytes)))
            }
            _ => Err(ReplyError::Malformed(line)),
        },
        b'*' => match number(text) {
            Some(-1) => Ok(Reply::Array(None)),
            Some(count) if (0..=ELEMENTS_MAX as i64).contains(&count) && depth < DEPTH_MAX => {
                let elements = (0..count).map(|_| reply_at(input, depth + 1));
                elements.collect::<Result<_, _>>().map(|all| Reply::Array(Some(all)))
            }
            _ => Err(ReplyError::Malformed(line)),
        },
        _ => Err(ReplyError::Malformed(line)),
    }
}

/// A line without its end, which is LF or CR LF.
pub(crate) fn read_line(input: &mut impl BufRead, max_bytes: u64) -> Result<Vec<u8>, ReplyError> {
    let mut line = Vec::new();
    input.by_ref().take(max_bytes).read_until(b'\n', &mut line)?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        let is_long = line.len() as u64 == max_bytes;
        let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(if is_long { ReplyError::Malformed(line) } else { ReplyError::Io(ended) });
    }
    let _ = line.pop_if(|last| *last == b'\r');
    Ok(line)
}

/// Reads this many bytes; a false length takes no more memory than the bytes received.
pub(crate) fn read_exactly(input: &mut impl BufRead, len: u64) -> io::Result<Vec<u8>> {
    const AT_ONCE_BYTES: u64 = 64 << 10;
    let mut bytes = Vec::with_capacity(len.min(AT_ONCE_BYTES) as usize);
    input.by_ref().take(len).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

pub(crate) fn expect_line_end(input: &mut impl BufRead) -> Result<(), ReplyError> {
    let mut end = [0; 2];
    input.read_exact(&mut end)?;
    if &end == b"\r\n" { Ok(()) } else { Err(ReplyError::Malformed(end.to_vec())) }
}

/// Digits with a sign or without.
pub(crate) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mut bytes: &[u8], want: Reply) {
        assert_eq!(read_reply(&mut bytes).expect("a reply"), want);
        assert!(bytes.is_empty());
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        check(b"+OK\r\n", Reply::Simple(b"OK".to_vec()));
        check(b"-ERR no\r\n", Reply::Error(b"ERR no".to_vec()));
        check(b":-2\r\n", Reply::Integer(-2));
        check(b"$4\r\na\r\nb\r\n", Reply::Bulk(Some(b"a\r\nb".to_vec())));
        check(b"$-1\r\n", Reply::Bulk(None));
        check(b"*-1\r\n", Reply::Array(None));
        let inner = Reply::Array(Some(vec![Reply::Integer(1)]));
        check(b"*2\r\n*1\r\n:1\r\n$0\r\n\r\n", {
            Reply::Array(Some(vec![inner, Reply::Bulk(Some(Vec::new()))]))
        });
    }

    #[track_caller]
    fn check_malformed(mut bytes: &[u8]) {
        assert!(matches!(read_reply(&mut bytes), Err(ReplyError::Malformed(_))));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        check_malformed(b"\r\n");
        check_malformed(b"HTTP/1.1 400 Bad Request\r\n");
        check_malformed(b":x\r\n");
        check_malformed(b"$-2\r\n");
        check_malformed(b"$99999999999\r\n");
        check_malformed(b"$1\r\nabc");
        let deep = |depth: usize| [&b"*1\r\n".repeat(depth)[..], b":1\r\n"].concat();
        assert!(read_reply(&mut &deep(16)[..]).is_ok());
        check_malformed(&deep(17));
    }

    #[test]
    fn a_cut_reply_is_an_ended_connection() {
        for cut in [&b""[..], b"+O", b"$5\r\nab", b"*2\r\n:1\r\n"] {
            let mut bytes = cut;
            let found = read_reply(&mut bytes);
            assert!(
                matches!(&found, Err(ReplyError::Io(error))
                    if error.kind() == io::ErrorKind::UnexpectedEof),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_request_holds_any_bytes() {
        let mut out = Vec::new();
        write_request(&[b"SET", b"", b"a\r\n"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\na\r\n\r\n");
    }
}
