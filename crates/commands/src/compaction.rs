//! Compaction inside a batch: merges several writes of one key into one (C-4 §4.3).
//!
//! Plain SETs that follow each other are a run, of which the store sees the last (`runs`). Long
//! writes of any kind are a group, which is replayed in a window:
//!
//! ```text
//!  batch      SET h 1   GET x   INCR h   SET y 2   SET h 5   GET h
//!               │                 │                  │
//!  group h      └── Plan: Stored, Replayed on "1", Stored ──▶ one SET h 5, first of all
//!  the rest             GET x             SET y 2            GET h ──▶ the store's pipeline
//!                       │                 │                    │
//!  outcomes     h       x         h       y          h         h   ──▶ sink, in this order
//! ```
//!
//! A batch contains requests that clients have already sent, so a window over it never waits: it
//! opens with the first write that is followed by another write of its key, and closes early, with
//! the batch (C-4 §7.2). Where requests are routed, requests on that key in the next 32 slots of
//! the worker's queues are executed in the same batch (K8; `forwarding/ahead.rs`).
//!
//! # Invariants
//! I1: a sink sees each request's outcome exactly once and in order, as without compaction.
//! I2: outcomes of a group reach the sink only after the group's one write is visible (K6). If that
//!     write fails, or another thread has written the key meanwhile, the group's requests run one
//!     by one instead.
//! I3: a group that has read the stored value writes only if that value is still stored. So
//!     correctness does not depend on the worker being the only writer of its key.
//! I4: keys are compared in full (K8).
//! I5: a group is left alone if a reply in it contains a version: values that never reached the
//!     store have no versions.
//! I6: a read outside its key's group sees the value that the group leaves. No read stays outside
//!     if its own connection writes the key later in the batch (K10).
//!
//! # Trade-offs
//! A group's write takes place before the rest of the batch, and that of a run in the place of its
//! first request. So another client may see it before an earlier request of the same pipeline on
//! another key: requests that wait together are concurrent. Short values are not replayed: the
//! store writes them faster (decisions 0029, 0110).
//!
//! # Limits
//! At most [`SCRATCH_BYTES_MAX`] of values are kept aside per batch; a group that needs more runs
//! one by one.

mod find;
mod merge;
mod places;
mod replay;
mod runs;
#[cfg(test)]
pub mod tests;

use arrayvec::ArrayVec;
use base::UnixMillis;
use counters::{Compacted, SIZE_CLASSES};
use policy::window::{Compacts, Plan, SearchPace};
use store::request::{Item, Outcome, Request, Sink};
use store::{Pins, Session};

use crate::rmw::{Refusal, Rmw};
use crate::work::BATCH_REQUESTS_MAX;
pub use find::may_open;
use find::{Finder, Member};
use merge::{ASK, Kept, Merge};
use replay::Replay;
use runs::{Requests, Runs, Spread};

/// The maximum for values that replayed requests found or left, per batch.
const SCRATCH_BYTES_MAX: usize = 256 << 10;

/// What a request's reply reports, beyond whether it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    /// Nothing, or the value that a read found.
    Nothing,
    /// The old value.
    Old,
    /// A version.
    Version,
}

/// A sink that knows what its replies report.
pub trait Answering: Sink<Refusal> {
    /// What the reply to `requests[request_index]` reports. By default each request is executed by
    /// itself.
    fn tells(&self, request_index: usize) -> Tells {
        let _ = request_index;
        Tells::Version
    }

    /// Reports the number of windows of the batch that are open now.
    fn opened(&self, windows: usize) {
        let _ = windows;
    }

    /// The connection of `requests[request_index]`: it sees its own earlier writes, and not its
    /// later ones (K10).
    fn connection(&self, request_index: usize) -> u64 {
        let _ = request_index;
        0
    }
}

impl Sink<Refusal> for &mut (dyn Answering + '_) {
    fn outcome(&mut self, request_index: usize, outcome: Outcome<'_, Refusal>, pins: Pins<'_>) {
        (**self).outcome(request_index, outcome, pins);
    }

    fn may_tell(&mut self, request_index: usize, old: &Item<'_>, pins: Pins<'_>) -> bool {
        (**self).may_tell(request_index, old, pins)
    }
}

impl Answering for &mut (dyn Answering + '_) {
    fn tells(&self, request_index: usize) -> Tells {
        (**self).tells(request_index)
    }

    fn opened(&self, windows: usize) {
        (**self).opened(windows);
    }

    fn connection(&self, request_index: usize) -> u64 {
        (**self).connection(request_index)
    }
}

/// The class of a group of so many writes.
fn size_class(writes: usize) -> usize {
    let doublings = writes.max(2).next_power_of_two().ilog2() as usize - 1;
    doublings.min(SIZE_CLASSES - 1)
}

/// Counts so many writes that the store saw as one.
fn count(counted: &mut Compacted, writes: usize) {
    counted.windows += 1;
    counted.writes_saved += writes as u64 - 1;
    counted.by_writes[size_class(writes)] += 1;
}

/// One worker's compaction: memory that is reused from batch to batch.
pub struct Compaction {
    finder: Finder,
    runs: Runs,
    /// Of the searches for both.
    pace: SearchPace,
    /// Values that kept outcomes borrow.
    scratch: Vec<u8>,
    /// The value that an update writes.
    value: Vec<u8>,
    kept: Vec<Kept>,
    /// Where the outcome of each request of the batch is kept.
    kept_at: [u8; BATCH_REQUESTS_MAX],
    counted: Compacted,
}

const _: () = assert!(BATCH_REQUESTS_MAX <= ASK as usize, "a position fits a byte");

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction {
            finder: Finder::default(),
            runs: Runs::default(),
            pace: SearchPace::default(),
            scratch: Vec::new(),
            value: Vec::new(),
            kept: Vec::new(),
            kept_at: [ASK; BATCH_REQUESTS_MAX],
            counted: Compacted::default(),
        }
    }
}

impl Compaction {
    /// Compacts the writes that `compacts` names.
    pub fn new(compacts: Compacts) -> Compaction {
        let mut compaction = Compaction::default();
        compaction.finder.compacts = compacts;
        compaction
    }

    /// The writes that it compacts.
    #[inline]
    pub fn compacts(&self) -> Compacts {
        self.finder.compacts
    }

    /// The counts since the last call.
    pub fn take_counted(&mut self) -> Compacted {
        std::mem::take(&mut self.counted)
    }

    /// Executes a batch of at most [`BATCH_REQUESTS_MAX`] requests.
    #[inline]
    pub fn execute<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        if requests.len() > 1 && self.pace.is_due() {
            self.search(session, now, requests, sink);
        } else {
            session.execute(now, requests, sink);
        }
    }

    #[inline(never)]
    fn search<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        if self.finder.has_groups(requests) {
            return self.execute_groups(session, now, requests, sink);
        }
        if self.finder.compacts.leaves_out_superseded() {
            let superseded = self.runs.find(session, now, requests, &*sink);
            if self.pace.note(superseded, requests.len()) {
                return self.execute_runs(session, now, requests, sink);
            }
        }
        session.execute(now, requests, sink);
    }

    /// Executes the batch without its superseded SETs.
    fn execute_runs<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        sink.opened(self.runs.count());
        self.runs.each_len(|writes| count(&mut self.counted, writes));
        let mut rest = Requests::new();
        self.runs.take_rest(requests, &mut rest);
        let mut spread = Spread::new(&mut *sink, &self.runs);
        session.execute(now, &rest, &mut spread);
        spread.finish(session.pins());
        sink.opened(0);
    }

    #[cold]
    fn execute_groups<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        self.scratch.clear();
        self.kept.clear();
        self.kept_at = [ASK; BATCH_REQUESTS_MAX];
        let compacts = self.finder.compacts;
        let groups = self.finder.take_groups();
        sink.opened(groups.len());
        for first in groups {
            if let Some(members) = find::members(requests, usize::from(first), now, sink, compacts)
            {
                self.group(session, now, members);
            }
        }
        let mut rest: ArrayVec<Request<'_, Rmw<'_>>, BATCH_REQUESTS_MAX> = ArrayVec::new();
        let mut places: ArrayVec<u8, BATCH_REQUESTS_MAX> = ArrayVec::new();
        for (index, request) in requests.iter().enumerate() {
            if self.kept_at[index] == ASK {
                rest.push(*request);
                places.push(index as u8);
            }
        }
        let mut merge = Merge {
            sink: &mut *sink,
            requests,
            kept: &self.kept,
            kept_at: &self.kept_at,
            places: &places,
            scratch: &self.scratch,
            next: 0,
        };
        session.execute(now, &rest, &mut merge);
        merge.finish(session.pins());
        sink.opened(0);
    }

    /// Executes one key's requests with one write; they stay without outcomes if that fails (I2).
    fn group(&mut self, session: &mut Session, now: UnixMillis, members: Vec<Member<'_>>) {
        let (scratch_before, kept_before) = (self.scratch.len(), self.kept.len());
        let plan = Plan::of(members);
        let mut replay = Replay::new(session, now, &mut self.scratch, &mut self.value);
        let done = plan.execute(&mut replay, &mut self.kept);
        // A group that changes nothing needs no write.
        if done.is_err() || replay.is_too_long() {
            self.kept.truncate(kept_before);
            self.scratch.truncate(scratch_before);
            self.counted.given_up += 1;
            return;
        }
        count(&mut self.counted, plan.writes_compacted() + 1);
        for (member, kept) in plan.operations().iter().zip(kept_before..) {
            self.kept_at[member.index] = kept as u8;
        }
    }
}
