//! A store that outlives its process in a file: its memory *is* the file, and at the end a table of
//! what lives is written behind it.
//!
//! ```text
//!  serve ─▶ [ memory, mapped ]                        no table: whoever finds it begins anew
//!  keep  ─▶ [ memory ][ table ][ trailer ]            sessions have ended
//!  open  ─▶ map, sums right? ─▶ index the entries that the table names ─▶ cut the table off
//! ```
//!
//! A tmpfs is what this is for: the file's pages are memory then, and a restart of the program
//! copies none of them. The index is built anew, so that it may be of another kind, and that there
//! is nothing of the program's own addresses in the file.
//!
//! # Invariants
//! I1: while a store runs, its file has no table: what a crash leaves is never believed.
//! I2: what does not fit changes nothing in the file; only [`open_empty`] throws it away.
//! I3: an entry is taken over only with the checksum that it was written with; others are counted.
//! I4: chains go on above the highest version that any had, so that no CAS token comes twice (K1).
//! I5: all blocks of the file are there before it is mapped: a full file system is an error, and no
//!     SIGBUS later.
//!
//! # References
//! memcached's `-e` and USR1, whose use this has; K1, K9, K14.

mod attach;
mod table;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use base::UnixMillis;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use thiserror::Error;

use crate::config::{OpenError, StoreConfig};
use crate::log::{Contents, SegmentState};
use crate::mapping::HUGE_PAGE_BYTES;
use crate::placement::NodeShare;
use crate::store::{Begin, Store};
use crate::tuning::Tuning;
use table::{TRAILER_BYTES, Trailer};

pub use table::LAYOUT;
pub(crate) use table::{Row, Table};

/// Bytes of a table that are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Why a warm file was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// The file cannot be opened, read, or have its space.
    #[error("{what}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another process has it.
    #[error("another server has it; stop that one or give another file")]
    Busy,
    /// It was kept by something else than this program with these settings.
    #[error("{0}")]
    Misfit(Misfit),
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// How a file that was kept is not this store's; it is unchanged (I2).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misfit {
    /// Of another version of the program.
    #[error("it has layout {found}, and this program reads layout {LAYOUT}")]
    Layout {
        /// As found.
        found: u32,
    },
    /// Its table is damaged.
    #[error("its table is damaged")]
    Damaged,
    /// The memory is too small for what is in it.
    #[error("{0}")]
    Room(String),
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> WarmError {
    move |source| WarmError::File { what, source }
}

/// What was in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: it is new, or it was thrown away.
    Nothing,
    /// Memory of a server that did not end as it should: not believed (I1).
    NotEnded,
    /// A store.
    Kept(Kept),
}

/// A store that was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Items that are there.
    pub items: u64,
    /// Items whose bytes had changed, and which are not there (I3).
    pub damaged: u64,
    /// When the last server wrote the table.
    pub saved_at_ms: u64,
    /// As given to [`WarmFile::keep`].
    pub note: u64,
}

/// What [`WarmFile::keep`] wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Items that live.
    pub items: u64,
    /// Bytes of the table.
    pub table_bytes: u64,
}

/// The file of a store that is open.
#[derive(Debug)]
pub struct WarmFile {
    /// Locked as long as it is open.
    file: File,
    memory_bytes: u64,
}

/// A store, its file, and what was in that.
pub struct Opened {
    /// Open, with what was found.
    pub store: Arc<Store>,
    /// To keep it.
    pub file: WarmFile,
    /// What was there.
    pub found: Found,
}

/// Opens a store in `path`, with what is kept there and has not expired by `now`; `threads` build
/// the index.
///
/// # Errors
/// [`WarmError`]; a [`WarmError::Misfit`] has changed nothing.
pub fn open(
    path: &Path,
    config: StoreConfig,
    (tuning, nodes): (Tuning, &[NodeShare]),
    (threads, now): (usize, UnixMillis),
) -> Result<Opened, WarmError> {
    let file = open_locked(path)?;
    let len_bytes = file.metadata().map_err(failed("cannot read"))?.len();
    match attach::read(&file, len_bytes)? {
        Some((trailer, table)) => {
            attach::attach(file, (trailer, table), config, (tuning, nodes), (threads, now))
        }
        None => {
            let found = if len_bytes == 0 { Found::Nothing } else { Found::NotEnded };
            begin(file, config, (tuning, nodes), found)
        }
    }
}

/// Opens an empty store in `path`, whatever is there.
///
/// # Errors
/// [`WarmError`].
pub fn open_empty(
    path: &Path,
    config: StoreConfig,
    tuning: (Tuning, &[NodeShare]),
) -> Result<Opened, WarmError> {
    begin(open_locked(path)?, config, tuning, Found::Nothing)
}

fn open_locked(path: &Path) -> Result<File, WarmError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // What clients store is nobody else's.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(failed("cannot open it"))?;
    if !file.metadata().map_err(failed("cannot read"))?.is_file() {
        let source = io::Error::other("it is no regular file");
        return Err(WarmError::File { what: "cannot map it", source });
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(WarmError::Busy),
        Err(error) => Err(failed("cannot lock it")(error.into())),
    }
}

fn begin(
    file: File,
    config: StoreConfig,
    (tuning, nodes): (Tuning, &[NodeShare]),
    found: Found,
) -> Result<Opened, WarmError> {
    file.set_len(0).map_err(failed("cannot empty it"))?;
    let memory_bytes = reserve(&file, config.memory_bytes)?;
    let store = Store::open_at(config, tuning, nodes, Begin::Warm { file: &file, table: None })?;
    Ok(Opened { store, file: WarmFile { file, memory_bytes }, found })
}

/// I5; how long the file is then.
fn reserve(file: &File, bytes: u64) -> Result<u64, WarmError> {
    let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES as u64);
    file.set_len(bytes).map_err(failed("cannot have the space for --memory"))?;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(bytes),
        Err(error) => {
            // The blocks that it got are given back.
            let _ = file.set_len(0);
            Err(failed("cannot have the space for --memory")(error.into()))
        }
    }
}

impl WarmFile {
    /// Writes what lives behind the memory, with `note` for whoever opens it. Every session has
    /// ended, and none is opened any more.
    ///
    /// # Errors
    /// The kernel's, a full file system among them; or a session is left. The file has no table
    /// then.
    pub fn keep(&self, store: &Store, now: UnixMillis, note: u64) -> io::Result<Written> {
        let inner = store.inner();
        if inner.epochs.session_count() > 0 {
            return Err(io::Error::other("a thread still uses the store"));
        }
        let mut session = store.session().map_err(io::Error::other)?;
        let mut rows = self.rows_of(store);
        let mut file = BufWriter::with_capacity(WRITE_BYTES, &self.file);
        file.seek(SeekFrom::Start(self.memory_bytes))?;
        let mut bytes = table::header(inner.log.segment_bytes(), rows.len() as u32).to_vec();
        let (mut sum, mut table_bytes, mut items) = (crate::crc::START, 0, 0);
        let mut write = |bytes: &mut Vec<u8>| {
            sum = crate::crc::extend(sum, bytes);
            table_bytes += bytes.len() as u64;
            let written = file.write_all(bytes);
            bytes.clear();
            written
        };
        write(&mut bytes)?;
        for row in &mut rows {
            items += session.name_live(row, now);
            row.append_to(&mut bytes);
            row.live = Vec::new();
            write(&mut bytes)?;
        }
        let mut version = 0;
        inner.index.each_word(|word| version = word.version().max(version));
        let memory_bytes = self.memory_bytes;
        let (saved_at_ms, table_sum) = (now.0, sum);
        let trailer = Trailer { memory_bytes, table_bytes, table_sum, saved_at_ms, version, note };
        file.write_all(&trailer.to_bytes())?;
        file.flush()?;
        drop(file);
        // On a tmpfs this is nothing; elsewhere the pages are to be there after a reboot too.
        self.file.sync_all()?;
        Ok(Written { items, table_bytes: table_bytes + TRAILER_BYTES as u64 })
    }

    /// Segments with entries, without what lives; the oldest first.
    fn rows_of(&self, store: &Store) -> Vec<Row> {
        let log = &store.inner().log;
        let allocator = log.allocator();
        let used = allocator.rows().filter(|(segment, row)| {
            row.state == SegmentState::Used && log.live_bytes(*segment) > 0
        });
        let mut rows: Vec<(u64, Row)> = used
            .map(|(segment, row)| {
                let contents = Contents {
                    used_bytes: row.used_bytes,
                    latest_expiry_ms: row.latest_expiry_ms,
                    is_long: row.is_long,
                };
                let (run_len, queue) = (row.run_len, row.queue);
                (row.sequence, Row { segment, run_len, contents, queue, live: Vec::new() })
            })
            .collect();
        rows.sort_unstable_by_key(|(sequence, _)| *sequence);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}
