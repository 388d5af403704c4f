//! How fast half-sent commands arrive: which of them are too slow to keep their room while other
//! commands wait for it.
//!
//! ```text
//!  room  |            ,----- fast enough: a quarter of the room fills within each window
//!  held  |        ,--'   . . . . . . . . . . . . .
//!        |    ,--'     . too slow, however often a byte comes
//!        +----+--------+-------------------------▶ time
//!             a window
//! ```
//!
//! # Invariants
//! P1: a command that arrives within four windows is never too slow; one that takes longer is found
//!     to be so within two windows of its slowest quarter.

use std::collections::BTreeMap;

/// A command in four windows, and a window is a quarter of the longest wait: nothing that waits is
/// older than a command that takes its room.
const PARTS: u64 = 4;

/// A half-sent command that has room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    /// Of its connection.
    pub slot: usize,
    /// Of its connection, never reused.
    pub client_id: u64,
    /// The bytes of the command that have arrived.
    pub held_bytes: u64,
    /// The bytes that are booked for it.
    pub room_bytes: u64,
    /// When bytes last arrived.
    pub active_at_ms: u64,
}

/// What a look saw of a command that was fast enough until then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    held_bytes: u64,
    at_ms: u64,
}

/// The commands that the last look saw, by their client.
#[derive(Debug, Default)]
pub(super) struct Paces {
    marks: BTreeMap<u64, Mark>,
    looked_at_ms: u64,
}

impl Paces {
    /// Looks at all commands that have room; returns the slots of those that are too slow. Looks
    /// that are more than a window apart know nothing of what happened between them.
    pub fn slow(&mut self, holders: &[Holder], now_ms: u64, window_ms: u64) -> Vec<usize> {
        let is_fresh = now_ms.saturating_sub(self.looked_at_ms) <= window_ms;
        let seen = std::mem::take(&mut self.marks);
        self.looked_at_ms = now_ms;
        let mut slow = Vec::new();
        for holder in holders {
            let quarter_bytes = holder.room_bytes / PARTS;
            let before = seen.get(&holder.client_id).filter(|mark| {
                let is_same = mark.held_bytes <= holder.held_bytes;
                is_fresh && is_same && holder.held_bytes - mark.held_bytes < quarter_bytes
            });
            let mark = before
                .copied()
                .unwrap_or(Mark { held_bytes: holder.held_bytes, at_ms: holder.active_at_ms });
            if now_ms.saturating_sub(mark.at_ms) >= window_ms {
                slow.push(holder.slot);
            }
            self.marks.insert(holder.client_id, mark);
        }
        slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_MS: u64 = 1_000;
    const STEP_MS: u64 = 100;

    /// Looks each tenth of a window at one command of 400,000 bytes that grows by `bytes` each
    /// time; returns after how many looks it was too slow.
    fn looks_until_slow(bytes: u64) -> Option<u64> {
        let mut paces = Paces::default();
        (0..400_000 / bytes.max(1)).take(1_000).find(|look| {
            let now_ms = 1_000_000 + look * STEP_MS;
            let is_new = bytes > 0 || *look == 0;
            let holder = Holder {
                slot: 7,
                client_id: 3,
                held_bytes: look * bytes,
                room_bytes: 400_000,
                active_at_ms: if is_new { now_ms } else { 1_000_000 },
            };
            !paces.slow(&[holder], now_ms, WINDOW_MS).is_empty()
        })
    }

    #[test]
    fn a_command_that_arrives_within_four_windows_is_fast_enough() {
        assert_eq!(looks_until_slow(10_001), None);
        assert_eq!(looks_until_slow(100_000), None);
    }

    #[test]
    fn a_silent_client_and_one_that_sends_little_are_slow_after_a_window() {
        for bytes in [0, 1, 1_000, 9_000] {
            assert_eq!(looks_until_slow(bytes), Some(WINDOW_MS / STEP_MS), "{bytes}");
        }
    }

    #[test]
    fn a_client_that_was_silent_before_the_first_look_is_slow_at_once() {
        let silent =
            Holder { slot: 1, client_id: 1, held_bytes: 5, room_bytes: 100, active_at_ms: 1_000 };
        let fresh = Holder { slot: 2, client_id: 2, active_at_ms: 2_000, ..silent };
        assert_eq!(Paces::default().slow(&[silent, fresh], 2_000, WINDOW_MS), [1]);
    }

    #[test]
    fn the_next_command_and_the_next_client_begin_anew() {
        let mut paces = Paces::default();
        let first =
            Holder { slot: 1, client_id: 1, held_bytes: 50, room_bytes: 100, active_at_ms: 1_000 };
        assert!(paces.slow(&[first], 1_000, WINDOW_MS).is_empty());
        let next = Holder { held_bytes: 10, active_at_ms: 1_900, ..first };
        let other = Holder { client_id: 2, ..next };
        assert!(paces.slow(&[next], 1_900, WINDOW_MS).is_empty());
        assert!(
            paces.slow(&[next], 2_000, WINDOW_MS).is_empty(),
            "a window after the command before"
        );
        assert!(paces.slow(&[other], 2_100, WINDOW_MS).is_empty());
        assert_eq!(paces.slow(&[other], 2_900, WINDOW_MS), [1]);
    }
}
