//! A zone: one memory area in which messages of all senders land, one after another.
//!
//! ```text
//!   region   ┌── buffer ──┬── buffer ──┬── buffer ──┬── buffer ──┐
//!            │ 4   5   6  │ 7  8 ░░░░░ │  posted    │ 2   3      │
//!            └────────────┴────────────┴────────────┴────────────┘
//!   numbers   2 3 │ 4 5 6 │ 7 8 │ 9
//!                 │       │     └ next      lands next
//!                 │       └ taken           being read
//!                 └ released                their bytes may be overwritten
//! ```
//!
//! A zone has one of two homes. In a *ring* (uTPS §3.2.1) a buffer is posted again as soon as all
//! messages in it are released. Over a *log* (Rowan-KV §3.2) its owner posts segments one by one,
//! and gets each back once it is spent.
//!
//! # Invariants
//! Z1: completions have consecutive numbers, in the order in which they landed.
//! Z2: `released <= taken <= next <= released + completions_max`.
//! Z3: completions never overlap, and each lies in one buffer.
//! Z4: bytes of a completion that is not released are not overwritten.
//! Z5: a message that ends exactly at its buffer's end is a completion only if the length check
//!     says that it is whole (K20).
//! Z6: posted buffers that were lent to a kernel are written by it alone. B1 to B3
//!     (zone/buffers.rs) say how buffers are filled and reclaimed.
//!
//! # Concurrency
//! A zone belongs to one thread; a [`board`](crate::board()) shares landed messages with others.
//!
//! # Limits
//! If no buffer is posted, or the maximum of completions is outstanding, nothing is received: the
//! messages stay with the sender or with the kernel, and `starved` counts it (back-pressure).

mod buffers;

use std::fmt;
use std::io;

use base::sync::Arc;

use self::buffers::Buffers;
use crate::{Region, Sender};

/// Checks whether a message is whole, by the length in its header. It is called for each message
/// that ends exactly at its buffer's end, where a datagram may have been cut (K20), and for every
/// message of a transport whose kernel may cut elsewhere.
pub type LengthCheck = Box<dyn Fn(&[u8]) -> bool + Send>;

/// One message that has landed. Plain data; its bytes are [`Zone::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub(crate) sender: Sender,
    pub(crate) offset_bytes: usize,
    pub(crate) len_bytes: u32,
    pub(crate) number: u64,
}

impl Completion {
    /// The sender, and where its reply goes.
    pub fn sender(&self) -> Sender {
        self.sender
    }

    /// Its offset in the region.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes as usize
    }

    /// Its place in the order of landing, counted from 0 (Z1).
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The dimensions of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSize {
    /// Bytes of one buffer: at least the longest message, or the minimum of the transport.
    pub buffer_bytes: usize,
    /// Buffers of a ring; over a log, the maximum number that are posted and not yet taken back.
    pub buffer_count: usize,
    /// The maximum number of outstanding completions; a power of two.
    pub completions_max: usize,
}

impl Default for ZoneSize {
    /// A ring of 1 MiB: it stays in the cache of one core.
    fn default() -> ZoneSize {
        ZoneSize { buffer_bytes: 256 << 10, buffer_count: 4, completions_max: 8192 }
    }
}

/// The counts of a zone since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that became completions.
    pub landed: u64,
    /// Their bytes.
    pub landed_bytes: u64,
    /// Messages that were cut, and so were dropped; their senders send them again.
    pub truncated: u64,
    /// Receives that found no room, so that nothing was received.
    pub starved: u64,
    /// Bytes of buffers that no message used: gaps between messages, and ends too short to use.
    pub skipped_bytes: u64,
}

/// Room for the next message: the rest of the buffer that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its offset in the region.
    pub offset_bytes: usize,
    /// Its length.
    pub len_bytes: usize,
}

/// The result for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Landed {
    /// It is a completion.
    Completed,
    /// It was cut at its buffer's end, and was dropped (K20).
    Truncated,
}

/// A buffer of a log that will not be filled any further, and whose messages are all released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Its offset in the region.
    pub offset_bytes: usize,
    /// The filled length.
    pub filled_bytes: usize,
}

/// Why a buffer cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The maximum number of buffers is posted and not taken back.
    #[error("no more than {max} buffers can be posted: take spent ones back first")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// It would not lie inside the region.
    #[error("a buffer at {offset_bytes} does not fit in a region of {region_bytes} bytes")]
    Outside {
        /// The requested offset.
        offset_bytes: usize,
        /// The length of the region.
        region_bytes: usize,
    },
    /// A ring posts its own buffers.
    #[error("the buffers of a ring are posted by the ring")]
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Ring,
    Log,
}

/// Memory in which messages land: see the module's documentation.
pub struct Zone {
    /// Shared with readers, and with a kernel that may read or write it for this zone.
    region: Arc<Region>,
    home: Home,
    buffers: Buffers,
    size: ZoneSize,
    /// By number modulo its length, which is a power of two.
    completions: Box<[Completion]>,
    released: u64,
    taken: u64,
    next: u64,
    is_whole: LengthCheck,
    /// A kernel may write into the posted buffers at any time.
    is_lent: bool,
    counters: Counters,
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone")
            .field("buffers", &self.buffers)
            .field("released", &self.released)
            .field("taken", &self.taken)
            .field("next", &self.next)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Zone {
    /// A ring of requests in memory of its own, all of it posted.
    pub fn ring(size: ZoneSize, is_whole: LengthCheck) -> io::Result<Zone> {
        let region = Region::memory(size.buffer_bytes * size.buffer_count)?;
        let mut zone = Zone::new(region, Home::Ring, size, is_whole);
        for index in 0..size.buffer_count {
            let is_posted = zone.buffers.post(index * size.buffer_bytes);
            assert!(is_posted, "B1: a ring holds as many buffers as it has");
        }
        Ok(zone)
    }

    /// A zone over a log's memory. No buffer is posted yet.
    pub fn log(region: Region, size: ZoneSize, is_whole: LengthCheck) -> Zone {
        Zone::new(region, Home::Log, size, is_whole)
    }

    fn new(region: Region, home: Home, size: ZoneSize, is_whole: LengthCheck) -> Zone {
        assert!(size.completions_max.is_power_of_two(), "completions_max is a power of two");
        assert!(u32::try_from(size.buffer_bytes).is_ok(), "a buffer is shorter than 4 GiB");
        let unused =
            Completion { sender: crate::Lane(0).into(), offset_bytes: 0, len_bytes: 0, number: 0 };
        Zone {
            region: Arc::new(region),
            home,
            buffers: Buffers::new(size.buffer_bytes, size.buffer_count),
            size,
            completions: vec![unused; size.completions_max].into_boxed_slice(),
            released: 0,
            taken: 0,
            next: 0,
            is_whole,
            is_lent: false,
            counters: Counters::default(),
        }
    }

    /// The next message that has not been taken yet.
    #[inline]
    pub fn take(&mut self) -> Option<Completion> {
        if self.taken == self.next {
            return None;
        }
        let completion = self.completions[self.index(self.taken)];
        self.taken += 1;
        Some(completion)
    }

    /// The bytes of a message that is not released yet; empty for one that is, or of another zone.
    #[inline]
    pub fn bytes(&self, completion: &Completion) -> &[u8] {
        let is_live = (self.released..self.next).contains(&completion.number)
            && self.completions[self.index(completion.number)] == *completion;
        if !is_live {
            debug_assert!(false, "Z4: the bytes of a released message are gone");
            return &[];
        }
        // SAFETY: the completion is one of this zone's and is not released, so its bytes are not
        // written (Z4) before `release`, which needs the zone exclusively.
        unsafe { self.region.bytes(completion.offset_bytes, completion.len_bytes()) }
    }

    /// Gives back the messages below a number: they have been taken, and their bytes are no longer
    /// read. Free buffers of a ring are posted again.
    pub fn release(&mut self, below: u64) {
        assert!(below <= self.taken, "Z2: what is released was taken");
        self.released = self.released.max(below);
        while self.home == Home::Ring
            && let Some((offset_bytes, _)) = self.buffers.reclaim(self.released)
        {
            let is_posted = self.buffers.post(offset_bytes);
            debug_assert!(is_posted, "B1: one was reclaimed just now");
        }
    }

    /// Gives back all taken messages.
    pub fn release_taken(&mut self) {
        self.release(self.taken);
    }

    /// Posts a buffer of a log, after those that are already posted.
    pub fn post(&mut self, offset_bytes: usize) -> Result<(), PostError> {
        if self.home == Home::Ring {
            return Err(PostError::Ring);
        }
        let region_bytes = self.region.len_bytes();
        let is_inside = region_bytes
            .checked_sub(self.size.buffer_bytes)
            .is_some_and(|last_bytes| offset_bytes <= last_bytes);
        if !is_inside {
            return Err(PostError::Outside { offset_bytes, region_bytes });
        }
        if !self.buffers.post(offset_bytes) {
            return Err(PostError::TooMany { max: self.size.buffer_count });
        }
        Ok(())
    }

    /// The oldest buffer of a log that is filled and whose messages are released, if there is one;
    /// it belongs to its owner again.
    pub fn take_spent(&mut self) -> Option<Spent> {
        if self.home == Home::Ring {
            return None;
        }
        let (offset_bytes, filled_bytes) = self.buffers.reclaim(self.released)?;
        Some(Spent { offset_bytes, filled_bytes })
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Its dimensions.
    pub fn size(&self) -> ZoneSize {
        self.size
    }

    /// Its memory, to be kept while another thread or a device reads or writes there.
    pub(crate) fn region(&self) -> Arc<Region> {
        self.region.clone()
    }

    /// Whether it is over that region.
    pub fn is_over(&self, region: &Arc<Region>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }

    /// The number below which all messages are released.
    pub(crate) fn released_below(&self) -> u64 {
        self.released
    }

    /// The number of messages that have landed and are not released.
    pub fn outstanding(&self) -> usize {
        (self.next - self.released) as usize
    }

    fn index(&self, number: u64) -> usize {
        number as usize & (self.completions.len() - 1)
    }
}

/// The interface for transports.
impl Zone {
    /// The rest of the buffer being filled; `None` while no buffer is posted.
    pub fn window(&self) -> Option<Window> {
        let (offset_bytes, len_bytes) = self.buffers.room()?;
        Some(Window { offset_bytes, len_bytes })
    }

    /// A window of at least `len_bytes`, at the start of the next buffer if need be, and room for
    /// `completions` of them. `None`, counted as starved: nothing can be received now.
    pub fn window_for(&mut self, len_bytes: usize, completions: usize) -> Option<Window> {
        assert!(!self.is_lent, "Z6: the kernel alone fills a zone that was lent to it");
        assert!(len_bytes <= self.size.buffer_bytes, "a message fits in a buffer");
        if self.completions_free() >= completions {
            if self.window().is_some_and(|window| window.len_bytes < len_bytes) {
                self.close_buffer();
            }
            if let Some(window) = self.window() {
                return Some(window);
            }
        }
        self.counters.starved += 1;
        None
    }

    /// The number of further completions before some must be released.
    pub fn completions_free(&self) -> usize {
        self.completions.len() - self.outstanding()
    }

    /// The window's bytes, to be written by a transport that copies.
    pub fn window_mut(&mut self) -> Option<&mut [u8]> {
        assert!(!self.is_lent, "Z6: the kernel alone fills a zone that was lent to it");
        let window = self.window()?;
        // SAFETY: bytes in front of the fill mark belong to no completion (Z3), and the zone, which
        // alone hands them out, is borrowed exclusively.
        Some(unsafe { self.region.bytes_mut(window.offset_bytes, window.len_bytes) })
    }

    /// The address of the window's first byte, for a kernel to write there during a call.
    pub(crate) fn address(&self, offset_bytes: usize) -> *mut u8 {
        self.region.at(offset_bytes)
    }

    /// Lands a message `skip_bytes` after the start of the window. There is a window of that length
    /// and room for a completion.
    #[inline]
    pub fn land(&mut self, sender: Sender, skip_bytes: usize, len_bytes: usize) -> Landed {
        let window = self.window().expect("a message lands in a posted buffer");
        assert!(skip_bytes + len_bytes <= window.len_bytes, "Z3: a message lies in one buffer");
        let offset_bytes = window.offset_bytes + skip_bytes;
        let ends_at_end = skip_bytes + len_bytes == window.len_bytes;
        self.counters.skipped_bytes += skip_bytes as u64;
        if ends_at_end && !self.check_length(offset_bytes, len_bytes) {
            self.counters.truncated += 1;
            self.buffers.fill(skip_bytes + len_bytes, self.next);
            return Landed::Truncated;
        }
        self.complete(sender, offset_bytes, len_bytes);
        self.buffers.fill(skip_bytes + len_bytes, self.next);
        Landed::Completed
    }

    /// Lands a message at the window's start that may have been cut anywhere: its length is checked
    /// wherever it ends.
    pub fn land_unsure(&mut self, sender: Sender, len_bytes: usize) -> Landed {
        let window = self.window().expect("a message lands in a posted buffer");
        assert!(len_bytes <= window.len_bytes, "Z3: a message lies in one buffer");
        let is_whole = self.check_length(window.offset_bytes, len_bytes);
        if is_whole {
            self.complete(sender, window.offset_bytes, len_bytes);
        } else {
            self.counters.truncated += 1;
        }
        self.buffers.fill(len_bytes, self.next);
        if is_whole { Landed::Completed } else { Landed::Truncated }
    }

    /// Lands a piece of a stream, which has no length of its own to check.
    pub(crate) fn land_piece(&mut self, sender: Sender, len_bytes: usize) {
        let window = self.window().expect("a piece lands in a posted buffer");
        self.complete(sender, window.offset_bytes, len_bytes);
        self.buffers.fill(len_bytes, self.next);
    }

    /// Lends all posted buffers, now and later, to a kernel or a device that fills them on its own
    /// (Z6). The caller keeps the region as long as that may write there.
    pub fn lend(&mut self) -> Arc<Region> {
        assert!(!self.is_lent, "Z6: a zone is lent once");
        self.is_lent = true;
        self.region()
    }

    /// Bytes at the window's start that the kernel has written and handed over.
    pub(crate) fn lent_bytes(&self, offset_bytes: usize, len_bytes: usize) -> &[u8] {
        // SAFETY: they have landed in the window and belong to no completion yet; the kernel does
        // not write them again before their buffer is posted again, which needs the zone
        // exclusively (Z6).
        unsafe { self.region.bytes(offset_bytes, len_bytes) }
    }

    /// The offset of the posted buffer with that sequence number; they are counted from 0 in the
    /// order of posting.
    pub fn posted_at(&self, sequence: u64) -> Option<usize> {
        self.buffers.offset_of(sequence)
    }

    /// The sequence number of the buffer that is being filled.
    pub fn filling(&self) -> u64 {
        self.buffers.filling()
    }

    /// Counts a receive without room.
    pub fn count_starved(&mut self) {
        self.counters.starved += 1;
    }

    /// Lands a message at the start of a slot of a zone that was lent. Slots are parts of posted
    /// buffers that are not closed; a device with one slot for each message may complete them in
    /// any order, and numbers are given in that order (Z1).
    ///
    /// # Safety
    ///
    /// The device has written the message and writes no byte of the slot from now on, until it is
    /// posted again (Z4). The slot holds no other message (Z3).
    pub unsafe fn land_in(&mut self, sender: Sender, slot: Window, len_bytes: usize) {
        assert!(self.is_lent, "Z6: slots are for the only thread that fills a zone");
        assert!(len_bytes <= slot.len_bytes, "Z3: a message lies in one slot");
        let region_bytes = self.region.len_bytes();
        let is_inside =
            slot.len_bytes <= region_bytes && slot.offset_bytes <= region_bytes - slot.len_bytes;
        assert!(is_inside, "Z3: a slot lies in the region");
        self.counters.skipped_bytes += (slot.len_bytes - len_bytes) as u64;
        self.complete(sender, slot.offset_bytes, len_bytes);
    }

    /// Closes the buffer that is being filled, of a zone that was lent: nothing more will land in
    /// it, and its slots took `filled_bytes`.
    ///
    /// # Safety
    ///
    /// The device writes no byte of that buffer from now on, until it is posted again (Z4).
    pub unsafe fn close_filled(&mut self, filled_bytes: usize) {
        assert!(self.is_lent, "Z6: slots are for the only thread that fills a zone");
        let window = self.window().expect("a posted buffer is closed");
        self.counters.skipped_bytes += window.len_bytes.saturating_sub(filled_bytes) as u64;
        if !self.buffers.fill(filled_bytes, self.next) {
            self.buffers.close(self.next);
        }
    }

    fn complete(&mut self, sender: Sender, offset_bytes: usize, len_bytes: usize) {
        assert!(self.completions_free() > 0, "Z2: there is room for a completion");
        let number = self.next;
        let len_of = u32::try_from(len_bytes).expect("buffers are shorter than 4 GiB");
        let index = self.index(number);
        self.completions[index] = Completion { sender, offset_bytes, len_bytes: len_of, number };
        self.next += 1;
        self.counters.landed += 1;
        self.counters.landed_bytes += len_bytes as u64;
    }

    fn check_length(&self, offset_bytes: usize, len_bytes: usize) -> bool {
        // SAFETY: the message has landed in the window, whose bytes no other code knows yet.
        let message = unsafe { self.region.bytes(offset_bytes, len_bytes) };
        (self.is_whole)(message)
    }

    /// Leaves the next `bytes` of the window empty.
    pub fn skip(&mut self, bytes: usize) {
        self.counters.skipped_bytes += bytes as u64;
        self.buffers.fill(bytes, self.next);
    }

    /// Counts a message that the transport knows was cut.
    pub fn count_truncated(&mut self) {
        self.counters.truncated += 1;
    }

    /// Leaves the rest of the buffer being filled empty.
    pub fn close_buffer(&mut self) {
        if let Some(window) = self.window() {
            self.counters.skipped_bytes += window.len_bytes as u64;
            self.buffers.close(self.next);
        }
    }
}

// Loom models atomics, not zones shared with a kernel.
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
