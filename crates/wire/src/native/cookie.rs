//! Cookies and session ids: values that a server hands out without keeping any state.
//!
//! ```text
//!  cookie  = slot (low 8 bits) | SipHash-2-4(secret, "cookie"  address nonce slot) (high 56)
//!  session =                     SipHash-2-4(secret, "session" address serial 0)
//! ```
//!
//! A slot is a stretch of time; a cookie is valid in its own slot and the next.
//!
//! A session's id is made from a serial number, never from the client's input. The id of an ended
//! session must not come back, or a late copy of its writes would find a session that does not
//! remember them. A server keeps each session's nonce, and answers a repeated hello with the same
//! welcome while the session lives.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use super::header::SessionId;

/// The size of a cookie secret.
pub const COOKIE_SECRET_LEN_BYTES: usize = 16;

/// Makes and checks cookies. The secret is generated at the server's start and never revealed.
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
        // 0 means none; one hash in 2^56 gets another bit instead.
        if cookie == 0 { 1 << SLOT_BITS } else { cookie }
    }

    /// Whether the cookie was made for this hello and address in this slot or the previous one.
    pub fn is_good(&self, cookie: u64, address: SocketAddr, nonce: u64, slot: u64) -> bool {
        // At most one hash, whatever the input; the comparison takes the same time wherever they
        // differ.
        let slot = if cookie & SLOT_MASK == slot & SLOT_MASK { slot } else { slot.wrapping_sub(1) };
        cookie == self.cookie(address, nonce, slot)
    }

    /// The id of the `serial`-th session that was granted under this secret. Never 0.
    pub fn session(&self, address: SocketAddr, serial: u64) -> SessionId {
        SessionId(self.hash(b"session\0", address, serial, 0).max(1))
    }

    fn hash(&self, purpose: &[u8; 8], address: SocketAddr, first: u64, second: u64) -> u64 {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        // A fixed layout, so that no two inputs are the same bytes.
        let mut hasher = self.keyed;
        hasher.write(purpose);
        hasher.write(&ip.octets());
        hasher.write(&u64::from(address.port()).to_le_bytes());
        hasher.write(&first.to_le_bytes());
        hasher.write(&second.to_le_bytes());
        hasher.finish()
    }
}

impl fmt::Debug for Cookies {
    /// Leaves the secret out.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Cookies")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn cookies() -> Cookies {
        Cookies::new(b"only this server")
    }

    #[test]
    fn a_cookie_is_good_for_its_hello_in_two_slots() {
        let (cookies, here) = (cookies(), address("10.0.0.1:999"));
        for slot in [0, 5, 255, 256, u64::MAX - 1] {
            let cookie = cookies.cookie(here, 7, slot);
            assert!(cookies.is_good(cookie, here, 7, slot));
            assert!(cookies.is_good(cookie, here, 7, slot + 1));
            for later in [2, 3, 256, 257] {
                assert!(!cookies.is_good(cookie, here, 7, slot.wrapping_add(later)), "{later}");
            }
            assert!(!cookies.is_good(cookie, here, 8, slot));
            assert!(!cookies.is_good(cookie, address("10.0.0.1:998"), 7, slot));
            assert!(!cookies.is_good(cookie, address("10.0.0.2:999"), 7, slot));
            assert!(!Cookies::new(&[0; 16]).is_good(cookie, here, 7, slot));
        }
    }

    #[test]
    fn no_other_cookie_is_good() {
        let (cookies, here) = (cookies(), address("[fe80::1]:7379"));
        let cookie = cookies.cookie(here, 7, 3);
        assert!((0..64).all(|bit| !cookies.is_good(cookie ^ (1 << bit), here, 7, 3)));
        assert!(!cookies.is_good(0, here, 7, 3));
    }

    #[test]
    fn an_address_is_the_same_in_both_families() {
        let (plain, mapped) = (address("10.0.0.1:999"), address("[::ffff:10.0.0.1]:999"));
        assert_eq!(cookies().cookie(plain, 1, 1), cookies().cookie(mapped, 1, 1));
    }

    #[test]
    fn no_two_sessions_have_one_id() {
        let here = address("10.0.0.1:999");
        let ids: std::collections::HashSet<_> =
            (0..10_000).map(|serial| cookies().session(here, serial)).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(!ids.contains(&SessionId(0)));
        assert_eq!(format!("{:?}", cookies()), "Cookies", "no secret in a log");
    }
}
