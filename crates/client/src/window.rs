//! The congestion window: additive increase, multiplicative decrease, and pacing.
//!
//! ```text
//!  frames
//!  under      /|      /|     slow start until the first loss, then one frame more per round trip;
//!  way      /  |/|  /  |/    a round trip with losses takes 3/10 away, a silence all but two
//!         /        /
//! ```
//!
//! The window counts frames, since a server's socket drops whole frames. Pacing spreads a window
//! over a round trip; a burst of [`BURST_FRAMES`] passes unpaced, so that a shallow pipeline never
//! waits for a clock.
//!
//! # Invariants
//! W1: the window is between [`WINDOW_MIN`] and the limit given at its creation.
//! W2: one round trip shrinks it at most once.

/// The window, in frames, after a round trip of silence.
const WINDOW_MIN: u32 = 2;
/// The first window, in frames.
const WINDOW_START: u32 = 32;
/// The most frames to send back to back.
const BURST_FRAMES: u64 = 32;
/// The window's unit: fractions of a frame add up.
const SCALE: u32 = 256;

/// The most unanswered frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// In 256ths of a frame.
    scaled: u32,
    scaled_max: u32,
    /// Below it the window grows by a frame for each answered one.
    slow_start_below: u32,
    /// Losses of frames before this number belong to the round trip that already shrank the window
    /// (W2).
    recover_at: Option<u32>,
}

impl Window {
    pub fn new(frames_max: u32) -> Window {
        let scaled_max = frames_max.clamp(WINDOW_MIN, u32::MAX / SCALE) * SCALE;
        let scaled = (WINDOW_START * SCALE).min(scaled_max);
        Window { scaled, scaled_max, slow_start_below: u32::MAX, recover_at: None }
    }

    pub fn frames(&self) -> u32 {
        self.scaled / SCALE
    }

    /// Records an answered frame, while `in_flight` were in flight.
    pub fn answered(&mut self, in_flight: u32) {
        // A client that does not fill the window learns nothing about a larger one.
        if in_flight * 2 < self.frames() {
            return;
        }
        let step = if self.scaled < self.slow_start_below {
            SCALE
        } else {
            (SCALE * SCALE / self.scaled).max(1)
        };
        self.scaled = (self.scaled + step).min(self.scaled_max);
    }

    /// Frame `number` was lost, or refused by a busy server, when `next` was the next to be sent.
    pub fn lost(&mut self, number: u32, next: u32) {
        if self.recover_at.is_some_and(|at| (number.wrapping_sub(at) as i32) < 0) {
            return;
        }
        self.recover_at = Some(next);
        self.scaled = (self.scaled / 10 * 7).max(WINDOW_MIN * SCALE);
        self.slow_start_below = self.scaled;
    }

    /// Records a whole retransmission timeout without an answer.
    pub fn silence(&mut self, next: u32) {
        self.recover_at = Some(next);
        self.slow_start_below = (self.scaled / 2).max(WINDOW_MIN * SCALE);
        self.scaled = WINDOW_MIN * SCALE;
    }

    /// Frame numbers restart.
    pub fn restart(&mut self) {
        self.recover_at = None;
    }

    fn is_in_slow_start(&self) -> bool {
        self.scaled < self.slow_start_below
    }
}

/// The pace: a window's frames in a round trip, a quarter faster so that the window and not the
/// pace is the limit; twice as fast in slow start (RFC 9002 §7.7).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    /// The time at which all sent frames would have left at an even pace.
    paid_until_ns: u64,
}

impl Pacer {
    /// The time for one frame at this pace.
    fn gap_ns(window: &Window, rtt_ns: u64) -> u64 {
        let (times, of) = if window.is_in_slow_start() { (1, 2) } else { (4, 5) };
        rtt_ns * times / of / u64::from(window.frames())
    }

    /// The time at which a frame may leave; in the past: now.
    pub fn ready_at_ns(&self, window: &Window, rtt_ns: Option<u64>) -> u64 {
        let Some(rtt_ns) = rtt_ns else { return 0 };
        self.paid_until_ns.saturating_sub(Self::gap_ns(window, rtt_ns) * BURST_FRAMES)
    }

    /// Records a sent frame.
    pub fn sent(&mut self, now_ns: u64, window: &Window, rtt_ns: Option<u64>) {
        let gap_ns = rtt_ns.map_or(0, |rtt_ns| Self::gap_ns(window, rtt_ns));
        self.paid_until_ns = self.paid_until_ns.max(now_ns) + gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_until_a_loss_and_then_grows_by_one_a_round_trip() {
        let mut window = Window::new(1000);
        (0..32).for_each(|_| window.answered(32));
        assert_eq!(window.frames(), 64);
        window.lost(10, 64);
        assert_eq!(window.frames(), 44);
        let before = window.frames();
        (0..before).for_each(|_| window.answered(before));
        assert!((before..=before + 1).contains(&window.frames()), "{}", window.frames());
        (0..before * 4).for_each(|_| window.answered(before));
        assert!((before + 4..=before + 5).contains(&window.frames()), "{}", window.frames());
    }

    #[test]
    fn losses_of_one_round_trip_count_once() {
        let mut window = Window::new(1000);
        window.lost(3, 40);
        let after_one = window.frames();
        (4..40).for_each(|number| window.lost(number, 50));
        assert_eq!(window.frames(), after_one);
        window.lost(40, 60);
        assert!(window.frames() < after_one);
    }

    #[test]
    fn the_window_stays_within_its_bounds() {
        let mut window = Window::new(40);
        (0..1000).for_each(|_| window.answered(40));
        assert_eq!(window.frames(), 40);
        for round in 0..100 {
            window.lost(round * 10, round * 10 + 1);
        }
        assert_eq!(window.frames(), WINDOW_MIN);
        window.silence(2000);
        assert_eq!(window.frames(), WINDOW_MIN);
        assert_eq!(Window::new(0).frames(), WINDOW_MIN);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = Window::new(1000);
        (0..1000).for_each(|_| window.answered(1));
        assert_eq!(window.frames(), WINDOW_START);
    }

    #[test]
    fn a_burst_passes_and_the_rest_is_spread_over_the_round_trip() {
        let mut window = Window::new(64);
        (0..200).for_each(|_| window.answered(64));
        window.lost(0, 1);
        let (mut pacer, rtt_ns) = (Pacer::default(), Some(44_000));
        let (mut now_ns, mut waits) = (1_000_000, 0);
        for _ in 0..BURST_FRAMES * 2 {
            let ready_ns = pacer.ready_at_ns(&window, rtt_ns);
            if ready_ns > now_ns {
                (now_ns, waits) = (ready_ns, waits + 1);
            }
            pacer.sent(now_ns, &window, rtt_ns);
        }
        assert_eq!(waits, BURST_FRAMES - 1, "one frame leaves while none was paid for");
        assert_eq!(now_ns, 1_000_000 + waits * 800);
    }
}
