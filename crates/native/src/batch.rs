//! Native batches: frames of requests become batches for the store. The sibling of `gather`, with
//! frames in the place of connections.
//!
//! ```text
//!  frame 7: get a, get b ─┐
//!  frame 8: set c, incr d ┼──▶ requests [a][b][c][d] ...   (at most 128)
//!  frame 9: get e ────────┘    pendings [7][7][8][8] ...
//!                                   │ flush: full, or a request that is not for the store
//!                                   ▼
//!                         Engine::execute ──▶ Answers ──▶ frames of replies
//! ```
//!
//! # Invariants
//! I1: `requests` and `pendings` have equal lengths; `pendings[i].origin` is a position in
//!     `origins`.
//! I2: requests are executed in the order of their frames and of their places in them, so that a
//!     later request of a frame sees the write of an earlier one; those that other workers execute
//!     keep the order of each key (K10, F2 of `forward`).
//! I3: an at-most-once request is admitted before it is executed, and its outcome is remembered
//!     before it is answered.

mod forwarded;
mod placed;

use std::time::Instant;

use arrayvec::ArrayVec;
use base::{Slot, UnixMillis};
use commands::rmw::{Bounded, Rmw, copies_value};
use commands::work::BATCH_REQUESTS_MAX;
use commands::work::{Work, add_work};
use counters::{CommandIndex, NativeCommand};
use policy::size_class::{COUNTED_BATCH, WorkerSizes};
use replication::durable::{Data, Gate, Passage};
use runtime::core::Core;
use runtime::engine::{Engine, HEAVY_REQUESTS_MAX, Picked};
use store::request::{self, Request};
use wire::native::{
    Admission, Direction, Expiry, Op, PartOutcome, Range, RangeItems, Remembered, Reply,
    RequestError, RequestId, Requests, Set, Status, Want, item_len_bytes,
};

use super::answers::{Answers, Pending, Shape};
use super::forward::Forwarder;
use super::outgoing::{Origin, Outgoing, Outlet};
use super::page::{KeyTooLong, Page};
use super::sessions::NoMemory;
use super::{Clock, NativeState};
use placed::Placed;

/// Whether the requests of a batch are routed.
pub enum RequestsGo<'b> {
    /// They are executed where they were received.
    Nowhere,
    /// Some are sent to other workers.
    Elsewhere(&'b mut Forwarder),
    /// Another worker has sent them here.
    FromElsewhere,
}

/// The batch of one worker in the making. `'a` is the lifetime of the received bytes.
pub struct Batch<'b, 'a, 'k, T> {
    /// Executes the batch.
    pub engine: &'b mut (dyn Engine + 'b),
    /// Hash, limits, counters.
    pub core: &'b Core,
    /// The state that all workers share.
    pub state: &'b NativeState,
    /// The round's times.
    pub clock: Clock,
    /// Where replies are written.
    pub out: Outgoing<'b, 'k, T>,
    /// Set if replies wait for the disk.
    gate: Option<Gate>,
    /// At a node of a cluster: which node has which key.
    pub(super) placed: Option<Placed>,
    /// Set if requests may go to other workers.
    forwarder: Option<&'b mut Forwarder>,
    /// The message that is being taken.
    message: &'a [u8],
    /// The router's pick for the request that is being taken, if that stays.
    staying: Option<Picked>,
    /// Where the sizes of requests are counted, if they are: always where some are routed.
    sizes: Option<&'b WorkerSizes>,
    /// Buffer for the items of a range.
    pub items: &'b mut [u8],
    pub(super) requests: ArrayVec<Request<'a, Rmw<'a>>, BATCH_REQUESTS_MAX>,
    pub(super) pendings: ArrayVec<Pending, BATCH_REQUESTS_MAX>,
    pub(super) origins: ArrayVec<Origin<'k>, BATCH_REQUESTS_MAX>,
    /// Requests of the batch that may copy a whole value.
    heavy_count: usize,
}

impl<'b, 'a, 'k, T: Outlet> Batch<'b, 'a, 'k, T> {
    /// An empty batch.
    pub fn new(
        engine: &'b mut (dyn Engine + 'b),
        core: &'b Core,
        (state, clock): (&'b NativeState, Clock),
        out: Outgoing<'b, 'k, T>,
        (items, requests_go): (&'b mut [u8], RequestsGo<'b>),
    ) -> Batch<'b, 'a, 'k, T> {
        let (requests, pendings, origins) = (ArrayVec::new(), ArrayVec::new(), ArrayVec::new());
        let mut out = out;
        let mut gate = core.shared.data().and_then(Data::gate);
        if let Some(gate) = &mut gate {
            gate.refusals_seen = core.native_refusals_seen.get();
            gate.has_failed(); // Nothing is outstanding: a batch is answered as a whole.
        }
        let is_from_here = !matches!(requests_go, RequestsGo::FromElsewhere);
        let counters = core.counters();
        let batch_count = counters.native.frames_in.get() + counters.forwardings.batches.get();
        let counts_sizes = engine.tells_sizes() || batch_count.is_multiple_of(COUNTED_BATCH);
        let sizes = counters.sizes.as_ref().filter(|_| counts_sizes);
        let forwarder = match requests_go {
            RequestsGo::Elsewhere(forwarder) => Some(forwarder),
            RequestsGo::Nowhere | RequestsGo::FromElsewhere => None,
        };
        let placed = core.cluster.clone().map(Placed::new);
        // The worker that has forwarded them passes the gate before it sends the replies.
        if (gate.is_some() && is_from_here) || placed.is_some() {
            out.hold();
        }
        Batch {
            gate,
            placed,
            engine,
            core,
            state,
            clock,
            out,
            forwarder,
            sizes,
            message: b"",
            staying: None,
            items,
            requests,
            pendings,
            origins,
            heavy_count: 0,
        }
    }

    /// Takes all requests of a frame.
    #[inline]
    pub fn frame(&mut self, origin: Origin<'k>, body: &'a [u8]) {
        if self.origins.is_full() {
            self.flush();
        }
        self.origins.push(origin);
        if self.forwarder.is_some() {
            return self.frame_to_workers(body);
        }
        for parsed in Requests::new(body) {
            match parsed {
                Ok(request) => self.take(request.id, request.want, request.op),
                Err(RequestError::Refused { id, status }) => {
                    self.refuse(NativeCommand::Unknown, id, status);
                }
                Err(RequestError::Overrun) => self.core.counters().protocol_errors.add(1),
            }
        }
    }

    /// Executes the gathered requests. The last frame's origin stays, because more of its requests
    /// may follow.
    pub fn flush(&mut self) {
        let groups = if self.placed.is_some() { self.take_groups() } else { Vec::new() };
        if !self.requests.is_empty() {
            let counters = self.core.counters();
            counters.batches.add(1);
            counters.batch_requests.add(self.requests.len() as u64);
            let (pendings, origins) = (&self.pendings[..], &self.origins[..]);
            let work = &self.core.native_work;
            self.out.begin_reads(true);
            let sizes = self.sizes.map(|sizes| (&self.requests[..], sizes));
            let out = &mut self.out;
            let mut answers = Answers { pendings, sizes, origins, out, counters, work };
            self.engine.execute(self.core.now, &self.requests, &mut answers);
            self.out.begin_reads(false);
            counters.compaction.add(self.engine.take_compacted());
            self.requests.clear();
            self.pendings.clear();
            self.heavy_count = 0;
        }
        if let Some(forwarder) = &mut self.forwarder {
            forwarder.settle_here(self.engine);
        }
        if !groups.is_empty() {
            self.run_groups(groups);
        }
        if let Some(last) = self.origins.last().copied() {
            self.origins.clear();
            self.origins.push(last);
        }
    }

    /// Executes everything and closes the last frame of replies.
    pub fn finish(mut self) {
        self.flush();
        self.publish();
        self.out.close();
        self.pass_gate();
    }

    /// Sends the waiting replies once the writes behind them are on the disk; otherwise drops them.
    fn pass_gate(&mut self) {
        if self.gate.is_none() && self.placed.is_none() || !self.out.holds() {
            return;
        }
        // An engine that executes alone has a session; locked keys are answered within a
        // connection.
        let session = self.engine.session();
        let is_durable = match &mut self.gate {
            Some(gate) => session.is_some_and(|session| {
                let passage = gate.pass(session);
                self.core.native_refusals_seen.set(gate.refusals_seen);
                passage != Passage::Failed
            }),
            None => true,
        };
        let reads_are_good = self.placed.as_ref().is_none_or(Placed::may_answer);
        self.out.release(is_durable, reads_are_good);
    }

    pub(super) fn origin(&self) -> &Origin<'k> {
        self.origins.last().expect("requests come in frames")
    }

    /// Takes one request: adds it to the batch, or answers it.
    #[inline]
    fn take(&mut self, id: RequestId, want: Want, op: Op<'a>) {
        if self.placed.is_some() && self.is_moved(id, &op) {
            return;
        }
        if let (RequestId::Free(_), Op::Get { key, touch: None }) = (id, op) {
            self.count(NativeCommand::Get);
            return self.push(
                key,
                request::Op::Get,
                pending(id, want, Shape::Item, NativeCommand::Get),
            );
        }
        self.take_rare(id, want, op);
    }

    fn take_rare(&mut self, id: RequestId, want: Want, op: Op<'a>) {
        let command = command_of(&op);
        self.count(command);
        if self.core.pauses.current().is_some() && changes_item(&op) {
            self.core.counters().native.busy.add(1);
            return self.direct(&Reply::new(id, Status::Busy));
        }
        if let Op::Set(Set { part: Some(_), .. }) = op {
            return self.take_part(id, want, op);
        }
        if let RequestId::Once(sequence) = id
            && !self.admit(sequence)
        {
            return;
        }
        match self.translate(op) {
            Ok((key, store_op, shape)) if copies_value(&store_op) => {
                if self.is_turn_spent() {
                    return self.put_off(id);
                }
                self.push(key, store_op, pending(id, want, shape, command));
                self.heavy_count += 1;
                if self.heavy_count >= HEAVY_REQUESTS_MAX {
                    self.flush();
                }
            }
            Ok((key, store_op, shape)) => {
                self.push(key, store_op, pending(id, want, shape, command));
            }
            Err(Instead::Answer(status)) => self.answer(id, status),
            Err(Instead::Range(_)) if self.is_turn_spent() => self.put_off(id),
            Err(Instead::Range(range)) => {
                let began = Instant::now();
                self.range(id, &range);
                add_work(&self.core.native_work, Work::elapsed(began.elapsed()));
            }
        }
    }

    /// Whether native clients have used a turn's work (K28). Then possibly long requests are not
    /// executed.
    fn is_turn_spent(&self) -> bool {
        self.core.native_work.get().is_spent()
    }

    /// Answers busy; the request may come again, also if it was admitted.
    #[cold]
    pub(super) fn put_off(&mut self, id: RequestId) {
        if let RequestId::Once(sequence) = id {
            self.origin().session.once().once.forget(sequence);
        }
        self.core.counters().native.busy.add(1);
        self.direct(&Reply::new(id, Status::Busy));
    }

    /// Asks the session whether to execute a write; answers repetitions of earlier ones (I3).
    fn admit(&mut self, sequence: u32) -> bool {
        let origin = *self.origin();
        let budget = self.state.sessions.budget();
        let admission = origin.session.once().admit(sequence, budget);
        self.follow(sequence, admission)
    }

    /// The same without admitting it.
    pub(super) fn may_execute(&mut self, sequence: u32) -> bool {
        let origin = *self.origin();
        let budget = self.state.sessions.budget();
        let looked = origin.session.once().look(sequence, budget);
        self.follow(sequence, looked)
    }

    /// Acts on an admission; returns true if the request is to be executed.
    fn follow(&mut self, sequence: u32, admission: Result<Admission, NoMemory>) -> bool {
        let id = RequestId::Once(sequence);
        let native = &self.core.counters().native;
        match admission {
            Ok(Admission::Execute) => return true,
            // The write behind the remembered reply may not be on the disk, and never will be.
            Ok(Admission::Again(remembered))
                if remembered.status != Status::Busy
                    && self.gate.as_ref().is_some_and(Gate::is_refusing) =>
            {
                native.dropped_copies.add(1);
            }
            Ok(Admission::Again(remembered)) => {
                native.answered_again.add(1);
                self.direct(&remembered.reply(sequence));
            }
            Ok(Admission::UnderWay | Admission::BelowLowWater) => native.dropped_copies.add(1),
            Ok(Admission::OutsideWindow) => {
                self.direct(&Reply::new(id, Status::OutsideWindow));
            }
            Err(NoMemory) => {
                native.busy.add(1);
                self.direct(&Reply::new(id, Status::Busy));
            }
        }
        false
    }

    /// The request in the store's terms.
    fn translate(
        &self,
        op: Op<'a>,
    ) -> Result<(&'a [u8], request::Op<'a, Rmw<'a>>, Shape), Instead<'a>> {
        use request::Op as StoreOp;
        let update = |update| StoreOp::Update(update);
        let max_bytes = self.core.value_max_bytes;
        Ok(match op {
            Op::Ping => return Err(Instead::Answer(Status::Ok)),
            Op::Range(range) => return Err(Instead::Range(range)),
            Op::Get { key, touch } => match touch.map(|expiry| self.expires_at(expiry)) {
                None | Some(None) => (key, StoreOp::Get, Shape::Item),
                Some(Some(at)) => (key, update(Rmw::SetExpiry(at)), Shape::Item),
            },
            Op::Pull { key, version, span } => (key, StoreOp::Get, Shape::Pulled { version, span }),
            Op::Set(set) if set.value.len() as u64 > max_bytes => {
                return Err(Instead::Answer(Status::TooLarge));
            }
            Op::Set(set) => (set.key, self.store_set(&set, set.value), Shape::Stored),
            Op::Delete { key, version: None } => (key, StoreOp::Delete, Shape::Done),
            Op::Delete { key, version: Some(version) } => {
                (key, update(Rmw::DeleteVersion(version)), Shape::Done)
            }
            Op::Incr { key, delta } => (key, update(Rmw::IncrementBy(delta)), Shape::Sum),
            Op::Append { key, value } => {
                let part = Bounded { bytes: value, max_bytes };
                (key, update(Rmw::Append(part)), Shape::Length)
            }
            Op::Prepend { key, value } => {
                let part = Bounded { bytes: value, max_bytes };
                (key, update(Rmw::Prepend(part)), Shape::Length)
            }
            Op::Touch { key, expiry } => match self.expires_at(expiry) {
                None => (key, StoreOp::Get, Shape::Presence),
                Some(at) => (key, update(Rmw::SetExpiry(at)), Shape::Done),
            },
        })
    }

    /// The expiry that an item gets; `None`: it keeps its own.
    fn expires_at(&self, expiry: Expiry) -> Option<Option<UnixMillis>> {
        match expiry {
            Expiry::Never => Some(None),
            Expiry::Keep => None,
            Expiry::At(at) => Some(Some(at)),
            Expiry::AfterMs(ttl_ms) => {
                Some(Some(UnixMillis(self.core.now.0.saturating_add(ttl_ms))))
            }
        }
    }

    fn store_set<'v>(&self, set: &Set<'_>, value: &'v [u8]) -> request::Op<'v, Rmw<'v>> {
        use store::request::Condition;
        request::Op::Set(request::Set {
            value,
            client_flags: set.client_flags.into(),
            expiry: match self.expires_at(set.expiry) {
                None => request::Expiry::Keep,
                Some(None) => request::Expiry::Never,
                Some(Some(at)) => request::Expiry::At(at),
            },
            condition: match set.condition {
                wire::native::Condition::Always => Condition::Always,
                wire::native::Condition::IfAbsent => Condition::IfAbsent,
                wire::native::Condition::IfPresent => Condition::IfPresent,
                wire::native::Condition::IfVersion(version) => Condition::IfVersion(version),
            },
        })
    }

    #[inline]
    fn count(&self, command: NativeCommand) {
        self.core.counters().command(CommandIndex::native(command)).calls.add(1);
    }

    #[inline]
    fn push(&mut self, key: &'a [u8], op: request::Op<'a, Rmw<'a>>, mut pending: Pending) {
        if self.requests.is_full() {
            self.flush();
        }
        let hash = self.core.hash(key);
        self.engine.prefetch(hash);
        pending.origin = self.origins.len() as u16 - 1;
        pending.is_conditional = is_conditional(&op);
        self.requests.push(Request { key, hash, op });
        self.pendings.push(pending);
    }

    /// Refuses a request that was not understood.
    #[cold]
    fn refuse(&mut self, command: NativeCommand, id: RequestId, status: Status) {
        self.count(command);
        self.core.counters().command(CommandIndex::native(command)).errors.add(1);
        self.direct(&Reply::new(id, status));
    }

    /// Answers a request without the store; if it was admitted, that settles it.
    fn answer(&mut self, id: RequestId, status: Status) {
        let reply = Reply::new(id, status);
        if let RequestId::Once(sequence) = id {
            self.origin().session.once().once.record(sequence, Remembered::of(&reply));
        }
        self.direct(&reply);
    }

    /// Writes a reply that does not come from the batch. The batch is flushed first, so that there
    /// is only one open frame of replies.
    pub(super) fn direct(&mut self, reply: &Reply<'_>) {
        self.flush();
        let origin = *self.origin();
        self.out.turn_to(&origin);
        let is_written = self.out.push(reply);
        debug_assert!(is_written, "a reply without a value fits any frame");
    }

    /// Keeps a part of a value until all parts have arrived.
    fn take_part(&mut self, id: RequestId, want: Want, op: Op<'a>) {
        let (Op::Set(set), RequestId::Once(sequence)) = (op, id) else {
            return self.direct(&Reply::new(id, Status::Malformed));
        };
        let Some(part) = set.part else { return };
        if !self.may_execute(sequence) {
            return;
        }
        let origin = *self.origin();
        let name = (origin.session.id, sequence);
        let outcome = self.state.transfers.accept(self.clock.monotonic, name, part, set.value);
        match outcome {
            PartOutcome::Taken { missing_bytes } => self.direct(&Reply {
                number: Some(missing_bytes as i64),
                part: Some(part),
                ..Reply::new(id, Status::PartTaken)
            }),
            PartOutcome::Refused(status) => {
                if status == Status::Busy {
                    self.core.counters().native.busy.add(1);
                }
                self.direct(&Reply { part: Some(part), ..Reply::new(id, status) });
            }
            PartOutcome::Complete(value) => {
                // Before it may leave: a part that comes again would begin another transfer.
                if self.admit(sequence)
                    && let Some(value) = self.forward_whole(id, &set, value)
                {
                    self.set_whole(id, want, &set, &value);
                    self.note_stay();
                }
            }
        }
    }

    /// Executes a set whose value arrived in parts, and which was admitted.
    pub(super) fn set_whole(&mut self, id: RequestId, want: Want, set: &Set<'_>, value: &[u8]) {
        self.flush();
        let hash = self.core.hash(set.key);
        let request = Request { key: set.key, hash, op: self.store_set(set, value) };
        let pendings = [pending(id, want, Shape::Stored, NativeCommand::Set)];
        if self.placed.is_some() {
            let origins = [*self.origin()];
            return self.run_apart(Slot::of(set.key), (&[request], &pendings), &origins);
        }
        let (origins, counters) = ([*self.origin()], self.core.counters());
        let requests = [request];
        let mut answers = Answers {
            pendings: &pendings,
            sizes: self.sizes.map(|sizes| (&requests[..], sizes)),
            origins: &origins,
            out: &mut self.out,
            counters,
            work: &self.core.native_work,
        };
        self.engine.execute(self.core.now, &requests, &mut answers);
    }

    /// Answers a range, as far as one reply goes.
    fn range(&mut self, id: RequestId, range: &Range<'_>) {
        self.flush();
        let origin = *self.origin();
        self.out.turn_to(&origin);
        let room_bytes = self.out.value_room_bytes(0, 0).min(self.items.len());
        let (limit, is_keys_only) =
            (range.item_limit as usize, range.items == RangeItems::KeysOnly);
        let mut page = Page::new(&mut self.items[..room_bytes], limit, is_keys_only);
        let wanted = store::Range {
            start: range.start,
            end: range.end,
            direction: match range.direction {
                Direction::Forward => store::Direction::Forward,
                Direction::Reverse => store::Direction::Reverse,
            },
            // No more items than fit, so that the walk does not go far in vain.
            item_limit: limit.min(room_bytes / item_len_bytes(0, 0) + 1),
        };
        let Some(session) = self.engine.session() else {
            debug_assert!(false, "native requests never run under locks");
            return;
        };
        let walked = page.fill(session, self.core.now, &wanted);
        let reply = match walked.as_ref().map(|key| page.resume(key.as_deref())) {
            Err(_) => Reply::new(id, Status::NoOrder),
            Ok(Err(KeyTooLong)) => Reply::new(id, Status::TooLarge),
            Ok(Ok(resume_key)) => {
                Reply { resume_key, value: page.items(), ..Reply::new(id, Status::Ok) }
            }
        };
        let is_written = self.out.push(&reply);
        debug_assert!(is_written, "the page was cut to the frame");
    }
}

/// The handling of a request that does not go to the store in a batch.
enum Instead<'a> {
    Answer(Status),
    Range(Range<'a>),
}

fn pending(id: RequestId, want: Want, shape: Shape, command: NativeCommand) -> Pending {
    let command = CommandIndex::native(command);
    Pending { id, want, shape, origin: 0, command, is_conditional: false }
}

/// Whether it changes an item, if only its expiry.
fn changes_item(op: &Op<'_>) -> bool {
    op.changes_data() || matches!(op, Op::Get { touch: Some(_), .. })
}

/// Whether the reply to a refused write carries the item's version.
fn is_conditional(op: &request::Op<'_, Rmw<'_>>) -> bool {
    match op {
        request::Op::Set(set) => matches!(set.condition, request::Condition::IfVersion(_)),
        request::Op::Update(update) => matches!(update, Rmw::DeleteVersion(_)),
        request::Op::Get | request::Op::Delete => false,
    }
}

fn command_of(op: &Op<'_>) -> NativeCommand {
    match op {
        Op::Ping => NativeCommand::Ping,
        Op::Get { .. } => NativeCommand::Get,
        Op::Pull { .. } => NativeCommand::Pull,
        Op::Set(_) => NativeCommand::Set,
        Op::Delete { .. } => NativeCommand::Delete,
        Op::Incr { .. } => NativeCommand::Incr,
        Op::Append { .. } => NativeCommand::Append,
        Op::Prepend { .. } => NativeCommand::Prepend,
        Op::Touch { .. } => NativeCommand::Touch,
        Op::Range(_) => NativeCommand::Range,
    }
}
