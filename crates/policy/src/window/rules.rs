//! The rules for opening and closing a compaction window: arithmetic on times and counts, no
//! buffers.
//!
//! ```text
//!  opens at T                       closes_at = deadline - guard     deadline = T + S(SLO - 1)
//!  ├── join ── join ── join ────────────────┤·······guard············┤
//!  │      └ after_join: full? due? drained? └ on_time: the timer     └ replies must be out by now
//! ```
//!
//! A driver asks at three kinds of moments:
//!
//! 1. [`WindowRules::on_write`] when a write is taken from the queue: run, open or join;
//! 2. [`WindowRules::after_join`] once the write has been added: close now?
//! 3. [`WindowRules::on_time`] when the timer fires, and [`WindowRules::on_round`] when a round of
//!    the queue is over: close now?
//!
//! The first two are separate because adding a write takes time (C-4's T_comp, 100 ns): a simulated
//! server asks the second question that much later, and the queue may have grown meanwhile.
//!
//! # Invariants
//! I1: a window that opens has a deadline; with a timer it closes by `closes_at` at the latest.
//! I2: a write never opens a window unless a request that depends on it is in sight.
//! I3: a window holds at most `batch_max` operations.
//!
//! # Limits
//! The driver looks for dependent requests, at most `queue_scan_max` slots beyond the batch that
//! was already taken (K8).
//!
//! # Trade-offs
//! `honest` closes a window when no more writes to its key are in sight. C-4's own server waited
//! for the deadline, so that windows at low load gathered little and became the 99th percentile
//! (C-4 §7.2). Closing early costs more, smaller batches at middling load; at high load the hot key
//! always has a write in sight, and the deadline decides as before.
//!
//! A window that closes at the first moment without a follower gathers two or three writes, and
//! under extreme skew its readers still meet a write at every turn. `hold_ns` keeps it open for a
//! while, three services, before it may close early: decision 0017 has the numbers.
//!
//! # References
//! Decision 0017; C-4 §3.2 (timer), §4.3 (scan a few slots), §5.3 (deadline), §7.2 (closing early);
//! K8.

use base::Instant;

/// Which requests of the same key make a write worth a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependent {
    /// Writes only, because only they can be compacted.
    Writes,
    /// Reads too, as C-4's published model counts them.
    Any,
}

/// The condition that closes a window before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseWhen {
    /// None: it stays open until the deadline (C-4's server).
    Deadline,
    /// No request in sight would join or follow it: no dependent request of its key is queued.
    KeyDrained,
    /// The worker has no request queued, of any key.
    QueueEmpty,
}

/// Whether an open window is checked when no write arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowTimer {
    /// A timer is armed at opening.
    Armed,
    /// None: a window is checked only when a further write of its key is served.
    Absent,
}

/// The effect of a write on its key's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// No window: it is executed at once.
    RunNow,
    /// It opens a window with itself as the first operation.
    Open,
    /// It is added to the open window; call `after_join` next.
    Join,
}

/// The reason why a window closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The deadline is less than a guard away.
    Deadline,
    /// Waiting longer would gather nothing (C-4 §7.2).
    Early,
    /// It holds as many operations as allowed.
    Full,
    /// A request that cannot join has to see its effect (K10).
    Barrier,
}

/// The contents of the worker's queue at the moment, beyond the present operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSight {
    /// No request at all.
    Nothing,
    /// Requests, but none that depends on this key's writes.
    OtherKeys,
    /// At least one dependent request of this key.
    SameKey,
}

/// The state of an open window that decides when it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWindow {
    /// The time by which the replies must be on their way.
    pub deadline: Instant,
    /// The number of operations in it.
    pub operation_count: usize,
}

/// The rules for opening and closing windows. Plain numbers, chosen once at start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRules {
    /// The time from opening to the deadline.
    pub deadline_ns: u64,
    /// A window closes when the deadline is no further away than this.
    pub guard_ns: u64,
    /// The condition that closes it earlier.
    pub close: CloseWhen,
    /// The time from opening until it may close early; 0: at once.
    pub hold_ns: u64,
    /// The requests that open it.
    pub opens_on: Dependent,
    /// Whether a window without further writes is checked.
    pub timer: WindowTimer,
    /// The most operations in a window.
    pub batch_max: usize,
    /// The number of queued slots beyond the taken batch that are searched for dependent requests
    /// (K8).
    pub queue_scan_max: usize,
}

impl WindowRules {
    /// Queued slots that are searched beyond the taken batch (K8).
    pub const QUEUE_SCAN_MAX: usize = 32;
    /// The number of mean service times for which a window stays open before it may close early
    /// (decision 0017).
    pub const HELD_SERVICES: u64 = 3;
    /// Operations in one window; a partition has at most 64 outstanding writes (C-4 §5.2).
    pub const BATCH_MAX: usize = 64;

    /// The server's rules: deadline S(SLO - 1), and a guard of one S, because a request that is
    /// being served when the guard begins ends S later on average. It closes early, but not within
    /// the first three S.
    pub fn honest(service_mean_ns: u64, slo_ratio: u64) -> WindowRules {
        assert!(slo_ratio >= 2, "an SLO of one service time leaves no room for a window");
        WindowRules {
            deadline_ns: service_mean_ns * (slo_ratio - 1),
            guard_ns: service_mean_ns,
            close: CloseWhen::KeyDrained,
            hold_ns: WindowRules::HELD_SERVICES * service_mean_ns,
            opens_on: Dependent::Writes,
            timer: WindowTimer::Armed,
            batch_max: WindowRules::BATCH_MAX,
            queue_scan_max: WindowRules::QUEUE_SCAN_MAX,
        }
    }

    /// C-4's published model: 10 x 600 ns without the fixed cost, a guard of 1.5 x 600 ns, reads
    /// open windows, no timer, no bounds, and a window closes once its key is drained.
    pub fn artifact() -> WindowRules {
        WindowRules {
            deadline_ns: 6000,
            guard_ns: 900,
            close: CloseWhen::KeyDrained,
            hold_ns: 0,
            opens_on: Dependent::Any,
            timer: WindowTimer::Absent,
            batch_max: usize::MAX,
            queue_scan_max: usize::MAX,
        }
    }

    /// The same rules, but a window stays open for at least `hold_ns`, deadline and room
    /// permitting. The driver has to call `on_round`, and to check a window at `looks_at`.
    pub fn held_for(self, hold_ns: u64) -> WindowRules {
        WindowRules { hold_ns, ..self }
    }

    /// The effect of a write that is served now. `has_dependent` is called at most once, and only
    /// while no window is open; it returns whether a dependent request of the same key is in sight.
    #[inline]
    pub fn on_write(
        &self,
        open: Option<&OpenWindow>,
        has_dependent: impl FnOnce(Dependent) -> bool,
    ) -> WriteStep {
        match open {
            Some(_) => WriteStep::Join,
            None if has_dependent(self.opens_on) => WriteStep::Open,
            None => WriteStep::RunNow,
        }
    }

    /// The window that a write opens at `now`, which has that write in it.
    #[inline]
    pub fn open(&self, now: Instant) -> OpenWindow {
        OpenWindow { deadline: Instant { ns: now.ns + self.deadline_ns }, operation_count: 1 }
    }

    /// Adds an operation to the count, and nothing else.
    #[inline]
    pub fn join(&self, window: &mut OpenWindow) {
        window.operation_count += 1;
        debug_assert!(window.operation_count <= self.batch_max, "I3");
    }

    /// Whether a window closes behind the write that has just joined it. `in_sight` is called last,
    /// because it is expensive. It is not called for a window that has just opened: a dependent
    /// request is known to be in sight.
    #[inline]
    pub fn after_join(
        &self,
        now: Instant,
        window: &OpenWindow,
        in_sight: impl FnOnce(Dependent) -> InSight,
    ) -> Option<CloseReason> {
        if window.operation_count >= self.batch_max {
            return Some(CloseReason::Full);
        }
        if self.is_due(now, window) {
            return Some(CloseReason::Deadline);
        }
        self.on_round(now, window, in_sight)
    }

    /// Whether a window closes at the end of a round of the queue: it was held for long enough, and
    /// waiting would gather nothing.
    #[inline]
    pub fn on_round(
        &self,
        now: Instant,
        window: &OpenWindow,
        in_sight: impl FnOnce(Dependent) -> InSight,
    ) -> Option<CloseReason> {
        let is_held = now.ns < self.held_until(window).ns;
        if is_held { None } else { self.on_drain(in_sight) }
    }

    /// Whether a window closes because waiting would gather nothing.
    #[inline]
    fn on_drain(&self, in_sight: impl FnOnce(Dependent) -> InSight) -> Option<CloseReason> {
        let closes = match self.close {
            CloseWhen::Deadline => false,
            CloseWhen::KeyDrained => in_sight(self.opens_on) != InSight::SameKey,
            CloseWhen::QueueEmpty => in_sight(self.opens_on) == InSight::Nothing,
        };
        closes.then_some(CloseReason::Early)
    }

    /// Whether a window closes without a further write.
    #[inline]
    pub fn on_time(&self, now: Instant, window: &OpenWindow) -> bool {
        self.timer == WindowTimer::Armed && self.is_due(now, window)
    }

    /// The first time at which `on_time` returns true: the time for the timer.
    #[inline]
    pub fn closes_at(&self, window: &OpenWindow) -> Instant {
        Instant { ns: window.deadline.ns.saturating_sub(self.guard_ns) }
    }

    /// The first time at which a window without further writes may close: the first setting of a
    /// timer. If the window is still open then, the timer is set to `closes_at`.
    #[inline]
    pub fn looks_at(&self, window: &OpenWindow) -> Instant {
        let closes_at = self.closes_at(window);
        let may_close_early = self.close != CloseWhen::Deadline && self.hold_ns > 0;
        if may_close_early { closes_at.min(self.held_until(window)) } else { closes_at }
    }

    #[inline]
    fn held_until(&self, window: &OpenWindow) -> Instant {
        Instant { ns: window.deadline.ns - self.deadline_ns + self.hold_ns }
    }

    #[inline]
    fn is_due(&self, now: Instant, window: &OpenWindow) -> bool {
        now.ns + self.guard_ns >= window.deadline.ns
    }
}

#[cfg(test)]
mod tests;
