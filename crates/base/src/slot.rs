//! The hash slot of a key, as Redis Cluster computes it: CRC-16 of the key or of its tag.
//!
//! ```text
//!  user:1000            crc16("user:1000") mod 16384
//!  {user:1000}.name     crc16("user:1000") mod 16384      the first {...} that is not empty
//!  {}user               crc16("{}user")    mod 16384
//! ```

/// The number of slots.
pub const SLOT_COUNT: u16 = 16_384;

/// One of the 16,384 slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot of a key.
    pub fn of(key: &[u8]) -> Slot {
        Slot(crc16(tag(key)) % SLOT_COUNT)
    }
}

/// The part of the key that is hashed: between the first `{` and the next `}`, if that part is not
/// empty.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(len) if len > 0 => &rest[..len],
        _ => key,
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0, most significant bit first.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, want: u16) {
        assert_eq!(Slot::of(key.as_bytes()), Slot(want), "{key}");
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        check("foo", 12182);
        check("bar", 5061);
        check("hello", 866);
        check("", 0);
    }

    #[test]
    fn keys_of_one_tag_share_a_slot() {
        for key in ["{user:1000}.name", "{user:1000}", "x{user:1000}{other}"] {
            assert_eq!(Slot::of(key.as_bytes()), Slot::of(b"user:1000"), "{key}");
        }
        assert_ne!(Slot::of(b"{}user"), Slot::of(b""));
        assert_eq!(Slot::of(b"{user"), Slot(crc16(b"{user") % SLOT_COUNT));
    }
}
