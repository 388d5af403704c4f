//! Cookies and session ids: what a server hands out without keeping anything.
//!
//! ```text
//!  cookie  = slot (low 8 bits) | SipHash-2-4(secret, "cookie"  address nonce slot) (high 56)
//!  session =                     SipHash-2-4(secret, "session" address nonce cookie)
//! ```
//!
//! A slot is a stretch of time; a cookie is good in its own slot and the next. Everything is a
//! function of its arguments: a hello that is repeated gets the same answer.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use super::header::SessionId;

/// The size of a cookie secret.
pub const COOKIE_SECRET_LEN_BYTES: usize = 16;

/// Makes and checks cookies. The secret is drawn at the server's start and told to nobody.
#[derive(Clone, Copy)]
pub struct Cookies {
    keyed: SipHasher24,
}

const SLOT_BITS: u32 = 8;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

impl Cookies {
    /// Cookies under this secret.
    pub fn new(secret: &[u8; COOKIE_SECRET_LEN_BYTES]) -> Cookies {
        Cookies { keyed: SipHasher24::new_with_key(secret) }
    }

    /// The cookie for a hello of `nonce` from `address`, in this slot of time. Never 0.
    pub fn cookie(&self, address: SocketAddr, nonce: u64, slot: u64) -> u64 {
        let hash = self.hash(b"cookie\0\0", address, nonce, slot);
        let cookie = (hash & !SLOT_MASK) | (slot & SLOT_MASK);
        // 0 means none; one hash in 2^56 pays for that with a bit.
        if cookie == 0 { 1 << SLOT_BITS } else { cookie }
    }

    /// Whether the cookie was made for this hello and address in this slot or the one before.
    pub fn is_good(&self, cookie: u64, address: SocketAddr, nonce: u64, slot: u64) -> bool {
        // At most one hash, whatever comes; the compare takes the same time wherever they differ.
        let slot = if cookie & SLOT_MASK == slot & SLOT_MASK { slot } else { slot.wrapping_sub(1) };
        cookie == self.cookie(address, nonce, slot)
    }

    /// The session of a hello whose cookie is good: the same for the same hello. Never 0.
    pub fn session(&self, address: SocketAddr, nonce: u64, cookie: u64) -> SessionId {
        SessionId(self.hash(b"session\0", address, nonce, cookie).max(1))
    }

    fn hash(&self, purpose: &[u8; 8], address: SocketAddr, nonce: u64, last: u64) -> u64 {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        // A fixed layout, so that no two inputs are the same bytes.
        let mut hasher = self.keyed;
        hasher.write(purpose);
        hasher.write(&ip.octets());
        hasher.write(&u64::from(address.port()).to_le_bytes());
        hasher.write(&nonce.to_le_bytes());
        hasher.write(&last.to_le_bytes());
        hasher.finish()
    }
}

impl fmt::Debug for Cookies {
    /// Leaves the secret out.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cookies")
    }
}
