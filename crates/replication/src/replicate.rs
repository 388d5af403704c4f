//! Replicated requests: the cluster's control thread executes them in a node's state machine
//! instead of the store, and answers them when every copy has their changes.
//!
//! ```text
//!  dispatcher ─ ControlRequest (a slot) ─▶ ControlChannel ─▶ control thread: node.input(Compute)
//!                                          node: newest write of the key ─▶ compute
//!                                            ├─▶ the key's new value     ═══▶ backups
//!                                            └─▶ the reply, encoded into the slot
//!  dispatcher ◀─ index of the slot ── ControlChannel ◀── all copies have it
//! ```
//!
//! # Invariants
//! I1: from its way in to its way out through the channel, a request slot belongs to the control
//!     thread alone, and there to the control request; it goes out exactly once.
//! I2: a reply in a request slot may be discarded and encoded anew until the request slot goes out.

mod apply;
mod channel;
mod flight;
mod forward;
mod group;
mod group_handle;
mod pending_group;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::UnixMillis;
use budget::{BufferBudget, Kind, Reservation};
use cluster::message::{Change, ChangeKind, Changed, Hold};
use cluster::record::Entry;
use cluster::{Slot, Version};
use commands::reply::{self, Destination, Reply, Shape, Tally};
use commands::rmw::Rmw;
use counters::WorkerCounters;
use crossbeam_utils::CachePadded;
use dispatch::lanes::request_slot::{RequestSlot, RequestSlotWriter, RequestSlots};
use store::Store;
use store::request::{Condition, Item, Op, Outcome, Request};
use wire::memcached::binary::{self, Status};
use wire::resp::{ErrorCode, ErrorReply};

use crate::cluster::room_bytes;

use flight::Flight;

pub use channel::{AnswerTo, ControlChannel, Ends, WokenWorker};
pub use flight::KeptRoom;
pub use forward::{Asker, Guests};
pub use group::{GroupAnswer, GroupCall, GroupChange, GroupRoom, KEPT_BYTES_MAX};
pub use group_handle::{Apart, Asked, GroupHandle, has_writes};
pub use pending_group::PendingGroup;

/// A request slot on its way through the control thread.
pub struct ControlRequest {
    /// The slots of its dispatcher.
    pub request_slots: Arc<RequestSlots>,
    /// Its place in them.
    pub index: u32,
    /// The thread of its dispatcher.
    pub dispatcher: u16,
}

/// Why a request was not executed, or why it is unknown whether it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another node serves the slot.
    Moved {
        /// The key's slot.
        slot: u16,
        /// Its RESP address.
        address: String,
    },
    /// No node serves the slot.
    Down,
    /// The node that serves the slot could not be asked in time, so that nothing was done.
    NotBegun,
    /// The log is full.
    Full,
    /// Fewer copies than `--min-copies` (K23).
    TooFewCopies,
    /// It was under way when this node ceased to be the primary.
    Uncertain,
}

impl Refused {
    /// The error code for a Redis client.
    fn code(&self) -> ErrorCode {
        match self {
            Refused::Moved { .. } => ErrorCode::Moved,
            Refused::Full => ErrorCode::Oom,
            Refused::TooFewCopies => ErrorCode::NoReplicas,
            Refused::Down | Refused::NotBegun => ErrorCode::ClusterDown,
            Refused::Uncertain => ErrorCode::Uncertain,
        }
    }
}

impl ControlRequest {
    fn request_slot(&self) -> *mut RequestSlot {
        self.request_slots.at(self.index)
    }

    /// The request, which borrows from its request slot.
    fn request(&self) -> Request<'_, Rmw<'_>> {
        // SAFETY: the request slot is the control thread's until the control request goes out (I1),
        // and nothing refers to it mutably while the request is looked at.
        unsafe { &*self.request_slot() }.request()
    }

    /// Whether another node may execute it for this one, because memcached's clients know no
    /// redirects.
    pub fn is_forwarded(&self) -> bool {
        // SAFETY: as in `request`.
        unsafe { &*self.request_slot() }.shape.is_memcached()
    }

    /// Whether its client has come over TLS.
    pub fn is_tls(&self) -> bool {
        // SAFETY: as in `request`.
        unsafe { &*self.request_slot() }.is_tls
    }

    /// The request as the bytes that another node reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        // SAFETY: as in `request`.
        forward::encode(unsafe { &*self.request_slot() })
    }

    /// Takes the reply that another node gave. Returns false if there is no room for it.
    fn take(&self, reply: &[u8], goes_past: bool, budget: &Arc<BufferBudget>) -> bool {
        // SAFETY: as in `refuse`.
        let request_slot = unsafe { &mut *self.request_slot() };
        request_slot.forget_reply();
        if request_slot.is_quiet {
            return true;
        }
        let has_room = RequestSlotWriter { request_slot: &mut *request_slot, budget, goes_past }
            .may_copy(reply.len());
        if has_room {
            request_slot.reply.extend_from_slice(reply);
        }
        has_room
    }

    /// Ends the connection because there was no room for the reply, as for a value of this node.
    pub fn cut(&self, budget: &Arc<BufferBudget>) {
        // SAFETY: as in `refuse`.
        let request_slot = unsafe { &mut *self.request_slot() };
        request_slot.forget_reply();
        RequestSlotWriter { request_slot, budget, goes_past: false }.cut();
    }

    /// Whether there was no room for its reply.
    pub fn is_cut(&self) -> bool {
        // SAFETY: as in `request`.
        unsafe { &*self.request_slot() }.is_cut
    }

    /// The reply in the request slot, and its booking.
    pub fn take_reply(&self) -> (Arc<[u8]>, Hold) {
        // SAFETY: as in `refuse`. Nothing is pinned: values here are copies.
        let request_slot = unsafe { &mut *self.request_slot() };
        (
            Arc::from(&request_slot.reply[..]),
            request_slot.room.take().map(Hold::new).unwrap_or_default(),
        )
    }

    /// The thread of its dispatcher.
    pub fn dispatcher(&self) -> u16 {
        self.dispatcher
    }

    /// The slot of its key.
    pub fn slot(&self) -> Slot {
        Slot::of(self.request().key)
    }

    /// Whether it stores a value.
    pub fn is_filling(&self) -> bool {
        matches!(self.request().op, Op::Set(_) | Op::Update(_))
    }

    /// The bytes of its key and its payload.
    pub fn len_bytes(&self) -> u64 {
        let request = self.request();
        (request.key.len() + dispatch::lanes::request_slot::payload_of(&request.op).len()) as u64
    }

    /// A copy of its key.
    pub fn key(&self) -> Arc<[u8]> {
        self.request().key.into()
    }

    /// Whether it is a read.
    pub fn is_read(&self) -> bool {
        matches!(self.request().op, Op::Get)
    }

    /// Puts a refusal into the request slot, in the place of any reply.
    pub fn refuse(&self, why: &Refused, counters: &WorkerCounters) {
        // A read has changed nothing, whatever became of it.
        let why =
            if *why == Refused::Uncertain && self.is_read() { &Refused::NotBegun } else { why };
        // SAFETY: as in `request`; no reference to the request is used meanwhile.
        let request_slot = unsafe { &mut *self.request_slot() };
        counters.failed(request_slot.command, why.code());
        request_slot.forget_reply();
        if !request_slot.is_quiet {
            refuse(request_slot, why);
        }
    }
}

/// What the control thread executes requests with.
pub struct Means {
    /// The server's store, for its limits and pins.
    pub store: Arc<Store>,
    /// The client buffers.
    pub budget: Arc<BufferBudget>,
    /// The counters of all threads.
    pub all_counters: Arc<[CachePadded<WorkerCounters>]>,
    /// Those of the control thread among them.
    pub index: usize,
}

impl Means {
    /// The control thread's counters.
    pub fn counters(&self) -> &WorkerCounters {
        &self.all_counters[self.index]
    }
}

/// What the node computes: the request of a control request as a change of its key.
pub struct RequestChange {
    control_request: ControlRequest,
    means: Arc<Means>,
    kind: ChangeKind,
    scratch: Mutex<Vec<u8>>,
    flight: Flight,
    /// The length of a reply that found no room; 0: none.
    reply_bytes: AtomicU64,
    /// Its reply may exceed the share of replies.
    goes_past: AtomicBool,
}

impl RequestChange {
    /// The change of one control request.
    pub fn new(control_request: ControlRequest, means: Arc<Means>) -> RequestChange {
        let kind = kind_of(&control_request.request().op);
        let flight = Flight::new(&means.budget);
        let (scratch, reply_bytes) = (Mutex::default(), AtomicU64::new(0));
        let goes_past = AtomicBool::new(false);
        RequestChange { control_request, means, kind, scratch, flight, reply_bytes, goes_past }
    }

    /// Whether it was refused for want of memory at the last attempt.
    pub fn lacks_room(&self) -> bool {
        self.flight.lacks_room()
    }

    /// Whether there may be memory for it now.
    pub fn may_begin(&self) -> bool {
        let (budget, bytes) = (&self.means.budget, self.lacks_reply_bytes());
        let has_reply_room = bytes == 0 || Reservation::could_take(budget, Kind::Replies, bytes);
        has_reply_room && self.flight.may_begin()
    }

    /// Takes the reply that another node gave. Returns false, and remembers the length, if there is
    /// no room for it.
    pub fn answer(&self, reply: &[u8]) -> bool {
        let is_taken = self.control_request.take(reply, self.goes_past(), &self.means.budget);
        let lacking_bytes = if is_taken { 0 } else { reply.len() as u64 };
        self.reply_bytes.store(lacking_bytes, Ordering::Relaxed);
        is_taken
    }

    /// Lets the oldest read's reply exceed the share of replies.
    pub fn let_past(&self, goes_past: bool) {
        self.goes_past.store(goes_past, Ordering::Relaxed);
    }

    fn goes_past(&self) -> bool {
        self.goes_past.load(Ordering::Relaxed)
    }

    /// The length of the reply that found no room.
    pub fn lacks_reply_bytes(&self) -> u64 {
        self.reply_bytes.load(Ordering::Relaxed)
    }
}

impl Deref for RequestChange {
    type Target = ControlRequest;

    fn deref(&self) -> &ControlRequest {
        &self.control_request
    }
}

/// A plain SET is blind: no client reads the old value.
fn kind_of(op: &Op<'_, Rmw<'_>>) -> ChangeKind {
    match op {
        Op::Get => ChangeKind::Read,
        Op::Set(set) => {
            let keeps = set.expiry == store::request::Expiry::Keep;
            let is_blind = set.condition == Condition::Always && !keeps;
            if is_blind { ChangeKind::Blind } else { ChangeKind::Update }
        }
        Op::Delete | Op::Update(_) => ChangeKind::Update,
    }
}

impl Change for RequestChange {
    fn compute(&self, current: Option<&Entry>, version: Version) -> Changed {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the request slot is the control thread's (I1), which runs this; `request` borrows
        // what the request slot keeps and not the request slot itself, as everywhere (Request
        // slot's I2).
        let request_slot = unsafe { &mut *self.control_request.request_slot() };
        let request = self.control_request.request();
        let now = request_slot.now;
        let old = item_of(current, now);
        let max_bytes = self.means.store.limits().item_max_bytes;
        let value_max_bytes = max_bytes.saturating_sub(request.key.len() as u64);
        let context = apply::Context { now, version: version.bits(), value_max_bytes };
        let room_bytes = || room_bytes(&self.means.store);
        let is_full = self.flight.outgrows(&request.op, old.as_ref(), value_max_bytes, room_bytes);
        if !is_full && !self.flight.begin(&request.op, old.as_ref(), value_max_bytes) {
            return Changed::NoRoom;
        }
        request_slot.forget_reply(); // I2
        let takes = !matches!(request.op, Op::Get);
        let may_tell = old.as_ref().filter(|_| takes).is_none_or(|old| {
            // Values here are copies: there is nothing to pin.
            request_slot.may_tell(old, None, &self.means.budget).0
        });
        let (outcome, changed) = match (is_full, may_tell) {
            (true, _) => (Outcome::OutOfMemory, Changed::Nothing),
            (false, false) => (Outcome::Untold, Changed::Nothing),
            (false, true) => apply::apply(&request, old, context, &mut scratch),
        };
        let counters = self.means.counters();
        let shape = request_slot.shape;
        reply::count(counters, request_slot.command, &outcome, shape);
        if !request_slot.is_quiet {
            let mut tally = Tally::default();
            let pins = self.means.store.pins();
            let note = std::mem::take(&mut request_slot.note);
            let (budget, goes_past) = (&self.means.budget, self.goes_past());
            let to = RequestSlotWriter { request_slot: &mut *request_slot, budget, goes_past };
            let mut reply = Reply { to, tally: &mut tally, notes: &note, pins, now };
            reply.answer(shape, outcome);
            request_slot.note = note;
        }
        if request_slot.is_cut || self.lacks_reply_bytes() > 0 {
            let lacking_bytes =
                old.filter(|_| request_slot.is_cut).map_or(0, |old| old.value.len() as u64);
            self.reply_bytes.store(lacking_bytes, Ordering::Relaxed);
        }
        self.flight.settle(&changed);
        if scratch.capacity() > budget::memory::KEPT_BYTES_MAX {
            *scratch = Vec::new(); // The write may be under way for long.
        }
        changed
    }

    fn hold(&self) -> Hold {
        self.flight.hold()
    }

    fn kind(&self) -> ChangeKind {
        // A request for the old value has a shape that includes it.
        match self.kind {
            // SAFETY: as in `compute`.
            ChangeKind::Blind if unsafe { &*self.control_request.request_slot() }.tells_old() => {
                ChangeKind::Update
            }
            kind => kind,
        }
    }
}

/// An entry as a reader sees it, if it is alive.
fn item_of(current: Option<&Entry>, now: UnixMillis) -> Option<Item<'_>> {
    let entry = current.filter(|entry| entry.expires_at.is_none_or(|at| at > now))?;
    let value = entry.value.as_deref()?;
    let Entry { client_flags, expires_at, version, .. } = *entry;
    let version = version.bits();
    Some(Item::of_stored(&entry.key, value, client_flags, version, expires_at))
}

/// Puts a refusal in the place of a reply.
fn refuse(request_slot: &mut RequestSlot, why: &Refused) {
    if let Shape::Binary(binary) = request_slot.shape {
        let status = if *why == Refused::Full { Status::OutOfMemory } else { Status::Temporary };
        let text = why.memcached_text();
        return binary::Encoder::new(&mut request_slot.reply, binary.head)
            .refuse_with(status, &text);
    }
    if request_slot.shape.is_memcached() {
        let line = format!("SERVER_ERROR {}\r\n", why.memcached_text());
        return request_slot.reply.extend_from_slice(line.as_bytes());
    }
    request_slot.reply.push(b'-');
    request_slot.reply.extend_from_slice(why.resp_line().as_bytes());
    request_slot.reply.extend_from_slice(b"\r\n");
}

impl Refused {
    fn memcached_text(&self) -> String {
        match self {
            // No client of memcached's protocol follows a redirect.
            Refused::Moved { .. } | Refused::NotBegun => {
                "the node that serves this key did not answer: nothing was done".to_owned()
            }
            Refused::Full => "out of memory storing object".to_owned(),
            Refused::Down => "no node serves this key now".to_owned(),
            Refused::TooFewCopies => "too few copies of this key are left to write it".to_owned(),
            Refused::Uncertain => "it is unknown whether this was written".to_owned(),
        }
    }

    /// The refusal as a RESP error, in Redis Cluster's words where it has some.
    fn resp_line(&self) -> String {
        match self {
            Refused::Moved { slot, address } => format!("MOVED {slot} {address}"),
            Refused::Full => "OOM command not allowed when used memory > 'maxmemory'.".to_owned(),
            Refused::Down | Refused::NotBegun => "CLUSTERDOWN Hash slot not served".to_owned(),
            Refused::TooFewCopies => "NOREPLICAS Not enough good replicas to write.".to_owned(),
            Refused::Uncertain => ErrorReply::Uncertain.to_string(),
        }
    }
}
