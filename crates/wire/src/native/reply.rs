//! Replies of the server, one message each, in the layout of requests.
//!
//! ```text
//!  head: status, flags, words, key length, mode 0, id, value length
//!  flags: 0x01 ONCE, as in the request      0x80 MORE: the key is where the range goes on
//!  words: 0x01 VERSION  0x02 CLIENT_FLAGS  0x04 EXPIRES_AT  0x08 NUMBER  0x10 PART
//! ```
//!
//! # Invariants
//! I1: a reply to [`RequestId::Once`] is a status, a version and a number, so that it can be
//!     remembered in two words ([`super::Remembered`]).

use base::UnixMillis;
use thiserror::Error;

use super::layout::{Parts, Raw, WordList};
use super::request::{Part, RequestId};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done, found.
    Ok = 0,
    /// The key does not exist.
    Miss = 1,
    /// The condition on presence does not hold; nothing changed.
    NotStored = 2,
    /// The item's version is another; nothing changed. The reply has it.
    VersionMismatch = 3,
    /// The value is not a decimal number of 64 bits; nothing changed.
    NotANumber = 4,
    /// The sum would not be a number of 64 bits; nothing changed.
    OutOfRange = 5,
    /// Key or value is larger than the server accepts; nothing changed.
    TooLarge = 6,
    /// No memory, in `--mode store`; nothing changed.
    OutOfMemory = 7,
    /// Not executed: the server is overloaded (K18). Try again later.
    Busy = 8,
    /// Not executed: the server does not know the op, a flag, a word or a mode.
    Unsupported = 9,
    /// Not executed: fields of the request contradict each other.
    Malformed = 10,
    /// A pull's version is no longer the item's: begin again with a get.
    Changed = 11,
    /// A part of a pushed value was accepted; the number is the count of missing bytes. If all
    /// parts were answered and none with `Ok`, the server dropped its parts: push all again.
    PartTaken = 12,
    /// Not executed: the sequence number is too far above the low-water mark. Wait for earlier
    /// answers.
    OutsideWindow = 13,
    /// The server's index is not ordered.
    NoOrder = 14,
    /// Not executed: another server of the cluster has the key ([`super::Moved`]).
    Moved = 15,
}

/// One reply. All fields borrow the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The request's id.
    pub id: RequestId,
    /// The outcome.
    pub status: Status,
    /// The item's version.
    pub version: Option<u64>,
    /// The item's client flags; 0 when there is no word.
    pub client_flags: u32,
    /// When the item expires.
    pub expires_at: Option<UnixMillis>,
    /// The sum of an incr, the length of a value.
    pub number: Option<i64>,
    /// The position of `value` in a larger value; for a pushed part, the accepted part.
    pub part: Option<Part>,
    /// The key at which a range continues, exclusively, in its direction; `None`: it is done.
    pub resume_key: Option<&'a [u8]>,
    /// The value, a part of it, or the items of a range.
    pub value: &'a [u8],
}

/// Why a message of a replies frame is not a reply.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReplyError {
    /// A status that version 1 does not have.
    #[error("the reply to {id:?} has the unknown status {status}")]
    UnknownStatus {
        /// The request's id.
        id: RequestId,
        /// The reply's status.
        status: u8,
    },
    /// A reply that no server sends.
    #[error("the reply to {id:?} contradicts itself")]
    Malformed {
        /// The request's id.
        id: RequestId,
    },
    /// The message extends beyond the frame: the rest of the frame is dropped.
    #[error("a message is longer than what is left of its frame")]
    Overrun,
}

const MORE: u8 = 0x80;

mod word {
    pub(super) const VERSION: u16 = 0x01;
    pub(super) const CLIENT_FLAGS: u16 = 0x02;
    pub(super) const EXPIRES_AT: u16 = 0x04;
    pub(super) const NUMBER: u16 = 0x08;
    pub(super) const PART: u16 = 0x10;
}

impl Status {
    /// The status of this number.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Status> {
        const ALL: [Status; 16] = [
            Status::Ok,
            Status::Miss,
            Status::NotStored,
            Status::VersionMismatch,
            Status::NotANumber,
            Status::OutOfRange,
            Status::TooLarge,
            Status::OutOfMemory,
            Status::Busy,
            Status::Unsupported,
            Status::Malformed,
            Status::Changed,
            Status::PartTaken,
            Status::OutsideWindow,
            Status::NoOrder,
            Status::Moved,
        ];
        ALL.get(usize::from(byte)).copied()
    }
}

impl<'a> Reply<'a> {
    /// A reply with only a status.
    #[inline]
    pub fn new(id: RequestId, status: Status) -> Reply<'a> {
        Reply {
            id,
            status,
            version: None,
            client_flags: 0,
            expires_at: None,
            number: None,
            part: None,
            resume_key: None,
            value: &[],
        }
    }

    /// The message's length in a frame.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.parts().len_bytes()
    }

    /// The fields that the message is written from.
    #[inline]
    pub(super) fn parts(&self) -> Parts<'a> {
        let mut words = WordList::default();
        words.push_some(word::VERSION, self.version);
        if self.client_flags != 0 {
            words.push(word::CLIENT_FLAGS, u64::from(self.client_flags));
        }
        words.push_some(word::EXPIRES_AT, self.expires_at.map(|at| at.0));
        words.push_some(word::NUMBER, self.number.map(|number| number as u64));
        words.push_some(word::PART, self.part.map(Part::to_word));
        let more = if self.resume_key.is_some() { MORE } else { 0 };
        Parts {
            code: self.status as u8,
            flags: self.id.flag() | more,
            mode: 0,
            id: self.id.number(),
            words,
            key: self.resume_key.unwrap_or_default(),
            value: self.value,
        }
    }
}

/// The replies of a frame's body, in order. After [`ReplyError::Overrun`] it ends.
#[derive(Clone, Copy, Debug)]
pub struct Replies<'a> {
    rest: &'a [u8],
}

impl<'a> Replies<'a> {
    /// Walks the body of a frame of [`super::Kind::Replies`].
    pub fn new(body: &'a [u8]) -> Replies<'a> {
        Replies { rest: body }
    }
}

impl<'a> Iterator for Replies<'a> {
    type Item = Result<Reply<'a>, ReplyError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let Some((raw, rest)) = Raw::split(self.rest) else {
            self.rest = &[];
            return Some(Err(ReplyError::Overrun));
        };
        self.rest = rest;
        Some(parse(&raw))
    }
}

/// Words and flags that this version does not know are skipped: a server adds them only if a
/// request asked for them.
#[inline]
fn parse<'a>(raw: &Raw<'a>) -> Result<Reply<'a>, ReplyError> {
    let id = RequestId::new(raw.id, raw.flags);
    let Some(status) = Status::from_byte(raw.code) else {
        return Err(ReplyError::UnknownStatus { id, status: raw.code });
    };
    let malformed = ReplyError::Malformed { id };
    let client_flags = raw.words.get(word::CLIENT_FLAGS).unwrap_or(0);
    let part = raw.words.get(word::PART).map(Part::from_word);
    if part.is_some_and(|part| !part.holds(raw.value.len())) {
        return Err(malformed);
    }
    let has_more = raw.flags & MORE != 0;
    if !has_more && !raw.key.is_empty() {
        return Err(malformed);
    }
    Ok(Reply {
        id,
        status,
        version: raw.words.get(word::VERSION),
        client_flags: u32::try_from(client_flags).map_err(|_| malformed)?,
        expires_at: raw.words.get(word::EXPIRES_AT).map(UnixMillis),
        number: raw.words.get(word::NUMBER).map(|number| number as i64),
        part,
        resume_key: has_more.then_some(raw.key),
        value: raw.value,
    })
}
