//! The cluster's secret: 128 random bits that every node and manager reads from the config store
//! (K25).

use std::fmt;
use std::hash::Hasher;
use std::io::{self, Read};

use siphasher::sip128::{Hasher128, SipHasher24};

/// The length of a tag.
pub const TAG_BYTES: usize = 16;

/// The secret, or a key derived from it. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// Draws a new key.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn random() -> io::Result<Key> {
        random_bytes().map(Key)
    }

    /// Makes a key of its bytes.
    pub fn new(bytes: [u8; 16]) -> Key {
        Key(bytes)
    }

    /// Parses 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Key> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
        Some(Key(bits.to_be_bytes()))
    }

    /// The key in hexadecimal digits, for the settings in the config store only.
    pub fn to_hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// The key's bytes, for code that tags datagrams.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A keyed hash of the parts, SipHash-2-4 of 128 bits. Every part except the last has a fixed
    /// length.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish128().as_bytes()
    }

    /// Whether the tag matches the parts; takes equally long wherever they differ.
    pub fn is_tag(&self, parts: &[&[u8]], tag: &[u8; TAG_BYTES]) -> bool {
        let difference = u128::from_ne_bytes(self.tag(parts)) ^ u128::from_ne_bytes(*tag);
        std::hint::black_box(difference) == 0
    }

    /// Derives another key for one purpose.
    pub fn derive(&self, parts: &[&[u8]]) -> Key {
        Key(self.tag(parts))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(not shown)")
    }
}

/// Random bytes from the operating system's generator.
pub(crate) fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_back_and_nothing_else_is() {
        let key = Key::new([7; 16]);
        assert_eq!(Key::from_hex(&key.to_hex()), Some(key));
        for text in ["", "07", "+7070707070707070707070707070707", &"g".repeat(32)] {
            assert_eq!(Key::from_hex(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", Key::new([7; 16])), "Key(not shown)");
    }

    #[test]
    fn a_tag_is_of_one_key_and_one_text() {
        let key = Key::random().unwrap();
        let tag = key.tag(&[b"text"]);
        assert!(key.is_tag(&[b"te", b"xt"], &tag));
        assert!(!key.is_tag(&[b"texu"], &tag));
        assert!(!Key::random().unwrap().is_tag(&[b"text"], &tag));
    }
}
