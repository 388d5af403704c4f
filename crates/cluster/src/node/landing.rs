//! The backup logs, one or several by the scheme: frames in segments, in the order in which they
//! land, or where their senders place them.
//!
//! ```text
//!  segment 4 (used)              segment 5 (using)
//!  | n1 | n3 | n1 ~ cut ░|       | n3 | n1 |        |
//!         L1: one that would cross the end is cut there, and the next begins the next segment
//! ```
//!
//! # Invariants
//! L1: a frame that is cut off by a segment's end, shorter than its headers say, is not
//!     acknowledged; its sender sends it again, into the next segment (K20).
//! L2: a segment is *used* once a frame began behind it. Completions come in order and after the
//!     bytes, so no waiting is needed (decision 0052; the paper waits 2 ms, §4.3).
//! L3: a used segment is *committed* when the highest version of each of its shards is on all
//!     copies (`MaxVerArray` <= `CommitVerArray`, Rowan-KV §4.4); then it may be reclaimed.
//! L4: an entry that announces which versions are on all copies is digested after everything that
//!     landed before it, in whatever log: an entry that was acknowledged and is not yet in the
//!     index must not be taken for a repetition (G2). With one log its order ensures this; with
//!     several, all are digested first.
//! L5: a frame that was placed where a segment was reclaimed, or far ahead, is not acknowledged.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{ShardId, Version};
use crate::message::Lane;
use crate::record::{ALIGN_BYTES, Header};
use crate::scheme::{LogName, Scheme, Way};

/// How many segments of a log a placed frame may be ahead of the oldest one.
const SEGMENTS_AHEAD_MAX: u64 = 1_024;

/// All logs that other nodes' frames land in.
#[derive(Debug)]
pub(super) struct Logs {
    scheme: Scheme,
    segment_bytes: usize,
    /// The logs of this term; the one without a name takes all frames that no other log takes.
    pub(super) logs: BTreeMap<LogName, Landing>,
    counters: LandingCounters,
    /// Whether frames that no log keeps have come (G4 of digest.rs).
    has_passed: bool,
}

/// Segments that hold frames, oldest first; the last one is being filled.
#[derive(Debug)]
pub(super) struct Landing {
    segment_bytes: usize,
    segments: VecDeque<Segment>,
    /// The number of reclaimed segments, which is the number of the first present one.
    reclaimed_count: u64,
    /// A reclaimed segment, whose memory the next one takes.
    spare: Option<Segment>,
}

/// Counters of the backup logs since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LandingCounters {
    /// Frames that landed whole.
    pub landed: u64,
    /// Frames that were cut at a segment's end.
    pub cut: u64,
    /// Frames of another term than the installed one.
    pub fenced: u64,
    /// Records that a digest left out: damaged, or of a sender that was not the shard's primary.
    pub dropped: u64,
    /// Segments that were committed and reclaimed.
    pub committed: u64,
    /// Logs that frames of this term land in, which is the number of streams of writes to memory.
    pub streams: u64,
}

#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Frame>,
    /// How many of its frames are in the index.
    pub(super) digested: usize,
    pub(super) highest: BTreeMap<ShardId, Version>,
}

impl Segment {
    /// An empty segment that reuses this one's memory.
    fn emptied(self) -> Segment {
        let Segment { mut bytes, mut frames, .. } = self;
        bytes.clear();
        frames.clear();
        Segment { bytes, frames, ..Segment::default() }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) lane: Lane,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// The result of landing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    Whole,
    Cut,
}

impl Logs {
    pub(super) fn new(scheme: Scheme, segment_bytes: usize) -> Logs {
        let (logs, counters) = (BTreeMap::new(), LandingCounters::default());
        Logs { scheme, segment_bytes, logs, counters, has_passed: false }
    }

    /// Begins a new term, with everything digested: senders that place their frames start from
    /// zero.
    pub(super) fn begin(&mut self) {
        match self.scheme {
            Scheme::Rowan => {}
            _ => self.logs.clear(),
        }
    }

    /// Lands a frame as the network would.
    pub(super) fn land(&mut self, lane: Lane, way: Way, bytes: &[u8]) -> Landed {
        let (name, segment_bytes) = (self.scheme.log_of(lane, way), self.segment_bytes);
        let log = self.logs.entry(name).or_insert_with(|| Landing::new(segment_bytes));
        let landed = match way.at {
            Some(at) if self.scheme.is_placed() => log.place(at, lane, bytes),
            _ => log.land(lane, bytes),
        };
        match landed {
            Landed::Whole => self.counters.landed += 1,
            Landed::Cut => self.counters.cut += 1,
        }
        landed
    }

    /// Whether a frame that landed this way requires a digest of all logs (L4).
    pub(super) fn orders_digest(&self, way: Way) -> bool {
        self.scheme != Scheme::Rowan && way.is_mark()
    }

    /// Whether all frames land in one log, as they arrive.
    pub(super) fn are_one(&self) -> bool {
        self.scheme == Scheme::Rowan
    }

    /// Counts a frame that was digested when it landed, with the number of its records left out.
    pub(super) fn count_passed(&mut self, dropped_count: u64) {
        self.has_passed = true;
        self.counters.landed += 1;
        self.counters.dropped += dropped_count;
    }

    /// Whether a log has used segments.
    pub(super) fn has_used(&self) -> bool {
        self.logs.values().any(|log| log.used_count() > 0)
    }

    /// Reclaims committed segments of all logs (L3).
    pub(super) fn reclaim(&mut self, is_committed: impl Fn(ShardId, Version) -> bool) {
        for log in self.logs.values_mut() {
            self.counters.committed += log.reclaim(&is_committed);
        }
    }

    pub(super) fn counters(&self) -> LandingCounters {
        let streams = self.logs.keys().filter(|name| **name != LogName::default()).count();
        let streams = match self.scheme {
            Scheme::Rowan => self.logs.len().max(self.has_passed.into()),
            _ => streams,
        };
        LandingCounters { streams: streams as u64, ..self.counters }
    }

    pub(super) fn count_fenced(&mut self) {
        self.counters.fenced += 1;
    }

    pub(super) fn count_dropped(&mut self, count: u64) {
        self.counters.dropped += count;
    }
}

impl Landing {
    pub(super) fn new(segment_bytes: usize) -> Landing {
        let segments = VecDeque::from([Segment::default()]);
        Landing { segment_bytes, segments, reclaimed_count: 0, spare: None }
    }

    /// Lands a frame at the place that its sender reserved (L5).
    fn place(&mut self, at: u64, lane: Lane, bytes: &[u8]) -> Landed {
        let segment_bytes = self.segment_bytes as u64;
        let (number, start) = (at / segment_bytes, (at % segment_bytes) as usize);
        let Some(index) = number.checked_sub(self.reclaimed_count) else { return Landed::Cut };
        let is_inside = start.is_multiple_of(ALIGN_BYTES)
            && start.saturating_add(bytes.len()) <= self.segment_bytes;
        if index > SEGMENTS_AHEAD_MAX || !is_inside {
            return Landed::Cut;
        }
        while self.segments.len() as u64 <= index {
            let next = self.spare.take().unwrap_or_default();
            self.segments.push_back(next);
        }
        let segment = &mut self.segments[index as usize];
        let end = (start + bytes.len()).next_multiple_of(ALIGN_BYTES);
        if segment.bytes.len() < end {
            segment.bytes.resize(end, 0);
        }
        segment.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        segment.frames.push(Frame { lane, start, len: bytes.len() });
        Landed::Whole
    }

    /// Lands a frame at the next place, cut at the segment's end (L1).
    fn land(&mut self, lane: Lane, bytes: &[u8]) -> Landed {
        let is_full =
            self.segments.back().is_none_or(|last| last.bytes.len() >= self.segment_bytes);
        if is_full {
            let next = self.spare.take().unwrap_or_default();
            self.segments.push_back(next);
        }
        let Some(segment) = self.segments.back_mut() else { return Landed::Cut };
        let start = segment.bytes.len();
        let len = bytes.len().min(self.segment_bytes - start);
        segment.bytes.extend(&bytes[..len]);
        segment.bytes.resize(segment.bytes.len().next_multiple_of(ALIGN_BYTES), 0);
        let is_cut = len < bytes.len();
        // Of several records some may be whole: part of a group, which no digest may take (H2).
        let is_one = Header::peek(bytes).is_none_or(|header| header.len_bytes() >= bytes.len());
        if !is_cut || is_one {
            segment.frames.push(Frame { lane, start, len });
        }
        if is_cut { Landed::Cut } else { Landed::Whole }
    }

    /// The number of used segments (L2): all but the last.
    pub(super) fn used_count(&self) -> usize {
        self.segments.len() - 1
    }

    pub(super) fn segments_mut(&mut self, count: usize) -> impl Iterator<Item = &mut Segment> {
        self.segments.iter_mut().take(count)
    }

    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Reclaims committed segments (L3). Returns how many.
    fn reclaim(&mut self, is_committed: &impl Fn(ShardId, Version) -> bool) -> u64 {
        let before = self.reclaimed_count;
        let is_over = |segment: &Segment| {
            segment.digested == segment.frames.len()
                && segment.highest.iter().all(|(shard, version)| is_committed(*shard, *version))
        };
        while self.used_count() > 0 && self.segments.front().is_some_and(is_over) {
            self.spare = self.segments.pop_front().map(Segment::emptied);
            self.reclaimed_count += 1;
        }
        self.reclaimed_count - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NodeId, Term};

    #[test]
    fn a_frame_that_crosses_the_end_is_cut_and_the_next_one_begins_a_segment() {
        let mut landing = Landing::new(256);
        let lane = Lane { from: NodeId::default(), term: Term(1) };
        let ends = [128, 64, 128, 64].map(|len| landing.land(lane, &vec![1; len]));
        assert_eq!(ends, [Landed::Whole, Landed::Whole, Landed::Cut, Landed::Whole]);
        assert_eq!(landing.used_count(), 1);
        let places: Vec<_> =
            landing.segments[0].frames.iter().map(|at| (at.start, at.len)).collect();
        assert_eq!(places, [(0, 128), (128, 64), (192, 64)]);
        landing.reclaim(&|_, _| true);
        assert_eq!(landing.used_count(), 1, "not digested yet");
        landing.segments[0].digested = 3;
        assert_eq!(landing.reclaim(&|_, _| true), 1);
        assert_eq!(landing.used_count(), 0);
    }

    #[test]
    fn placed_frames_come_in_any_order_and_never_where_a_segment_was_reclaimed() {
        let mut logs = Logs::new(Scheme::Write, 256);
        let lane = Lane { from: NodeId::default(), term: Term(1) };
        let mut place = |at, len| logs.land(lane, Way { thread: 1, at: Some(at) }, &vec![1; len]);
        assert_eq!(place(256, 64), Landed::Whole);
        assert_eq!(place(64, 64), Landed::Whole, "later than what is behind it");
        assert_eq!(place(192, 128), Landed::Cut, "it would cross an end");
        assert_eq!(place(1, 64), Landed::Cut);
        assert_eq!(place(u64::MAX, 64), Landed::Cut, "far ahead");
        let log = logs.logs.values_mut().next().unwrap();
        log.segments[0].digested = 1;
        logs.reclaim(|_, _| true);
        assert_eq!(logs.land(lane, Way { thread: 1, at: Some(0) }, &[1; 64]), Landed::Cut);
        assert_eq!((logs.counters().committed, logs.counters().streams), (1, 1));
    }
}
