//! A member's log in memory. Each change is noted for the journal as well.
//!
//! ```text
//!  omnipaxos ─ append, promise, ... ─▶ Log ── changes since the last time ─▶ journal
//!       index:   0 ........ compacted ........ decided ........ accepted
//!                └ snapshot ┘└ entries ─────────────────────────┘
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::storage::{StopSign, Storage, StorageOp, StorageResult};
use serde::{Deserialize, Serialize};

use crate::command::{Entry, Snapshot};

/// A change of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Change {
    Append(Vec<Entry>),
    /// Entries from this index on are replaced.
    Replace(usize, Vec<Entry>),
    Promise(Ballot),
    Accepted(Ballot),
    Decided(usize),
    /// Entries below this index are dropped.
    Trim(usize),
    Compacted(usize),
    Snapshot(Option<Snapshot>),
    /// The starts of all members that founded the quorum.
    Founded(Vec<u64>),
}

impl Change {
    /// Whether a member that forgot this change could break what it has told others. That an entry
    /// is decided can be found out again.
    fn is_promise(&self) -> bool {
        !matches!(self, Change::Decided(_))
    }
}

/// The state of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    promise: Option<Ballot>,
    accepted: Option<Ballot>,
    decided: usize,
    compacted: usize,
    snapshot: Option<Snapshot>,
    entries: Vec<Entry>,
    /// The starts of all members that founded the quorum; empty in a member that has not settled.
    founders: Vec<u64>,
}

impl State {
    /// The state of a founder.
    pub(crate) fn founded(founders: Vec<u64>) -> State {
        State { founders, ..State::default() }
    }

    /// The state that these changes make; none if they do not fit.
    pub(crate) fn of(changes: Vec<Change>) -> Option<State> {
        let mut state = State::default();
        changes.into_iter().all(|change| state.change(change)).then_some(state)
    }

    /// The starts of all members that founded the quorum.
    pub(crate) fn founders(&self) -> &[u64] {
        &self.founders
    }

    /// A state that breaks no promise of one of these, and has the newest log among them (S3 of
    /// `settling`).
    pub(crate) fn newest(states: Vec<State>) -> Option<State> {
        let promise = states.iter().filter_map(|state| state.promise).max();
        let decided = states.iter().map(|state| state.decided).max();
        let newest = states.into_iter().max_by_key(|state| (state.accepted, state.last()))?;
        // An index that is decided somewhere is decided, and the newest log has its entry.
        let decided = decided.unwrap_or_default().min(newest.last());
        Some(State { promise, decided, ..newest })
    }

    /// Whether its parts fit together, as they do in every state that a member wrote.
    pub(crate) fn is_sound(&self) -> bool {
        let has_snapshot = self.snapshot.is_some() == (self.compacted > 0);
        !self.founders.is_empty()
            && has_snapshot
            && (self.compacted..=self.last()).contains(&self.decided)
    }

    /// The number of entries from the beginning of the log.
    fn last(&self) -> usize {
        self.compacted.saturating_add(self.entries.len())
    }

    /// Applies a change. Returns false, and changes nothing, if it does not fit.
    pub(crate) fn change(&mut self, change: Change) -> bool {
        match change {
            Change::Append(entries) => self.entries.extend(entries),
            Change::Replace(from, entries) => {
                let Some(kept) = from.checked_sub(self.compacted) else { return false };
                if kept > self.entries.len() {
                    return false;
                }
                self.entries.truncate(kept);
                self.entries.extend(entries);
            }
            Change::Promise(ballot) => self.promise = Some(ballot),
            Change::Accepted(ballot) => self.accepted = Some(ballot),
            Change::Decided(index) => self.decided = index,
            Change::Trim(index) => {
                let dropped = index.saturating_sub(self.compacted).min(self.entries.len());
                self.entries.drain(..dropped);
            }
            Change::Compacted(index) => self.compacted = index,
            Change::Snapshot(None) => self.snapshot = None,
            Change::Snapshot(Some(snapshot)) => {
                let Some(folded) = snapshot.folded(self.compacted) else { return false };
                self.snapshot = Some(folded);
            }
            Change::Founded(founders) => self.founders = founders,
        }
        true
    }

    /// The changes that make this state of an empty one.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let mut changes = vec![
            Change::Compacted(self.compacted),
            Change::Snapshot(self.snapshot.clone()),
            Change::Append(self.entries.clone()),
            Change::Decided(self.decided),
            Change::Founded(self.founders.clone()),
        ];
        changes.extend(self.promise.map(Change::Promise));
        changes.extend(self.accepted.map(Change::Accepted));
        changes
    }
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    /// Changes that the journal does not have.
    unwritten: Vec<Change>,
}

/// The log, shared by omnipaxos and the member that writes its journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Inner>>);

/// What is to be written to the journal.
#[derive(Debug, PartialEq)]
pub(crate) struct Unwritten {
    pub(crate) changes: Vec<Change>,
    /// Whether it must be on the disk before anything is sent (Q1).
    pub(crate) is_promise: bool,
    /// Whether a snapshot replaced entries, so that the journal is better written anew.
    pub(crate) is_compacted: bool,
}

impl Log {
    pub(crate) fn new(state: State) -> Log {
        Log(Arc::new(Mutex::new(Inner { state, unwritten: Vec::new() })))
    }

    /// The changes since the last call.
    pub(crate) fn take(&self) -> Unwritten {
        let changes = std::mem::take(&mut self.lock().unwritten);
        let is_promise = changes.iter().any(Change::is_promise);
        let is_compacted = changes.iter().any(|change| matches!(change, Change::Snapshot(_)));
        Unwritten { changes, is_promise, is_compacted }
    }

    /// The whole state, for a journal that is written anew or a member without one.
    pub(crate) fn whole(&self) -> Vec<Change> {
        self.lock().state.changes()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: Change) -> StorageResult<()> {
        let mut inner = self.lock();
        if !inner.state.change(change.clone()) {
            return Err("a part of the log is missing".into());
        }
        inner.unwritten.push(change);
        Ok(())
    }

    /// Entries with their indices; none if the first is not there.
    fn range(&self, from: usize, to: usize) -> Vec<Entry> {
        let inner = self.lock();
        let State { compacted, entries, .. } = &inner.state;
        let Some(skipped) = from.checked_sub(*compacted) else { return Vec::new() };
        let count = to.saturating_sub(from);
        let range = entries.iter().skip(skipped).take(count).enumerate();
        range.map(|(offset, entry)| entry.at(from + offset)).collect()
    }
}

impl Storage<Entry> for Log {
    fn write_atomically(&mut self, changes: Vec<StorageOp<Entry>>) -> StorageResult<()> {
        for change in changes {
            match change {
                StorageOp::AppendEntry(entry) => self.append_entry(entry)?,
                StorageOp::AppendEntries(entries) => self.append_entries(entries)?,
                StorageOp::AppendOnPrefix(from, entries) => self.append_on_prefix(from, entries)?,
                StorageOp::SetPromise(ballot) => self.set_promise(ballot)?,
                StorageOp::SetDecidedIndex(index) => self.set_decided_idx(index)?,
                StorageOp::SetAcceptedRound(ballot) => self.set_accepted_round(ballot)?,
                StorageOp::SetCompactedIdx(index) => self.set_compacted_idx(index)?,
                StorageOp::Trim(index) => self.trim(index)?,
                StorageOp::SetStopsign(sign) => self.set_stopsign(sign)?,
                StorageOp::SetSnapshot(snapshot) => self.set_snapshot(snapshot)?,
            }
        }
        Ok(())
    }

    fn append_entry(&mut self, entry: Entry) -> StorageResult<()> {
        self.note(Change::Append(vec![entry]))
    }

    fn append_entries(&mut self, entries: Vec<Entry>) -> StorageResult<()> {
        if entries.is_empty() { Ok(()) } else { self.note(Change::Append(entries)) }
    }

    fn append_on_prefix(&mut self, from: usize, entries: Vec<Entry>) -> StorageResult<()> {
        self.note(Change::Replace(from, entries))
    }

    fn set_promise(&mut self, promise: Ballot) -> StorageResult<()> {
        // A start repeats the promise that it found.
        let is_known = self.lock().state.promise.unwrap_or_default() == promise;
        if is_known { Ok(()) } else { self.note(Change::Promise(promise)) }
    }

    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        self.note(Change::Decided(index))
    }

    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.lock().state.decided)
    }

    fn set_accepted_round(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.note(Change::Accepted(ballot))
    }

    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.lock().state.accepted)
    }

    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Entry>> {
        // Of entries that are not decided here no snapshot is made: they may be replaced.
        let decided = self.lock().state.decided;
        Ok(self.range(from, to.min(decided)))
    }

    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.lock().state.entries.len())
    }

    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Entry>> {
        Ok(self.range(from, usize::MAX))
    }

    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.lock().state.promise)
    }

    /// Members never change: no log ends with a sign to stop.
    fn set_stopsign(&mut self, sign: Option<StopSign>) -> StorageResult<()> {
        if sign.is_some() { Err("members do not change".into()) } else { Ok(()) }
    }

    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(None)
    }

    fn trim(&mut self, index: usize) -> StorageResult<()> {
        self.note(Change::Trim(index))
    }

    fn set_compacted_idx(&mut self, index: usize) -> StorageResult<()> {
        self.note(Change::Compacted(index))
    }

    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(self.lock().state.compacted)
    }

    fn set_snapshot(&mut self, snapshot: Option<Snapshot>) -> StorageResult<()> {
        self.note(Change::Snapshot(snapshot))
    }

    fn get_snapshot(&self) -> StorageResult<Option<Snapshot>> {
        Ok(self.lock().state.snapshot.clone())
    }
}
