//! Frames of a link: their contents, and the tags that authenticate them.
//!
//! ```text
//!  0     4                  4+len     20+len
//!  | len | kind | content ... | tag    |      tag = SipHash-128(key of this direction,
//!                                                  number of the frame ∥ len ∥ kind ∥ content)
//!  kind  0 I am still here    1 message: to, bytes    2 question: id, bytes    3 answer: id, bytes
//! ```
//!
//! Little-endian. Frames of a direction are numbered from 0; the number is not sent.

use std::sync::Arc;

use cluster::{ClientId, Message, NodeId, Peer, codec};

use crate::key::{Key, TAG_BYTES};
use crate::links::Parcel;

/// The longest frame without its length and tag: the answer to a Gather, with 32 MiB under way and
/// everything since the last CommitVer, and the largest value on top.
pub const FRAME_MAX_BYTES: usize = 256 << 20;

/// The length of a frame's length field.
pub(super) const LEN_BYTES: usize = 4;

/// From this length on, the bytes that end a message are sent without copying them.
const TAIL_BYTES_MIN: usize = 64 << 10;

/// The length of an encoded peer.
pub(super) const PEER_BYTES: usize = 9;

const KIND_ALIVE: u8 = 0;
const KIND_MESSAGE: u8 = 1;
const KIND_ASK: u8 = 2;
const KIND_ANSWER: u8 = 3;

/// The contents of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Alive,
    Message { to: Peer, message: Message },
    Ask { id: u64, bytes: Vec<u8> },
    Answer { id: u64, bytes: Vec<u8> },
}

/// One direction of a link: its key, and the number of frames so far.
#[derive(Debug)]
pub(super) struct Lane {
    key: Key,
    number: u64,
}

/// The end of a frame whose start was appended.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) bytes: Arc<[u8]>,
    pub(super) tag: [u8; TAG_BYTES],
}

impl Lane {
    pub(super) fn new(key: Key) -> Lane {
        Lane { key, number: 0 }
    }

    /// Appends a frame; returns an error if it is too long. The returned end completes the frame:
    /// its bytes are sent without copying, behind the appended ones.
    pub(super) fn put(
        &mut self,
        parcel: Option<&Parcel>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Tail>, String> {
        let start = out.len();
        out.extend([0; LEN_BYTES]);
        let tail = put_content(parcel, out);
        let tail_bytes = tail.map_or(0, |bytes| bytes.len());
        let content_bytes = out.len() - start - LEN_BYTES + tail_bytes;
        if content_bytes > FRAME_MAX_BYTES {
            out.truncate(start);
            return Err(format!(
                "a message of {content_bytes} bytes is not sent: {FRAME_MAX_BYTES} are the most"
            ));
        }
        out[start..start + LEN_BYTES].copy_from_slice(&(content_bytes as u32).to_le_bytes());
        let tail = tail.filter(|bytes| {
            let is_short = bytes.len() < TAIL_BYTES_MIN;
            if is_short {
                out.extend_from_slice(bytes);
            }
            !is_short
        });
        let in_place = tail.map_or(&[][..], |bytes| bytes);
        let tag = self.key.tag(&[&self.number.to_le_bytes(), &out[start..], in_place]);
        self.number += 1;
        if tail.is_none() {
            out.extend(tag);
        }
        Ok(tail.map(|bytes| Tail { bytes: Arc::clone(bytes), tag }))
    }

    /// Whether the frame is authentic and the next one of this direction.
    pub(super) fn prove(&mut self, len: [u8; LEN_BYTES], content_and_tag: &[u8]) -> bool {
        let Some((content, tag)) = content_and_tag.split_last_chunk::<TAG_BYTES>() else {
            return false;
        };
        let is_right = self.key.is_tag(&[&self.number.to_le_bytes(), &len, content], tag);
        self.number += 1;
        is_right
    }
}

/// Appends the content except the returned bytes, which end it.
fn put_content<'a>(parcel: Option<&'a Parcel>, out: &mut Vec<u8>) -> Option<&'a Arc<[u8]>> {
    match parcel {
        None => out.push(KIND_ALIVE),
        Some(Parcel::Message { to, message, .. }) => {
            out.push(KIND_MESSAGE);
            out.extend(peer_bytes(*to));
            return codec::encode_head(message, out);
        }
        Some(Parcel::Ask { id, bytes }) => {
            out.push(KIND_ASK);
            out.extend(id.to_le_bytes());
            out.extend(bytes);
        }
        Some(Parcel::Answer { id, bytes }) => {
            out.push(KIND_ANSWER);
            out.extend(id.to_le_bytes());
            out.extend(bytes);
        }
    }
    None
}

/// Decodes the content of a frame; none if it is malformed.
pub(super) fn read(content: &[u8]) -> Option<Frame> {
    let (kind, rest) = content.split_first()?;
    match *kind {
        KIND_ALIVE if rest.is_empty() => Some(Frame::Alive),
        KIND_MESSAGE => {
            let (to, bytes) = rest.split_first_chunk::<PEER_BYTES>()?;
            let message = codec::decode(bytes).ok()?;
            Some(Frame::Message { to: peer(to)?, message })
        }
        KIND_ASK | KIND_ANSWER => {
            let (id, bytes) = rest.split_first_chunk()?;
            let (id, bytes) = (u64::from_le_bytes(*id), bytes.to_vec());
            let is_ask = *kind == KIND_ASK;
            Some(if is_ask { Frame::Ask { id, bytes } } else { Frame::Answer { id, bytes } })
        }
        _ => None,
    }
}

/// Encodes a peer as a kind and eight bytes.
pub(super) fn peer_bytes(peer: Peer) -> [u8; PEER_BYTES] {
    let (kind, bits) = match peer {
        Peer::Node(NodeId { name, incarnation }) => {
            (0, u64::from(name) << 32 | u64::from(incarnation))
        }
        Peer::Manager(position) => (1, u64::from(position)),
        Peer::Client(ClientId(id)) => (2, id),
    };
    let mut bytes = [kind; PEER_BYTES];
    bytes[1..].copy_from_slice(&bits.to_le_bytes());
    bytes
}

/// Decodes a peer.
pub(super) fn peer(bytes: &[u8; PEER_BYTES]) -> Option<Peer> {
    let (kind, bits) = bytes.split_first()?;
    let bits = u64::from_le_bytes(bits.try_into().ok()?);
    let low = u32::try_from(bits & u64::from(u32::MAX)).ok()?;
    match *kind {
        0 => Some(Peer::Node(NodeId { name: u16::try_from(bits >> 32).ok()?, incarnation: low })),
        1 => Some(Peer::Manager(u16::try_from(bits).ok()?)),
        2 => Some(Peer::Client(ClientId(bits))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_back_and_others_are_refused() {
        let node = NodeId { name: u16::MAX, incarnation: u32::MAX };
        for one in [Peer::Node(node), Peer::Manager(7), Peer::Client(ClientId(u64::MAX))] {
            assert_eq!(peer(&peer_bytes(one)), Some(one));
        }
        assert_eq!(peer(&[3; PEER_BYTES]), None);
        assert_eq!(peer(&[1; PEER_BYTES]), None, "a position has 16 bits");
    }

    #[test]
    fn a_frame_is_proven_once_in_its_place() {
        let (mut sender, mut other) = (Lane::new(Key::new([1; 16])), Lane::new(Key::new([1; 16])));
        let mut out = Vec::new();
        let parcel = Parcel::Ask { id: 9, bytes: b"status".to_vec() };
        sender.put(Some(&parcel), &mut out).unwrap();
        let (len, rest) = out.split_first_chunk().unwrap();
        let content = &rest[..rest.len() - TAG_BYTES];
        assert_eq!(read(content), Some(Frame::Ask { id: 9, bytes: b"status".to_vec() }));
        assert!(other.prove(*len, rest));
        assert!(!other.prove(*len, rest), "again");
        for at in 0..rest.len() {
            let mut damaged = rest.to_vec();
            damaged[at] ^= 1;
            let mut other = Lane::new(Key::new([1; 16]));
            assert!(!other.prove(*len, &damaged), "byte {at}");
        }
        assert!(!Lane::new(Key::new([2; 16])).prove(*len, rest), "another key");
    }

    #[test]
    fn a_long_tail_is_sent_from_where_it_is() {
        let (to, key) = (Peer::Manager(1), Key::new([1; 16]));
        for len_bytes in [TAIL_BYTES_MIN - 1, TAIL_BYTES_MIN] {
            for message in [
                Message::Forward { id: 3, bytes: vec![7; len_bytes].into() },
                Message::Forwarded { id: 3, bytes: Some(vec![7; len_bytes].into()) },
            ] {
                let parcel =
                    Parcel::Message { to, message: message.clone(), _hold: <_>::default() };
                let mut out = Vec::new();
                let tail = Lane::new(key.clone()).put(Some(&parcel), &mut out).unwrap();
                assert_eq!(tail.is_some(), len_bytes == TAIL_BYTES_MIN);
                if let Some(tail) = tail {
                    assert!(out.len() < 64, "nothing of it was copied");
                    out.extend_from_slice(&tail.bytes);
                    out.extend(tail.tag);
                }
                let (len, rest) = out.split_first_chunk().unwrap();
                assert!(Lane::new(key.clone()).prove(*len, rest));
                let content = &rest[..rest.len() - TAG_BYTES];
                assert_eq!(read(content), Some(Frame::Message { to, message }));
            }
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&[][..], &[0, 0], &[1], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[2, 1], &[9]] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
