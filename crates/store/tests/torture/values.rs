//! Keys and values that describe themselves: from a value a reader can tell its key, the write that
//! made it, and whether every byte of it is from that write.

use base::hash::mix;

/// Longest value: more than one segment of the smallest stores.
const LONGEST_BYTES: usize = 100_000;

/// The effect of one write of a key; it follows from key and sequence alone, so every thread knows
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Delete,
    /// A Set whose item expires soon.
    Expiring,
    /// A Set of an item that stays.
    Lasting,
    /// A read-modify-write that leaves an item that stays.
    Update,
}

impl Kind {
    /// Whether the key may be absent after this write.
    pub fn may_be_absent(self) -> bool {
        matches!(self, Kind::Delete | Kind::Expiring)
    }
}

/// Keys below this are never deleted and never expire: a scan of a store must return them all.
pub const STABLE: u64 = 100;

pub fn kind_of(key: u64, sequence: u64) -> Kind {
    match mix(key ^ sequence << 20) % 16 {
        0..3 if key >= STABLE => Kind::Delete,
        3..6 if key >= STABLE => Kind::Expiring,
        6..9 => Kind::Update,
        _ => Kind::Lasting,
    }
}

/// Three of four keys fill whole words, so that short values of theirs are replaced in place.
pub fn key_bytes(key: u64) -> Vec<u8> {
    if key % 4 == 3 { format!("key {key:07}").into_bytes() } else { format!("k{key:07}").into() }
}

/// The id of a key that [`key_bytes`] made.
pub fn key_id(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.strip_prefix(b"key ").or_else(|| bytes.strip_prefix(b"k"))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The length of a value: every layout of an entry occurs: in place, short, a page, alone in a
/// segment, in a run.
fn value_len(key: u64, sequence: u64) -> usize {
    let draw = mix(key.wrapping_mul(77) ^ sequence << 24);
    let rest = (draw >> 16) as usize;
    match draw % 128 {
        0 => LONGEST_BYTES + rest % 1000,
        1..3 => 20_000,
        3..10 => 4096,
        10..30 => 100 + rest % 2900,
        30..60 => 8 + rest % 40,
        _ => 8,
    }
}

/// Flags need a word of their own in the header, and keep a value from being in place.
pub fn client_flags(key: u64, sequence: u64) -> u64 {
    if mix(key + sequence).is_multiple_of(8) { u64::from(sequence as u32 | 1) } else { 0 }
}

/// The first word of a value: key, sequence, and a check byte over both.
fn head_word(key: u64, sequence: u64) -> u64 {
    let told = key << 48 | sequence << 8;
    told | mix(told) & 0xff
}

/// Fills `value` with the bytes that write `sequence` of `key` stores.
pub fn fill(value: &mut Vec<u8>, key: u64, sequence: u64) {
    value.clear();
    let head = head_word(key, sequence);
    let len_bytes = value_len(key, sequence);
    for index in 0..len_bytes.div_ceil(8) as u64 {
        value.extend_from_slice(&word_at(head, index).to_le_bytes());
    }
    value.truncate(len_bytes);
}

fn word_at(head: u64, index: u64) -> u64 {
    head.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The sequence of the write that made `value`, every byte of which is checked.
pub fn sequence_of(key: u64, value: &[u8]) -> u64 {
    let head = value.first_chunk().map(|head| u64::from_le_bytes(*head));
    let head = head.expect("no value is shorter than a word");
    let sequence = (head >> 8) & 0xff_ffff_ffff;
    assert_eq!(head, head_word(key, sequence), "key {key}: the head word {head:#x} is torn");
    assert_eq!(value.len(), value_len(key, sequence), "key {key}, write {sequence}: length");
    for (index, word) in value.chunks(8).enumerate() {
        let want = word_at(head, index as u64).to_le_bytes();
        assert_eq!(word, &want[..word.len()], "key {key}, write {sequence}: torn at word {index}");
    }
    sequence
}
