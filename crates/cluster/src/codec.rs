//! The byte format of messages, for links that keep order and lose nothing (docs/formats/peer.md).
//!
//! ```text
//!  byte 0       1
//!  | format 1 | kind | fields in their order, little-endian ... |
//! ```
//!
//! Numbers are as wide as their type. Lists and texts are preceded by a count of 32 bits, an
//! optional field by a byte of 0 or 1. A configuration is encoded as the bytes that the config
//! store keeps, an entry as one record as logs hold it.
//!
//! # Invariants
//! B1: a message of another format is refused as such, whatever follows its first byte.
//! B2: nothing is allocated for more elements than the remaining bytes can hold.
//! B3: all bytes belong to the message: bytes left over make it invalid.
//!
//! # Limits
//! This module checks form only. The link's tag ensures that the bytes are a peer's and are
//! unchanged; the link also bounds the length of a message.

mod field;
mod kinds;
mod values;

use std::fmt;
use std::sync::Arc;

use crate::message::Message;

use field::Reader;

/// The first byte of every message.
pub const FORMAT: u8 = 1;

/// The reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Another release wrote it (B1).
    UnknownFormat {
        /// The format byte found.
        found: u8,
        /// The format that this release reads.
        known: u8,
    },
    /// The bytes are malformed.
    Damaged {
        /// The offset of the first error.
        at_bytes: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnknownFormat { found, known } => write!(
                formatter,
                "a peer's message has format {found}, this release speaks {known}: run one release"
            ),
            DecodeError::Damaged { at_bytes } => {
                write!(formatter, "a peer's message is cut or damaged at byte {at_bytes}")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// Appends the encoded message.
pub fn encode(message: &Message, out: &mut Vec<u8>) {
    if let Some(tail) = encode_head(message, out) {
        out.extend_from_slice(tail);
    }
}

/// Appends an encoded message without the bytes of a forwarded request or reply, which end the
/// message: a link sends a large value without copying it.
pub fn encode_head<'a>(message: &'a Message, out: &mut Vec<u8>) -> Option<&'a Arc<[u8]>> {
    out.push(FORMAT);
    kinds::put(message, out)
}

/// Decodes a message; the bytes must hold nothing else (B3).
pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        FORMAT => {}
        found => return Err(DecodeError::UnknownFormat { found, known: FORMAT }),
    }
    let message = kinds::get(&mut reader)?;
    if reader.is_empty() { Ok(message) } else { Err(reader.damaged()) }
}

#[cfg(test)]
mod tests;
