//! A stand-in for the system calls of `mapping.rs`, over the allocator: Miri runs no system calls.

pub(super) mod mm {
    use std::alloc::Layout;
    use std::ffi::c_void;
    use std::io::{Error, ErrorKind, Result};

    /// Mappings start at multiples of this.
    const PAGE_BYTES: usize = 4096;

    /// One bit for each requested flag.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Flags(u32);

    impl std::ops::BitOr for Flags {
        type Output = Flags;

        fn bitor(self, other: Flags) -> Flags {
            Flags(self.0 | other.0)
        }
    }

    pub(crate) type ProtFlags = Flags;
    pub(crate) type MapFlags = Flags;

    #[allow(dead_code)]
    impl Flags {
        pub(crate) const READ: Flags = Flags(1);
        pub(crate) const WRITE: Flags = Flags(1);
        pub(crate) const PRIVATE: Flags = Flags(1);
        pub(crate) const NORESERVE: Flags = Flags(1);
        pub(crate) const HUGETLB: Flags = Flags(2);
        pub(crate) const HUGE_2MB: Flags = Flags(2);
    }

    #[allow(dead_code)]
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Advice {
        LinuxHugepage,
        LinuxNoHugepage,
        LinuxPopulateWrite,
        LinuxDontNeed,
    }

    fn layout(len_bytes: usize) -> Result<Layout> {
        Layout::from_size_align(len_bytes, PAGE_BYTES).map_err(|_| ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    /// `len_bytes` is not 0.
    pub(crate) unsafe fn mmap_anonymous(
        _hint: *mut c_void,
        len_bytes: usize,
        _protection: ProtFlags,
        flags: MapFlags,
    ) -> Result<*mut c_void> {
        if flags.0 & Flags::HUGETLB.0 != 0 {
            return Err(Error::from(ErrorKind::OutOfMemory));
        }
        // SAFETY: not of size 0, as the caller promises.
        Ok(unsafe { std::alloc::alloc_zeroed(layout(len_bytes)?) }.cast())
    }

    /// # Safety
    /// The range was mapped.
    pub(crate) unsafe fn madvise(_start: *mut c_void, _len: usize, _advice: Advice) -> Result<()> {
        Ok(())
    }

    /// # Safety
    /// `start` came from `mmap_anonymous` with this length, and no thread uses the mapping any
    /// more.
    pub(crate) unsafe fn munmap(start: *mut c_void, len_bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(start.cast(), layout(len_bytes)?) };
        Ok(())
    }
}
