//! Replies of the text protocol.

/// A reply that is one fixed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// `STORED`
    Stored,
    /// `NOT_STORED`
    NotStored,
    /// `EXISTS`
    Exists,
    /// `NOT_FOUND`
    NotFound,
    /// `DELETED`
    Deleted,
    /// `TOUCHED`
    Touched,
    /// `OK`
    Ok,
    /// `END`
    End,
    /// `RESET`
    Reset,
    /// `MN`
    MetaNoop,
    /// `ERROR`
    Error,
    /// `ERROR: shutdown not enabled`
    ShutdownDisabled,
    /// `CLIENT_ERROR bad command line format`
    BadFormat,
    /// `CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]`
    BadDelete,
    /// `CLIENT_ERROR bad data chunk`
    BadDataChunk,
    /// `CLIENT_ERROR invalid exptime argument`
    InvalidExptime,
    /// `CLIENT_ERROR invalid numeric delta argument`
    InvalidDelta,
    /// `CLIENT_ERROR cannot increment or decrement non-numeric value`
    NotNumeric,
    /// `CLIENT_ERROR line too long`
    LineTooLong,
    /// `SERVER_ERROR object too large for cache`
    TooLarge,
    /// `SERVER_ERROR out of memory storing object`
    OutOfMemory,
    /// `SERVER_ERROR not all of the cluster is flushed: ask again`
    NotFlushed,
    /// `SERVER_ERROR the log cannot be written`: the server is durable and its disk is not well.
    LogFailed,
}

impl Reply {
    /// The line, CRLF included.
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Reply::Stored => b"STORED\r\n",
            Reply::NotStored => b"NOT_STORED\r\n",
            Reply::Exists => b"EXISTS\r\n",
            Reply::NotFound => b"NOT_FOUND\r\n",
            Reply::Deleted => b"DELETED\r\n",
            Reply::Touched => b"TOUCHED\r\n",
            Reply::Ok => b"OK\r\n",
            Reply::End => b"END\r\n",
            Reply::Reset => b"RESET\r\n",
            Reply::MetaNoop => b"MN\r\n",
            Reply::Error => b"ERROR\r\n",
            Reply::ShutdownDisabled => b"ERROR: shutdown not enabled\r\n",
            Reply::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Reply::BadDelete => {
                b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
            }
            Reply::BadDataChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Reply::InvalidExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Reply::InvalidDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Reply::NotNumeric => {
                b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
            }
            Reply::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            Reply::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Reply::OutOfMemory => b"SERVER_ERROR out of memory storing object\r\n",
            Reply::NotFlushed => b"SERVER_ERROR not all of the cluster is flushed: ask again\r\n",
            Reply::LogFailed => b"SERVER_ERROR the log cannot be written\r\n",
        }
    }
}

/// `VALUE`, three numbers of 20 digits, four spaces and CRLF: the line without its key.
const VALUE_LINE_MAX_BYTES: usize = 71;

/// Appends replies to `out`.
#[derive(Debug)]
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Encoder<'o> {
    /// An encoder; costs nothing to make.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Encoder<'o> {
        Encoder { out }
    }

    /// A fixed line.
    #[inline]
    pub fn reply(&mut self, reply: Reply) {
        self.out.extend_from_slice(reply.bytes());
    }

    /// A whole `VALUE` block; `cas` for gets and gats.
    #[inline]
    pub fn value(&mut self, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
        self.out.reserve(key.len() + VALUE_LINE_MAX_BYTES + value.len() + b"\r\n".len());
        self.value_header(key, flags, cas, value.len());
        self.out.extend_from_slice(value);
        self.line_end();
    }

    /// Only the `VALUE` line: the body follows from elsewhere, then [`Encoder::line_end`].
    #[inline]
    pub fn value_header(&mut self, key: &[u8], flags: u32, cas: Option<u64>, len_bytes: usize) {
        self.out.reserve(key.len() + VALUE_LINE_MAX_BYTES);
        self.out.extend_from_slice(b"VALUE ");
        self.out.extend_from_slice(key);
        self.out.push(b' ');
        self.digits(u64::from(flags));
        self.out.push(b' ');
        self.digits(len_bytes as u64);
        if let Some(cas) = cas {
            self.out.push(b' ');
            self.digits(cas);
        }
        self.line_end();
    }

    /// The answer to `config get cluster`: the configuration's number and its nodes, each as
    /// `host|ip|port`. The length does not count the last CRLF, as nowhere in this protocol.
    pub fn cluster_config<'n>(
        &mut self,
        version: u64,
        nodes: impl IntoIterator<Item = (&'n str, u16)>,
    ) {
        let mut text = format!("{version}\n");
        for (index, (host, port)) in nodes.into_iter().enumerate() {
            let blank = if index == 0 { "" } else { " " };
            let ip = if host.parse::<std::net::IpAddr>().is_ok() { host } else { "" };
            text.push_str(&format!("{blank}{host}|{ip}|{port}"));
        }
        text.push('\n');
        self.out.extend_from_slice(format!("CONFIG cluster 0 {}\r\n{text}", text.len()).as_bytes());
        self.line_end();
        self.reply(Reply::End);
    }

    /// CRLF: ends a value whose body was appended apart from its header.
    #[inline]
    pub fn line_end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// A line with only a number: the answer of incr and decr.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.digits(number);
        self.line_end();
    }

    /// `STAT name value`; END is [`Reply::End`].
    pub fn stat(&mut self, name: &str, value: impl std::fmt::Display) {
        use std::io::Write;
        write!(self.out, "STAT {name} {value}\r\n").expect("a vector takes every write");
    }

    /// `VERSION text`.
    pub fn version(&mut self, text: &str) {
        self.out.extend_from_slice(b"VERSION ");
        self.out.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// `SERVER_ERROR text`.
    pub fn server_error(&mut self, text: &str) {
        self.out.extend_from_slice(b"SERVER_ERROR ");
        self.out.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// Decimal; one and two digits, the usual flags and lengths, without a call.
    #[inline]
    fn digits(&mut self, number: u64) {
        let digit = |digit: u64| b'0' + (digit % 10) as u8;
        if number < 10 {
            self.out.push(digit(number));
        } else if number < 100 {
            self.out.extend_from_slice(&[digit(number / 10), digit(number)]);
        } else {
            self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoder, Reply};

    #[track_caller]
    fn check(encode: impl Fn(&mut Encoder<'_>), want: &str) {
        let mut out = Vec::new();
        encode(&mut Encoder::new(&mut out));
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn a_cluster_is_told_as_managed_caches_tell_it() {
        let mut out = Vec::new();
        let nodes = [("10.0.0.7", 11211), ("cache-2.example", 11212)];
        Encoder::new(&mut out).cluster_config(12, nodes);
        let want = "CONFIG cluster 0 50\r\n12\n10.0.0.7|10.0.0.7|11211 cache-2.example||11212\n\r\n\
                    END\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn values_carry_flags_length_and_token() {
        check(|e| e.value(b"k", 7, None, b"abc"), "VALUE k 7 3\r\nabc\r\n");
        check(|e| e.value(b"k", u32::MAX, Some(9), b""), "VALUE k 4294967295 0 9\r\n\r\n");
        check(|e| e.value_header(b"k", 0, Some(1), 5), "VALUE k 0 5 1\r\n");
    }

    #[test]
    fn the_other_replies_are_lines() {
        check(|e| e.reply(Reply::Stored), "STORED\r\n");
        for number in [0, 9, 10, 99, 100, 12_345] {
            check(|e| e.number(number), &format!("{number}\r\n"));
        }
        check(|e| e.number(u64::MAX), "18446744073709551615\r\n");
        check(|e| e.stat("curr_items", 5), "STAT curr_items 5\r\n");
        check(|e| e.version("1.6.18"), "VERSION 1.6.18\r\n");
        check(|e| e.server_error("x"), "SERVER_ERROR x\r\n");
    }
}
