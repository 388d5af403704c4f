//! Reads libCacheSim's oracleGeneral format: records of 24 bytes, little-endian.
//!
//! ```text
//!  0        4                 12       16                24
//!  +--------+-----------------+--------+-----------------+
//!  | time s | object id       | size   | next access     |
//!  +--------+-----------------+--------+-----------------+
//! ```
//!
//! The next-access field is ignored: code that needs it computes it from the keys, so that every
//! format has it and a truncated file does not mislead.

use std::io::{BufRead, ErrorKind};

use crate::cache_trace::{Access, CacheRequest, TraceError, end_after};

/// Of one request.
pub const RECORD_BYTES: usize = 24;

/// Reads requests record by record.
pub struct OracleGeneralReader<R> {
    source: R,
    record_number: u64,
    is_done: bool,
}

impl<R: BufRead> OracleGeneralReader<R> {
    /// The requests in `source`.
    pub fn new(source: R) -> OracleGeneralReader<R> {
        OracleGeneralReader { source, record_number: 0, is_done: false }
    }

    fn next_request(&mut self) -> Result<Option<CacheRequest>, TraceError> {
        let mut record = [0; RECORD_BYTES];
        let mut filled = 0;
        while filled < RECORD_BYTES {
            match self.source.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => {
                    let reason = format!("the file ends after {filled} of {RECORD_BYTES} bytes");
                    return Err(TraceError::BadRecord { record: self.record_number + 1, reason });
                }
                Ok(len_bytes) => filled += len_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.record_number += 1;
        Ok(Some(decode(&record)))
    }
}

fn decode(record: &[u8; RECORD_BYTES]) -> CacheRequest {
    let [a, b, c, d, key @ .., e, f, g, h, _, _, _, _, _, _, _, _] = *record;
    CacheRequest {
        time_ms: u64::from(u32::from_le_bytes([a, b, c, d])) * 1000,
        key: u64::from_le_bytes(key),
        key_len_bytes: 0,
        value_len_bytes: u32::from_le_bytes([e, f, g, h]),
        ttl_s: 0,
        access: Access::Look,
    }
}

impl<R: BufRead> Iterator for OracleGeneralReader<R> {
    type Item = Result<CacheRequest, TraceError>;

    fn next(&mut self) -> Option<Result<CacheRequest, TraceError>> {
        if self.is_done {
            return None;
        }
        let next = self.next_request();
        end_after(&mut self.is_done, next)
    }
}
