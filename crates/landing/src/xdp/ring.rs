//! One of the four rings shared with the kernel.
//!
//! ```text
//!            consumer            producer
//!               │                   │
//!   ...  taken  │  published        │  free           entry i lies at i modulo the length
//! ```
//!
//! R1: one side alone stores `producer`, the other alone `consumer`; both only grow, and
//!     `producer - consumer` is at most the length.
//! R2: a store of `producer` (release) publishes the entries before it, a store of `consumer`
//!     (release) gives them back; the kernel pairs both with its own loads (acquire), and the loads
//!     here (acquire) pair with its stores.
//!
//! The kernel is trusted to follow the same rules; the contents of an entry are checked where they
//! are used.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use base::sync::{AtomicU32, Ordering};
use rustix::mm::{MapFlags, ProtFlags};

/// A mapping that is unmapped on drop.
struct Mapping {
    start: NonNull<u8>,
    len_bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is the ring's alone, which is going.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A ring of entries `T`, seen from our side, which produces or consumes.
pub(super) struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    len: u32,
    /// Our index: after the last entry that we put or took, published or not.
    own: u32,
    /// The kernel's index, when it was last loaded.
    other: u32,
    entries: std::marker::PhantomData<T>,
}

// SAFETY: the mapping is reached through this ring alone on our side.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `len` entries, a power of two, that the socket has been told to make.
    pub(super) fn map(
        socket: impl AsFd,
        page_offset: u64,
        offsets: libc::xdp_ring_offset,
        len: u32,
    ) -> io::Result<Ring<T>> {
        assert!(len.is_power_of_two(), "a ring's length is a power of two");
        let len_bytes = offsets.desc as usize + len as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let null = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases no Rust memory.
        let start =
            unsafe { rustix::mm::mmap(null, len_bytes, protection, flags, socket, page_offset) }?;
        let start = NonNull::new(start.cast()).expect("mmap never returns null");
        let mapping = Mapping { start, len_bytes };
        let entries = std::marker::PhantomData;
        Ok(Ring { mapping, offsets, len, own: 0, other: 0, entries })
    }

    fn word(&self, offset_bytes: u64) -> &AtomicU32 {
        let offset_bytes = offset_bytes as usize;
        assert!(offset_bytes + 4 <= self.mapping.len_bytes, "words lie inside the mapping");
        // SAFETY: inside the mapping (asserted).
        let word = unsafe { self.mapping.start.add(offset_bytes) }.cast::<u32>();
        // SAFETY: the kernel aligns the words, both sides access them atomically, and the mapping
        // lives as long as the ring.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let index = (index & (self.len - 1)) as usize;
        let offset_bytes = self.offsets.desc as usize + index * size_of::<T>();
        // SAFETY: the mapping holds `len` entries behind `desc`, and the index is masked.
        unsafe { self.mapping.start.add(offset_bytes) }.cast().as_ptr()
    }

    /// Whether the kernel sleeps until a call about this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// For rings on which we produce: fill and send.
impl<T: Copy> Ring<T> {
    /// Entries that the kernel has not taken, published or not.
    pub(super) fn pending(&mut self) -> u32 {
        self.other = self.word(self.offsets.consumer).load(Ordering::Acquire); // R2
        self.waiting()
    }

    /// That number, as last seen.
    pub(super) fn waiting(&self) -> u32 {
        self.own.wrapping_sub(self.other)
    }

    /// Whether an entry can be put.
    pub(super) fn has_room(&mut self) -> bool {
        self.waiting() < self.len || self.pending() < self.len
    }

    /// Puts an entry, not yet published; `false` if there is no room.
    pub(super) fn put(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the place is free (R1): the kernel has given it back and does not look at it
        // before it is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Publishes the new entries to the kernel.
    pub(super) fn publish(&mut self) {
        self.word(self.offsets.producer).store(self.own, Ordering::Release); // R2
    }
}

/// For rings on which we consume: receive and completion.
impl<T: Copy> Ring<T> {
    /// The next entry, if there is one; it stays the next until `take`.
    pub(super) fn peek(&mut self) -> Option<T> {
        if self.own == self.other {
            self.other = self.word(self.offsets.producer).load(Ordering::Acquire); // R2
            if self.own == self.other {
                return None;
            }
        }
        // SAFETY: the entry is published (R1), and the kernel leaves it alone until it is given
        // back; all of its bit patterns are valid.
        Some(unsafe { self.entry(self.own).read() })
    }

    /// Advances to the next entry.
    pub(super) fn take(&mut self) {
        debug_assert!(self.own != self.other, "an entry is looked at before it is taken");
        self.own = self.own.wrapping_add(1);
    }

    /// Gives taken entries back to the kernel.
    pub(super) fn give_back(&mut self) {
        self.word(self.offsets.consumer).store(self.own, Ordering::Release); // R2
    }
}
