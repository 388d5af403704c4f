//! When a worker polls its sockets, and whether it may sleep meanwhile.
//!
//! # Invariants
//! P1: while clients in shared memory or other workers are busy, the sockets are polled once in
//!     [`ROUNDS_PER_WAIT`] rounds: polling costs as much as serving a small batch.

use std::time::{Duration, Instant};

use base::UnixMillis;
use config::Poll;
use runtime::shared::Shared;

/// See P1.
const ROUNDS_PER_WAIT: u32 = 16;

/// `Poll::Auto` continues to poll for this long after the last work.
const SPIN_TIME: Duration = Duration::from_micros(50);

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

    /// Whether the worker, without work, goes on polling.
    #[inline]
    pub fn is_spinning(&self) -> bool {
        self.last_work_at.elapsed() < SPIN_TIME
    }

    /// Notes that a round that ends now had work.
    #[inline]
    pub fn note_work(&mut self, now: Instant) {
        self.last_work_at = now;
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
