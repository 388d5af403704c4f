//! A warm store: a store in a file that outlives its process. The store's memory *is* the file, and
//! at the end a table of the live entries is written behind the memory.
//!
//! ```text
//!  serve ─▶ [ memory, mapped ][ room for a table ][ mark: running ]
//!  keep  ─▶ [ memory ][ table ][ trailer ]            sessions have ended
//!  open  ─▶ map, sums right? ─▶ index the entries that the table names
//!  begin ─▶ the mark takes the trailer's place        from now on the store changes
//! ```
//!
//! The file is meant for a tmpfs: its pages are then memory, and a restart of the program copies
//! none of them. The index is built anew, so it may be of another kind, and the file holds no
//! addresses of the process.
//!
//! # Invariants
//! I1: the last bytes of the file, which are no part of the memory, say what the file is: the
//!     trailer of a kept store, or the mark of a running one, or of one that was not to be kept.
//!     They change in one step, and the file becomes longer only in the step that writes its new
//!     last bytes. So at no moment does a kill leave a file that is taken for a kept one, or for a
//!     foreign one; and no client can write these bytes.
//! I2: a kept file stays valid until [`WarmFile::begin`], whatever goes wrong before. A file that
//!     does not fit is refused; only [`open_empty`] discards it.
//! I6: a file of any other kind is not touched.
//! I3: an entry is taken over only with the checksum that it was written with; others are counted.
//! I4: chains continue above the highest version of any of them, so that no CAS token comes twice
//!     (K1).
//! I5: all blocks of the file, including those of the table, are allocated before the store runs: a
//!     full file system is an error then, and neither a SIGBUS nor a loss at the end.
//!
//! # References
//! memcached's `-e` and USR1, which have the same purpose; K1, K9, K14.

mod attach;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use base::UnixMillis;
use index::mapping::HUGE_PAGE_BYTES;
use index::placement::NodeShare;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, retry_on_intr};
use thiserror::Error;

use crate::config::{NeededMemory, OpenError, StoreConfig};
use crate::log::{Contents, SegmentState};
use crate::session::name_live;
use crate::store::{Begin, Store};
use crate::tuning::Tuning;
use crate::warm_table::{self, Row, TRAILER_BYTES, Table, Trailer};

pub use crate::warm_table::LAYOUT;

/// The length of the mark of a running store.
const MARK_BYTES: u64 = TRAILER_BYTES as u64;

/// The bytes of a table gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// The reason why a warm file was not opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// The file cannot be opened, read, or allocated.
    #[error("{what}: {source}")]
    File {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("another server has it; stop that one or give another file")]
    Busy,
    /// It has contents that are not a store's.
    #[error("it is not empty, and no file of --warm-file: give another path, or remove it")]
    Foreign,
    /// It was kept by another program version or with other settings.
    #[error("{0}")]
    Misfit(Misfit),
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// The reason why a kept file does not fit this store; the file is unchanged (I2).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misfit {
    /// It is of another version of the program.
    #[error("it has layout {found}, and this program reads layout {LAYOUT}")]
    Layout {
        /// The layout found.
        found: u32,
    },
    /// Its table is damaged.
    #[error("its table is damaged")]
    Damaged,
    /// The memory is too small for its contents.
    #[error("{0}")]
    Room(NeededMemory),
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> WarmError {
    move |source| WarmError::File { what, source }
}

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// None: it is new, or was discarded.
    Nothing,
    /// The memory of a server that did not shut down cleanly: not used (I1).
    NotEnded,
    /// A store.
    Kept(Kept),
}

/// Statistics of a store that was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The number of items taken over.
    pub items: u64,
    /// The number of items whose bytes had changed, which were left out (I3).
    pub damaged: u64,
    /// When the last server wrote the table.
    pub saved_at_ms: u64,
    /// The note given to [`WarmFile::keep`].
    pub note: u64,
}

/// Statistics of [`WarmFile::keep`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of live items.
    pub items: u64,
    /// The length of the table.
    pub table_bytes: u64,
}

/// The file of an open store.
#[derive(Debug)]
pub struct WarmFile {
    /// Locked while it is open.
    file: File,
    memory_bytes: u64,
}

/// A store, its file, and the contents found.
pub struct Opened {
    /// The open store, with the contents found.
    pub store: Arc<Store>,
    /// The file, for keeping the store.
    pub file: WarmFile,
    /// The contents found.
    pub found: Found,
}

/// Opens a store in `path`, with the items kept there that have not expired by `now`; `threads`
/// build the index.
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
        attach::Last::Kept(kept) => {
            attach::attach(file, *kept, config, (tuning, nodes), (threads, now))
        }
        attach::Last::Nothing => begin_empty(file, config, (tuning, nodes), Found::Nothing),
        attach::Last::Running => begin_empty(file, config, (tuning, nodes), Found::NotEnded),
    }
}

/// Opens an empty store in `path`, discarding what an earlier store left there.
///
/// # Errors
/// [`WarmError`].
pub fn open_empty(
    path: &Path,
    config: StoreConfig,
    tuning: (Tuning, &[NodeShare]),
) -> Result<Opened, WarmError> {
    begin_empty(open_locked(path)?, config, tuning, Found::Nothing)
}

fn open_locked(path: &Path) -> Result<File, WarmError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Only this user may read clients' data, and no other user may redirect the file by a link.
    options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(path).map_err(failed("cannot open it"))?;
    let status = file.metadata().map_err(failed("cannot read"))?;
    let refused = |why| WarmError::File { what: "cannot map it", source: io::Error::other(why) };
    if !status.is_file() {
        return Err(refused("it is no regular file"));
    }
    if MetadataExt::uid(&status) != rustix::process::geteuid().as_raw() {
        return Err(refused("it is another user's"));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(WarmError::Busy),
        Err(error) => return Err(failed("cannot lock it")(error.into())),
    }
    attach::refuse_foreign(&file, status.len())?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
        .map_err(failed("cannot own it"))?;
    Ok(file)
}

fn begin_empty(
    file: File,
    config: StoreConfig,
    (tuning, nodes): (Tuning, &[NodeShare]),
    found: Found,
) -> Result<Opened, WarmError> {
    file.set_len(0).map_err(failed("cannot empty it"))?;
    let memory_bytes = whole_pages(config.memory_bytes);
    lengthen(&file, memory_bytes + MARK_BYTES, &warm_table::RUNNING)?;
    let store = Store::open_at(config, tuning, nodes, Begin::Warm { file: &file, table: None })?;
    let file = WarmFile { file, memory_bytes };
    file.begin(&store)?;
    Ok(Opened { store, file, found })
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(HUGE_PAGE_BYTES as u64)
}

/// Makes the file longer, with all its blocks (I5), in the step that writes its last bytes (I1).
/// Its length is a multiple of theirs, so they lie in one page. On failure the file is as before.
fn lengthen(file: &File, len_bytes: u64, last: &[u8; TRAILER_BYTES]) -> Result<(), WarmError> {
    debug_assert!(len_bytes.is_multiple_of(MARK_BYTES));
    let old_bytes = file.metadata().map_err(failed("cannot read"))?.len();
    let no_space = failed("cannot have the space for --memory");
    let lengthened = allocate(file, FallocateFlags::KEEP_SIZE, len_bytes).and_then(|is_done| {
        file.write_all_at(last, len_bytes - MARK_BYTES)?;
        // NFS allocates only up to the end of a file.
        let is_done = is_done || allocate(file, FallocateFlags::empty(), len_bytes)?;
        Ok(is_done)
    });
    match lengthened {
        Ok(_) => Ok(()),
        Err(error) => {
            // Blocks behind the end are given back too.
            let _ = file.set_len(old_bytes);
            Err(no_space(error))
        }
    }
}

/// Allocates the blocks of the first `len_bytes`; false: the file system cannot do that.
fn allocate(file: &File, flags: FallocateFlags, len_bytes: u64) -> io::Result<bool> {
    // A tmpfs gives up at any signal.
    match retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, len_bytes)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl WarmFile {
    /// Declares the store running: it may change from now on, and the kept contents are void.
    /// Called after everything that can fail at a start.
    ///
    /// # Errors
    /// There is no space for the table of the end; the kept contents are still there.
    pub fn begin(&self, store: &Store) -> Result<(), WarmError> {
        let running_bytes = self.running_bytes(store);
        let len_bytes = self.file.metadata().map_err(failed("cannot read"))?.len();
        // The file may be longer, because its memory was larger.
        let running_bytes = running_bytes.max(len_bytes + MARK_BYTES);
        lengthen(&self.file, running_bytes.next_multiple_of(MARK_BYTES), &warm_table::RUNNING)
    }

    /// The length of the memory, the largest table that it can have with its trailer, and the mark,
    /// which stays the end while a trailer is written before it.
    fn running_bytes(&self, store: &Store) -> u64 {
        let rows = u64::from(store.limits().segment_count);
        let table_bytes = warm_table::bytes_max(self.memory_bytes, rows) + TRAILER_BYTES as u64;
        self.memory_bytes + table_bytes + MARK_BYTES
    }

    /// Notes that the store ends and nothing is kept: the next process that opens the file begins
    /// empty. Every session has ended.
    ///
    /// # Errors
    /// Those of the file system: the file then looks like that of a store that was killed.
    pub fn end_empty(&self) -> io::Result<()> {
        let len_bytes = self.file.metadata()?.len();
        let last_at = len_bytes.checked_sub(MARK_BYTES).ok_or(io::ErrorKind::InvalidData)?;
        self.file.write_all_at(&warm_table::NOT_KEPT, last_at)
    }

    /// Writes the table of live entries behind the memory, with `note` for the next process that
    /// opens it. Every session has ended, and none is opened any more.
    ///
    /// # Errors
    /// The kernel's; or a session is left. Nothing is kept then.
    pub fn keep(&self, store: &Store, now: UnixMillis, note: u64) -> io::Result<Written> {
        let inner = store.inner();
        if inner.epochs.session_count() > 0 {
            return Err(io::Error::other("a thread still uses the store"));
        }
        let mut session = store.session().map_err(io::Error::other)?;
        let mut rows = self.rows_of(store);
        let mut file = BufWriter::with_capacity(WRITE_BYTES, &self.file);
        file.seek(SeekFrom::Start(self.memory_bytes))?;
        let mut bytes = warm_table::header(inner.log.segment_bytes(), rows.len() as u32).to_vec();
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
            items += name_live(&mut session, row, now);
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
        // I1: until here the mark is at the end.
        self.file.set_len(memory_bytes + table_bytes + TRAILER_BYTES as u64)?;
        // On a tmpfs this does nothing; elsewhere the pages should survive a reboot too.
        self.file.sync_all()?;
        Ok(Written { items, table_bytes: table_bytes + TRAILER_BYTES as u64 })
    }

    /// The segments with entries, the oldest first, without the lists of live entries.
    fn rows_of(&self, store: &Store) -> Vec<Row> {
        let log = &store.inner().log;
        let allocator = log.allocator();
        let used = allocator.table.rows().filter(|(segment, row)| {
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
