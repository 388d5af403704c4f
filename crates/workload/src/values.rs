//! Values that identify the key and the write they come from.
//!
//! ```text
//!  value  = word 0 | word 1 | word 2 | ... | first bytes of the last word     (little-endian)
//!  word 0 = key id's tag (high 32 bits) | version (low 32 bits)
//!  word i = word 0 + i * STEP
//! ```
//!
//! A value shorter than a word carries the tag alone. A check costs one multiplication, and one
//! addition and one comparison per word, so that a client can check everything it reads and still
//! outrun a server.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The upper half of a product: ids below 2^32 rarely share one, and neighbours never do. Id 0 has
/// one too, so that memory that was never written is not a valid value.
#[inline(always)]
fn tag(id: u64) -> u64 {
    (id ^ STEP).wrapping_mul(STEP) >> 32
}

#[inline(always)]
fn first_word(id: u64, version: u32) -> u64 {
    tag(id) << 32 | u64::from(version)
}

/// Reads every byte: the least that a client does with a value, and cheaper than [`check`], which
/// needs the id. The sum has no meaning.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// Writes the value of `id` as of its write number `version`. Inlined, so that for a length that
/// the compiler knows it is a few stores.
#[inline(always)]
pub fn fill(id: u64, version: u32, value: &mut [u8]) {
    if value.len() < 8 {
        let word = first_word(id, tag(id) as u32).to_le_bytes();
        value.copy_from_slice(&word[..value.len()]);
        return;
    }
    let mut word = first_word(id, version);
    let mut words = value.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
    let rest = words.into_remainder();
    let len = rest.len();
    rest.copy_from_slice(&word.to_le_bytes()[..len]);
}

/// The version of a value of `id`, or `None` if a byte of it is wrong (W2).
#[inline(always)]
pub fn check(id: u64, value: &[u8]) -> Option<u32> {
    let Some((first, _)) = value.split_first_chunk::<8>() else {
        let word = first_word(id, tag(id) as u32).to_le_bytes();
        return (value == &word[..value.len()]).then_some(0);
    };
    let first = u64::from_le_bytes(*first);
    if value.len() == 8 {
        return (first >> 32 == tag(id)).then_some(first as u32);
    }
    let mut word = first;
    let mut difference = (first >> 32) ^ tag(id);
    let mut words = value.chunks_exact(8);
    for chunk in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        difference |= u64::from_le_bytes(bytes) ^ word;
        word = word.wrapping_add(STEP);
    }
    // Byte by byte: for so few, a call of `memcmp` costs more than the comparison.
    for (byte, want) in words.remainder().iter().zip(word.to_le_bytes()) {
        difference |= u64::from(byte ^ want);
    }
    (difference == 0).then_some(first as u32)
}

/// Whether `value` is one of `id` and `LEN` bytes long: [`check`] for a length that the compiler
/// knows.
#[inline(always)]
pub fn is_of<const LEN: usize>(id: u64, value: &[u8]) -> bool {
    match <&[u8; LEN]>::try_from(value) {
        Ok(value) => check(id, value).is_some(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_tells_its_version_at_any_length() {
        for len in 0..100 {
            let mut value = vec![0; len];
            fill(77, 5, &mut value);
            assert_eq!(check(77, &value), Some(if len < 8 { 0 } else { 5 }), "{len}");
        }
    }

    #[test]
    fn any_flipped_byte_is_noticed() {
        for len in [1, 4, 7, 8, 9, 16, 63, 64] {
            let mut value = vec![0; len];
            fill(77, 5, &mut value);
            // Bytes 0 to 3 are the version, which may be anything where no second whole word
            // depends on it.
            let from = if (8..16).contains(&len) { 4 } else { 0 };
            for place in from..len {
                value[place] ^= 0x10;
                assert_eq!(check(77, &value), None, "byte {place} of {len}");
                value[place] ^= 0x10;
            }
        }
    }

    #[test]
    fn a_value_of_another_length_is_noticed() {
        let mut value = [0; 16];
        fill(77, 5, &mut value);
        assert!(is_of::<16>(77, &value) && !is_of::<8>(77, &value));
        assert!(!is_of::<16>(78, &value) && !is_of::<16>(77, &value[..15]));
        assert!(!is_of::<16>(0, &[0; 16]), "memory that was never written is no value");
    }

    #[test]
    fn the_value_of_another_key_is_noticed() {
        for len in [4, 8, 64] {
            let mut value = vec![0; len];
            fill(1, 0, &mut value);
            assert!((2..2000).all(|id| check(id, &value).is_none()));
        }
    }
}
