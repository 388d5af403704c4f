//! The memory of a zone: mapped for it, or borrowed from a log.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// A range of initialised memory that a zone fills. The region has its address and frees it; the
/// zone decides which thread or device may read or write which byte when.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len_bytes: usize,
    /// Whether `drop` unmaps it.
    is_owned: bool,
}

// SAFETY: a region is plain memory at a fixed address; every access goes through the zone that owns
// the region, which decides which thread or device may touch which bytes.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out an address and a length, and bytes only by an unsafe call.
unsafe impl Sync for Region {}

impl Region {
    /// Fresh zeroed memory of at least `len_bytes`, resident, so that no receive waits for a page.
    pub fn memory(len_bytes: usize) -> io::Result<Region> {
        let len_bytes = len_bytes.max(1).next_multiple_of(rustix::param::page_size());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len_bytes, protection, flags)
        }?;
        Ok(Region::owned(start.cast(), len_bytes))
    }

    /// The first `len_bytes` of a file, shared with it, resident: landed messages are in the file.
    pub fn file(file: &File, len_bytes: usize) -> io::Result<Region> {
        if len_bytes == 0 || file.metadata()?.len() < len_bytes as u64 {
            let message = format!("the file is shorter than the {len_bytes} bytes to map");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (null, flags) = (std::ptr::null_mut(), MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases no Rust memory.
        let start =
            unsafe { rustix::mm::mmap(null, len_bytes, protection, flags, file.as_fd(), 0) }?;
        Ok(Region::owned(start.cast(), len_bytes))
    }

    /// Memory with another owner, such as the segments of a log.
    ///
    /// # Safety
    ///
    /// `start` is valid and initialised for `len_bytes` as long as the region lives. No other
    /// thread or device writes the buffers that are posted to the zone over it, or reads them
    /// before they landed, until the zone says that they are spent.
    pub unsafe fn borrowed(start: NonNull<u8>, len_bytes: usize) -> Region {
        Region { start, len_bytes, is_owned: false }
    }

    fn owned(start: *mut u8, len_bytes: usize) -> Region {
        let start = NonNull::new(start).expect("mmap never returns null");
        Region { start, len_bytes, is_owned: true }
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Its start, for a transport that registers it with a device. Every access is unsafe: the zone
    /// over it decides which thread or device may touch which bytes.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of a byte.
    pub(crate) fn at(&self, offset_bytes: usize) -> *mut u8 {
        assert!(offset_bytes <= self.len_bytes, "offsets stay inside the region");
        // SAFETY: the offset is inside the region or just behind it (asserted).
        unsafe { self.start.add(offset_bytes) }.as_ptr()
    }

    /// Some of its bytes.
    ///
    /// # Safety
    /// No thread or device writes these bytes as long as the slice lives.
    pub(crate) unsafe fn bytes(&self, offset_bytes: usize, len_bytes: usize) -> &[u8] {
        assert!(len_bytes <= self.len_bytes, "lengths stay inside the region");
        assert!(offset_bytes <= self.len_bytes - len_bytes, "ranges stay inside the region");
        // SAFETY: the range is inside the region (asserted), whose memory is initialised and lives
        // as long as it; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.at(offset_bytes), len_bytes) }
    }

    /// Some of its bytes, to be written.
    ///
    /// # Safety
    /// No other thread or device reads or writes these bytes as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "regions are shared; the caller has the bytes alone")]
    pub(crate) unsafe fn bytes_mut(&self, offset_bytes: usize, len_bytes: usize) -> &mut [u8] {
        assert!(len_bytes <= self.len_bytes, "lengths stay inside the region");
        assert!(offset_bytes <= self.len_bytes - len_bytes, "ranges stay inside the region");
        // SAFETY: as in `bytes`; the caller keeps all other threads and devices away.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset_bytes), len_bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_owned {
            // SAFETY: an owned region came from mmap with this length and is unmapped only here.
            let unmapped =
                unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len_bytes) };
            debug_assert!(unmapped.is_ok(), "unmapping what was mapped cannot fail");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_writable() {
        let region = Region::memory(10_000).unwrap();
        assert!(region.len_bytes() >= 10_000);
        // SAFETY: no other thread knows the region.
        let bytes = unsafe { region.bytes_mut(9_000, 1_000) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        // SAFETY: as above.
        assert_eq!(unsafe { region.bytes(9_999, 1) }, [7]);
    }

    #[test]
    #[should_panic(expected = "stay inside")]
    fn a_range_outside_is_refused() {
        let region = Region::memory(4096).unwrap();
        // SAFETY: no other thread knows the region.
        unsafe { region.bytes(region.len_bytes() - 1, 2) };
    }
}
