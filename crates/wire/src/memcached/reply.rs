//! Replies of the text protocol.

use super::command::Limits;
use super::meta::base64;

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
    /// `EN`
    MetaMiss,
    /// `ERROR`
    Error,
    /// `ERROR: shutdown not enabled`
    ShutdownDisabled,
    /// `CLIENT_ERROR invalid shutdown mode`
    InvalidShutdown,
    /// `Error TLS not enabled`
    TlsDisabled,
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
    /// `CLIENT_ERROR options flags are too long`
    TooManyFlags,
    /// `CLIENT_ERROR options flags too long`
    TooManyFlagsToWrite,
    /// `CLIENT_ERROR duplicate flag`
    DuplicateFlag,
    /// `CLIENT_ERROR invalid flag`
    InvalidFlag,
    /// `CLIENT_ERROR invalid or duplicate flag`
    InvalidOrDuplicateFlag,
    /// `CLIENT_ERROR error decoding key`
    BadKey,
    /// `CLIENT_ERROR bad token in command line format`
    BadToken,
    /// `CLIENT_ERROR incorrect length for M token`
    BadModeLength,
    /// `CLIENT_ERROR invalid mode for ms M token`
    InvalidSetMode,
    /// `CLIENT_ERROR invalid mode for ma M token`
    InvalidArithmeticMode,
    /// `CLIENT_ERROR invalid numeric initial value`
    InvalidInitial,
    /// `CLIENT_ERROR invalid numeric delta value`
    InvalidDeltaValue,
    /// `CLIENT_ERROR opaque token too long`
    OpaqueTooLong,
    /// `CLIENT_ERROR watch commands not allowed`
    NoWatchers,
    /// `CLIENT_ERROR lru crawler disabled`
    NoCrawler,
    /// `CLIENT_ERROR slab reassignment disabled`
    NoSlabs,
    /// `CLIENT_ERROR bad command line`
    BadLine,
    /// `CLIENT_ERROR Illegal slab id`
    NoSuchClass,
    /// `CLIENT_ERROR usage: stats detail on|off|dump`
    DetailUsage,
    /// `MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m`
    LimitTooSmall,
    /// `MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes`
    LimitInBytes,
    /// `CLIENT_ERROR line too long`
    LineTooLong,
    /// `SERVER_ERROR object too large for cache`
    TooLarge,
    /// `SERVER_ERROR reply beyond udp-reply-factor: use TCP`, for a case that memcached does not
    /// have
    TooLargeForUdp,
    /// `SERVER_ERROR out of memory storing object`
    OutOfMemory,
    /// `SERVER_ERROR out of memory writing get response`
    NoRoomForValue,
    /// `SERVER_ERROR not all of the cluster is flushed: ask again`
    NotFlushed,
    /// `SERVER_ERROR the log cannot be written`: the server is durable and its disk fails.
    LogFailed,
}

/// The facts about an item in a line of `lru_crawler metadump`, beside its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpedFacts {
    /// Seconds since 1970; `None`: never.
    pub expires_at_s: Option<u64>,
    /// Seconds since 1970; 0: unknown.
    pub used_at_s: u64,
    /// It was read since it was written.
    pub is_read: bool,
    /// CAS token.
    pub version: u64,
    /// Its size in the log.
    pub size_bytes: usize,
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
            Reply::MetaMiss => b"EN\r\n",
            Reply::Error => b"ERROR\r\n",
            Reply::ShutdownDisabled => b"ERROR: shutdown not enabled\r\n",
            Reply::InvalidShutdown => b"CLIENT_ERROR invalid shutdown mode\r\n",
            Reply::TlsDisabled => b"Error TLS not enabled\r\n",
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
            Reply::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Reply::TooManyFlagsToWrite => b"CLIENT_ERROR options flags too long\r\n",
            Reply::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Reply::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Reply::InvalidOrDuplicateFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Reply::BadKey => b"CLIENT_ERROR error decoding key\r\n",
            Reply::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Reply::BadModeLength => b"CLIENT_ERROR incorrect length for M token\r\n",
            Reply::InvalidSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Reply::InvalidArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Reply::InvalidInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Reply::InvalidDeltaValue => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Reply::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Reply::NoWatchers => b"CLIENT_ERROR watch commands not allowed\r\n",
            Reply::NoCrawler => b"CLIENT_ERROR lru crawler disabled\r\n",
            Reply::NoSlabs => b"CLIENT_ERROR slab reassignment disabled\r\n",
            Reply::BadLine => b"CLIENT_ERROR bad command line\r\n",
            Reply::NoSuchClass => b"CLIENT_ERROR Illegal slab id\r\n",
            Reply::DetailUsage => b"CLIENT_ERROR usage: stats detail on|off|dump\r\n",
            Reply::LimitTooSmall => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
            Reply::LimitInBytes => b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
            Reply::LineTooLong => b"CLIENT_ERROR line too long\r\n",
            Reply::TooLarge => b"SERVER_ERROR object too large for cache\r\n",
            Reply::TooLargeForUdp => b"SERVER_ERROR reply beyond udp-reply-factor: use TCP\r\n",
            Reply::OutOfMemory => b"SERVER_ERROR out of memory storing object\r\n",
            Reply::NoRoomForValue => b"SERVER_ERROR out of memory writing get response\r\n",
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
    /// `host|ip|port`. As everywhere in this protocol, the length excludes the last CRLF.
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

    /// A line of `stats cachedump`; a key that would break the line is left out.
    pub fn dumped_item(&mut self, key: &[u8], value_len_bytes: usize, expires_at_s: Option<u64>) {
        if key.is_empty() || key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return;
        }
        for part in [b"ITEM ", key, b" ["] {
            self.text(part);
        }
        self.digits(value_len_bytes as u64);
        self.text(b" b; ");
        self.digits(expires_at_s.unwrap_or(0));
        self.text(b" s]\r\n");
    }

    /// A line of `lru_crawler metadump`: `key` percent-encoded.
    pub fn dumped_facts(&mut self, key: &[u8], facts: DumpedFacts) {
        let mut name = String::new();
        super::push_uri_encoded(key, &mut name);
        self.text(b"key=");
        self.text(name.as_bytes());
        self.text(b" exp=");
        match facts.expires_at_s {
            None => self.text(b"-1"),
            Some(at) => self.digits(at),
        }
        self.text(b" la=");
        self.digits(facts.used_at_s);
        self.text(b" cas=");
        self.digits(facts.version);
        self.text(if facts.is_read { b" fetch=yes" } else { b" fetch=no" });
        self.text(b" cls=1 size=");
        self.digits(facts.size_bytes as u64);
        self.text(b"\n");
    }

    /// A line of `lru_crawler mgdump`: the command that gets the item.
    pub fn dumped_get(&mut self, key: &[u8]) {
        self.text(b"mg ");
        let is_plain = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        if key.iter().all(is_plain) && key.len() <= Limits::KEY_MAX_BYTES {
            self.text(key);
        } else {
            base64::encode(key, self.out);
            self.text(b" b");
        }
        self.line_end();
    }

    /// `VERSION text`.
    pub fn version(&mut self, text: &str) {
        self.out.extend_from_slice(b"VERSION ");
        self.out.extend_from_slice(text.as_bytes());
        self.line_end();
    }

    /// `MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust: text`
    pub fn limit_refused(&mut self, text: &str) {
        self.text(b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust: ");
        self.text(text.as_bytes());
        self.line_end();
    }

    /// `Error text`, for certificates that could not be read.
    pub fn certificate_error(&mut self, text: &str) {
        self.text(b"Error ");
        self.text(text.as_bytes());
        self.line_end();
    }

    /// Appends the text unchanged.
    #[inline]
    pub(super) fn text(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    /// Decimal; one and two digits, the usual flags and lengths, without a call.
    #[inline]
    pub(super) fn digits(&mut self, number: u64) {
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
    use super::{DumpedFacts, Encoder, Reply};

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
        let line = "key=a%20b exp=-1 la=0 cas=7 fetch=no cls=1 size=24\n";
        let facts = DumpedFacts { version: 7, size_bytes: 24, ..DumpedFacts::default() };
        check(|e| e.dumped_facts(b"a b", facts), line);
        let facts = DumpedFacts { used_at_s: 9, is_read: true, expires_at_s: Some(8), ..facts };
        let line = "key=k exp=8 la=9 cas=7 fetch=yes cls=1 size=24\n";
        check(|e| e.dumped_facts(b"k", facts), line);
        check(|e| e.dumped_get(b"a"), "mg a\r\n");
        check(|e| e.dumped_get(b"a b"), "mg YSBi b\r\n");
    }
}
