//! Keys split into slices of eight bytes, which sort as the keys do.
//!
//! ```text
//!  key "interest rate"      layer 0: "interest"  longer      layer 1: " rate\0\0\0"  5 bytes
//!  ordered by (slice as a big-endian number, kind):  "a" < "a\0" < "ab" < "abcdefgh" < longer
//! ```
//!
//! # Invariants
//! I1: two different keys that agree on all layers above differ in slice or kind here, unless both
//!     are longer.

/// The bytes of a key that one layer compares.
pub(super) const SLICE_BYTES: usize = 8;

/// A key's kind in one layer: how many of its bytes are left there, or that it is longer than the
/// slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind(pub u8);

impl Kind {
    /// The key continues behind its slice.
    pub(super) const LONGER: Kind = Kind(9);
    /// Above every kind: where a reverse walk enters a layer.
    const ABOVE_ALL: Kind = Kind(10);
}

/// A key's place in the order of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub slice: u64,
    pub kind: Kind,
}

impl Place {
    /// The lowest place.
    pub(super) const FIRST: Place = Place { slice: 0, kind: Kind(0) };
    /// Above every key's place.
    pub(super) const END: Place = Place { slice: u64::MAX, kind: Kind::ABOVE_ALL };

    /// The place of `key` in the layer that begins at its byte `depth_bytes`.
    #[inline]
    pub(super) fn of(key: &[u8], depth_bytes: usize) -> Place {
        let rest = &key[depth_bytes..];
        if let Some(slice) = rest.first_chunk::<SLICE_BYTES>() {
            let kind = if rest.len() > SLICE_BYTES { Kind::LONGER } else { Kind(8) };
            return Place { slice: u64::from_be_bytes(*slice), kind };
        }
        Place { slice: short_slice(rest), kind: Kind(rest.len() as u8) }
    }
}

/// A slice of fewer than eight bytes, padded with zeros.
#[inline]
fn short_slice(rest: &[u8]) -> u64 {
    let len = rest.len();
    if len >= 4 {
        // Two overlapping halves instead of a loop: keys that are ids have this length.
        let first = u64::from(u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]));
        let tail = &rest[len - 4..];
        let last = u64::from(u32::from_be_bytes([tail[0], tail[1], tail[2], tail[3]]));
        return (first << 32) | (last << (8 * (8 - len)));
    }
    let mut slice = 0;
    for (at, byte) in rest.iter().enumerate() {
        slice |= u64::from(*byte) << (56 - 8 * at);
    }
    slice
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_order_as_their_keys_do() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for len in 0..=8 {
            for fill in [0_u8, 1, 0x7f, 0x80, 0xff] {
                keys.push(vec![fill; len]);
                let mut key = vec![b'm'; len];
                if let Some(last) = key.last_mut() {
                    *last = fill;
                }
                keys.push(key);
            }
        }
        for left in &keys {
            for right in &keys {
                let (left_place, right_place) = (Place::of(left, 0), Place::of(right, 0));
                assert_eq!(left_place.cmp(&right_place), left.cmp(right), "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn a_longer_key_is_behind_all_that_end_with_the_slice() {
        let longer = Place::of(b"abcdefgh0", 0);
        assert!(Place::of(b"abcdefgh", 0) < longer && longer < Place::of(b"abcdefgi", 0));
        assert_eq!(Place::of(b"abcdefgh0", 8), Place::of(b"0", 0));
        assert_eq!(Place::of(b"abcdefgh", 8), Place::FIRST);
        assert!(Place::of(&[0xff; 9], 0) < Place::END);
    }
}
