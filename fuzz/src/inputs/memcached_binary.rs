//! Streams of memcached's binary protocol.

use super::damage;
use crate::rng::Rng;

/// Opcodes and the lengths of their extras; some are wrong, some are none.
const SHAPES: [(u8, usize); 16] = [
    (0x00, 0),
    (0x01, 8),
    (0x02, 8),
    (0x04, 0),
    (0x05, 20),
    (0x08, 4),
    (0x0a, 0),
    (0x0d, 0),
    (0x0e, 0),
    (0x10, 0),
    (0x11, 8),
    (0x1b, 4),
    (0x1d, 4),
    (0x20, 0),
    (0x21, 0),
    (0x33, 2),
];

/// A stream of requests, most of them damaged a little.
pub fn memcached_binary(rng: &mut Rng) -> Vec<u8> {
    let mut out = vec![rng.next_u64() as u8];
    for _ in 0..1 + rng.below(4) {
        request(rng, &mut out);
    }
    damage(rng, &mut out);
    out
}

fn request(rng: &mut Rng, out: &mut Vec<u8>) {
    let (opcode, extras_len) = SHAPES[rng.below(SHAPES.len())];
    let key_len = match rng.below(20) {
        0 => 245 + rng.below(10),
        1..8 => 0,
        _ => 1 + rng.below(8),
    };
    let value_len = match rng.below(10) {
        0 => 95 + rng.below(10),
        1..6 => 0,
        _ => rng.below(20),
    };
    let body_len = extras_len + key_len + value_len;
    out.extend([0x80, opcode, (key_len >> 8) as u8, key_len as u8, extras_len as u8, 0, 0, 0]);
    out.extend((body_len as u32).to_be_bytes());
    out.extend(rng.next_u64().to_be_bytes().into_iter().take(4));
    out.extend((rng.below(3) as u64).to_be_bytes());
    let byte = if rng.one_in(3) { 0xff } else { 0 };
    out.extend(std::iter::repeat_n(byte, extras_len));
    out.extend(std::iter::repeat_n(b'k', key_len + value_len));
}
