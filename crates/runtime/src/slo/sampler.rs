//! The sampler: which read a worker times, and from when. Its caller passes the times in.
//!
//! ```text
//!  asked ──── round ──── asked ──── round: read ─▶ pick ───── rounds ───── answered
//!                          └───────────── what is measured ─────────────────┘
//!  (after a sleep: from the wake-up on)
//! ```

use base::Instant;

/// How the worker came to begin the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// The sockets were not polled.
    Unasked,
    /// The sockets were polled without waiting.
    Asked,
    /// The worker slept until it was woken.
    Woken,
}

/// The read that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRead {
    /// The connection's slot.
    pub slot: usize,
    /// Its client, because another connection may have the slot by now.
    pub client_id: u64,
    /// Replies that the connection must have received ([`dispatch::lanes::Awaiting`]).
    pub reply_mark: u32,
    since: Instant,
}

/// One worker's sampler.
#[derive(Debug, Default)]
pub struct Sampler {
    target_ns: u64,
    asked_at: Option<Instant>,
    /// The earliest time at which the bytes that this round reads can have arrived.
    since: Option<Instant>,
    timed: Option<TimedRead>,
    /// Counts the picks, so that the connections of a round take turns.
    pick_count: usize,
}

impl Sampler {
    /// Begins a round. Without an objective (0) nothing is timed.
    #[inline]
    pub fn begin(&mut self, now: Instant, round: Round, target_ns: u64) {
        self.target_ns = target_ns;
        if target_ns == 0 {
            (self.timed, self.asked_at, self.since) = (None, None, None);
            return;
        }
        self.since = match round {
            Round::Unasked => return self.since = None,
            Round::Asked => self.asked_at,
            Round::Woken => Some(now),
        };
        self.asked_at = Some(now);
    }

    /// Which of `read_count` reads is to be examined first; `None`: none is to be timed.
    #[inline]
    pub fn wants(&mut self, read_count: usize) -> Option<usize> {
        if self.timed.is_some() || self.since.is_none() || read_count == 0 {
            return None;
        }
        self.pick_count = self.pick_count.wrapping_add(1);
        Some(self.pick_count % read_count)
    }

    /// Times this read from now on.
    pub fn start(&mut self, slot: usize, client_id: u64, reply_mark: u32) {
        let Some(since) = self.since else { return };
        self.timed = Some(TimedRead { slot, client_id, reply_mark, since });
    }

    /// The read that is timed.
    #[inline]
    pub fn timed(&self) -> Option<TimedRead> {
        self.timed
    }

    /// Drops the timed read, because its connection is gone.
    pub fn forget(&mut self) {
        self.timed = None;
    }

    /// Ends the timing, because the read is answered: its time, and its target.
    pub fn answered(&mut self, now: Instant) -> Option<(u64, u64)> {
        let timed = self.timed.take()?;
        Some((now.ns.saturating_sub(timed.since.ns), self.target_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET_NS: u64 = 1_000;

    fn at(ns: u64) -> Instant {
        Instant { ns }
    }

    /// A worker that reads one connection in the round that begins at 100 ns and answers at 250 ns.
    #[track_caller]
    fn check(before: &[(u64, Round)], round: Round, want_ns: Option<u64>) {
        let mut sampler = Sampler::default();
        for (ns, round) in before {
            sampler.begin(at(*ns), *round, TARGET_NS);
        }
        sampler.begin(at(100), round, TARGET_NS);
        if sampler.wants(1) == Some(0) {
            sampler.start(7, 1, 0);
        }
        sampler.begin(at(200), Round::Asked, TARGET_NS);
        let found = sampler.answered(at(250));
        assert_eq!(found, want_ns.map(|ns| (ns, TARGET_NS)));
    }

    #[test]
    fn what_woke_a_worker_came_when_it_woke() {
        check(&[(10, Round::Asked)], Round::Woken, Some(150));
    }

    #[test]
    fn what_a_busy_worker_finds_may_have_come_since_it_last_asked() {
        check(&[(10, Round::Asked), (40, Round::Asked)], Round::Asked, Some(210));
        check(&[(10, Round::Asked), (40, Round::Unasked)], Round::Asked, Some(240));
        check(&[(10, Round::Woken)], Round::Asked, Some(240));
    }

    #[test]
    fn a_first_look_tells_nothing() {
        check(&[], Round::Asked, None);
        check(&[(10, Round::Asked)], Round::Unasked, None);
    }

    #[test]
    fn one_read_is_timed_at_a_time_and_connections_take_turns() {
        let mut sampler = Sampler::default();
        sampler.begin(at(0), Round::Woken, TARGET_NS);
        let first = sampler.wants(3).unwrap();
        sampler.start(first, 1, 0);
        assert_eq!(sampler.wants(3), None);
        sampler.forget();
        let second = sampler.wants(3).unwrap();
        assert_ne!(first, second);
        assert_eq!(sampler.answered(at(9)), None);
    }

    #[test]
    fn without_an_objective_nothing_is_timed() {
        let mut sampler = Sampler::default();
        sampler.begin(at(0), Round::Woken, TARGET_NS);
        sampler.start(0, 1, 0);
        sampler.begin(at(10), Round::Woken, 0);
        assert_eq!((sampler.timed(), sampler.wants(1)), (None, None));
        sampler.begin(at(20), Round::Asked, TARGET_NS);
        assert_eq!(sampler.wants(1), None, "what came before 20 ns came at an unknown time");
    }
}
