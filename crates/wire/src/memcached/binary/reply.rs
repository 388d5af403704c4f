//! Responses of the binary protocol.

use super::{Head, RESPONSE_MAGIC};

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Success.
    Done = 0x00,
    /// There is no such key.
    NotFound = 0x01,
    /// The key exists, or it has another token.
    Exists = 0x02,
    /// The value is too long.
    TooLarge = 0x03,
    /// The request contradicts its opcode.
    Invalid = 0x04,
    /// There is no value to append to.
    NotStored = 0x05,
    /// The value is not a number.
    NotNumeric = 0x06,
    /// Not logged in, or a wrong password.
    AuthError = 0x20,
    /// The mechanism needs another step.
    AuthContinue = 0x21,
    /// No such opcode.
    UnknownCommand = 0x81,
    /// No memory.
    OutOfMemory = 0x82,
    /// The server cannot execute it. memcached has no such case.
    Internal = 0x84,
    /// It cannot be executed now. memcached has no such case.
    Temporary = 0x86,
}

impl Status {
    /// The body of a response that has no other.
    pub fn text(self) -> &'static str {
        match self {
            Status::Done | Status::AuthContinue => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NotNumeric => "Non-numeric server-side value for incr or decr",
            Status::AuthError => "Auth failure.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
            Status::Internal => "Internal error",
            Status::Temporary => "Temporary failure",
        }
    }
}

/// Appends responses to one request to `out`.
#[derive(Debug)]
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    head: Head,
}

impl<'o> Encoder<'o> {
    /// An encoder; costs nothing to make.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, head: Head) -> Encoder<'o> {
        Encoder { out, head }
    }

    /// The fixed part; `lens` are the lengths of extras, key and value.
    #[inline]
    fn header(&mut self, status: Status, cas: u64, lens: (u8, usize, usize)) {
        let (extras_len, key_len, value_len) = lens;
        let body_len = usize::from(extras_len) + key_len + value_len;
        let [key0, key1] = (key_len as u16).to_be_bytes();
        let [status0, status1] = (status as u16).to_be_bytes();
        self.out.extend_from_slice(&[
            RESPONSE_MAGIC,
            self.head.opcode,
            key0,
            key1,
            extras_len,
            0,
            status0,
            status1,
        ]);
        self.out.extend_from_slice(&(body_len as u32).to_be_bytes());
        self.out.extend_from_slice(&self.head.opaque);
        self.out.extend_from_slice(&cas.to_be_bytes());
    }

    /// An item without its value, which follows separately; `key` for getk and gatk.
    #[inline]
    pub fn item_front(&mut self, flags: u32, cas: u64, key: &[u8], value_len: usize) {
        self.header(Status::Done, cas, (4, key.len(), value_len));
        self.out.extend_from_slice(&flags.to_be_bytes());
        self.out.extend_from_slice(key);
    }

    /// Success; the item has this token now.
    #[inline]
    pub fn done(&mut self, cas: u64) {
        self.header(Status::Done, cas, (0, 0, 0));
    }

    /// The answer of increment and decrement.
    pub fn number(&mut self, number: u64, cas: u64) {
        self.header(Status::Done, cas, (0, 0, 8));
        self.out.extend_from_slice(&number.to_be_bytes());
    }

    /// Success, with this text.
    pub fn text(&mut self, text: &str) {
        self.refuse_with(Status::Done, text);
    }

    /// A failure, with the status's text.
    #[inline]
    pub fn refuse(&mut self, status: Status) {
        self.refuse_with(status, status.text());
    }

    /// A failure with another text.
    pub fn refuse_with(&mut self, status: Status, text: &str) {
        self.header(status, 0, (0, 0, text.len()));
        self.out.extend_from_slice(text.as_bytes());
    }

    /// getk, gatk: the key does not exist; repeats the key.
    pub fn key_not_found(&mut self, key: &[u8]) {
        self.header(Status::NotFound, 0, (0, key.len(), 0));
        self.out.extend_from_slice(key);
    }

    /// One statistic of many; [`Encoder::done`] ends them.
    pub fn stat(&mut self, name: &str, value: &str) {
        self.header(Status::Done, 0, (0, name.len(), value.len()));
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(value.as_bytes());
    }
}
