//! The slots of outstanding requests: each holds everything needed to send its request again.
//!
//! ```text
//!            submit          output           input
//!   Free ──▶ Blocked ──▶ Queued ──▶ Sent ──▶ Done ──▶ Free
//!                          ▲         │ lost, busy        next_completion
//!                          └─────────┘
//!                          └─▶ InParts ──▶ Done           (its parts are slots of their own)
//! ```
//!
//! # Invariants
//! S1: a slot's number changes each time the slot is taken, so that an answer or a queue entry for
//!     an earlier request in it is recognised.
//! S2: the slot of a part has a parent that is `InParts`, and is freed with its parent.

use std::collections::VecDeque;
use std::ops::Bound;

use base::UnixMillis;
use wire::native::{
    Condition, Direction, Expiry, Op, Pull, Range, RangeItems, Reply, Set, Span, Status, Want,
};

use crate::config::ReadSteering;
use crate::error::RequestError;

/// No slot, no frame.
pub(crate) const NONE: u32 = u32::MAX;

/// The largest buffer that a free slot keeps.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Slots for parts of large values, for all transfers together.
pub(super) const PART_SLOTS: usize = 64;

/// The operation of a request, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored {
    Ping,
    Get {
        touch: Option<Expiry>,
    },
    Set {
        client_flags: u32,
        expiry: Expiry,
        condition: Condition,
    },
    Delete {
        version: Option<u64>,
    },
    Incr {
        delta: i64,
    },
    Append,
    Prepend,
    Touch {
        expiry: Expiry,
    },
    Range {
        start: Edge,
        end: Edge,
        direction: Direction,
        items: RangeItems,
        item_limit: u32,
    },
    /// A part of the parent's value to pull.
    PullPart {
        span: Span,
        version: u64,
    },
    /// A part of the parent's value to push.
    PushPart {
        span: Span,
    },
}

/// A bound whose key is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Unbounded,
    Included,
    Excluded,
}

impl Edge {
    fn of(bound: Bound<&[u8]>) -> (Edge, &[u8]) {
        match bound {
            Bound::Unbounded => (Edge::Unbounded, &[]),
            Bound::Included(key) => (Edge::Included, key),
            Bound::Excluded(key) => (Edge::Excluded, key),
        }
    }

    fn with(self, key: &[u8]) -> Bound<&[u8]> {
        match self {
            Edge::Unbounded => Bound::Unbounded,
            Edge::Included => Bound::Included(key),
            Edge::Excluded => Bound::Excluded(key),
        }
    }
}

impl Stored {
    /// Splits an op into the stored part, its key, and its value (for a range: the upper bound).
    pub fn of<'a>(op: &Op<'a>) -> (Stored, &'a [u8], &'a [u8]) {
        match *op {
            Op::Ping => (Stored::Ping, &[], &[]),
            Op::Get { key, touch } => (Stored::Get { touch }, key, &[]),
            // Only this crate requests it, and by another way.
            Op::Pull { key, .. } => (Stored::Get { touch: None }, key, &[]),
            Op::Set(Set { key, value, client_flags, expiry, condition, .. }) => {
                (Stored::Set { client_flags, expiry, condition }, key, value)
            }
            Op::Delete { key, version } => (Stored::Delete { version }, key, &[]),
            Op::Incr { key, delta } => (Stored::Incr { delta }, key, &[]),
            Op::Append { key, value } => (Stored::Append, key, value),
            Op::Prepend { key, value } => (Stored::Prepend, key, value),
            Op::Touch { key, expiry } => (Stored::Touch { expiry }, key, &[]),
            Op::Range(Range { start, end, direction, items, item_limit }) => {
                let ((start, low), (end, high)) = (Edge::of(start), Edge::of(end));
                (Stored::Range { start, end, direction, items, item_limit }, low, high)
            }
        }
    }

    /// The op again, with its bytes.
    pub fn op<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        match *self {
            Stored::Ping => Op::Ping,
            Stored::Get { touch } => Op::Get { key, touch },
            Stored::Set { client_flags, expiry, condition } => {
                Op::Set(Set { key, value, client_flags, expiry, condition, part: None })
            }
            Stored::Delete { version } => Op::Delete { key, version },
            Stored::Incr { delta } => Op::Incr { key, delta },
            Stored::Append => Op::Append { key, value },
            Stored::Prepend => Op::Prepend { key, value },
            Stored::Touch { expiry } => Op::Touch { key, expiry },
            Stored::Range { start, end, direction, items, item_limit } => {
                let (start, end) = (start.with(key), end.with(value));
                Op::Range(Range { start, end, direction, items, item_limit })
            }
            Stored::PullPart { span, version } => Op::Pull { key, version, span },
            // The parent's condition and the rest are added by `Slots::op`.
            Stored::PushPart { .. } => Op::Append { key, value },
        }
    }

    /// Whether it goes to its key's own worker.
    pub fn is_for_owner(&self) -> bool {
        !matches!(
            self,
            Stored::Ping
                | Stored::Get { touch: None }
                | Stored::Range { .. }
                | Stored::PullPart { .. }
        )
    }

    /// Whether it goes to its key's own worker, if reads are steered so.
    pub fn goes_to_owner(&self, reads: ReadSteering) -> bool {
        let has_key = !matches!(self, Stored::Ping | Stored::Range { .. });
        self.is_for_owner() || has_key && reads == ReadSteering::Owner
    }

    /// Whether a second execution could do harm.
    pub fn changes_data(&self) -> bool {
        self.is_for_owner() && !matches!(self, Stored::Get { .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Waits for an earlier write of its key.
    Blocked,
    Queued,
    Sent,
    InParts,
    Done,
}

/// A large value in transfer.
#[derive(Debug)]
pub(super) enum Transfer {
    Pull { pull: Pull, total: u64 },
    Push(Push),
}

/// A value that is pushed in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Push {
    pub total: u32,
    pub part_bytes: u32,
    pub next_offset: u32,
    /// Bytes of unanswered parts.
    pub unanswered_bytes: u32,
    /// Whether all parts were sent once, so that the server may have executed the write.
    pub was_sent: bool,
}

/// An answer without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub result: Result<Status, RequestError>,
    pub version: Option<u64>,
    pub client_flags: u32,
    pub expires_at: Option<UnixMillis>,
    pub number: Option<i64>,
    pub value_len_bytes: usize,
    pub has_more: bool,
}

impl Ending {
    pub fn error(error: RequestError) -> Ending {
        Ending {
            result: Err(error),
            version: None,
            client_flags: 0,
            expires_at: None,
            number: None,
            value_len_bytes: 0,
            has_more: false,
        }
    }

    pub fn of(reply: &Reply<'_>) -> Ending {
        Ending {
            result: Ok(reply.status),
            version: reply.version,
            client_flags: reply.client_flags,
            expires_at: reply.expires_at,
            number: reply.number,
            value_len_bytes: reply.value.len(),
            has_more: reply.resume_key.is_some(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub state: State,
    /// The slot's number (S1).
    pub number: u32,
    pub stored: Stored,
    pub want: Want,
    pub key_len_bytes: u32,
    /// Key and value; once it is done, the answer's value and resume key.
    pub bytes: Vec<u8>,
    /// Its at-most-once number in this session, from its first transmission on.
    pub sequence: Option<u32>,
    /// The frame with it, while `Sent`; while it is `Queued` again, the frame that was lost with
    /// it, until that one turns out to have been refused.
    pub frame: u32,
    /// How often it was sent in this session, and how many of these copies were refused unexecuted.
    pub sent_count: u32,
    pub refused_count: u32,
    /// The deadline; 0: not yet decided.
    pub deadline_ns: u64,
    /// The place of the order table that it writes to ([`NONE`]: none).
    pub order_place: u32,
    /// The next in a chain of blocked requests.
    pub next: u32,
    pub parent: u32,
    pub transfer: Option<Box<Transfer>>,
    pub ending: Ending,
}

impl Slot {
    fn new(number: u32) -> Slot {
        Slot {
            state: State::Free,
            number,
            stored: Stored::Ping,
            want: Want::PLAIN,
            key_len_bytes: 0,
            bytes: Vec::new(),
            sequence: None,
            frame: NONE,
            sent_count: 0,
            refused_count: 0,
            deadline_ns: 0,
            order_place: NONE,
            next: NONE,
            parent: NONE,
            transfer: None,
            ending: Ending::error(RequestError::TimedOut),
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len_bytes as usize]
    }

    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_len_bytes as usize..]
    }

    /// Whether some copy of it may have been executed.
    pub fn may_have_happened(&self) -> bool {
        self.sent_count > self.refused_count
    }

    /// The error of a request that got no answer.
    pub fn error_without_answer(&self) -> RequestError {
        let may_have_happened = match self.transfer.as_deref() {
            Some(Transfer::Push(push)) => push.was_sent,
            Some(Transfer::Pull { .. }) => false,
            None => self.may_have_happened(),
        };
        if self.stored.changes_data() && may_have_happened {
            RequestError::Unknown
        } else if self.refused_count > 0 {
            RequestError::Busy
        } else {
            RequestError::TimedOut
        }
    }
}

#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    index_mask: u32,
    /// First in, first out: a number comes back as late as possible (S1).
    free: VecDeque<u32>,
    free_parts: Vec<u32>,
    request_count: usize,
}

impl Slots {
    pub fn new(request_count: usize) -> Slots {
        let count = request_count + PART_SLOTS;
        let index_mask = count.next_power_of_two() as u32 - 1;
        Slots {
            slots: (0..count as u32).map(Slot::new).collect(),
            index_mask,
            free: (0..request_count as u32).collect(),
            free_parts: (request_count as u32..count as u32).collect(),
            request_count,
        }
    }

    pub fn index_of(&self, number: u32) -> u32 {
        number & self.index_mask
    }

    /// The slot that has this number now.
    pub fn find(&self, number: u32) -> Option<u32> {
        let index = self.index_of(number);
        let slot = self.slots.get(index as usize)?;
        (slot.number == number && slot.state != State::Free).then_some(index)
    }

    pub fn outstanding_count(&self) -> usize {
        self.request_count - self.free.len()
    }

    pub fn has_free_part(&self) -> bool {
        !self.free_parts.is_empty()
    }

    pub fn take(&mut self) -> Option<u32> {
        self.free.pop_front().inspect(|index| self.renew(*index))
    }

    pub fn take_part(&mut self) -> Option<u32> {
        self.free_parts.pop().inspect(|index| self.renew(*index))
    }

    fn renew(&mut self, index: u32) {
        let step = self.index_mask + 1;
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.state, State::Free);
        // With all 32 bits in the index there would be no step; the index has 17 at most.
        slot.number = slot.number.wrapping_add(step);
        slot.sequence = None;
        (slot.sent_count, slot.refused_count, slot.deadline_ns) = (0, 0, 0);
        (slot.frame, slot.order_place, slot.next, slot.parent) = (NONE, NONE, NONE, NONE);
        slot.transfer = None;
        slot.bytes.clear();
    }

    pub fn give_back(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Free;
        slot.transfer = None;
        if slot.bytes.capacity() > KEPT_BYTES_MAX {
            slot.bytes = Vec::new();
        }
        if (index as usize) < self.request_count {
            self.free.push_back(index);
        } else {
            self.free_parts.push(index);
        }
    }

    pub fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    pub fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The message to write into a frame for this slot.
    pub fn op(&self, index: u32) -> Op<'_> {
        let slot = self.get(index);
        if slot.parent == NONE {
            return slot.stored.op(slot.key(), slot.value());
        }
        let parent = self.get(slot.parent);
        match (slot.stored, parent.stored) {
            (Stored::PushPart { span }, Stored::Set { client_flags, expiry, condition }) => {
                let value = parent.value();
                let start = span.offset as usize;
                let part = Some(span.part_of(value.len() as u32));
                let value = &value[start..start + span.len_bytes as usize];
                Op::Set(Set { key: parent.key(), value, client_flags, expiry, condition, part })
            }
            (stored, _) => stored.op(parent.key(), &[]),
        }
    }

    /// The indexes of all requests, free or not; parts are not among them.
    pub fn request_indexes(&self) -> std::ops::Range<u32> {
        0..self.request_count as u32
    }

    /// The parts of a parent that are in flight.
    pub fn parts_of(&self, parent: u32) -> impl Iterator<Item = u32> + '_ {
        let parts = self.request_count as u32..self.slots.len() as u32;
        parts.filter(move |index| {
            let slot = self.get(*index);
            slot.state != State::Free && slot.parent == parent
        })
    }
}
