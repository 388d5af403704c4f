//! The payload of DUMP and RESTORE: one string as in an RDB file, with a footer.
//!
//! ```text
//!  | 0: a string | length and bytes | version, 2 bytes | CRC-64 of all before, 8 bytes |
//!                  │
//!                  ├─ 00......                    length below 64, then the bytes
//!                  ├─ 01...... ........           length below 16,384, the high bits first
//!                  ├─ 10000000 + 4 or 10000001 + 8 bytes, big-endian
//!                  └─ 110000kk                    k = 0, 1, 2: an integer of 1, 2, 4 bytes as text
//!                                                 k = 3: compressed: its length, the value's,
//!                                                 and LZF
//! ```
//!
//! # Invariants
//! I1: [`load`] gives back the value that was given to [`save`].
//!
//! # Trade-offs
//! Values are not compressed when they are written: readers accept both forms, and LZF saves little
//! of a payload that crosses a network once.

use std::borrow::Cow;

use crc_fast::CrcAlgorithm;

pub use self::encoding::{Length, LengthForm, unpack};

use self::encoding::unpacked_max_bytes;
use super::error::ErrorReply;
use super::number::parse_i64;

/// The length of `-2147483648`.
const NUMBER_MAX_BYTES: usize = 11;

mod encoding;

/// The written version: that of Redis 7.0, which every later one reads.
const VERSION: u16 = 10;
/// The highest version of Redis that is known to store strings in this format.
const VERSION_MAX: u16 = 13;
/// The version of Valkey 9, which counts separately.
const VERSION_VALKEY: u16 = 80;

/// The type of strings.
const STRING_TYPE: u8 = 0;
/// The highest type of some Redis: lists, sets, hashes and streams, which this server does not
/// have.
const OTHER_TYPE_MAX: u8 = 64;

/// The length of version and checksum.
const FOOTER_BYTES: usize = 10;
/// Longer texts are never stored as integers.
const INTEGER_TEXT_MAX_BYTES: usize = 11;

/// The bytes before and after a long value in its payload, so that the value need not be copied;
/// `None`: it is short, and [`save`] may write it in another form.
pub fn frame(value: &[u8]) -> Option<(Vec<u8>, [u8; FOOTER_BYTES])> {
    if value.len() <= INTEGER_TEXT_MAX_BYTES {
        return None;
    }
    let mut head = vec![STRING_TYPE];
    save_length(value.len() as u64, &mut head);
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc64Redis);
    let version = VERSION.to_le_bytes();
    for part in [&head[..], value, &version] {
        digest.update(part);
    }
    let mut footer = [0; FOOTER_BYTES];
    let (version_place, checksum_place) = footer.split_at_mut(version.len());
    version_place.copy_from_slice(&version);
    checksum_place.copy_from_slice(&digest.finalize().to_le_bytes());
    Some((head, footer))
}

/// Appends the payload of a value.
pub fn save(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(value.len() + FOOTER_BYTES + 6);
    out.push(STRING_TYPE);
    if !save_integer(value, out) {
        save_length(value.len() as u64, out);
        out.extend_from_slice(value);
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc_fast::checksum(CrcAlgorithm::Crc64Redis, &out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn save_integer(value: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(number) = Some(value).filter(|it| it.len() <= INTEGER_TEXT_MAX_BYTES) else {
        return false;
    };
    let Some(number) = parse_i64(number) else { return false };
    if let Ok(number) = i8::try_from(number) {
        out.push(0xc0);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(0xc1);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i32::try_from(number) {
        out.push(0xc2);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        return false;
    }
    true
}

fn save_length(len: u64, out: &mut Vec<u8>) {
    if len < 1 << 6 {
        out.push(len as u8);
    } else if len < 1 << 14 {
        out.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]);
    } else if let Ok(len) = u32::try_from(len) {
        out.push(0x80);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(0x81);
        out.extend_from_slice(&len.to_be_bytes());
    }
}

/// A value in the form of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dumped<'p> {
    /// Its bytes.
    Plain(&'p [u8]),
    /// A number, whose text is the value.
    Number(i32),
    /// LZF.
    Packed {
        /// The compressed bytes.
        packed: &'p [u8],
        /// The length of the value, at most the allowed one.
        len_bytes: u64,
    },
}

impl<'p> Dumped<'p> {
    /// The maximum length of the value.
    pub fn len_max_bytes(&self) -> usize {
        match self {
            Dumped::Plain(bytes) => bytes.len(),
            Dumped::Number(_) => NUMBER_MAX_BYTES,
            Dumped::Packed { len_bytes, .. } => usize::try_from(*len_bytes).unwrap_or(usize::MAX),
        }
    }

    /// The memory of [`Dumped::value`].
    pub fn unpacked_bytes(&self) -> usize {
        if matches!(self, Dumped::Plain(_)) { 0 } else { self.len_max_bytes() }
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// It is not valid LZF of that length.
    pub fn value(self) -> Result<Cow<'p, [u8]>, ErrorReply<'static>> {
        match self {
            Dumped::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
            Dumped::Number(number) => {
                Ok(Cow::Owned(itoa::Buffer::new().format(number).as_bytes().to_vec()))
            }
            Dumped::Packed { packed, len_bytes } => {
                unpack(packed, len_bytes).map(Cow::Owned).ok_or(ErrorReply::DumpFormat)
            }
        }
    }
}

/// The value in a payload, not unpacked yet; one that is longer than `value_max_bytes` is refused.
///
/// # Errors
///
/// The reply of Redis.
pub fn load(payload: &[u8], value_max_bytes: u64) -> Result<Dumped<'_>, ErrorReply<'static>> {
    let body = checked_body(payload).ok_or(ErrorReply::DumpChecksum)?;
    let (kind, mut rest) = body.split_first().ok_or(ErrorReply::DumpFormat)?;
    match *kind {
        STRING_TYPE => {}
        1..=OTHER_TYPE_MAX => {
            return Err(ErrorReply::Other("Bad data format: this server has strings only"));
        }
        _ => return Err(ErrorReply::DumpFormat),
    }
    // The bytes after the value are ignored, as in Redis.
    load_string(&mut rest, value_max_bytes)
}

/// The bytes before the footer, if version and checksum are right.
fn checked_body(payload: &[u8]) -> Option<&[u8]> {
    let body_bytes = payload.len().checked_sub(FOOTER_BYTES)?;
    let (body, footer) = payload.split_at_checked(body_bytes)?;
    let version = u16::from_le_bytes(footer.get(..2)?.try_into().ok()?);
    let checksum = u64::from_le_bytes(footer.get(2..)?.try_into().ok()?);
    let is_known = version <= VERSION_MAX || version == VERSION_VALKEY;
    let covered = payload.get(..body_bytes + 2)?;
    let is_whole = crc_fast::checksum(CrcAlgorithm::Crc64Redis, covered) == checksum;
    (is_known && is_whole).then_some(body)
}

fn load_string<'p>(
    rest: &mut &'p [u8],
    value_max_bytes: u64,
) -> Result<Dumped<'p>, ErrorReply<'static>> {
    let bad = ErrorReply::DumpFormat;
    let number = match load_length(rest).ok_or(bad)? {
        Length::Bytes(len) => {
            if len > value_max_bytes && len <= rest.len() as u64 {
                return Err(ErrorReply::StringTooLong);
            }
            return take(rest, len).map(Dumped::Plain).ok_or(bad);
        }
        Length::Special(0) => i32::from(i8::from_le_bytes(take_array(rest).ok_or(bad)?)),
        Length::Special(1) => i32::from(i16::from_le_bytes(take_array(rest).ok_or(bad)?)),
        Length::Special(2) => i32::from_le_bytes(take_array(rest).ok_or(bad)?),
        Length::Special(3) => return load_compressed(rest, value_max_bytes),
        Length::Special(_) => return Err(bad),
    };
    Ok(Dumped::Number(number))
}

fn load_compressed<'p>(
    rest: &mut &'p [u8],
    value_max_bytes: u64,
) -> Result<Dumped<'p>, ErrorReply<'static>> {
    let bad = ErrorReply::DumpFormat;
    let (Some(Length::Bytes(packed_len)), Some(Length::Bytes(len_bytes))) =
        (load_length(rest), load_length(rest))
    else {
        return Err(bad);
    };
    let packed = take(rest, packed_len).ok_or(bad)?;
    if len_bytes > unpacked_max_bytes(packed_len) {
        return Err(bad);
    }
    if len_bytes > value_max_bytes {
        return Err(ErrorReply::StringTooLong);
    }
    Ok(Dumped::Packed { packed, len_bytes })
}

fn load_length(rest: &mut &[u8]) -> Option<Length> {
    let [first] = take_array(rest)?;
    Some(match LengthForm::of(first)? {
        LengthForm::Whole(length) => length,
        LengthForm::OneMore { high } => {
            let [low] = take_array(rest)?;
            Length::Bytes(high << 8 | u64::from(low))
        }
        LengthForm::Four => Length::Bytes(u64::from(u32::from_be_bytes(take_array(rest)?))),
        LengthForm::Eight => Length::Bytes(u64::from_be_bytes(take_array(rest)?)),
    })
}

fn take<'p>(rest: &mut &'p [u8], len: u64) -> Option<&'p [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = after;
    Some(taken)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N as u64)?.try_into().ok()
}

#[cfg(test)]
mod tests;
