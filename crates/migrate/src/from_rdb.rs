//! Reads the keys of an RDB file that Redis has saved.

use std::fs::File;
use std::path::{Path, PathBuf};

use wire::resp::Glob;

use crate::copy::{Batch, Source};
use crate::error::Error;
use crate::item::{Expiry, Item};
use crate::rdb::{Content, Found, RdbError, Reader};

/// Bytes of keys and values in one batch; a single item may have more.
const BATCH_MAX_BYTES: u64 = 1 << 20;
/// Most keys read for one batch, so that a file of lists is not read in one piece.
const LOOKED_AT_MAX: u64 = 10_000;

/// The source `rdb://`.
#[derive(Debug)]
pub struct FromRdb {
    path: PathBuf,
    reader: Reader<File>,
    database: u64,
    pattern: Option<Glob>,
    is_dry: bool,
    chunk_keys: usize,
    /// Keys that were returned, and those that an earlier copy has done.
    passed: u64,
    total: Option<u64>,
    has_ended: bool,
}

impl FromRdb {
    /// Opens the file and reads its header; `resume` is a place from an earlier copy.
    pub fn open(
        path: &Path,
        database: u64,
        pattern: Option<Vec<u8>>,
        is_dry: bool,
        chunk_keys: usize,
        resume: Option<&str>,
    ) -> Result<FromRdb, Error> {
        let skipped = resume.map_or(Ok(0), str::parse::<u64>).map_err(|_| Error::Resume {
            given: resume.unwrap_or_default().to_owned(),
            wanted: "a number of keys, as an interrupted copy has printed it",
        })?;
        let pattern = pattern.map(|pattern| Glob::new(&pattern)).transpose()?;
        let failed = |error| Error::File { path: path.display().to_string(), error };
        let file = File::open(path).map_err(|error| failed(RdbError::Io(error)))?;
        let reader = Reader::new(file).map_err(failed)?;
        let (path, total) = (path.to_owned(), None);
        let (passed, has_ended) = (0, false);
        let mut source = FromRdb {
            path,
            reader,
            database,
            pattern,
            is_dry,
            chunk_keys,
            passed,
            total,
            has_ended,
        };
        while source.passed < skipped && source.entry()?.is_some() {}
        Ok(source)
    }

    /// The next key of any database.
    fn entry(&mut self) -> Result<Option<crate::rdb::Entry>, Error> {
        loop {
            let found = self.reader.find_next();
            match found {
                Ok(Found::Entry(entry)) => {
                    self.passed += 1;
                    return Ok(Some(entry));
                }
                Ok(Found::Size { keys, .. }) => {
                    let sum = self.total.unwrap_or(0).saturating_add(keys);
                    self.total = Some(sum);
                }
                Ok(Found::End) => {
                    self.has_ended = true;
                    return Ok(None);
                }
                Err(error) => {
                    return Err(Error::File { path: self.path.display().to_string(), error });
                }
            }
        }
    }
}

impl Source for FromRdb {
    fn next(&mut self) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while !self.has_ended
            && batch.items.len() < self.chunk_keys.max(1)
            && bytes < BATCH_MAX_BYTES
            && batch.tally.seen < LOOKED_AT_MAX
        {
            let Some(entry) = self.entry()? else { break };
            batch.tally.seen += 1;
            let pattern = self.pattern.as_ref();
            let value = match entry.content {
                _ if entry.database != self.database => {
                    batch.tally.elsewhere += 1;
                    continue;
                }
                _ if pattern.is_some_and(|pattern| !pattern.matches(&entry.key, &mut 0)) => {
                    batch.tally.unmatched += 1;
                    continue;
                }
                Content::Other(kind) => {
                    *batch.tally.other_types.entry(kind.to_owned()).or_default() += 1;
                    continue;
                }
                Content::String(value) => value,
            };
            let value_bytes = value.len() as u64;
            let expiry =
                entry.expires_unix_ms.map_or(Expiry::Never, |unix_ms| Expiry::At { unix_ms });
            if expiry.left().is_none() {
                batch.tally.expired += 1;
                continue;
            }
            let value = if self.is_dry { Vec::new() } else { value };
            let item = Item { key: entry.key, value, value_bytes, expiry, flags: 0 };
            bytes += item.bytes();
            batch.items.push(item);
        }
        let is_last = self.has_ended && batch.tally.seen == 0;
        Ok((!is_last).then_some(batch))
    }

    /// A file has no connection to renew.
    fn reconnect(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn place(&self) -> Option<String> {
        Some(self.passed.to_string())
    }

    fn total(&self) -> Option<u64> {
        self.total
    }
}
