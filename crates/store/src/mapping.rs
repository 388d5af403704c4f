//! Anonymous mappings: the log's and the index's memory, zeroed, touched lazily, on huge pages
//! where the kernel grants them.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Huge pages are 2 MiB; a mapping starts and ends on one.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A private, zeroed mapping that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// What `mmap` returned, for `munmap`.
    whole: NonNull<u8>,
    whole_bytes: usize,
    /// The first huge-page boundary inside.
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the mapping is plain memory, owned by this value until drop; who may read or write which
// byte when is decided by the log and the index, not by the mapping.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out only a raw pointer and lengths.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len_bytes`; nothing is resident yet.
    pub(crate) fn new(len_bytes: usize) -> std::io::Result<Mapping> {
        let len_bytes = len_bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let whole_bytes = len_bytes + HUGE_PAGE_BYTES;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                whole_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let whole = NonNull::new(address.cast::<u8>()).expect("mmap never returns null");
        let skip_bytes = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the skip is below one huge page, and the mapping is that much longer than asked.
        let start = unsafe { whole.add(skip_bytes) };
        // SAFETY: the range lies inside the mapping, and the advice changes no content.
        let advised =
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), len_bytes, Advice::LinuxHugepage) };
        // Refused where the kernel has no huge pages: small ones work too.
        let _ = advised;
        Ok(Mapping { whole, whole_bytes, start, len_bytes })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Makes `len_bytes` from `offset_bytes` resident without changing them, so that a later
    /// first write does not wait for the kernel. Best effort: old kernels refuse.
    pub(crate) fn populate(&self, offset_bytes: usize, len_bytes: usize) -> bool {
        assert!(offset_bytes + len_bytes <= self.len_bytes, "populate stays inside the mapping");
        // SAFETY: the range is inside the mapping (asserted).
        let start = unsafe { self.start.add(offset_bytes) };
        // SAFETY: populating writes no byte; threads may use the range meanwhile.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), len_bytes, Advice::LinuxPopulateWrite) }
            .is_ok()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `whole` came from mmap with this length and is unmapped only here.
        let unmapped = unsafe { rustix::mm::munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping what was mapped cannot fail");
    }
}

/// Whether the kernel may back advised mappings with huge pages.
pub fn huge_pages_available() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| !text.contains("[never]"))
}
