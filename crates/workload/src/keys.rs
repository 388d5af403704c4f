//! From a key id to the bytes of a key of fixed length.

use crate::WorkloadError;
use crate::scramble::mix;

/// What key bytes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStyle {
    /// The id's bytes, least significant first; cheapest, for the embedded store.
    Binary,
    /// Digits, letters, `-` and `_`: what memcached's text protocol takes and a person can read.
    Text,
}

/// Writes keys of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFormat {
    style: KeyStyle,
    len_bytes: usize,
}

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const DIGIT_BITS: usize = 6;

impl KeyFormat {
    /// A format whose keys tell the ids `0..id_count` apart (W1).
    pub fn new(
        style: KeyStyle,
        len_bytes: usize,
        id_count: u64,
    ) -> Result<KeyFormat, WorkloadError> {
        let bits_per_byte = match style {
            KeyStyle::Binary => 8,
            KeyStyle::Text => DIGIT_BITS,
        };
        let bits = bits_per_byte * len_bytes;
        let capacity = if bits >= 64 { u64::MAX } else { 1 << bits };
        if len_bytes == 0 || id_count > capacity {
            return Err(WorkloadError::KeyTooShort { key_len_bytes: len_bytes, capacity });
        }
        Ok(KeyFormat { style, len_bytes })
    }

    /// The length of every key.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Writes the key of `id` into `key`, which is `len_bytes` long.
    #[inline]
    pub fn write(&self, id: u64, key: &mut [u8]) {
        debug_assert_eq!(key.len(), self.len_bytes);
        match self.style {
            KeyStyle::Binary => write_binary(id, key),
            KeyStyle::Text => write_text(id, key),
        }
    }
}

/// The id, then words that follow from it, so that long keys differ in more than their start.
#[inline]
fn write_binary(id: u64, key: &mut [u8]) {
    if let Ok(whole) = <&mut [u8; 8]>::try_from(&mut *key) {
        *whole = id.to_le_bytes();
        return;
    }
    let mut word = id;
    for chunk in key.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = mix(word.wrapping_add(1));
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
            let mut key = vec![0; len_bytes];
            format.write(id, &mut key);
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
}
