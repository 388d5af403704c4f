//! A lane: the source of the next operation for a connection, or for a thread of the embedded
//! store.

use workload::{Cursor, Entry, Operation};

use crate::apart::Takes;

/// One walker of the trace, with the keys that it inserts.
///
/// Lane `l` of `n` inserts the ids with remainder `l`, so that it alone knows which of them exist:
/// all up to its last *answered* insert.
pub(crate) struct Lane<'a> {
    cursor: Cursor<'a>,
    lane: u64,
    lane_count: u64,
    /// Inserts that this lane has sent, including the initial keys.
    sent_count: u64,
    /// The answered ones of these.
    stored_count: u64,
    takes: Takes<'a>,
}

/// An operation on a key that the lane has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Read(u64),
    Update(u64),
    Insert(u64),
    ReadModifyWrite(u64),
    /// Reads this many keys from this one on.
    Scan {
        id: u64,
        keys: u64,
    },
}

impl Step {
    /// The key's id.
    #[inline]
    pub(crate) fn id(self) -> u64 {
        match self {
            Step::Read(id) | Step::Update(id) | Step::Insert(id) | Step::ReadModifyWrite(id) => id,
            Step::Scan { id, .. } => id,
        }
    }
}

impl<'a> Lane<'a> {
    pub(crate) fn new(
        cursor: Cursor<'a>,
        lane: usize,
        lane_count: usize,
        key_count: u64,
        takes: Takes<'a>,
    ) -> Lane<'a> {
        let (lane, lane_count) = (lane as u64, lane_count as u64);
        let initial_count = key_count.saturating_sub(lane).div_ceil(lane_count);
        let (sent_count, stored_count) = (initial_count, initial_count);
        Lane { cursor, lane, lane_count, sent_count, stored_count, takes }
    }

    /// The next operation.
    #[inline]
    pub(crate) fn advance(&mut self) -> Step {
        loop {
            let step = self.advance_any();
            if self.takes.has(step.id()) {
                return step;
            }
        }
    }

    #[inline]
    fn advance_any(&mut self) -> Step {
        match self.cursor.advance() {
            Operation::Read(id) => Step::Read(id),
            Operation::Update(id) => Step::Update(id),
            Operation::ReadModifyWrite(id) => Step::ReadModifyWrite(id),
            Operation::ReadLatest(back) => {
                // The key that is `back` inserts old among all lanes is about this old in one.
                let back = back / self.lane_count;
                let newest = self.stored_count.saturating_sub(1);
                Step::Read(self.id(newest.saturating_sub(back)))
            }
            Operation::Scan { id, keys } => Step::Scan { id, keys },
            Operation::Insert => {
                self.sent_count += 1;
                Step::Insert(self.id(self.sent_count - 1))
            }
        }
    }

    /// The next trace entries unchanged, at most `max`: for mixes of reads and updates, whose keys
    /// are the trace's.
    #[inline]
    pub(crate) fn entries(&mut self, max: usize) -> &[Entry] {
        self.cursor.advance_many(max)
    }

    /// A further key of a multi-get.
    pub(crate) fn advance_id(&mut self) -> u64 {
        loop {
            let id = self.cursor.advance_id();
            if self.takes.has(id) {
                return id;
            }
        }
    }

    /// Records the answer to the oldest unanswered insert. (Replies keep a connection's order.)
    pub(crate) fn inserted(&mut self) {
        debug_assert!(self.stored_count < self.sent_count);
        self.stored_count += 1;
    }

    fn id(&self, index: u64) -> u64 {
        self.lane + self.lane_count * index
    }
}

#[cfg(test)]
mod tests {
    use workload::{Profile, Trace};

    use super::*;

    #[test]
    fn latest_reads_never_pass_the_last_answered_insert() {
        let profile: Profile = "ycsb-d".parse().unwrap();
        let trace = Trace::draw(&profile.draw(100, 1), 10_000);
        let mut lane = Lane::new(trace.cursor(1, 3), 1, 3, 100, Takes::All);
        let (mut newest, mut waiting) = (97, std::collections::VecDeque::new());
        for round in 0..10_000 {
            match lane.advance() {
                Step::Insert(id) => {
                    assert_eq!(id % 3, 1);
                    assert!(id >= 100);
                    waiting.push_back(id);
                }
                Step::Read(id) => assert!(id <= newest && id % 3 == 1, "{id} after {newest}"),
                other => panic!("{other:?} is not in the mix"),
            }
            if round % 7 == 0
                && let Some(id) = waiting.pop_front()
            {
                lane.inserted();
                newest = id;
            }
        }
        assert!(newest > 300, "inserts go on: {newest}");
    }
}
