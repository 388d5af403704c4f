//! Native requests that another worker executes: copied once into a batch for that worker, and
//! answered by frames that the receiving worker sends.
//!
//! ```text
//!  receiving worker                                    executing worker
//!  frame 7: a b c d ─┬─ here ──▶ its own batch
//!                    └─ for worker 2: [b][d] ──inbox──▶ Batch, as if frame 7 held b and d alone
//!  transport ◀── frames of replies ◀────────────inbox── [replies to 7]
//! ```
//!
//! # Invariants
//! F1: a request that was picked for a worker is settled exactly once, when its batch has come back
//!     or could not leave (I2 of `policy::route`).
//! F2: of requests of one frame on one key, the later one goes where the earlier one went, if that
//!     has left (K10). Requests that stay are executed before those of their frames leave.
//! F3: a worker takes no frames while more than half of [`REQUESTS_MAX`] of its requests are under
//!     way, and the bytes of a request are booked before they are copied. A request for which there
//!     is no room stays, or is answered "busy", unexecuted, if it follows one that has left (K18).
//! F4: the executing worker admits an at-most-once write, executes it and remembers its outcome, as
//!     if the frame had arrived there. A value in parts is admitted where its last part arrived.
//! F5: replies to what was forwarded leave once the log is on the disk up to now, as other replies;
//!     if it has failed since the requests left, they are dropped.
//!
//! # References
//! uTPS §3.4; MICA §4.1; docs/formats/native.md: messages of one frame take effect in their order
//! per key, frames and replies have no order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{KeyHash, WorkerId};
use budget::{BufferBudget, Kind, Reservation};
use commands::work::BATCH_REQUESTS_MAX;
use counters::WorkerCounters;
use crossbeam_channel::{Receiver, Sender as ChannelSender, unbounded};
use landing::Sender;
use runtime::core::Core;
use runtime::engine::{Engine, Picked};
use wire::native::SteeringId;

use super::DATAGRAM_MAX_BYTES;
use super::outgoing::{Origin, Outlet, is_tight};
use super::sessions::{IdentityState, Session};

/// Forwarded requests of one worker that are not answered yet, at most.
pub const REQUESTS_MAX: usize = 4096;

/// Bytes by which the booking of a batch grows.
const BOOKED_STEP_BYTES: usize = 16 << 10;

/// What a batch keeps of a request beside its message.
const REQUEST_BYTES: usize = size_of::<Picked>() + size_of::<Piece>();

/// Bytes of a buffer that an idle batch keeps, at most.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Idle batches that a worker keeps for the next ones.
const SPARE_MAX: usize = 16;

/// Replies of one batch, beyond which further values are cut short and pulled: as long as a whole
/// batch of replies by datagrams.
const FULL_REPLIES_BYTES_MAX: usize = BATCH_REQUESTS_MAX * DATAGRAM_MAX_BYTES;

/// How the replies of a batch leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By the worker's port of this position.
    Port(usize),
    /// By the rings of its clients in shared memory.
    Shm,
}

/// Consecutive messages of one frame.
pub struct Piece {
    session: Arc<Session>,
    steering: SteeringId,
    number: u32,
    /// Where they end in the batch's bytes.
    end: usize,
    /// The whole value of the one set, which arrived in parts.
    pub value: Option<Vec<u8>>,
}

impl Piece {
    /// Whether a message of that frame joins this piece.
    fn continues(&self, origin: &Origin<'_>) -> bool {
        self.value.is_none()
            && self.number == origin.number
            && Arc::ptr_eq(&self.session, origin.session)
    }

    /// The frame that the replies name.
    pub fn origin(&self) -> Origin<'_> {
        Origin { session: &self.session, steering: self.steering, number: self.number }
    }
}

/// Requests for one worker, or its replies on their way back.
pub struct ForwardedBatch {
    /// The thread that received the requests.
    from: usize,
    exit: Exit,
    is_executed: bool,
    messages: Vec<u8>,
    /// Of whole values.
    values_bytes: usize,
    pieces: Vec<Piece>,
    picked: Vec<Picked>,
    booked: Reservation,
    /// How often the log had failed when it left (F5).
    pub refusals_seen: u64,
    replies: ReplyFrames,
}

/// Frames of replies that wait for the worker that sends them.
pub struct ReplyFrames {
    bytes: Vec<u8>,
    /// The receiver of each frame, and where the frame ends.
    ends: Vec<(Sender, usize)>,
    booked: Reservation,
    /// There was no room for a frame: values are cut short.
    is_tight: bool,
    budget: Arc<BufferBudget>,
}

impl ReplyFrames {
    fn new(budget: &Arc<BufferBudget>) -> ReplyFrames {
        let booked = Reservation::empty(budget, Kind::Replies);
        let budget = Arc::clone(budget);
        ReplyFrames { bytes: Vec::new(), ends: Vec::new(), booked, is_tight: false, budget }
    }

    /// Begins with room for a frame; without it, values are short.
    fn begin(&mut self) {
        self.is_tight =
            is_tight(&self.budget) || !self.booked.try_resize(super::FRAME_MAX_BYTES as u64);
    }

    /// Books a frame that exists already; without room for it, further values are short.
    fn book(&mut self, frame_bytes: usize) {
        let bytes = (self.bytes.len() + frame_bytes) as u64;
        if bytes <= self.booked.bytes() {
            return;
        }
        if !self.booked.try_resize(bytes.next_multiple_of(BOOKED_STEP_BYTES as u64)) {
            self.is_tight = true;
            self.booked = Reservation::forced(&self.budget, Kind::Replies, bytes);
        }
    }

    /// Keeps the booking of what there is.
    fn end(&mut self) {
        let bytes = self.bytes.len() as u64;
        if bytes < self.booked.bytes() {
            self.booked.try_resize(bytes);
        }
    }

    fn clear(&mut self) {
        clear(&mut self.bytes);
        self.ends.clear();
        self.is_tight = false;
        self.booked = Reservation::empty(&self.budget, Kind::Replies);
    }
}

/// Empties a buffer, and keeps a short one's memory.
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEPT_BYTES_MAX {
        *buffer = Vec::new();
    }
}

impl Outlet for ReplyFrames {
    /// Sessions know the longest frame that their clients take.
    fn frame_max_bytes(&self) -> usize {
        super::FRAME_MAX_BYTES
    }

    fn send(&mut self, to: Sender, frame: &[u8], _: &WorkerCounters) {
        self.book(frame.len());
        self.bytes.extend_from_slice(frame);
        self.ends.push((to, self.bytes.len()));
    }

    fn is_generous(&self) -> bool {
        !self.is_tight && self.bytes.len() <= FULL_REPLIES_BYTES_MAX
    }
}

impl ForwardedBatch {
    /// Begins with its execution: the pieces with their messages, and the outlet for the replies.
    pub fn begin(&mut self) -> (impl Iterator<Item = (&Piece, &[u8])>, &mut ReplyFrames) {
        self.replies.begin();
        let messages = &self.messages[..];
        let mut start = 0;
        let pieces = self.pieces.iter().map(move |piece| {
            let of_piece = &messages[start..piece.end];
            start = piece.end;
            (piece, of_piece)
        });
        (pieces, &mut self.replies)
    }

    /// The number of its requests.
    pub fn request_count(&self) -> usize {
        self.picked.len()
    }

    /// Where its replies leave.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether it has come back.
    pub fn is_executed(&self) -> bool {
        self.is_executed
    }

    /// Hands the replies to the outlet.
    pub fn send<T: Outlet>(&self, outlet: &mut T, counters: &WorkerCounters) {
        let mut start = 0;
        for (to, end) in &self.replies.ends {
            outlet.send(*to, &self.replies.bytes[start..*end], counters);
            start = *end;
        }
    }

    /// Books bytes for one more request (F3).
    fn make_room(&mut self, request_bytes: usize) -> bool {
        let requests_bytes = (self.picked.len() + 1) * REQUEST_BYTES;
        let bytes = self.messages.len() + self.values_bytes + request_bytes + requests_bytes;
        let booked_bytes = bytes.next_multiple_of(BOOKED_STEP_BYTES) as u64;
        booked_bytes <= self.booked.bytes() || self.booked.try_resize(booked_bytes)
    }

    /// Copies a message behind the others.
    fn add(&mut self, origin: &Origin<'_>, message: &[u8], value: Option<Vec<u8>>) {
        self.values_bytes += value.as_ref().map_or(0, Vec::len);
        self.messages.extend_from_slice(message);
        let end = self.messages.len();
        let is_alone = value.is_some();
        match self.pieces.last_mut() {
            Some(last) if !is_alone && last.continues(origin) => last.end = end,
            _ => self.pieces.push(Piece {
                session: Arc::clone(origin.session),
                steering: origin.steering,
                number: origin.number,
                end,
                value,
            }),
        }
    }

    fn clear(&mut self, budget: &Arc<BufferBudget>) {
        self.is_executed = false;
        self.values_bytes = 0;
        self.pieces.clear();
        self.picked.clear();
        self.replies.clear();
        clear(&mut self.messages);
        self.booked = Reservation::empty(budget, Kind::Bodies);
    }
}

/// Where the workers of a server leave batches for one another.
pub struct Inboxes(Box<[Inbox]>);

struct Inbox {
    sender: ChannelSender<Box<ForwardedBatch>>,
    receiver: Receiver<Box<ForwardedBatch>>,
    /// The batches in it: a round of a worker without any reads this alone.
    waiting_count: AtomicUsize,
}

impl std::fmt::Debug for Inboxes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Inboxes({})", self.0.len())
    }
}

impl Inboxes {
    /// One for each thread.
    pub fn new(thread_count: usize) -> Inboxes {
        let inbox = |_| {
            let (sender, receiver) = unbounded(); // F3 bounds it.
            Inbox { sender, receiver, waiting_count: AtomicUsize::new(0) }
        };
        Inboxes((0..thread_count).map(inbox).collect())
    }

    /// Whether a thread has some.
    #[inline]
    pub fn has_any(&self, thread: usize) -> bool {
        // Acquire: the bell's fence orders it with a sleep; the channel orders the contents.
        self.0[thread].waiting_count.load(Ordering::Acquire) > 0
    }

    /// Takes the oldest of a thread.
    pub fn take(&self, thread: usize) -> Option<Box<ForwardedBatch>> {
        let inbox = &self.0[thread];
        let batch = inbox.receiver.try_recv().ok()?;
        inbox.waiting_count.fetch_sub(1, Ordering::Relaxed);
        Some(batch)
    }

    fn put(&self, thread: usize, batch: Box<ForwardedBatch>) {
        let inbox = &self.0[thread];
        // First: the taker subtracts what was added.
        inbox.waiting_count.fetch_add(1, Ordering::Release);
        // It cannot fail: the receiving end lives as long as `self`.
        let _ = inbox.sender.send(batch);
    }

    /// Sends an executed batch back to the thread that received its requests.
    pub fn give_back(&self, mut batch: Box<ForwardedBatch>, engine: &dyn Engine, core: &Core) {
        batch.is_executed = true;
        batch.pieces.clear();
        batch.replies.end();
        let from = batch.from;
        self.put(from, batch);
        engine.wake_sleeping(core, from);
    }
}

/// One worker's side: its batches in the making.
pub struct Forwarder {
    own: usize,
    budget: Arc<BufferBudget>,
    exit: Exit,
    /// By thread.
    open: Vec<Option<Box<ForwardedBatch>>>,
    #[expect(clippy::vec_box, reason = "they go through the inboxes as boxes")]
    spare: Vec<Box<ForwardedBatch>>,
    /// Requests that left and have not come back.
    under_way_count: usize,
    /// Requests that the router left here: settled behind the batch that executes them.
    here: Vec<Picked>,
    /// The workers to which requests of the present frame went, by key (F2).
    earlier: HashMap<u64, WorkerId, IdentityState>,
}

impl Forwarder {
    /// Of a thread that has forwarded nothing.
    pub fn new(own: usize, thread_count: usize, budget: &Arc<BufferBudget>) -> Forwarder {
        Forwarder {
            own,
            budget: Arc::clone(budget),
            exit: Exit::Shm,
            open: (0..thread_count).map(|_| None).collect(),
            spare: Vec::new(),
            under_way_count: 0,
            here: Vec::new(),
            earlier: HashMap::default(),
        }
    }

    /// Begins with frames that arrived this way.
    pub fn begin(&mut self, exit: Exit) {
        debug_assert!(self.open.iter().all(Option::is_none), "published at the end of a batch");
        self.exit = exit;
    }

    /// Begins with another frame.
    pub fn begin_frame(&mut self) {
        self.earlier.clear();
    }

    /// The worker to which an earlier request of the frame on this key went (F2).
    pub fn earlier(&self, hash: KeyHash) -> Option<WorkerId> {
        self.earlier.get(&hash.0).copied()
    }

    /// Whether the batch for a thread holds as many requests as one may.
    pub fn is_full(&self, thread: usize) -> bool {
        self.open[thread].as_ref().is_some_and(|batch| batch.request_count() >= BATCH_REQUESTS_MAX)
    }

    /// Books room for a request in the batch for a thread (F3). False: there is none, or too many
    /// are under way.
    pub fn make_room(&mut self, thread: usize, message_bytes: usize, value_bytes: usize) -> bool {
        if self.under_way_count >= REQUESTS_MAX {
            return false;
        }
        let mut batch = match self.open[thread].take() {
            Some(batch) => batch,
            None => self.open_batch(),
        };
        let has_room = batch.make_room(message_bytes + value_bytes);
        if has_room || !batch.picked.is_empty() {
            self.open[thread] = Some(batch);
        } else {
            self.keep(batch);
        }
        has_room
    }

    /// Adds a request, on the key of that hash, to the batch for the thread that was picked, which
    /// has room for it; `value`: what its parts made.
    pub fn add(
        &mut self,
        (picked, hash): (Picked, Option<KeyHash>),
        origin: &Origin<'_>,
        message: &[u8],
        value: Option<Vec<u8>>,
    ) {
        let Some(batch) = &mut self.open[picked.thread] else {
            unreachable!("room was made in it");
        };
        batch.add(origin, message, value);
        batch.picked.push(picked);
        self.under_way_count += 1;
        self.earlier.extend(hash.map(|hash| (hash.0, picked.worker)));
    }

    /// Notes a request that the router left here.
    pub fn stay(&mut self, picked: Picked) {
        self.here.push(picked);
    }

    /// Settles the requests that stayed, once they are executed.
    pub fn settle_here(&mut self, engine: &mut dyn Engine) {
        self.here.drain(..).for_each(|picked| engine.settle_picked(&picked));
    }

    /// Sends all batches.
    pub fn publish(
        &mut self,
        inboxes: &Inboxes,
        engine: &dyn Engine,
        (core, refusals_seen): (&Core, u64),
    ) {
        for (thread, open) in self.open.iter_mut().enumerate() {
            let Some(mut batch) = open.take() else { continue };
            batch.refusals_seen = refusals_seen;
            let forwardings = &core.counters().forwardings;
            forwardings.sent.add(batch.request_count() as u64);
            forwardings.publications.add(1);
            inboxes.put(thread, batch);
            engine.wake_sleeping(core, thread);
        }
    }

    /// Settles the requests of a batch that has come back.
    pub fn take_back(&mut self, batch: Box<ForwardedBatch>, engine: &mut dyn Engine) {
        self.under_way_count -= batch.request_count();
        batch.picked.iter().for_each(|picked| engine.settle_picked(picked));
        self.keep(batch);
    }

    /// Whether so many requests are under way that no more frames are taken from clients.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.under_way_count > REQUESTS_MAX / 2
    }

    /// Whether no batch is under way.
    pub fn is_drained(&self) -> bool {
        self.under_way_count == 0
    }

    fn open_batch(&mut self) -> Box<ForwardedBatch> {
        let mut batch = self.spare.pop().unwrap_or_else(|| {
            Box::new(ForwardedBatch {
                from: self.own,
                exit: self.exit,
                is_executed: false,
                messages: Vec::new(),
                values_bytes: 0,
                pieces: Vec::new(),
                picked: Vec::new(),
                booked: Reservation::empty(&self.budget, Kind::Bodies),
                refusals_seen: 0,
                replies: ReplyFrames::new(&self.budget),
            })
        });
        batch.exit = self.exit;
        batch
    }

    fn keep(&mut self, mut batch: Box<ForwardedBatch>) {
        batch.clear(&self.budget);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(batch);
        }
    }
}
