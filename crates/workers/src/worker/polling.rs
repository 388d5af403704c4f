//! When a worker polls its sockets, and whether it may sleep meanwhile.
//!
//! # Invariants
//! P1: while clients in shared memory or other workers are busy, the sockets are polled once in
//!     [`ROUNDS_PER_WAIT`] rounds: polling costs as much as serving a small batch.
//! P2: with `Poll::Auto` a worker without work polls as long as its gaps say (`policy::spin`).

use std::time::{Duration, Instant};

use base::UnixMillis;
use config::Poll;
use policy::spin::{Spent, Spin};
use runtime::shared::Shared;

/// See P1.
const ROUNDS_PER_WAIT: u32 = 16;

/// Longest sleep, after which a worker checks for housekeeping.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Longest sleep while items are waiting to expire.
const SLEEP_MAX_EXPIRING: Duration = Duration::from_millis(20);

/// How a worker waits for work.
pub(super) struct Polling {
    /// How it waits in its present role.
    pub poll: Poll,
    /// Rounds since the sockets were last polled.
    rounds_without_wait: u32,
    /// Whether the last round served clients in shared memory, or other workers.
    pub has_served_queues: bool,
    last_work_at: Instant,
    /// How the worker has met its gaps (P2).
    spin: Spin,
    /// How it spends the present gap; `None`: it has found work at each poll, or has not polled in
    /// vain nor slept.
    gap: Option<Spent>,
    /// Whether some items have an expiry, as of `expiring_checked_at`.
    is_expiring: bool,
    expiring_checked_at: UnixMillis,
}

impl Polling {
    /// Of a worker that has had work just now.
    pub fn new(poll: Poll, now: Instant) -> Polling {
        Polling {
            poll,
            rounds_without_wait: 0,
            has_served_queues: false,
            last_work_at: now,
            spin: Spin::default(),
            gap: None,
            is_expiring: false,
            expiring_checked_at: UnixMillis(0),
        }
    }

    /// Whether the round that begins leaves the sockets alone (P1).
    #[inline]
    pub fn skips_sockets(&mut self) -> bool {
        if self.has_served_queues && self.rounds_without_wait < ROUNDS_PER_WAIT {
            self.rounds_without_wait += 1;
            return true;
        }
        self.rounds_without_wait = 0;
        false
    }

    /// Whether this round's sockets were polled.
    #[inline]
    pub fn has_polled(&self) -> bool {
        self.rounds_without_wait == 0
    }

    /// Makes the next round poll the sockets.
    pub fn poll_next(&mut self) {
        self.rounds_without_wait = ROUNDS_PER_WAIT;
    }

    /// Whether the worker, which has found no work, goes on polling (P2).
    #[inline]
    pub fn is_spinning(&mut self, connection_count: usize) -> bool {
        let time_ns = self.spin.time_ns(connection_count);
        if time_ns == 0 {
            return false;
        }
        let is_within = self.last_work_at.elapsed() < Duration::from_nanos(time_ns);
        self.gap = Some(if is_within { Spent::Polling } else { Spent::Asleep });
        is_within
    }

    /// Notes that the worker sleeps.
    #[inline]
    pub fn note_sleep(&mut self) {
        self.gap = Some(Spent::Asleep);
    }

    /// Notes that a round that ends now had work.
    #[inline]
    pub fn note_work(&mut self, ended_at: Instant) {
        if let Some(spent) = self.gap.take() {
            self.spin.note_gap(spent);
        }
        self.last_work_at = ended_at;
    }

    /// The longest sleep, as far as the store goes.
    pub fn sleep_max(&mut self, shared: &Shared, now: UnixMillis) -> Duration {
        // Summing the counters at every sleep would cost a blocking server a few percent.
        if self.expiring_checked_at != now {
            self.expiring_checked_at = now;
            self.is_expiring = shared.store().is_expiring();
        }
        if self.is_expiring { SLEEP_MAX_EXPIRING } else { SLEEP_MAX }
    }
}
