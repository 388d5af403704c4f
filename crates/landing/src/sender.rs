//! The sender of a message: a lane that was agreed on before, or an address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A sender identified by position: a connected socket (K19) or a shared-memory client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// The sender of a message, to which its reply goes. Plain data of three words: it may be kept,
/// compared and handed to another thread.
///
/// ```text
///  word 0   63            32 31     16 15      8 7      0
///           +---------------+---------+---------+--------+
///           | lane or scope |  port   |   hop   |  kind  |
///           +---------------+---------+---------+--------+
///  word 1   the address's first 8 bytes, big-endian (IPv4: the address)
///  word 2   the address's last 8 bytes (IPv4: 0)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sender([u64; 3]);

const KIND_LANE: u64 = 0;
const KIND_IPV4: u64 = 4;
const KIND_IPV6: u64 = 6;

const _: () = assert!(size_of::<Sender>() == 24);

impl Sender {
    /// The sender at that position.
    pub fn lane(lane: Lane) -> Sender {
        Sender([KIND_LANE | u64::from(lane.0) << 32, 0, 0])
    }

    /// The sender at that address. An IPv6 flow label is not kept.
    pub fn address(address: SocketAddr) -> Sender {
        let port = u64::from(address.port()) << 16;
        match address {
            SocketAddr::V4(v4) => Sender([KIND_IPV4 | port, u64::from(u32::from(*v4.ip())), 0]),
            SocketAddr::V6(v6) => {
                let bits = u128::from(*v6.ip());
                let scope = u64::from(v6.scope_id()) << 32;
                Sender([KIND_IPV6 | port | scope, (bits >> 64) as u64, bits as u64])
            }
        }
    }

    /// The sender at that address, received through a next hop that its transport identifies by
    /// number (0: none in particular).
    #[cfg(feature = "xdp")]
    pub(crate) fn through(address: SocketAddr, hop: u8) -> Sender {
        let mut sender = Sender::address(address);
        sender.0[0] |= u64::from(hop) << 8;
        sender
    }

    /// The next hop that its messages came through.
    #[cfg(feature = "xdp")]
    pub(crate) fn hop(self) -> u8 {
        (self.0[0] >> 8) as u8
    }

    /// The position, if it is identified by one.
    pub fn as_lane(self) -> Option<Lane> {
        (self.kind() == KIND_LANE).then_some(Lane((self.0[0] >> 32) as u32))
    }

    /// The address, if it is identified by one.
    pub fn as_address(self) -> Option<SocketAddr> {
        let port = (self.0[0] >> 16) as u16;
        match self.kind() {
            KIND_IPV4 => {
                Some(SocketAddr::new(IpAddr::from((self.0[1] as u32).to_be_bytes()), port))
            }
            KIND_IPV6 => {
                let ip = Ipv6Addr::from(u128::from(self.0[1]) << 64 | u128::from(self.0[2]));
                let scope = (self.0[0] >> 32) as u32;
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
            }
            _ => None,
        }
    }

    /// Its words, for code that keeps them in atomics.
    pub(crate) fn words(self) -> [u64; 3] {
        self.0
    }

    /// The sender with these words.
    pub(crate) fn of_words(words: [u64; 3]) -> Sender {
        Sender(words)
    }

    fn kind(self) -> u64 {
        self.0[0] & 0xff
    }
}

impl From<SocketAddr> for Sender {
    fn from(address: SocketAddr) -> Sender {
        Sender::address(address)
    }
}

impl From<Lane> for Sender {
    fn from(lane: Lane) -> Sender {
        Sender::lane(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str) {
        let address: SocketAddr = address.parse().unwrap();
        let sender = Sender::from(address);
        assert_eq!(sender.as_address(), Some(address));
        assert_eq!(sender.as_lane(), None);
    }

    #[test]
    fn an_address_comes_back_as_it_was() {
        check("127.0.0.1:7379");
        check("255.255.255.255:65535");
        check("0.0.0.0:0");
        check("[::1]:7379");
        check("[fe80::1%7]:9");
        check("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535");
    }

    #[test]
    fn a_lane_comes_back_as_it_was() {
        for index in [0, 1, u32::MAX] {
            let sender = Sender::from(Lane(index));
            assert_eq!(sender.as_lane(), Some(Lane(index)));
            assert_eq!(sender.as_address(), None);
        }
    }
}
