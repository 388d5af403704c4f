//! The receiving side of the engine: applies each frame from the server.
//!
//! It does not trust the server: an id without a request, a status that does not belong to the op,
//! or a length that contradicts itself is counted or ends the request as
//! [`RequestError::BadAnswer`].

use base::Instant;
use wire::native::{Frame, Items, Kind, Replies, Reply, ReplyError, RequestId, Status};

use super::frames::Echo;
use super::session::Session;
use super::slots::{Ending, State, Stored, Transfer};
use super::{Engine, NONE};
use crate::error::RequestError;

impl Engine {
    /// Processes a datagram from the server.
    pub fn input(&mut self, datagram: &[u8], now: Instant) {
        self.now_ns = self.now_ns.max(now.ns);
        let key = self.config.tag_key;
        let Ok(frame) = Frame::parse(datagram, key.as_ref()) else {
            self.stats.frames_dropped += 1;
            return;
        };
        let is_ours = match frame.header.kind {
            Kind::Replies => self.take_replies(&frame),
            Kind::Challenge => self.take_challenge(&frame),
            Kind::Welcome => self.take_welcome(&frame),
            Kind::Refusal => self.take_refusal(&frame),
            Kind::Hello | Kind::Requests | Kind::Bye => false,
        };
        if is_ours {
            self.stats.frames_received += 1;
        } else {
            self.stats.frames_dropped += 1;
        }
    }

    fn take_replies(&mut self, frame: &Frame<'_>) -> bool {
        match &self.session {
            Session::Open(open) if open.id == frame.header.session => {}
            _ => return false,
        }
        let number = frame.header.answered;
        let waited = match self.frames.echo(number, self.now_ns) {
            Echo::Never => return false,
            Echo::Known => self.frames.waits(number),
            Echo::Measured { rtt_ns } => {
                self.pace.measured(rtt_ns);
                self.stats.rtt.add(rtt_ns);
                false
            }
        };
        for reply in Replies::new(frame.body) {
            match reply {
                Ok(reply) => self.take_reply(frame.header.answered, &reply),
                Err(ReplyError::UnknownStatus { id, .. } | ReplyError::Malformed { id }) => {
                    self.take_nonsense(id);
                }
                Err(ReplyError::Overrun) => break,
            }
        }
        // Other workers answer a part of a frame later: the estimate knows both times.
        if waited && !self.frames.waits(number) {
            self.pace.completed(self.frames.age_ns(number, self.now_ns));
        }
        true
    }

    /// The request of a reply, if it waits for one.
    fn find(&self, id: RequestId) -> Option<u32> {
        let index = match id {
            RequestId::Free(number) => self.slots.find(number).filter(|index| {
                let slot = self.slots.get(*index);
                slot.sequence.is_none() && !matches!(slot.stored, Stored::PushPart { .. })
            }),
            RequestId::Once(sequence) => self.sequences.find(sequence),
        }?;
        let slot = self.slots.get(index);
        let waits = match slot.state {
            State::Sent => true,
            // The frame counted as lost, and is answered after all.
            State::Queued => slot.sent_count > 0,
            State::InParts => matches!(id, RequestId::Once(_)),
            State::Free | State::Blocked | State::Done => false,
        };
        waits.then_some(index)
    }

    /// Records the answer to our frame `number`.
    fn take_reply(&mut self, number: u32, reply: &Reply<'_>) {
        let Some(index) = self.find(reply.id) else {
            self.stats.replies_late += 1;
            return;
        };
        let slot = self.slots.get(index);
        if slot.state == State::InParts {
            if let Some(Transfer::Push(_)) = slot.transfer.as_deref() {
                self.take_pushed(index, reply);
            }
            return;
        }
        match reply.status {
            Status::Busy | Status::OutsideWindow => self.take_refused(index, number),
            _ => {
                self.pace.not_busy();
                self.take_outcome(index, reply);
            }
        }
    }

    /// The server did not execute the copy of a request in frame `number`. The refusal counts once,
    /// however often the network repeats the answer: with too many refusals counted, an executed
    /// copy would be taken for one that was not executed.
    fn take_refused(&mut self, index: u32, number: u32) {
        self.stats.busy += 1;
        self.pace.back_off(self.now_ns, 0, &mut self.draw);
        let slot = self.slots.get_mut(index);
        // Another frame's copy is in flight, or this one's refusal is already recorded.
        if slot.frame != number {
            return;
        }
        slot.refused_count += 1;
        match slot.state {
            State::Sent => self.take_back(index),
            _ => slot.frame = NONE,
        }
    }

    fn take_outcome(&mut self, index: u32, reply: &Reply<'_>) {
        let slot = self.slots.get(index);
        if slot.parent != NONE {
            return self.take_pulled(index, reply);
        }
        let is_first_part = reply.part.is_some_and(|part| part.total as usize > reply.value.len());
        let is_get = matches!(slot.stored, Stored::Get { .. });
        if is_first_part && is_get && reply.status == Status::Ok {
            if let Some(open) = self.session.open() {
                self.begin_pull(index, reply, &open);
            }
            return;
        }
        if is_first_part || matches!(reply.status, Status::PartTaken | Status::Changed) {
            return self.finish(index, Ending::error(RequestError::BadAnswer));
        }
        let slot = self.slots.get_mut(index);
        slot.bytes.clear();
        slot.bytes.extend_from_slice(reply.value);
        slot.bytes.extend_from_slice(resume_key_of(reply));
        self.finish(index, Ending::of(reply));
    }

    /// The server has answered, and the client cannot read the answer.
    fn take_nonsense(&mut self, id: RequestId) {
        let Some(index) = self.find(id) else {
            self.stats.replies_late += 1;
            return;
        };
        let parent = self.slots.get(index).parent;
        let index = if parent == NONE { index } else { parent };
        self.finish(index, Ending::error(RequestError::BadAnswer));
    }

    /// Queues again a request that was sent and not executed, unless it is queued already.
    pub(super) fn take_back(&mut self, index: u32) {
        self.leave_frame(index);
        if self.slots.get(index).state == State::Sent {
            self.enqueue_again(index);
        }
    }
}

/// The key at which a range continues: an empty one stands for the last item's key.
fn resume_key_of<'a>(reply: &Reply<'a>) -> &'a [u8] {
    match reply.resume_key {
        None => &[],
        Some([]) => Items::new(reply.value).last().map_or(&[], |item| item.key),
        Some(key) => key,
    }
}
