//! One entry of the log: a header of 16 to 32 bytes, the key, the value, and padding to 8 bytes.
//!
//! ```text
//!  byte 0          4      5         6           8              16
//!  +-------------+------+---------+-----------+--------------+- - - - - -+- - - - -+-----+-------+
//!  | checksum    | kind | key len | value len | version 48,  | wide word | expiry  | key | value |
//!  | CRC-32C, 32 |  8   | low 8   |  low 16   | shard 16     |    64     | ms, 64  |     |       |
//!  +-------------+------+---------+-----------+--------------+- - - - - -+- - - - -+-----+-------+
//!                                 the version is in the low bits
//!  wide word: | client flags 32 | value len, high 16 | key len, high 8 | marks 8 |
//! ```
//!
//! `kind` says whether the wide word and the expiry are present. Most items have no client flags,
//! no expiry, a short key and a value below 64 KiB; their header takes 16 bytes.
//!
//! The checksum covers key and value first, then the header from byte 4 on. So a body is
//! checksummed while it is copied, before the key's lock is taken, and the version is added under
//! the lock. docs/formats/log-entry.md has a worked example.
//!
//! An item is *in place* if its value has one to eight bytes, its key fills whole words, and it has
//! neither flags nor expiry. Its value is then one aligned word, and a write of the same length
//! replaces it under the key's lock (decision 0019). Its checksum leaves version and value out.
//!
//! A store that is only in memory never reads the checksum. There an entry may be *stamped*: the
//! four bytes then hold the time of the item's last use (decision 0083).
//!
//! # Invariants
//! I1: an entry never changes after its slot is published, with two exceptions. The holder of the
//!     key's lock replaces version and value of an in-place entry, value first, then version (K12).
//!     Any session that may read the entry may change its stamp.
//! I2: entries start at multiples of 8 bytes; `len_bytes` is such a multiple.
//! I3: an expiry of 0, or an entry without an expiry word, means that the item never expires.
//!
//! # References
//! Rowan-KV §4.2.2 (checksum, version, shard); MICA §4.1 (one log for all sizes).

mod parsed;

use std::marker::PhantomData;
// Not the model checker's atomics: it does not track the log's memory, which is plain bytes.
use std::sync::atomic::{AtomicU64, Ordering};

use base::UnixMillis;
use index::in_place::{self, InPlace};
use index::keys_equal;

use crate::item::{Item, LastUse, MARKS_MASK};
use crate::pieces::Parts;

pub(crate) use parsed::{Parsed, RawKind};

/// Bytes of header before the key without a wide word and an expiry.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the longest header.
pub const HEADER_MAX_BYTES: usize = 32;
/// Entries start at multiples of this.
pub const ALIGN_BYTES: usize = 8;
/// Versions count in 48 bits (K1).
const VERSION_BITS: u32 = 48;
/// The largest version.
pub const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;

/// Bits of `kind`: a value is present, ...
const KIND_PUT: u64 = 1;
/// ... a wide word follows the version, ...
const KIND_WIDE: u64 = 1 << 1;
/// ... an expiry stands before the key.
const KIND_EXPIRES: u64 = 1 << 2;
/// ... the value is one aligned word that may be replaced, ...
const KIND_IN_PLACE: u64 = 1 << 3;
/// ... the key is deleted (K2): the entry has no value. Its expiry word is a note of the writer.
const KIND_DELETE: u64 = 1 << 4;
/// ... the checksum's place holds the time of last use; in memory only.
const KIND_STAMPED: u64 = 1 << 5;

/// Where the fields of the first word start.
const KIND_SHIFT: u32 = 32;
const KEY_LEN_SHIFT: u32 = 40;
const VALUE_LEN_SHIFT: u32 = 48;
/// Where the fields of the wide word start; the client flags are its low half, and the marks above
/// them in [`Item::client_flags`] its highest byte.
const VALUE_HIGH_SHIFT: u32 = 32;
const KEY_HIGH_SHIFT: u32 = 48;
const MARKS_SHIFT: u32 = 56;

/// Longest key and value whose lengths fit into the first word.
const KEY_NARROW_MAX: usize = u8::MAX as usize;
const VALUE_NARROW_MAX: usize = u16::MAX as usize;

const _: () = {
    assert!(HEADER_BYTES.is_multiple_of(ALIGN_BYTES));
    assert!(HEADER_MAX_BYTES == HEADER_BYTES + 2 * ALIGN_BYTES);
    assert!(crate::KEY_LEN_MAX_BYTES == KEY_NARROW_MAX << 8 | KEY_NARROW_MAX);
};

/// The words of an entry's header and the lengths of key and value. They determine the entry's
/// space, and are known before the key's lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub key_len_bytes: usize,
    pub value_len_bytes: usize,
    is_wide: bool,
    expires: bool,
    is_in_place: bool,
}

impl Shape {
    /// The shape of an item; `may_expire` reserves room for an expiry, whether it is used or not.
    #[inline]
    pub(crate) fn new(key_len: usize, value_len: usize, flags: u64, may_expire: bool) -> Shape {
        let is_wide = flags != 0 || key_len > KEY_NARROW_MAX || value_len > VALUE_NARROW_MAX;
        let is_word = (1..=ALIGN_BYTES).contains(&value_len) && key_len.is_multiple_of(ALIGN_BYTES);
        Shape {
            key_len_bytes: key_len,
            value_len_bytes: value_len,
            is_wide,
            expires: may_expire,
            is_in_place: is_word && !is_wide && !may_expire,
        }
    }

    /// Whether the value is one word that may be replaced in place (K12).
    #[inline]
    pub(crate) fn is_in_place(self) -> bool {
        self.is_in_place
    }

    /// The shape of an entry whose value is never replaced, so that its checksum covers the whole
    /// entry.
    #[inline]
    pub(crate) fn at_rest(self) -> Shape {
        Shape { is_in_place: false, ..self }
    }

    /// Bytes before the key.
    #[inline]
    pub(crate) fn header_bytes(self) -> usize {
        HEADER_BYTES + ALIGN_BYTES * (usize::from(self.is_wide) + usize::from(self.expires))
    }

    /// Bytes of the entry in the log (I2).
    #[inline]
    pub(crate) fn len_bytes(self) -> usize {
        (self.header_bytes() + self.key_len_bytes + self.value_len_bytes)
            .next_multiple_of(ALIGN_BYTES)
    }
}

/// The bytes that an item without client flags and expiry takes in the log, including header and
/// padding; flags and an expiry take eight bytes more each.
#[inline]
pub fn entry_len_bytes(key_len_bytes: usize, value_len_bytes: usize) -> usize {
    Shape::new(key_len_bytes, value_len_bytes, 0, false).len_bytes()
}

/// The most bytes that an item can take in the log.
#[inline]
pub fn entry_len_max_bytes(key_len_bytes: usize, value_len_bytes: usize) -> usize {
    Shape::new(key_len_bytes, value_len_bytes, 1, true).len_bytes()
}

/// The contents of a new entry's header besides its lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub version: u64,
    pub client_flags: u64,
    pub expires_at: Option<UnixMillis>,
}

/// A header as it lies in memory: two to four words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    words: [u64; HEADER_MAX_BYTES / ALIGN_BYTES],
    word_count: usize,
}

impl Header {
    /// A complete header; `body_crc` is [`body_checksum`] of key and value.
    #[inline]
    pub(crate) fn new(shape: Shape, meta: Meta, body_crc: BodyCrc) -> Header {
        let mut header = Header::unsummed(shape, meta);
        header.words[0] |= u64::from(header.checksum_with(body_crc));
        header
    }

    /// A header with the time of the item's last use instead of a checksum.
    #[inline]
    fn stamped(shape: Shape, meta: Meta, last_use: LastUse) -> Header {
        let mut header = Header::unsummed(shape, meta);
        header.words[0] |= KIND_STAMPED << KIND_SHIFT | u64::from(last_use.bits());
        header
    }

    /// A header with a stamp or a checksum; `body_crc` is present when `stamp` is not.
    #[inline]
    pub(crate) fn noting(
        shape: Shape,
        meta: Meta,
        body_crc: Option<BodyCrc>,
        last_use: LastUse,
    ) -> Header {
        match body_crc {
            Some(body_crc) => Header::new(shape, meta, body_crc),
            None => Header::stamped(shape, meta, last_use),
        }
    }

    #[inline]
    fn unsummed(shape: Shape, meta: Meta) -> Header {
        debug_assert!(meta.version != 0 && meta.version <= VERSION_MASK);
        debug_assert!(shape.is_wide || meta.client_flags == 0, "flags have a word");
        debug_assert!(shape.expires || meta.expires_at.is_none(), "an expiry has a word");
        let (key_len, value_len) = (shape.key_len_bytes as u64, shape.value_len_bytes as u64);
        let mut kind = KIND_PUT;
        let mut header = Header { words: [0; 4], word_count: 2 };
        if shape.is_wide {
            kind |= KIND_WIDE;
            header.push(
                flags_to_wide(meta.client_flags)
                    | (value_len >> 16) << VALUE_HIGH_SHIFT
                    | (key_len >> 8) << KEY_HIGH_SHIFT,
            );
        }
        if shape.expires {
            kind |= KIND_EXPIRES;
            header.push(meta.expires_at.map_or(0, |at| at.0));
        }
        if shape.is_in_place {
            kind |= KIND_IN_PLACE;
        }
        header.words[0] = kind << KIND_SHIFT
            | (key_len & 0xff) << KEY_LEN_SHIFT
            | (value_len & 0xffff) << VALUE_LEN_SHIFT;
        header.words[1] = meta.version;
        header
    }

    /// [`Header::new`] for a put or a delete of a shard; off the data path.
    pub(crate) fn with_kind(
        kind: Kind,
        shape: Shape,
        meta: Meta,
        shard: u16,
        body_crc: BodyCrc,
    ) -> Header {
        let mut header = Header::new(shape, meta, body_crc);
        if kind == Kind::Delete {
            debug_assert!(shape.value_len_bytes == 0 && !shape.is_in_place);
            header.words[0] ^= (KIND_PUT | KIND_DELETE) << KIND_SHIFT;
        }
        header.words[1] |= u64::from(shard) << VERSION_BITS;
        let checksum = header.checksum_with(body_crc);
        header.words[0] = header.words[0] & !u64::from(u32::MAX) | u64::from(checksum);
        header
    }

    /// With a seal added to its checksum (record.rs).
    pub(crate) fn sealed(mut self, seal: u32) -> Header {
        self.words[0] ^= u64::from(seal);
        self
    }

    #[inline]
    fn push(&mut self, word: u64) {
        self.words[self.word_count] = word;
        self.word_count += 1;
    }

    /// The words that are present.
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        &self.words[..self.word_count]
    }

    #[inline]
    fn checksum_with(&self, body_crc: BodyCrc) -> u32 {
        let mut bytes = [0; HEADER_MAX_BYTES];
        for (bytes, word) in bytes.as_chunks_mut::<ALIGN_BYTES>().0.iter_mut().zip(self.words) {
            *bytes = word.to_le_bytes();
        }
        let is_in_place = (self.words[0] >> KIND_SHIFT) & KIND_IN_PLACE != 0;
        let end = if is_in_place { ALIGN_BYTES } else { self.word_count * ALIGN_BYTES };
        crate::crc::extend(body_crc.0, &bytes[4..end])
    }
}

/// Client flags and marks, if there is a wide word.
#[inline]
fn flags_to_wide(flags: u64) -> u64 {
    let marks = (flags & MARKS_MASK) >> u32::BITS;
    flags & u64::from(u32::MAX) | marks << MARKS_SHIFT
}

/// Client flags and marks out of a wide word.
#[inline]
fn flags_of_wide(wide: u64) -> u64 {
    wide & u64::from(u32::MAX) | wide >> MARKS_SHIFT << u32::BITS
}

/// Whether an entry gives its key a value or deletes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
}

/// The checksum of an entry's key and value, to which the header is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyCrc(u32);

/// Checksums key and value; for an in-place entry only the key.
#[inline]
pub(crate) fn body_checksum(shape: Shape, key: &[u8], value: &[u8]) -> BodyCrc {
    let key_crc = crate::crc::extend(crate::crc::START, key);
    if shape.is_in_place {
        return BodyCrc(key_crc);
    }
    BodyCrc(crate::crc::extend(key_crc, value))
}

/// [`body_checksum`] of a value in parts.
pub(crate) fn parts_checksum(shape: Shape, key: &[u8], value: Parts<'_>) -> BodyCrc {
    let BodyCrc(key_crc) = body_checksum(shape, key, &[]);
    if shape.is_in_place {
        return BodyCrc(key_crc);
    }
    BodyCrc(value.iter().fold(key_crc, crate::crc::extend))
}

/// A published entry, borrowed from the log.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    start: *const u64,
    lives: PhantomData<&'a u64>,
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
        Entry { start: start.cast(), lives: PhantomData }
    }

    /// Word `index` of the header, except the version's.
    #[inline]
    fn word(self, index: usize) -> u64 {
        if index == 0 {
            // Its lower half may be a stamp.
            return self.shared_word(self.start.cast()).load(Ordering::Relaxed);
        }
        debug_assert!(index > 1 && index < 2 + self.extra_word_count());
        // SAFETY: inside the header (callers look at `kind` first), so inside the entry.
        let word = unsafe { self.start.add(index) };
        // SAFETY: initialised, aligned and immutable for 'a (promise of `at`).
        unsafe { word.read() }
    }

    #[inline]
    fn kind(self) -> u64 {
        (self.word(0) >> KIND_SHIFT) & 0xff
    }

    #[inline]
    fn is_wide(self) -> bool {
        self.kind() & KIND_WIDE != 0
    }

    #[inline]
    fn extra_word_count(self) -> usize {
        // Each of the two bits stands for one word; computed without branches.
        (((self.kind() / KIND_WIDE) & 1) + ((self.kind() / KIND_EXPIRES) & 1)) as usize
    }

    #[inline]
    pub(crate) fn header_bytes(self) -> usize {
        HEADER_BYTES + ALIGN_BYTES * self.extra_word_count()
    }

    /// The header, for a copy that keeps version and checksum.
    pub(crate) fn header(self) -> Header {
        let mut header = Header { words: [0; 4], word_count: 2 };
        header.words[0] = self.word(0);
        header.words[1] = self.version_and_shard();
        for index in 2..2 + self.extra_word_count() {
            header.push(self.word(index));
        }
        header
    }

    /// The shape, for a copy.
    #[inline]
    pub(crate) fn shape(self) -> Shape {
        Shape {
            key_len_bytes: self.key_len_bytes(),
            value_len_bytes: self.value_len_bytes(),
            is_wide: self.is_wide(),
            expires: self.kind() & KIND_EXPIRES != 0,
            is_in_place: self.is_in_place(),
        }
    }

    /// Whether it deletes its key (K2).
    pub(crate) fn is_delete(self) -> bool {
        self.kind() & KIND_DELETE != 0
    }

    /// A delete's note.
    pub(crate) fn delete_note(self) -> u64 {
        self.expires_at_ms()
    }

    #[inline]
    fn is_in_place(self) -> bool {
        self.kind() & KIND_IN_PLACE != 0
    }

    #[inline]
    fn key_len_bytes(self) -> usize {
        let low = (self.word(0) >> KEY_LEN_SHIFT) & 0xff;
        let high = if self.is_wide() { (self.word(2) >> KEY_HIGH_SHIFT) & 0xff } else { 0 };
        (high << 8 | low) as usize
    }

    #[inline]
    fn value_len_bytes(self) -> usize {
        let low = self.word(0) >> VALUE_LEN_SHIFT;
        let high = if self.is_wide() { (self.word(2) >> VALUE_HIGH_SHIFT) & 0xffff } else { 0 };
        (high << 16 | low) as usize
    }

    #[inline]
    fn body(self) -> *const u8 {
        // SAFETY: key and value follow the header in the same mapping (promise of `at`).
        unsafe { self.start.cast::<u8>().add(self.header_bytes()) }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: that many initialised bytes follow the header, immutable for 'a.
        unsafe { std::slice::from_raw_parts(self.body(), self.key_len_bytes()) }
    }

    /// Whether this is the entry of `key`: [`keys_equal`], with one comparison for kind and length
    /// if the header is the short one.
    #[inline]
    pub(crate) fn has_key(self, key: &[u8]) -> bool {
        let kind_and_len = (self.word(0) >> KIND_SHIFT) & 0xffff & !(KIND_IN_PLACE | KIND_STAMPED);
        if key.len() == 8 && kind_and_len == KIND_PUT | 8 << (KEY_LEN_SHIFT - KIND_SHIFT) {
            // SAFETY: behind the header's two words lies a key of eight bytes (just compared).
            let found = unsafe { self.start.add(2) };
            // SAFETY: aligned and initialised, as the whole entry is.
            return unsafe { found.read() }.to_ne_bytes() == *key;
        }
        keys_equal(self.key(), key)
    }

    /// The address of the value.
    #[inline]
    fn value_start(self) -> *const u8 {
        // SAFETY: the value follows the key inside the entry.
        unsafe { self.body().add(self.key_len_bytes()) }
    }

    /// The value of an entry that is not in place, or whose lock the caller holds: the value must
    /// not be replaced during `'a`.
    #[inline]
    pub(crate) fn value_at_rest(self) -> &'a [u8] {
        // SAFETY: that many initialised bytes are there; the caller says that they rest.
        unsafe { std::slice::from_raw_parts(self.value_start(), self.value_len_bytes()) }
    }

    /// A word that may be replaced while it is read: the version's, or an in-place value.
    #[inline]
    fn shared_word(self, start: *const u8) -> &'a AtomicU64 {
        debug_assert!(start.addr().is_multiple_of(ALIGN_BYTES));
        // SAFETY: an aligned word inside the entry, which lives for 'a; while others may replace
        // it, every thread uses it as this atomic.
        unsafe { AtomicU64::from_ptr(start.cast_mut().cast()) }
    }

    #[inline]
    fn version_word(self) -> &'a AtomicU64 {
        // SAFETY: the header's second word.
        self.shared_word(unsafe { self.start.add(1) }.cast())
    }

    #[inline]
    fn version_and_shard(self) -> u64 {
        in_place::see_version(self.version_word())
    }

    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.version_and_shard() & VERSION_MASK
    }

    /// The entry's shard; 0: it is not replicated.
    #[inline]
    pub(crate) fn shard(self) -> u16 {
        (self.version_and_shard() >> VERSION_BITS) as u16
    }

    /// Whether an item of this shape can be written in the place of this entry.
    #[inline]
    pub(crate) fn takes_in_place(self, shape: Shape) -> bool {
        shape.is_in_place && self.is_in_place() && self.value_len_bytes() == shape.value_len_bytes
    }

    /// Whether this is `key`'s entry, in place, with a value of `value_len` bytes: kind and both
    /// lengths in one comparison.
    #[inline]
    pub(crate) fn has_key_in_place(self, key: &[u8], value_len: usize) -> bool {
        debug_assert!(key.len() <= KEY_NARROW_MAX && value_len <= ALIGN_BYTES);
        let lens = (key.len() as u64) << KEY_LEN_SHIFT | (value_len as u64) << VALUE_LEN_SHIFT;
        let wanted = (KIND_PUT | KIND_IN_PLACE) << KIND_SHIFT | lens;
        let found = (self.word(0) >> KIND_SHIFT) & !KIND_STAMPED;
        found == wanted >> KIND_SHIFT && self.has_key(key)
    }

    /// Replaces the value of an entry that [takes](Entry::takes_in_place) it; the caller holds the
    /// key's lock. A reader may see the new value with the old version, whose CAS then fails; never
    /// the new version with the old value.
    #[inline]
    pub(crate) fn replace_value(self, value: &[u8], version: u64) {
        debug_assert!(self.is_in_place() && value.len() == self.value_len_bytes());
        let word = match <[u8; ALIGN_BYTES]>::try_from(value) {
            Ok(word) => word,
            Err(_) => {
                let mut word = [0; ALIGN_BYTES];
                word[..value.len()].copy_from_slice(value);
                word
            }
        };
        let shard = self.version_word().load(Ordering::Relaxed) & !VERSION_MASK;
        self.in_place().replace(u64::from_ne_bytes(word), shard | version);
    }

    /// The words of an entry that is in place.
    #[inline]
    fn in_place(self) -> InPlace<'a, AtomicU64> {
        debug_assert!(self.is_in_place());
        InPlace { version: self.version_word(), value: self.shared_word(self.value_start()) }
    }

    /// The item as of now. If version and value can change, they are read in this order; a value in
    /// place is copied to `word`.
    #[inline(always)]
    pub(crate) fn read<'s>(self, word: &'s mut [u8; ALIGN_BYTES]) -> Item<'s>
    where
        'a: 's,
    {
        let first = self.word(0);
        let kind = (first >> KIND_SHIFT) & 0xff;
        if kind & !(KIND_IN_PLACE | KIND_STAMPED) != KIND_PUT {
            return self.read_long();
        }
        // Most entries: two words of header, and no other field.
        let version_and_shard = self.version_and_shard();
        let version = version_and_shard & VERSION_MASK;
        let shard = (version_and_shard >> VERSION_BITS) as u16;
        let key_len = ((first >> KEY_LEN_SHIFT) & 0xff) as usize;
        let value_len = (first >> VALUE_LEN_SHIFT) as usize;
        // SAFETY: the key follows the two words of this kind of header.
        let body = unsafe { self.start.add(2) }.cast::<u8>();
        // SAFETY: that many initialised bytes are there, immutable for 'a.
        let key = unsafe { std::slice::from_raw_parts(body, key_len) };
        // SAFETY: the value follows the key inside the entry.
        let value = unsafe { body.add(key_len) };
        let value = if kind & KIND_IN_PLACE == 0 {
            // SAFETY: as for the key; only a value in place is ever replaced.
            unsafe { std::slice::from_raw_parts(value, value_len) }
        } else {
            *word = in_place::see_value(self.shared_word(value)).to_ne_bytes();
            &word[..value_len.min(ALIGN_BYTES)]
        };
        let last_use = last_use_of(first);
        Item::plain(key, value, version, shard, last_use)
    }

    /// [`Entry::read`] of entries with more words of header; those are never in place.
    fn read_long(self) -> Item<'a> {
        Item {
            key: self.key(),
            value: self.value_at_rest(),
            client_flags: self.client_flags(),
            version: self.version(),
            token: None,
            shard: self.shard(),
            expires_at: self.expires_at(),
            last_use: self.last_use(),
        }
        .unfolded()
    }

    /// The last use, as far as it is noted.
    #[inline]
    fn last_use(self) -> LastUse {
        last_use_of(self.word(0))
    }

    /// Notes a use in a stamped entry, unless it is noted already: a hot item's line is written
    /// once a second. The rest of the word never changes, so a plain store suffices; of uses at the
    /// same moment one is noted.
    #[inline(always)]
    pub(crate) fn note_use(self, last_use: LastUse) {
        let first = self.word(0);
        let is_stamped = first & (KIND_STAMPED << KIND_SHIFT) != 0;
        if is_stamped && first as u32 != last_use.bits() {
            let stamped = first & !u64::from(u32::MAX) | u64::from(last_use.bits());
            self.shared_word(self.start.cast()).store(stamped, Ordering::Relaxed);
        }
    }

    /// [`Entry::read`] into a value that can be kept.
    #[inline]
    pub(crate) fn see(self) -> Seen<'a> {
        let mut word = [0; ALIGN_BYTES];
        let mut version = 0;
        if self.is_in_place() {
            version = self.read(&mut word).version;
        }
        Seen { entry: self, version, word }
    }

    /// The time of expiry, in milliseconds since 1970; 0: never (I3).
    #[inline]
    fn expires_at_ms(self) -> u64 {
        if self.kind() & KIND_EXPIRES == 0 {
            return 0;
        }
        self.word(2 + usize::from(self.is_wide()))
    }

    #[inline]
    pub(crate) fn has_expiry(self) -> bool {
        self.expires_at_ms() != 0
    }

    #[inline]
    pub(crate) fn is_expired(self, now: UnixMillis) -> bool {
        let at_ms = self.expires_at_ms();
        at_ms != 0 && at_ms <= now.0
    }

    #[inline]
    pub(crate) fn expires_at(self) -> Option<UnixMillis> {
        let at_ms = self.expires_at_ms();
        (at_ms != 0).then_some(UnixMillis(at_ms))
    }

    #[inline]
    pub(crate) fn client_flags(self) -> u64 {
        if self.is_wide() { flags_of_wide(self.word(2)) } else { 0 }
    }

    /// Bytes in the log (I2).
    #[inline]
    pub(crate) fn len_bytes(self) -> usize {
        self.shape().len_bytes()
    }

    /// Whether it has a stamp instead of a checksum.
    pub(crate) fn is_stamped(self) -> bool {
        self.kind() & KIND_STAMPED != 0
    }

    /// Whether the bytes match the checksum; no thread may be writing. False for a stamped entry.
    pub(crate) fn checksum_holds(self) -> bool {
        let checksum = self.word(0) as u32;
        let body_crc = body_checksum(self.shape(), self.key(), self.value_at_rest());
        checksum == self.header().checksum_with(body_crc)
    }
}

/// The time of last use in a header's first word.
#[inline]
fn last_use_of(first: u64) -> LastUse {
    if first & (KIND_STAMPED << KIND_SHIFT) == 0 {
        return LastUse::UNKNOWN;
    }
    LastUse::from_bits(first as u32)
}

/// An entry as of one moment: its replaceable words are copied.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    entry: Entry<'a>,
    /// The version of an in-place entry, copied like its value.
    version: u64,
    word: [u8; ALIGN_BYTES],
}

impl Seen<'_> {
    #[inline]
    pub(crate) fn item(&self) -> Item<'_> {
        let entry = self.entry;
        if !entry.is_in_place() {
            return entry.read_long();
        }
        let value = &self.word[..entry.value_len_bytes().min(ALIGN_BYTES)];
        let (key, version) = (entry.key(), self.version);
        let shard = entry.shard();
        let last_use = entry.last_use();
        Item::plain(key, value, version, shard, last_use)
    }

    /// [`Entry::note_use`].
    pub(crate) fn note_use(&self, last_use: LastUse) {
        self.entry.note_use(last_use);
    }

    #[inline]
    pub(crate) fn is_expired(&self, now: UnixMillis) -> bool {
        self.entry.is_expired(now)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
