//! A file: `pwrite` and `fdatasync`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::{Medium, MediumError};

/// Opens a file of a data directory with these options, and waits for no other process: a pipe or a
/// device is refused. Options that write have to read as well.
///
/// # Errors
/// The kernel's, and those of what is not a regular file.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Without that flag, opening a pipe waits for a writer.
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("no regular file, but a pipe or a device: remove it"));
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// A preallocated file.
#[derive(Debug)]
pub struct FileMedium {
    file: File,
}

impl FileMedium {
    /// Opens the file for reading and writing, and creates it if it is missing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<FileMedium> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // Only the owner may read clients' data, whatever the umask.
        Ok(FileMedium { file: open_regular(path, options.mode(0o600))? })
    }

    /// Opens an existing file for reading only.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_read_only(path: &Path) -> io::Result<FileMedium> {
        Ok(FileMedium { file: open_regular(path, OpenOptions::new().read(true))? })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

fn failed(error: &io::Error) -> MediumError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MediumError::Full,
        io::ErrorKind::ReadOnlyFilesystem => MediumError::ReadOnly,
        _ => MediumError::Failed(error.to_string()),
    }
}

impl Medium for FileMedium {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.file.write_all_at(bytes, offset).map_err(|error| failed(&error))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        let (mut offset, mut bytes) = (offset, bytes);
        while !bytes.is_empty() {
            match self.file.read_at(bytes, offset) {
                // Beyond the end of the file.
                Ok(0) => {
                    bytes.fill(0);
                    return Ok(());
                }
                Ok(count) => {
                    offset += count as u64;
                    bytes = &mut bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        // Not repeated after an error: the kernel marks pages clean that it could not write, and a
        // second call would report success (I3).
        self.file.sync_data().map_err(|error| failed(&error))
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        Ok(self.file.metadata().map_err(|error| failed(&error))?.len())
    }

    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError> {
        // If the blocks can be allocated in advance, a full disk shows here and not later.
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len_bytes) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) if self.len_bytes()? >= len_bytes => {}
            Err(rustix::io::Errno::OPNOTSUPP) => {
                self.file.set_len(len_bytes).map_err(|error| failed(&error))?;
            }
            Err(error) => return Err(failed(&error.into())),
        }
        self.file.sync_all().map_err(|error| failed(&error))
    }
}
