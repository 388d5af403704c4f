//! The backup log: frames in the order in which they land, in segments.
//!
//! ```text
//!  segment 4 (used)              segment 5 (using)
//!  | n1 | n3 | n1 ~ cut ░|       | n3 | n1 |        |
//!         L1: one that would cross the end is cut there, and the next begins the next segment
//! ```
//!
//! # Invariants
//! L1: a frame that ends at a segment's end short of what its headers say is not acknowledged; its
//!     sender sends it again, into the next segment (K20).
//! L2: a segment is *used* once a frame began behind it. Completions come in order and after the
//!     bytes, so nothing has to be waited for (decision 0052; the paper waits 2 ms, §4.3).
//! L3: a used segment is *committed* when the highest version of each of its shards is on all
//!     copies (`MaxVerArray` <= `CommitVerArray`, Rowan-KV §4.4); then it may be reclaimed.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{ShardId, Version};
use crate::message::Lane;
use crate::record::ALIGN_BYTES;

/// Segments that hold frames, oldest first; the last one is being filled.
#[derive(Debug)]
pub(super) struct Landing {
    segment_bytes: usize,
    segments: VecDeque<Segment>,
    counters: LandingCounters,
}

/// What has happened to the backup log since the start.
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
    /// Segments that were committed and given back.
    pub committed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Frame>,
    /// How many of them are in the index.
    pub(super) digested: usize,
    pub(super) highest: BTreeMap<ShardId, Version>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) lane: Lane,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// How a frame came down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    Whole,
    Cut,
}

impl Landing {
    pub(super) fn new(segment_bytes: usize) -> Landing {
        let segments = VecDeque::from([Segment::default()]);
        Landing { segment_bytes, segments, counters: LandingCounters::default() }
    }

    /// What the network does: the next place, cut at the end (L1).
    pub(super) fn land(&mut self, lane: Lane, bytes: &[u8]) -> Landed {
        let is_full =
            self.segments.back().is_none_or(|last| last.bytes.len() >= self.segment_bytes);
        if is_full {
            self.segments.push_back(Segment::default());
        }
        let Some(segment) = self.segments.back_mut() else { return Landed::Cut };
        let start = segment.bytes.len();
        let len = bytes.len().min(self.segment_bytes - start);
        segment.bytes.extend(&bytes[..len]);
        segment.bytes.resize(segment.bytes.len().next_multiple_of(ALIGN_BYTES), 0);
        segment.frames.push(Frame { lane, start, len });
        if len < bytes.len() {
            self.counters.cut += 1;
            return Landed::Cut;
        }
        self.counters.landed += 1;
        Landed::Whole
    }

    /// How many segments are used (L2): all but the last.
    pub(super) fn used_count(&self) -> usize {
        self.segments.len() - 1
    }

    pub(super) fn segments_mut(&mut self, count: usize) -> impl Iterator<Item = &mut Segment> {
        self.segments.iter_mut().take(count)
    }

    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// L3.
    pub(super) fn reclaim(&mut self, is_committed: impl Fn(ShardId, Version) -> bool) {
        let is_over = |segment: &Segment| {
            segment.digested == segment.frames.len()
                && segment.highest.iter().all(|(shard, version)| is_committed(*shard, *version))
        };
        while self.used_count() > 0 && self.segments.front().is_some_and(is_over) {
            self.segments.pop_front();
            self.counters.committed += 1;
        }
    }

    pub(super) fn counters(&self) -> LandingCounters {
        self.counters
    }

    pub(super) fn count_fenced(&mut self) {
        self.counters.fenced += 1;
    }

    pub(super) fn count_dropped(&mut self) {
        self.counters.dropped += 1;
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
        landing.reclaim(|_, _| true);
        assert_eq!(landing.used_count(), 1, "not digested yet");
        landing.segments[0].digested = 3;
        landing.reclaim(|_, _| true);
        assert_eq!((landing.used_count(), landing.counters().committed), (0, 1));
    }
}
