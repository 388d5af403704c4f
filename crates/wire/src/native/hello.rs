//! The start of a session: hello, challenge, hello again, welcome; and the refusal of a frame.
//!
//! ```text
//!  client                                   server
//!  hello (nonce)                ──▶         keeps nothing
//!                               ◀──         challenge (cookie), no longer than the hello
//!  hello (nonce, cookie)        ──▶         the address is true: a session
//!                               ◀──         welcome (session, limits, seed)
//! ```
//!
//! If an answer is lost, the client sends its hello again: while the session lives, the same nonce
//! gets the same answer. The bodies of these frames never change between versions, so that two
//! sides can find a common one.
//!
//! # Invariants
//! I1: an answer to an unverified address is never longer than the frame that it answers.

use thiserror::Error;

use super::header::{Frame, FrameError, HEADER_LEN_BYTES, Header, Kind, SessionId, VERSION};
use super::layout::{read_u16, read_u32, read_u64};
use super::steering::{Steering, SteeringId};
use super::tag::TagKey;
use super::writer::{FrameWriter, NoRoom};

/// The length of a hello, padding included. Its answers are not longer (I1).
pub const HELLO_LEN_BYTES: usize = 128;
const HELLO_BODY_BYTES: usize = HELLO_LEN_BYTES - HEADER_LEN_BYTES;
const CHALLENGE_BODY_BYTES: usize = 24;
const WELCOME_BODY_BYTES: usize = 56;
const REFUSAL_BODY_BYTES: usize = 8;

const _: () = {
    assert!(HEADER_LEN_BYTES + CHALLENGE_BODY_BYTES <= HELLO_LEN_BYTES);
    assert!(HEADER_LEN_BYTES + WELCOME_BODY_BYTES <= HELLO_LEN_BYTES);
    // A frame of requests contains at least one message's head.
    assert!(REFUSAL_BODY_BYTES <= super::layout::MESSAGE_HEAD_BYTES);
};

/// A client's first frame, sent again with the cookie.
///
/// ```text
///  0         1         2  4         8        16       24         32       96
///  | v least | v most | 0 | frame max | cookie | nonce | replaces | zeros |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the client speaks.
    pub versions: Versions,
    /// The largest frame that the client takes.
    pub frame_max_bytes: u32,
    /// From the challenge; `None` in the first hello.
    pub cookie: Option<u64>,
    /// Chosen at random by the client; the answers repeat it.
    pub nonce: u64,
    /// A session that ends now; its frames that are still on their way are refused.
    pub replaces: Option<SessionId>,
}

/// The server's check that the client receives at the address that it sends from.
///
/// ```text
///  0        8       16        17       18     24
///  | cookie | nonce | v least | v most | zeros |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The client sends it back.
    pub cookie: u64,
    /// The hello's.
    pub nonce: u64,
    /// The versions that the server speaks.
    pub versions: Versions,
}

/// The parameters of a session for its client. The session's id is in the header.
///
/// ```text
///  0         1      2         4           8       16     24            28         32
///  | version | bits | workers | frame max | nonce | seed | once window | idle, ms | part window
///  36             40          48     56
///  | value max    | features  | zeros |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u8,
    /// How frames are steered to their worker.
    pub steering: Steering,
    /// The largest frame that the server takes, and that it sends unless the client takes less.
    pub frame_max_bytes: u32,
    /// The hello's.
    pub nonce: u64,
    /// The seed of the hash that steers; that of the index stays with the server (K26).
    pub steering_seed: u64,
    /// How far at-most-once sequence numbers may run ahead of the low-water mark.
    pub once_window: u32,
    /// The time without a frame after which the server forgets the session.
    pub idle_ms: u32,
    /// The maximum number of unanswered bytes of pushed parts.
    pub part_window_bytes: u32,
    /// The largest value that the server takes.
    pub value_max_bytes: u32,
    /// The features of this server beyond the rest of version 1: [`Welcome::RANGES`].
    pub features: u64,
}

/// A range of versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub least: u8,
    /// The highest.
    pub most: u8,
}

/// The refusal of a whole frame. The header's `answered` has the number of that frame, and its
/// session is the frame's, so that a stranger cannot refuse.
///
/// ```text
///  0        1         2        3   4             8
///  | reason | v least | v most | 0 | retry after |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The versions that the server speaks.
    pub versions: Versions,
    /// When to try again, in microseconds; 0: at the client's choice.
    pub retry_after_us: u32,
}

/// Why a frame was refused. Nothing of it was executed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The session ended, never existed, or has another address: the client says hello again.
    #[error("the server does not know the session, or forgot it")]
    UnknownSession = 1,
    /// No version is common.
    #[error("client and server speak no common version")]
    Version = 2,
    /// The server is overloaded (K18): the client tries again later.
    #[error("the server is busy")]
    Busy = 3,
    /// The server has its maximum number of sessions.
    #[error("the server has as many sessions as it keeps")]
    SessionsFull = 4,
    /// The door is closed to the client: the server has a password, and no key for native clients.
    #[error("the server does not let native clients in: it has a password, and they show no key")]
    Closed = 5,
}

impl Versions {
    /// The versions that this code speaks.
    pub const OURS: Versions = Versions { least: VERSION, most: VERSION };

    /// The highest version in both ranges.
    pub fn common(self, other: Versions) -> Option<u8> {
        let most = self.most.min(other.most);
        (most >= self.least.max(other.least)).then_some(most)
    }
}

impl Hello {
    /// Parses the body of a [`Kind::Hello`].
    pub fn parse(frame: &Frame<'_>) -> Result<Hello, FrameError> {
        // Answers to shorter ones would be longer than they are (I1).
        let body = frame.body.first_chunk::<HELLO_BODY_BYTES>().ok_or(FrameError::BadBody)?;
        let versions = Versions { least: body[0], most: body[1] };
        if versions.least > versions.most {
            return Err(FrameError::BadBody);
        }
        Ok(Hello {
            versions,
            frame_max_bytes: read_u32(body, 4),
            cookie: Some(read_u64(body, 8)).filter(|cookie| *cookie != 0),
            nonce: read_u64(body, 16),
            replaces: Some(SessionId(read_u64(body, 24))).filter(|id| id.0 != 0),
        })
    }

    /// Writes the whole frame; `number` counts the client's hellos.
    pub fn encode(
        &self,
        number: u32,
        key: Option<&TagKey>,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let mut body = [0; HELLO_BODY_BYTES];
        (body[0], body[1]) = (self.versions.least, self.versions.most);
        body[4..8].copy_from_slice(&self.frame_max_bytes.to_le_bytes());
        body[8..16].copy_from_slice(&self.cookie.unwrap_or(0).to_le_bytes());
        body[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        let replaces = self.replaces.unwrap_or_default().0;
        body[24..32].copy_from_slice(&replaces.to_le_bytes());
        let header = Header {
            kind: Kind::Hello,
            steering: SteeringId::ANY,
            session: SessionId::default(),
            number,
            answered: 0,
        };
        encode(header, &body, key, out)
    }
}

impl Challenge {
    /// Parses the body of a [`Kind::Challenge`].
    pub fn parse(frame: &Frame<'_>) -> Result<Challenge, FrameError> {
        let body = frame.body.first_chunk::<CHALLENGE_BODY_BYTES>().ok_or(FrameError::BadBody)?;
        Ok(Challenge {
            cookie: read_u64(body, 0),
            nonce: read_u64(body, 8),
            versions: Versions { least: body[16], most: body[17] },
        })
    }

    /// Writes the whole frame that answers `hello`.
    pub fn encode(
        &self,
        hello: &Header,
        key: Option<&TagKey>,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let mut body = [0; CHALLENGE_BODY_BYTES];
        body[0..8].copy_from_slice(&self.cookie.to_le_bytes());
        body[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        (body[16], body[17]) = (self.versions.least, self.versions.most);
        encode(answer_to(hello, Kind::Challenge, hello.session), &body, key, out)
    }
}

impl Welcome {
    /// The server keeps its keys in order and answers ranges.
    pub const RANGES: u64 = 1;

    /// Parses the body of a [`Kind::Welcome`].
    pub fn parse(frame: &Frame<'_>) -> Result<Welcome, FrameError> {
        let body = frame.body.first_chunk::<WELCOME_BODY_BYTES>().ok_or(FrameError::BadBody)?;
        let worker_count = read_u16(body, 2);
        if body[1] > Steering::BITS_MAX || worker_count == 0 || frame.header.session.0 == 0 {
            return Err(FrameError::BadBody);
        }
        Ok(Welcome {
            version: body[0],
            steering: Steering::new(body[1], worker_count),
            frame_max_bytes: read_u32(body, 4),
            nonce: read_u64(body, 8),
            steering_seed: read_u64(body, 16),
            once_window: read_u32(body, 24),
            idle_ms: read_u32(body, 28),
            part_window_bytes: read_u32(body, 32),
            value_max_bytes: read_u32(body, 36),
            features: read_u64(body, 40),
        })
    }

    /// Writes the whole frame that answers `hello` with a session.
    pub fn encode(
        &self,
        hello: &Header,
        session: SessionId,
        key: Option<&TagKey>,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let mut body = [0; WELCOME_BODY_BYTES];
        (body[0], body[1]) = (self.version, self.steering.bits());
        body[2..4].copy_from_slice(&self.steering.worker_count().to_le_bytes());
        body[4..8].copy_from_slice(&self.frame_max_bytes.to_le_bytes());
        body[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        body[16..24].copy_from_slice(&self.steering_seed.to_le_bytes());
        body[24..28].copy_from_slice(&self.once_window.to_le_bytes());
        body[28..32].copy_from_slice(&self.idle_ms.to_le_bytes());
        body[32..36].copy_from_slice(&self.part_window_bytes.to_le_bytes());
        body[36..40].copy_from_slice(&self.value_max_bytes.to_le_bytes());
        body[40..48].copy_from_slice(&self.features.to_le_bytes());
        encode(answer_to(hello, Kind::Welcome, session), &body, key, out)
    }
}

impl Refusal {
    /// Parses the body of a [`Kind::Refusal`].
    pub fn parse(frame: &Frame<'_>) -> Result<Refusal, FrameError> {
        let body = frame.body.first_chunk::<REFUSAL_BODY_BYTES>().ok_or(FrameError::BadBody)?;
        let reason = match body[0] {
            1 => Reason::UnknownSession,
            2 => Reason::Version,
            3 => Reason::Busy,
            4 => Reason::SessionsFull,
            5 => Reason::Closed,
            _ => return Err(FrameError::BadBody),
        };
        let versions = Versions { least: body[1], most: body[2] };
        Ok(Refusal { reason, versions, retry_after_us: read_u32(body, 4) })
    }

    /// Writes the whole frame that answers the frame of `refused`.
    pub fn encode(
        &self,
        refused: &Header,
        key: Option<&TagKey>,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let mut body = [0; REFUSAL_BODY_BYTES];
        body[0] = self.reason as u8;
        (body[1], body[2]) = (self.versions.least, self.versions.most);
        body[4..8].copy_from_slice(&self.retry_after_us.to_le_bytes());
        encode(answer_to(refused, Kind::Refusal, refused.session), &body, key, out)
    }
}

/// Writes the whole frame that ends a session.
pub fn encode_bye(
    session: SessionId,
    number: u32,
    key: Option<&TagKey>,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let kind = Kind::Bye;
    let header = Header { kind, steering: SteeringId::ANY, session, number, answered: 0 };
    encode(header, &[], key, out)
}

fn answer_to(asked: &Header, kind: Kind, session: SessionId) -> Header {
    Header { kind, steering: asked.steering, session, number: 0, answered: asked.number }
}

fn encode(
    header: Header,
    body: &[u8],
    key: Option<&TagKey>,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    let mut writer = FrameWriter::new(out, header)?;
    writer.push_body(body)?;
    Ok(writer.finish(key))
}
