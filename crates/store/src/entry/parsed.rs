//! An entry header parsed from untrusted plain bytes.

use super::{
    ALIGN_BYTES, BodyCrc, HEADER_BYTES, HEADER_MAX_BYTES, Header, KEY_HIGH_SHIFT, KEY_LEN_SHIFT,
    KIND_DELETE, KIND_EXPIRES, KIND_PUT, KIND_SHIFT, KIND_WIDE, Shape, VALUE_HIGH_SHIFT,
    VALUE_LEN_SHIFT, VERSION_BITS, VERSION_MASK, body_checksum, flags_of_wide,
};

/// The byte of a header that says which further words there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawKind(pub u8);

impl RawKind {
    /// The kind in a header's first word.
    pub(crate) fn of(first: u64) -> RawKind {
        RawKind((first >> KIND_SHIFT) as u8)
    }

    fn has(self, bit: u64) -> bool {
        u64::from(self.0) & bit != 0
    }

    /// Whether an entry outside the memory can have this kind: either put or delete, never in
    /// place.
    pub(crate) fn is_at_rest(self) -> bool {
        let known = KIND_PUT | KIND_WIDE | KIND_EXPIRES | KIND_DELETE;
        u64::from(self.0) & !known == 0 && self.has(KIND_PUT) != self.has(KIND_DELETE)
    }

    pub(crate) fn is_delete(self) -> bool {
        self.has(KIND_DELETE)
    }

    /// The length of the header.
    pub(crate) fn header_bytes(self) -> usize {
        HEADER_BYTES
            + ALIGN_BYTES * (usize::from(self.has(KIND_WIDE)) + usize::from(self.has(KIND_EXPIRES)))
    }
}

/// A parsed header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed {
    pub shape: Shape,
    pub version: u64,
    pub shard: u16,
    pub client_flags: u64,
    /// The expiry; for a delete, its note.
    pub expires_at_ms: u64,
    pub checksum: u32,
    header: Header,
}

impl Parsed {
    /// Parses bytes that contain the whole header, whose length [`RawKind::header_bytes`] gives.
    pub(crate) fn new(bytes: &[u8]) -> Parsed {
        let mut header = Header { words: [0; HEADER_MAX_BYTES / ALIGN_BYTES], word_count: 0 };
        let mut words = bytes.as_chunks::<ALIGN_BYTES>().0.iter();
        let mut next = || words.next().map_or(0, |word| u64::from_le_bytes(*word));
        let (first, second) = (next(), next());
        let kind = RawKind::of(first);
        let wide = if kind.has(KIND_WIDE) { Some(next()) } else { None };
        let expiry = if kind.has(KIND_EXPIRES) { Some(next()) } else { None };
        for word in [Some(first), Some(second), wide, expiry].into_iter().flatten() {
            header.push(word);
        }
        let high = wide.unwrap_or(0);
        let key_len = (high >> KEY_HIGH_SHIFT & 0xff) << 8 | first >> KEY_LEN_SHIFT & 0xff;
        let value_len = (high >> VALUE_HIGH_SHIFT & 0xffff) << 16 | first >> VALUE_LEN_SHIFT;
        let shape = Shape {
            key_len_bytes: key_len as usize,
            value_len_bytes: value_len as usize,
            is_wide: wide.is_some(),
            expires: expiry.is_some(),
            is_in_place: false,
        };
        Parsed {
            shape,
            version: second & VERSION_MASK,
            shard: (second >> VERSION_BITS) as u16,
            client_flags: flags_of_wide(high),
            expires_at_ms: expiry.unwrap_or(0),
            checksum: first as u32,
            header,
        }
    }

    /// The checksum of this header with the given key and value.
    pub(crate) fn checksum_of(&self, key: &[u8], value: &[u8]) -> u32 {
        let body_crc: BodyCrc = body_checksum(self.shape, key, value);
        self.header.checksum_with(body_crc)
    }
}
