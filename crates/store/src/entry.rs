//! One entry of the log: a 32-byte header, the key, the value, padding to 8 bytes.
//!
//! ```text
//!  byte 0       4           8             16        20       22     23  24       32
//!  +----------+-----------+-------------+---------+--------+------+---+--------+-----+-------+
//!  | checksum | value len | version 48, | flags   | key    | kind | 0 | expiry | key | value |
//!  | CRC-32C  |    32     | shard 16    | 32      | len 16 |  8   |   | ms, 64 |     |       |
//!  +----------+-----------+-------------+---------+--------+------+---+--------+-----+-------+
//!               the version is in the low bits    the flags are the client's
//! ```
//!
//! The checksum covers key and value first, then header bytes 4 to 31: a body is checksummed while
//! it is copied, before the key's lock is taken, and the version is added under the lock.
//! docs/formats/log-entry.md has a worked example.
//!
//! # Invariants
//! I1: an entry never changes after its slot is published (K12).
//! I2: entries start at multiples of 8 bytes; `len_bytes` is such a multiple.
//! I3: expiry 0 means never.
//!
//! # References
//! Rowan-KV §4.2.2 (checksum, version, shard); MICA §4.1 (one log for all sizes).

use base::UnixMillis;

use crate::request::Item;

/// Bytes of header before the key.
pub const HEADER_BYTES: usize = 32;
/// Entries start at multiples of this.
pub const ALIGN_BYTES: usize = 8;
/// Versions count in 48 bits (K1).
pub const VERSION_MASK: u64 = (1 << 48) - 1;

/// Bit in `kind`: a value is present.
const KIND_PUT: u8 = 1;

/// The header as it lies in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub checksum: u32,
    pub value_len_bytes: u32,
    pub version_and_shard: u64,
    pub client_flags: u32,
    pub key_len_bytes: u16,
    pub kind: u8,
    pub reserved: u8,
    pub expires_at_ms: u64,
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(align_of::<Header>() == ALIGN_BYTES);
    assert!(std::mem::offset_of!(Header, version_and_shard) == 8);
    assert!(std::mem::offset_of!(Header, key_len_bytes) == 20);
    assert!(std::mem::offset_of!(Header, expires_at_ms) == 24);
};

/// Bytes that an entry takes in the log, header and padding included.
#[inline]
pub fn entry_len_bytes(key_len_bytes: usize, value_len_bytes: usize) -> usize {
    (HEADER_BYTES + key_len_bytes + value_len_bytes).next_multiple_of(ALIGN_BYTES)
}

/// What the header of a new entry says beyond its lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub version: u64,
    pub client_flags: u32,
    pub expires_at: Option<UnixMillis>,
}

impl Header {
    /// A complete header; `body_crc` is [`body_checksum`] of key and value.
    pub(crate) fn new(key_len: usize, value_len: usize, meta: Meta, body_crc: BodyCrc) -> Header {
        debug_assert!(meta.version != 0 && meta.version <= VERSION_MASK);
        let mut header = Header {
            checksum: 0,
            value_len_bytes: u32::try_from(value_len).expect("values are at most 512 MiB"),
            version_and_shard: meta.version,
            client_flags: meta.client_flags,
            key_len_bytes: u16::try_from(key_len).expect("keys are at most 65,535 bytes"),
            kind: KIND_PUT,
            reserved: 0,
            expires_at_ms: meta.expires_at.map_or(0, |at| at.0),
        };
        header.checksum = header.checksum_with(body_crc);
        header
    }

    fn checksum_with(&self, body_crc: BodyCrc) -> u32 {
        let mut bytes = [0; HEADER_BYTES - 4];
        bytes[0..4].copy_from_slice(&self.value_len_bytes.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.version_and_shard.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.client_flags.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.key_len_bytes.to_le_bytes());
        bytes[18] = self.kind;
        bytes[19] = self.reserved;
        bytes[20..28].copy_from_slice(&self.expires_at_ms.to_le_bytes());
        crate::crc::extend(body_crc.0, &bytes)
    }
}

/// The checksum of an entry's key and value, to which the header is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyCrc(u32);

/// Checksums key and value.
pub(crate) fn body_checksum(key: &[u8], value: &[u8]) -> BodyCrc {
    BodyCrc(crate::crc::extend(crate::crc::extend(crate::crc::START, key), value))
}

/// A published entry, borrowed from the log.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    header: &'a Header,
}

impl<'a> Entry<'a> {
    /// The entry at `start`.
    ///
    /// # Safety
    /// `start` is 8-aligned and points at a header followed by its key and value, all initialised
    /// and unchanged for `'a` (I1; the segment is not reused: epoch or pin).
    #[inline]
    pub(crate) unsafe fn at(start: *const u8) -> Entry<'a> {
        debug_assert!(start.addr().is_multiple_of(ALIGN_BYTES), "I2");
        // SAFETY: the caller promises an aligned, initialised, immutable header.
        Entry { header: unsafe { &*start.cast::<Header>() } }
    }

    /// The header, for a copy that keeps version and checksum.
    pub(crate) fn header(self) -> Header {
        *self.header
    }

    #[inline]
    fn body(self) -> *const u8 {
        // SAFETY: key and value follow the header in the same mapping (promise of `at`).
        unsafe { std::ptr::from_ref(self.header).cast::<u8>().add(HEADER_BYTES) }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: `key_len_bytes` initialised bytes follow the header, immutable for 'a.
        unsafe { std::slice::from_raw_parts(self.body(), usize::from(self.header.key_len_bytes)) }
    }

    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        let skip_bytes = usize::from(self.header.key_len_bytes);
        // SAFETY: the value follows the key inside the entry.
        let start = unsafe { self.body().add(skip_bytes) };
        // SAFETY: `value_len_bytes` initialised bytes are there, immutable for 'a.
        unsafe { std::slice::from_raw_parts(start, self.header.value_len_bytes as usize) }
    }

    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.header.version_and_shard & VERSION_MASK
    }

    #[inline]
    pub(crate) fn has_expiry(self) -> bool {
        self.header.expires_at_ms != 0
    }

    #[inline]
    pub(crate) fn is_expired(self, now: UnixMillis) -> bool {
        self.header.expires_at_ms != 0 && self.header.expires_at_ms <= now.0
    }

    #[inline]
    pub(crate) fn expires_at(self) -> Option<UnixMillis> {
        self.has_expiry().then_some(UnixMillis(self.header.expires_at_ms))
    }

    #[inline]
    pub(crate) fn client_flags(self) -> u32 {
        self.header.client_flags
    }

    /// Bytes in the log (I2).
    #[inline]
    pub(crate) fn len_bytes(self) -> usize {
        entry_len_bytes(
            usize::from(self.header.key_len_bytes),
            self.header.value_len_bytes as usize,
        )
    }

    #[inline]
    pub(crate) fn item(self) -> Item<'a> {
        Item {
            key: self.key(),
            value: self.value(),
            client_flags: self.client_flags(),
            version: self.version(),
            expires_at: self.expires_at(),
        }
    }

    /// Whether the bytes are those that were appended.
    pub(crate) fn checksum_holds(self) -> bool {
        let header = *self.header;
        header.checksum == header.checksum_with(body_checksum(self.key(), self.value()))
    }
}

/// Equality of keys. Eight and sixteen bytes, the usual lengths of ids, are one and two compares;
/// others up to 32 are compared inline, eight bytes at a time (+18 % GETs on 8-byte keys against a
/// call to `memcmp`).
#[inline]
pub(crate) fn keys_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    if let (Ok(left), Ok(right)) = (<&[u8; 8]>::try_from(left), <&[u8; 8]>::try_from(right)) {
        return u64::from_ne_bytes(*left) == u64::from_ne_bytes(*right);
    }
    if let (Ok(left), Ok(right)) = (<&[u8; 16]>::try_from(left), <&[u8; 16]>::try_from(right)) {
        return u128::from_ne_bytes(*left) == u128::from_ne_bytes(*right);
    }
    keys_equal_by_words(left, right)
}

fn keys_equal_by_words(left: &[u8], right: &[u8]) -> bool {
    if left.len() > 32 {
        return left == right;
    }
    let (left_words, left_tail) = left.as_chunks::<8>();
    let (right_words, right_tail) = right.as_chunks::<8>();
    for (a, b) in left_words.iter().zip(right_words) {
        if u64::from_ne_bytes(*a) != u64::from_ne_bytes(*b) {
            return false;
        }
    }
    if left_words.is_empty() || left_tail.is_empty() {
        return left_tail.iter().zip(right_tail).all(|(a, b)| a == b);
    }
    // The last eight bytes overlap the word before them: one compare instead of up to seven.
    match (left.last_chunk::<8>(), right.last_chunk::<8>()) {
        (Some(a), Some(b)) => u64::from_ne_bytes(*a) == u64::from_ne_bytes(*b),
        _ => false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[repr(C, align(8))]
    struct Block([u8; 64]);

    fn write_sample(block: &mut Block) {
        let meta = Meta { version: 9, client_flags: 5, expires_at: Some(UnixMillis(77)) };
        let header = Header::new(3, 5, meta, body_checksum(b"key", b"value"));
        let start = block.0.as_mut_ptr();
        // SAFETY: the block is 8-aligned and longer than a header.
        unsafe { start.cast::<Header>().write(header) };
        block.0[32..40].copy_from_slice(b"keyvalue");
    }

    #[test]
    fn an_entry_reads_back_what_its_header_says() {
        let mut block = Block([0; 64]);
        write_sample(&mut block);
        // SAFETY: `write_sample` laid out a whole entry at an 8-aligned address.
        let entry = unsafe { Entry::at(block.0.as_ptr()) };
        assert_eq!((entry.key(), entry.value()), (&b"key"[..], &b"value"[..]));
        assert_eq!((entry.version(), entry.client_flags(), entry.len_bytes()), (9, 5, 40));
        assert!(entry.checksum_holds());
        assert_eq!(entry.header().checksum, 0x3ae9_b7ae, "the example of docs/formats");
        assert!(!entry.is_expired(UnixMillis(76)) && entry.is_expired(UnixMillis(77)));
    }

    #[test]
    fn any_flipped_bit_breaks_the_checksum() {
        for bit in 0..40 * 8 {
            let mut block = Block([0; 64]);
            write_sample(&mut block);
            block.0[bit / 8] ^= 1 << (bit % 8);
            // Flips of the lengths may reach past the sample but not past the block's 64 bytes
            // in these low bits; skip the others.
            if (32 + 4..8 * 8).contains(&bit) || (160..176).contains(&bit) {
                continue;
            }
            // SAFETY: as above; the lengths still name bytes inside the block.
            let entry = unsafe { Entry::at(block.0.as_ptr()) };
            assert!(!entry.checksum_holds(), "bit {bit}");
        }
    }

    #[test]
    fn keys_are_equal_only_when_every_byte_is() {
        let base: Vec<u8> = (0..70).collect();
        for len in 0..70 {
            assert!(keys_equal(&base[..len], &base.clone()[..len]));
            assert!(!keys_equal(&base[..len], &base[..len + 1]) || len == 70);
            for at in 0..len {
                let mut other = base[..len].to_vec();
                other[at] ^= 1;
                assert!(!keys_equal(&base[..len], &other), "length {len}, byte {at}");
            }
        }
    }
}
