//! Opens a session, and opens a new one when the server has forgotten it.
//!
//! ```text
//!              hello               challenge: cookie, hello again
//!  Greeting ───────────▶ ... ────────────────────────────────────▶ welcome ──▶ Open
//!     ▲                                                                         │
//!     └──────────── refused: unknown session; idle for long; numbers used up ◀──┘
//! ```
//!
//! When a session ends, its outstanding reads are sent again. Its writes end as `Unknown`, unless
//! every copy of the write was in a frame that the server refused as a whole: the server refuses
//! only frames it did not execute.

use wire::native::{
    Challenge, Frame, Hello, Once, Reason, Refusal, SessionId, Steering, SteeringId, TagKey,
    Versions, Welcome,
};

use base::KeyHasher;

use super::frames::Frames;
use super::queues::ROUTES_MAX;
use super::slots::{Ending, State, Transfer};
use super::{Draw, Engine};
use crate::config::Delivery;
use crate::error::RequestError;

/// The shortest frame length that a server may require: a header, a message's head and 64 bytes.
const FRAME_BYTES_MIN: usize = 128;
/// The first wait for the answer to a hello, doubled each time.
const HELLO_AGAIN_NS: u64 = 100_000_000;
const HELLO_AGAIN_MAX_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Session {
    Greeting(Greeting),
    Open(Open),
    /// The server refuses a session.
    Failed(Reason),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Greeting {
    nonce: u64,
    cookie: Option<u64>,
    /// The ended session.
    replaces: Option<SessionId>,
    /// The nonce of the last hello; begins anywhere, so that a stranger cannot refuse it.
    number: u32,
    pub again_at_ns: u64,
    tries: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub id: SessionId,
    pub steering: Steering,
    pub frame_max_bytes: usize,
    pub part_window_bytes: u32,
    /// 0: never forgotten.
    pub idle_ns: u64,
}

impl Session {
    pub fn greeting(draw: &mut Draw, replaces: Option<SessionId>) -> Session {
        let (nonce, number) = (draw.next(), draw.next() as u32);
        Session::Greeting(Greeting {
            nonce,
            cookie: None,
            replaces,
            number,
            again_at_ns: 0,
            tries: 0,
        })
    }

    /// The session, if it is open.
    pub fn open(&self) -> Option<Open> {
        match self {
            Session::Open(open) => Some(*open),
            _ => None,
        }
    }
}

impl Greeting {
    /// Writes a hello, if one is due.
    pub fn hello(
        &mut self,
        now_ns: u64,
        frame_max_bytes: usize,
        key: Option<&TagKey>,
        out: &mut [u8],
    ) -> Option<usize> {
        if now_ns < self.again_at_ns {
            return None;
        }
        let wait_ns = HELLO_AGAIN_NS << self.tries.min(8);
        self.again_at_ns = now_ns + wait_ns.min(HELLO_AGAIN_MAX_NS);
        self.tries += 1;
        self.number = self.number.wrapping_add(1);
        let hello = Hello {
            versions: Versions::OURS,
            frame_max_bytes: frame_max_bytes as u32,
            cookie: self.cookie,
            nonce: self.nonce,
            replaces: self.replaces,
        };
        hello.encode(self.number, key, out).ok()
    }
}

impl Engine {
    /// The connection under the session was made anew: requests on the old one will not be
    /// answered.
    pub fn restart(&mut self) {
        self.session = Session::greeting(&mut self.draw, None);
        self.end_session();
    }

    /// Says goodbye, so that the server forgets the session at once. No outstanding request may
    /// still be wanted.
    pub fn farewell(&mut self, out: &mut [u8]) -> Option<usize> {
        let Session::Open(open) = self.session else { return None };
        let (number, key) = (self.frames.next(), self.config.tag_key.as_ref());
        wire::native::encode_bye(open.id, number, key, out).ok()
    }

    /// Handles a challenge: the next hello contains its cookie. Returns whether the challenge was
    /// for us.
    pub(super) fn take_challenge(&mut self, frame: &Frame<'_>) -> bool {
        let Session::Greeting(greeting) = &mut self.session else { return false };
        let Ok(challenge) = Challenge::parse(frame) else { return false };
        if challenge.nonce != greeting.nonce {
            return false;
        }
        if challenge.versions.common(Versions::OURS).is_none() {
            self.fail(Reason::Version);
            return true;
        }
        // The next cookie replaces one that was refused silently; the same cookie again means that
        // the answer to our hello is on its way.
        if greeting.cookie != Some(challenge.cookie) {
            greeting.cookie = Some(challenge.cookie);
            greeting.again_at_ns = 0;
        }
        true
    }

    /// Handles a welcome: the session is open. Returns whether it was for us.
    pub(super) fn take_welcome(&mut self, frame: &Frame<'_>) -> bool {
        let Session::Greeting(greeting) = self.session else { return false };
        let Ok(welcome) = Welcome::parse(frame) else { return false };
        let frame_max_bytes = self.frame_max_bytes.min(welcome.frame_max_bytes as usize);
        if welcome.nonce != greeting.nonce || frame_max_bytes < FRAME_BYTES_MIN {
            return false;
        }
        if welcome.version != wire::native::VERSION {
            self.fail(Reason::Version);
            return true;
        }
        self.stats.sessions += 1;
        self.session = Session::Open(Open {
            id: frame.header.session,
            steering: welcome.steering,
            frame_max_bytes,
            part_window_bytes: welcome.part_window_bytes,
            idle_ns: u64::from(welcome.idle_ms) * 1_000_000,
        });
        self.hasher = KeyHasher::new(welcome.steering_seed);
        self.last_sent_ns = self.now_ns;
        let is_steered = self.delivery == Delivery::Lossy;
        let worker_count = usize::from(welcome.steering.worker_count());
        let route_count = if is_steered { worker_count.min(ROUTES_MAX) } else { 1 };
        // Old routes may hold queued requests: they are sorted again.
        self.queues.set_route_count(route_count);
        self.end_session();
        self.sequences.restart(welcome.once_window.min(Once::WINDOW_MAX));
        self.frames = Frames::new(route_count);
        self.pace.restart();
        true
    }

    /// Handles a refusal of a frame of this session, or of a hello. Returns whether it was for us.
    pub(super) fn take_refusal(&mut self, frame: &Frame<'_>) -> bool {
        let Ok(refusal) = Refusal::parse(frame) else { return false };
        let header = frame.header;
        match &mut self.session {
            Session::Greeting(greeting) if header.session == SessionId::default() => {
                if header.answered != greeting.number {
                    return false;
                }
                let retry_ns = u64::from(refusal.retry_after_us) * 1000;
                match refusal.reason {
                    reason @ (Reason::Version | Reason::Closed) => self.fail(reason),
                    // Our cookie has expired, or its session has ended.
                    Reason::UnknownSession => {
                        let replaces = greeting.replaces;
                        self.session = Session::greeting(&mut self.draw, replaces);
                    }
                    Reason::Busy | Reason::SessionsFull => {
                        let soonest_ns = self.now_ns + retry_ns.min(HELLO_AGAIN_MAX_NS);
                        greeting.again_at_ns = greeting.again_at_ns.max(soonest_ns);
                    }
                }
                true
            }
            // These refuse further frames of the session that is being replaced.
            Session::Greeting(greeting) if greeting.replaces == Some(header.session) => {
                self.take_back_frame(header.answered, true);
                true
            }
            Session::Open(open) if open.id == header.session => {
                self.take_refused_frame(header.answered, &refusal);
                true
            }
            _ => false,
        }
    }

    fn take_refused_frame(&mut self, number: u32, refusal: &Refusal) {
        match refusal.reason {
            Reason::Busy => {
                self.stats.busy += 1;
                let retry_after_ns = u64::from(refusal.retry_after_us) * 1000;
                self.pace.back_off(self.now_ns, retry_after_ns, &mut self.draw);
                self.pace.lost(number, self.frames.next());
                self.take_back_frame(number, true);
            }
            Reason::UnknownSession | Reason::SessionsFull => {
                self.take_back_frame(number, true);
                self.renew_session();
            }
            reason @ (Reason::Version | Reason::Closed) => self.fail(reason),
        }
    }

    /// Begins a new session in place of the open one.
    pub(super) fn renew_session(&mut self) {
        if let Session::Open(open) = self.session {
            self.session = Session::greeting(&mut self.draw, Some(open.id));
        }
    }

    /// Whether the queued requests need another session: the server has probably forgotten this
    /// one, or it has no numbers left. No request whose outcome the end would leave unknown may be
    /// in flight.
    pub(super) fn is_session_worn(&self) -> bool {
        let Session::Open(open) = &self.session else { return false };
        let silent_ns = self.now_ns.saturating_sub(self.last_sent_ns);
        let is_idle = open.idle_ns > 0 && silent_ns > open.idle_ns / 4 * 3;
        let is_forgotten = is_idle && self.queues.len > 0 && self.frames.in_flight() == 0;
        let is_used_up = self.sequences.has_waiting() && self.sequences.are_used_up();
        self.sequences.is_idle() && (is_forgotten || is_used_up)
    }

    /// The server refuses a session: ends every request.
    fn fail(&mut self, reason: Reason) {
        self.session = Session::Failed(reason);
        for index in self.slots.request_indexes() {
            let slot = self.slots.get_mut(index);
            if !matches!(slot.state, State::Free | State::Done) {
                slot.order_place = super::NONE;
                let error = match slot.error_without_answer() {
                    RequestError::Unknown => RequestError::Unknown,
                    _ => RequestError::NoSession(reason),
                };
                self.finish(index, Ending::error(error));
            }
        }
        self.order.clear();
        self.clear_queues();
    }

    fn clear_queues(&mut self) {
        self.queues.clear();
        self.sequences.clear_waiting();
    }

    /// Settles the requests sent in the ended session, and queues the rest again.
    fn end_session(&mut self) {
        self.frames = Frames::new(self.queues.route_count());
        self.clear_queues();
        for index in self.slots.request_indexes() {
            let slot = self.slots.get(index);
            if !matches!(slot.state, State::Queued | State::Sent | State::InParts) {
                continue;
            }
            if slot.error_without_answer() == RequestError::Unknown {
                self.finish(index, Ending::error(RequestError::Unknown));
                continue;
            }
            if matches!(slot.transfer.as_deref(), Some(Transfer::Push(_) | Transfer::Pull { .. })) {
                self.end_transfer(index);
            }
            let slot = self.slots.get_mut(index);
            slot.sequence = None;
            (slot.sent_count, slot.refused_count) = (0, 0);
            self.enqueue(index);
        }
        self.sequences.restart(1);
    }

    /// The steering field of a request's key and the worker behind it.
    pub(super) fn steering_of(&self, index: u32) -> Option<(SteeringId, u16)> {
        let Session::Open(open) = &self.session else { return None };
        let slot = self.slots.get(index);
        let holder = if slot.parent == super::NONE { slot } else { self.slots.get(slot.parent) };
        let id = open.steering.id(self.hasher.hash(holder.key()));
        Some((id, open.steering.worker(id).unwrap_or(0)))
    }
}
