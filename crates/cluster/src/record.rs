//! Records: entries as they land at backups and lie in logs, one block or several (K14).
//!
//! ```text
//!  byte 0        4      5        6       8         16       24         32
//!  | checksum 32 | kind | answer | shard | version | client | sequence |
//!  32         34      36          40    44    48          52      56      64
//!  | key len | marks | value len | cnt | seq | piece len | flags | expiry | piece ... | pad |
//! ```
//!
//! Key and value together are the body. A record carries one piece of it: the whole body, or block
//! `seq` of `cnt` if the body does not fit into one datagram (Rowan-KV Fig. 7). Records start at
//! multiples of 64 bytes, which is the stride of replication. See docs/formats/peer.md.
//!
//! # Invariants
//! D1: a record whose checksum does not match is invalid, whatever its header says.
//! D2: the blocks of one (shard, version) have the same header except for `seq`, the checksum and
//!     the piece's length.

use std::ops::Range;
use std::sync::Arc;

use base::UnixMillis;

use crate::crc::crc32c;
use crate::ids::{ClientId, ShardId, Version};

/// The alignment of records.
pub const ALIGN_BYTES: usize = 64;
/// The header of each block.
pub const HEADER_BYTES: usize = 64;
/// The encoded expiry of entries that do not expire. Nothing expires in the first millisecond of
/// 1970.
const NEVER_MS: u64 = 0;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value.
    Put,
    /// The key is gone (K2).
    Delete,
    /// A mark: all versions up to this one are on all copies (Rowan-KV §4.4).
    CommitVersion,
    /// A mark: everything earlier in this log about the shard is void.
    Reset,
    /// The last answer to a client; the value is the number, if the answer was one.
    Session,
    /// All older keys of the shard are gone (K2).
    Flush,
}

/// The answer to the request that made an entry, so that a retry gets the same answer (K24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The request was done.
    Done,
    /// The new value, a number.
    Integer,
    /// Whether there was a key to delete.
    Deleted(bool),
}

/// One complete write. Immutable; shared between the index and messages on their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The shard of the key.
    pub shard: ShardId,
    /// Its place among the shard's writes.
    pub version: Version,
    /// The client that made the request.
    pub client: ClientId,
    /// The sequence number of the request.
    pub sequence: u64,
    /// The answer to the client.
    pub answered: Answered,
    /// The key; for a flush a key of the shard, by which it was requested.
    pub key: Arc<[u8]>,
    /// The value; none: the key is deleted.
    pub value: Option<Arc<[u8]>>,
    /// Whether all older entries of the shard are gone, and not the key alone.
    pub is_flush: bool,
    /// Memcached's opaque flags in the low half, marks in the byte above.
    pub client_flags: u64,
    /// The expiry by the primary's clock (K3); none: never.
    pub expires_at: Option<UnixMillis>,
}

/// An entry whose client has no session, in borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'b> {
    /// The shard of the key.
    pub shard: ShardId,
    /// Its place among the shard's writes.
    pub version: Version,
    /// The key.
    pub key: &'b [u8],
    /// The value; none: the key is deleted.
    pub value: Option<&'b [u8]>,
    /// Memcached's opaque flags.
    pub client_flags: u64,
    /// The expiry; none: never.
    pub expires_at: Option<UnixMillis>,
}

impl Plain<'_> {
    /// A copy that owns its bytes.
    pub fn to_entry(&self) -> Entry {
        Entry {
            shard: self.shard,
            version: self.version,
            client: ClientId::NONE,
            sequence: 0,
            answered: Answered::Done,
            key: self.key.into(),
            value: self.value.map(Arc::from),
            is_flush: false,
            client_flags: self.client_flags,
            expires_at: self.expires_at,
        }
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of record.
    pub kind: Kind,
    /// The answer to the client.
    pub answered: Answered,
    /// The shard.
    pub shard: ShardId,
    /// The version of the write.
    pub version: Version,
    /// The client that made the request.
    pub client: ClientId,
    /// The sequence number of the request.
    pub sequence: u64,
    /// The length of the whole key.
    pub key_len_bytes: usize,
    /// The length of the whole value.
    pub value_len_bytes: usize,
    /// The number of blocks of the entry.
    pub block_count: u32,
    /// The index of this block, from 0.
    pub block: u32,
    /// The length of the piece of the body in this block.
    pub piece_len_bytes: usize,
    /// The flags of the entry.
    pub client_flags: u64,
    /// The expiry of the entry.
    pub expires_at: Option<UnixMillis>,
}

impl Header {
    /// Decodes a header from the first bytes of a block. Only the form is checked, not the sum
    /// (D1).
    pub fn peek(bytes: &[u8]) -> Option<Header> {
        let fixed: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let u16_at = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let kind = match fixed[4] {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::CommitVersion,
            4 => Kind::Reset,
            5 => Kind::Session,
            6 => Kind::Flush,
            _ => return None,
        };
        let answered = match fixed[5] {
            0 => Answered::Done,
            1 => Answered::Integer,
            2 => Answered::Deleted(false),
            3 => Answered::Deleted(true),
            _ => return None,
        };
        Some(Header {
            kind,
            answered,
            shard: ShardId(u16_at(6)),
            version: Version::from_bits(u64_at(8))?,
            client: ClientId(u64_at(16)),
            sequence: u64_at(24),
            key_len_bytes: usize::from(u16_at(32)),
            value_len_bytes: u32_at(36) as usize,
            block_count: u32_at(40),
            block: u32_at(44),
            piece_len_bytes: u32_at(48) as usize,
            client_flags: u64::from(u32_at(52)) | u64::from(fixed[34]) << u32::BITS,
            expires_at: Some(u64_at(56)).filter(|ms| *ms != NEVER_MS).map(UnixMillis),
        })
    }

    /// The length of the block, padding included.
    pub fn len_bytes(&self) -> usize {
        (HEADER_BYTES + self.piece_len_bytes).next_multiple_of(ALIGN_BYTES)
    }

    pub(crate) fn body_len_bytes(&self) -> usize {
        self.key_len_bytes + self.value_len_bytes
    }

    /// The range of the body that the block's piece has; none if its lengths contradict one
    /// another.
    ///
    /// All blocks except the last have the same length, which the last block does not record.
    pub(crate) fn place(&self) -> Option<Range<usize>> {
        let (count, block) = (self.block_count as usize, self.block as usize);
        let before_last = count.checked_sub(1)?;
        let room_bytes = match block == before_last {
            _ if before_last == 0 => 0,
            false => self.piece_len_bytes,
            true => {
                let others_bytes = self.body_len_bytes().checked_sub(self.piece_len_bytes)?;
                others_bytes.is_multiple_of(before_last).then(|| others_bytes / before_last)?
            }
        };
        let start = room_bytes.checked_mul(block)?;
        let end = start.checked_add(self.piece_len_bytes)?;
        let is_last = end == self.body_len_bytes();
        let fits = block <= before_last && (block == before_last) == is_last;
        (fits && end <= self.body_len_bytes()).then_some(start..end)
    }

    /// The entry, borrowed, if the block is a whole entry whose client has no session.
    pub fn plain<'b>(&self, piece: &'b [u8]) -> Option<Plain<'b>> {
        let value = match self.kind {
            Kind::Put => Some(piece.get(self.key_len_bytes..self.body_len_bytes())?),
            Kind::Delete => None,
            Kind::CommitVersion | Kind::Reset | Kind::Session | Kind::Flush => return None,
        };
        let is_plain = self.block_count <= 1 && self.client.is_anonymous();
        is_plain.then_some(Plain {
            shard: self.shard,
            version: self.version,
            key: piece.get(..self.key_len_bytes)?,
            value,
            client_flags: self.client_flags,
            expires_at: self.expires_at,
        })
    }

    /// The id of the block among all that are under way.
    pub fn id(&self) -> BlockId {
        BlockId { shard: self.shard, version: self.version, block: self.block }
    }

    fn append(&self, piece: &[u8], bytes: &mut Vec<u8>) {
        self.append_parts(&[piece], bytes);
    }

    /// Appends the block, with its piece given in consecutive parts.
    fn append_parts(&self, piece: &[&[u8]], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend([0; 4]);
        bytes.push(match self.kind {
            Kind::Put => 1,
            Kind::Delete => 2,
            Kind::CommitVersion => 3,
            Kind::Reset => 4,
            Kind::Session => 5,
            Kind::Flush => 6,
        });
        bytes.push(match self.answered {
            Answered::Done => 0,
            Answered::Integer => 1,
            Answered::Deleted(false) => 2,
            Answered::Deleted(true) => 3,
        });
        bytes.extend(self.shard.0.to_le_bytes());
        bytes.extend(self.version.bits().to_le_bytes());
        bytes.extend(self.client.0.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend((self.key_len_bytes as u16).to_le_bytes());
        bytes.extend([(self.client_flags >> u32::BITS) as u8, 0]);
        for field in [self.value_len_bytes as u32, self.block_count, self.block] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend((self.piece_len_bytes as u32).to_le_bytes());
        bytes.extend((self.client_flags as u32).to_le_bytes());
        let expires_ms = self.expires_at.map_or(NEVER_MS, |at| at.0.max(NEVER_MS + 1));
        bytes.extend(expires_ms.to_le_bytes());
        debug_assert_eq!(bytes.len() - start, HEADER_BYTES);
        piece.iter().for_each(|part| bytes.extend_from_slice(part));
        let checksum = crc32c(&bytes[start + 4..]);
        bytes[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
        bytes.resize(start + self.len_bytes(), 0);
    }
}

/// An entry cut into blocks. Almost every entry is a single block.
#[derive(Debug)]
pub(crate) enum Cut {
    /// A single block.
    Whole(Arc<[u8]>),
    /// Several blocks. Each is built when it is sent: together they are as long as the entry.
    Blocks {
        /// The number of blocks.
        count: u32,
        /// The length of the body's piece in each block except the last.
        room_bytes: usize,
    },
}

impl Cut {
    /// The number of blocks.
    pub(crate) fn count(&self) -> usize {
        match self {
            Cut::Whole(_) => 1,
            Cut::Blocks { count, .. } => *count as usize,
        }
    }
}

/// The id of one block of one entry, which an acknowledgement names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId {
    /// The shard.
    pub shard: ShardId,
    /// The version of the write.
    pub version: Version,
    /// The index of the block.
    pub block: u32,
}

impl Kind {
    /// Whether the block changes the shard, and so is acknowledged.
    pub fn is_write(self) -> bool {
        matches!(self, Kind::Put | Kind::Delete | Kind::Flush)
    }
}

/// How strictly a reader checks records: the fault simulation turns the check off to see that it
/// notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Verifies the checksum (D1).
    Checksum,
    /// Verifies nothing; never used in a server.
    Nothing,
}

/// Decodes the block at the start of these bytes, with its piece of the body.
pub fn block(bytes: &[u8], check: Check) -> Option<(Header, &[u8])> {
    let header = Header::peek(bytes)?;
    let end = HEADER_BYTES.checked_add(header.piece_len_bytes)?;
    if check == Check::Nothing {
        return Some((header, &bytes[HEADER_BYTES..end.min(bytes.len())]));
    }
    let covered = bytes.get(4..end)?;
    let is_whole = bytes[..4] == crc32c(covered).to_le_bytes();
    is_whole.then(|| (header, &bytes[HEADER_BYTES..end]))
}

/// The key of the record at the start of these bytes, if the record has one and all of it is there.
/// Nothing is checked (D1): for hints.
pub fn key_of(bytes: &[u8]) -> Option<&[u8]> {
    let header = Header::peek(bytes)?;
    let key_len_bytes = header.key_len_bytes.min(header.piece_len_bytes);
    let is_entry = matches!(header.kind, Kind::Put | Kind::Delete) && header.block == 0;
    let key = bytes.get(HEADER_BYTES..HEADER_BYTES + key_len_bytes)?;
    is_entry.then_some(key)
}

/// A record without a body: [`Kind::CommitVersion`] and [`Kind::Reset`].
pub fn append_mark(kind: Kind, shard: ShardId, version: Version, bytes: &mut Vec<u8>) {
    let header = Header {
        kind,
        answered: Answered::Done,
        shard,
        version,
        client: ClientId(0),
        sequence: 0,
        key_len_bytes: 0,
        value_len_bytes: 0,
        block_count: 1,
        block: 0,
        piece_len_bytes: 0,
        client_flags: 0,
        expires_at: None,
    };
    header.append(&[], bytes);
}

/// Appends the last answer to a client as a record.
pub fn append_session(session: &Session, bytes: &mut Vec<u8>) {
    let number = session.integer.map(|integer| integer.to_string()).unwrap_or_default();
    let header = Header {
        kind: Kind::Session,
        answered: session.answered,
        shard: session.shard,
        version: session.version,
        client: session.client,
        sequence: session.sequence,
        key_len_bytes: 0,
        value_len_bytes: number.len(),
        block_count: 1,
        block: 0,
        piece_len_bytes: number.len(),
        client_flags: 0,
        expires_at: None,
    };
    header.append(number.as_bytes(), bytes);
}

/// The last answer to a client about a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The shard.
    pub shard: ShardId,
    /// The version of the write.
    pub version: Version,
    /// The client.
    pub client: ClientId,
    /// The sequence number of the request.
    pub sequence: u64,
    /// The answer.
    pub answered: Answered,
    /// The number, if the answer was one.
    pub integer: Option<i64>,
}

impl Session {
    /// Decodes a block of kind [`Kind::Session`].
    pub fn from_block(header: &Header, piece: &[u8]) -> Session {
        Session {
            shard: header.shard,
            version: header.version,
            client: header.client,
            sequence: header.sequence,
            answered: header.answered,
            integer: parse_integer(piece),
        }
    }
}

/// Parses a number as clients write it: digits, perhaps a sign, nothing else.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Entry {
    /// A delete that is not the answer to a client.
    pub fn delete_of(shard: ShardId, key: Arc<[u8]>, version: Version) -> Entry {
        Entry {
            shard,
            version,
            client: ClientId::NONE,
            sequence: 0,
            answered: Answered::Done,
            key,
            value: None,
            is_flush: false,
            client_flags: 0,
            expires_at: None,
        }
    }

    fn header(&self) -> Header {
        let value_len_bytes = self.value.as_ref().map_or(0, |value| value.len());
        Header {
            kind: match self.value {
                _ if self.is_flush => Kind::Flush,
                Some(_) => Kind::Put,
                None => Kind::Delete,
            },
            answered: self.answered,
            shard: self.shard,
            version: self.version,
            client: self.client,
            sequence: self.sequence,
            key_len_bytes: self.key.len(),
            value_len_bytes,
            block_count: 1,
            block: 0,
            piece_len_bytes: self.key.len() + value_len_bytes,
            client_flags: self.client_flags,
            expires_at: self.expires_at,
        }
    }

    /// Encodes the entry as blocks of at most `block_max_bytes` each, which is a multiple of 64
    /// above the header's size.
    pub fn blocks(&self, block_max_bytes: usize) -> Vec<Arc<[u8]>> {
        let cut = self.cut(block_max_bytes, &mut Vec::new());
        (0..cut.count() as u32).map(|block| self.block(&cut, block)).collect()
    }

    /// Cuts the entry into such blocks. A single block is built at once, in a reused buffer.
    pub(crate) fn cut(&self, block_max_bytes: usize, scratch: &mut Vec<u8>) -> Cut {
        let room_bytes = block_max_bytes / ALIGN_BYTES * ALIGN_BYTES - HEADER_BYTES;
        assert!(room_bytes > 0, "a datagram has room for more than a header");
        let value = self.value.as_deref().unwrap_or_default();
        let whole = self.header();
        if whole.piece_len_bytes <= room_bytes {
            scratch.clear();
            whole.append_parts(&[&self.key, value], scratch);
            return Cut::Whole(Arc::from(&scratch[..]));
        }
        let count = whole.piece_len_bytes.div_ceil(room_bytes) as u32;
        Cut::Blocks { count, room_bytes }
    }

    /// Builds one of the blocks that the entry was cut into.
    pub(crate) fn block(&self, cut: &Cut, block: u32) -> Arc<[u8]> {
        let (block_count, room_bytes) = match cut {
            Cut::Whole(whole) => return Arc::clone(whole),
            Cut::Blocks { count, room_bytes } => (*count, *room_bytes),
        };
        let (key, value) = (&self.key[..], self.value.as_deref().unwrap_or_default());
        // The offset in key and value as one string; in memory the two lie apart.
        let start = block as usize * room_bytes;
        let end = (key.len() + value.len()).min(start + room_bytes);
        let of_key = &key[start.min(key.len())..end.min(key.len())];
        let at_value = |at: usize| at.saturating_sub(key.len());
        let of_value = &value[at_value(start)..at_value(end)];
        let header = Header { block_count, block, piece_len_bytes: end - start, ..self.header() };
        let mut bytes = Vec::with_capacity(header.len_bytes());
        header.append_parts(&[of_key, of_value], &mut bytes);
        bytes.into()
    }

    /// The total length of the entry's blocks.
    pub(crate) fn len_bytes_as(&self, cut: &Cut) -> usize {
        match cut {
            Cut::Whole(whole) => whole.len(),
            Cut::Blocks { count, .. } => {
                self.header().piece_len_bytes + *count as usize * HEADER_BYTES
            }
        }
    }

    /// The part of the entry that a replica store without sessions keeps.
    pub fn as_plain(&self) -> Plain<'_> {
        Plain {
            shard: self.shard,
            version: self.version,
            key: &self.key,
            value: self.value.as_deref(),
            client_flags: self.client_flags,
            expires_at: self.expires_at,
        }
    }

    /// Appends the entry as one record, whatever its size: the form in a log of its own.
    pub fn append(&self, bytes: &mut Vec<u8>) {
        let value = self.value.as_deref().unwrap_or_default();
        self.header().append_parts(&[&self.key, value], bytes);
    }

    /// Decodes an entry from its header and its whole body; none for marks, or if the lengths
    /// contradict each other.
    pub fn from_body(header: &Header, body: &[u8]) -> Option<Entry> {
        let key = body.get(..header.key_len_bytes)?.into();
        let value = match header.kind {
            Kind::Put => Some(body.get(header.key_len_bytes..header.body_len_bytes())?.into()),
            _ => None,
        };
        Entry::from_parts(header, key, value)
    }

    /// Makes an entry from its header, its key and its value, if any; none for marks.
    pub(crate) fn from_parts(
        header: &Header,
        key: Arc<[u8]>,
        value: Option<Arc<[u8]>>,
    ) -> Option<Entry> {
        let value = match header.kind {
            Kind::Put => value,
            Kind::Delete | Kind::Flush => None,
            Kind::CommitVersion | Kind::Reset | Kind::Session => return None,
        };
        Some(Entry {
            shard: header.shard,
            version: header.version,
            client: header.client,
            sequence: header.sequence,
            answered: header.answered,
            key,
            value,
            is_flush: header.kind == Kind::Flush,
            client_flags: header.client_flags,
            expires_at: header.expires_at,
        })
    }
}

/// The results of scanning a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Bytes of strides that belong to no record though records follow: damage.
    pub skipped_bytes: usize,
    /// The end of the last whole record: bytes behind it are a torn tail.
    pub end_bytes: usize,
}

/// Passes every block of a log to `take`, in order, with the results of the scan before it. The
/// scan steps over damage stride by stride, so that it finds the records behind it; damage at the
/// end is a torn tail and is not counted.
pub fn scan(bytes: &[u8], check: Check, mut take: impl FnMut(Scanned, &Header, &[u8])) -> Scanned {
    let (mut at, mut bad_bytes, mut scanned) = (0, 0, Scanned::default());
    while at < bytes.len() {
        match block(&bytes[at..], check) {
            // If the padding is missing, it was cut off with the bytes behind it.
            Some((header, piece)) if header.len_bytes() <= bytes.len() - at => {
                scanned.skipped_bytes += std::mem::take(&mut bad_bytes);
                take(scanned, &header, piece);
                at += header.len_bytes();
                scanned.end_bytes = at;
            }
            _ => {
                bad_bytes += ALIGN_BYTES;
                at += ALIGN_BYTES;
            }
        }
    }
    scanned
}

#[cfg(test)]
mod tests;
