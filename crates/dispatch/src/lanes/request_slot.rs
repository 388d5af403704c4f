//! Request slots: a request on its way to another worker, and its answer on the way back.
//!
//! ```text
//!  dispatcher: fill ─▶ ring: publish ─▶ executor: execute, answer ─▶ ring: tail passes
//!      ▲ clear ◀───────────────────────────────────────────────────────────────┘
//!
//!  request ─borrows─▶ bytes           the slot's own copy, up to 16 KiB
//!                  └▶ receive buffer  the one that a large command was read into
//!  answer: [ reply up to split ][ pinned value ][ rest of reply ]
//! ```
//!
//! # Invariants
//! I1: a request slot has one holder: the executor from the publication of the ring's entry that
//!     names it until the tail has passed that entry, otherwise its dispatcher.
//! I2: a request borrows only from memory that its request slot keeps: the slot's `bytes`, which do
//!     not change while there is a request, or its `receive_buffer` (K16).
//!
//! # Trade-offs
//! A small request is copied once more than in uTPS, whose executor reads the receive buffer. In
//! return the receive arena is free again at the end of its round, and the executor finds key and
//! value in one piece of memory instead of all over the dispatcher's arena.

use std::cell::UnsafeCell;
use std::sync::Arc;

use base::UnixMillis;
use budget::{BufferBudget, Kind, Reservation};
use commands::compaction::Tells;
use commands::output::{PIN_VALUE_BYTES_MIN, PIN_VALUE_BYTES_MIN_OVER_LIMIT};
use commands::reply::Answer;
use commands::reply::{Destination, Shape};
use commands::rmw::meta::{MetaJoin, MetaStore, Named};
use commands::rmw::{Bounded, Rmw};
use counters::CommandIndex;
use store::pin::{PinnedValue, Pins};
use store::request::{Item, Op, Request, Set, TOLD_BYTES_MIN};
use wire::resp::{self, Comparison};

use super::awaiting::NO_TICKET;

/// Keys and values of up to this length are copied; longer ones stay where they were read, if they
/// can.
pub const COPY_BYTES_MAX: usize = 16 << 10;

/// Requests that one dispatcher may have in flight.
pub const REQUEST_SLOTS: usize = 1024;

/// One request and its answer.
pub struct RequestSlot {
    request: Option<Request<'static, Rmw<'static>>>,
    /// Its command, for the counters.
    pub command: CommandIndex,
    /// The form of its reply.
    pub shape: Shape,
    protocol: resp::Protocol,
    /// Its client has come over TLS.
    pub is_tls: bool,
    /// Its client wants no reply.
    pub is_quiet: bool,
    /// It was routed by the size that it carries or was found to have, so the worker that has it
    /// executes it.
    pub is_sized: bool,
    /// The executor's verdict.
    pub verdict: Verdict,
    /// Its place among the requests of its dispatcher.
    pub order: u64,
    /// How many unexecuted requests its dispatcher had received back from this executor when it was
    /// sent.
    pub returned_seen: u64,
    /// The request slot of the request that the same worker executes after this one
    /// (`steal_queues`).
    pub follower: u32,
    /// Its connection, numbered among those of all dispatchers.
    pub connection: u64,
    /// The dispatcher's clock when it parsed the request.
    pub now: UnixMillis,
    bytes: Vec<u8>,
    receive_buffer: Option<Arc<Vec<u8>>>,
    /// The parts of the request that are not plain bytes and that it borrows.
    named: Option<Arc<Named<'static>>>,
    /// The bytes that the reply repeats from its command; its shape says where.
    pub note: Vec<u8>,
    /// The reply's bytes, except those of a pinned value.
    pub reply: Vec<u8>,
    /// Sent behind the first `split_bytes` of `reply`.
    pub pinned: Option<PinnedValue>,
    /// How much of `reply` goes before the pinned value.
    pub split_bytes: usize,
    /// The booking of a large value in `reply`.
    pub room: Option<Reservation>,
    /// There is no reply, and none may take its place: the connection ends.
    pub is_cut: bool,
}

/// An executor's verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is executed, and the answer is in the request slot.
    Answered,
    /// It was not executed, because its item is large.
    Large {
        /// The size of key and value.
        size_bytes: u64,
    },
    /// It was not executed, because an earlier one of its connection and key was not (K10).
    Behind,
}

/// The origin of a request and the form of its answer.
pub struct Origin<'n> {
    /// The form of the answer.
    pub answer: Answer,
    /// The notes of all gathered requests; [`Shape::noted`].
    pub notes: &'n [u8],
    /// The version of RESP that its client speaks.
    pub protocol: resp::Protocol,
    /// Its client has come over TLS.
    pub is_tls: bool,
    /// The id of its connection.
    pub connection: u64,
    /// When it was gathered.
    pub now: UnixMillis,
}

impl Default for RequestSlot {
    /// An empty slot.
    fn default() -> RequestSlot {
        RequestSlot {
            request: None,
            command: CommandIndex::UNKNOWN_RESP,
            shape: Shape::McNothing,
            protocol: resp::Protocol::Resp2,
            is_tls: false,
            is_quiet: false,
            is_sized: false,
            verdict: Verdict::Answered,
            order: 0,
            returned_seen: 0,
            follower: NO_TICKET,
            connection: 0,
            now: UnixMillis(0),
            bytes: Vec::new(),
            receive_buffer: None,
            named: None,
            note: Vec::new(),
            reply: Vec::new(),
            pinned: None,
            split_bytes: 0,
            room: None,
            is_cut: false,
        }
    }
}

impl RequestSlot {
    /// Takes only the parts that an answer needs: the request is executed where it lies.
    pub fn address(&mut self, origin: &Origin<'_>) {
        debug_assert!(self.request.is_none(), "I1: a slot takes one request at a time");
        self.command = origin.answer.command;
        self.shape = origin.answer.shape;
        if let shape @ (Shape::Meta(_) | Shape::Binary(_)) = origin.answer.shape {
            let (alone, note) = shape.noted(origin.notes);
            self.note.extend_from_slice(note);
            self.shape = alone;
        }
        self.is_quiet = origin.answer.is_quiet;
        self.verdict = Verdict::Answered;
        self.protocol = origin.protocol;
        self.is_tls = origin.is_tls;
        self.connection = origin.connection;
        self.now = origin.now;
    }

    /// Takes a request; returns how many bytes were copied.
    pub fn fill(
        &mut self,
        request: &Request<'_, Rmw<'_>>,
        receive_buffer: Option<&Arc<Vec<u8>>>,
        origin: &Origin<'_>,
    ) -> usize {
        self.address(origin);
        self.is_sized = matches!(request.op, Op::Set(_) | Op::Delete);
        let len_bytes =
            request.key.len() + payload_of(&request.op).len() + operand_of(&request.op).len();
        if len_bytes > COPY_BYTES_MAX
            && let Some(receive_buffer) =
                receive_buffer.filter(|receive_buffer| lies_in(receive_buffer, request))
        {
            self.receive_buffer = Some(Arc::clone(receive_buffer));
            // SAFETY: the bytes lie in `receive_buffer`, as was just checked, and that stays with
            // the request slot, whole and unchanged, until `clear` has dropped the request (I2).
            self.request = Some(moved(request, &mut self.named, |bytes| unsafe { outlive(bytes) }));
            return 0;
        }
        // So that appending bytes does not move earlier ones.
        self.bytes.reserve(len_bytes);
        let bytes = &mut self.bytes;
        self.request = Some(moved(request, &mut self.named, |source| {
            let start = bytes.len();
            bytes.extend_from_slice(source);
            // SAFETY: the bytes were reserved, so they do not move, and no thread changes them
            // before `clear` has dropped the request (I2).
            unsafe { outlive(&bytes[start..]) }
        }));
        len_bytes
    }

    /// The request, for as long as the request slot is held (I1): it must not be used afterwards.
    #[inline]
    pub fn request(&self) -> Request<'_, Rmw<'_>> {
        self.request.expect("a published slot holds a request")
    }

    /// Whether its payload alone takes longer than many short requests.
    pub fn is_long(&self) -> bool {
        payload_of(&self.request().op).len() > COPY_BYTES_MAX
    }

    /// The thread of its dispatcher.
    #[inline]
    pub fn dispatcher(&self) -> u16 {
        (self.connection >> 32) as u16
    }

    /// Drops the parts of the answer that are not plain bytes.
    #[inline]
    pub fn forget_pinned(&mut self) {
        self.pinned = None;
        self.split_bytes = 0;
        self.room = None;
        self.is_cut = false;
    }

    /// Discards the reply.
    pub fn forget_reply(&mut self) {
        self.reply.clear();
        self.forget_pinned();
    }

    /// Whether the reply includes the old value.
    pub fn tells_old(&self) -> bool {
        self.shape.tells() == Tells::Old
    }

    /// Whether the reply has room for an old value that its request is about to take away
    /// ([`Sink::may_tell`]); a pin has to be kept until the outcome is told.
    ///
    /// [`Sink::may_tell`]: store::request::Sink::may_tell
    pub fn may_tell(
        &mut self,
        old: &Item<'_>,
        pins: Option<Pins<'_>>,
        budget: &Arc<BufferBudget>,
    ) -> (bool, Option<PinnedValue>) {
        let tells_long = old.value.len() >= TOLD_BYTES_MIN && self.shape.tells_value_of_change();
        if !tells_long || self.is_quiet {
            return (true, None);
        }
        // Other shapes tell the new item, which may lie elsewhere.
        let tells_old = self.shape == Shape::OldValue;
        let pinned =
            pins.and_then(|pins| pins.try_pin(old).filter(|_| tells_old || pins.have_room()));
        let mut writer = RequestSlotWriter { request_slot: self, budget, goes_past: false };
        (pinned.is_some() || writer.may_copy(old.value.len()), pinned)
    }

    /// Clears the slot for the next request, after the answer has left. A reply that is known at
    /// once is put out as it stands: nothing of an earlier command's form may be left.
    pub fn clear(&mut self, kept_bytes_max: usize) {
        self.request = None; // Before what it borrows (I2).
        self.shape = Shape::McNothing;
        self.receive_buffer = None;
        self.named = None;
        self.forget_pinned();
        for buffer in [&mut self.bytes, &mut self.reply, &mut self.note] {
            buffer.clear();
            if buffer.capacity() > kept_bytes_max {
                *buffer = Vec::new();
            }
        }
    }
}

/// The same bytes, with a longer lifetime than the borrow has.
///
/// # Safety
/// They must stay where they are, unchanged, for as long as the result is used.
unsafe fn outlive(bytes: &[u8]) -> &'static [u8] {
    // SAFETY: a slice's own pointer and length; the caller answers for the time.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}

/// Whether everything that a request borrows is a part of `receive_buffer`.
fn lies_in(receive_buffer: &Arc<Vec<u8>>, request: &Request<'_, Rmw<'_>>) -> bool {
    let receive_buffer = receive_buffer.as_ptr_range();
    let borrowed = [request.key, payload_of(&request.op), operand_of(&request.op)];
    borrowed.into_iter().filter(|bytes| !bytes.is_empty()).all(|bytes| {
        let bytes = bytes.as_ptr_range();
        receive_buffer.start <= bytes.start && bytes.end <= receive_buffer.end
    })
}

/// The bytes that an operation carries besides the key, except those that it compares with.
pub fn payload_of<'a>(op: &Op<'a, Rmw<'a>>) -> &'a [u8] {
    match *op {
        Op::Get | Op::Delete => b"",
        Op::Set(Set { value, .. }) => value,
        Op::Update(update) => match update {
            Rmw::IncrementByFloat(bytes) => bytes,
            Rmw::Append(part)
            | Rmw::Prepend(part)
            | Rmw::SetRange { value: part, .. }
            | Rmw::Join(part, _) => part.bytes,
            Rmw::MetaAppend(join) | Rmw::MetaPrepend(join) => join.bytes,
            Rmw::MetaStore(store) => store.value,
            Rmw::SetIf { value, .. } => value,
            Rmw::Named(named) => payload_of(&Op::Update(named.update)),
            Rmw::IncrementBy(_)
            | Rmw::DeleteVersion(_)
            | Rmw::DeleteToken(_)
            | Rmw::DeleteIf(_)
            | Rmw::SetBit { .. }
            | Rmw::SetExpiry(_)
            | Rmw::Expire { .. }
            | Rmw::Persist
            | Rmw::Increase(_)
            | Rmw::Decrease(_)
            | Rmw::MetaGet(_)
            | Rmw::MetaInvalidate(_)
            | Rmw::MetaIncrease(_)
            | Rmw::MetaDecrease(_) => b"",
        },
    }
}

/// The bytes that an operation compares a value with.
fn operand_of<'a>(op: &Op<'a, Rmw<'a>>) -> &'a [u8] {
    match *op {
        Op::Update(Rmw::SetIf { comparison, .. } | Rmw::DeleteIf(comparison)) => comparison.operand,
        Op::Update(Rmw::Named(named)) => operand_of(&Op::Update(named.update)),
        _ => b"",
    }
}

/// The same request, over the copies of its bytes that `keep` makes.
fn moved(
    request: &Request<'_, Rmw<'_>>,
    named: &mut Option<Arc<Named<'static>>>,
    mut keep: impl FnMut(&[u8]) -> &'static [u8],
) -> Request<'static, Rmw<'static>> {
    let key = keep(request.key);
    let op = match request.op {
        Op::Get => Op::Get,
        Op::Delete => Op::Delete,
        Op::Set(Set { value, client_flags, expiry, condition }) => {
            Op::Set(Set { value: keep(value), client_flags, expiry, condition })
        }
        Op::Update(Rmw::Named(Named { update, token })) => {
            let there = named.insert(Arc::new(Named {
                update: moved_update(*update, &mut keep),
                token: *token,
            }));
            // SAFETY: the request slot keeps what it points to, unchanged, until `clear` has
            // dropped the request (I2).
            Op::Update(Rmw::Named(unsafe { &*Arc::as_ptr(there) }))
        }
        Op::Update(update) => Op::Update(moved_update(update, &mut keep)),
    };
    Request { key, hash: request.hash, op }
}

fn moved_update(update: Rmw<'_>, keep: &mut impl FnMut(&[u8]) -> &'static [u8]) -> Rmw<'static> {
    match update {
        Rmw::IncrementBy(delta) => Rmw::IncrementBy(delta),
        Rmw::IncrementByFloat(increment) => Rmw::IncrementByFloat(keep(increment)),
        Rmw::Append(tail) => Rmw::Append(bounded(tail, keep)),
        Rmw::Prepend(head) => Rmw::Prepend(bounded(head, keep)),
        Rmw::DeleteVersion(version) => Rmw::DeleteVersion(version),
        Rmw::DeleteToken(token) => Rmw::DeleteToken(token),
        Rmw::SetRange { offset_bytes, value } => {
            Rmw::SetRange { offset_bytes, value: bounded(value, keep) }
        }
        Rmw::SetBit { offset_bits, bit } => Rmw::SetBit { offset_bits, bit },
        Rmw::SetIf { comparison, value, expiry } => {
            let value = keep(value);
            Rmw::SetIf { comparison: compared(comparison, keep), value, expiry }
        }
        Rmw::DeleteIf(comparison) => Rmw::DeleteIf(compared(comparison, keep)),
        Rmw::SetExpiry(expires_at) => Rmw::SetExpiry(expires_at),
        Rmw::Expire { at, condition } => Rmw::Expire { at, condition },
        Rmw::Persist => Rmw::Persist,
        Rmw::Join(bytes, side) => Rmw::Join(bounded(bytes, keep), side),
        Rmw::Increase(delta) => Rmw::Increase(delta),
        Rmw::Decrease(delta) => Rmw::Decrease(delta),
        Rmw::MetaGet(get) => Rmw::MetaGet(get),
        Rmw::MetaInvalidate(invalidate) => Rmw::MetaInvalidate(invalidate),
        Rmw::MetaIncrease(count) => Rmw::MetaIncrease(count),
        Rmw::MetaDecrease(count) => Rmw::MetaDecrease(count),
        Rmw::MetaStore(store) => Rmw::MetaStore(MetaStore { value: keep(store.value), ..store }),
        Rmw::MetaAppend(join) => Rmw::MetaAppend(joined(join, keep)),
        Rmw::MetaPrepend(join) => Rmw::MetaPrepend(joined(join, keep)),
        // A token does not wrap another token.
        Rmw::Named(named) => moved_update(named.update, keep),
    }
}

fn joined(join: MetaJoin<'_>, keep: &mut impl FnMut(&[u8]) -> &'static [u8]) -> MetaJoin<'static> {
    MetaJoin { bytes: keep(join.bytes), ..join }
}

fn bounded(part: Bounded<'_>, keep: &mut impl FnMut(&[u8]) -> &'static [u8]) -> Bounded<'static> {
    Bounded { bytes: keep(part.bytes), max_bytes: part.max_bytes }
}

fn compared(
    comparison: Comparison<'_>,
    keep: &mut impl FnMut(&[u8]) -> &'static [u8],
) -> Comparison<'static> {
    Comparison { compares: comparison.compares, operand: keep(comparison.operand) }
}

/// Writes a reply into a request slot: a value that cannot be pinned is booked before it is copied.
pub struct RequestSlotWriter<'w> {
    /// The slot.
    pub request_slot: &'w mut RequestSlot,
    /// Where the value is booked.
    pub budget: &'w Arc<BufferBudget>,
    /// A long value may exceed the share of replies: replies behind it cannot leave before it does.
    pub goes_past: bool,
}

impl Destination for RequestSlotWriter<'_> {
    #[inline]
    fn append<T>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        encode(&mut self.request_slot.reply)
    }

    #[inline]
    fn protocol(&self) -> resp::Protocol {
        self.request_slot.protocol
    }

    /// The dispatcher knows whether its client reads its replies, so it decides whether to copy;
    /// until then a pin is cheaper than a copy that may have to be copied again.
    #[inline]
    fn is_pinned(&mut self, value_len_bytes: usize) -> bool {
        value_len_bytes >= PIN_VALUE_BYTES_MIN_OVER_LIMIT
    }

    fn expect_large(&mut self) {}

    fn push_pinned(&mut self, value: PinnedValue) {
        self.request_slot.split_bytes = self.request_slot.reply.len();
        self.request_slot.pinned = Some(value);
    }

    #[cold]
    fn may_copy(&mut self, len_bytes: usize) -> bool {
        if len_bytes < PIN_VALUE_BYTES_MIN {
            return true; // A batch of these is 8 MiB.
        }
        let (budget, bytes) = (self.budget, len_bytes as u64);
        if self.request_slot.room.as_ref().is_some_and(|room| room.bytes() >= bytes) {
            return true; // It was booked before the value was taken away.
        }
        self.request_slot.room = Reservation::try_new(budget, Kind::Replies, bytes);
        if self.request_slot.room.is_none() && self.goes_past {
            self.request_slot.room = Reservation::past(budget, Kind::Replies, bytes);
        }
        self.request_slot.room.is_some()
    }

    /// The error line is for another node, which has no other information; a dispatcher ends the
    /// connection.
    #[cold]
    fn cut(&mut self) {
        self.request_slot
            .reply
            .extend_from_slice(b"SERVER_ERROR out of memory writing get response\r\n");
        self.request_slot.is_cut = true;
    }
}

/// All request slots of one dispatcher.
pub struct RequestSlots(Box<[UnsafeCell<RequestSlot>]>);

// SAFETY: a request slot has one holder at a time (I1), and the ring's head and tail order what one
// holder did before what the next one does.
unsafe impl Sync for RequestSlots {}
// SAFETY: a request slot's parts may be used and dropped on any thread: the borrowed bytes are in
// its own buffers or in an `Arc`, and a pinned value is `Send`.
unsafe impl Send for RequestSlots {}

impl Default for RequestSlots {
    /// As many as a dispatcher may have in flight, all free.
    fn default() -> RequestSlots {
        RequestSlots((0..REQUEST_SLOTS).map(|_| UnsafeCell::default()).collect())
    }
}

impl RequestSlots {
    /// Bytes of a dispatcher's request slots without their buffers.
    pub const BYTES: u64 = (REQUEST_SLOTS * size_of::<RequestSlot>()) as u64;

    /// A request slot. Only its holder may dereference the pointer (I1).
    #[inline]
    pub fn at(&self, index: u32) -> *mut RequestSlot {
        self.0[index as usize].get()
    }
}

#[cfg(test)]
mod tests;
