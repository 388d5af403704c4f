//! Socket addresses as the kernel writes them, and as senders.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::Sender;

/// Room for an address of either family. All zero means "none".
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// The length of the longer one.
pub(crate) const NAME_BYTES: u32 = size_of::<Name>() as u32;

// Both families keep the family in the first two bytes, so that it can be read through either.
const _: () = {
    assert!(std::mem::offset_of!(libc::sockaddr_in, sin_family) == 0);
    assert!(std::mem::offset_of!(libc::sockaddr_in6, sin6_family) == 0);
    assert!(size_of::<Name>() == size_of::<libc::sockaddr_in6>());
};

impl Name {
    pub(crate) const NONE: Name = Name {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// The address, and its significant length.
    pub(crate) fn of(address: SocketAddr) -> (Name, u32) {
        match address {
            SocketAddr::V4(v4) => {
                let mut name = Name::NONE;
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                (name, size_of::<libc::sockaddr_in>() as u32)
            }
            SocketAddr::V6(v6) => {
                let name = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (Name { v6: name }, NAME_BYTES)
            }
        }
    }

    /// The address in these bytes, as the kernel wrote them.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Name {
        let mut name = Name::NONE;
        let len = bytes.len().min(size_of::<Name>());
        // SAFETY: both are of that length, do not overlap, and any bytes are a `Name`.
        unsafe { (&raw mut name).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        name
    }

    /// The sender with this name; `None` for a family that is neither IPv4 nor IPv6.
    pub(crate) fn sender(&self) -> Option<Sender> {
        // SAFETY: every byte of a `Name` is initialised, and any bytes are a `sockaddr_in6`.
        let v6 = unsafe { self.v6 };
        match i32::from(v6.sin6_family) {
            libc::AF_INET => {
                // SAFETY: as above, for a `sockaddr_in`.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_it_names() {
        for text in ["127.0.0.1:1", "10.20.30.40:65535", "[::1]:7379", "[fe80::1:2%3]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            let (name, _) = Name::of(address);
            assert_eq!(name.sender().unwrap().as_address(), Some(address));
        }
        assert_eq!(Name::NONE.sender(), None);
    }
}
