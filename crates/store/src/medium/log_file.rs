//! The file of a log, opened by the access method that the settings name.
//!
//! ```text
//!  auto ─▶ does the file system map its blocks? ─yes─▶ dax
//!                                               ─no──▶ file
//! ```
//!
//! The bytes are the same for both: each start may open a log by another method.

use std::io;
use std::path::Path;

use super::{FileMedium, MappedMedium, Medium, MediumError};

/// The access method for a log's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Media {
    /// `Dax` if possible, else `File`.
    #[default]
    Auto,
    /// `pwrite`, `fdatasync`.
    File,
    /// A mapping of persistent memory.
    Dax,
}

/// A log's file.
#[derive(Debug)]
pub enum LogFile {
    /// See [`FileMedium`].
    File(FileMedium),
    /// See [`MappedMedium`].
    Dax(MappedMedium),
}

impl LogFile {
    /// Opens the file for reading and writing, and creates it if it is missing.
    ///
    /// # Errors
    /// The kernel's; `Unsupported` if the file does not support the requested method.
    pub fn open(path: &Path, media: Media) -> io::Result<LogFile> {
        let mapped = match media {
            Media::File => return Ok(LogFile::File(FileMedium::open(path)?)),
            Media::Auto | Media::Dax => MappedMedium::open(path),
        };
        match mapped {
            Err(error) if media == Media::Auto && error.kind() == io::ErrorKind::Unsupported => {
                Ok(LogFile::File(FileMedium::open(path)?))
            }
            mapped => Ok(LogFile::Dax(mapped?)),
        }
    }

    /// The method in use: `file`, `dax`.
    pub fn name(&self) -> &'static str {
        match self {
            LogFile::File(_) => "file",
            LogFile::Dax(_) => "dax",
        }
    }

    fn medium(&self) -> &dyn Medium {
        match self {
            LogFile::File(file) => file,
            LogFile::Dax(mapped) => mapped,
        }
    }

    fn medium_mut(&mut self) -> &mut dyn Medium {
        match self {
            LogFile::File(file) => file,
            LogFile::Dax(mapped) => mapped,
        }
    }
}

impl Medium for LogFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.medium_mut().write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.medium().read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        self.medium_mut().sync()
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        self.medium().len_bytes()
    }

    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError> {
        self.medium_mut().reserve(len_bytes)
    }
}
