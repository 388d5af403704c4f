//! Keys in base64, decoded as memcached decodes them: letters outside the alphabet are skipped, and
//! bytes after the padding are ignored.
//!
//! A stricter decoder would refuse keys that memcached accepts, so two clients of one cache might
//! not mean the same key. That is why no crate is used.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The decoded bytes of `text`; `None`: it is not a whole number of groups of four letters, or has
/// more than two bytes of padding.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let letters = || text.iter().filter(|byte| **byte == b'=' || value_of(**byte).is_some());
    let count = letters().count();
    if count == 0 || !count.is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(count / 4 * 3);
    let (mut group, mut in_group, mut padding) = (0_u32, 0, 0);
    for letter in letters() {
        padding += usize::from(*letter == b'=');
        group = group << 6 | value_of(*letter).unwrap_or(0);
        in_group += 1;
        if in_group < 4 {
            continue;
        }
        let [_, three @ ..] = group.to_be_bytes();
        match padding {
            0 => bytes.extend_from_slice(&three),
            1 | 2 => {
                bytes.extend_from_slice(&three[..3 - padding]);
                break;
            }
            _ => return None,
        }
        (group, in_group) = (0, 0);
    }
    Some(bytes)
}

/// Appends `bytes` in base64, padded.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=three.len()].copy_from_slice(three);
        let group = u32::from_be_bytes(group);
        for place in 0..4 {
            let index = (group >> (18 - 6 * place)) as usize & 63;
            out.push(if place <= three.len() { ALPHABET[index] } else { b'=' });
        }
    }
}

fn value_of(letter: u8) -> Option<u32> {
    Some(match letter {
        b'A'..=b'Z' => u32::from(letter - b'A'),
        b'a'..=b'z' => u32::from(letter - b'a') + 26,
        b'0'..=b'9' => u32::from(letter - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{decode, encode};

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytes, &mut out);
        out
    }

    #[test]
    fn letters_stand_for_bytes() {
        for (bytes, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encoded(bytes.as_bytes()), text.as_bytes());
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode(b"Zm.9v").unwrap(), b"foo", "others are passed over");
        assert_eq!(decode(b"Zg==Zm9v").unwrap(), b"f", "the padding ends it");
        for text in [&b""[..], b"Zg", b"Zg=", b"....", b"====", b"Z==="] {
            assert_eq!(decode(text), None);
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 1..80)) {
            prop_assert_eq!(decode(&encoded(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn no_text_breaks_it(text in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(bytes) = decode(&text) {
                prop_assert!(!bytes.is_empty() && bytes.len() <= text.len() / 4 * 3);
            }
        }
    }
}
