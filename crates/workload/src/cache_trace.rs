//! Cache traces: the key, the time and the value size of each request.
//!
//! ```text
//!  file ─▶ zstd? ─┬─ CSV, columns by name or number ─┐
//!                 └─ oracleGeneral, 24-byte records ─┼─▶ CacheRequest, CacheRequest, ...
//!  profile ──────── generated Twitter cluster ───────┘
//! ```
//!
//! # Invariants
//! T1: a reader holds one line or one record, whatever the size of the file.
//! T2: an error names the file and the line or record; after it a reader ends.
//! T3: no input makes a reader panic.
//!
//! # References
//! J. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023 (libCacheSim and
//! its oracleGeneral format).

mod columns;
mod csv;
mod generated;
mod oracle_general;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::str::FromStr;

pub use columns::{Columns, Place, TimeUnit};
pub use csv::CsvReader;
pub use generated::GeneratedRequests;
pub use oracle_general::{OracleGeneralReader, RECORD_BYTES};

/// One request of a cache's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    /// Milliseconds on the trace's own clock.
    pub time_ms: u64,
    /// A number as written in the trace; other text is hashed.
    pub key: u64,
    /// Length of the key; 0: the trace does not give it.
    pub key_len_bytes: u32,
    /// Length of the value that is stored, or that the client would store.
    pub value_len_bytes: u32,
    /// Lifetime from the write on; 0: for ever.
    pub ttl_s: u32,
    /// The operation.
    pub access: Access,
}

/// T2: what a reader returns for `next`, and whether it ends with it.
fn end_after(
    is_done: &mut bool,
    next: Result<Option<CacheRequest>, TraceError>,
) -> Option<Result<CacheRequest, TraceError>> {
    *is_done = !matches!(next, Ok(Some(_)));
    next.transpose()
}

/// Length of a key where the trace has none.
const KEY_LEN_UNKNOWN_BYTES: u32 = 16;
/// Sixty-four letters that every protocol allows in a key: eleven of them encode 64 bits.
const KEY_LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const KEY_LETTERS_MIN: u32 = 11;
/// The longest key of memcached.
const KEY_LETTERS_MAX: u32 = 250;

impl CacheRequest {
    /// The length of the key for this number: at least 11, at most 250.
    pub fn key_text_len_bytes(&self) -> u32 {
        let len = if self.key_len_bytes == 0 { KEY_LEN_UNKNOWN_BYTES } else { self.key_len_bytes };
        len.clamp(KEY_LETTERS_MIN, KEY_LETTERS_MAX)
    }

    /// Appends the key as text; different keys have different texts.
    pub fn write_key_text(&self, out: &mut Vec<u8>) {
        let padding = self.key_text_len_bytes() - KEY_LETTERS_MIN;
        out.extend((0..padding).map(|_| b'.'));
        let letter = |place: u32| KEY_LETTERS[(self.key >> (6 * place)) as usize % 64];
        out.extend((0..KEY_LETTERS_MIN).rev().map(letter));
    }

    /// Bytes of key and value.
    pub fn item_bytes(&self) -> u64 {
        u64::from(self.key_text_len_bytes()) + u64::from(self.value_len_bytes)
    }
}

/// The operation of a client on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Looks the key up, and stores it when it is not there (look-aside).
    Look,
    /// Stores the key.
    Write,
    /// Removes the key.
    Delete,
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of fields.
    Csv,
    /// libCacheSim's binary records.
    OracleGeneral,
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Format, TraceError> {
        match text {
            "csv" => Ok(Format::Csv),
            "oracle-general" => Ok(Format::OracleGeneral),
            _ => Err(TraceError::UnknownFormat { text: text.to_owned() }),
        }
    }
}

impl Format {
    /// The format by the file's name; CSV if the name does not show it.
    pub fn of_path(path: &Path) -> Format {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
        let is_binary = name.is_some_and(|name| {
            name.contains("oraclegeneral") || name.trim_end_matches(".zst").ends_with(".bin")
        });
        if is_binary { Format::OracleGeneral } else { Format::Csv }
    }
}

/// The reasons for which a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A word that names no format.
    #[error("`{text}` is no trace format: write csv or oracle-general")]
    UnknownFormat {
        /// The word as written.
        text: String,
    },
    /// Invalid column flags.
    #[error(
        "`{text}` is no column: write NAME=NUMBER or NAME=HEADER with a NAME of time, key, size, \
         key-size, op, ttl, delimiter or has-header, e.g. time=2,size=4,key=lbn"
    )]
    BadColumns {
        /// The part that is wrong.
        text: String,
    },
    /// The file has no such column, or no option named it.
    #[error("the trace has no column for {what}: say which it is, e.g. --columns {what}=2")]
    NoColumn {
        /// The content of the column.
        what: &'static str,
    },
    /// The file could not be opened or read.
    #[error("{source}")]
    Read {
        /// The reason.
        #[from]
        source: std::io::Error,
    },
    /// A line that is not a request.
    #[error("line {line}: {reason}")]
    BadLine {
        /// Its number, from 1.
        line: u64,
        /// The error and the correct form.
        reason: String,
    },
    /// A record that is not a request.
    #[error("record {record}: {reason}")]
    BadRecord {
        /// Its number, from 1.
        record: u64,
        /// The error and the correct form.
        reason: String,
    },
}

/// The common type of readers: requests, or one error and then nothing.
pub type Requests = Box<dyn Iterator<Item = Result<CacheRequest, TraceError>>>;

/// Opens a trace. A file that starts as zstd does is decompressed on the way.
pub fn open(path: &Path, format: Format, columns: &Columns) -> Result<Requests, TraceError> {
    let mut file = BufReader::with_capacity(READ_AHEAD_BYTES, File::open(path)?);
    if file.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        let inner = ZstdReader { source: file, decoder: None };
        return read(BufReader::with_capacity(READ_AHEAD_BYTES, inner), format, columns);
    }
    read(file, format, columns)
}

/// The requests in `source`.
pub fn read(
    source: impl BufRead + 'static,
    format: Format,
    columns: &Columns,
) -> Result<Requests, TraceError> {
    Ok(match format {
        Format::Csv => Box::new(CsvReader::new(source, columns)?),
        Format::OracleGeneral => Box::new(OracleGeneralReader::new(source)),
    })
}

const READ_AHEAD_BYTES: usize = 1 << 18;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

type Frame = ruzstd::decoding::FrameDecoder;

/// The content of a zstd file, frame after frame.
struct ZstdReader<R> {
    source: R,
    decoder: Option<Box<Frame>>,
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use ruzstd::decoding::BlockDecodingStrategy::UptoBlocks;

        let invalid = |reason: String| {
            let message = format!("not what zstd writes: {reason}");
            std::io::Error::new(std::io::ErrorKind::InvalidData, message)
        };
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(decoder) = &mut self.decoder else {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let mut decoder = Box::new(Frame::new());
                let begun = decoder.init(&mut self.source);
                begun.map_err(|error| invalid(error.to_string()))?;
                self.decoder = Some(decoder);
                continue;
            };
            if decoder.can_collect() > 0 {
                return decoder.read(buffer);
            }
            if decoder.is_finished() {
                self.decoder = None;
                continue;
            }
            let decoded = decoder.decode_blocks(&mut self.source, UptoBlocks(1));
            decoded.map_err(|error| invalid(error.to_string()))?;
        }
    }
}

#[cfg(test)]
mod tests;
