//! Maps a key id to the bytes of its key, and back.

mod decimal;

use std::str::FromStr;

use crate::WorkloadError;
use crate::scramble::mix;

pub use decimal::DECIMAL_LEN_MAX_BYTES;

/// The style of key bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStyle {
    /// The id's bytes, least significant first; cheapest, for the embedded store.
    Binary,
    /// Digits, letters, `-` and `_`: allowed by memcached's text protocol and readable.
    Text,
    /// Random-looking numbers below 2^31 in decimal, without leading zeros: 1 to 10 digits, four
    /// of five keys with 9 or 10. Masstree's own test has these (Mao, Kohler and Morris,
    /// EuroSys 2012, §6.1).
    Decimal,
}

impl KeyStyle {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            KeyStyle::Binary => "binary",
            KeyStyle::Text => "text",
            KeyStyle::Decimal => "decimal",
        }
    }
}

impl FromStr for KeyStyle {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<KeyStyle, WorkloadError> {
        let styles = [KeyStyle::Binary, KeyStyle::Text, KeyStyle::Decimal];
        let found = styles.into_iter().find(|style| style.name() == text);
        found.ok_or_else(|| WorkloadError::UnknownKeyStyle { text: text.to_owned() })
    }
}

/// Writes keys of one style: of a fixed length, or decimal ones of up to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFormat {
    style: KeyStyle,
    len_max_bytes: usize,
}

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const DIGIT_BITS: usize = 6;

impl KeyFormat {
    /// A format whose keys are distinct for the ids `0..id_count` (W1).
    pub fn new(
        style: KeyStyle,
        len_bytes: usize,
        id_count: u64,
    ) -> Result<KeyFormat, WorkloadError> {
        let bits_per_byte = match style {
            KeyStyle::Binary => 8,
            KeyStyle::Text => DIGIT_BITS,
            KeyStyle::Decimal => return KeyFormat::decimal(id_count),
        };
        let bits = bits_per_byte * len_bytes;
        let capacity = if bits >= 64 { u64::MAX } else { 1 << bits };
        if len_bytes == 0 || id_count > capacity {
            return Err(WorkloadError::KeyTooShort { key_len_bytes: len_bytes, capacity });
        }
        Ok(KeyFormat { style, len_max_bytes: len_bytes })
    }

    fn decimal(id_count: u64) -> Result<KeyFormat, WorkloadError> {
        let (len_max_bytes, capacity) = (DECIMAL_LEN_MAX_BYTES, decimal::CAPACITY);
        if id_count > capacity {
            return Err(WorkloadError::KeyTooShort { key_len_bytes: len_max_bytes, capacity });
        }
        Ok(KeyFormat { style: KeyStyle::Decimal, len_max_bytes })
    }

    /// The style of the keys.
    pub fn style(&self) -> KeyStyle {
        self.style
    }

    /// The length of the longest key; of every key, unless they are decimal.
    pub fn len_max_bytes(&self) -> usize {
        self.len_max_bytes
    }

    /// Writes the key of `id` to the front of `key`, which has room for the longest; returns its
    /// length.
    #[inline]
    pub fn write(&self, id: u64, key: &mut [u8]) -> usize {
        debug_assert_eq!(key.len(), self.len_max_bytes);
        match self.style {
            KeyStyle::Binary => write_binary(id, key),
            KeyStyle::Text => write_text(id, key),
            KeyStyle::Decimal => return decimal::write(id, key),
        }
        key.len()
    }

    /// The id of this key; for keys of another format, any id or none.
    pub fn id_of(&self, key: &[u8]) -> Option<u64> {
        match self.style {
            KeyStyle::Binary => {
                let mut bytes = [0; 8];
                let len = key.len().min(8);
                bytes[..len].copy_from_slice(&key[..len]);
                Some(u64::from_le_bytes(bytes))
            }
            KeyStyle::Text => key.iter().try_fold(0_u64, |id, byte| {
                let digit = DIGITS.iter().position(|digit| digit == byte)?;
                Some(id << DIGIT_BITS | digit as u64)
            }),
            KeyStyle::Decimal => decimal::id_of(key),
        }
    }
}

/// The binary key of `id`, for a compile-time length: as [`KeyFormat::write`] writes it.
#[inline(always)]
pub fn binary_key<const LEN: usize>(id: u64) -> [u8; LEN] {
    let mut key = [0; LEN];
    write_binary(id, &mut key);
    key
}

/// The id, then words derived from it, so that long keys differ in more than their start.
#[inline(always)]
fn write_binary(id: u64, key: &mut [u8]) {
    let mut word = id;
    let (words, rest) = key.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = word.to_le_bytes();
        word = mix(word.wrapping_add(1));
    }
    for (byte, want) in rest.iter_mut().zip(word.to_le_bytes()) {
        *byte = want;
    }
}

/// The id in base 64, most significant digit first, with leading zeros.
#[inline]
fn write_text(id: u64, key: &mut [u8]) {
    let mut rest = id;
    for byte in key.iter_mut().rev() {
        *byte = DIGITS[(rest & 63) as usize];
        rest >>= DIGIT_BITS;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[track_caller]
    fn check_unique(style: KeyStyle, len_bytes: usize, ids: impl Iterator<Item = u64>) {
        let format = KeyFormat::new(style, len_bytes, 1).unwrap();
        let mut seen = HashSet::new();
        for id in ids {
            let mut key = vec![0; format.len_max_bytes()];
            let len = format.write(id, &mut key);
            key.truncate(len);
            assert_eq!(format.id_of(&key), Some(id), "{style:?} {len_bytes}");
            if style == KeyStyle::Text {
                assert!(key.iter().all(|byte| byte.is_ascii_graphic()));
            }
            assert!(seen.insert(key), "{style:?} {len_bytes}: id {id} repeats a key");
        }
    }

    #[test]
    fn ids_have_keys_of_their_own() {
        for style in [KeyStyle::Binary, KeyStyle::Text] {
            check_unique(style, 2, 0..4096);
            for len_bytes in [3, 8, 16, 17, 250] {
                check_unique(style, len_bytes, 0..5000);
                check_unique(style, len_bytes, (0..16).map(|shift| 3 << shift));
            }
        }
        check_unique(KeyStyle::Text, 16, (0..64).map(|bit| 1 << bit));
        check_unique(KeyStyle::Decimal, 10, (0..40_000).chain((1 << 31) - 1000..1 << 31));
    }

    #[test]
    fn text_keys_read_as_numbers_with_leading_zeros() {
        let mut key = [0; 8];
        write_text(64 * 10 + 61, &mut key);
        assert_eq!(&key, b"000000Az".as_slice());
    }

    #[test]
    fn a_key_too_short_for_its_ids_is_refused() {
        let refused = KeyFormat::new(KeyStyle::Text, 2, 4097);
        assert_eq!(refused, Err(WorkloadError::KeyTooShort { key_len_bytes: 2, capacity: 4096 }));
        assert!(KeyFormat::new(KeyStyle::Binary, 2, 65_536).is_ok());
        assert!(KeyFormat::new(KeyStyle::Binary, 0, 1).is_err());
    }

    #[test]
    fn binary_keys_of_a_known_length_are_those_of_the_format() {
        let format = KeyFormat::new(KeyStyle::Binary, 16, 1 << 40).unwrap();
        let mut key = [0; 16];
        format.write(987_654, &mut key);
        assert_eq!(binary_key::<16>(987_654), key);
        assert_eq!(binary_key::<8>(987_654), 987_654_u64.to_le_bytes());
    }

    #[test]
    fn decimal_keys_have_the_lengths_of_masstrees_test() {
        let format = KeyFormat::new(KeyStyle::Decimal, 0, 1 << 31).unwrap();
        let mut key = [0; DECIMAL_LEN_MAX_BYTES];
        let mut counts = [0_u32; DECIMAL_LEN_MAX_BYTES + 1];
        for id in 0..100_000 {
            let len = format.write(id, &mut key);
            assert!(key[..len].iter().all(u8::is_ascii_digit));
            assert!(len == 1 || key[0] != b'0', "no leading zeros");
            counts[len] += 1;
        }
        // Of 2^31 numbers, 1,147,483,648 have ten digits and 900,000,000 nine.
        let share = |len: usize| f64::from(counts[len]) / 1e5;
        assert!((share(10) - 0.534).abs() < 0.01 && (share(9) - 0.419).abs() < 0.01, "{counts:?}");
        assert!(KeyFormat::new(KeyStyle::Decimal, 0, (1 << 31) + 1).is_err());
    }

    #[test]
    fn styles_parse_as_they_print() {
        for style in [KeyStyle::Binary, KeyStyle::Text, KeyStyle::Decimal] {
            assert_eq!(style.name().parse(), Ok(style));
        }
        assert!("hex".parse::<KeyStyle>().is_err());
    }
}
