//! Steps of the binary protocol.

use super::text::VALUES;
use super::{NUMBER, Step, TOKEN};
use crate::conformance::rng::Rng;

pub const HEADER_BYTES: usize = 24;

/// The opaque of the noop behind each step.
const FENCE: u32 = 0xfffe_4d4b;
const NOOP: u8 = 0x0a;

const KEYS: [&[u8]; 6] = [b"a", b"a", b"b", NUMBER, b"\0 \r\n\xff", &[b'k'; 250]];

/// A request under construction.
#[derive(Clone, Copy, Default)]
struct Packet<'p> {
    opcode: u8,
    extras: &'p [u8],
    key: &'p [u8],
    value: &'p [u8],
    cas: [u8; 8],
    opaque: u32,
}

impl Packet<'_> {
    fn bytes(&self) -> Vec<u8> {
        let body_len = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend((self.key.len() as u16).to_be_bytes());
        bytes.extend([self.extras.len() as u8, 0, 0, 0]);
        bytes.extend((body_len as u32).to_be_bytes());
        bytes.extend(self.opaque.to_be_bytes());
        bytes.extend(self.cas);
        for part in [self.extras, self.key, self.value] {
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// The fence: the command that ends the replies to a step.
pub fn fence() -> Vec<u8> {
    Packet { opcode: NOOP, opaque: FENCE, ..Packet::default() }.bytes()
}

/// Whether a response belongs to the fence.
pub fn is_fence(header: &[u8; HEADER_BYTES]) -> bool {
    header[12..16] == FENCE.to_be_bytes()
}

/// The command that empties a server.
pub fn flush() -> Vec<u8> {
    Packet { opcode: 0x08, ..Packet::default() }.bytes()
}

/// Items that live for a second.
pub fn short_lived() -> Vec<u8> {
    let second = [0, 0, 0, 5, 0, 0, 0, 1];
    let set = Packet { opcode: 0x01, extras: &second, key: b"a", value: b"1", ..Packet::default() };
    let touch = Packet { opcode: 0x1c, extras: &second[4..], key: b"b", ..Packet::default() };
    let gat = Packet { opcode: 0x1d, extras: &second[4..], key: b"n", ..Packet::default() };
    [set.bytes(), touch.bytes(), gat.bytes()].concat()
}

fn one_of<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len())]
}

/// A valid or damaged request.
pub fn step(rng: &mut Rng) -> Step {
    if rng.one_in(60) {
        return closing(rng);
    }
    let key = rng.pick(&KEYS);
    let opaque = rng.next_u64() as u32 & 0x7fff_ffff;
    let cas = one_of(rng, &[[0; 8], [0; 8], [0; 8], [0, 0, 0, 99, 0, 0, 0, 1], *TOKEN, *TOKEN]);
    let packet = Packet { key, opaque, cas, ..Packet::default() };
    let bytes = match rng.below(16) {
        0..=3 => Packet { opcode: one_of(rng, &[0x00, 0x09, 0x0c, 0x0d]), ..packet }.bytes(),
        4..=6 => {
            let opcode = one_of(rng, &[0x01, 0x02, 0x03, 0x11, 0x12, 0x13]);
            let flags = one_of(rng, &[0_u32, 5, u32::MAX]).to_be_bytes();
            let times = [0, 0, 90_000, 2_000_000_000, 4_000_000_000, u32::MAX];
            let time = one_of(rng, &times).to_be_bytes();
            let (extras, value) = ([flags, time].concat(), rng.pick(&VALUES));
            Packet { opcode, extras: &extras, value, ..packet }.bytes()
        }
        7 | 8 => {
            let opcode = one_of(rng, &[0x0e, 0x0f, 0x19, 0x1a]);
            let key = if key == NUMBER { b"b" } else { key };
            let joined = Packet { opcode, key, value: rng.pick(&VALUES), ..packet };
            return Step::of(key, joined.bytes());
        }
        9 => Packet { opcode: one_of(rng, &[0x04, 0x14]), ..packet }.bytes(),
        10..=12 => {
            let opcode = one_of(rng, &[0x05, 0x06, 0x15, 0x16]);
            let extras = count_extras(rng);
            return Step::of(
                NUMBER,
                Packet { opcode, extras: &extras, key: NUMBER, ..packet }.bytes(),
            );
        }
        13 | 14 => {
            let opcode = one_of(rng, &[0x1c, 0x1d, 0x1e, 0x23, 0x24]);
            let times = [0_u32, 0, 90_000, 2_592_000, 2_592_001, 4_000_000_000];
            let extras = one_of(rng, &times).to_be_bytes();
            Packet { opcode, extras: &extras, ..packet }.bytes()
        }
        _ => other(rng, opaque),
    };
    Step::of(key, bytes)
}

fn count_extras(rng: &mut Rng) -> Vec<u8> {
    let mut extras = Vec::new();
    extras.extend(one_of(rng, &[0, 1, 7, 1 << 63, u64::MAX]).to_be_bytes());
    extras.extend(one_of(rng, &[0, 5, u64::MAX]).to_be_bytes());
    extras.extend(one_of(rng, &[u32::MAX, u32::MAX, 0, 90_000, 4_000_000_000]).to_be_bytes());
    extras
}

/// A request without a key. After an unknown request with extras or a key memcached loses its
/// position in the stream.
fn other(rng: &mut Rng, opaque: u32) -> Vec<u8> {
    let plain = |opcode| Packet { opcode, opaque, ..Packet::default() };
    let stat = |key| Packet { key, ..plain(0x10) };
    let packets = [
        plain(NOOP),
        plain(0x0b),
        stat(b"reset"),
        stat(b"resetting"),
        // For `detail` alone memcached reads leftover bytes of earlier input.
        stat(b"detail_x"),
        stat(b"detail dump"),
        stat(b"detail off"),
        stat(b"nonsense"),
        plain(0x08),
        plain(0x18),
        Packet { extras: &[0; 4], ..plain(0x08) },
        plain(0x1b),
        Packet { value: b"abcd", ..plain(0x1b) },
        plain(0x25),
        plain(0xff),
        Packet { value: &[7; 100], ..plain(0x40) },
        plain(0x20),
        Packet { key: b"PLAIN", value: b"\0a\0b", ..plain(0x21) },
        Packet { key: b"PLAIN", ..plain(0x22) },
    ];
    packets[rng.below(packets.len())].bytes()
}

/// Requests that end a connection.
fn closing(rng: &mut Rng) -> Step {
    let plain = |opcode| Packet { opcode, opaque: 99, ..Packet::default() };
    let packets = [
        plain(0x07),
        plain(0x17),
        plain(0x00),
        Packet { key: &[b'k'; 251], ..plain(0x00) },
        Packet { key: b"key", value: b"value", ..plain(0x09) },
        Packet { key: b"k", value: b"v", extras: &[0; 4], ..plain(0x01) },
        Packet { key: b"k", ..plain(0x0b) },
        Packet { key: b"k", extras: &[0; 8], ..plain(0x05) },
        Packet { extras: &[0; 3], ..plain(0x08) },
        Packet { key: b"k", ..plain(0x1c) },
        Packet { extras: b"x", ..plain(NOOP) },
        Packet { extras: b"abcd", ..plain(0x10) },
        Packet { key: b"PLAIN", extras: b"x", ..plain(0x21) },
        Packet { value: b"v", ..plain(0x22) },
    ];
    let mut bytes = packets[rng.below(packets.len())].bytes();
    match rng.below(8) {
        0 => bytes[0] = 0x81,
        // A body that is shorter than its parts.
        1 if bytes[11] > 0 => bytes[11] -= 1,
        _ => {}
    }
    Step { closes: true, ..Step::of(b"", bytes) }
}
