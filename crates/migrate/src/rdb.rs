//! Reads RDB, the file format in which Redis saves all its data, from front to back.
//!
//! ```text
//!  REDIS 0010 │ AUX name value │ SELECTDB 0 │ RESIZEDB 2 1
//!             │ [EXPIRETIME_MS 8 bytes] type key value │ ...
//!             │ EOF │ CRC-64 of all before, 8 bytes; 0: none
//! ```
//!
//! Strings are read in all their encodings; values of other types are skipped and reported by type.
//! Lengths and compression are those of DUMP's payload (`wire::resp::dump`).
//!
//! # Invariants
//! I1: any input ends in `End` or in an error; memory grows with the bytes read, not with the
//!     lengths that they claim.
//! I2: `End` is returned only if the checksum is right, or if there is none.
//!
//! # Limits
//! Versions 1 to 13, and 80 of Valkey 9. Modules from before Redis 4 cannot be skipped.

mod input;
mod walk;

use std::io::Read;

use self::input::Input;

/// The newest RDB version of Redis whose types are known.
const VERSION_MAX: u32 = 13;
/// The version of Valkey 9, which has its own numbers.
const VERSION_VALKEY: u32 = 80;
/// From this version on the file ends with a checksum.
const VERSION_CHECKSUM: u32 = 5;

const SLOT_INFO: u8 = 0xf4;
const FUNCTION: u8 = 0xf5;
const MODULE_AUX: u8 = 0xf7;
const IDLE: u8 = 0xf8;
const FREQ: u8 = 0xf9;
const AUX: u8 = 0xfa;
const RESIZE_DB: u8 = 0xfb;
const EXPIRE_TIME_MS: u8 = 0xfc;
const EXPIRE_TIME: u8 = 0xfd;
const SELECT_DB: u8 = 0xfe;
const END: u8 = 0xff;

/// The reasons for which a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbError {
    /// The system's reason.
    #[error("{0}")]
    Io(std::io::Error),
    /// It does not begin like an RDB file.
    #[error("no RDB file: it does not begin with REDIS and four digits")]
    NoRdb,
    /// It is from a newer Redis.
    #[error("RDB version {0}; versions 1 to {VERSION_MAX} and {VERSION_VALKEY} are read")]
    Version(u32),
    /// It is truncated.
    #[error("cut off: it ends at byte {0}, where more is announced")]
    Cut(u64),
    /// It contains invalid bytes.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// From the file's start.
        at: u64,
        /// The invalid content.
        what: &'static str,
    },
    /// It contains a type that cannot be skipped.
    #[error("byte {at}: a value of type {kind}, which is not known; nothing behind it can be read")]
    Kind {
        /// From the file's start.
        at: u64,
        /// The type's number.
        kind: u8,
    },
    /// The checksum is wrong.
    #[error("the checksum is {found:016x} and should be {want:016x}: the file is damaged")]
    Checksum {
        /// The checksum of the bytes read.
        found: u64,
        /// The checksum at the file's end.
        want: u64,
    },
}

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A string.
    String(Vec<u8>),
    /// A value of an unsupported type: `list`, `hash`, ...
    Other(&'static str),
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of its database.
    pub database: u64,
    /// Its expiry, in milliseconds since 1970.
    pub expires_unix_ms: Option<u64>,
    /// Any bytes.
    pub key: Vec<u8>,
    /// Its value.
    pub content: Content,
}

/// The next part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A key.
    Entry(Entry),
    /// The file's count of keys in this database.
    Size {
        /// The number of the database.
        database: u64,
        /// Keys in it.
        keys: u64,
    },
    /// The end, with the right checksum.
    End,
}

/// A reader of a file from front to back.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    version: u32,
    database: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(source: R) -> Result<Reader<R>, RdbError> {
        let mut input = Input::new(source);
        let head = input.array::<9>().map_err(|error| match error {
            RdbError::Cut(_) => RdbError::NoRdb,
            other => other,
        })?;
        let digits = head.strip_prefix(b"REDIS").filter(|it| it.iter().all(u8::is_ascii_digit));
        let Some(digits) = digits else { return Err(RdbError::NoRdb) };
        let version = digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        if !(1..=VERSION_MAX).contains(&version) && version != VERSION_VALKEY {
            return Err(RdbError::Version(version));
        }
        Ok(Reader { input, version, database: 0 })
    }

    /// The next key, or the end. Do not call it after the end or an error.
    pub fn find_next(&mut self) -> Result<Found, RdbError> {
        let mut expires_unix_ms = None;
        loop {
            let at = self.input.at();
            let [code] = self.input.array()?;
            match code {
                AUX => {
                    self.input.skip_string()?;
                    self.input.skip_string()?;
                }
                FUNCTION => self.input.skip_string()?,
                MODULE_AUX => walk::module_aux(&mut self.input)?,
                SLOT_INFO => self.input.skip_numbers(3)?,
                IDLE => self.input.skip_numbers(1)?,
                FREQ => self.input.skip(1)?,
                SELECT_DB => self.database = self.input.number()?,
                RESIZE_DB => {
                    let (database, keys) = (self.database, self.input.number()?);
                    self.input.skip_numbers(1)?;
                    return Ok(Found::Size { database, keys });
                }
                EXPIRE_TIME_MS => {
                    expires_unix_ms = Some(positive(i64::from_le_bytes(self.input.array()?)));
                }
                EXPIRE_TIME => {
                    let seconds = i32::from_le_bytes(self.input.array()?);
                    expires_unix_ms = Some(positive(i64::from(seconds)) * 1000);
                }
                END => return self.end(),
                kind => {
                    let key = self.input.string()?;
                    let content = walk::value(&mut self.input, kind, at)?;
                    let database = self.database;
                    return Ok(Found::Entry(Entry { database, expires_unix_ms, key, content }));
                }
            }
        }
    }

    fn end(&mut self) -> Result<Found, RdbError> {
        if self.version < VERSION_CHECKSUM {
            return Ok(Found::End);
        }
        let found = self.input.checksum();
        let want = u64::from_le_bytes(self.input.array()?);
        // Redis writes 0 with `rdbchecksum no`.
        if want != 0 && want != found {
            return Err(RdbError::Checksum { found, want });
        }
        Ok(Found::End)
    }
}

/// A time before 1970 counts as passed too.
fn positive(time: i64) -> u64 {
    u64::try_from(time).unwrap_or(0)
}

#[cfg(test)]
mod tests;
