//! UDP datagrams between nodes: landed frames and acknowledgements of them, under a keyed tag
//! (docs/formats/peer.md).
//!
//! ```text
//!  byte 0       3       4      5       6       8      14   20      24     32    40
//!  | "DTP" | format | kind | thread | count | from | to | spare | term | tag | ...
//!                                    frames: count lengths in strides, zeros to 64 bytes, frames
//!                                    placed frames: the place of the first one, then as frames
//!                                    acknowledgements: count runs of 14 bytes
//! ```
//!
//! # Invariants
//! U1: no field behind the format is used before the tag is verified (K25).
//! U2: an opened datagram is well-formed: frames and acknowledgements come out without another
//!     check.
//! U3: a datagram is for one incarnation of one node, and under one term (K22).
//!
//! # Limits
//! Each holder of the key can speak for all others; nothing is encrypted. A replayed datagram has
//! no new effect: writes have versions, and an old term is fenced.

mod acks;
mod frames;

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::ids::{NodeId, Term};
use crate::message::Lane;
use crate::scheme::Way;

pub use acks::{AckBuilder, Acks};
use frames::PLACE_BYTES;
pub use frames::{FrameBuilder, Frames};

const MAGIC: [u8; 3] = *b"DTP";
/// The version of the layout.
pub const FORMAT: u8 = 1;
/// The bytes before the lengths of frames, or before the acknowledgements.
pub const HEADER_BYTES: usize = 40;
/// The offset of the byte that names the receiving thread: 0 for the thread that owns the node.
pub const THREAD_AT: usize = 5;
const TERM_AT: usize = 24;
const TAG_AT: usize = 32;
const KIND_FRAMES: u8 = 1;
const KIND_ACKS: u8 = 2;
const KIND_PLACED: u8 = 3;

/// The secret of a cluster: 128 bits that every node has.
#[derive(Clone, Copy)]
pub struct Key {
    keyed: SipHasher24,
}

/// The error for a key of zeros, which protects nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroKey;

impl fmt::Display for ZeroKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the cluster's key is all zeros: draw 16 random bytes, or say insecure")
    }
}

impl std::error::Error for ZeroKey {}

impl Key {
    /// Makes a key of these bytes.
    pub fn new(bytes: &[u8; 16]) -> Result<Key, ZeroKey> {
        if *bytes == [0; 16] {
            return Err(ZeroKey);
        }
        Ok(Key { keyed: SipHasher24::new_with_key(bytes) })
    }

    /// A key for a cluster without a secret: tags detect damage and keep no sender out.
    pub fn insecure() -> Key {
        Key { keyed: SipHasher24::new_with_key(&[0; 16]) }
    }

    /// The tag of a datagram, computed without the tag's own bytes.
    fn tag(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.keyed;
        hasher.write(&bytes[..TAG_AT]);
        hasher.write(&bytes[HEADER_BYTES..]);
        hasher.finish()
    }
}

impl fmt::Debug for Key {
    /// Omits the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

/// An opened datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender, and its term.
    pub lane: Lane,
    /// The way on which its first frame came; the other frames lie behind that one.
    pub way: Way,
    /// Its contents.
    pub body: Body<'a>,
}

/// The contents of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Frames, to be landed one by one.
    Frames(Frames<'a>),
    /// Acknowledgements of blocks that have landed at the sender.
    Acks(Acks<'a>),
}

/// The reason why bytes are not a peer's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The bytes do not begin like a datagram.
    NotOurs,
    /// Another release sent it.
    UnknownFormat {
        /// The format byte found.
        found: u8,
        /// The format that this release reads.
        known: u8,
    },
    /// Another key, or damage (U1).
    WrongTag,
    /// For another node, or another incarnation of this one (U3).
    NotForUs {
        /// The node that it names.
        to: NodeId,
    },
    /// The tag is right, but the contents are malformed.
    Malformed,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotOurs => formatter.write_str("this is no datagram of a peer"),
            Refused::UnknownFormat { found, known } => write!(
                formatter,
                "a peer's datagram has format {found}, this release speaks {known}: run one release"
            ),
            Refused::WrongTag => {
                formatter.write_str("a peer's datagram has a wrong tag: all nodes need one key")
            }
            Refused::NotForUs { to } => write!(formatter, "a peer's datagram is for {to}"),
            Refused::Malformed => formatter.write_str("a peer's datagram contradicts itself"),
        }
    }
}

impl std::error::Error for Refused {}

/// The sender, the receiver and the term of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sender, and the term under which the frames are or were landed.
    pub lane: Lane,
    /// The receiver.
    pub to: NodeId,
}

/// Opens a datagram that arrived at `to`: checks the tag first, then everything else (U1, U2).
pub fn open<'a>(bytes: &'a [u8], to: NodeId, key: &Key) -> Result<Datagram<'a>, Refused> {
    if !bytes.starts_with(&MAGIC) || bytes.len() < HEADER_BYTES {
        return Err(Refused::NotOurs);
    }
    let (head, rest) = bytes.split_at(HEADER_BYTES);
    let found = head[3];
    if found != FORMAT {
        return Err(Refused::UnknownFormat { found, known: FORMAT });
    }
    if head[TAG_AT..] != key.tag(bytes).to_le_bytes() {
        return Err(Refused::WrongTag);
    }
    let named = node_at(head, 14);
    if named != to {
        return Err(Refused::NotForUs { to: named });
    }
    let term = Term(u64_at(head, TERM_AT));
    let lane = Lane { from: node_at(head, 8), term };
    let count = usize::from(u16_at(head, 6));
    let mut way = Way { thread: head[THREAD_AT].into(), at: None };
    let body = match head[4] {
        KIND_FRAMES => Frames::open(rest, count, false).map(Body::Frames),
        KIND_PLACED => {
            way.at = (rest.len() >= PLACE_BYTES).then(|| u64_at(rest, 0));
            Frames::open(rest, count, true).map(Body::Frames)
        }
        KIND_ACKS => Acks::open(rest, count).map(Body::Acks),
        _ => None,
    };
    body.map(|body| Datagram { lane, way, body }).ok_or(Refused::Malformed)
}

/// Gives changed bytes a matching tag: for tests of the checks behind the tag.
pub fn retag(bytes: &mut [u8], key: &Key) {
    if bytes.len() >= HEADER_BYTES {
        let tag = key.tag(bytes);
        bytes[TAG_AT..HEADER_BYTES].copy_from_slice(&tag.to_le_bytes());
    }
}

/// Writes the header in front of contents that are already in place.
fn seal(bytes: &mut [u8], (kind, thread): (u8, u16), count: u16, route: Route, key: &Key) {
    let Route { lane, to } = route;
    bytes[..3].copy_from_slice(&MAGIC);
    // Threads are a byte: `ClientId::thread`.
    bytes[3..6].copy_from_slice(&[FORMAT, kind, thread as u8]);
    bytes[6..8].copy_from_slice(&count.to_le_bytes());
    put_node(&mut bytes[8..14], lane.from);
    put_node(&mut bytes[14..20], to);
    bytes[20..TERM_AT].fill(0);
    bytes[TERM_AT..TAG_AT].copy_from_slice(&lane.term.0.to_le_bytes());
    retag(bytes, key);
}

fn put_node(bytes: &mut [u8], node: NodeId) {
    bytes[..2].copy_from_slice(&node.name.to_le_bytes());
    bytes[2..].copy_from_slice(&node.incarnation.to_le_bytes());
}

fn node_at(bytes: &[u8], at: usize) -> NodeId {
    let [low, high] = [u16_at(bytes, at + 2), u16_at(bytes, at + 4)];
    NodeId { name: u16_at(bytes, at), incarnation: u32::from(low) | u32::from(high) << 16 }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    (0..4).map(|part| u64::from(u16_at(bytes, at + 2 * part)) << (16 * part)).sum()
}

#[cfg(test)]
mod tests;
