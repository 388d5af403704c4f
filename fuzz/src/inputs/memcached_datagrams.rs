//! Datagrams as memcached's clients send them, whole and damaged.

use crate::rng::Rng;

/// A header, mostly of one datagram, and a request behind it.
pub fn memcached_datagrams(rng: &mut Rng) -> Vec<u8> {
    let mut out = rng.next_u64().to_be_bytes().to_vec();
    if !rng.one_in(4) {
        out[4..6].copy_from_slice(&[0, 1]);
    }
    let asked: [&[u8]; 4] = [b"get k\r\n", b"mn\r\n", b"set k 0 0 2\r\nhi\r\n", &[0x80, 0, 0, 1]];
    out.extend_from_slice(asked[rng.below(4)]);
    if rng.one_in(3) {
        out.truncate(rng.below(out.len() + 1));
    }
    out
}
