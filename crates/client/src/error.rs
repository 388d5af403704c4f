//! The reasons for which a request ends without an answer.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use wire::native::Reason;

/// The reasons for which a request is not accepted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// The maximum of requests is outstanding: poll, take completions, try again.
    #[error("as many requests are outstanding as may be; take completions first")]
    Full,
    /// The key is too long.
    #[error("a key of {len_bytes} bytes is longer than the 65535 that a key may have")]
    KeyTooLong {
        /// The key's length.
        len_bytes: usize,
    },
    /// The value is too long.
    #[error("a value of {len_bytes} bytes is longer than the {max_bytes} that a value may have")]
    ValueTooLong {
        /// The value's length.
        len_bytes: usize,
        /// The most.
        max_bytes: u32,
    },
}

/// The reasons for which an accepted request ends without an answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// No answer in time, and nothing was changed.
    #[error("no answer in time; nothing was changed")]
    TimedOut,
    /// A write that was sent and not answered: it took effect once or never. Requests sent from now
    /// on come after it.
    #[error("no answer: the write took effect once or not at all")]
    Unknown,
    /// The server was overloaded until the deadline; nothing was changed.
    #[error("the server is busy; nothing was changed")]
    Busy,
    /// Key, value or both fit no frame; only values of set can travel in parts.
    #[error(
        "the request is longer than a frame of {frame_max_bytes} bytes; only set takes such values"
    )]
    TooLong {
        /// The longest frame of this session.
        frame_max_bytes: u32,
    },
    /// The value on the server is longer than this client accepts.
    #[error("the value is longer than this client takes")]
    ValueTooLong,
    /// The server's answer does not fit the request.
    #[error("the server's answer is not an answer to the request")]
    BadAnswer,
    /// The server refuses a session for good.
    #[error("{0}")]
    NoSession(Reason),
}

/// The reasons for which there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The system refused.
    #[error("cannot connect to {target}: {source}")]
    System {
        /// The server.
        target: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server's shared memory is not available.
    #[error("cannot connect to shm:{}: {source}", path.display())]
    Shm {
        /// The server's socket.
        path: PathBuf,
        /// The reason.
        source: landing::shm::ConnectError,
    },
    /// No socket listens at the address.
    #[error("cannot connect to {target}: connection refused")]
    Refused {
        /// The server.
        target: String,
    },
    /// No answer.
    #[error("cannot connect to {target}: no answer in time")]
    TimedOut {
        /// The server.
        target: String,
    },
    /// The server refuses a session.
    #[error("cannot connect to {target}: {reason}")]
    NoSession {
        /// The server.
        target: String,
        /// The reason.
        reason: Reason,
    },
}

impl ConnectError {
    /// Whether no server has made the shared memory.
    pub fn lacks_shm(&self) -> bool {
        matches!(self, ConnectError::Shm { source: landing::shm::ConnectError::System(_), .. })
    }
}
