//! A worker's turn: its number, its cost so far, and how much of long commands and replies it
//! moves.
//!
//! The rules W1 to W5 are those of `commands::work`.

use commands::work::{LongReads, Work};

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
    /// Bytes of long replies sent in this turn.
    sent_when_spent_bytes: usize,
    /// Bytes of long commands that the turn has read (W5).
    read_long_bytes: usize,
    /// How much of them it may read.
    long_reads: LongReads,
    has_left_unread: bool,
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
            sent_when_spent_bytes: 0,
            read_long_bytes: 0,
            long_reads: Work::default().long_reads_behind(),
            has_left_unread: false,
            charged_parsed_bytes: 0,
        }
    }
}

impl Turn {
    /// Begins the next one.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.number += 1;
        self.long_reads = self.work.long_reads_behind();
        self.work = Work::default();
        self.sent_when_spent_bytes = 0;
        self.read_long_bytes = 0;
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

    /// Bytes of one long reply that may be sent (W3).
    pub fn send_bytes_max(&self) -> usize {
        self.work.send_bytes_max(self.sent_when_spent_bytes)
    }

    /// Counts the sent bytes of a long reply (W3).
    pub(super) fn note_sent(&mut self, sent_bytes: u64) {
        if self.work.is_spent() {
            self.sent_when_spent_bytes += sent_bytes as usize;
        }
    }

    /// Bytes of one long command that may be read (W5); 0: it is read in a later turn.
    pub fn read_bytes_max(&mut self) -> usize {
        let LongReads { each_bytes, all_bytes } = self.long_reads;
        let left_bytes = all_bytes.saturating_sub(self.read_long_bytes);
        self.has_left_unread |= left_bytes == 0;
        left_bytes.min(each_bytes)
    }

    /// Counts the bytes of a long command that were read (W5). They are charged when it is parsed:
    /// small commands that were read in the same turn do not wait for them.
    pub fn note_read_long(&mut self, read_bytes: usize) {
        self.read_long_bytes += read_bytes;
    }

    /// Whether a long command was left unread.
    #[inline]
    pub fn has_left_unread(&self) -> bool {
        self.has_left_unread
    }

    /// The same since the last call.
    pub fn take_left_unread(&mut self) -> bool {
        std::mem::take(&mut self.has_left_unread)
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
