//! Anonymous mappings: the memory of the log and the index, zeroed, touched lazily, on huge pages
//! where the kernel grants them (MICA §5, +40 % GETs on 10 M items). A file's pages may take
//! their place (`shared.rs`).

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

mod node;

pub use node::NODES_MAX;
#[cfg(not(miri))]
mod shared;
#[cfg(miri)]
impl Mapping {
    /// Miri maps no files.
    pub fn of_file(_file: &std::fs::File, _len: usize) -> std::io::Result<Mapping> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Miri has no `mmap`: this module makes the same calls over the allocator.
#[cfg(miri)]
#[path = "mapping/miri.rs"]
mod rustix;

/// Huge pages are 2 MiB; a mapping starts and ends on one.
pub const HUGE_PAGE_BYTES: usize = if cfg!(miri) { 4096 } else { 2 << 20 };

/// The kind of pages that a store requests from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Reserved huge pages if there are enough, else transparent ones, else small pages.
    #[default]
    Auto,
    /// Reserved huge pages only (`vm.nr_hugepages`); opening fails without them.
    Reserved,
    /// Small pages: for comparison, and where sparsely touched memory must not grow.
    Off,
}

/// The kind of pages that a store's memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageKind {
    /// Huge pages reserved for programs that request them (hugetlb).
    Reserved,
    /// Huge pages that the kernel makes as it finds room (THP).
    Transparent,
    /// Small pages: requested, or the kernel has no others.
    Small,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Reserved => "reserved huge pages of 2 MiB",
            PageKind::Transparent => "transparent huge pages of 2 MiB",
            PageKind::Small => "small pages",
        })
    }
}

/// A mapping, private and zeroed or of a file, that exists as long as this value.
#[derive(Debug)]
pub struct Mapping {
    /// The address that `mmap` returned, for `munmap`.
    whole: NonNull<u8>,
    whole_bytes: usize,
    /// The first huge-page boundary inside.
    start: NonNull<u8>,
    len_bytes: usize,
    page_kind: PageKind,
}

// SAFETY: the mapping is plain memory, owned by this value until drop; which thread may read or
// write which byte when is decided by the log and the index, not by the mapping.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out only a raw pointer and lengths.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len_bytes`; nothing is resident yet.
    #[cfg(test)]
    pub fn new(len_bytes: usize, huge_pages: HugePages) -> std::io::Result<Mapping> {
        Mapping::with_room(len_bytes, len_bytes, huge_pages)
    }

    /// Maps at least `len_bytes`, and `room_bytes` unless it uses reserved huge pages, which are
    /// all committed at once. Nothing is resident yet.
    pub fn with_room(
        len_bytes: usize,
        room_bytes: usize,
        huge_pages: HugePages,
    ) -> std::io::Result<Mapping> {
        let whole_pages = |bytes: usize| bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let (len_bytes, room_bytes) = (whole_pages(len_bytes), whole_pages(room_bytes));
        match huge_pages {
            HugePages::Reserved => Mapping::reserved(len_bytes),
            HugePages::Auto => Mapping::reserved(len_bytes)
                .or_else(|_| Mapping::advised(room_bytes, Advice::LinuxHugepage)),
            HugePages::Off => Mapping::advised(room_bytes, Advice::LinuxNoHugepage),
        }
    }

    /// A mapping on reserved huge pages, all of which are committed to it now.
    fn reserved(len_bytes: usize) -> std::io::Result<Mapping> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let start = map(len_bytes, flags)?;
        let page_kind = PageKind::Reserved;
        Ok(Mapping { whole: start, whole_bytes: len_bytes, start, len_bytes, page_kind })
    }

    /// A mapping on pages that the kernel may join, following the advice.
    fn advised(len_bytes: usize, advice: Advice) -> std::io::Result<Mapping> {
        let whole_bytes = len_bytes + HUGE_PAGE_BYTES;
        let whole = map(whole_bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        let skip_bytes = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the skip is below one huge page, and the mapping is that much longer than asked.
        let start = unsafe { whole.add(skip_bytes) };
        // SAFETY: the range lies inside the mapping, and the advice changes no content.
        let advised = unsafe { rustix::mm::madvise(start.as_ptr().cast(), len_bytes, advice) };
        // Refused if the kernel has no huge pages: small ones work too.
        let is_huge = advice == Advice::LinuxHugepage && advised.is_ok() && huge_pages_available();
        let page_kind = if is_huge { PageKind::Transparent } else { PageKind::Small };
        Ok(Mapping { whole, whole_bytes, start, len_bytes, page_kind })
    }

    /// The kind of pages obtained.
    #[inline]
    pub fn page_kind(&self) -> PageKind {
        self.page_kind
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length: what was asked for, in whole pages.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Asks the kernel to take the non-resident pages of `bytes` from a node, while that has some.
    pub fn prefer_node(&self, bytes: Range<usize>, node_id: u32) -> std::io::Result<()> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len_bytes, "inside the mapping");
        node::prefer(self.start.as_ptr().wrapping_add(bytes.start), bytes.len(), node_id)
    }

    /// The node that the page at `offset_bytes` is to come from; `None`: that of the thread that
    /// touches it.
    #[cfg(all(test, not(any(loom, miri))))]
    pub fn preferred_node(&self, offset_bytes: usize) -> std::io::Result<Option<u32>> {
        assert!(offset_bytes < self.len_bytes, "inside the mapping");
        node::preferred(self.start.as_ptr().wrapping_add(offset_bytes))
    }

    /// Makes `len_bytes` from `offset_bytes` resident without changing them, so that a later
    /// first write does not wait for the kernel. Best effort: old kernels refuse.
    pub fn populate(&self, offset_bytes: usize, len_bytes: usize) -> bool {
        assert!(offset_bytes + len_bytes <= self.len_bytes, "populate stays inside the mapping");
        // SAFETY: the range is inside the mapping (asserted).
        let start = unsafe { self.start.add(offset_bytes) };
        // SAFETY: populating writes no byte; threads may use the range meanwhile.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), len_bytes, Advice::LinuxPopulateWrite) }
            .is_ok()
    }
}

impl Mapping {
    /// Returns the pages of `len_bytes` from `offset_bytes` to the kernel: they are zero then. Best
    /// effort: if the kernel refuses they stay resident. Not for the pages of a file.
    ///
    /// # Safety
    /// Nothing refers to those bytes, and no other thread reads or writes them meanwhile.
    pub unsafe fn discard(&self, offset_bytes: usize, len_bytes: usize) {
        assert!(offset_bytes + len_bytes <= self.len_bytes, "it stays inside the mapping");
        // SAFETY: the range is inside the mapping (asserted).
        let start = unsafe { self.start.add(offset_bytes) };
        // SAFETY: nothing refers to the bytes that become zero, as the caller promises.
        let discarded =
            unsafe { rustix::mm::madvise(start.as_ptr().cast(), len_bytes, Advice::LinuxDontNeed) };
        debug_assert!(discarded.is_ok(), "private memory can be discarded");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `whole` came from mmap with this length and is unmapped only here.
        let unmapped = unsafe { rustix::mm::munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping what was mapped cannot fail");
    }
}

/// A fresh anonymous mapping, readable and writable.
fn map(len_bytes: usize, flags: MapFlags) -> std::io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
    let address =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len_bytes, protection, flags) }?;
    Ok(NonNull::new(address.cast::<u8>()).expect("mmap never returns null"))
}

/// Whether the kernel may back advised mappings with huge pages.
pub fn huge_pages_available() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| !text.contains("[never]"))
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_mapping_gives_zeroed_memory_on_a_huge_page_boundary() {
        for huge_pages in [HugePages::Auto, HugePages::Off] {
            let mapping = Mapping::new(3 << 20, huge_pages).expect("anonymous memory");
            assert_eq!(mapping.len_bytes(), 4 << 20);
            assert_eq!(mapping.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
            // SAFETY: inside the mapping, which this test owns.
            let last = unsafe { mapping.as_ptr().add(mapping.len_bytes() - 1) };
            // SAFETY: as above.
            assert_eq!(unsafe { last.read() }, 0);
        }
        let small = Mapping::new(1, HugePages::Off).expect("anonymous memory");
        assert_eq!(small.page_kind(), PageKind::Small);
    }

    #[test]
    fn reserved_pages_that_are_not_there_are_an_error_not_a_crash() {
        // More than any machine reserves: the kernel promises all of it or nothing.
        assert!(Mapping::new(1 << 46, HugePages::Reserved).is_err());
    }
}
