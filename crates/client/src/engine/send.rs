//! The sending side of the engine: advances time, queues lost frames again, fills frames.

use base::Instant;
use wire::native::{FrameWriter, HEADER_LEN_BYTES, Header, Kind, Request, RequestId, SteeringId};

use super::Engine;
use super::session::{Open, Session};
use super::slots::{Ending, State, Stored};
use crate::config::Delivery;
use crate::error::RequestError;

/// Number of deadline checks within one timeout.
const SCANS_PER_TIMEOUT: u64 = 16;
/// The first wait for a busy server, doubled each time.
const BACK_OFF_NS: u64 = 1_000_000;
const BACK_OFF_MAX_NS: u64 = 100_000_000;
/// The longest wait that a server may request.
const RETRY_AFTER_MAX_NS: u64 = 1_000_000_000;

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
        let open = match self.session {
            Session::Greeting(_) => return self.greet(out),
            Session::Failed(_) => return None,
            Session::Open(open) => open,
        };
        loop {
            self.feed_transfers(&open);
            if self.queued_count == 0 || !self.may_send() {
                return None;
            }
            let route = self.choose_route();
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
                    at_ns = at_ns.min(oldest_ns + self.retransmit_after_ns());
                }
                if self.queued_count > 0 && !self.is_window_full() {
                    let paced_ns = self.paced_ns().max(self.quiet_until_ns);
                    at_ns = at_ns.min(paced_ns.max(self.now_ns));
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
                let error = self.error_without_answer(index);
                self.finish(index, Ending::error(error));
            } else {
                is_any_left = true;
            }
        }
        let step_ns = (timeout_ns / SCANS_PER_TIMEOUT).max(1);
        let next_ns = self.now_ns.saturating_add(step_ns);
        self.scan_at_ns = if is_any_left { next_ns } else { u64::MAX };
    }

    pub(super) fn retransmit_after_ns(&self) -> u64 {
        let config = &self.config;
        let base_ns =
            self.rtt.retransmit_after_ns(config.retransmit_min_ns, config.retransmit_first_ns);
        (base_ns << self.silences.min(16)).min(config.retransmit_max_ns.max(base_ns))
    }

    fn find_losses(&mut self) {
        let silent_before_ns = (self.now_ns + 1).saturating_sub(self.retransmit_after_ns());
        if self.frames.silent(silent_before_ns).is_some() {
            self.window.silence(self.frames.next());
            while let Some(number) = self.frames.silent(silent_before_ns) {
                self.send_again(number);
            }
            self.silences += 1;
        }
        let Some(rtt_ns) = self.rtt.smoothed_ns() else { return };
        let late_before_ns = self.now_ns.saturating_sub(rtt_ns + rtt_ns / 4);
        let mut number = None;
        while let Some(found) = self.frames.overtaken(number, late_before_ns) {
            self.window.lost(found, self.frames.next());
            self.send_again(found);
            number = Some(found);
        }
    }

    /// Queues the unanswered messages of a lost frame.
    fn send_again(&mut self, number: u32) {
        let Some(list) = self.frames.give_up(number) else { return };
        self.stats.frames_lost += 1;
        for slot_number in list.iter().rev() {
            if let Some(index) = self.slots.find(*slot_number) {
                let slot = self.slots.get(index);
                if slot.state == State::Sent && slot.frame == number {
                    self.stats.retries += 1;
                    self.enqueue_again(index);
                }
            }
        }
        self.frames.give_back(number, list);
    }

    /// The server is overloaded: nothing is sent for a while.
    pub(super) fn back_off(&mut self, retry_after_ns: u64) {
        if self.now_ns < self.quiet_until_ns {
            // This refers to frames that left before the first busy answer arrived.
            return;
        }
        let wait_ns = (BACK_OFF_NS << self.busy_streak.min(16)).min(BACK_OFF_MAX_NS);
        self.busy_streak += 1;
        // Waits between half and all of that time, so that clients do not come back together.
        let wait_ns = wait_ns / 2 + self.draw.next() % (wait_ns / 2);
        self.quiet_until_ns = self.now_ns + wait_ns.max(retry_after_ns.min(RETRY_AFTER_MAX_NS));
    }

    fn may_send(&self) -> bool {
        !self.is_window_full()
            && self.now_ns >= self.quiet_until_ns
            && self.now_ns >= self.paced_ns()
    }

    fn is_window_full(&self) -> bool {
        let window = match self.delivery {
            Delivery::Lossy => self.window.frames(),
            Delivery::Reliable => u32::MAX,
        };
        self.frames.in_flight() >= window || !self.frames.has_room()
    }

    /// The time at which the pace allows a frame; 0: any time.
    fn paced_ns(&self) -> u64 {
        match self.delivery {
            Delivery::Lossy => self.pacer.ready_at_ns(&self.window, self.rtt.smoothed_ns()),
            Delivery::Reliable => 0,
        }
    }

    /// The next non-empty owner's queue, in turn; `None`: only reads are left.
    fn choose_route(&mut self) -> Option<usize> {
        let count = self.routes.len();
        let places = (0..count).map(|step| (self.next_route + step) % count);
        let found = places.into_iter().find(|route| !self.routes[*route].is_empty())?;
        self.next_route = (found + 1) % count;
        Some(found)
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
        if matches!(filled, Filled::Empty) && self.routes.len() > 1 {
            self.fill(&mut writer, None, &mut list);
        }
        if list.is_empty() {
            self.frames.give_back(frame, list);
            return None;
        }
        self.frames.sent(self.now_ns, route_index, list);
        self.pacer.sent(self.now_ns, &self.window, self.rtt.smoothed_ns());
        self.last_sent_ns = self.now_ns;
        self.stats.frames_sent += 1;
        Some(writer.finish(self.config.tag_key.as_ref()))
    }

    /// The route's number and the steering field of its next frame.
    fn aim(&mut self, open: &Open, route: Option<usize>) -> (u16, SteeringId) {
        let worker_count = open.steering.worker_count();
        let route_count = self.routes.len();
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
            let mut slots = self.routes[route].iter().filter_map(|number| self.slots.find(*number));
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
        while let Some(number) = self.queue(route).front().copied() {
            let found = self.slots.find(number);
            let found = found.filter(|index| self.slots.get(*index).state == State::Queued);
            let Some(index) = found else {
                self.dequeue(route);
                continue;
            };
            let Some(id) = self.id_of(index) else {
                self.dequeue(route);
                self.numberless.push_back(number);
                continue;
            };
            let request =
                Request { id, want: self.slots.get(index).want, op: self.slots.op(index) };
            match writer.push_request(&request) {
                Ok(()) => {
                    self.dequeue(route);
                    let slot = self.slots.get_mut(index);
                    (slot.state, slot.frame) = (State::Sent, frame);
                    slot.sent_count += 1;
                    list.push(number);
                }
                Err(no_room) if no_room.want_bytes > room_max_bytes => {
                    self.dequeue(route);
                    self.cut(index);
                }
                Err(_) => return Filled::Full,
            }
        }
        Filled::Empty
    }

    fn dequeue(&mut self, route: Option<usize>) {
        if self.queue(route).pop_front().is_some() {
            self.queued_count -= 1;
        }
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
        self.sequence_of(index).map(RequestId::Once)
    }

    /// The write's at-most-once number, or a new one for it.
    pub(super) fn sequence_of(&mut self, index: u32) -> Option<u32> {
        if let Some(sequence) = self.slots.get(index).sequence {
            return Some(sequence);
        }
        if self.are_numbers_used_up() {
            return None;
        }
        let sequence = self.sequences.take(index)?;
        self.slots.get_mut(index).sequence = Some(sequence);
        Some(sequence)
    }

    /// Numbers may have become free, many at once if the lowest was answered last: queues as many
    /// of the writes that wait for one.
    pub(super) fn enqueue_numberless(&mut self) {
        if self.are_numbers_used_up() {
            return;
        }
        let mut room = self.sequences.room();
        while room > 0
            && let Some(number) = self.numberless.pop_front()
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
