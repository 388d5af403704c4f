//! Keys, in eras of a few seconds each, so that no key's history grows too long to be judged.
//!
//! ```text
//!  number   era 0                                  era 1
//!           0 ... 31 │ 32 ... 39 │ 40 ... 47 │ 48 ... 63 │ 64 ...
//!           plain      large       mortal      pairs
//! ```

use std::time::Duration;

/// The number of keys of an era, of all classes.
pub const KEYS_PER_ERA: usize = 64;
/// How long an era's keys are written.
pub const ERA: Duration = Duration::from_secs(12);

/// The classes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Numbers, by both protocols.
    Plain,
    /// Values up to a mebibyte.
    Large,
    /// Values that expire.
    Mortal,
    /// Two keys of one slot that are written together.
    Pair,
}

const ENDS: [(Class, usize); 4] =
    [(Class::Plain, 32), (Class::Large, 40), (Class::Mortal, 48), (Class::Pair, KEYS_PER_ERA)];

/// The class of a key.
pub fn class(key: usize) -> Class {
    let place = key % KEYS_PER_ERA;
    ENDS.iter().find(|(_, end)| place < *end).map_or(Class::Pair, |(class, _)| *class)
}

/// A key of an era and a class; `any` chooses.
pub fn key_of(era: usize, wanted: Class, any: u64) -> usize {
    let mut from = 0;
    for (class, end) in ENDS {
        if class == wanted {
            let key = era * KEYS_PER_ERA + from + any as usize % (end - from);
            // A pair goes by its first.
            return if class == Class::Pair { key & !1 } else { key };
        }
        from = end;
    }
    era * KEYS_PER_ERA
}

/// The key's name on the servers.
pub fn name(key: usize) -> String {
    match class(key) {
        Class::Pair if key.is_multiple_of(2) => format!("{{pair{key}}}a"),
        Class::Pair => format!("{{pair{}}}b", key - 1),
        _ => format!("key{key}"),
    }
}

/// The value for a number: the number itself, or, for a large key, as many bytes as the number
/// determines.
pub fn text(key: usize, number: i64) -> String {
    const LENGTHS: [usize; 8] = [2_000, 2_000, 20_000, 20_000, 60_000, 70_000, 250_000, 1_000_000];
    if class(key) != Class::Large {
        return number.to_string();
    }
    let length = LENGTHS[(number / 1000) as usize % LENGTHS.len()];
    let mut text = format!("{number}:");
    let mut word = number as u64;
    while text.len() < length {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        text.push_str(&format!("{word:016x}"));
    }
    text.truncate(length);
    text
}

/// The number of this value; `None` if it belongs to no number.
pub fn number(key: usize, bytes: &[u8]) -> Option<i64> {
    let said = std::str::from_utf8(bytes).ok()?;
    let number = said.split(':').next()?.parse().ok()?;
    (class(key) != Class::Large || text(key, number) == said).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_are_whole_or_nobodys() {
        let key = key_of(3, Class::Large, 5);
        assert_eq!((class(key), key / KEYS_PER_ERA), (Class::Large, 3));
        let mut bytes = text(key, 7_001_000).into_bytes();
        assert_eq!(number(key, &bytes), Some(7_001_000));
        bytes[1000] ^= 1;
        assert_eq!(number(key, &bytes), None);
    }

    #[test]
    fn both_keys_of_a_pair_have_one_slot() {
        let first = key_of(2, Class::Pair, 7);
        assert_eq!(name(first).replace("}a", "}b"), name(first + 1));
        assert_eq!(class(first + 1), Class::Pair);
    }
}
