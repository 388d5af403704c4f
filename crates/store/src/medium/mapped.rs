//! A file whose blocks are mapped: persistent memory behind a file system with DAX.
//!
//! ```text
//!  by cache lines (MAP_SYNC): bytes ─copy─▶ mapping ─clwb each line─▶ sync: one sfence
//!  by the kernel:             bytes ─copy─▶ mapping ─────────────────▶ sync: msync
//! ```
//!
//! With DAX a commit makes no system call. The second way is for tests on machines without such
//! memory: it differs only in the flush, and is as durable as a file.
//!
//! # Invariants
//! M1: written lines are flushed before `write_at` returns, and the fence of `sync` comes before
//!     its `Ok`: by then the written bytes are on the medium, as medium.rs, I1 requires.
//! M2: between two syncs lines reach the medium in any order, eight bytes at a time. No code relies
//!     on more. A row counts bytes that an earlier sync has covered; of two copies of a block it
//!     overwrites the one that does not count (committer.rs, I2); an entry that is only partly
//!     there has a bad checksum, and beyond the bytes that a row counts that is a torn tail.
//! M3: blocks belong to the file before they are written: all are allocated beforehand, and the
//!     first store into a page of a MAP_SYNC mapping waits until the file system's own log records
//!     the block.
//! M4: nothing is stored beyond the file's end, nor into a hole: both would raise SIGBUS.
//!
//! Reads use the file, so that a bad block is an error instead of the end of the process.

use std::io;
use std::path::Path;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::flush::LineFlush;
use super::{FileMedium, Medium, MediumError};

/// The smallest unit that the kernel maps.
const PAGE_BYTES: u64 = 4096;

/// How stored bytes reach the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Line by line, by this thread.
    Lines(LineFlush),
    /// By `msync`.
    Kernel,
}

/// A mapped file; see the module's documentation.
#[derive(Debug)]
pub struct MappedMedium {
    file: FileMedium,
    way: Way,
    /// None: the file is empty.
    mapping: Option<Mapping>,
}

impl MappedMedium {
    /// Opens the file, and creates it if it is missing, on a file system that maps its blocks.
    ///
    /// # Errors
    /// `Unsupported`: the file system does not, or this processor cannot flush lines. Else the
    /// kernel's; a full disk among them, if the file has holes.
    pub fn open(path: &Path) -> io::Result<MappedMedium> {
        let flush = LineFlush::detect().ok_or(io::ErrorKind::Unsupported)?;
        MappedMedium::open_by(path, Way::Lines(flush))
    }

    /// Like `open`, over any file system, with `msync` for durability: for tests, and no faster
    /// than a [`FileMedium`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_emulated(path: &Path) -> io::Result<MappedMedium> {
        MappedMedium::open_by(path, Way::Kernel)
    }

    fn open_by(path: &Path, way: Way) -> io::Result<MappedMedium> {
        let mut file = FileMedium::open(path)?;
        // An empty file is mapped only to see whether it can be: nothing is touched (M4).
        drop(Mapping::new(&file, PAGE_BYTES, way)?);
        let len_bytes = file.file().metadata()?.len();
        if len_bytes > 0 {
            // M4: a copy of the file made by another program may have holes.
            file.reserve(len_bytes).map_err(io::Error::other)?;
        }
        let mut medium = MappedMedium { file, way, mapping: None };
        medium.map(len_bytes)?;
        Ok(medium)
    }

    /// Maps the first `len_bytes`, which the file has.
    fn map(&mut self, len_bytes: u64) -> io::Result<()> {
        if self.mapped_bytes() < len_bytes {
            self.mapping = Some(Mapping::new(&self.file, len_bytes, self.way)?);
        }
        Ok(())
    }

    fn mapped_bytes(&self) -> u64 {
        self.mapping.as_ref().map_or(0, |mapping| mapping.len_bytes as u64)
    }
}

impl Medium for MappedMedium {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or(MediumError::Full)?;
        if self.mapped_bytes() < end {
            self.reserve(end)?;
        }
        let Some(mapping) = &mut self.mapping else { return Err(MediumError::Full) };
        // The mapping is at least that long, so an offset into it is an index.
        mapping.write(offset as usize, bytes, self.way);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.file.read_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<(), MediumError> {
        match (self.way, &self.mapping) {
            (_, None) => Ok(()),
            (Way::Lines(flush), Some(_)) => {
                flush.fence();
                Ok(())
            }
            (Way::Kernel, Some(mapping)) => {
                mapping.sync().map_err(|error| MediumError::Failed(error.to_string()))
            }
        }
    }

    fn len_bytes(&self) -> Result<u64, MediumError> {
        self.file.len_bytes()
    }

    fn reserve(&mut self, len_bytes: u64) -> Result<(), MediumError> {
        self.file.reserve(len_bytes)?;
        self.map(len_bytes).map_err(|error| MediumError::Failed(error.to_string()))
    }
}

/// A shared mapping of a file from its start.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory that only this value gives access to: writes take `&mut`.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives no access to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &FileMedium, len_bytes: u64, way: Way) -> io::Result<Mapping> {
        let len_bytes = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let flags = match way {
            // The flag counts only together with this kind of sharing, which old kernels refuse.
            Way::Lines(_) => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            Way::Kernel => MapFlags::SHARED,
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases no memory of Rust's.
        let mapped = unsafe { rustix::mm::mmap(at, len_bytes, protection, flags, file.file(), 0) };
        let start = mapped.map_err(|error| match error {
            // The errors of a file system without it, of a device without it, and of an old kernel.
            Errno::OPNOTSUPP | Errno::NODEV | Errno::INVAL => io::ErrorKind::Unsupported.into(),
            error => io::Error::from(error),
        })?;
        let start = NonNull::new(start.cast()).expect("mmap never returns null");
        Ok(Mapping { start, len_bytes })
    }

    /// Stores bytes that lie within the mapping.
    fn write(&mut self, offset: usize, bytes: &[u8], way: Way) {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len_bytes), "inside the mapping");
        // SAFETY: the range is inside the mapping (asserted).
        let to = unsafe { self.start.add(offset) };
        // SAFETY: as above, `&mut self` keeps others out, and the bytes are none of the mapping's,
        // which is never lent out. The file has all of the range (M4).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        if let Way::Lines(flush) = way {
            // SAFETY: as above.
            unsafe { flush.flush(to.as_ptr(), bytes.len()) };
        }
    }

    fn sync(&self) -> io::Result<()> {
        // SAFETY: the whole mapping, which changes nothing of its content.
        let synced = unsafe {
            rustix::mm::msync(self.start.as_ptr().cast(), self.len_bytes, MsyncFlags::SYNC)
        };
        Ok(synced?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it came from mmap with this length and is unmapped only here.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping what was mapped cannot fail");
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_in_the_file_and_behind_it_are_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut medium = MappedMedium::open_emulated(&path).unwrap();
        assert_eq!(medium.len_bytes(), Ok(0));
        medium.sync().unwrap();
        medium.reserve(10_000).unwrap();
        medium.write_at(4000, &[7; 200]).unwrap();
        // Beyond what was reserved: the file grows, and what was there stays.
        medium.write_at(70_001, b"end").unwrap();
        medium.write_at(70_004, b"").unwrap();
        medium.sync().unwrap();
        assert_eq!(medium.len_bytes(), Ok(70_004));
        for medium in [
            Box::new(medium) as Box<dyn Medium>,
            Box::new(MappedMedium::open_emulated(&path).unwrap()),
            Box::new(FileMedium::open(&path).unwrap()),
        ] {
            let mut bytes = [1; 202];
            medium.read_at(3999, &mut bytes).unwrap();
            assert_eq!((bytes[0], &bytes[1..201], bytes[201]), (0, &[7; 200][..], 0));
            let mut bytes = [1; 5];
            medium.read_at(70_001, &mut bytes).unwrap();
            assert_eq!(&bytes, b"end\0\0");
        }
    }

    #[test]
    fn a_file_with_holes_has_its_blocks_once_it_is_mapped() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let medium = MappedMedium::open_emulated(&path).unwrap();
        assert_eq!(medium.len_bytes(), Ok(1 << 20));
        assert!(path.metadata().unwrap().blocks() * 512 >= 1 << 20);
    }

    #[test]
    fn memory_that_is_no_dax_is_refused_and_nothing_is_left() {
        // tmpfs, which every machine has.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("log");
        let error = MappedMedium::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(path.metadata().unwrap().len(), 0);
    }
}
