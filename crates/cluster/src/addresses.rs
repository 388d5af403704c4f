//! Addresses of a node: those it announces, and those that the configuration lists for its members.

/// The longest host name and the longest `HOST:PORT` (RFC 1035: 253 bytes of a name).
pub const ADDRESS_MAX_BYTES: usize = 261;

/// Of one node. A port of 0 is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// What clients are told.
    pub host: String,
    /// The port of RESP.
    pub resp: u16,
    /// The port of memcached's protocol.
    pub memcached: u16,
    /// The port of the native protocol.
    pub native: u16,
    /// The port of the admin pages.
    pub admin: u16,
    /// `HOST:PORT` of what peers send, by UDP and by TCP.
    pub peer: String,
}

impl Addresses {
    /// Whether its names are as short as names are.
    pub fn is_valid(&self) -> bool {
        self.host.len() <= ADDRESS_MAX_BYTES && self.peer.len() <= ADDRESS_MAX_BYTES
    }
}
