//! memcached's binary protocol as memcached 1.6.18 speaks it; see docs/formats/memcached-binary.md.
//!
//! ```text
//!  0     1      2        4      5    6       8        12      16    24
//!  | 80 | op | key len | ext  | 0  | vbucket | body len | opaque | cas | extras, key, value
//!  | 81 | op | key len | ext  | 0  | status  | body len | opaque | cas | extras, key, value
//! ```
//!
//! All numbers are big-endian; the body is everything after the 24 bytes. The opaque is sent back
//! unchanged.
//!
//! # Invariants
//! I1: the extras, key and value of a [`Request`] have the lengths that its verb demands.
//! I2: a refusal comes as soon as extras and key have arrived: the parser never waits for the value
//!     of a refused command.

mod parser;
mod reply;

pub use parser::{Access, InvalidMagic, NextRequest, Refusal, Rules, next_request};
pub use reply::{Encoder, Status};

/// The first byte of every request. No command of the text protocol begins with it.
pub const REQUEST_MAGIC: u8 = 0x80;

/// The first byte of every response.
pub const RESPONSE_MAGIC: u8 = 0x81;

/// The length of a request's or a response's header, before its extras.
pub const HEADER_BYTES: usize = 24;

/// The fields of a request that its response repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// As it came, including quiet ones.
    pub opcode: u8,
    /// As it came.
    pub opaque: [u8; 4],
}

/// The operation of a request, quiet or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// get.
    Get,
    /// getk: the response has the key.
    GetKey,
    /// touch: a new expiry.
    Touch,
    /// gat: a new expiry, and the value.
    GetAndTouch,
    /// gatk.
    GetKeyAndTouch,
    /// set.
    Set,
    /// add.
    Add,
    /// replace.
    Replace,
    /// append.
    Append,
    /// prepend.
    Prepend,
    /// delete.
    Delete,
    /// increment.
    Increment,
    /// decrement.
    Decrement,
    /// flush.
    Flush,
    /// noop: after quiet commands its response shows that all are done.
    Noop,
    /// version.
    Version,
    /// stat.
    Stat,
    /// quit.
    Quit,
    /// SASL list mechs.
    ListMechanisms,
    /// SASL auth.
    Authenticate,
    /// SASL step.
    Step,
}

/// By opcode: the verb, and whether it is its quiet form. memcached does not know 0x1b, verbosity.
const VERBS: [Option<(Verb, bool)>; 0x25] = {
    use Verb::{
        Add, Append, Authenticate, Decrement, Delete, Flush, Get, GetAndTouch, GetKey,
        GetKeyAndTouch, Increment, ListMechanisms, Noop, Prepend, Quit, Replace, Set, Stat, Step,
        Touch, Version,
    };
    let mut verbs = [None; 0x25];
    let loud = [
        (0x00, Get),
        (0x01, Set),
        (0x02, Add),
        (0x03, Replace),
        (0x04, Delete),
        (0x05, Increment),
        (0x06, Decrement),
        (0x07, Quit),
        (0x08, Flush),
        (0x0a, Noop),
        (0x0b, Version),
        (0x0c, GetKey),
        (0x0e, Append),
        (0x0f, Prepend),
        (0x10, Stat),
        (0x1c, Touch),
        (0x1d, GetAndTouch),
        (0x20, ListMechanisms),
        (0x21, Authenticate),
        (0x22, Step),
        (0x23, GetKeyAndTouch),
    ];
    let quiet = [
        (0x09, Get),
        (0x0d, GetKey),
        (0x11, Set),
        (0x12, Add),
        (0x13, Replace),
        (0x14, Delete),
        (0x15, Increment),
        (0x16, Decrement),
        (0x17, Quit),
        (0x18, Flush),
        (0x19, Append),
        (0x1a, Prepend),
        (0x1e, GetAndTouch),
        (0x24, GetKeyAndTouch),
    ];
    let mut index = 0;
    while index < loud.len() {
        verbs[loud[index].0] = Some((loud[index].1, false));
        index += 1;
    }
    index = 0;
    while index < quiet.len() {
        verbs[quiet[index].0] = Some((quiet[index].1, true));
        index += 1;
    }
    verbs
};

impl Verb {
    /// The verb of an opcode, and whether that is the quiet form.
    #[inline]
    pub fn of(opcode: u8) -> Option<(Verb, bool)> {
        VERBS.get(usize::from(opcode)).copied().flatten()
    }

    /// Whether it is one request on one key.
    pub fn is_on_one_key(self) -> bool {
        !matches!(
            self,
            Verb::Flush
                | Verb::Noop
                | Verb::Version
                | Verb::Stat
                | Verb::Quit
                | Verb::ListMechanisms
                | Verb::Authenticate
                | Verb::Step
        )
    }

    /// Whether the response to a hit contains the key.
    pub fn tells_key(self) -> bool {
        matches!(self, Verb::GetKey | Verb::GetKeyAndTouch)
    }

    /// Whether a client may send it before its login.
    fn is_for_all(self) -> bool {
        matches!(self, Verb::ListMechanisms | Verb::Authenticate | Verb::Step | Verb::Version)
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The fields that its response repeats.
    pub head: Head,
    /// Its operation.
    pub verb: Verb,
    /// Its usual outcome is not answered: a miss of a read, the success of the others.
    pub is_quiet: bool,
    /// The CAS token to compare; 0: any.
    pub cas: u64,
    extras: &'a [u8],
    /// An item's key: 1 to 250 arbitrary bytes. For stat a group's name, for SASL the mechanism's.
    pub key: &'a [u8],
    /// The value to store, or the input of SASL's mechanism.
    pub value: &'a [u8],
}

impl Request<'_> {
    fn word(&self, at: usize) -> u32 {
        let bytes = self.extras.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) << 32 | u64::from(self.word(at + 4))
    }

    /// set, add, replace: opaque to the server.
    pub fn flags(&self) -> u32 {
        self.word(0)
    }

    /// In the form of [`super::expiry_from_exptime`]; for flush a delay, 0 without one.
    pub fn exptime(&self) -> i64 {
        self.word(match self.verb {
            Verb::Set | Verb::Add | Verb::Replace => 4,
            Verb::Increment | Verb::Decrement => 16,
            _ => 0,
        })
        .into()
    }

    /// increment, decrement: the amount.
    pub fn delta(&self) -> u64 {
        self.long(0)
    }

    /// increment, decrement: the initial value of an absent key; None: it stays absent.
    pub fn initial(&self) -> Option<u64> {
        let counts = matches!(self.verb, Verb::Increment | Verb::Decrement);
        (counts && self.word(16) != u32::MAX).then(|| self.long(8))
    }
}

#[cfg(test)]
mod tests;
