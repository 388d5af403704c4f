//! The layout that requests and replies share: a fixed head, words, key, value, padding.
//!
//! ```text
//!  0    1     2       4         6    7    8        12          16
//!  +----+-----+-------+---------+----+----+--------+-----------+-------------+-----+-------+-----+
//!  |code|flags| words | key len |mode| 0  |   id   | value len | 8 per word  | key | value | pad |
//!  +----+-----+-------+---------+----+----+--------+-----------+-------------+-----+-------+-----+
//!               one bit per word that follows, the lowest bit's first            to 8 bytes
//! ```
//!
//! # Invariants
//! I1: a message's end follows from its head alone, whatever its code, flags and words mean. So a
//!     server that does not know one of them can still step over the message and answer it.

/// The size of a message's head.
pub const MESSAGE_HEAD_BYTES: usize = 16;

/// The longest key that its length field can express.
pub const KEY_MAX_BYTES: usize = u16::MAX as usize;

/// One message, split into its fields but not yet interpreted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub code: u8,
    pub flags: u8,
    pub mode: u8,
    pub reserved: u8,
    pub id: u32,
    pub words: Words<'a>,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The optional words of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    /// The mask of the present words.
    pub mask: u16,
    bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Splits the first message off `body`; `None` if it does not fit.
    #[inline]
    pub fn split(body: &'a [u8]) -> Option<(Raw<'a>, &'a [u8])> {
        let (head, rest) = body.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
        let mask = read_u16(head, 2);
        let key_len_bytes = usize::from(read_u16(head, 4));
        let value_len_bytes = read_u32(head, 12) as usize;
        let (words, rest) = rest.split_at_checked(mask.count_ones() as usize * 8)?;
        let (key, after_key) = rest.split_at_checked(key_len_bytes)?;
        let (value, _) = after_key.split_at_checked(value_len_bytes)?;
        // Padding that is cut off by the frame's end is also the sender's mistake.
        let rest = rest.get((key_len_bytes + value_len_bytes).next_multiple_of(8)..)?;
        let raw = Raw {
            code: head[0],
            flags: head[1],
            mode: head[6],
            reserved: head[7],
            id: read_u32(head, 8),
            words: Words { mask, bytes: words },
            key,
            value,
        };
        Some((raw, rest))
    }
}

impl Words<'_> {
    /// The word of one bit of the mask.
    #[inline]
    pub fn get(&self, bit: u16) -> Option<u64> {
        if self.mask & bit == 0 {
            return None;
        }
        let index = (self.mask & (bit - 1)).count_ones() as usize;
        Some(read_u64(self.bytes, index * 8))
    }
}

/// The fields that a message is written from. Words are in the order of their bits.
pub(super) struct Parts<'a> {
    pub code: u8,
    pub flags: u8,
    pub mode: u8,
    pub id: u32,
    pub words: WordList,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The words of a message being written.
#[derive(Clone, Copy, Default)]
pub(super) struct WordList {
    mask: u16,
    count: usize,
    words: [u64; WordList::COUNT_MAX],
}

impl WordList {
    /// The maximum number of words of any message of version 1.
    const COUNT_MAX: usize = 5;

    /// Adds the word of a bit above all that were added before.
    #[inline]
    pub fn push(&mut self, bit: u16, word: u64) {
        debug_assert!(bit.is_power_of_two() && bit > self.mask, "words follow their bits' order");
        self.mask |= bit;
        self.words[self.count] = word;
        self.count += 1;
    }

    /// Adds the word if there is one.
    #[inline]
    pub fn push_some(&mut self, bit: u16, word: Option<u64>) {
        if let Some(word) = word {
            self.push(bit, word);
        }
    }
}

impl Parts<'_> {
    /// The message's length, padding included.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        message_len_bytes(self.words.count, self.key.len(), self.value.len())
    }

    /// Writes the message at the front of `out`, which has [`Parts::len_bytes`].
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let (head, mut rest) = out.split_at_mut(MESSAGE_HEAD_BYTES);
        head[0] = self.code;
        head[1] = self.flags;
        head[2..4].copy_from_slice(&self.words.mask.to_le_bytes());
        head[4..6].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        head[6] = self.mode;
        head[7] = 0;
        head[8..12].copy_from_slice(&self.id.to_le_bytes());
        head[12..16].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        for word in &self.words.words[..self.words.count] {
            let (place, after) = rest.split_at_mut(8);
            place.copy_from_slice(&word.to_le_bytes());
            rest = after;
        }
        let (key, rest) = rest.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        let (value, padding) = rest.split_at_mut(self.value.len());
        value.copy_from_slice(self.value);
        padding.fill(0);
    }
}

/// The length of a message with so many words and bytes, padding included.
#[inline]
pub const fn message_len_bytes(
    word_count: usize,
    key_len_bytes: usize,
    value_len_bytes: usize,
) -> usize {
    MESSAGE_HEAD_BYTES + word_count * 8 + (key_len_bytes + value_len_bytes).next_multiple_of(8)
}

#[inline]
pub(super) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut array = [0; 4];
    array.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(array)
}

#[inline]
pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(array)
}
