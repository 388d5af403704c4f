//! A worker's handle for groups at the control thread: one group runs at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::UnixMillis;
use budget::{BufferBudget, Kind, Reservation};
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

use super::channel::WokenWorker;
use super::pending_group::{ANSWERS_AT_ONCE, PendingGroup};
use super::{ControlChannel, GroupAnswer, GroupCall, GroupChange, GroupRoom};
use crate::cluster::Receiver;

/// For so long a worker waits where the outcome cannot be told later: a frame of a native client,
/// or a write of a memcached client that bypasses the router.
const PATIENCE: Duration = Duration::from_millis(250);
/// Executing asks no other node: the control thread answers within its own patience.
const RUN_PATIENCE: Duration = Duration::from_secs(5);

/// The answer to a call of a group, or that it is still to come.
pub enum Asked {
    /// The answer. Of a begin that is good, the group is the handle's.
    Answered(GroupAnswer),
    /// The group waits for it.
    Later(PendingGroup),
}

/// See the module's page.
pub struct GroupHandle {
    channel: Arc<ControlChannel>,
    dispatcher: usize,
    store: Arc<Store>,
    budget: Arc<BufferBudget>,
    /// Receives entries for the node, under the scheme `rpc`: while the worker waits, too.
    receiver: Option<Receiver>,
    /// The group that runs.
    held: Option<PendingGroup>,
    /// What was kept for it before it began.
    kept: Option<Reservation>,
    /// Room for all that the group stores is kept.
    has_room: bool,
    /// A request of the group was not executed, or its outcome is unknown.
    is_bad: bool,
    /// Groups whose connections wait for their begin, and what tells them that they were given up.
    beginning: Vec<(u64, Arc<AtomicBool>)>,
    /// The answers so far, and those that were seen.
    answered: Arc<AtomicU64>,
    seen: u64,
}

impl GroupHandle {
    /// For one worker.
    pub fn new(
        channel: Arc<ControlChannel>,
        dispatcher: usize,
        receiver: Option<Receiver>,
        (store, budget): (Arc<Store>, Arc<BufferBudget>),
    ) -> GroupHandle {
        GroupHandle {
            channel,
            dispatcher,
            store,
            budget,
            receiver,
            held: None,
            kept: None,
            has_room: false,
            is_bad: false,
            beginning: Vec::new(),
            answered: Arc::default(),
            seen: 0,
        }
    }

    /// Whether an answer has come that was not seen.
    pub fn has_answers(&self) -> bool {
        self.answered.load(Ordering::SeqCst) != self.seen
    }

    /// The same, and all are seen.
    pub fn take_answers(&mut self) -> bool {
        let answered = self.answered.load(Ordering::SeqCst);
        std::mem::replace(&mut self.seen, answered) != answered
    }

    /// The worker's receiver of entries.
    pub fn receiver(&mut self) -> Option<&mut Receiver> {
        self.receiver.as_mut()
    }

    /// Whether a group is under way.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Begins a group on keys of one slot, if the control thread grants it at once.
    pub fn begin(&mut self, session: &mut Session, slot: Slot) -> Asked {
        self.beginning.retain(|(_, flag)| Arc::strong_count(flag) > 1);
        let is_alone = self.beginning.is_empty(); // Q2
        let patience = if is_alone { ANSWERS_AT_ONCE } else { Duration::ZERO };
        let asked = self.begin_within(session, slot, patience);
        if let Asked::Later(group) = &asked {
            self.beginning.push((group.id, Arc::clone(&group.is_given_up)));
        }
        asked
    }

    /// Begins a group for which the worker waits (Q2); false: it was not granted, and is given up.
    fn begin_at_once(&mut self, session: &mut Session, slot: Slot) -> bool {
        let is_waiting = |(_, flag): &(u64, Arc<AtomicBool>)| Arc::strong_count(flag) > 1;
        for (id, is_given_up) in self.beginning.drain(..).filter(is_waiting) {
            is_given_up.store(true, Ordering::Relaxed);
            self.channel.send_group(id, GroupCall::Cancel);
            self.answered.fetch_add(1, Ordering::SeqCst); // They begin again.
        }
        drop(self.begin_within(session, slot, PATIENCE));
        self.is_held()
    }

    fn begin_within(&mut self, session: &mut Session, slot: Slot, patience: Duration) -> Asked {
        debug_assert!(self.held.is_none(), "one group runs at a time");
        let (mut group, answer_to) =
            PendingGroup::new(&self.channel, self.dispatcher, &self.answered);
        match self.ask(session, &group, GroupCall::Begin(slot, answer_to), patience) {
            Some(GroupAnswer::Good) => {
                self.hold(group);
                Asked::Answered(GroupAnswer::Good)
            }
            Some(answer) => {
                group.is_over = true;
                Asked::Answered(answer)
            }
            None => Asked::Later(group),
        }
    }

    /// Runs a group that was granted later.
    pub fn hold(&mut self, mut group: PendingGroup) {
        if group.dispatcher != self.dispatcher {
            group.dispatcher = self.dispatcher;
            let (dispatcher, answered) = (self.dispatcher, Arc::clone(&self.answered));
            let call = GroupCall::Moved(WokenWorker { dispatcher, answered });
            self.channel.send_group(group.id, call);
        }
        // It waits no more: the worker that has begun it forgets it.
        group.is_given_up = Arc::default();
        (self.has_room, self.is_bad, self.kept) = (false, false, None);
        self.held = Some(group);
    }

    /// Hands over what was kept for the group before it began.
    pub fn lend(&mut self, kept: Reservation) {
        self.kept = Some(kept);
    }

    /// Executes requests as part of the current group, or as a group of their own.
    pub fn execute<S: Answering>(
        &mut self,
        session: &mut Session,
        now: UnixMillis,
        requests: &[Request<'_, Rmw<'_>>],
        sink: &mut S,
    ) {
        let is_own = !self.is_held();
        if let Some(first) = requests.first().filter(|_| is_own) {
            self.begin_at_once(session, Slot::of(first.key));
        }
        if !self.is_held() {
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
        } else if self.ends_within(session, PATIENCE) {
            tell(session, 0, &waiting, sink);
        } else {
            refuse(session, 0..requests.len(), sink);
        }
    }

    /// Keeps room for all that the current group stores, unless it was kept before; false: there
    /// is none, and nothing of it may run.
    pub fn keep(&mut self, session: &mut Session, room: GroupRoom) -> bool {
        if self.is_held() && !self.has_room {
            let nothing = || Reservation::empty(&self.budget, Kind::Writes);
            let kept = self.kept.take().unwrap_or_else(nothing);
            self.has_room = self.call(session, GroupCall::Keep(room, kept));
        }
        !self.is_held() || self.has_room
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
        if !self.begin_at_once(session, slot) {
            return Apart::NotExecuted;
        }
        let changes = self.run(session, now, requests, |at| sink.tells(at));
        let is_good = self.ends_within(session, PATIENCE);
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
        let is_good = self.call(session, GroupCall::Run(changes.clone()));
        self.is_bad |= !is_good;
        let computed = changes.iter().take_while(|change| change.is_computed()).count();
        changes.truncate(if is_good { computed } else { 0 });
        changes
    }

    /// Ends the group: its replies may be sent if the answer is good (P2).
    pub fn end(&mut self, session: &mut Session) -> Asked {
        self.end_within(session, ANSWERS_AT_ONCE)
    }

    fn end_within(&mut self, session: &mut Session, patience: Duration) -> Asked {
        self.kept = None;
        let is_bad = std::mem::take(&mut self.is_bad);
        let Some(mut group) = self.held.take() else { return Asked::Answered(GroupAnswer::Bad) };
        group.is_bad = is_bad;
        let answer = self.ask(session, &group, GroupCall::End { is_bad }, patience);
        group.is_over = true;
        answer.map_or(Asked::Later(group), Asked::Answered)
    }

    fn ends_within(&mut self, session: &mut Session, patience: Duration) -> bool {
        matches!(self.end_within(session, patience), Asked::Answered(GroupAnswer::Good))
    }

    /// Deletes all keys of the shards that this node serves, or of all shards. The worker waits.
    pub fn flush(&mut self, session: &mut Session, is_everywhere: bool) -> GroupAnswer {
        debug_assert!(self.held.is_none(), "the shard that is held would wait for itself");
        let (mut flush, answer_to) =
            PendingGroup::new(&self.channel, self.dispatcher, &self.answered);
        flush.is_over = true; // It holds no shard of its own.
        let call = GroupCall::Flush { is_everywhere, answer_to };
        self.ask(session, &flush, call, RUN_PATIENCE).unwrap_or(GroupAnswer::Bad)
    }

    /// Makes a call of the group that runs.
    fn call(&mut self, session: &mut Session, call: GroupCall) -> bool {
        let Some(group) = self.held.take() else { return false };
        let answer = self.ask(session, &group, call, RUN_PATIENCE);
        self.held = Some(group);
        answer == Some(GroupAnswer::Good)
    }

    fn ask(
        &mut self,
        session: &mut Session,
        group: &PendingGroup,
        call: GroupCall,
        patience: Duration,
    ) -> Option<GroupAnswer> {
        session.park(); // The control thread's cleaning waits for no worker that waits for it.
        let answer = self.channel.ask(group, call, self.receiver.as_mut(), patience);
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
