//! The medium of a durable log: bytes at offsets, and a `sync` after which they survive a crash.
//!
//! ```text
//!  committer ──write_at──▶ | medium | ──sync──▶ what was written before is there after a crash
//!  recovery  ◀──read_at─── |        |
//! ```
//!
//! # Invariants
//! I1: after a `sync` that returned `Ok`, everything written before it is read back after a crash.
//! I2: a write that was not synced may be present, absent or partial after a crash.
//! I3: after a failed `sync` the fate of all writes since the last successful one is unknown, and a
//!     later `sync` that returns `Ok` does not cover them: kernels forget (decision 0050).

mod faulty;
mod file;
mod flush;
mod log_file;
mod mapped;
mod memory;

use thiserror::Error;

pub use faulty::{Faults, FaultyMedium};
pub use file::{FileMedium, open_regular};
pub use log_file::{LogFile, Media};
pub use mapped::MappedMedium;
pub use memory::MemoryMedium;

/// The storage of a log. Any number of threads may read while none writes.
pub trait Medium: Send + Sync {
    /// Writes all of `bytes`. On an error any part of them may have been written.
    ///
    /// # Errors
    /// As the medium reports.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// Fills `bytes`. Bytes never written read as zero.
    ///
    /// # Errors
    /// As the medium reports.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError>;

    /// Makes all earlier writes durable (I1).
    ///
    /// # Errors
    /// As the medium reports; see I3.
    fn sync(&mut self) -> Result<(), MediumError>;

    /// The medium's length.
    ///
    /// # Errors
    /// As the medium reports.
    fn len_bytes(&self) -> Result<u64, MediumError>;

    /// Extends the medium to at least `len_bytes`, with space allocated for all of them if
    /// possible.
    ///
    /// # Errors
    /// As the medium reports: mostly a full disk.
    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError>;
}

/// The error of a medium.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MediumError {
    /// No space is left; there may be some later.
    #[error("no space left")]
    Full,
    /// It accepts no writes.
    #[error("it is read-only")]
    ReadOnly,
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

impl MediumError {
    /// Whether the same write may succeed later, with nothing lost meanwhile.
    pub fn is_passing(&self) -> bool {
        *self == MediumError::Full
    }
}
