//! A worker's turn: its number and its cost so far.
//!
//! The rules W1 to W4 are those of `commands::work`.

use commands::work::Work;

/// The turn of a worker.
#[derive(Debug)]
pub struct Turn {
    number: u64,
    /// The cost so far.
    pub(super) work: Work,
    /// At this many units, the connection that is being fed begins no further command: its part, or
    /// the turn, is spent.
    part_end_units: u64,
    /// Whether other connections are fed in the same turn.
    is_beside_others: bool,
    /// Bytes of the gathering's long commands, which were charged as they were parsed.
    charged_parsed_bytes: u64,
}

impl Default for Turn {
    /// Before the first one.
    fn default() -> Turn {
        Turn {
            number: 0,
            work: Work::default(),
            part_end_units: 0,
            is_beside_others: false,
            charged_parsed_bytes: 0,
        }
    }
}

impl Turn {
    /// Begins the next one.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.number += 1;
        self.work = Work::default();
        self.part_end_units = self.work.end_of_part(true);
    }

    /// Begins a connection's part of it.
    #[inline]
    pub(super) fn begin_part(&mut self, is_alone: bool) {
        self.part_end_units = self.work.end_of_part(is_alone);
        self.is_beside_others = !is_alone;
    }

    /// Counts work. Returns whether the part of the connection that is being fed is spent.
    #[inline]
    pub(super) fn add(&mut self, work: Work) -> bool {
        self.work += work;
        self.work.all_units() >= self.part_end_units
    }

    /// Its number.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the connection that is being fed shares the turn with others.
    #[inline]
    pub fn is_beside_others(&self) -> bool {
        self.is_beside_others
    }

    /// Notes bytes that are charged before the others of their connection are.
    pub(super) fn note_charged(&mut self, command_bytes: u64) {
        self.charged_parsed_bytes += command_bytes;
    }

    /// Of so many parsed bytes, those that are not charged yet.
    #[inline]
    pub(super) fn take_uncharged(&mut self, consumed_bytes: u64) -> u64 {
        consumed_bytes.saturating_sub(std::mem::take(&mut self.charged_parsed_bytes))
    }
}
