//! Which workers have the connections: the small ones, so that no small request waits in the socket
//! buffer of a worker that is busy with a large one (Minos §3: large cores do not read the
//! network).
//!
//! ```text
//!  plan     4 small ........ 3 small, for a while ............ 4 small, for a while
//!  worker 3  its own         all to workers 0..3, and new ones  a quarter of each other's
//! ```
//!
//! # Invariants
//! P1: connections move only once a plan has had as many small workers for [`SETTLED_NS`]: a move
//!     costs more than some requests behind a large one.
//! P2: there is always a small worker (I2 of `size_class`), so connections always have one.

use std::ops::Range;

/// See P1: two epochs.
pub const SETTLED_NS: u64 = 2_000_000_000;

/// One worker's view of it.
#[derive(Clone, Copy, Debug)]
pub struct Pollers {
    /// Connections are divided among so many workers, the first ones.
    divided: usize,
    /// The small workers of the latest plan, and since when.
    seen: usize,
    since_ns: u64,
}

/// Connections that a worker hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// So many of `denominator`.
    pub numerator: usize,
    /// See there.
    pub denominator: usize,
    /// To these workers.
    pub targets: Range<usize>,
}

impl Pollers {
    /// All `worker_count` workers have connections.
    pub fn new(worker_count: usize) -> Pollers {
        Pollers { divided: worker_count, seen: worker_count, since_ns: 0 }
    }

    /// What worker `own` hands over, under a plan with that many small workers.
    pub fn step(&mut self, small_workers: usize, own: usize, now_ns: u64) -> Option<HandOver> {
        if small_workers != self.seen {
            (self.seen, self.since_ns) = (small_workers, now_ns);
        }
        let before = self.divided;
        if self.seen != before {
            if now_ns.saturating_sub(self.since_ns) < SETTLED_NS {
                return None; // P1
            }
            self.divided = self.seen;
        }
        let divided = self.divided;
        if own >= divided {
            return Some(HandOver { numerator: 1, denominator: 1, targets: 0..divided });
        }
        (own < before && before < divided).then(|| HandOver {
            numerator: divided - before,
            denominator: divided,
            targets: before..divided,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_worker_that_becomes_large_hands_all_over_once_the_plan_has_lasted() {
        let mut pollers = Pollers::new(4);
        assert_eq!(pollers.step(4, 3, 0), None);
        assert_eq!(pollers.step(3, 3, S), None);
        assert_eq!(pollers.step(3, 3, 3 * S - 1), None);
        let all = Some(HandOver { numerator: 1, denominator: 1, targets: 0..3 });
        assert_eq!(pollers.step(3, 3, 3 * S), all);
        assert_eq!(pollers.step(3, 3, 4 * S), all, "new connections too");
    }

    #[test]
    fn a_plan_that_does_not_last_moves_nothing() {
        let mut pollers = Pollers::new(2);
        for second in 0..60 {
            let small_workers = if second % 2 == 0 { 2 } else { 1 };
            assert_eq!(pollers.step(small_workers, 1, second * S), None);
        }
    }

    #[test]
    fn small_workers_share_with_one_that_is_small_again() {
        let mut shares = Vec::new();
        for own in 0..4 {
            let mut pollers = Pollers::new(4);
            pollers.step(2, own, 0);
            pollers.step(2, own, 2 * S);
            assert_eq!(pollers.step(3, own, 3 * S), None);
            shares.push(pollers.step(3, own, 5 * S).map(|it| (it.numerator, it.targets)));
            assert_eq!(pollers.step(3, own, 6 * S).is_some(), own >= 3, "they share once");
        }
        assert_eq!(shares, [Some((1, 2..3)), Some((1, 2..3)), None, Some((1, 0..3))]);
    }
}
