//! The kernel's ring of buffers: the zone posts them, the kernel fills them.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::{Region, Zone};

/// The only group of buffers.
pub(crate) const GROUP: u16 = 0;

/// IOU_PBUF_RING_INC: a buffer is used up piece by piece (Linux 6.12).
const INCREMENTAL: u16 = 2;

/// A ring of entries `(address, length, id)`, shared with the kernel.
pub(crate) struct BufferRing {
    entries: Region,
    entry_count: u64,
    /// Buffers of the zone below this sequence number have been given to the kernel.
    given: u64,
}

impl BufferRing {
    /// Registers a ring that has room for all buffers of the zone.
    pub(crate) fn register(ring: &IoUring, zone: &Zone) -> io::Result<BufferRing> {
        let entry_count = zone.size().buffer_count.next_power_of_two();
        let count = u16::try_from(entry_count)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 32768 buffers"))?;
        let entries = Region::memory(entry_count * size_of::<BufRingEntry>())?;
        let address = entries.at(0) as u64;
        // SAFETY: the entries are mapped, zeroed and page-aligned, and live as long as this value,
        // which its owner keeps until the kernel has let go of the ring.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, count, GROUP, INCREMENTAL)
        }?;
        let given = zone.filling();
        Ok(BufferRing { entries, entry_count: entry_count as u64, given })
    }

    /// Gives the kernel the buffers that were posted since.
    pub(crate) fn give(&mut self, zone: &Zone) {
        let before = self.given;
        while let Some(offset_bytes) = zone.posted_at(self.given) {
            let index = self.given % self.entry_count;
            let at = self.entries.at(index as usize * size_of::<BufRingEntry>());
            // SAFETY: the entry is inside the mapping and aligned; entries from the tail on are
            // ours to write, and B1 keeps the ring from holding more buffers than it has entries.
            let entry = unsafe { &mut *at.cast::<BufRingEntry>() };
            entry.set_addr(zone.address(offset_bytes) as u64);
            entry.set_len(zone.size().buffer_bytes as u32);
            entry.set_bid(index as u16);
            self.given += 1;
        }
        if self.given != before {
            // Release: the entries come before the tail that shows them to the kernel.
            self.tail().store(self.given as u16, Ordering::Release);
        }
    }

    /// The id of a buffer in the kernel's completions.
    pub(crate) fn id(&self, sequence: u64) -> u16 {
        (sequence % self.entry_count) as u16
    }

    fn tail(&self) -> &AtomicU16 {
        // SAFETY: the first entry is inside the mapping; only an address is computed.
        let tail = unsafe { BufRingEntry::tail(self.entries.at(0).cast()) };
        // SAFETY: the tail is two aligned bytes of the mapping, which lives as long as `self`, and
        // is accessed atomically only.
        unsafe { AtomicU16::from_ptr(tail.cast_mut()) }
    }
}
