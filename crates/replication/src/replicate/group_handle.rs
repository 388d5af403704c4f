//! A worker's handle for groups at the control thread: one group at a time.

use std::ops::Range;
use std::sync::Arc;

use base::UnixMillis;
use budget::BufferBudget;
use cluster::Slot;
use commands::compaction::{Answering, Tells};
use commands::reply::Answer;
use commands::reply::Shape;
use commands::rmw::Rmw;
use counters::CommandIndex;
use dispatch::lanes::request_slot::Origin;
use store::request::{Op, Outcome, Request};
use store::{Session, Store};
use wire::resp::Protocol;

use super::{ControlChannel, GroupAnswer, GroupCall, GroupChange, GroupRoom};
use crate::cluster::Receiver;

/// See the module's page.
pub struct GroupHandle {
    channel: Arc<ControlChannel>,
    dispatcher: usize,
    store: Arc<Store>,
    budget: Arc<BufferBudget>,
    /// Receives entries for the node, under the scheme `rpc`: while the worker waits, too.
    receiver: Option<Receiver>,
    /// A group was begun and not ended.
    is_held: bool,
    /// Room for all that the group stores is kept.
    has_room: bool,
    /// A request of the group was not executed, or its outcome is unknown.
    is_bad: bool,
}

impl GroupHandle {
    /// For one worker.
    pub fn new(
        channel: Arc<ControlChannel>,
        dispatcher: usize,
        receiver: Option<Receiver>,
        (store, budget): (Arc<Store>, Arc<BufferBudget>),
    ) -> GroupHandle {
        let (is_held, has_room, is_bad) = (false, false, false);
        GroupHandle { channel, dispatcher, store, budget, receiver, is_held, has_room, is_bad }
    }

    /// The worker's receiver of entries.
    pub fn receiver(&mut self) -> Option<&mut Receiver> {
        self.receiver.as_mut()
    }

    /// Whether a group is under way.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Begins a group on keys of one slot, if the control thread grants it.
    pub fn begin(&mut self, session: &mut Session, slot: Slot) -> GroupAnswer {
        (self.has_room, self.is_bad) = (false, false);
        let answer = self.ask(session, GroupCall::Begin(slot));
        self.is_held = answer == GroupAnswer::Good;
        answer
    }

    /// Executes requests as part of the current group, or as a group of their own.
    pub fn execute<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        let is_own = !self.is_held;
        if let Some(first) = requests.first().filter(|_| is_own) {
            self.begin(session, Slot::of(first.key));
        }
        if !self.is_held {
            return refuse(session, 0..requests.len(), sink);
        }
        let (mut waiting, mut done_count) = (Vec::new(), 0);
        while done_count < requests.len() {
            let left = &requests[done_count..];
            let changes = self.run(session, now, left, |at| sink.tells(done_count + at));
            if changes.is_empty() {
                self.is_bad = true;
                break;
            }
            let run_count = changes.len();
            if is_own {
                waiting.extend(changes);
            } else {
                tell(session, done_count, &changes, sink);
            }
            done_count += run_count;
        }
        // A group of its own reports no outcome before all copies have it (P2).
        if !is_own {
            refuse(session, done_count..requests.len(), sink);
        } else if self.end(session) {
            tell(session, 0, &waiting, sink);
        } else {
            refuse(session, 0..requests.len(), sink);
        }
    }

    /// Keeps room for all that the current group stores, unless it was kept before; false: there
    /// is none, and nothing of it may run.
    pub fn keep(&mut self, session: &mut Session, room: GroupRoom) -> bool {
        if self.is_held && !self.has_room {
            self.has_room = self.ask(session, GroupCall::Keep(room)) == GroupAnswer::Good;
        }
        !self.is_held || self.has_room
    }

    /// Executes the first requests, as many as P3 allows, of one slot's shard as a group of their
    /// own, and reports their outcomes once all copies have everything.
    pub fn execute_apart<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        (slot, requests): (Slot, &[Request<'_, Rmw<'_>>]),
        sink: &mut S,
    ) -> Apart {
        if self.begin(session, slot) != GroupAnswer::Good {
            return Apart::NotExecuted;
        }
        let changes = self.run(session, now, requests, |at| sink.tells(at));
        let is_good = self.end(session);
        if changes.is_empty() {
            return Apart::Unknown { count: requests.len() };
        }
        if !is_good {
            return Apart::Unknown { count: changes.len() };
        }
        tell(session, 0, &changes, sink);
        Apart::Done { count: changes.len() }
    }

    /// Runs requests; returns those that were executed: the first ones, and not all if their
    /// outcomes are long (P3). None: nothing of the group counts.
    fn run(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        tells: impl Fn(usize) -> Tells,
    ) -> Vec<Arc<GroupChange>> {
        let answer = Answer {
            slot: 0,
            command: CommandIndex::UNKNOWN_RESP,
            is_quiet: false,
            shape: Shape::Value,
        };
        let (protocol, is_tls, connection) = (Protocol::Resp2, false, 0);
        let origin = Origin { answer, notes: &[], protocol, is_tls, connection, now };
        let rooms = (&self.store, &self.budget);
        let change =
            |(index, request)| Arc::new(GroupChange::new(request, tells(index), &origin, rooms));
        let mut changes: Vec<Arc<GroupChange>> = requests.iter().enumerate().map(change).collect();
        let is_good = self.ask(session, GroupCall::Run(changes.clone())) == GroupAnswer::Good;
        self.is_bad |= !is_good;
        let computed = changes.iter().take_while(|change| change.is_computed()).count();
        changes.truncate(if is_good { computed } else { 0 });
        changes
    }

    /// Ends the group. Returns false if its replies must be discarded (P2).
    pub fn end(&mut self, session: &mut Session) -> bool {
        self.is_held = false;
        let is_good = self.ask(session, GroupCall::End) == GroupAnswer::Good;
        is_good && !std::mem::take(&mut self.is_bad)
    }

    /// Deletes all keys of the shards that this node serves, or of all shards.
    pub fn flush(&mut self, session: &mut Session, is_everywhere: bool) -> GroupAnswer {
        debug_assert!(!self.is_held, "the shard that is held would wait for itself");
        self.ask(session, GroupCall::Flush { is_everywhere })
    }

    fn ask(&mut self, session: &mut Session, call: GroupCall) -> GroupAnswer {
        session.park(); // The control thread's cleaning waits for no worker that waits for it.
        let answer = self.channel.ask(self.dispatcher, call, self.receiver.as_mut());
        session.unpark();
        answer
    }
}

/// The result of requests that were executed as a group of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// The outcomes of the first requests were reported.
    Done {
        /// How many: the rest was not executed (P3).
        count: usize,
    },
    /// Nothing was executed.
    NotExecuted,
    /// The outcomes of the first requests are unknown: none was reported (P2).
    Unknown {
        /// How many: the rest was not executed.
        count: usize,
    },
}

/// Hands the outcomes of executed requests to a sink; the first is the request at `start`.
fn tell<S: Answering>(session: &Session, start: usize, changes: &[Arc<GroupChange>], sink: &mut S) {
    for (index, change) in (start..).zip(changes) {
        match change.take() {
            Some(kept) => change.tell(&kept, index, session.pins(), sink),
            None => sink.outcome(index, Outcome::Unwritable, session.pins()),
        }
    }
}

fn refuse<S: Answering>(session: &Session, requests: Range<usize>, sink: &mut S) {
    requests.for_each(|index| sink.outcome(index, Outcome::Unwritable, session.pins()));
}

/// Whether some of the requests change a key.
pub fn has_writes(requests: &[Request<'_, Rmw<'_>>]) -> bool {
    requests.iter().any(|request| !matches!(request.op, Op::Get))
}
