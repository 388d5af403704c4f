//! Ends of connections: addresses, and paths of Unix sockets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// An end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// An address and a port.
    Ip(SocketAddr),
    /// A Unix socket, by the path at which the server listens: both ends have that name.
    Unix(Arc<Path>),
}

impl End {
    /// The IP address, in one form; `None`: there is none.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            End::Ip(address) => Some(address.ip().to_canonical()),
            End::Unix(_) => None,
        }
    }

    /// Whether it is certainly on this host.
    pub fn is_local(&self) -> bool {
        self.address().is_none_or(is_loopback)
    }
}

impl fmt::Display for End {
    /// As CLIENT LIST has it: `127.0.0.1:1234`, or `/path:0`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Ip(address) => address.fmt(formatter),
            End::Unix(path) => write!(formatter, "{}:0", path.display()),
        }
    }
}

/// Whether an address is the loopback interface's, in IPv4, in IPv6, or in one within the other.
#[inline]
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
