//! The reasons for which a request ends without an answer.

use thiserror::Error;
use wire::native::Reason;

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// As many requests are outstanding as may be: poll, take completions, try again.
    #[error("as many requests are outstanding as may be; take completions first")]
    Full,
    /// No key is so long.
    #[error("a key of {len_bytes} bytes is longer than the 65535 that a key may have")]
    KeyTooLong {
        /// The key's length.
        len_bytes: usize,
    },
    /// No value is so long.
    #[error("a value of {len_bytes} bytes is longer than the {max_bytes} that a value may have")]
    ValueTooLong {
        /// The value's length.
        len_bytes: usize,
        /// The most.
        max_bytes: u32,
    },
}

/// Why a request that was taken ended without an answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// No answer in time, and nothing was changed.
    #[error("no answer in time; nothing was changed")]
    TimedOut,
    /// A write that was sent and not answered: it took effect once or never. What is sent from now
    /// on comes after it.
    #[error("no answer: the write took effect once or not at all")]
    Unknown,
    /// The server had too much to do for as long as there was time; nothing was changed.
    #[error("the server is busy; nothing was changed")]
    Busy,
    /// Key, value or both fit no frame, and only values of set travel in parts.
    #[error(
        "the request is longer than a frame of {frame_max_bytes} bytes; only set takes such values"
    )]
    TooLong {
        /// The longest frame of this session.
        frame_max_bytes: u32,
    },
    /// The value that the server holds is longer than this client takes.
    #[error("the value is longer than this client takes")]
    ValueTooLong,
    /// The server's answer is none to what was asked.
    #[error("the server's answer is not an answer to the request")]
    BadAnswer,
    /// The server does not grant a session, and will not.
    #[error("{0}")]
    NoSession(Reason),
}
