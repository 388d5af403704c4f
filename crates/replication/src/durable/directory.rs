//! The data directory: locks it for one process, names its files, and reads them at the start.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use config::DataConfig;
use config::StartError;
use host::private;
use host::process::{random_u64, unix_now};
use rustix::fs::FlockOperation;
use store::durable::backup::{Copied, backup};
use store::durable::check::{Report, check};
use store::durable::{Beside, DataError, NewData, Opened, Recovery, UsedCheckpoint};
use store::medium::{FileMedium, LogFile, Media, open_regular};
use store::{NeededMemory, NodeShare, Store, StoreConfig, Tuning};

use super::node_file::{self, Tenancy, Tenant};
use super::{Data, Kept, Owner, checkpoints};

/// The file that holds everything.
pub(super) const LOG_FILE: &str = "log";
/// An unfinished copy of it.
const LOG_NEW_FILE: &str = "log.new";
const LOCK_FILE: &str = "LOCK";
/// The contents of the lock's file once the directory has had a log: what tells a log that was cut
/// to nothing from one that was never written.
const USED: &[u8] = b"This directory has had a log; without one no server begins anew here.\n";
/// The interval at which recovery reports its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Opens a store, on a disk if the configuration says so; `tenant` is the cluster's node that owns
/// it, and `advise` says which memory would do for the data.
pub fn open_store(
    (config, notes_use, room_bytes): (StoreConfig, bool, u64),
    shares: &[NodeShare],
    data: Option<&DataConfig>,
    tenant: Option<&Tenant>,
    advise: &dyn Fn(&NeededMemory) -> String,
) -> Result<(Arc<Store>, Option<Data>), StartError> {
    let Some(data) = data else {
        // A node's entries are sent to other nodes with their checksums.
        let tuning = Tuning { notes_use: notes_use && tenant.is_none(), ..Tuning::default() };
        let store = Store::open_with_room(config, tuning, shares, room_bytes)
            .map_err(|error| StartError::Store { reason: error.to_string() })?;
        return Ok((store, None));
    };
    let refused = |reason: String| StartError::Data { path: data.path.clone(), reason };
    private::create_directory(&data.path).map_err(|error| refused(error.to_string()))?;
    private::warn_if_open_to_others(&data.path);
    let lock = lock(&data.path).map_err(refused)?;
    refuse_unfinished(&data.path).map_err(refused)?;
    let mut tenancy = match tenant {
        Some(tenant) => Some(Tenancy::begin(&data.path, tenant).map_err(refused)?),
        None => node_file::read(&data.path)
            .and_then(|kept| kept.map_or(Ok(None), |kept| Err(of_a_node(&kept.owner))))
            .map_err(refused)?,
    };
    if tenancy.is_none() {
        // A node gets its copies from the others.
        refuse_lost(&data.path, &lock).map_err(refused)?;
    }
    let began = Instant::now();
    let mut opened = open_log(data, config.clone(), shares, tenancy.as_ref());
    if let (Err(LogError::Data(error)), Some(tenancy)) = (&opened, &mut tenancy)
        && is_damage(error)
    {
        tracing::error!(
            "{}: {error}; the log is set aside as log.damaged, and this node gets its copies from \
             the others",
            data.path.display()
        );
        tenancy.begin_anew(&data.path.join(LOG_FILE)).map_err(refused)?;
        opened = open_log(data, config, shares, Some(tenancy));
    }
    let opened = opened.map_err(|error| match error {
        LogError::Data(DataError::Room(needed)) => refused(advise(&needed)),
        LogError::Data(error) => refused(explain(&error, &data.path)),
        LogError::File(error) => refused(error),
    })?;
    mark_used(&lock, &data.path);
    let Opened { store, committer, recovery } = opened;
    let recovery_time = began.elapsed();
    let medium_name = committer.medium().name();
    announce(&recovery, recovery_time, medium_name);
    if !store.has_room_for_deletes() {
        tracing::warn!(
            "{}: the store is so full that the first deletes may be refused: give more --memory, \
             or as few --threads as it was written with",
            data.path.display()
        );
    }
    let data = Data {
        medium_name,
        durable: Arc::clone(committer.durable()),
        config: data.clone(),
        recovery,
        recovery_time,
        tenancy: Mutex::new(tenancy),
        committer: Mutex::new(Some(committer)),
        client_bytes: AtomicU64::new(0),
        _lock: lock,
    };
    Ok((store, Some(data)))
}

/// Refuses an interrupted backup, which would look like an empty directory to a server that looks
/// for a log.
fn refuse_unfinished(path: &Path) -> Result<(), String> {
    let is_there = |name| path.join(name).exists();
    if is_there(LOG_NEW_FILE) && !is_there(LOG_FILE) {
        return Err(format!(
            "{LOG_NEW_FILE} is a backup that was interrupted; run the backup again, or remove it \
             to begin empty"
        ));
    }
    Ok(())
}

/// Refuses a directory that was in use and whose log is gone, or cut to nothing: it would be taken
/// for a new one. Where nothing says that it was in use, an empty log is only told.
fn refuse_lost(path: &Path, lock: &File) -> Result<(), String> {
    match lost(path, lock)? {
        None => {}
        Some(Lost::InUse) => {
            return Err(format!(
                "{}; put its log back, give another directory, or empty this one to begin anew",
                Lost::InUse
            ));
        }
        Some(Lost::Empty) => tracing::warn!("{}: {}; it begins anew", path.display(), Lost::Empty),
    }
    Ok(())
}

/// Why a directory has no log.
#[derive(Clone, Copy)]
enum Lost {
    /// It had one.
    InUse,
    /// The file is there, without a superblock.
    Empty,
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Lost::InUse => "its log is missing or empty, and the directory was in use",
            Lost::Empty => "its log is empty: nothing was ever written, or the file was cut",
        })
    }
}

/// Looks for a log that is not there any more.
fn lost(path: &Path, lock: &File) -> Result<Option<Lost>, String> {
    if node_file::has_log(path)? {
        return Ok(None);
    }
    let is_marked = lock.metadata().map_err(|error| format!("{LOCK_FILE}: {error}"))?.len() > 0;
    if is_marked || path.join(checkpoints::FILE).exists() {
        return Ok(Some(Lost::InUse));
    }
    Ok(path.join(LOG_FILE).exists().then_some(Lost::Empty))
}

/// Writes down that the directory has a log; called when its superblock is on the disk.
fn mark_used(lock: &File, path: &Path) {
    if lock.metadata().is_ok_and(|status| status.len() > 0) {
        return;
    }
    // An error is no reason to stop: the log itself is well.
    if let Err(error) = lock.write_all_at(USED, 0).and_then(|()| lock.sync_all()) {
        tracing::warn!("{}: {LOCK_FILE}: {error}", path.display());
    }
}

enum LogError {
    Data(DataError),
    File(String),
}

/// Opens the log. A node continues without a damaged log: it never continues with part of one.
fn open_log(
    data: &DataConfig,
    config: StoreConfig,
    shares: &[NodeShare],
    tenancy: Option<&Tenancy>,
) -> Result<Opened<LogFile>, LogError> {
    let medium = LogFile::open(&data.path.join(LOG_FILE), data.media);
    let medium = medium.map_err(|error| LogError::File(why_not(data.media, &error)))?;
    let new = NewData {
        now_ms: unix_now().0,
        data_id: random_u64(),
        recovers_damaged: data.recovers_damaged && tenancy.is_none(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut told = Instant::now();
    let mut progress = |done: u64, all: u64| {
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            tracing::info!("recovery: {done} of {all} segments");
        }
    };
    let is_gone = |number| tenancy.is_some_and(|tenancy| tenancy.kept.is_gone(number));
    let tuning = (Tuning::default(), shares);
    let checkpoint = data.checkpoint_every.and_then(|_| checkpoints::read(&data.path));
    let beside = Beside { is_gone: &is_gone, checkpoint };
    let opened = store::durable::open_with(medium, config, tuning, new, beside, &mut progress)
        .map_err(LogError::Data)?;
    if let UsedCheckpoint::Ignored(error) = &opened.recovery.checkpoint {
        tracing::warn!("checkpoint: {error}; the index was built from the log instead");
        checkpoints::remove(&data.path);
    }
    Ok(opened)
}

/// Why a log's file cannot be opened.
fn why_not(media: Media, error: &std::io::Error) -> String {
    match (media, error.kind()) {
        (Media::Dax, std::io::ErrorKind::Unsupported) => format!(
            "--media dax: the file system of {LOG_FILE} gives no mapping with MAP_SYNC; give a \
             directory on ext4 or xfs over persistent memory, mounted with -o dax, or --media file"
        ),
        _ => format!("{LOG_FILE}: {error}"),
    }
}

/// Whether neither a repair of the disk nor another version can fix the error.
fn is_damage(error: &DataError) -> bool {
    use DataError::{Damaged, NoSuperblock, Truncated};
    matches!(error, Damaged { .. } | NoSuperblock | Truncated { .. })
}

fn of_a_node(owner: &Owner) -> String {
    format!("it is of {owner}; give --cluster, or another directory")
}

/// The node that a directory belongs to, and the state it wrote; none: it belongs to a server
/// without a cluster.
pub fn check_node(directory: &Path) -> Result<Option<String>, String> {
    let kept = node_file::read(directory)?;
    Ok(kept.map(|kept| {
        let Kept { owner, incarnation, since, .. } = &kept;
        let shards = kept.shard_count();
        format!(
            "{owner}, incarnation {incarnation}, log since {since}, {shards} shards written down"
        )
    }))
}

/// Reads a data directory that no server uses, and changes nothing; the error says why it cannot be
/// read. `progress` gets the number of segments done, and of all.
pub fn check_data(directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, String> {
    let lock = open_regular(&directory.join(LOCK_FILE), OpenOptions::new().read(true))
        .map_err(|error| format!("{LOCK_FILE}: {error}"))?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared)
        .map_err(|_| "a server has it; stop that one first".to_owned())?;
    if let Some(lost) = lost(directory, &lock)? {
        return Err(lost.to_string());
    }
    let medium = FileMedium::open_read_only(&directory.join(LOG_FILE));
    let medium = medium.map_err(|error| format!("{LOG_FILE}: {error}"))?;
    let checkpoint = checkpoints::read(directory);
    check(&medium, unix_now().0, checkpoint, progress).map_err(|error| error.to_string())
}

/// Copies the log of a directory that a server may keep writing to an empty one, and syncs it; the
/// error says why that failed. For the guarantees of the copy see `store::durable::backup`.
pub fn backup_data(
    directory: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Copied, String> {
    if let Some(kept) = node_file::read(directory)? {
        let owner = &kept.owner;
        return Err(format!("it is of {owner}: its copies are the other nodes'"));
    }
    let source = FileMedium::open_read_only(&directory.join(LOG_FILE));
    let source = source.map_err(|error| format!("{LOG_FILE}: {error}"))?;
    let there = |error: std::io::Error| format!("{}: {error}", to.display());
    private::create_directory(to).map_err(there)?;
    let lock = lock(to).map_err(|reason| format!("{}: {reason}", to.display()))?;
    if to.join(LOG_FILE).exists() {
        return Err(format!("{} has a log already; give an empty directory", to.display()));
    }
    // An incomplete copy is removed.
    let unfinished = to.join(LOG_NEW_FILE);
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(there(error)),
        _ => {}
    }
    let mut target = FileMedium::open(&unfinished).map_err(there)?;
    let copied = backup(&source, &mut target, progress).map_err(|error| error.to_string())?;
    std::fs::rename(&unfinished, to.join(LOG_FILE)).map_err(there)?;
    File::open(to).and_then(|folder| folder.sync_all()).map_err(there)?;
    mark_used(&lock, to);
    Ok(copied)
}

/// Keeps other servers out as long as the file is open.
fn lock(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(private::FILE_MODE);
    let file = open_regular(&path.join(LOCK_FILE), &mut options)
        .map_err(|error| format!("{LOCK_FILE}: {error}"))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err("another server has it; stop that one or give another directory".to_owned())
        }
        Err(error) => Err(format!("it cannot be locked: {error}")),
    }
}

fn explain(error: &DataError, path: &Path) -> String {
    match error {
        DataError::Damaged { .. } => format!(
            "{error}; `dovetail check {}` shows all of them, --recover-damaged starts without \
             what is lost",
            path.display()
        ),
        DataError::Truncated { .. } => {
            format!("{error}; --recover-damaged starts with what is left")
        }
        _ => error.to_string(),
    }
}

fn announce(recovery: &Recovery, time: Duration, medium: &str) {
    let entries_per_second = (recovery.entries as f64 / time.as_secs_f64().max(1e-9)) as u64;
    tracing::info!(
        items = recovery.items,
        entries = recovery.entries,
        bytes = recovery.entry_bytes,
        ms = time.as_millis() as u64,
        entries_per_second,
        clean = recovery.was_clean,
        threads = recovery.threads,
        from_checkpoint = recovery.checkpoint.items(),
        medium,
        "recovered",
    );
    if recovery.torn_tails > 0 {
        tracing::info!(
            tails = recovery.torn_tails,
            bytes = recovery.torn_bytes,
            "writes that were never acknowledged were cut off",
        );
    }
    for damage in &recovery.damage {
        tracing::error!("lost: {damage}");
    }
}
