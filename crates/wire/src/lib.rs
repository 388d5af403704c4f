//! Codecs: bytes to commands and replies to bytes, for RESP2/3, memcached text and meta, and the
//! native protocol. No sockets.
//!
//! ```text
//!  read buffer ──▶ next_command ──▶ Command<'a> (borrows the buffer) ──▶ server
//!  write buffer ◀── encoders ◀───── replies, error texts
//! ```
//!
//! # Invariants
//! I1: no input makes a parser panic or read outside `input`.
//! I2: `Done` always has `0 < consumed_bytes <= input.len()`, so a caller that advances makes
//!     progress.
//! I3: `NeedMore` always has `at_least_bytes > input.len()`.
//! I4: the way the input is cut into reads never changes the parsed commands.
//! I5: the work for a command is linear in its length, however many reads it arrives in.
//!
//! # Trade-offs
//! Arguments are walked in the read buffer instead of being gathered in a list: nothing is
//! allocated, even for a million of them, but each length header is read a second time.

#![forbid(unsafe_code)]

pub mod memcached;
pub mod native;
pub mod resp;

/// The result of parsing the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<T, E> {
    /// One whole command.
    Done {
        /// The command.
        value: T,
        /// How far the caller advances before it calls again (I2).
        consumed_bytes: usize,
    },
    /// The command is not complete.
    NeedMore {
        /// The least length, counted from the start of `input`, that can change the answer (I3).
        /// A caller may reserve this much: it includes the whole body once its length is known.
        at_least_bytes: usize,
    },
    /// The stream's framing is broken: reply with the error, if it has one, and close.
    Bad(E),
}
