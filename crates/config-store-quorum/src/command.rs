//! The entries of the log, and their effect on the contents.

use std::sync::Arc;

use cluster::config_store::{Answer, Contents, Request, Response, SessionId};
use omnipaxos::storage::{Entry as LogEntry, Snapshot as LogSnapshot};
use serde::{Deserialize, Serialize};

/// One change, and the member that proposed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Command {
    /// One start of one member; it answers the client.
    pub(crate) origin: Origin,
    /// The member's number for the client's request.
    pub(crate) ticket: u64,
    pub(crate) change: Change,
}

/// One start of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) member: u64,
    pub(crate) start: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// A client's request.
    Request(Request),
    /// The end of a silent session, if it made no further request (Q3).
    End { session: SessionId, requests: u64 },
    /// The end of a session by its client.
    Close(SessionId),
}

/// An encoded command, and its place once it has one. One that this release cannot read changes
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The index in the log, as the log returns it; of a proposal 0.
    index: u64,
    bytes: Arc<[u8]>,
}

impl Entry {
    pub(crate) fn new(command: &Command) -> Entry {
        // A command has only numbers, bytes and enums, which postcard can always represent.
        Entry { index: 0, bytes: postcard::to_stdvec(command).unwrap_or_default().into() }
    }

    /// The same entry at its place.
    pub(crate) fn at(&self, index: usize) -> Entry {
        Entry { index: index as u64, bytes: self.bytes.clone() }
    }

    pub(crate) fn command(&self) -> Option<Command> {
        postcard::from_bytes(&self.bytes).ok()
    }
}

impl LogEntry for Entry {
    type Snapshot = Snapshot;
}

/// Applies a command (Q2). Its own response comes last in `responses`, if it has one; those before
/// it are notifications.
pub(crate) fn apply(contents: &mut Contents, change: Change, responses: &mut Vec<Response>) {
    match change {
        Change::Request(request) => contents.input(request, responses),
        Change::End { session, requests } => {
            if contents.session(session).is_some_and(|one| one.requests == requests) {
                contents.end(session, responses);
            }
        }
        Change::Close(session) => {
            contents.end(session, responses);
            let (session, answer) = (Some(session), Answer::Expired);
            responses.push(Response { session, id: 0, answer });
        }
    }
}

/// The effect of a part of the log: the contents after a number of entries, and the entries behind
/// them. Without contents it is a difference, which begins at the index of its first entry.
///
/// Omnipaxos puts snapshots and differences together by numbers that it has already moved on; each
/// entry's own index tells what is missing and what is there twice (decision 0116).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// The contents, and the number of entries that they are made of.
    base: Option<(u64, Contents)>,
    entries: Vec<Entry>,
    /// Whether entries are missing between two of its parts.
    has_gap: bool,
}

impl Snapshot {
    /// The index behind its last entry.
    fn end(&self) -> u64 {
        let count = self.entries.len() as u64;
        match (&self.base, self.entries.first()) {
            (Some((base, _)), _) => base.saturating_add(count),
            (None, Some(first)) => first.index.saturating_add(count),
            (None, None) => 0,
        }
    }

    fn push(&mut self, entry: Entry) {
        match entry.index.cmp(&self.end()) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.entries.push(entry),
            std::cmp::Ordering::Greater if self.base.is_none() && self.entries.is_empty() => {
                self.entries.push(entry);
            }
            std::cmp::Ordering::Greater => self.has_gap = true,
        }
    }

    /// The contents after that many entries; none if this is not a snapshot of so many.
    pub(crate) fn contents_at(self, count: usize) -> Option<Contents> {
        let is_whole = self.base.is_some() || self.entries.first().is_none_or(|one| one.index == 0);
        if self.has_gap || !is_whole || self.end() != count as u64 {
            return None;
        }
        let mut contents = self.base.map(|(_, contents)| contents).unwrap_or_default();
        let mut responses = Vec::new();
        for command in self.entries.iter().filter_map(Entry::command) {
            apply(&mut contents, command.change, &mut responses);
            responses.clear();
        }
        Some(contents)
    }

    /// The same snapshot without entries; none if it is not one of so many.
    pub(crate) fn folded(self, count: usize) -> Option<Snapshot> {
        let contents = self.contents_at(count)?;
        Some(Snapshot { base: Some((count as u64, contents)), ..Snapshot::default() })
    }
}

impl LogSnapshot<Entry> for Snapshot {
    fn create(entries: &[Entry]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        entries.iter().cloned().for_each(|entry| snapshot.push(entry));
        snapshot
    }

    fn merge(&mut self, delta: Snapshot) {
        match delta.base {
            Some(_) => *self = delta,
            None => {
                self.has_gap |= delta.has_gap;
                delta.entries.into_iter().for_each(|entry| self.push(entry));
            }
        }
    }

    fn use_snapshots() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::config_store::Ask;

    fn entries(indices: std::ops::Range<usize>) -> Vec<Entry> {
        let entry = |index: usize| {
            let ask = Ask::Open { timeout_ns: 1 };
            let request = Request { session: None, id: index as u64, ask };
            let origin = Origin { member: 0, start: 1 };
            let command = Command { origin, ticket: 1, change: Change::Request(request) };
            Entry::new(&command).at(index)
        };
        indices.map(entry).collect()
    }

    fn sessions(snapshot: &Snapshot, count: usize) -> Option<usize> {
        Some(snapshot.clone().contents_at(count)?.sessions().count())
    }

    #[test]
    fn parts_are_joined_by_their_indices() {
        let mut snapshot = Snapshot::create(&entries(0..5));
        assert_eq!(sessions(&snapshot, 5), Some(5));
        assert_eq!(sessions(&snapshot, 6), None, "one is missing");
        snapshot.merge(Snapshot::create(&entries(3..8)));
        assert_eq!(sessions(&snapshot, 8), Some(8), "what is there twice counts once");
        let mut folded = snapshot.folded(8).unwrap();
        folded.merge(Snapshot::create(&entries(8..9)));
        assert_eq!(sessions(&folded, 9), Some(9));
        folded.merge(Snapshot::create(&entries(10..11)));
        assert_eq!(sessions(&folded, 10), None, "9 is missing");
        assert_eq!(sessions(&Snapshot::create(&entries(1..3)), 3), None, "0 is missing");
        assert_eq!(sessions(&Snapshot::default(), 0), Some(0));
    }
}
