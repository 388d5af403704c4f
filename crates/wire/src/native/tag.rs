//! The keyed tag: SipHash-2-4 over a frame without its tag field (docs/decisions/0022).
//!
//! ```text
//!  tag = SipHash-2-4(key, frame[0..24] ++ frame[32..length])
//! ```
//!
//! The tag rejects frames of strangers and detects damage. It does not encrypt the contents, and
//! each holder of the key can impersonate every other.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use thiserror::Error;

use super::header::{HEADER_LEN_BYTES, TAG_AT};

/// The size of a key.
pub const TAG_KEY_LEN_BYTES: usize = 16;

/// A secret of 128 bits that both sides hold.
#[derive(Clone, Copy)]
pub struct TagKey {
    keyed: SipHasher24,
}

/// The text is not a key.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a key is 32 hexadecimal digits; make one with: head -c 16 /dev/urandom | xxd -p")]
pub struct BadTagKey;

impl TagKey {
    /// The key made of these bytes.
    pub fn new(bytes: &[u8; TAG_KEY_LEN_BYTES]) -> TagKey {
        TagKey { keyed: SipHasher24::new_with_key(bytes) }
    }

    /// The key written as 32 hexadecimal digits, as in a key file; surrounding white space is
    /// ignored.
    pub fn from_hex(text: &str) -> Result<TagKey, BadTagKey> {
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * TAG_KEY_LEN_BYTES {
            return Err(BadTagKey);
        }
        let mut bytes = [0_u8; TAG_KEY_LEN_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (hex_digit(pair[0])? << 4) | hex_digit(pair[1])?;
        }
        Ok(TagKey::new(&bytes))
    }

    /// The tag of a frame of at least a header's length.
    #[inline]
    pub(super) fn tag(&self, frame: &[u8]) -> u64 {
        let mut hasher = self.keyed;
        hasher.write(&frame[..TAG_AT]);
        hasher.write(&frame[HEADER_LEN_BYTES..]);
        hasher.finish()
    }
}

impl fmt::Debug for TagKey {
    /// Leaves the key out.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TagKey")
    }
}

fn hex_digit(byte: u8) -> Result<u8, BadTagKey> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(BadTagKey),
    }
}
