//! Decodes entries from untrusted bytes.

use base::UnixMillis;

use super::{Change, Damage, Record, Seal};
use crate::entry::{ALIGN_BYTES, HEADER_BYTES, Parsed, RawKind};
use crate::{ITEM_MAX_BYTES, KEY_LEN_MAX_BYTES};

/// Decodes the entry at the start of `bytes`; also returns its length.
///
/// # Errors
/// The damage found.
pub fn decode(bytes: &[u8], seal: Seal) -> Result<(Record<'_>, usize), Damage> {
    let Some((first, rest)) = bytes.split_first_chunk::<ALIGN_BYTES>() else {
        return Err(Damage::TornTail { have_bytes: bytes.len() });
    };
    let first = u64::from_le_bytes(*first);
    if first == 0 && rest.iter().take(ALIGN_BYTES).all(|byte| *byte == 0) {
        return Err(Damage::Zeros);
    }
    let kind = RawKind::of(first);
    if bytes.len() < HEADER_BYTES {
        return Err(Damage::TornTail { have_bytes: bytes.len() });
    }
    if !kind.is_at_rest() {
        return Err(Damage::NoHeader { kind: kind.0 });
    }
    if bytes.len() < kind.header_bytes() {
        let (len_bytes, have_bytes) = (kind.header_bytes(), bytes.len());
        return Err(Damage::BeyondEnd { len_bytes, have_bytes });
    }
    let parsed = Parsed::new(bytes);
    let shape = parsed.shape;
    let item_bytes = (shape.key_len_bytes + shape.value_len_bytes) as u64;
    let is_delete = kind.is_delete();
    if shape.key_len_bytes > KEY_LEN_MAX_BYTES
        || item_bytes > ITEM_MAX_BYTES
        || parsed.version == 0
        || (is_delete && (shape.value_len_bytes > 0 || parsed.client_flags != 0))
    {
        return Err(Damage::NoHeader { kind: kind.0 });
    }
    let len_bytes = shape.len_bytes();
    let Some(body) = bytes.get(shape.header_bytes()..len_bytes) else {
        return Err(Damage::BeyondEnd { len_bytes, have_bytes: bytes.len() });
    };
    let (key, body) = body.split_at(shape.key_len_bytes);
    let value = &body[..shape.value_len_bytes];
    let stored = parsed.checksum ^ seal.0;
    let computed = parsed.checksum_of(key, value);
    if stored != computed {
        return Err(Damage::Checksum { len_bytes, stored, computed });
    }
    let change = match is_delete {
        true => Change::Delete { note: parsed.expires_at_ms },
        false => Change::Put {
            value,
            client_flags: parsed.client_flags,
            expires_at: (parsed.expires_at_ms != 0).then_some(UnixMillis(parsed.expires_at_ms)),
        },
    };
    let (version, shard) = (parsed.version, parsed.shard);
    Ok((Record { key, change, version, shard }, len_bytes))
}

/// A record, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// The offset from the start of the scanned bytes.
    pub offset: usize,
    /// The length of the entry.
    pub len_bytes: usize,
    /// The record.
    pub record: Record<'a>,
}

/// Bytes that are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The offset from the start of the scanned bytes.
    pub offset: usize,
    /// The damage.
    pub damage: Damage,
}

/// Iterates over consecutive entries, up to the end or the first damage; [`Scan::resume`] continues
/// behind the damage.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    bytes: &'a [u8],
    seal: Seal,
    offset: usize,
    is_stopped: bool,
}

impl<'a> Scan<'a> {
    /// Scans from the first byte on.
    pub fn new(bytes: &'a [u8], seal: Seal) -> Scan<'a> {
        Scan { bytes, seal, offset: 0, is_stopped: false }
    }

    /// The offset of the next entry.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// After damage: moves to the next place, a multiple of eight, where an entry is; the bytes
    /// before it are skipped. Returns false at the end. Each place costs a check of a header, and
    /// few of them a checksum.
    pub fn resume(&mut self) -> bool {
        let mut at = (self.offset + 1).next_multiple_of(ALIGN_BYTES);
        while at < self.bytes.len() {
            if decode(&self.bytes[at..], self.seal).is_ok() {
                (self.offset, self.is_stopped) = (at, false);
                return true;
            }
            at += ALIGN_BYTES;
        }
        self.offset = self.bytes.len();
        false
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Result<Located<'a>, Damaged>;

    fn next(&mut self) -> Option<Result<Located<'a>, Damaged>> {
        if self.is_stopped || self.offset >= self.bytes.len() {
            return None;
        }
        let offset = self.offset;
        match decode(&self.bytes[offset..], self.seal) {
            Ok((record, len_bytes)) => {
                self.offset += len_bytes;
                Some(Ok(Located { offset, len_bytes, record }))
            }
            Err(damage) => {
                self.is_stopped = true;
                Some(Err(Damaged { offset, damage }))
            }
        }
    }
}
