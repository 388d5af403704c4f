//! The live bytes of each segment, counted in lanes, so that sessions that write at the same time
//! do not take a cache line from each other, nor pay for an atomic addition.
//!
//! ```text
//!            segment 0   1    2    3   ...  (16 to a line)
//!  lane 0:   | +900 | -32 |   0 | -64 | ... |   session 0: what it appended, less what it unlinked
//!  lane 1:   | -100 | +80 | -16 |   0 | ... |   session 1
//!  alive:       800    48   -16   -64  ◀ the sum; below 0 only while a segment is open
//! ```
//!
//! # Invariants
//! I1: for a closed segment the sum over the lanes is its live bytes or more. Once a segment is
//!     closed, which happens under the lock of the table, lanes only fall. So if a thread has taken
//!     that lock since, and sums lane by lane, its sum is never less than the live bytes at the
//!     moment it reads the last lane.
//! I2: while there is a lane for each session, only that session stores to it.
//!
//! # Concurrency
//! A session that takes a place sees the stores of the place's previous session, through the
//! epochs' `join`.

use base::sync::{AtomicU32, Ordering};
use crossbeam_utils::CachePadded;

use crate::ITEM_MAX_BYTES;
use crate::entry::ALIGN_BYTES;

/// More lanes than these would make choosing a victim slow; sessions then share them.
const LANES_MAX: usize = 8;
/// Counters of one line.
const LINE_COUNTERS: usize = 16;
/// Counters count in words, as entries do.
const WORD_BYTES: u64 = ALIGN_BYTES as u64;

const _: () = assert!(ITEM_MAX_BYTES / WORD_BYTES < (i32::MAX / 2) as u64);

/// One session's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(usize);

/// The counters of all segments.
pub(super) struct LiveBytes {
    lanes: Box<[Box<[CachePadded<Line>]>]>,
    /// Whether several sessions share a lane (I2).
    are_lanes_shared: bool,
}

#[derive(Default)]
struct Line([AtomicU32; LINE_COUNTERS]);

impl LiveBytes {
    /// `has_lanes`: whether sessions have separate lanes; otherwise all share one.
    pub(super) fn new(segment_count: u32, session_max: usize, has_lanes: bool) -> LiveBytes {
        let lanes_max = if has_lanes { LANES_MAX } else { 0 };
        let line_count = (segment_count as usize).div_ceil(LINE_COUNTERS);
        let lane = |_| (0..line_count).map(|_| CachePadded::default()).collect();
        LiveBytes {
            lanes: (0..session_max.min(lanes_max).max(1)).map(lane).collect(),
            are_lanes_shared: session_max > lanes_max,
        }
    }

    /// The lane of the session at `place`.
    pub(super) fn lane_of(&self, place: usize) -> Lane {
        Lane(place % self.lanes.len())
    }

    /// Notes that entries of this many bytes became reachable.
    #[inline]
    pub(super) fn add(&self, lane: Lane, segment: u32, len_bytes: u64) {
        self.change(lane, segment, words_of(len_bytes));
    }

    /// Notes that entries of this many bytes are no longer reachable; called after their slots were
    /// changed.
    #[inline]
    pub(super) fn sub(&self, lane: Lane, segment: u32, len_bytes: u64) {
        self.change(lane, segment, words_of(len_bytes).wrapping_neg());
    }

    #[inline]
    fn change(&self, lane: Lane, segment: u32, words: u32) {
        let segment = segment as usize;
        let counter = &self.lanes[lane.0][segment / LINE_COUNTERS].0[segment % LINE_COUNTERS];
        // Release pairs with the Acquire of `of`: a thread that sees zero and retires the segment
        // also sees that no slot names it.
        if self.are_lanes_shared {
            counter.fetch_add(words, Ordering::Release);
        } else {
            let sum = load_own(counter).wrapping_add(words);
            counter.store(sum, Ordering::Release); // I2
        }
    }

    /// The live bytes of a segment (I1).
    pub(super) fn of(&self, segment: u32) -> u64 {
        let segment = segment as usize;
        let (line, place) = (segment / LINE_COUNTERS, segment % LINE_COUNTERS);
        let lanes = self.lanes.iter();
        let words = lanes.map(|lane| lane[line].0[place].load(Ordering::Acquire));
        let words = words.fold(0_u32, u32::wrapping_add).cast_signed();
        // Signed: for an open segment more may have been subtracted than was added.
        u64::from(words.max(0).cast_unsigned()) * WORD_BYTES
    }
}

/// A Relaxed load by the only thread that stores.
#[inline]
fn load_own(counter: &AtomicU32) -> u32 {
    #[cfg(not(loom))]
    return counter.load(Ordering::Relaxed);
    // An exchange that always fails: a plain load would hide other threads' loads from loom
    // (loom_tests.rs of the index).
    #[cfg(loom)]
    return counter
        .compare_exchange(u32::MAX, u32::MAX, Ordering::Relaxed, Ordering::Relaxed)
        .unwrap_or_else(|found| found);
}

#[inline]
fn words_of(len_bytes: u64) -> u32 {
    debug_assert!(len_bytes.is_multiple_of(WORD_BYTES), "entries are whole words");
    (len_bytes / WORD_BYTES) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[track_caller]
    fn check(session_max: usize, has_lanes: bool) {
        let live = LiveBytes::new(40, session_max, has_lanes);
        assert_eq!(live.lane_of(0) != live.lane_of(1), has_lanes);
        let lane = |place| live.lane_of(place);
        for segment in [0, 15, 16, 39] {
            live.sub(lane(1), segment, 96);
            assert_eq!(live.of(segment), 0, "unlinked before its writer has counted it");
            live.add(lane(0), segment, 4 << 20);
            assert_eq!(live.of(segment), (4 << 20) - 96);
            live.sub(lane(session_max - 1), segment, (4 << 20) - 96);
            assert_eq!(live.of(segment), 0);
        }
        assert!((0..40).all(|segment| live.of(segment) == 0));
    }

    #[test]
    fn what_one_session_adds_another_subtracts() {
        for session_max in [2, 8, 9, 64] {
            check(session_max, true);
            check(session_max, false);
        }
    }

    #[test]
    fn the_largest_item_is_counted_whole() {
        let live = LiveBytes::new(1, 1, true);
        live.add(live.lane_of(0), 0, ITEM_MAX_BYTES + 96);
        assert_eq!(live.of(0), ITEM_MAX_BYTES + 96);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use base::sync::{Arc, AtomicU64};

    use super::*;

    /// Two entries of a closed segment, whose slots two sessions clear.
    fn check(session_max: usize) {
        loom::model(move || {
            let live = LiveBytes::new(1, session_max, true);
            live.add(live.lane_of(0), 0, 64);
            let world = Arc::new((live, [AtomicU64::new(1), AtomicU64::new(1)]));
            let writers = [0, 1].map(|place| {
                let world = world.clone();
                loom::thread::spawn(move || {
                    let (live, slots) = &*world;
                    slots[place].store(0, Ordering::Release);
                    // Place 8 shares the lane of place 0.
                    live.sub(live.lane_of(place * (session_max - 1)), 0, 32);
                })
            });
            let (live, slots) = &*world;
            if live.of(0) == 0 {
                assert!(slots.iter().all(|slot| slot.load(Ordering::Relaxed) == 0));
            }
            for writer in writers {
                writer.join().unwrap();
            }
            assert_eq!(live.of(0), 0);
        });
    }

    #[test]
    fn a_reader_that_sees_nothing_alive_sees_that_no_slot_names_it() {
        check(2);
    }

    #[test]
    fn so_he_does_when_sessions_share_a_lane() {
        check(9);
    }
}
