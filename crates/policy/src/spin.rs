//! Whether a thread that has run out of work polls for a while before it sleeps.
//!
//! ```text
//!   last work    next work
//!       │◀── gap ──▶│       polled until it came: score + 1;  polled and slept: score - 4
//!                           slept at once, for the 32nd time: score = 8
//!
//!   score   0 ........ 8 ............. 16
//!   sleeps at once     | polls for 25 us; with up to 4 clients 50 us
//! ```
//!
//! A wake-up costs the thread some microseconds, and its client the time that the processor takes
//! to leave its idle state: with one request at a time half of the throughput. Polling in vain
//! costs processor time, and a thread that never sleeps is the first that the kernel puts aside for
//! others. So a thread polls only while four of five gaps are short, as those of a client that
//! waits for each reply are. Requests that come at random, at half of the rate that the thread can
//! serve, leave longer ones. A thread with few clients polls for longer: by each request that finds
//! it asleep one of them loses its time, and there are no others to gain it. So does a thread that
//! executes for others, which has no clients.
//!
//! # Invariants
//! I1: a thread that has no work for [`Spin::TIME_FEW_NS`] sleeps.
//! I2: a gap counts only if the thread polled: how long a wake-up takes is not known.

/// How one thread has met its gaps lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    score: u8,
    /// Gaps that it slept through since it last polled.
    slept_count: u8,
}

/// How a thread spent a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// It polled until the work came.
    Polling,
    /// It slept, or was about to, perhaps after it had polled.
    Asleep,
}

impl Default for Spin {
    /// A thread that begins by polling.
    fn default() -> Spin {
        Spin { score: Spin::SCORE_MAX, slept_count: 0 }
    }
}

impl Spin {
    /// The longest time of polling: a client that sends its next request at once has sent it by
    /// then (in 14 to 20 us, through a virtual machine's loopback device, if it has to wake up).
    const TIME_NS: u64 = 25_000;
    /// The same for a thread of at most [`Spin::FEW_CLIENTS`].
    const TIME_FEW_NS: u64 = 50_000;
    const FEW_CLIENTS: usize = 4;
    const SCORE_MAX: u8 = 16;
    const SCORE_POLLS: u8 = Spin::SCORE_MAX / 2;
    /// The loss for a long gap: with a gain of 1 for a short one, four of five have to be short.
    const LONG_COSTS: u8 = 4;
    /// A thread that sleeps at once polls again after so many gaps.
    const SLEPT_MAX: u8 = 32;

    /// How long a thread with so many clients polls that has just run out of work; 0: it sleeps at
    /// once.
    #[inline]
    pub fn time_ns(self, client_count: usize) -> u64 {
        match (self.score >= Spin::SCORE_POLLS, client_count <= Spin::FEW_CLIENTS) {
            (false, _) => 0,
            (true, true) => Spin::TIME_FEW_NS,
            (true, false) => Spin::TIME_NS,
        }
    }

    /// Notes a gap that has ended.
    #[inline]
    pub fn note_gap(&mut self, spent: Spent) {
        match spent {
            Spent::Polling => self.score = (self.score + 1).min(Spin::SCORE_MAX),
            Spent::Asleep if self.score >= Spin::SCORE_POLLS => {
                self.score -= Spin::LONG_COSTS;
                self.slept_count = 0;
            }
            Spent::Asleep => {
                self.slept_count += 1;
                if self.slept_count == Spin::SLEPT_MAX {
                    self.score = Spin::SCORE_POLLS;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_NS: u64 = 15_000;
    const LONG_NS: u64 = 300_000;

    /// One gap, spent as the thread would; returns whether it polled at first.
    fn meet(spin: &mut Spin, gap_ns: u64) -> bool {
        let time_ns = spin.time_ns(64);
        spin.note_gap(if gap_ns <= time_ns { Spent::Polling } else { Spent::Asleep });
        time_ns > 0
    }

    /// The number of gaps, of so many of that length, in which the thread polled.
    fn polled(spin: &mut Spin, count: usize, gap_ns: u64) -> usize {
        (0..count).filter(|_| meet(spin, gap_ns)).count()
    }

    #[test]
    fn long_gaps_end_polling_but_for_a_look_at_each_33rd() {
        let mut spin = Spin::default();
        assert_eq!(polled(&mut spin, 10, LONG_NS), 3);
        assert_eq!(polled(&mut spin, 330, LONG_NS), 10);
    }

    #[test]
    fn short_gaps_begin_polling_within_a_few_dozen() {
        let mut spin = Spin::default();
        polled(&mut spin, 10, LONG_NS);
        polled(&mut spin, 40, SHORT_NS);
        assert_eq!(polled(&mut spin, 1000, SHORT_NS), 1000);
        // Then one long gap changes nothing.
        meet(&mut spin, LONG_NS);
        assert_eq!(polled(&mut spin, 1000, SHORT_NS), 1000);
    }

    #[test]
    fn polling_needs_four_short_gaps_of_five() {
        for (long_every, is_enough) in [(5, true), (4, false)] {
            let mut spin = Spin::default();
            let gap = |round| if round % long_every == 0 { LONG_NS } else { SHORT_NS };
            let polled = (0..1000).filter(|round| meet(&mut spin, gap(*round))).count();
            assert_eq!(polled == 1000, is_enough, "{polled}");
            assert!(is_enough || polled < 300, "{polled}");
        }
    }

    #[test]
    fn a_thread_with_few_clients_polls_for_longer() {
        let spin = Spin::default();
        assert_eq!([1, 4, 5, 64].map(|clients| spin.time_ns(clients) / 1000), [50, 50, 25, 25]);
    }
}
