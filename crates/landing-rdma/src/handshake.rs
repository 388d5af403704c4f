//! The greeting that two ends exchange over TCP first: see docs/formats/rdma-greeting.md.

use crate::verbs::Peer;

/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"dvtlrdma";
const VERSION: u16 = 1;

/// The description of one end. The client sends its greeting first, the server answers with its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The data for connecting to it.
    pub peer: Peer,
    /// The longest message that it has room for.
    pub frame_bytes_max: u32,
    /// The bytes that its peers READ to know that their messages are in memory.
    pub fence: Fence,
}

/// Eight bytes that peers may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// Their address.
    pub address: u64,
    /// Their key.
    pub key: u32,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not this protocol.
    #[error("the peer is no dovetail RDMA listener")]
    NotDovetail,
    /// Another version of it.
    #[error("the peer speaks version {version} of the RDMA greeting, not {VERSION}")]
    Version {
        /// The peer's version.
        version: u16,
    },
    /// The peer has its maximum of connections.
    #[error("the peer has as many RDMA connections as it allows; try again later")]
    TooMany,
    /// The peer's device could not make a connection.
    #[error("the peer could not make an RDMA connection")]
    NoConnection,
    /// A status of a later version.
    #[error("the peer refused with the unknown status {status}")]
    Status {
        /// The status.
        status: u16,
    },
}

const STATUS_FINE: u16 = 0;
const STATUS_VERSION: u16 = 1;
const STATUS_TOO_MANY: u16 = 2;
const STATUS_NO_CONNECTION: u16 = 3;

impl Greeting {
    /// Its bytes.
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = head(STATUS_FINE);
        bytes[12..16].copy_from_slice(&self.peer.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.peer.packet.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.frame_bytes_max.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.peer.gid);
        bytes[40..42].copy_from_slice(&self.peer.lid.to_le_bytes());
        bytes[42] = self.peer.mtu;
        bytes[43] = self.peer.reads_max;
        bytes[44..48].copy_from_slice(&self.fence.key.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.fence.address.to_le_bytes());
        bytes
    }

    /// The greeting in these bytes, or the refusal.
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, Refusal> {
        if bytes[..8] != MAGIC {
            return Err(Refusal::NotDovetail);
        }
        let version = u16::from_le_bytes(part(bytes, 8));
        if version != VERSION {
            return Err(Refusal::Version { version });
        }
        match u16::from_le_bytes(part(bytes, 10)) {
            STATUS_FINE => {}
            STATUS_VERSION => return Err(Refusal::Version { version }),
            STATUS_TOO_MANY => return Err(Refusal::TooMany),
            STATUS_NO_CONNECTION => return Err(Refusal::NoConnection),
            status => return Err(Refusal::Status { status }),
        }
        let peer = Peer {
            number: u32::from_le_bytes(part(bytes, 12)) & PACKET_MASK,
            packet: u32::from_le_bytes(part(bytes, 16)) & PACKET_MASK,
            gid: part(bytes, 24),
            lid: u16::from_le_bytes(part(bytes, 40)),
            mtu: bytes[42].clamp(1, 5),
            reads_max: bytes[43],
        };
        Ok(Greeting {
            peer,
            frame_bytes_max: u32::from_le_bytes(part(bytes, 20)),
            fence: Fence {
                key: u32::from_le_bytes(part(bytes, 44)),
                address: u64::from_le_bytes(part(bytes, 48)),
            },
        })
    }
}

/// Numbers of queue pairs and of packets have 24 bits.
pub const PACKET_MASK: u32 = (1 << 24) - 1;

/// The answer of a server that refuses the client.
pub fn encode_refusal(refusal: Refusal) -> [u8; GREETING_BYTES] {
    head(match refusal {
        Refusal::NotDovetail | Refusal::Version { .. } => STATUS_VERSION,
        Refusal::TooMany => STATUS_TOO_MANY,
        Refusal::NoConnection => STATUS_NO_CONNECTION,
        Refusal::Status { status } => status,
    })
}

fn head(status: u16) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&status.to_le_bytes());
    bytes
}

fn part<const LEN: usize>(bytes: &[u8; GREETING_BYTES], at: usize) -> [u8; LEN] {
    *bytes[at..].first_chunk().expect("parts lie inside a greeting")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Greeting {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let peer = Peer { number: 17, packet: 0x00ab_cdef, gid, lid: 0, mtu: 3, reads_max: 16 };
        let fence = Fence { address: 0x7f00_1234_5000, key: 0x1c1d };
        Greeting { peer, frame_bytes_max: 1024, fence }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_page() {
        let page = include_str!("../../../docs/formats/rdma-greeting.md");
        let example = page.split("```text").nth(2).expect("the second picture is the example");
        let is_byte = |word: &&str| word.len() == 2;
        let bytes: Vec<u8> = example
            .lines()
            .take_while(|line| !line.starts_with("```"))
            .flat_map(|line| line.split("  ").next().unwrap_or_default().split(' '))
            .filter(is_byte)
            .map(|word| u8::from_str_radix(word, 16).unwrap())
            .collect();
        assert_eq!(bytes, sample().encode());
    }

    #[test]
    fn a_greeting_comes_back_as_it_was() {
        assert_eq!(Greeting::decode(&sample().encode()), Ok(sample()));
    }

    #[track_caller]
    fn check(at: usize, byte: u8, want: Refusal) {
        let mut bytes = sample().encode();
        bytes[at] = byte;
        assert_eq!(Greeting::decode(&bytes), Err(want));
    }

    #[test]
    fn what_is_no_greeting_is_refused() {
        check(0, b'D', Refusal::NotDovetail);
        check(8, 2, Refusal::Version { version: 2 });
        check(10, 2, Refusal::TooMany);
        check(10, 3, Refusal::NoConnection);
        check(10, 9, Refusal::Status { status: 9 });
        assert_eq!(Greeting::decode(&[0; 64]), Err(Refusal::NotDovetail));
    }

    #[test]
    fn refusals_come_back_as_they_were() {
        for refusal in [Refusal::TooMany, Refusal::NoConnection] {
            assert_eq!(Greeting::decode(&encode_refusal(refusal)), Err(refusal));
        }
    }

    #[test]
    fn numbers_out_of_range_are_brought_into_it() {
        let mut bytes = sample().encode();
        bytes[12..20].fill(0xff);
        bytes[42] = 200;
        let peer = Greeting::decode(&bytes).unwrap().peer;
        assert_eq!((peer.number, peer.packet, peer.mtu), (0x00ff_ffff, 0x00ff_ffff, 5));
    }
}
