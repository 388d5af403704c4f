//! What clients have delayed: memcached's `flush_all` with a time, and commands under CLIENT PAUSE.
//!
//! # Concurrency
//! Any thread, at any time. Sleeping workers learn of a change when they are woken: the setters of
//! [`Shared`](crate::shared::Shared) do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::UnixMillis;

use crate::pause::Pause;

/// The delays of a server.
#[derive(Debug)]
pub struct Delays {
    /// 0: none.
    flush_at: AtomicU64,
    /// Commands before this time wait (CLIENT PAUSE).
    pause_until: AtomicU64,
    pause_writes_only: AtomicBool,
}

impl Delays {
    /// No pause; the flush that the previous server had not done yet.
    pub(crate) fn new(flush_at: Option<UnixMillis>) -> Delays {
        Delays {
            flush_at: AtomicU64::new(flush_at.map_or(0, |at| at.0)),
            pause_until: AtomicU64::new(0),
            pause_writes_only: AtomicBool::new(false),
        }
    }

    /// When the delayed `flush_all` is due.
    pub fn flush_at(&self) -> Option<UnixMillis> {
        match self.flush_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(UnixMillis(at)),
        }
    }

    pub(crate) fn set_flush_at(&self, at: Option<UnixMillis>) {
        self.flush_at.store(at.map_or(0, |at| at.0.max(1)), Ordering::Relaxed);
    }

    /// True for the one worker that shall flush now.
    pub fn take_due_flush(&self, now: UnixMillis) -> bool {
        self.flush_at().is_some_and(|at| {
            at <= now
                && self
                    .flush_at
                    .compare_exchange(at.0, 0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        })
    }

    pub(crate) fn pause(&self, pause: Option<Pause>) {
        let (until, writes_only) =
            pause.map_or((UnixMillis(0), false), |it| (it.until, it.writes_only));
        self.pause_writes_only.store(writes_only, Ordering::Relaxed);
        self.pause_until.store(until.0, Ordering::Release);
    }

    /// The pause that lasts at a time.
    pub fn paused(&self, now: UnixMillis) -> Option<Pause> {
        let until = UnixMillis(self.pause_until.load(Ordering::Acquire));
        let writes_only = self.pause_writes_only.load(Ordering::Relaxed);
        (until > now).then_some(Pause { until, writes_only })
    }
}
