//! `Encoder`: appends replies to a byte vector, in the connection's protocol version.

use super::error::ErrorReply;

/// The length of `$`, 20 digits, CRLF, and the CRLF after the bytes.
const BULK_FRAME_MAX_BYTES: usize = 25;

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The default.
    #[default]
    Resp2,
    /// After HELLO 3.
    Resp3,
}

/// Appends replies to `out`. Does not check that a header is followed by the stated number of
/// items.
#[derive(Debug)]
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    protocol: Protocol,
}

impl<'o> Encoder<'o> {
    /// An encoder; costs nothing to make.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, protocol: Protocol) -> Encoder<'o> {
        Encoder { out, protocol }
    }

    /// The protocol version.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The bytes so far.
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `+text`; the text has no line end.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// An error reply.
    #[cold]
    pub fn error(&mut self, error: &ErrorReply) {
        error.encode(self.out);
    }

    /// `:number`.
    #[inline]
    pub fn integer(&mut self, number: i64) {
        match u64::try_from(number) {
            Ok(number) => self.header(b':', number),
            Err(_) => self.long_header(b':', number),
        }
    }

    /// A whole bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + BULK_FRAME_MAX_BYTES);
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.line_end();
    }

    /// Only `$len CRLF`: the body follows from elsewhere, then [`Encoder::line_end`].
    #[inline]
    pub fn bulk_header(&mut self, len_bytes: usize) {
        self.length(b'$', len_bytes);
    }

    /// CRLF: ends a bulk whose body was appended apart from its header.
    #[inline]
    pub fn line_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// No value: `$-1` or `_`.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// No array: `*-1` or `_`.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// `item_count` items follow.
    #[inline]
    pub fn array_header(&mut self, item_count: usize) {
        self.length(b'*', item_count);
    }

    /// `pair_count` keys and values follow; in RESP2 a flat array.
    pub fn map_header(&mut self, pair_count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.length(b'*', pair_count * 2),
            Protocol::Resp3 => self.length(b'%', pair_count),
        }
    }

    /// `item_count` different items follow; in RESP2 an array.
    pub fn set_header(&mut self, item_count: usize) {
        let marker = if self.protocol == Protocol::Resp3 { b'~' } else { b'*' };
        self.length(marker, item_count);
    }

    /// `item_count` items follow that no request asked for; in RESP2 an array.
    pub fn push_header(&mut self, item_count: usize) {
        let marker = if self.protocol == Protocol::Resp3 { b'>' } else { b'*' };
        self.length(marker, item_count);
    }

    /// A truth value; 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
        });
    }

    /// A floating point number; a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = super::number::double_text(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(text.as_bytes());
                self.line_end();
            }
        }
    }

    /// Text for people (`txt`); a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text);
                self.line_end();
            }
        }
    }

    #[inline]
    fn length(&mut self, marker: u8, count: usize) {
        self.header(marker, count as u64);
    }

    /// `marker number CRLF`. Numbers of one and two digits, which nearly all are, are appended as
    /// one array of a known size.
    #[inline]
    fn header(&mut self, marker: u8, number: u64) {
        let digit = |digit: u64| b'0' + (digit % 10) as u8;
        if number < 10 {
            self.out.extend_from_slice(&[marker, digit(number), b'\r', b'\n']);
        } else if number < 100 {
            let line = [marker, digit(number / 10), digit(number), b'\r', b'\n'];
            self.out.extend_from_slice(&line);
        } else {
            self.long_header(marker, number);
        }
    }

    #[inline(never)]
    fn long_header(&mut self, marker: u8, number: impl itoa::Integer) {
        self.out.push(marker);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.line_end();
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoder, ErrorReply, Protocol};

    #[track_caller]
    fn check(encode: impl Fn(&mut Encoder<'_>), resp2: &str, resp3: &str) {
        for (protocol, want) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = Vec::new();
            encode(&mut Encoder::new(&mut out, protocol));
            assert_eq!(String::from_utf8_lossy(&out), want, "{protocol:?}");
        }
    }

    #[test]
    fn what_both_versions_have_is_the_same_in_both() {
        let same = |encode: &dyn Fn(&mut Encoder<'_>), want: &str| check(encode, want, want);
        same(&|e| e.ok(), "+OK\r\n");
        same(&|e| e.simple("PONG"), "+PONG\r\n");
        same(&|e| e.integer(-5), ":-5\r\n");
        same(&|e| e.integer(0), ":0\r\n");
        same(&|e| e.integer(9), ":9\r\n");
        same(&|e| e.integer(10), ":10\r\n");
        same(&|e| e.integer(99), ":99\r\n");
        same(&|e| e.integer(100), ":100\r\n");
        same(&|e| e.integer(i64::MAX), ":9223372036854775807\r\n");
        same(&|e| e.integer(i64::MIN), ":-9223372036854775808\r\n");
        same(&|e| e.bulk(b""), "$0\r\n\r\n");
        same(&|e| e.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
        same(&|e| e.array_header(0), "*0\r\n");
        same(&|e| e.array_header(12), "*12\r\n");
        same(&|e| e.error(&ErrorReply::Syntax), "-ERR syntax error\r\n");
    }

    #[test]
    fn resp3_has_types_of_its_own() {
        check(|e| e.null(), "$-1\r\n", "_\r\n");
        check(|e| e.null_array(), "*-1\r\n", "_\r\n");
        check(|e| e.map_header(3), "*6\r\n", "%3\r\n");
        check(|e| e.set_header(3), "*3\r\n", "~3\r\n");
        check(|e| e.push_header(3), "*3\r\n", ">3\r\n");
        check(|e| e.boolean(true), ":1\r\n", "#t\r\n");
        check(|e| e.boolean(false), ":0\r\n", "#f\r\n");
        check(|e| e.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|e| e.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|e| e.verbatim(b"text"), "$4\r\ntext\r\n", "=8\r\ntxt:text\r\n");
    }

    #[test]
    fn a_bulk_in_parts_is_the_bulk_in_one() {
        let parts = |e: &mut Encoder<'_>| {
            e.bulk_header(5);
            e.out().extend_from_slice(b"hello");
            e.line_end();
        };
        check(parts, "$5\r\nhello\r\n", "$5\r\nhello\r\n");
    }
}
