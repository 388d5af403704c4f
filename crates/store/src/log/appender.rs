//! One session's open segments: reserves space, fills it, and takes back a cancelled reservation.
//!
//! ```text
//!  open segment:  | published entries | reservation | free ............ |
//!                                     ^ next_bytes                      ^ end
//! ```
//!
//! # Invariants
//! I1: at most one reservation is outstanding, and it is the last thing in its open segment, so
//!     cancelling it moves `next_bytes` back.
//! I2: published bytes are added to the segment's live bytes once a batch, and before the segment
//!     is closed: no session reads the live bytes of an open segment. Other sessions may have
//!     subtracted their part before (live.rs).

use base::UnixMillis;

use crate::entry::{Header, Shape};

use super::table::{Contents, NEVER_MS};
use super::{Lane, Log, Purpose, Queue};
use crate::pieces::Parts;
use crate::prefetch::{self, LINE_BYTES};

/// How far ahead of the append position lines are prefetched.
const AHEAD_BYTES: usize = 512;
/// Beyond this many lines the processor's own prefetcher has detected the pattern.
const AHEAD_LINES_MAX: usize = 8;

/// An open segment.
#[derive(Clone, Copy, Debug)]
struct Open {
    segment: u32,
    next_bytes: u64,
    end_bytes: u64,
    /// The expiry of the entry that expires last.
    latest_expiry_ms: u64,
    /// Bytes published here that are not yet added to the session's lane (I2).
    unpublished_live_bytes: u64,
}

/// The role of one of a session's appenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// For clients' writes.
    Writes,
    /// For entries that reclaiming keeps.
    Survivors,
}

/// One session's append positions for one queue: entries up to a quarter of a segment go into one
/// open segment, longer ones into another, so that a long entry does not close a segment that short
/// ones still fill.
#[derive(Debug)]
pub(crate) struct Appender {
    role: Role,
    queue: Queue,
    lane: Lane,
    /// The preferred region of its segments.
    region: usize,
    /// Whether lines are prefetched ahead of being written.
    prefetches: bool,
    short: Option<Open>,
    long: Option<Open>,
    /// The bytes of all segments and runs taken.
    taken_bytes: u64,
    /// Segments of a durable log that were closed since their ends were taken, with their ends.
    closed: Vec<(u32, u64)>,
}

/// Space in the log for one unpublished entry; it belongs to this session alone.
#[derive(Debug)]
#[must_use = "publish it or cancel it"]
pub(crate) struct Reservation {
    pub offset_bytes: u64,
    pub len_bytes: usize,
    /// The appender that it belongs to.
    pub role: Role,
    home: Home,
}

/// The segment that a reservation lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Short,
    Long,
    /// A run that the entry has for itself (K14).
    Run(u32),
}

impl Appender {
    /// An appender to segments of `queue`, without an open one.
    pub(crate) fn new(role: Role, queue: Queue, lane: Lane, prefetches: bool) -> Appender {
        let (short, long) = (None, None);
        let (region, taken_bytes, closed) = (0, 0, Vec::new());
        Appender { role, queue, lane, region, prefetches, short, long, taken_bytes, closed }
    }

    /// Takes segments from `region` from now on, while it has some.
    pub(crate) fn prefer(&mut self, region: usize) {
        self.region = region;
    }

    /// The preferred region.
    pub(crate) fn region(&self) -> usize {
        self.region
    }

    /// Reserves `len_bytes`; `None` when the log has no segment for it.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        log: &Log,
        len_bytes: usize,
        purpose: Purpose,
    ) -> Option<Reservation> {
        if let Some(open) = &mut self.short
            && open.end_bytes - open.next_bytes >= len_bytes as u64
            && len_bytes as u64 <= log.short_max_bytes()
        {
            let offset_bytes = open.take(len_bytes);
            if self.prefetches {
                prefetch_ahead(log, offset_bytes, len_bytes);
            }
            return Some(Reservation {
                offset_bytes,
                len_bytes,
                role: self.role,
                home: Home::Short,
            });
        }
        self.reserve_beyond(log, len_bytes, purpose)
    }

    /// Reserves space that does not fit into the open segment of short entries.
    #[cold]
    fn reserve_beyond(
        &mut self,
        log: &Log,
        len_bytes: usize,
        purpose: Purpose,
    ) -> Option<Reservation> {
        let (run_len, role) = (log.run_len(len_bytes as u64), self.role);
        let from = (self.queue, self.region);
        if run_len > 1 {
            let segment = log.take(run_len, purpose, from)?;
            self.taken_bytes += u64::from(run_len) * log.segment_bytes();
            let offset_bytes = log.segment_start(segment);
            return Some(Reservation { offset_bytes, len_bytes, role, home: Home::Run(segment) });
        }
        let is_short = len_bytes as u64 <= log.short_max_bytes();
        let (place, home) = match is_short {
            true => (&mut self.short, Home::Short),
            false => (&mut self.long, Home::Long),
        };
        let has_room =
            place.is_some_and(|open| open.end_bytes - open.next_bytes >= len_bytes as u64);
        if !has_room {
            let next = match log.take_unfilled(len_bytes as u64, from) {
                Some((segment, contents)) => Open::behind(log, segment, contents),
                None => Open::new(log, log.take(1, purpose, from)?),
            };
            self.taken_bytes += next.end_bytes - next.next_bytes;
            let full = place.replace(next);
            close(log, self.lane, full, home == Home::Long, &mut self.closed);
        }
        let offset_bytes = place.as_mut()?.take(len_bytes);
        Some(Reservation { offset_bytes, len_bytes, role, home })
    }

    /// Bytes used by entries so far, including the unused ends of their segments. A cancelled
    /// reservation is subtracted again, except that of a run.
    pub(crate) fn appended_bytes(&self) -> u64 {
        let room_bytes = |open: &Open| open.end_bytes - open.next_bytes;
        let left_bytes: u64 = [&self.short, &self.long].into_iter().flatten().map(room_bytes).sum();
        self.taken_bytes - left_bytes
    }

    /// Bytes of short entries that still fit into the open segment.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.short.map_or(0, |open| open.end_bytes - open.next_bytes)
    }

    /// Bytes left in the open segments, of short entries and of long ones.
    pub(crate) fn rooms_bytes(&self) -> (u64, u64) {
        let left = |open: &Option<Open>| open.map_or(0, |open| open.end_bytes - open.next_bytes);
        (left(&self.short), left(&self.long))
    }

    /// Copies key and value behind the header's place.
    #[inline]
    pub(crate) fn fill(
        log: &Log,
        reservation: &Reservation,
        shape: Shape,
        key: &[u8],
        value: &[u8],
    ) {
        assert!(key.len() == shape.key_len_bytes && value.len() == shape.value_len_bytes);
        assert!(shape.len_bytes() <= reservation.len_bytes);
        // SAFETY: the reservation is this session's alone until it is published, and its length
        // covers header, key and value (asserted).
        let body = unsafe { log.address(reservation.offset_bytes).add(shape.header_bytes()) };
        // SAFETY: as above; a client's bytes never lie in unpublished log memory.
        unsafe { copy_short(key, body) };
        // SAFETY: the key's bytes lie inside the reservation.
        let after_key = unsafe { body.add(key.len()) };
        // SAFETY: as for the key.
        unsafe { copy_short(value, after_key) };
    }

    /// Like `fill`, with a value in parts.
    #[inline]
    pub(crate) fn fill_parts(
        log: &Log,
        reservation: &Reservation,
        shape: Shape,
        key: &[u8],
        value: Parts<'_>,
    ) {
        assert!(key.len() == shape.key_len_bytes && value.len_bytes() == shape.value_len_bytes);
        assert!(shape.len_bytes() <= reservation.len_bytes);
        // SAFETY: the reservation is this session's alone until it is published, and its length
        // covers header, key and value (asserted).
        let body = unsafe { log.address(reservation.offset_bytes).add(shape.header_bytes()) };
        // SAFETY: as above; neither a client's bytes nor a published entry's lie in unpublished log
        // memory.
        unsafe { copy_short(key, body) };
        // SAFETY: the key's bytes lie inside the reservation.
        let mut end = unsafe { body.add(key.len()) };
        for part in value.iter() {
            // SAFETY: as for the key.
            unsafe { copy_short(part, end) };
            // SAFETY: all parts together are as long as the value, which lies inside.
            end = unsafe { end.add(part.len()) };
        }
    }

    /// Writes the header; after this the entry is complete and may be published.
    #[inline]
    pub(crate) fn write_header(log: &Log, reservation: &Reservation, header: &Header) {
        let start = log.address(reservation.offset_bytes).cast::<u64>();
        for (index, word) in header.words().iter().enumerate() {
            // SAFETY: inside the reservation, which is longer than the header its shape says.
            let place = unsafe { start.add(index) };
            // SAFETY: the reservation is this session's alone and 8-aligned.
            unsafe { place.write(*word) };
        }
    }

    /// Notes that a slot names the reserved entry, which lives until `expires_at`.
    #[inline]
    pub(crate) fn published(
        &mut self,
        log: &Log,
        reservation: &Reservation,
        expires_at: Option<UnixMillis>,
    ) {
        let expires_at_ms = expires_at.map_or(NEVER_MS, |at| at.0);
        let open = match reservation.home {
            Home::Short => &mut self.short,
            Home::Long => &mut self.long,
            Home::Run(segment) => {
                let used_bytes = reservation.len_bytes as u64;
                let latest_expiry_ms = expires_at_ms;
                log.add_live(self.lane, segment, used_bytes);
                log.close(segment, Contents { used_bytes, latest_expiry_ms, is_long: true });
                if log.is_durable() {
                    self.closed.push((segment, used_bytes));
                }
                return;
            }
        };
        if let Some(open) = open {
            open.latest_expiry_ms = open.latest_expiry_ms.max(expires_at_ms);
            open.unpublished_live_bytes += reservation.len_bytes as u64;
        }
    }

    /// Adds the live bytes of the open segments to the log's count (I2).
    #[inline]
    pub(crate) fn publish_live(&mut self, log: &Log) {
        for open in [&mut self.short, &mut self.long].into_iter().flatten() {
            open.publish_live(log, self.lane);
        }
    }

    /// The segments written since the last call, with their bytes of entries; nothing may be
    /// reserved.
    pub(crate) fn take_ends(&mut self, log: &Log) -> impl Iterator<Item = (u32, u64)> {
        let end = |open: Open| (open.segment, open.next_bytes - log.segment_start(open.segment));
        let open = [self.short, self.long].into_iter().flatten().map(end);
        self.closed.drain(..).chain(open)
    }

    /// Notes that the reserved entry counts as live although no slot names it.
    pub(crate) fn published_aside(&mut self, log: &Log, reservation: &Reservation) {
        self.published(log, reservation, None);
    }

    /// Cancels a reservation (I1).
    pub(crate) fn cancel(&mut self, log: &Log, reservation: Reservation) {
        let open = match reservation.home {
            Home::Run(segment) => return log.give_back_unpublished(segment),
            Home::Short => &mut self.short,
            Home::Long => &mut self.long,
        };
        if let Some(open) = open {
            let end_bytes = reservation.offset_bytes + reservation.len_bytes as u64;
            debug_assert!(open.next_bytes == end_bytes, "I1");
            open.next_bytes = reservation.offset_bytes;
        }
    }

    /// Closes the open segments that are `old`, so that they can be reclaimed; nothing may be
    /// reserved. Returns whether there was one.
    pub(crate) fn close_old(&mut self, log: &Log, old: impl Fn(u32) -> bool) -> bool {
        let short = self.short.take_if(|open| old(open.segment));
        let long = self.long.take_if(|open| old(open.segment));
        let has_closed = short.is_some() || long.is_some();
        close(log, self.lane, short, false, &mut self.closed);
        close(log, self.lane, long, true, &mut self.closed);
        has_closed
    }

    /// Closes the open segments, so that they can be reclaimed.
    pub(crate) fn close(&mut self, log: &Log) {
        close(log, self.lane, self.short.take(), false, &mut self.closed);
        close(log, self.lane, self.long.take(), true, &mut self.closed);
    }
}

impl Open {
    fn new(log: &Log, segment: u32) -> Open {
        let next_bytes = log.segment_start(segment);
        let end_bytes = next_bytes + log.segment_bytes();
        Open { segment, next_bytes, end_bytes, latest_expiry_ms: 0, unpublished_live_bytes: 0 }
    }

    /// A segment that has entries, with room behind them.
    fn behind(log: &Log, segment: u32, contents: Contents) -> Open {
        let Contents { used_bytes, latest_expiry_ms, .. } = contents;
        let empty = Open::new(log, segment);
        Open { next_bytes: empty.next_bytes + used_bytes, latest_expiry_ms, ..empty }
    }

    #[inline]
    fn publish_live(&mut self, log: &Log, lane: Lane) {
        if self.unpublished_live_bytes != 0 {
            log.add_live(lane, self.segment, std::mem::take(&mut self.unpublished_live_bytes));
        }
    }

    /// Advances the position by an entry; returns the entry's offset.
    #[inline]
    fn take(&mut self, len_bytes: usize) -> u64 {
        let offset_bytes = self.next_bytes;
        self.next_bytes += len_bytes as u64;
        offset_bytes
    }
}

fn close(log: &Log, lane: Lane, open: Option<Open>, is_long: bool, closed: &mut Vec<(u32, u64)>) {
    if let Some(mut open) = open {
        open.publish_live(log, lane);
        let Open { segment, next_bytes, latest_expiry_ms, .. } = open;
        let used_bytes = next_bytes - log.segment_start(segment);
        log.close(segment, Contents { used_bytes, latest_expiry_ms, is_long });
        if log.is_durable() {
            closed.push((segment, used_bytes));
        }
    }
}

/// Copies `from` to `to`; eight and sixteen bytes, the usual lengths of ids, as words.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes and does not overlap `from`.
#[inline]
unsafe fn copy_short(from: &[u8], to: *mut u8) {
    if let Ok(word) = <&[u8; 8]>::try_from(from) {
        // SAFETY: eight bytes, as the caller promises.
        unsafe { to.cast::<[u8; 8]>().write(*word) };
    } else if let Ok(words) = <&[u8; 16]>::try_from(from) {
        // SAFETY: sixteen bytes, as the caller promises.
        unsafe { to.cast::<[u8; 16]>().write(*words) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }
}

/// Prefetches the lines that entries some steps later will be written to. Taking a chain's lock
/// waits until all earlier stores are done, so a miss on the log's next line would cost each write
/// a whole memory access (7.6 to 11 million sets a CPU-second at 4 M 8/8 items).
#[inline]
fn prefetch_ahead(log: &Log, offset_bytes: u64, len_bytes: usize) {
    let start = log.address(offset_bytes).wrapping_add(AHEAD_BYTES);
    for line in 0..len_bytes.div_ceil(LINE_BYTES).min(AHEAD_LINES_MAX) {
        prefetch::line_for_write(start.wrapping_add(line * LINE_BYTES));
    }
}
