//! A file's pages as the log's memory: they outlive the process (warm.rs).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{HUGE_PAGE_BYTES, Mapping, PageKind};

impl Mapping {
    /// Maps the first `len_bytes` of `file`, which has them, at a huge page's boundary. Huge pages
    /// are requested; a tmpfs provides them only if it is mounted or set up to do so.
    pub fn of_file(file: &File, len_bytes: usize) -> io::Result<Mapping> {
        let len_bytes = len_bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let whole_bytes = len_bytes + HUGE_PAGE_BYTES;
        let (none, reserve) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        let hint = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe { rustix::mm::mmap_anonymous(hint, whole_bytes, none, reserve) }?;
        let whole = NonNull::new(address.cast::<u8>()).expect("mmap never returns null");
        let skip_bytes = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the skip is below one huge page, and the mapping is that much longer than asked.
        let start = unsafe { whole.add(skip_bytes) };
        // From here on dropping it unmaps everything.
        let page_kind = PageKind::Small;
        let mapping = Mapping { whole, whole_bytes, start, len_bytes, page_kind };
        let (both, fixed) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        let at = start.as_ptr().cast();
        // SAFETY: replaces part of the mapping that was just made, and that no other code has seen
        // yet.
        unsafe { rustix::mm::mmap(at, len_bytes, both, fixed, file.as_fd(), 0) }?;
        // SAFETY: inside the mapping; the advice changes no content. It may be refused.
        let _ = unsafe { rustix::mm::madvise(at, len_bytes, Advice::LinuxHugepage) };
        Ok(mapping)
    }
}
