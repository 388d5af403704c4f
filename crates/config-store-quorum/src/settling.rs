//! A member without a file: what it must know before it takes part.
//!
//! ```text
//!  no file ── Ask to all others, until all have answered ──▶ all are new       ─▶ founds, empty
//!                                                        ──▶ it is a founder   ─▶ empty
//!                                                        ──▶ it lost its file  ─▶ newest state
//! ```
//!
//! A file may be missing because this is the first start, or because a disk or a container was
//! replaced. In the second case the member may have promised something that it no longer knows, and
//! must not help a majority that forgets it.
//!
//! # Invariants
//! S1: a member without a file promises and accepts nothing before each other member has answered
//!     this start of it.
//! S2: members found a quorum only if none of them has a file; each writes the starts of all. A
//!     founder that is slower than the others finds its own start in the list of each that has a
//!     file.
//! S3: a member that lost its file takes the highest promise and the newest log of all others. A
//!     leader that it promised something is one of them. At least a majority of the quorum must
//!     have files: otherwise a decided entry may be gone, and the member waits.

use serde::{Deserialize, Serialize};

use crate::log::{Change, State};

/// Another member's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Its present start.
    pub(crate) start: u64,
    /// Its state; none if it has no file either.
    pub(crate) changes: Option<Vec<Change>>,
}

/// The answers so far.
#[derive(Debug)]
pub(crate) struct Settling {
    own: usize,
    start: u64,
    known: Vec<Option<Known>>,
}

impl Settling {
    pub(crate) fn new(own: usize, start: u64, members: usize) -> Settling {
        Settling { own, start, known: (0..members).map(|_| None).collect() }
    }

    /// The other members. All are asked again, for a state changes while others are waited for.
    pub(crate) fn asked(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.known.len()).filter(|member| *member != self.own)
    }

    /// The members that have not answered.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        self.asked().filter(|member| self.known[*member].is_none())
    }

    pub(crate) fn hear(&mut self, from: usize, known: Known) {
        if let Some(slot) = self.known.get_mut(from).filter(|_| from != self.own) {
            *slot = Some(known);
        }
    }

    /// How many of the others have files, once all have answered.
    pub(crate) fn files(&self) -> Option<usize> {
        let has_file = |known: &&Known| known.changes.is_some();
        let files = self.known.iter().flatten().filter(has_file).count();
        self.missing().next().is_none().then_some(files)
    }

    /// The state to take part with; none if not all have answered, or too few have files (S3).
    pub(crate) fn settled(&self) -> Option<State> {
        if self.missing().next().is_some() {
            return None; // S1
        }
        let known: Vec<&Known> = self.known.iter().flatten().collect();
        let changes = known.iter().filter_map(|known| known.changes.clone());
        let sound = |changes| State::of(changes).filter(State::is_sound);
        let states: Vec<State> = changes.map(sound).collect::<Option<_>>()?;
        let is_founder = |state: &State| state.founders().get(self.own) == Some(&self.start);
        if states.is_empty() {
            let start_of =
                |at: usize| self.known[at].as_ref().map_or(self.start, |known| known.start);
            let founders = (0..self.known.len()).map(start_of).collect();
            return Some(State::founded(founders)); // S2
        }
        if states.iter().all(is_founder) {
            let founders = states.first().map_or_else(Vec::new, |state| state.founders().to_vec());
            return Some(State::founded(founders)); // S2
        }
        if states.len() <= self.known.len() / 2 {
            return None; // S3
        }
        State::newest(states)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{self, Command, Entry, Origin};
    use cluster::config_store::SessionId;

    fn command() -> Command {
        let origin = Origin { member: 0, start: 1 };
        Command { origin, ticket: 1, change: command::Change::Close(SessionId(1)) }
    }

    fn new(start: u64) -> Known {
        Known { start, changes: None }
    }

    fn with(start: u64, state: &State) -> Known {
        Known { start, changes: Some(state.changes()) }
    }

    /// Member 0, at start 10, of three.
    fn settled(one: Known, two: Known) -> Option<State> {
        let mut settling = Settling::new(0, 10, 3);
        assert_eq!(settling.settled(), None);
        settling.hear(1, one);
        assert_eq!(settling.settled(), None, "S1: member 2 is missing");
        settling.hear(2, two);
        settling.settled()
    }

    fn decided(index: usize, founders: &[u64]) -> State {
        let entries = (0..index).map(|at| Entry::new(&command()).at(at)).collect();
        let founded = Change::Founded(founders.to_vec());
        State::of(vec![Change::Append(entries), Change::Decided(index), founded]).unwrap()
    }

    #[test]
    fn members_without_files_found_a_quorum() {
        assert_eq!(settled(new(20), new(30)), Some(State::founded(vec![10, 20, 30])));
    }

    #[test]
    fn a_slow_founder_takes_part_at_once() {
        let founded = State::founded(vec![10, 20, 30]);
        assert_eq!(settled(with(20, &founded), new(30)), Some(founded.clone()));
        let later = decided(3, &[10, 20, 30]);
        assert_eq!(settled(with(20, &later), with(31, &founded)), Some(founded));
    }

    #[test]
    fn a_member_that_lost_its_file_takes_the_newest_log() {
        let (older, newer) = (decided(3, &[9, 20, 30]), decided(5, &[9, 20, 30]));
        assert_eq!(settled(with(20, &older), with(30, &newer)), Some(newer.clone()));
        // One list of founders does not count against another one.
        let other = decided(4, &[10, 20, 31]);
        assert_eq!(settled(with(20, &other), with(30, &newer)), Some(newer));
    }

    #[test]
    fn members_that_lost_a_majority_of_files_wait() {
        let old = decided(3, &[9, 20, 30]);
        assert_eq!(settled(with(20, &old), new(31)), None);
    }

    #[test]
    fn a_state_that_does_not_fit_is_no_missing_file() {
        let known = Known { start: 20, changes: Some(vec![Change::Decided(4)]) };
        assert_eq!(settled(known, new(30)), None);
    }
}
