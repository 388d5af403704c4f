//! Ethernet, IP and UDP headers: parsed in arriving frames, written into leaving ones.
//!
//! ```text
//!         0         14             34 (v6: 54)   42 (v6: 62)
//!   frame ├─ Ethernet ─┼── IPv4, IPv6 ──┼──── UDP ────┼─ payload ──
//! ```
//!
//! A checksum that was left to a device that does not exist (both ends of a veth pair are on one
//! host) holds the sum of the pseudo-header alone. Such a datagram was never on a wire, and is
//! accepted unchecked.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
const HOPS_MAX: u8 = 64;
const DO_NOT_FRAGMENT: [u8; 2] = [0x40, 0];

/// The server's addresses on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) mac: Mac,
    pub(super) address: SocketAddr,
}

/// A datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) mac: Mac,
    pub(super) from: SocketAddr,
    pub(super) payload: Range<usize>,
}

/// The offsets of a family's fields in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The type in the Ethernet header.
    pub(super) ether_type: [u8; 2],
    /// The protocol that the IP header carries.
    pub(super) protocol_at: usize,
    /// The source address, and the destination directly after it.
    pub(super) addresses_at: usize,
    pub(super) address_bytes: usize,
    pub(super) udp_at: usize,
}

impl Layout {
    pub(super) fn of(address: SocketAddr) -> Layout {
        match address {
            SocketAddr::V4(_) => Layout {
                ether_type: [0x08, 0x00],
                protocol_at: 23,
                addresses_at: 26,
                address_bytes: 4,
                udp_at: 34,
            },
            SocketAddr::V6(_) => Layout {
                ether_type: [0x86, 0xdd],
                protocol_at: 20,
                addresses_at: 22,
                address_bytes: 16,
                udp_at: 54,
            },
        }
    }

    pub(super) fn payload_at(self) -> usize {
        self.udp_at + UDP_BYTES
    }

    /// Source and destination.
    fn addresses(self) -> Range<usize> {
        self.addresses_at..self.addresses_at + 2 * self.address_bytes
    }
}

/// The datagram in a frame of that family; `None` if lengths or checksums are wrong.
pub(super) fn parse(frame: &[u8], layout: Layout) -> Option<Arrived> {
    let udp = frame.get(layout.udp_at..layout.payload_at())?;
    let udp_bytes = usize::from(be16(udp, 4));
    let end = layout.udp_at + udp_bytes;
    let ip_end = match layout.address_bytes {
        4 => ETHERNET_BYTES + usize::from(be16(frame, 16)),
        _ => layout.udp_at + usize::from(be16(frame, 18)),
    };
    if udp_bytes < UDP_BYTES || end > ip_end || ip_end > frame.len() {
        return None;
    }
    let has_ip_sum = layout.address_bytes == 4;
    if has_ip_sum && Sum::default().add(&frame[ETHERNET_BYTES..layout.udp_at]).fold() != u16::MAX {
        return None;
    }
    let pseudo = pseudo_header(frame, layout, udp_bytes);
    let written = u16::from_ne_bytes([udp[6], udp[7]]);
    let is_unused = written == 0 && has_ip_sum;
    let is_left_to_device = written == pseudo.fold();
    let is_right = || pseudo.add(&frame[layout.udp_at..end]).fold() == u16::MAX;
    if !is_unused && !is_left_to_device && !is_right() {
        return None;
    }
    let from = address(&frame[layout.addresses_at..][..layout.address_bytes])?;
    Some(Arrived {
        mac: *frame[6..].first_chunk()?,
        from: SocketAddr::new(from, be16(udp, 0)),
        payload: layout.payload_at()..end,
    })
}

/// Writes the headers before a payload that is in its place. `to` is of our family.
pub(super) fn write(frame: &mut [u8], local: &Local, mac: Mac, to: SocketAddr) {
    let layout = Layout::of(local.address);
    let udp_bytes = frame.len() - layout.udp_at;
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&local.mac);
    frame[12..14].copy_from_slice(&layout.ether_type);
    frame[14..layout.udp_at].fill(0);
    match (local.address.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            frame[14] = 0x45;
            put16(frame, 16, udp_bytes + 20);
            frame[20..22].copy_from_slice(&DO_NOT_FRAGMENT);
            frame[22] = HOPS_MAX;
            frame[23] = UDP;
            frame[26..30].copy_from_slice(&source.octets());
            frame[30..34].copy_from_slice(&target.octets());
            let sum = !Sum::default().add(&frame[14..34]).fold();
            frame[24..26].copy_from_slice(&sum.to_ne_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            frame[14] = 0x60;
            put16(frame, 18, udp_bytes);
            frame[20] = UDP;
            frame[21] = HOPS_MAX;
            frame[22..38].copy_from_slice(&source.octets());
            frame[38..54].copy_from_slice(&target.octets());
        }
        _ => unreachable!("peers are of our family: checked when room was reserved"),
    }
    let udp_at = layout.udp_at;
    put16(frame, udp_at, usize::from(local.address.port()));
    put16(frame, udp_at + 2, usize::from(to.port()));
    put16(frame, udp_at + 4, udp_bytes);
    put16(frame, udp_at + 6, 0);
    let sum = !pseudo_header(frame, layout, udp_bytes).add(&frame[udp_at..]).fold();
    // 0 would mean that there is no checksum.
    let sum = if sum == 0 { u16::MAX } else { sum };
    frame[udp_at + 6..udp_at + 8].copy_from_slice(&sum.to_ne_bytes());
}

/// The sum over addresses, protocol and length that a UDP checksum starts with.
fn pseudo_header(frame: &[u8], layout: Layout, udp_bytes: usize) -> Sum {
    let len = (udp_bytes as u16).to_be_bytes();
    Sum::default().add(&frame[layout.addresses()]).add(&[0, UDP]).add(&len)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        _ => octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put16(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// The Internet's sum in ones' complement, in this machine's byte order: swapping the bytes of all
/// words swaps those of the sum (RFC 1071).
#[derive(Clone, Copy, Default)]
struct Sum(u64);

impl Sum {
    /// Adds bytes that start at an even place.
    fn add(self, bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        for pair in rest.chunks(2) {
            let pair = [pair[0], pair.get(1).copied().unwrap_or_default()];
            sum += u64::from(u16::from_ne_bytes(pair));
        }
        Sum(sum)
    }

    fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > u64::from(u16::MAX) {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = [2, 0, 0, 0, 0, 1];
    const THEIRS: Mac = [2, 0, 0, 0, 0, 2];

    fn frame(from: &str, to: &str, payload: &[u8]) -> (Vec<u8>, Layout) {
        let local = Local { mac: OURS, address: from.parse().unwrap() };
        let layout = Layout::of(local.address);
        let mut frame = vec![0xa5; layout.payload_at() + payload.len()];
        frame[layout.payload_at()..].copy_from_slice(payload);
        write(&mut frame, &local, THEIRS, to.parse().unwrap());
        (frame, layout)
    }

    const PAIRS: [(&str, &str); 2] =
        [("10.0.0.1:7379", "10.0.0.2:9"), ("[fd00::1]:7379", "[fd00::2]:65535")];

    #[test]
    fn what_is_written_is_read_back() {
        for (from, to) in PAIRS {
            for len in [1, 2, 3, 31, 64, 1400] {
                let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
                let (mut frame, layout) = frame(from, to, &payload);
                // Short frames arrive padded.
                frame.extend([0; 9]);
                let arrived = parse(&frame, layout).unwrap();
                assert_eq!((arrived.mac, arrived.from), (OURS, from.parse().unwrap()));
                assert_eq!(frame[arrived.payload], payload);
                assert_eq!(frame[..6], THEIRS);
            }
        }
    }

    #[test]
    fn a_header_of_rfc_1071s_arithmetic_has_its_known_checksum() {
        // The example of many textbooks: 192.168.0.1 to 192.168.0.199, UDP, checksum b861.
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!((!Sum::default().add(&header).fold()).to_ne_bytes(), [0xb8, 0x61]);
    }

    #[test]
    fn any_flipped_bit_behind_the_ethernet_header_is_found_or_harmless() {
        for (from, to) in PAIRS {
            let (good, layout) = frame(from, to, b"sixteen bytes ok");
            let want = parse(&good, layout).unwrap();
            for bit in 14 * 8..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                // IPv6 sums neither its first word nor its hop limit.
                if let Some(arrived) = parse(&bad, layout) {
                    assert!((14..22).contains(&(bit / 8)) && layout.address_bytes == 16, "{bit}");
                    assert_eq!(arrived, want);
                }
            }
        }
    }

    #[test]
    fn a_checksum_that_was_left_to_a_device_is_taken() {
        for (from, to) in PAIRS {
            let (mut frame, layout) = frame(from, to, b"payload");
            let partial = pseudo_header(&frame, layout, 15).fold().to_ne_bytes();
            frame[layout.udp_at + 6..layout.udp_at + 8].copy_from_slice(&partial);
            assert!(parse(&frame, layout).is_some());
        }
    }

    #[test]
    fn frames_that_end_early_are_refused_wherever_they_end() {
        for (from, to) in PAIRS {
            let (frame, layout) = frame(from, to, b"payload");
            for len in 0..frame.len() {
                assert_eq!(parse(&frame[..len], layout), None, "{len}");
            }
        }
    }
}
