//! Large values in parts: a get pulls them, a set pushes them, with a few parts in flight at once.
//!
//! ```text
//!  get ──▶ first part ──▶ parent InParts ──▶ pulls, one slot each ──▶ whole ──▶ Done
//!  set too long for a frame ──▶ parent InParts ──▶ parts, one slot each ──▶ last answer ──▶ Done
//! ```
//!
//! The oldest transfer gets the part slots first. If transfers took turns, hundreds of pushes would
//! each hold or be refused a part of the server's transfer memory, and few would end. A pull whose
//! value changes meanwhile starts over. A push that the server has abandoned is pushed again under
//! the same at-most-once number.

use std::collections::VecDeque;

use wire::native::{Expiry, Pull, PullError, PullStep, Reply, Span, Status, part_room_bytes};

use super::Engine;
use super::session::Open;
use super::slots::{Ending, Push, State, Stored, Transfer};
use crate::error::RequestError;

/// The transfers that still have parts to send or to request, and the memory of all pulled values.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The numbers of their slots, oldest first.
    pub waiting: VecDeque<u32>,
    pub pulled_bytes: u64,
}

impl Transfers {
    /// Begins to pull a value of `total` bytes.
    fn begin_pull(&mut self, number: u32, total: u64) {
        self.pulled_bytes += total;
        self.waiting.push_back(number);
    }

    fn begin_push(&mut self, number: u32) {
        self.waiting.push_back(number);
    }

    /// Begins a push again, which may not have sent all of its parts.
    fn push_again(&mut self, number: u32) {
        if !self.waiting.contains(&number) {
            self.waiting.push_back(number);
        }
    }

    /// The value of a pull is complete, or not wanted any more.
    fn end_pull(&mut self, total: u64) {
        self.pulled_bytes -= total;
    }

    fn remove(&mut self, number: u32) {
        self.waiting.retain(|listed| *listed != number);
    }
}

impl Engine {
    /// Begins to push a value in parts; returns false if not even parts fit.
    pub(super) fn begin_push(&mut self, index: u32, open: &Open) -> bool {
        let slot = self.slots.get(index);
        let part_bytes = part_room_bytes(open.frame_max_bytes, slot.key().len()) as u32;
        let total = slot.value().len() as u32;
        if part_bytes == 0 || total == 0 {
            return false;
        }
        let number = slot.number;
        let slot = self.slots.get_mut(index);
        if self.sequences.of(slot, index).is_none() {
            self.sequences.wait(number);
            return true;
        }
        slot.state = State::InParts;
        let (next_offset, unanswered_bytes, was_sent) = (0, 0, false);
        let push = Push { total, part_bytes, next_offset, unanswered_bytes, was_sent };
        slot.transfer = Some(Box::new(Transfer::Push(push)));
        self.transfers.begin_push(number);
        true
    }

    /// Handles the answer to a get with the first part of a value.
    pub(super) fn begin_pull(&mut self, index: u32, reply: &Reply<'_>, open: &Open) {
        let part_bytes = part_room_bytes(open.frame_max_bytes, 0).max(64) as u32;
        let max_bytes = self.config.value_max_bytes;
        let total = reply.part.map_or(0, |part| u64::from(part.total));
        if self.transfers.pulled_bytes + total
            > self.config.transfers_max_bytes.max(u64::from(max_bytes))
        {
            // It is requested again when other transfers are done.
            self.pace.back_off(self.now_ns, 0, &mut self.draw);
            self.take_back(index);
            return;
        }
        match Pull::begin(reply, part_bytes, max_bytes) {
            Ok(pull) => {
                self.leave_frame(index);
                let slot = self.slots.get_mut(index);
                slot.state = State::InParts;
                slot.ending = Ending::of(reply);
                slot.transfer = Some(Box::new(Transfer::Pull { pull, total }));
                self.transfers.begin_pull(slot.number, total);
            }
            Err(error) => self.finish(index, Ending::error(error_of(error))),
        }
    }

    /// Gives free part slots to transfers, one after the other. A server reserves memory for a
    /// transfer with its first part, so transfers that have begun go first.
    pub(super) fn feed_transfers(&mut self, open: &Open) {
        while self.slots.has_free_part()
            && let Some(number) = self.transfers.waiting.pop_front()
        {
            let Some(parent) = self.slots.find(number) else { continue };
            let transfer = self.slots.get_mut(parent).transfer.as_deref_mut();
            match transfer.map_or(NextPart::None, |transfer| transfer.next_part(open)) {
                NextPart::Part(stored) => {
                    self.send_part(parent, stored);
                    self.transfers.waiting.push_front(number);
                }
                NextPart::Later => {
                    self.transfers.waiting.push_front(number);
                    return;
                }
                NextPart::None => {}
            }
        }
    }

    fn send_part(&mut self, parent: u32, stored: Stored) {
        let Some(index) = self.slots.take_part() else { return };
        let want = match stored {
            Stored::PushPart { .. } => self.slots.get(parent).want,
            _ => wire::native::Want::PLAIN,
        };
        let slot = self.slots.get_mut(index);
        (slot.stored, slot.parent, slot.want) = (stored, parent, want);
        self.enqueue(index);
    }

    /// Frees the slot of a part.
    fn end_part(&mut self, index: u32) {
        self.leave_frame(index);
        self.slots.give_back(index);
    }

    /// Drops the parts of a request, and the received part of its value.
    pub(super) fn end_transfer(&mut self, parent: u32) {
        let slot = self.slots.get_mut(parent);
        let number = slot.number;
        let Some(transfer) = slot.transfer.take() else { return };
        if let Transfer::Pull { total, .. } = *transfer {
            self.transfers.end_pull(total);
        }
        self.transfers.remove(number);
        self.end_parts(parent);
    }

    fn end_parts(&mut self, parent: u32) {
        while let Some(part) = { self.slots.parts_of(parent).next() } {
            self.end_part(part);
        }
    }

    /// Handles the answer to a pulled part.
    pub(super) fn take_pulled(&mut self, index: u32, reply: &Reply<'_>) {
        let slot = self.slots.get(index);
        let (parent, stored) = (slot.parent, slot.stored);
        let deadline_ns = self.now_ns.saturating_add(self.config.timeout_ns);
        let holder = self.slots.get_mut(parent);
        let (Stored::PullPart { span, .. }, Some(Transfer::Pull { pull, .. })) =
            (stored, holder.transfer.as_deref_mut())
        else {
            return self.finish(parent, Ending::error(RequestError::BadAnswer));
        };
        // After a short answer the slot requests the rest; this is a late copy of it.
        if reply.part.is_some_and(|part| part.offset != span.offset) {
            self.stats.replies_late += 1;
            return;
        }
        match pull.accept(span, reply) {
            Ok(PullStep::More) => {
                holder.deadline_ns = deadline_ns;
                self.end_part(index);
            }
            Ok(PullStep::Short(span)) => {
                holder.deadline_ns = deadline_ns;
                let version = pull.version();
                self.slots.get_mut(index).stored = Stored::PullPart { span, version };
                self.take_back(index);
            }
            Ok(PullStep::Done) => self.finish_pull(parent),
            Ok(PullStep::Changed) => self.pull_again(parent),
            Err(error) => self.finish(parent, Ending::error(error_of(error))),
        }
    }

    fn finish_pull(&mut self, parent: u32) {
        let slot = self.slots.get_mut(parent);
        let mut ending = slot.ending;
        if let Some(transfer) = slot.transfer.take()
            && let Transfer::Pull { pull, total } = *transfer
        {
            self.transfers.end_pull(total);
            let bytes = pull.into_bytes();
            ending.value_len_bytes = bytes.len();
            slot.bytes = bytes;
        }
        self.end_parts(parent);
        self.finish(parent, ending);
    }

    /// The value changed while it was pulled: pulls it again, without setting the expiry a second
    /// time.
    fn pull_again(&mut self, parent: u32) {
        self.end_transfer(parent);
        let slot = self.slots.get_mut(parent);
        if let Stored::Get { touch: Some(Expiry::AfterMs(_) | Expiry::At(_)) } = slot.stored {
            slot.stored = Stored::Get { touch: None };
        }
        self.enqueue(parent);
    }

    /// Handles the answer to a pushed part, or to the whole.
    pub(super) fn take_pushed(&mut self, parent: u32, reply: &Reply<'_>) {
        let offset = reply.part.map(|part| part.offset);
        match reply.status {
            Status::PartTaken => self.take_part_taken(parent, offset),
            Status::Busy | Status::OutsideWindow => {
                self.stats.busy += 1;
                self.pace.back_off(self.now_ns, 0, &mut self.draw);
                self.push_again(parent);
            }
            _ => {
                let slot = self.slots.get_mut(parent);
                slot.bytes.clear();
                let ending = Ending { value_len_bytes: 0, has_more: false, ..Ending::of(reply) };
                self.finish(parent, ending);
            }
        }
    }

    fn take_part_taken(&mut self, parent: u32, offset: Option<u32>) {
        let found = self.slots.parts_of(parent).find(|index| {
            let stored = &self.slots.get(*index).stored;
            matches!(stored, Stored::PushPart { span } if Some(span.offset) == offset)
        });
        let Some(index) = found else {
            self.stats.replies_late += 1;
            return;
        };
        let part_bytes = match self.slots.get(index).stored {
            Stored::PushPart { span } => span.len_bytes,
            _ => 0,
        };
        self.end_part(index);
        let is_last_gone = self.slots.parts_of(parent).next().is_none();
        let deadline_ns = self.now_ns.saturating_add(self.config.timeout_ns);
        let slot = self.slots.get_mut(parent);
        slot.deadline_ns = deadline_ns;
        if let Some(Transfer::Push(push)) = slot.transfer.as_deref_mut() {
            push.unanswered_bytes = push.unanswered_bytes.saturating_sub(part_bytes);
            // Every part was answered and none with the outcome: the server has dropped the value.
            if is_last_gone && push.next_offset == push.total {
                self.push_again(parent);
            }
        }
    }

    /// Begins a push again, under the same number.
    fn push_again(&mut self, parent: u32) {
        self.end_parts(parent);
        let slot = self.slots.get_mut(parent);
        let number = slot.number;
        if let Some(Transfer::Push(push)) = slot.transfer.as_deref_mut() {
            (push.next_offset, push.unanswered_bytes) = (0, 0);
        }
        self.transfers.push_again(number);
    }
}

impl Transfer {
    /// The next part to send or to request.
    fn next_part(&mut self, open: &Open) -> NextPart {
        match self {
            Transfer::Pull { pull, .. } => match pull.next_span() {
                None => NextPart::None,
                Some(span) => NextPart::Part(Stored::PullPart { span, version: pull.version() }),
            },
            Transfer::Push(push) => {
                let left_bytes = push.total - push.next_offset;
                let len_bytes = left_bytes.min(push.part_bytes);
                let window_bytes = open.part_window_bytes.max(push.part_bytes);
                if len_bytes == 0 {
                    return NextPart::None;
                }
                if push.unanswered_bytes + len_bytes > window_bytes {
                    return NextPart::Later;
                }
                let span = Span { offset: push.next_offset, len_bytes };
                push.next_offset += len_bytes;
                push.unanswered_bytes += len_bytes;
                push.was_sent |= push.next_offset == push.total;
                NextPart::Part(Stored::PushPart { span })
            }
        }
    }
}

enum NextPart {
    Part(Stored),
    /// When parts were answered.
    Later,
    None,
}

fn error_of(error: PullError) -> RequestError {
    match error {
        PullError::TooLarge { .. } => RequestError::ValueTooLong,
        _ => RequestError::BadAnswer,
    }
}
