//! One session's open segment: reserving space, filling it, taking it back.
//!
//! ```text
//!  open segment:  | published entries | reservation | free ............ |
//!                                     ^ next_bytes                      ^ end
//! ```
//!
//! # Invariants
//! I1: at most one reservation is outstanding, and it is the last thing in the open segment, so
//!     cancelling it moves `next_bytes` back.

use crate::entry::{HEADER_BYTES, Header};

use super::{Log, Purpose};
use crate::prefetch::{self, LINE_BYTES};

/// How far ahead of the append position lines are asked for.
const AHEAD_BYTES: usize = 512;
/// Beyond this many lines the processor's own prefetcher has understood.
const AHEAD_LINES_MAX: usize = 8;

/// An open segment.
#[derive(Clone, Copy, Debug)]
struct Open {
    segment: u32,
    next_bytes: u64,
    end_bytes: u64,
}

/// Where one session appends.
#[derive(Debug, Default)]
pub(crate) struct Appender {
    open: Option<Open>,
}

/// Space in the log for one entry that is not published yet; this session's alone.
#[derive(Debug)]
#[must_use = "publish it or cancel it"]
pub(crate) struct Reservation {
    pub offset_bytes: u64,
    pub len_bytes: usize,
    /// The run that the entry has for itself (K14).
    run: Option<u32>,
}

impl Appender {
    /// Reserves `len_bytes`; `None` when the log has no segment for it.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        log: &Log,
        len_bytes: usize,
        purpose: Purpose,
    ) -> Option<Reservation> {
        if let Some(open) = &mut self.open
            && open.end_bytes - open.next_bytes >= len_bytes as u64
            && log.run_len(len_bytes as u64) == 0
        {
            let offset_bytes = open.next_bytes;
            open.next_bytes += len_bytes as u64;
            prefetch_ahead(log, offset_bytes, len_bytes);
            return Some(Reservation { offset_bytes, len_bytes, run: None });
        }
        self.reserve_in_new_segment(log, len_bytes, purpose)
    }

    #[cold]
    fn reserve_in_new_segment(
        &mut self,
        log: &Log,
        len_bytes: usize,
        purpose: Purpose,
    ) -> Option<Reservation> {
        let run_len = log.run_len(len_bytes as u64);
        let segment = log.take(run_len, purpose)?;
        let offset_bytes = log.segment_start(segment);
        if run_len > 0 {
            return Some(Reservation { offset_bytes, len_bytes, run: Some(segment) });
        }
        self.close(log);
        self.open = Some(Open {
            segment,
            next_bytes: offset_bytes + len_bytes as u64,
            end_bytes: offset_bytes + log.segment_bytes(),
        });
        Some(Reservation { offset_bytes, len_bytes, run: None })
    }

    /// Bytes that the open segment still takes.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.open.map_or(0, |open| open.end_bytes - open.next_bytes)
    }

    /// Copies key and value behind the header's place.
    #[inline]
    pub(crate) fn fill(log: &Log, reservation: &Reservation, key: &[u8], value: &[u8]) {
        assert!(HEADER_BYTES + key.len() + value.len() <= reservation.len_bytes);
        // SAFETY: the reservation is this session's alone until it is published, and its length
        // covers header, key and value (asserted).
        let body = unsafe { log.address(reservation.offset_bytes).add(HEADER_BYTES) };
        // SAFETY: as above; a client's bytes never lie in unpublished log memory.
        unsafe { std::ptr::copy_nonoverlapping(key.as_ptr(), body, key.len()) };
        // SAFETY: the key's bytes lie inside the reservation.
        let after_key = unsafe { body.add(key.len()) };
        // SAFETY: as for the key.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), after_key, value.len()) };
    }

    /// Writes the header; after this the entry is complete and may be published.
    #[inline]
    pub(crate) fn write_header(log: &Log, reservation: &Reservation, header: Header) {
        // SAFETY: the reservation is this session's alone, 8-aligned, and longer than a header.
        unsafe { log.address(reservation.offset_bytes).cast::<Header>().write(header) };
    }

    /// The reservation became an entry that a slot names.
    #[inline]
    pub(crate) fn published(log: &Log, reservation: Reservation) {
        log.add_live(reservation.offset_bytes, reservation.len_bytes);
        if let Some(segment) = reservation.run {
            log.close(segment, reservation.len_bytes as u64);
        }
    }

    /// Nothing will be published there (I1).
    pub(crate) fn cancel(&mut self, log: &Log, reservation: Reservation) {
        if let Some(segment) = reservation.run {
            log.give_back_unpublished(segment);
        } else if let Some(open) = &mut self.open {
            debug_assert!(
                open.next_bytes == reservation.offset_bytes + reservation.len_bytes as u64,
                "I1"
            );
            open.next_bytes = reservation.offset_bytes;
        }
    }

    /// Hands the open segment over to reclaiming.
    pub(crate) fn close(&mut self, log: &Log) {
        if let Some(open) = self.open.take() {
            let used_bytes = open.next_bytes - log.segment_start(open.segment);
            log.close(open.segment, used_bytes);
        }
    }
}

/// Asks for the lines that entries some steps later will be written to. Taking a chain's lock
/// waits until all earlier stores are done, so a miss on the log's next line would cost each write
/// a whole memory access (7.6 to 11 million sets a CPU-second at 4 M 8/8 items).
#[inline]
fn prefetch_ahead(log: &Log, offset_bytes: u64, len_bytes: usize) {
    let start = log.address(offset_bytes).wrapping_add(AHEAD_BYTES);
    for line in 0..len_bytes.div_ceil(LINE_BYTES).min(AHEAD_LINES_MAX) {
        prefetch::line_for_write(start.wrapping_add(line * LINE_BYTES));
    }
}
