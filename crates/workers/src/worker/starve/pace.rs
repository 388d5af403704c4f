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
//! P1: a command of which at least a quarter of its room arrives in each window is never too slow,
//!     and one of which less arrives is found to be so at the end of that window.
//! P2: a command that has waited for its room shows in the first quarter of its first window that
//!     there is more: a sixteenth of the room. Its client had time to fill its own buffers, so that
//!     silence now means that it has nothing to send.

use std::collections::BTreeMap;

/// The windows that a command may take: together the longest wait. The first window of one that has
/// waited has as many parts.
const PARTS: u64 = 4;

/// Looks that are this far apart still belong together, however short a window is.
const FRESH_MS_MAX: u64 = 1_000;

/// A half-sent command that holds room, or waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    /// Of its connection.
    pub slot: usize,
    /// Of its connection, never reused.
    pub client_id: u64,
    /// The bytes of the command that have arrived.
    pub held_bytes: u64,
    /// The bytes that its buffer takes.
    pub room_bytes: u64,
    /// The bytes that are booked for it as a large command.
    pub booked_bytes: u64,
    /// When bytes last arrived.
    pub active_at_ms: u64,
    /// Its connection is not read until there is room.
    pub is_waiting: bool,
    /// Its command could go on with what has arrived and is not read: its client is not slow.
    pub is_unread: bool,
}

/// What a look saw of a command that was fast enough until then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    held_bytes: u64,
    at_ms: u64,
    /// It waited for room then.
    is_waiting: bool,
    /// It has just got room (P2).
    is_first: bool,
}

impl Mark {
    /// What has to arrive of a room, and within which time.
    fn part(self, room_bytes: u64, window_ms: u64) -> (u64, u64) {
        let parts = if self.is_first { PARTS } else { 1 };
        (room_bytes / PARTS / parts, window_ms / parts)
    }
}

/// The commands that the last look saw, by their client.
#[derive(Debug, Default)]
pub(super) struct Paces {
    marks: BTreeMap<u64, Mark>,
    looked_at_ms: u64,
}

impl Paces {
    /// Looks at all commands that have room; returns the slots of those that are too slow. Looks
    /// that are far apart know nothing of what happened between them.
    pub fn slow(&mut self, holders: &[Holder], now_ms: u64, window_ms: u64) -> Vec<usize> {
        let is_fresh = now_ms.saturating_sub(self.looked_at_ms) <= window_ms.max(FRESH_MS_MAX);
        let seen = std::mem::take(&mut self.marks);
        self.looked_at_ms = now_ms;
        let mut slow = Vec::new();
        for holder in holders {
            let known = seen.get(&holder.client_id).copied().map(|mark| Mark {
                is_waiting: holder.is_waiting,
                is_first: (mark.is_first || mark.is_waiting) && !holder.is_waiting,
                ..mark
            });
            let before = known.filter(|mark| {
                let (part_bytes, _) = mark.part(holder.room_bytes, window_ms);
                let is_same = mark.held_bytes <= holder.held_bytes;
                let is_behind = holder.held_bytes.saturating_sub(mark.held_bytes) < part_bytes;
                is_fresh && is_same && is_behind && !holder.is_unread
            });
            // A connection that waits is not read: its last bytes may be older than its client's.
            let began_at_ms = if holder.is_waiting { now_ms } else { holder.active_at_ms };
            let mark = before.unwrap_or(Mark {
                held_bytes: holder.held_bytes,
                at_ms: began_at_ms,
                is_waiting: holder.is_waiting,
                is_first: false,
            });
            let (_, part_ms) = mark.part(holder.room_bytes, window_ms);
            if now_ms.saturating_sub(mark.at_ms) >= part_ms {
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
                booked_bytes: 0,
                active_at_ms: if is_new { now_ms } else { 1_000_000 },
                is_waiting: false,
                is_unread: false,
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
        let silent = Holder {
            slot: 1,
            client_id: 1,
            held_bytes: 5,
            room_bytes: 100,
            booked_bytes: 0,
            active_at_ms: 1_000,
            is_waiting: false,
            is_unread: false,
        };
        let fresh = Holder { slot: 2, client_id: 2, active_at_ms: 2_000, ..silent };
        assert_eq!(Paces::default().slow(&[silent, fresh], 2_000, WINDOW_MS), [1]);
    }

    #[test]
    fn a_client_whose_bytes_are_not_read_is_not_slow() {
        let mut paces = Paces::default();
        let waiting = Holder {
            slot: 1,
            client_id: 1,
            held_bytes: 50,
            room_bytes: 100,
            booked_bytes: 0,
            active_at_ms: 0,
            is_waiting: true,
            is_unread: true,
        };
        for now_ms in (1_000..9_000).step_by(100) {
            assert!(paces.slow(&[waiting], now_ms, WINDOW_MS).is_empty(), "{now_ms}");
        }
        // From then on it sends nothing.
        let silent = Holder { is_unread: false, ..waiting };
        assert!(paces.slow(&[silent], 9_000, WINDOW_MS).is_empty());
        assert_eq!(paces.slow(&[silent], 9_900, WINDOW_MS), [1]);
    }

    #[test]
    fn a_client_that_waited_and_has_nothing_more_is_slow_after_a_part_of_a_window() {
        let waiting = Holder {
            slot: 1,
            client_id: 1,
            held_bytes: 70_000,
            room_bytes: 0,
            booked_bytes: 0,
            active_at_ms: 0,
            is_waiting: true,
            is_unread: true,
        };
        let fed = Holder { room_bytes: 600_000, is_waiting: false, is_unread: false, ..waiting };
        let slow_at = |held_bytes: fn(u64) -> u64| {
            let mut paces = Paces::default();
            assert!(paces.slow(&[waiting], 5_000, WINDOW_MS).is_empty());
            let mut last = fed;
            (1..40).map(|look| look * STEP_MS).find(|after_ms| {
                let held_bytes = fed.held_bytes + held_bytes(*after_ms);
                if held_bytes > last.held_bytes {
                    last = Holder { held_bytes, active_at_ms: 5_000 + after_ms, ..last };
                }
                !paces.slow(&[last], 5_000 + after_ms, WINDOW_MS).is_empty()
            })
        };
        assert_eq!(slow_at(|_| 0), Some(300));
        assert_eq!(slow_at(|after_ms| after_ms * 10), Some(300), "too little");
        assert_eq!(slow_at(|_| 40_000), Some(1_100), "a window from its last bytes on");
        assert_eq!(slow_at(|after_ms| after_ms * 200), None);
    }

    #[test]
    fn the_next_command_and_the_next_client_begin_anew() {
        let mut paces = Paces::default();
        let first = Holder {
            slot: 1,
            client_id: 1,
            held_bytes: 50,
            room_bytes: 100,
            booked_bytes: 0,
            active_at_ms: 1_000,
            is_waiting: false,
            is_unread: false,
        };
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
