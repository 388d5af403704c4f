//! The protocol engine: requests and datagrams in, datagrams and completions out. No I/O, no clock.
//!
//! ```text
//!  submit ──▶ order ──▶ queues, one per worker ──▶ output ──▶ datagrams
//!             (K10)     (frames fill up)             │ window, pace, at-most-once numbers
//!                                                    ▼
//!                       next_timer ◀── frames under way ──▶ lost: queued again
//!                                                    ▲
//!  next_completion ◀── slots that are done ◀─────── input ◀── datagrams
//! ```
//!
//! The driver calls [`Engine::input`] for what arrived, then [`Engine::output`] until it returns
//! nothing more. It calls [`Engine::output`] again at the time of [`Engine::next_timer`] and after
//! a request was submitted. Time is an argument and never goes back.
//!
//! # Invariants
//! E1: a write is executed at most once: it keeps its at-most-once number as long as its session
//!     lasts. It ends as [`RequestError::Unknown`] if its session ends after possibly executing it.
//! E2: a number is settled, and may pass below the low-water mark, only after its request has
//!     ended.
//! E3: memory stays within the configured limit, whatever arrives: an arriving frame allocates only
//!     the value of a request that waits for one.
//!
//! # Limits
//! At most 64 parts of large values are in flight at once. Deadlines are checked sixteen times
//! within a timeout, so a request may end up to a sixteenth late.

mod frames;
mod order;
mod pace;
mod queues;
mod receive;
mod send;
mod sequences;
mod session;
mod slots;
mod transfers;

use std::collections::VecDeque;

use base::hash::mix;
use base::{KeyHasher, UnixMillis};
use wire::native::{Op, Status, Want};

use self::frames::Frames;
use self::order::Order;
use self::pace::Pace;
use self::queues::Queues;
use self::sequences::Sequences;
use self::session::Session;
use self::slots::{Ending, NONE, Slots, State, Stored};
use self::transfers::Transfers;
use crate::config::{Config, Delivery, KeyOrder};
use crate::error::{RequestError, SubmitError};
use crate::stats::Stats;

/// Identifies a request until its completion is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    index: u32,
    number: u32,
}

impl Token {
    /// Less than [`Config::outstanding_max`], and unique among outstanding requests: an index for
    /// the caller's own table.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The status of the request.
    pub status: Status,
    /// The item's version, if it was requested.
    pub version: Option<u64>,
    /// The item's client flags, if they were requested.
    pub client_flags: u32,
    /// The item's expiry, if it was requested.
    pub expires_at: Option<UnixMillis>,
    /// The sum of an incr, or the length of a value.
    pub number: Option<i64>,
    /// The value; for a range, its items ([`wire::native::Items`]).
    pub value: &'a [u8],
    /// The key at which a range continues.
    pub resume_key: Option<&'a [u8]>,
}

/// The completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The request.
    pub token: Token,
    /// Its answer or error.
    pub result: Result<Answer<'a>, RequestError>,
}

/// Draws numbers from a seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// One connection's protocol state.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    delivery: Delivery,
    frame_max_bytes: usize,
    draw: Draw,
    now_ns: u64,
    slots: Slots,
    order: Order,
    session: Session,
    sequences: Sequences,
    frames: Frames,
    queues: Queues,
    pace: Pace,
    transfers: Transfers,
    hasher: KeyHasher,
    /// The time of the next check of deadlines.
    scan_at_ns: u64,
    last_sent_ns: u64,
    done: VecDeque<u32>,
    lent: Option<u32>,
    stats: Stats,
}

impl Engine {
    /// A connection that has not begun. `frame_fitting_bytes` is the longest frame that fits the
    /// path to the server; `seed` must be drawn anew for each connection outside tests.
    pub fn new(
        config: Config,
        delivery: Delivery,
        frame_fitting_bytes: usize,
        seed: u64,
    ) -> Engine {
        let count = config.outstanding_count();
        let mut draw = Draw(seed);
        // This holds in shared memory too: later requests in the ring would overtake a value in
        // parts, or a write that a busy server returned.
        let is_kept = config.key_order == KeyOrder::Kept;
        let session = Session::greeting(&mut draw, None);
        Engine {
            frame_max_bytes: config.frame_bytes(frame_fitting_bytes),
            delivery,
            now_ns: 0,
            slots: Slots::new(count),
            order: Order::new(count, is_kept, draw.next()),
            session,
            sequences: Sequences::new(1, config.writes_per_session_max),
            frames: Frames::new(1),
            queues: Queues::new(count),
            pace: Pace::new(&config, delivery),
            transfers: Transfers::default(),
            hasher: KeyHasher::new(0),
            scan_at_ns: u64::MAX,
            last_sent_ns: 0,
            done: VecDeque::with_capacity(count),
            lent: None,
            stats: Stats::default(),
            draw,
            config,
        }
    }

    /// Submits a request. Its bytes are copied; the next [`Engine::output`] sends them.
    pub fn submit(&mut self, op: &Op<'_>, want: Want) -> Result<Token, SubmitError> {
        let (stored, key, value) = Stored::of(op);
        if key.len() > wire::native::KEY_MAX_BYTES {
            return Err(SubmitError::KeyTooLong { len_bytes: key.len() });
        }
        if value.len() > self.config.value_max_bytes as usize {
            let (len_bytes, max_bytes) = (value.len(), self.config.value_max_bytes);
            return Err(SubmitError::ValueTooLong { len_bytes, max_bytes });
        }
        self.take_lent_back();
        let index = self.slots.take().ok_or(SubmitError::Full)?;
        let slot = self.slots.get_mut(index);
        (slot.stored, slot.want) = (stored, want);
        slot.key_len_bytes = key.len() as u32;
        slot.bytes.extend_from_slice(key);
        slot.bytes.extend_from_slice(value);
        let token = Token { index, number: slot.number };
        self.stats.requests += 1;
        if self.scan_at_ns == u64::MAX {
            self.scan_at_ns = self.now_ns;
        }
        if self.order.admit(&mut self.slots, index) {
            self.enqueue(index);
        } else {
            self.slots.get_mut(index).state = State::Blocked;
        }
        Ok(token)
    }

    /// The next completion; its slot is free when this is called again.
    pub fn next_completion(&mut self) -> Option<Completion<'_>> {
        self.take_lent_back();
        let index = self.done.pop_front()?;
        self.lent = Some(index);
        let slot = self.slots.get(index);
        let ending = &slot.ending;
        let result = ending.result.map(|status| {
            let (value, rest) = slot.bytes.split_at(ending.value_len_bytes);
            Answer {
                status,
                version: ending.version,
                client_flags: ending.client_flags,
                expires_at: ending.expires_at,
                number: ending.number,
                value,
                resume_key: ending.has_more.then_some(rest),
            }
        });
        Some(Completion { token: Token { index, number: slot.number }, result })
    }

    fn take_lent_back(&mut self) {
        if let Some(index) = self.lent.take() {
            self.slots.give_back(index);
        }
    }

    /// Whether there is a completion to take.
    pub fn has_completion(&self) -> bool {
        !self.done.is_empty()
    }

    /// Submitted requests whose completions are not taken yet, including the one being read.
    pub fn outstanding_count(&self) -> usize {
        self.slots.outstanding_count()
    }

    /// Whether a session is open: the server has answered.
    pub fn is_open(&self) -> bool {
        matches!(self.session, Session::Open(_))
    }

    /// The reason for which there will be no session, if there is one.
    pub fn failure(&self) -> Option<wire::native::Reason> {
        match self.session {
            Session::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Puts a request into the queue of its worker.
    fn enqueue(&mut self, index: u32) {
        let route = self.route_of(index);
        let slot = self.slots.get_mut(index);
        slot.state = State::Queued;
        let number = slot.number;
        self.queues.push_back(route, number);
    }

    /// The same, in front of requests that were never sent.
    fn enqueue_again(&mut self, index: u32) {
        let route = self.route_of(index);
        let slot = self.slots.get_mut(index);
        slot.state = State::Queued;
        let number = slot.number;
        self.queues.push_front(route, number);
    }

    /// The queue of a request; `None`: that for any worker.
    fn route_of(&self, index: u32) -> Option<usize> {
        let route_count = self.queues.route_count();
        if route_count == 1 {
            return Some(0);
        }
        if !self.slots.get(index).stored.goes_to_owner(self.config.read_steering) {
            return None;
        }
        let worker = self.steering_of(index).map_or(0, |(_, worker)| usize::from(worker));
        Some(worker % route_count)
    }

    /// Ends a request: settles its number, frees its place in the order, and makes its completion
    /// available.
    fn finish(&mut self, index: u32, ending: Ending) {
        self.leave_frame(index);
        self.end_transfer(index);
        let slot = self.slots.get_mut(index);
        slot.state = State::Done;
        slot.ending = ending;
        let sequence = slot.sequence.take();
        let place = std::mem::replace(&mut slot.order_place, NONE);
        if let Some(sequence) = sequence {
            self.sequences.settle(sequence);
            self.enqueue_numberless();
        }
        self.stats.completions += 1;
        match ending.result {
            Ok(_) => {}
            Err(RequestError::Unknown) => self.stats.unknowns += 1,
            Err(_) => self.stats.timeouts += 1,
        }
        self.done.push_back(index);
        if place != NONE {
            self.order.settle(place);
            while let Some(next) = self.order.release(&mut self.slots, place) {
                self.enqueue(next);
            }
        }
    }

    /// The frame with this request no longer needs an answer for it.
    fn leave_frame(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        if slot.state != State::Sent {
            return;
        }
        let frame = std::mem::replace(&mut slot.frame, NONE);
        let in_flight = self.frames.in_flight();
        if self.frames.settle(frame) {
            self.pace.answered(in_flight);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
