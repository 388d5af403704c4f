//! A persistent memory DIMM: lines of 256 bytes behind a buffer that combines writes of 64.
//!
//! ```text
//!  64 B ─▶ held: least recently used ··· most recent ─▶ hit: a few ns
//!             │ more than HELD_MAX
//!             ▼
//!          draining ─▶ media: 256 B each, read first where a part is missing
//! ```
//!
//! # Invariants
//! I1: a line leaves the buffer once; a later write to it begins a new line.
//! I2: held and draining lines together never exceed the buffer's size.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// The bytes of a write on the memory bus.
pub(super) const PIECE_BYTES: u64 = 64;
/// The bytes that the media writes at once.
pub(super) const LINE_BYTES: u64 = 256;
/// 16 KB (Rowan-KV §2.1).
const BUFFER_LINES: usize = 64;
/// The most lines held; further ones are drained, so that a burst finds room. Fitted.
const HELD_MAX: usize = 48;
/// One piece into the buffer.
const PIECE_NS: f64 = 8.0;
/// 256 B at 2 GB/s (§2.1).
const LINE_WRITE_NS: f64 = 128.0;
/// 256 B at 6 GB/s (§2.1).
const LINE_READ_NS: f64 = 43.0;

/// One DIMM.
#[derive(Debug, Default)]
pub(super) struct Dimm {
    /// By line: the present pieces, and the time of the last use.
    held: HashMap<u64, (u64, u64)>,
    /// By use, the least recent first.
    uses: BTreeMap<u64, u64>,
    use_count: u64,
    /// The time when each draining line will be written.
    draining: VecDeque<f64>,
    free_at_ns: f64,
    media_free_at_ns: f64,
    /// Requested bytes.
    pub request_bytes: u64,
    /// Bytes written by the media.
    pub media_bytes: u64,
}

impl Dimm {
    /// Takes one piece that arrives at `at_ns`; returns the time when it is in the buffer, which
    /// counts as persisted.
    pub fn write(&mut self, address: u64, at_ns: f64) -> f64 {
        self.request_bytes += PIECE_BYTES;
        let mut now_ns = self.free_at_ns.max(at_ns);
        let line = address / LINE_BYTES;
        self.use_count += 1;
        match self.held.get_mut(&line) {
            Some((pieces, used)) => {
                *pieces += 1;
                self.uses.remove(used);
                *used = self.use_count;
            }
            None => {
                now_ns = self.make_room(now_ns);
                self.held.insert(line, (1, self.use_count));
            }
        }
        self.uses.insert(self.use_count, line);
        self.free_at_ns = now_ns + PIECE_NS;
        self.free_at_ns
    }

    /// The time when the current piece may enter.
    fn make_room(&mut self, now_ns: f64) -> f64 {
        while self.held.len() >= HELD_MAX {
            let Some((_, line)) = self.uses.pop_first() else { break };
            let Some((pieces, _)) = self.held.remove(&line) else { break };
            let is_whole = pieces >= LINE_BYTES / PIECE_BYTES;
            let cost_ns = LINE_WRITE_NS + if is_whole { 0.0 } else { LINE_READ_NS };
            self.media_free_at_ns = self.media_free_at_ns.max(now_ns) + cost_ns;
            self.draining.push_back(self.media_free_at_ns);
            self.media_bytes += LINE_BYTES;
        }
        let mut now_ns = now_ns;
        while self.draining.front().is_some_and(|written| *written <= now_ns) {
            self.draining.pop_front();
        }
        if self.held.len() + self.draining.len() >= BUFFER_LINES {
            now_ns = self.draining.pop_front().map_or(now_ns, |written| written.max(now_ns));
        }
        debug_assert!(self.held.len() + self.draining.len() < BUFFER_LINES, "I2");
        now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::{Dimm, LINE_BYTES, PIECE_BYTES};

    /// Media bytes over request bytes for this many logs, written in turns, piece by piece.
    fn amplification(logs: u64) -> f64 {
        let mut dimm = Dimm::default();
        for piece in 0..4_000 {
            for log in 0..logs {
                dimm.write((log << 30) + piece * PIECE_BYTES, 0.0);
            }
        }
        dimm.media_bytes as f64 / dimm.request_bytes as f64
    }

    #[test]
    fn one_log_is_combined_and_too_many_are_not() {
        assert!((0.95..=1.0).contains(&amplification(1)), "{}", amplification(1));
        assert!((0.95..=1.0).contains(&amplification(30)), "{}", amplification(30));
        assert!((3.9..=4.0).contains(&amplification(64)), "{}", amplification(64));
    }

    #[test]
    fn writing_is_as_fast_as_the_media_and_bursts_are_faster() {
        let mut dimm = Dimm::default();
        let burst = |dimm: &mut Dimm, lines: std::ops::Range<u64>| {
            let pieces =
                lines.start * LINE_BYTES / PIECE_BYTES..lines.end * LINE_BYTES / PIECE_BYTES;
            pieces.map(|piece| dimm.write(piece * PIECE_BYTES, 0.0)).last().unwrap()
        };
        // The buffer takes 64 lines at the speed of the bus.
        assert!(burst(&mut dimm, 0..60) < 60.0 * 128.0 / 2.0);
        let end_ns = burst(&mut dimm, 60..10_060);
        let bytes_per_ns = 10_000.0 * LINE_BYTES as f64 / end_ns;
        assert!((1.95..=2.05).contains(&bytes_per_ns), "{bytes_per_ns} GB/s");
    }
}
