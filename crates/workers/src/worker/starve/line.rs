//! The line of commands that wait for room in the client buffers: which of them gets the next.
//!
//! ```text
//!  waited for a look or two ─▶ the one that lacks least   ─┐ by turns, one each look
//!  waited for a quarter     ─▶ the one that waits longest ─┴▶ head: free room is put aside
//!  waited for all of it     ─▶ refused
//! ```
//!
//! The shortest first keeps most waits short, and the oldest first keeps each of them bounded:
//! among many that are shorter, a long command would find no room at all (decision 0102).
//!
//! # Invariants
//! L1: a head that waits longest stays the head until it is fed, refused or gone.

use std::time::Duration;

/// A command that waits for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Of its connection.
    pub slot: usize,
    /// Of its connection, never reused.
    pub client_id: u64,
    /// The room that it has.
    pub has_bytes: u64,
    /// The room that it still lacks, as far as that is known.
    pub missing_bytes: u64,
    /// How long it has waited, in all.
    pub waited: Duration,
}

impl Waiting {
    /// What it is taken to lack. A command of known length gets its room as a whole, so one that
    /// has a part of it asks only for its next part, and may end anywhere: it is taken to be as
    /// long again.
    fn lacks_bytes(&self) -> u64 {
        self.missing_bytes.max(self.has_bytes)
    }
}

/// The command that room is put aside for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Of its connection.
    pub slot: usize,
    /// Of its connection.
    pub client_id: u64,
    /// Whether it was chosen for how long it has waited, and not for how little it lacks.
    pub is_oldest: bool,
}

/// The times after which a command that waits may become the head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// As the one that lacks least.
    pub short: Duration,
    /// As the one that waits longest.
    pub long: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Line {
    head: Option<Head>,
    /// The last head was the oldest, so that the next look takes the shortest.
    was_oldest: bool,
}

impl Line {
    /// The present head.
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// The head was fed, or needs no room any more.
    pub fn leave(&mut self, slot: usize) {
        if let Some(head) = self.head.take_if(|head| head.slot == slot) {
            self.was_oldest = head.is_oldest;
        }
    }

    /// Chooses the head of those that wait now.
    pub fn choose(&mut self, waiting: &[Waiting], patience: Patience) {
        let is_head = |head: Head| waiting.iter().any(|it| it.client_id == head.client_id);
        if let Some(head) = self.head.filter(|head| head.is_oldest) {
            if is_head(head) {
                return; // L1.
            }
            self.leave(head.slot);
        }
        let shortest = waiting.iter().filter(|it| it.waited >= patience.short);
        let shortest = shortest.min_by_key(|it| (it.lacks_bytes(), it.slot));
        let oldest = waiting.iter().filter(|it| it.waited >= patience.long);
        let oldest = oldest.max_by_key(|it| it.waited);
        let is_turn_of_short = std::mem::take(&mut self.was_oldest);
        let (chosen, is_oldest) = match (oldest, shortest) {
            (Some(oldest), _) if !is_turn_of_short => (Some(oldest), true),
            (_, shortest) => (shortest, false),
        };
        self.head = chosen.map(|it| Head { slot: it.slot, client_id: it.client_id, is_oldest });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { short: Duration::from_millis(300), long: Duration::from_millis(1_250) };

    fn waiting(slot: usize, missing_bytes: u64, waited_ms: u64) -> Waiting {
        let waited = Duration::from_millis(waited_ms);
        Waiting { slot, client_id: slot as u64 + 1, has_bytes: 0, missing_bytes, waited }
    }

    fn chosen(line: &mut Line, waiting: &[Waiting]) -> Option<(usize, bool)> {
        line.choose(waiting, PATIENCE);
        line.head().map(|head| (head.slot, head.is_oldest))
    }

    #[test]
    fn a_command_that_came_just_now_is_no_head() {
        let mut line = Line::default();
        assert_eq!(chosen(&mut line, &[waiting(1, 10, 100)]), None);
        assert_eq!(chosen(&mut line, &[waiting(1, 10, 300)]), Some((1, false)));
    }

    #[test]
    fn a_shorter_command_takes_the_place_of_a_short_one() {
        let mut line = Line::default();
        let long = waiting(1, 1_000, 400);
        assert_eq!(chosen(&mut line, &[long]), Some((1, false)));
        assert_eq!(chosen(&mut line, &[long, waiting(2, 10, 300)]), Some((2, false)));
    }

    /// Otherwise each look would refuse a long command to feed another a step of its unknown
    /// length.
    #[test]
    fn a_command_that_has_a_part_is_taken_to_lack_as_much_again() {
        let mut line = Line::default();
        let part = Waiting { has_bytes: 300, ..waiting(1, 10, 400) };
        let known = waiting(2, 200, 400);
        assert_eq!(chosen(&mut line, &[part, known]), Some((2, false)));
        assert_eq!(chosen(&mut line, &[part, waiting(2, 400, 400)]), Some((1, false)));
    }

    #[test]
    fn the_oldest_is_head_until_it_is_fed_and_then_the_shortest_has_a_turn() {
        let mut line = Line::default();
        let all = [waiting(1, 1_000, 2_000), waiting(2, 10, 1_300), waiting(3, 500, 1_900)];
        assert_eq!(chosen(&mut line, &all), Some((1, true)));
        assert_eq!(chosen(&mut line, &all), Some((1, true)), "it stays");
        line.leave(2);
        assert_eq!(line.head().map(|head| head.slot), Some(1), "another one's end is not its own");
        line.leave(1);
        assert_eq!(chosen(&mut line, &all[1..]), Some((2, false)));
        assert_eq!(chosen(&mut line, &all[1..]), Some((3, true)), "one look for the shortest");
    }

    #[test]
    fn a_head_that_is_gone_leaves_its_place() {
        let mut line = Line::default();
        assert_eq!(chosen(&mut line, &[waiting(1, 10, 1_300)]), Some((1, true)));
        let other = Waiting { client_id: 9, ..waiting(1, 10, 400) };
        assert_eq!(chosen(&mut line, &[other]), Some((1, false)));
        assert_eq!(chosen(&mut line, &[]), None);
    }
}
