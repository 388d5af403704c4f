//! The sending side of the engine: advances time, queues lost frames again, fills frames.

use base::Instant;
use wire::native::{FrameWriter, HEADER_LEN_BYTES, Header, Kind, Request, RequestId, SteeringId};

use super::Engine;
use super::session::{Open, Session};
use super::slots::{Ending, NONE, State, Stored};
use crate::config::Delivery;
use crate::error::RequestError;

/// Number of deadline checks within one timeout.
const SCANS_PER_TIMEOUT: u64 = 16;

/// The result of filling a frame.
enum Filled {
    /// No room for the next message.
    Full,
    /// No more messages.
    Empty,
}

impl Engine {
    /// Writes the next datagram into `out`, which holds the longest frame, and returns its length;
    /// `None`: there is nothing to send now.
    pub fn output(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        self.advance(now);
        if self.is_session_worn() {
            self.renew_session();
        }
        let open = match &mut self.session {
            Session::Greeting(greeting) => {
                let (frame_max_bytes, key) = (self.frame_max_bytes, self.config.tag_key.as_ref());
                let len_bytes = greeting.hello(self.now_ns, frame_max_bytes, key, out)?;
                self.stats.frames_sent += 1;
                return Some(len_bytes);
            }
            Session::Failed(_) => return None,
            Session::Open(open) => *open,
        };
        loop {
            self.feed_transfers(&open);
            if self.queues.len == 0 || !self.pace.may_send(self.now_ns, &self.frames) {
                return None;
            }
            let route = self.queues.next_route();
            if let Some(len_bytes) = self.write_frame(&open, route, out) {
                return Some(len_bytes);
            }
            // The entries of that queue were answered meanwhile, or wait for numbers: it is empty
            // now.
        }
    }

    /// The time at which [`Engine::output`] has work even if nothing arrives.
    pub fn next_timer(&self) -> Option<Instant> {
        let mut at_ns = self.scan_at_ns;
        match &self.session {
            Session::Greeting(greeting) => at_ns = at_ns.min(greeting.again_at_ns),
            Session::Failed(_) => {}
            Session::Open(_) => {
                if self.delivery == Delivery::Lossy
                    && let Some(oldest_ns) = self.frames.oldest_ns()
                {
                    at_ns = at_ns.min(oldest_ns + self.pace.retransmit_after_ns());
                }
                if self.queues.len > 0
                    && let Some(ready_at_ns) = self.pace.ready_at_ns(&self.frames)
                {
                    at_ns = at_ns.min(ready_at_ns.max(self.now_ns));
                }
            }
        }
        (at_ns != u64::MAX).then_some(Instant { ns: at_ns })
    }

    /// Advances time: ends requests past their deadline and queues lost frames again.
    /// [`Engine::output`] does this too.
    pub fn advance(&mut self, now: Instant) {
        self.now_ns = self.now_ns.max(now.ns);
        if self.now_ns >= self.scan_at_ns {
            self.scan_deadlines();
        }
        if self.delivery == Delivery::Lossy && self.is_open() {
            self.find_losses();
        }
    }

    fn scan_deadlines(&mut self) {
        let timeout_ns = self.config.timeout_ns;
        let mut is_any_left = false;
        for index in self.slots.request_indexes() {
            let slot = self.slots.get_mut(index);
            if matches!(slot.state, State::Free | State::Done) {
                continue;
            }
            if slot.deadline_ns == 0 {
                slot.deadline_ns = self.now_ns.saturating_add(timeout_ns);
            }
            // A blocked request ends soon after the one that it waits for.
            if slot.deadline_ns <= self.now_ns && slot.state != State::Blocked {
                let error = slot.error_without_answer();
                self.finish(index, Ending::error(error));
            } else {
                is_any_left = true;
            }
        }
        let step_ns = (timeout_ns / SCANS_PER_TIMEOUT).max(1);
        let next_ns = self.now_ns.saturating_add(step_ns);
        self.scan_at_ns = if is_any_left { next_ns } else { u64::MAX };
    }

    fn find_losses(&mut self) {
        let silent_before_ns = (self.now_ns + 1).saturating_sub(self.pace.retransmit_after_ns());
        if self.frames.silent(silent_before_ns).is_some() {
            self.pace.silence(self.frames.next());
            while let Some(number) = self.frames.silent(silent_before_ns) {
                self.take_back_frame(number, false);
            }
        }
        let Some(overtaken_after_ns) = self.pace.overtaken_after_ns() else { return };
        let late_before_ns = self.now_ns.saturating_sub(overtaken_after_ns);
        let mut number = None;
        while let Some(found) = self.frames.overtaken(number, late_before_ns) {
            self.pace.lost(found, self.frames.next());
            self.take_back_frame(found, false);
            number = Some(found);
        }
    }

    /// Queues the unanswered messages of a lost or refused frame again. The copies in a refused
    /// frame do not count: none was executed.
    pub(super) fn take_back_frame(&mut self, number: u32, is_refused: bool) {
        let Some(list) = self.frames.give_up(number) else { return };
        self.stats.frames_lost += u64::from(!is_refused);
        for slot_number in list.iter().rev() {
            let Some(index) = self.slots.find(*slot_number) else { continue };
            let slot = self.slots.get_mut(index);
            if slot.state != State::Sent || slot.frame != number {
                continue;
            }
            if is_refused {
                slot.refused_count += 1;
                slot.frame = NONE;
            } else {
                self.stats.retries += 1;
            }
            self.enqueue_again(index);
        }
        self.frames.give_back(number, list);
    }

    /// Fills a frame from a queue, and with reads as far as there is room. `None`: no entry in them
    /// is to be sent.
    fn write_frame(&mut self, open: &Open, route: Option<usize>, out: &mut [u8]) -> Option<usize> {
        let (route_index, steering) = self.aim(open, route);
        let frame = self.frames.next();
        let header = Header {
            kind: Kind::Requests,
            steering,
            session: open.id,
            number: frame,
            answered: self.sequences.low_water(),
        };
        let end = out.len().min(open.frame_max_bytes);
        let mut writer = FrameWriter::new(&mut out[..end], header).ok()?;
        let mut list = self.frames.take_list();
        let mut filled = Filled::Empty;
        if route.is_some() {
            filled = self.fill(&mut writer, route, &mut list);
        }
        if matches!(filled, Filled::Empty) && self.queues.route_count() > 1 {
            self.fill(&mut writer, None, &mut list);
        }
        if list.is_empty() {
            self.frames.give_back(frame, list);
            return None;
        }
        self.frames.sent(self.now_ns, route_index, list);
        self.pace.sent(self.now_ns);
        self.last_sent_ns = self.now_ns;
        self.stats.frames_sent += 1;
        Some(writer.finish(self.config.tag_key.as_ref()))
    }

    /// The route's number and the steering field of its next frame.
    fn aim(&mut self, open: &Open, route: Option<usize>) -> (u16, SteeringId) {
        let worker_count = open.steering.worker_count();
        let route_count = self.queues.route_count();
        let Some(route) = route else {
            let worker = (self.draw.next() % u64::from(worker_count)) as u16;
            return ((usize::from(worker) % route_count) as u16, SteeringId(worker));
        };
        // A worker's own number is one of its partitions.
        let mut steering = SteeringId(route as u16);
        if usize::from(worker_count) > route_count {
            // Some requests may have been answered while they were queued again: their keys are
            // gone.
            let is_queued = |index: &u32| self.slots.get(*index).state == State::Queued;
            let queue = self.queues.routes[route].iter();
            let mut slots = queue.filter_map(|number| self.slots.find(*number));
            let first = slots.find(is_queued).and_then(|index| self.steering_of(index));
            steering = first.map_or(steering, |it| it.0);
        }
        (route as u16, steering)
    }

    fn fill(
        &mut self,
        writer: &mut FrameWriter<'_>,
        route: Option<usize>,
        list: &mut Vec<u32>,
    ) -> Filled {
        let frame = self.frames.next();
        let room_max_bytes = writer.room_bytes() + writer.len_bytes() - HEADER_LEN_BYTES;
        while let Some(number) = self.queues.front(route) {
            let found = self.slots.find(number);
            let found = found.filter(|index| self.slots.get(*index).state == State::Queued);
            let Some(index) = found else {
                self.queues.pop_front(route);
                continue;
            };
            let Some(id) = self.id_of(index) else {
                self.queues.pop_front(route);
                self.sequences.wait(number);
                continue;
            };
            let request =
                Request { id, want: self.slots.get(index).want, op: self.slots.op(index) };
            match writer.push_request(&request) {
                Ok(()) => {
                    self.queues.pop_front(route);
                    let slot = self.slots.get_mut(index);
                    (slot.state, slot.frame) = (State::Sent, frame);
                    slot.sent_count += 1;
                    list.push(number);
                }
                Err(no_room) if no_room.want_bytes > room_max_bytes => {
                    self.queues.pop_front(route);
                    self.cut(index);
                }
                Err(_) => return Filled::Full,
            }
        }
        Filled::Empty
    }

    /// The request's id on the wire; `None`: it has to wait for an at-most-once number.
    fn id_of(&mut self, index: u32) -> Option<RequestId> {
        let slot = self.slots.get(index);
        if let Stored::PushPart { .. } = slot.stored {
            return self.slots.get(slot.parent).sequence.map(RequestId::Once);
        }
        let number = slot.number;
        if !slot.stored.changes_data() || self.delivery == Delivery::Reliable {
            return Some(RequestId::Free(number));
        }
        let slot = self.slots.get_mut(index);
        self.sequences.of(slot, index).map(RequestId::Once)
    }

    /// Numbers may have become free, many at once if the lowest was answered last: queues as many
    /// of the writes that wait for one.
    pub(super) fn enqueue_numberless(&mut self) {
        if self.sequences.are_used_up() {
            return;
        }
        let mut room = self.sequences.room();
        while room > 0
            && let Some(number) = self.sequences.next_waiting()
        {
            if let Some(index) = self.slots.find(number)
                && self.slots.get(index).state == State::Queued
            {
                self.enqueue(index);
                room -= 1;
            }
        }
    }

    /// Handles a request that fits no frame: a set goes in parts, others fail.
    fn cut(&mut self, index: u32) {
        let Session::Open(open) = self.session else { return };
        let is_set = matches!(self.slots.get(index).stored, Stored::Set { .. });
        if !is_set || !self.begin_push(index, &open) {
            let frame_max_bytes = open.frame_max_bytes as u32;
            let error = RequestError::TooLong { frame_max_bytes };
            self.finish(index, Ending::error(error));
        }
    }
}
