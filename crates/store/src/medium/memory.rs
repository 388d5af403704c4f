//! A medium in memory that never fails: for tests, and for a log that is not kept.

use super::{Medium, MediumError};

/// A disk in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryMedium {
    bytes: Vec<u8>,
}

impl MemoryMedium {
    /// A disk with these contents.
    pub fn new(bytes: Vec<u8>) -> MemoryMedium {
        MemoryMedium { bytes }
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The contents, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// An offset as an index into memory.
pub(super) fn index_of(offset: u64) -> Result<usize, MediumError> {
    usize::try_from(offset).map_err(|_| MediumError::Full)
}

impl Medium for MemoryMedium {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let start = index_of(offset)?;
        let end = start + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        let start = index_of(offset)?.min(self.bytes.len());
        let found = &self.bytes[start..self.bytes.len().min(start + bytes.len())];
        bytes[..found.len()].copy_from_slice(found);
        bytes[found.len()..].fill(0);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        Ok(())
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        Ok(self.bytes.len() as u64)
    }

    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError> {
        let len = index_of(len_bytes)?;
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        Ok(())
    }
}
