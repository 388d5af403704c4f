//! Entries as plain bytes: encodes into and decodes from slices, without a log, without I/O, and
//! without trusting the input. All entries from disks and peers are decoded by this module.
//!
//! ```text
//!  bytes of a segment:  | entry | entry | entry | half an e      scan: three records, then Damage
//!                       0       24      56      96               at 96, where it starts
//! ```
//!
//! The layout is that of entry.rs (docs/formats/log-entry.md). In addition to the entries of the
//! log in memory it has deletes, a shard, and a *seal*: 32 bits that are XORed into each checksum,
//! so that entries left over from an earlier use of the same bytes are not taken for entries of
//! this one.
//!
//! # Invariants
//! I1: `decode` reads back what `encode` writes, with the same seal.
//! I2: for any bytes, `decode` ends, does not panic and reads nothing beyond them.
//! I3: a record is either a put or a delete; its version is not 0; its value is never in place,
//!     because the checksum of an in-place entry would not cover it.
//!
//! # References
//! Rowan-KV §4.2.2 (checksum, version, shard), §4.7 (scanning); K1, K2.

mod parse;

use base::UnixMillis;
use thiserror::Error;

use crate::entry::{Header, Kind, Meta, Shape, body_checksum};
use crate::{ITEM_MAX_BYTES, KEY_LEN_MAX_BYTES};

pub use crate::entry::{ALIGN_BYTES, VERSION_MASK};
pub use parse::{Damaged, Located, Scan, decode};

/// An entry's effect on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key has this value.
    Put {
        /// The value.
        value: &'a [u8],
        /// The client's flags, and marks above them.
        client_flags: u64,
        /// The expiry of the value.
        expires_at: Option<UnixMillis>,
    },
    /// The key is deleted (K2). `note` is for the writer of the log: the horizon of the store's
    /// deletes.
    Delete {
        /// Up to eight bytes as a number, stored unchanged.
        note: u64,
    },
}

/// One entry, outside the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key, at most [`KEY_LEN_MAX_BYTES`].
    pub key: &'a [u8],
    /// The change of the key.
    pub change: Change<'a>,
    /// 1 to [`VERSION_MASK`] (K1).
    pub version: u64,
    /// 0 on a single node.
    pub shard: u16,
}

/// The number XORed into checksums; see the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal(pub u32);

impl Seal {
    /// No seal: the checksum is the one in the format's documentation.
    pub const NONE: Seal = Seal(0);
}

/// The reason why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// The remaining bytes are fewer than the shortest entry has.
    #[error("{have_bytes} bytes are left, less than a header")]
    TornTail {
        /// The number of remaining bytes.
        have_bytes: usize,
    },
    /// The header is zero: no entry was written here.
    #[error("zero bytes")]
    Zeros,
    /// The header is invalid.
    #[error("no header: kind {kind:#04x}")]
    NoHeader {
        /// The kind found.
        kind: u8,
    },
    /// The entry would reach beyond the end.
    #[error("an entry of {len_bytes} bytes, of which {have_bytes} are there")]
    BeyondEnd {
        /// The length by its header.
        len_bytes: usize,
        /// The number of bytes to the end.
        have_bytes: usize,
    },
    /// The bytes differ from those that were summed.
    #[error("an entry of {len_bytes} bytes with checksum {stored:08x} instead of {computed:08x}")]
    Checksum {
        /// The length by its header, which may itself be the damaged part.
        len_bytes: usize,
        /// The stored checksum, without the seal.
        stored: u32,
        /// The checksum over the bytes found.
        computed: u32,
    },
}

/// The reason why a record cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unencodable {
    /// A key beyond 16 bits of length.
    #[error("a key of {len_bytes} bytes; at most 65535 fit")]
    KeyTooLong {
        /// The length of the key.
        len_bytes: usize,
    },
    /// An item larger than a store can hold.
    #[error("an item of {len_bytes} bytes; at most {ITEM_MAX_BYTES} fit")]
    TooLarge {
        /// The length of key and value.
        len_bytes: usize,
    },
    /// Versions count from 1 in 48 bits.
    #[error("version {version} is not within 1 to 2^48 - 1")]
    Version {
        /// The given version.
        version: u64,
    },
}

impl<'a> Record<'a> {
    /// Whether the key is deleted by this record.
    pub fn is_delete(&self) -> bool {
        matches!(self.change, Change::Delete { .. })
    }

    /// The length of the entry, a multiple of [`ALIGN_BYTES`].
    pub fn len_bytes(&self) -> usize {
        self.shape().len_bytes()
    }

    /// Appends the entry's bytes, including padding, to `out`; returns their number.
    ///
    /// # Errors
    /// The part that does not fit the layout; nothing was appended.
    pub fn encode(&self, seal: Seal, out: &mut Vec<u8>) -> Result<usize, Unencodable> {
        self.check()?;
        let shape = self.shape();
        let (kind, value, client_flags, expires_at) = match &self.change {
            Change::Put { value, client_flags, expires_at } => {
                (Kind::Put, *value, *client_flags, *expires_at)
            }
            Change::Delete { note } => {
                (Kind::Delete, &[][..], 0, (*note != 0).then_some(UnixMillis(*note)))
            }
        };
        let meta = Meta { version: self.version, client_flags, expires_at };
        let body_crc = body_checksum(shape, self.key, value);
        let header = Header::with_kind(kind, shape, meta, self.shard, body_crc).sealed(seal.0);
        let start = out.len();
        out.extend(header.words().iter().flat_map(|word| word.to_le_bytes()));
        out.extend_from_slice(self.key);
        out.extend_from_slice(value);
        out.resize(start + shape.len_bytes(), 0);
        Ok(shape.len_bytes())
    }

    fn check(&self) -> Result<(), Unencodable> {
        let key_len = self.key.len();
        if key_len > KEY_LEN_MAX_BYTES {
            return Err(Unencodable::KeyTooLong { len_bytes: key_len });
        }
        let len_bytes = key_len + self.value_len();
        if len_bytes as u64 > ITEM_MAX_BYTES {
            return Err(Unencodable::TooLarge { len_bytes });
        }
        match self.version {
            1..=VERSION_MASK => Ok(()),
            version => Err(Unencodable::Version { version }),
        }
    }

    fn value_len(&self) -> usize {
        match &self.change {
            Change::Put { value, .. } => value.len(),
            Change::Delete { .. } => 0,
        }
    }

    fn shape(&self) -> Shape {
        let key_len = self.key.len();
        let shape = match &self.change {
            Change::Put { value, client_flags, expires_at } => {
                Shape::new(key_len, value.len(), *client_flags, expires_at.is_some())
            }
            Change::Delete { note } => Shape::new(key_len, 0, 0, *note != 0),
        };
        shape.at_rest()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
