//! Addresses of a node: those it announces, and those that the configuration lists for its members.

/// The longest host name and the longest `HOST:PORT` (RFC 1035: 253 bytes of a name).
pub const ADDRESS_MAX_BYTES: usize = 261;

/// The addresses of one node. A port of 0 is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The host name that clients are given.
    pub host: String,
    /// The port of RESP.
    pub resp: u16,
    /// The port of RESP over TLS.
    pub tls_resp: u16,
    /// The port of memcached's protocol.
    pub memcached: u16,
    /// The port of memcached's protocol over TLS.
    pub tls_memcached: u16,
    /// The port of the native protocol.
    pub native: u16,
    /// The port of the admin pages.
    pub admin: u16,
    /// `HOST:PORT` for messages of peers, by UDP and by TCP.
    pub peer: String,
}

impl Addresses {
    /// Whether it has a port of TLS.
    pub fn has_tls(&self) -> bool {
        self.tls_resp != 0 || self.tls_memcached != 0
    }

    /// The port for Redis clients that have come in over TLS, or in clear text.
    pub fn resp_port(&self, is_tls: bool) -> Option<u16> {
        Some(if is_tls { self.tls_resp } else { self.resp }).filter(|port| *port != 0)
    }

    /// The same for memcached's protocol.
    pub fn memcached_port(&self, is_tls: bool) -> Option<u16> {
        Some(if is_tls { self.tls_memcached } else { self.memcached }).filter(|port| *port != 0)
    }

    /// Whether its names are within the limit.
    pub fn is_valid(&self) -> bool {
        self.host.len() <= ADDRESS_MAX_BYTES && self.peer.len() <= ADDRESS_MAX_BYTES
    }
}
