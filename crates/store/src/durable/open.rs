//! Opens a durable store: creates a new one, or recovers an existing one.

use std::sync::Arc;

use thiserror::Error;

use super::Durable;
use super::checkpoint::{Checkpoint, CheckpointError};
use super::committer::Committer;
use super::layout::{FORMAT, NoSuper, Row, RowState, Superblock};
use super::restore::{self, Damage, Recovery, Segments};
use super::restoring::{Restoring, Way};
use crate::config::{OpenError, StoreConfig};
use crate::medium::{Medium, MediumError};
use crate::placement::NodeShare;
use crate::store::{Begin, Store};
use crate::tuning::Tuning;

/// What a new data file is made with, and how an old one is taken.
#[derive(Clone, Copy, Debug)]
pub struct NewData {
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// Random.
    pub data_id: u64,
    /// Whether to go on without what is damaged, and lose it.
    pub recovers_damaged: bool,
    /// Threads that read what is there; no more than the store has places for.
    pub threads: usize,
}

/// A store, its committer, and what was found.
pub struct Opened<M> {
    /// Ready for sessions.
    pub store: Arc<Store>,
    /// To be driven.
    pub committer: Committer<M>,
    /// What was on the medium; nothing, if it was new.
    pub recovery: Recovery,
}

/// Why a durable store did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The store itself.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The medium.
    #[error("{what}: {source}")]
    Medium {
        /// What was tried.
        what: &'static str,
        /// Its answer.
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
    /// Another version wrote it.
    #[error(
        "it has format {found}, and this version reads {FORMAT}: use the version that wrote it"
    )]
    Format {
        /// As found.
        found: u32,
    },
    /// Both superblocks are damaged.
    #[error("both superblocks are damaged, or it is no data file: nothing was changed")]
    NoSuperblock,
    /// The end is missing.
    #[error("it has {len_bytes} bytes and should have {wanted_bytes}: its end was cut off")]
    Truncated {
        /// As found.
        len_bytes: u64,
        /// By its superblock.
        wanted_bytes: u64,
    },
    /// A copy was never whole.
    #[error(
        "segments are freed faster than they are read: {rounds} rounds were in vain; copy under \
         less load, or with more --memory, so that less is cleaned"
    )]
    Restless {
        /// As many as were tried.
        rounds: u32,
    },
    /// What was acknowledged is damaged.
    #[error("{} places are damaged, the first is {}", damage.len(), damage[0])]
    Damaged {
        /// At least one.
        damage: Vec<Damage>,
    },
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(MediumError) -> DataError {
    move |source| DataError::Medium { what, source }
}

/// Opens what is on the medium, or begins there. `progress` is told of segments done, and how many
/// there are.
///
/// The hash seed of a data file that is there holds, whatever `config` says (K26), and so does the
/// size of its segments (K14).
///
/// # Errors
/// Anything that would make a database lose or misread data; nothing was written then.
pub fn open<M: Medium>(
    medium: M,
    config: StoreConfig,
    tuning: (Tuning, &[NodeShare]),
    new: NewData,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Opened<M>, DataError> {
    open_replicas(medium, config, tuning, new, &|_| false, progress)
}

/// [`open`] of a log that has entries of shards: those for which `is_gone` holds are dead, whatever
/// was written of them. Such a shard's number is not used again in this log.
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

/// What lies beside a log.
pub struct Beside<'b> {
    /// See [`open_replicas`].
    pub is_gone: &'b (dyn Fn(u16) -> bool + Sync),
    /// The index at an earlier time, or why that cannot be read.
    pub checkpoint: Option<Result<Checkpoint, CheckpointError>>,
}

/// [`open_replicas`], with a checkpoint if there is one; one that does not fit is not used.
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
    refuse_truncated(&medium, &superblock)?;
    let (rows, row_damage) =
        restore::read_rows(&medium, &superblock).map_err(failed("cannot read"))?;
    refuse(&row_damage, new)?;
    let lost_rows: Vec<u32> = row_damage.iter().map(|damage| damage.segment).collect();
    let config = StoreConfig { hash_seed: superblock.hash_seed, ..config };
    let tuning = Tuning { replaces_in_place: false, ..tuning };
    let segments = Segments { superblock, rows };
    let begin = || Store::open_at(config.clone(), tuning, nodes, Begin::Durable(&segments));
    let found = (&segments, &row_damage[..]);
    let Restored { store, durable, mut rows, recovery } =
        restore_somehow(&medium, found, begin, new, beside, progress)?;
    let (mut medium, mut superblock) = (medium, segments.superblock);
    superblock.segment_count = superblock.segment_count.max(store.limits().segment_count);
    rows.resize(superblock.segment_count as usize, Row::default());
    let wanted_bytes = superblock.file_bytes();
    let has_space = medium.len_bytes().map_err(failed("cannot read"))? >= wanted_bytes;
    if !has_space {
        let no_space = |source| DataError::NoSpace { wanted_bytes, source };
        medium.reserve(wanted_bytes).map_err(no_space)?;
    }
    write_ends(&mut medium, &mut superblock, (&mut rows, &lost_rows))
        .map_err(failed("cannot write"))?;
    durable.flush_to(superblock.flush_floor);
    let committer = Committer::new(&store, &durable, medium, superblock, rows);
    Ok(Opened { store, committer, recovery })
}

/// What recovery comes to.
struct Restored {
    store: Arc<Store>,
    durable: Arc<Durable>,
    rows: Vec<Row>,
    recovery: Recovery,
}

/// Quickly if there is room for that, else sparely. The medium stays as it is.
fn restore_somehow<M: Medium>(
    medium: &M,
    (segments, row_damage): (&Segments, &[Damage]),
    begin: impl Fn() -> Result<Arc<Store>, OpenError>,
    new: NewData,
    Beside { is_gone, checkpoint }: Beside<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Restored, DataError> {
    let mut restore = |way, checkpoint| {
        let store = begin()?;
        let durable = store.inner().durable.clone().expect("a restored store is durable");
        let superblock = segments.superblock;
        let recovery = Recovery { was_clean: superblock.is_clean, ..Recovery::default() };
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
        };
        restoring.restore_all(&store, new, checkpoint, progress)?;
        let Restoring { rows, recovery, .. } = restoring;
        Ok(Restored { store, durable, rows, recovery })
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

/// Segments behind the end of the file would look as if they were free.
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

/// The superblock of a new data file; its segments are counted when the memory is mapped.
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
    }
}

pub(super) fn refuse(damage: &[Damage], new: NewData) -> Result<(), DataError> {
    if damage.is_empty() || new.recovers_damaged {
        return Ok(());
    }
    Err(DataError::Damaged { damage: damage.to_vec() })
}

/// I2 of restore.rs: nothing is appended to what was open, and where it ends is written down.
fn write_ends(
    medium: &mut impl Medium,
    superblock: &mut Superblock,
    (rows, lost_rows): (&mut [Row], &[u32]),
) -> Result<(), MediumError> {
    for segment in lost_rows {
        // What they said is lost, and was told: from now on these segments are free.
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
