//! The header of every native frame: its session, kind and length, and the tag that authenticates
//! it.
//!
//! ```text
//!  0      2    3    4         6        8         16       20        24      32
//!  +------+----+----+---------+--------+---------+--------+---------+-------+----------
//!  | "DV" | v  |kind|partition| length | session | number |answered |  tag  | body ...
//!  +------+----+----+---------+--------+---------+--------+---------+-------+----------
//!                              in units of 8 bytes, header and all
//! ```
//!
//! # Invariants
//! I1: where there is a key, no field after the version is trusted before the tag has been checked.
//! I2: a frame shorter than its header says was cut on its way and is refused as a whole (K20).
//! I3: bytes after the length are padding: without meaning, and not covered by the tag.

use thiserror::Error;

use super::layout::{read_u16, read_u32, read_u64};
use super::steering::SteeringId;
use super::tag::TagKey;

/// The size of a frame's header.
pub const HEADER_LEN_BYTES: usize = 32;
/// The largest frame that the length field can express.
pub const FRAME_MAX_BYTES: usize = u16::MAX as usize * 8;
/// The first bytes of every frame.
pub const MAGIC: [u8; 2] = *b"DV";
/// The version of the protocol that this code speaks.
pub const VERSION: u8 = 1;

pub(super) const LENGTH_AT: usize = 6;
pub(super) const TAG_AT: usize = 24;

/// The contents of a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client: begins a session ([`super::Hello`]).
    Hello = 1,
    /// Server: the client must show that it receives at its address ([`super::Challenge`]).
    Challenge = 2,
    /// Server: grants a session ([`super::Welcome`]).
    Welcome = 3,
    /// Client: one request or more ([`super::Request`]).
    Requests = 4,
    /// Server: one reply or more ([`super::Reply`]).
    Replies = 5,
    /// Server: a whole frame was not accepted ([`super::Refusal`]).
    Refusal = 6,
    /// Client: the session ends; no body, no answer.
    Bye = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Hello,
            2 => Kind::Challenge,
            3 => Kind::Welcome,
            4 => Kind::Requests,
            5 => Kind::Replies,
            6 => Kind::Refusal,
            7 => Kind::Bye,
            _ => return None,
        })
    }
}

/// A session's id: granted by the server, unguessable, never granted twice. 0 in a hello, and in
/// the answer to one without a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// The fields of a header that are not derived from the rest of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body holds.
    pub kind: Kind,
    /// The partition, which names the worker that the frame is for.
    pub steering: SteeringId,
    /// The session of this frame.
    pub session: SessionId,
    /// Counts the sender's frames in this session; wraps. A frame sent again gets a new number.
    pub number: u32,
    /// In requests the low-water mark: every at-most-once request below it has been answered or
    /// given up. In replies and refusals the number of the frame that is answered.
    pub answered: u32,
}

/// A frame with a valid header: it has the stated length and comes from a sender that may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The bytes after it, up to the length; a multiple of 8 bytes.
    pub body: &'a [u8],
    /// The whole frame's length: the next one begins there, if several are back to back.
    pub len_bytes: usize,
}

/// Why a frame is dropped. None of these is answered, except for a hello in another version
/// ([`Frame::parse_foreign_hello`]).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter than a header.
    #[error("a frame of {len_bytes} bytes is shorter than its header")]
    TooShort {
        /// The length that arrived.
        len_bytes: usize,
    },
    /// A datagram of another protocol.
    #[error("the frame does not begin with DV")]
    NotOurs,
    /// A version that this code does not read.
    #[error("the frame is of version {version}, this side reads version 1")]
    Version {
        /// The frame's version.
        version: u8,
    },
    /// The length is less than a header's.
    #[error("the frame says it is {len_bytes} bytes long, less than its header")]
    BadLength {
        /// The length in the header.
        len_bytes: usize,
    },
    /// Cut on its way (I2).
    #[error("only {len_bytes} bytes of a frame of {want_bytes} arrived")]
    Truncated {
        /// The length that arrived.
        len_bytes: usize,
        /// The length in the header.
        want_bytes: usize,
    },
    /// The sender does not have the key, or the frame changed on its way.
    #[error("the frame's tag is wrong; both sides need the same key, or none")]
    Tag,
    /// A kind that version 1 does not have.
    #[error("the frame is of unknown kind {kind}")]
    UnknownKind {
        /// The frame's kind.
        kind: u8,
    },
    /// The body does not match the kind.
    #[error("the frame's body is too short or contradicts itself")]
    BadBody,
}

impl<'a> Frame<'a> {
    /// Parses the header of an arrived frame and checks it completely (I1, I2).
    ///
    /// With a key the tag must be the frame's; without one it must be 0, so that a key on only one
    /// side is noticed.
    #[inline]
    pub fn parse(datagram: &'a [u8], key: Option<&TagKey>) -> Result<Frame<'a>, FrameError> {
        let Some(head) = datagram.first_chunk::<HEADER_LEN_BYTES>() else {
            return Err(FrameError::TooShort { len_bytes: datagram.len() });
        };
        if head[..2] != MAGIC {
            return Err(FrameError::NotOurs);
        }
        if head[2] != VERSION {
            return Err(FrameError::Version { version: head[2] });
        }
        Frame::read(datagram, head, key)
    }

    /// Parses a hello in another version, so that it can be refused: its length, layout and tag are
    /// those of version 1, which no version changes.
    pub fn parse_foreign_hello(datagram: &'a [u8], key: Option<&TagKey>) -> Option<Frame<'a>> {
        let head = datagram.first_chunk::<HEADER_LEN_BYTES>()?;
        if head[..2] != MAGIC || head[2] == VERSION || head[3] != Kind::Hello as u8 {
            return None;
        }
        let frame = Frame::read(datagram, head, key).ok()?;
        (frame.len_bytes >= super::hello::HELLO_LEN_BYTES).then_some(frame)
    }

    /// Parses the fields after magic and version.
    #[inline]
    fn read(
        datagram: &'a [u8],
        head: &[u8; HEADER_LEN_BYTES],
        key: Option<&TagKey>,
    ) -> Result<Frame<'a>, FrameError> {
        let len_bytes = usize::from(read_u16(head, LENGTH_AT)) * 8;
        if len_bytes < HEADER_LEN_BYTES {
            return Err(FrameError::BadLength { len_bytes });
        }
        let Some(frame) = datagram.get(..len_bytes) else {
            let want_bytes = len_bytes;
            return Err(FrameError::Truncated { len_bytes: datagram.len(), want_bytes });
        };
        let tag = read_u64(head, TAG_AT);
        let wanted_tag = key.map_or(0, |key| key.tag(frame));
        // One comparison of two words takes the same time wherever they differ.
        if tag != wanted_tag {
            return Err(FrameError::Tag);
        }
        let Some(kind) = Kind::from_byte(head[3]) else {
            return Err(FrameError::UnknownKind { kind: head[3] });
        };
        let header = Header {
            kind,
            steering: SteeringId(read_u16(head, 4)),
            session: SessionId(read_u64(head, 8)),
            number: read_u32(head, 16),
            answered: read_u32(head, 20),
        };
        Ok(Frame { header, body: &frame[HEADER_LEN_BYTES..], len_bytes })
    }
}

impl Header {
    /// The header's bytes; length and tag are still 0.
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN_BYTES] {
        let mut bytes = [0; HEADER_LEN_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..6].copy_from_slice(&self.steering.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.session.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.answered.to_le_bytes());
        bytes
    }
}
