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
pub use file::FileMedium;
pub use log_file::{LogFile, Media};
pub use mapped::MappedMedium;
pub use memory::MemoryMedium;

/// Where a log is kept. Any number of threads may read while none writes.
pub trait Medium: Send + Sync {
    /// Writes all of `bytes`, or fails; then any part of them may have been written.
    ///
    /// # Errors
    /// As the medium says.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// Fills `bytes`. What was never written is zero.
    ///
    /// # Errors
    /// As the medium says.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError>;

    /// I1.
    ///
    /// # Errors
    /// As the medium says; see I3.
    fn sync(&mut self) -> Result<(), MediumError>;

    /// Bytes that it has.
    ///
    /// # Errors
    /// As the medium says.
    fn len_bytes(&self) -> Result<u64, MediumError>;

    /// Has at least so many bytes from now on, with room for all of them if that can be had
    /// beforehand.
    ///
    /// # Errors
    /// As the medium says: a full disk above all.
    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError>;
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MediumError {
    /// There is no space left; there may be later.
    #[error("no space left")]
    Full,
    /// It takes no writes.
    #[error("it is read-only")]
    ReadOnly,
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl MediumError {
    /// Whether the same write may succeed later, with nothing lost meanwhile.
    pub fn is_passing(&self) -> bool {
        *self == MediumError::Full
    }
}
