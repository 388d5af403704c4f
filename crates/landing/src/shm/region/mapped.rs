//! The memfd and its mapping.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use thiserror::Error;

use super::{AtomicU64, Home, NonNull, Region};
use crate::shm::layout::{RingSize, WORD_BYTES};

/// The memory that the server sent is not the region that it announced.
#[derive(Debug, Error)]
pub enum NotARegion {
    /// The size differs.
    #[error("the server handed over {got} bytes, but announced {announced}")]
    Size {
        /// The file's size.
        got: u64,
        /// The size in the welcome.
        announced: u64,
    },
    /// The file can shrink.
    #[error("the server handed over memory that can shrink")]
    NotSealed,
    /// A system call failed.
    #[error("cannot map the shared memory: {0}")]
    System(#[from] io::Error),
}

/// A new region, sealed, and the file to send to the client.
pub fn create(ring: RingSize) -> io::Result<(Region, OwnedFd)> {
    let file = memfd()?;
    rustix::fs::ftruncate(&file, ring.region_bytes() as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok((map(&file, ring.region_bytes())?, file))
}

fn memfd() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(c"dovetail-shm", flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 there is no such flag.
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(c"dovetail-shm", flags)?),
        other => Ok(other?),
    }
}

impl Region {
    /// The client's mapping of the server's memory. Its pages are populated here: a first touch may
    /// be slow, and the client has nothing else to do yet.
    pub fn open(file: &OwnedFd, ring: RingSize) -> Result<Region, NotARegion> {
        let got = u64::try_from(rustix::fs::fstat(file).map_err(io::Error::from)?.st_size)
            .unwrap_or_default();
        let announced = ring.region_bytes() as u64;
        if got != announced {
            return Err(NotARegion::Size { got, announced });
        }
        if !rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(NotARegion::NotSealed);
        }
        let region = map(file, ring.region_bytes())?;
        region.populate();
        Ok(region)
    }

    /// Only for speed: kernels before 5.14 refuse, and pages come one by one.
    fn populate(&self) {
        let len_bytes = self.word_count * WORD_BYTES;
        let start = self.first.as_ptr().cast();
        // SAFETY: the range is this region's own mapping; populating changes no content.
        let _ = unsafe { rustix::mm::madvise(start, len_bytes, Advice::LinuxPopulateWrite) };
    }
}

fn map(file: impl AsFd, len_bytes: usize) -> io::Result<Region> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), len_bytes, protection, MapFlags::SHARED, file, 0)
    }?;
    let first = NonNull::new(start.cast::<AtomicU64>())
        .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    Ok(Region { first, word_count: len_bytes / WORD_BYTES, home: Home::Mapping })
}

/// Gives a mapping back.
///
/// # Safety
/// The words are a whole mapping made by [`map`], and nothing refers to them any more.
pub unsafe fn unmap(first: NonNull<AtomicU64>, word_count: usize) {
    // SAFETY: the caller's promise.
    let unmapped = unsafe { rustix::mm::munmap(first.as_ptr().cast(), word_count * WORD_BYTES) };
    debug_assert!(unmapped.is_ok(), "{unmapped:?}");
}
