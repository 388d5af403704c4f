//! Opens a durable store: creates a new one, or recovers an existing one.

use std::sync::Arc;

use index::placement::NodeShare;
use thiserror::Error;

use super::checkpoint::{Checkpoint, CheckpointError};
use super::committer::Committer;
use super::last_commit::Torn;
use super::restore::{self, Damage, Recovery, Rows};
use super::restoring::{Restoring, Way};
use crate::config::{NeededMemory, OpenError, StoreConfig};
use crate::durable_log::Durable;
use crate::durable_log::layout::Segments;
use crate::durable_log::layout::{FORMAT, NoSuper, Row, RowState, Superblock};
use crate::medium::{Medium, MediumError};
use crate::store::{Begin, Store, enough_bytes};
use crate::tuning::Tuning;

/// Parameters for creating a data file, and for opening an existing one.
#[derive(Clone, Copy, Debug)]
pub struct NewData {
    /// The present time, in milliseconds since 1970.
    pub now_ms: u64,
    /// A random number.
    pub data_id: u64,
    /// Whether to continue without damaged data, which is then lost.
    pub recovers_damaged: bool,
    /// The number of threads that read the file; at most the number of the store's places.
    pub threads: usize,
}

/// A store, its committer, and the results of recovery.
pub struct Opened<M> {
    /// The store, ready for sessions.
    pub store: Arc<Store>,
    /// The committer, which the caller must drive.
    pub committer: Committer<M>,
    /// The contents found on the medium; empty if the file was new.
    pub recovery: Recovery,
}

/// The reason why a durable store did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The store itself did not open.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The medium reported an error.
    #[error("{what}: {source}")]
    Medium {
        /// The operation that failed.
        what: &'static str,
        /// The medium's error.
        source: MediumError,
    },
    /// The disk has no room for all segments.
    #[error(
        "cannot have the space for all segments, {}: {source}; a smaller --memory takes less",
        base::ByteSize { bytes: *wanted_bytes }
    )]
    NoSpace {
        /// What the data file takes.
        wanted_bytes: u64,
        /// The medium's answer.
        source: MediumError,
    },
    /// The memory is too small for the data.
    #[error("{0}")]
    Room(NeededMemory),
    /// Another version wrote the file.
    #[error(
        "it has format {found}, and this version reads {FORMAT}: use the version that wrote it"
    )]
    Format {
        /// The format found.
        found: u32,
    },
    /// Both superblocks are damaged.
    #[error("both superblocks are damaged, or it is no data file: nothing was changed")]
    NoSuperblock,
    /// The end of the file is missing.
    #[error("it has {len_bytes} bytes and should have {wanted_bytes}: its end was cut off")]
    Truncated {
        /// The length found.
        len_bytes: u64,
        /// The length by its superblock.
        wanted_bytes: u64,
    },
    /// No round of a backup gave a valid copy.
    #[error(
        "segments are freed faster than they are read: {rounds} rounds were in vain; copy under \
         less load, or with more --memory, so that less is cleaned"
    )]
    Restless {
        /// The number of rounds tried.
        rounds: u32,
    },
    /// Acknowledged data is damaged.
    #[error("{} places are damaged, the first is {}", damage.len(), damage[0])]
    Damaged {
        /// The damage; at least one item.
        damage: Vec<Damage>,
    },
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(MediumError) -> DataError {
    move |source| DataError::Medium { what, source }
}

/// Opens the log on the medium, or creates one there. `progress` is called with the number of
/// segments done and their total.
///
/// An existing data file keeps its hash seed, whatever `config` says (K26), and the size of its
/// segments (K14).
///
/// # Errors
/// Any condition under which a database would lose or misread data; nothing was written then.
pub fn open<M: Medium>(
    medium: M,
    config: StoreConfig,
    tuning: (Tuning, &[NodeShare]),
    new: NewData,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Opened<M>, DataError> {
    open_replicas(medium, config, tuning, new, &|_| false, progress)
}

/// Like [`open`], for a log with entries of shards: all entries of a shard for which `is_gone`
/// returns true are dead. Such a shard's number is not used again in this log.
///
/// # Errors
/// As for `open`.
pub fn open_replicas<M: Medium>(
    medium: M,
    config: StoreConfig,
    tuning: (Tuning, &[NodeShare]),
    new: NewData,
    is_gone: &(dyn Fn(u16) -> bool + Sync),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Opened<M>, DataError> {
    open_with(medium, config, tuning, new, Beside { is_gone, checkpoint: None }, progress)
}

/// Additional inputs beside a log.
pub struct Beside<'b> {
    /// See [`open_replicas`].
    pub is_gone: &'b (dyn Fn(u16) -> bool + Sync),
    /// The index at an earlier time, or the reason why it cannot be read.
    pub checkpoint: Option<Result<Checkpoint, CheckpointError>>,
}

/// Like [`open_replicas`], with a checkpoint if there is one; one that does not fit is not used.
///
/// # Errors
/// As for `open`.
pub fn open_with<M: Medium>(
    medium: M,
    config: StoreConfig,
    (tuning, nodes): (Tuning, &[NodeShare]),
    new: NewData,
    beside: Beside<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Opened<M>, DataError> {
    let superblock = match Superblock::read(&medium) {
        Ok(superblock) => superblock,
        Err(NoSuper::Empty) => begin(&config, new),
        Err(NoSuper::Damaged) => return Err(DataError::NoSuperblock),
        Err(NoSuper::Format(found)) => return Err(DataError::Format { found }),
        Err(NoSuper::Medium(source)) => return Err(failed("cannot read")(source)),
    };
    if !new.recovers_damaged {
        refuse_truncated(&medium, &superblock)?;
    }
    let Rows { rows, damage: row_damage, torn } =
        restore::read_rows(&medium, &superblock).map_err(failed("cannot read"))?;
    refuse(&row_damage, new)?;
    let lost_rows: Vec<u32> = row_damage.iter().map(|damage| damage.segment).collect();
    let config = StoreConfig { hash_seed: superblock.hash_seed, ..config };
    let tuning = Tuning { replaces_in_place: false, ..tuning };
    let segments = Segments { superblock, rows };
    let begin = || Store::open_at(config.clone(), tuning, nodes, Begin::Durable(&segments));
    let found = (&segments, &row_damage[..], torn);
    let Restored { store, durable, mut rows, recovery, unfilled } =
        restore_somehow(&medium, found, begin, new, beside, progress)
            .map_err(|error| name_needed(error, &segments, &config))?;
    let (mut medium, mut superblock) = (medium, segments.superblock);
    superblock.segment_count = superblock.segment_count.max(store.limits().segment_count);
    superblock.sequence_floor = durable.horizon();
    rows.resize(superblock.segment_count as usize, Row::default());
    let wanted_bytes = superblock.file_bytes();
    let has_space = medium.len_bytes().map_err(failed("cannot read"))? >= wanted_bytes;
    if !has_space {
        let no_space = |source| DataError::NoSpace { wanted_bytes, source };
        medium.reserve(wanted_bytes).map_err(no_space)?;
    }
    clear_room(&mut medium, &superblock, &rows, &unfilled).map_err(failed("cannot write"))?;
    write_ends(&mut medium, &mut superblock, (&mut rows, &lost_rows))
        .map_err(failed("cannot write"))?;
    durable.flush_to(superblock.flush_floor);
    let committer = Committer::new(&store, &durable, medium, superblock, rows);
    Ok(Opened { store, committer, recovery })
}

/// Says how much memory would do, if there is too little.
fn name_needed(error: DataError, segments: &Segments, config: &StoreConfig) -> DataError {
    if !matches!(error, DataError::Store(OpenError::NoRoom)) {
        return error;
    }
    let Superblock { segment_bytes, segment_count, .. } = segments.superblock;
    // The file has as many segments as the largest memory that it was opened with.
    let had_bytes = u64::from(segment_count) * segment_bytes;
    let last = segments.used().map(|(segment, row)| u64::from(segment) + u64::from(row.run_len));
    let given_bytes = config.memory_bytes;
    DataError::Room(NeededMemory {
        given_bytes,
        enough_bytes: enough_bytes(config, had_bytes, segment_bytes),
        segments_bytes: last.max().unwrap_or(0) * segment_bytes,
    })
}

/// The result of recovery.
struct Restored {
    store: Arc<Store>,
    durable: Arc<Durable>,
    rows: Vec<Row>,
    recovery: Recovery,
    /// Segments in which sessions go on.
    unfilled: Vec<u32>,
}

/// Recovers quickly if there is room for that, otherwise sparely. The medium stays unchanged.
fn restore_somehow<M: Medium>(
    medium: &M,
    (segments, row_damage, torn): (&Segments, &[Damage], Torn),
    begin: impl Fn() -> Result<Arc<Store>, OpenError>,
    new: NewData,
    Beside { is_gone, checkpoint }: Beside<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Restored, DataError> {
    let mut restore = |way, checkpoint| {
        let store = begin()?;
        let durable = store.inner().durable.clone().expect("a restored store is durable");
        let superblock = segments.superblock;
        let recovery = Recovery::new(&superblock, torn);
        let mut restoring = Restoring {
            way,
            medium,
            superblock,
            rows: segments.rows.clone(),
            durable: Arc::clone(&durable),
            recovery,
            is_gone,
            damage: row_damage.to_vec(),
            damaged: Vec::new(),
            unfilled: Vec::new(),
        };
        restoring.restore_all(&store, new, checkpoint, progress)?;
        let Restoring { rows, recovery, unfilled, .. } = restoring;
        Ok(Restored { store, durable, rows, recovery, unfilled })
    };
    let unused = match &checkpoint {
        Some(Ok(_)) => Some(Err(CheckpointError::NoRoom)),
        Some(Err(error)) => Some(Err(error.clone())),
        None => None,
    };
    match restore(Way::Quickly, checkpoint) {
        Err(DataError::Store(OpenError::NoRoom)) => restore(Way::Sparely, unused),
        restored => restored,
    }
}

/// Refuses a truncated file: segments beyond its end would look free.
pub(super) fn refuse_truncated(
    medium: &impl Medium,
    superblock: &Superblock,
) -> Result<(), DataError> {
    let len_bytes = medium.len_bytes().map_err(failed("cannot read"))?;
    let wanted_bytes = superblock.file_bytes();
    match superblock.segment_count > 0 && len_bytes < wanted_bytes {
        true => Err(DataError::Truncated { len_bytes, wanted_bytes }),
        false => Ok(()),
    }
}

/// Makes the superblock of a new data file; its segments are counted when the memory is mapped.
fn begin(config: &StoreConfig, new: NewData) -> Superblock {
    let log_bytes = config.memory_bytes.saturating_sub(config.index_bytes);
    Superblock {
        generation: 0,
        segment_bytes: crate::log::segment_bytes_for(log_bytes, config.session_max),
        segment_count: 0,
        hash_seed: config.hash_seed,
        created_ms: new.now_ms,
        version_floor: 0,
        flush_floor: 0,
        data_id: new.data_id,
        is_clean: false,
        sequence_floor: 0,
    }
}

pub(super) fn refuse(damage: &[Damage], new: NewData) -> Result<(), DataError> {
    if damage.is_empty() || new.recovers_damaged {
        return Ok(());
    }
    Err(DataError::Damaged { damage: damage.to_vec() })
}

/// Overwrites what a commit that does not count has left behind the entries of a segment: in the
/// place of what the next commit has not written it would look like that commit's.
fn clear_room(
    medium: &mut impl Medium,
    superblock: &Superblock,
    rows: &[Row],
    unfilled: &[u32],
) -> Result<(), MediumError> {
    let mut room = vec![0; superblock.segment_bytes as usize];
    for segment in unfilled {
        let (end_bytes, offset) =
            (rows[*segment as usize].end_bytes, superblock.segment_offset(*segment));
        let room = &mut room[end_bytes as usize..];
        medium.read_at(offset + end_bytes, room)?;
        if let Some(last) = room.iter().rposition(|byte| *byte != 0) {
            room.fill(0);
            medium.write_at(offset + end_bytes, &room[..=last])?;
        }
    }
    Ok(())
}

/// Writes the ends of open segments down (I2 of restore.rs), before more is appended to them.
fn write_ends(
    medium: &mut impl Medium,
    superblock: &mut Superblock,
    (rows, lost_rows): (&mut [Row], &[u32]),
) -> Result<(), MediumError> {
    for segment in lost_rows {
        // The rows were lost, and the damage was reported: from now on these segments are free.
        superblock.write_row(medium, *segment, &mut rows[*segment as usize])?;
    }
    for (segment, row) in rows.iter_mut().enumerate() {
        if row.state == RowState::Open {
            row.state = RowState::Closed;
            superblock.write_row(medium, segment as u32, row)?;
        }
    }
    superblock.is_clean = false;
    superblock.write(medium)?;
    medium.sync()
}

pub(super) fn no_room() -> DataError {
    DataError::Store(OpenError::NoRoom)
}
