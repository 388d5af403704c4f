//! When a frame may leave, and when an unanswered one counts as lost: round trips, the window, the
//! pace, and the rest that a busy server asks for.
//!
//! ```text
//!  answers ─▶ round-trip time ─┬─▶ retransmission timeout, doubled by each silence
//!                              └─▶ pace ─┐
//!  answers, losses ─▶ window ────────────┼─▶ may_send
//!  busy ─▶ quiet until, doubled ─────────┘
//! ```
//!
//! # Invariants
//! P1: a reliable link has no window, no pace and no losses; only a busy server holds frames back.
//! P2: the rest is doubled at most once for the frames that left before the first busy answer
//!     arrived.

use super::Draw;
use super::frames::{FRAMES_MAX, Frames};
use crate::config::{Config, Delivery};
use crate::rtt::RttEstimate;
use crate::window::{Pacer, Window};

/// The first wait for a busy server, doubled each time.
const BACK_OFF_NS: u64 = 1_000_000;
const BACK_OFF_MAX_NS: u64 = 100_000_000;
/// The longest wait that a server may request.
const RETRY_AFTER_MAX_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Pace {
    is_lossy: bool,
    retransmit_min_ns: u64,
    retransmit_first_ns: u64,
    retransmit_max_ns: u64,
    rtt: RttEstimate,
    window: Window,
    pacer: Pacer,
    /// Doublings of the retransmission timeout since the last answer.
    silences: u32,
    /// Until when the client leaves a busy server alone, and how often in a row it was busy.
    quiet_until_ns: u64,
    busy_streak: u32,
}

impl Pace {
    pub fn new(config: &Config, delivery: Delivery) -> Pace {
        Pace {
            is_lossy: delivery == Delivery::Lossy,
            retransmit_min_ns: config.retransmit_min_ns,
            retransmit_first_ns: config.retransmit_first_ns,
            retransmit_max_ns: config.retransmit_max_ns,
            rtt: RttEstimate::default(),
            window: Window::new(config.window_max_frames.min(FRAMES_MAX)),
            pacer: Pacer::default(),
            silences: 0,
            quiet_until_ns: 0,
            busy_streak: 0,
        }
    }

    /// The time after which an unanswered frame counts as lost.
    pub fn retransmit_after_ns(&self) -> u64 {
        let (min_ns, first_ns) = (self.retransmit_min_ns, self.retransmit_first_ns);
        let base_ns = self.rtt.retransmit_after_ns(min_ns, first_ns);
        (base_ns << self.silences.min(16)).min(self.retransmit_max_ns.max(base_ns))
    }

    /// The time after which a frame that later ones have overtaken counts as lost; `None`: no round
    /// trip is measured yet.
    pub fn overtaken_after_ns(&self) -> Option<u64> {
        self.rtt.overtaken_after_ns()
    }

    pub fn may_send(&self, now_ns: u64, frames: &Frames) -> bool {
        !self.is_window_full(frames) && now_ns >= self.quiet_until_ns && now_ns >= self.paced_ns()
    }

    /// The time at which a frame may leave; `None`: when others were answered.
    pub fn ready_at_ns(&self, frames: &Frames) -> Option<u64> {
        (!self.is_window_full(frames)).then(|| self.paced_ns().max(self.quiet_until_ns))
    }

    fn is_window_full(&self, frames: &Frames) -> bool {
        let window = if self.is_lossy { self.window.frames() } else { u32::MAX };
        frames.in_flight() >= window || !frames.has_room()
    }

    /// The time at which the pace allows a frame; 0: any time.
    fn paced_ns(&self) -> u64 {
        match self.is_lossy {
            true => self.pacer.ready_at_ns(&self.window, self.rtt.smoothed_ns()),
            false => 0,
        }
    }

    /// Records a sent frame.
    pub fn sent(&mut self, now_ns: u64) {
        self.pacer.sent(now_ns, &self.window, self.rtt.smoothed_ns());
    }

    /// Records a round trip.
    pub fn measured(&mut self, rtt_ns: u64) {
        self.rtt.observe(rtt_ns);
        self.silences = 0;
    }

    /// Records the last reply to a frame, if it came later than the first.
    pub fn completed(&mut self, rtt_ns: u64) {
        self.rtt.observe(rtt_ns);
    }

    /// Records a frame that needs no further answer, while `in_flight` were in flight.
    pub fn answered(&mut self, in_flight: u32) {
        self.window.answered(in_flight);
    }

    /// Frame `number` was lost, or refused by a busy server, when `next` was the next to be sent.
    pub fn lost(&mut self, number: u32, next: u32) {
        self.window.lost(number, next);
    }

    /// Records a whole retransmission timeout without an answer.
    pub fn silence(&mut self, next: u32) {
        self.window.silence(next);
        self.silences += 1;
    }

    /// Frame numbers restart.
    pub fn restart(&mut self) {
        self.window.restart();
    }

    /// The server has executed a request: it is not busy.
    pub fn not_busy(&mut self) {
        self.busy_streak = 0;
    }

    /// The server is overloaded: nothing is sent for a while.
    pub fn back_off(&mut self, now_ns: u64, retry_after_ns: u64, draw: &mut Draw) {
        if now_ns < self.quiet_until_ns {
            return; // P2
        }
        let wait_ns = (BACK_OFF_NS << self.busy_streak.min(16)).min(BACK_OFF_MAX_NS);
        self.busy_streak += 1;
        // Waits between half and all of that time, so that clients do not come back together.
        let wait_ns = wait_ns / 2 + draw.next() % (wait_ns / 2);
        self.quiet_until_ns = now_ns + wait_ns.max(retry_after_ns.min(RETRY_AFTER_MAX_NS));
    }
}
