//! The bytes that members and clients send each other over links, as requests and answers of
//! operators are sent (docs/formats/quorum.md).

use cluster::config_store::{Request, Response, SessionId};
use serde::{Deserialize, Serialize};

/// The first byte; an operator's request begins with `{`.
pub(super) const FORMAT: u8 = 1;

/// To a member.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// From another member: a message of the state machine.
    Member { from: u8, quorum: u64, bytes: Vec<u8> },
    /// From a client.
    Request { quorum: u64, request: Request },
    /// From a client: its session ends now.
    Close { quorum: u64, session: SessionId },
}

/// To a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Response(Response),
    /// This member cannot answer a request, by its session and id, and why: one line. None: it
    /// answers none.
    Waits {
        asked: Option<(Option<SessionId>, u64)>,
        line: String,
    },
}

pub(super) fn encode<T: Serialize>(word: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    // Numbers, bytes, lists and enums, which postcard can always represent.
    bytes.extend(postcard::to_stdvec(word).unwrap_or_default());
    bytes
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (format, content) = bytes.split_first()?;
    if *format == FORMAT { postcard::from_bytes(content).ok() } else { None }
}
