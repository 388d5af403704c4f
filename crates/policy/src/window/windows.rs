//! One worker's open windows: which operations join, which run at once, and when a window closes.
//!
//! ```text
//!                    admit(now, operation, ahead)
//!                        │
//!     ┌── no window, nothing ahead ──▶ Run(operation)
//!     ├── no window, a write ahead ──▶ slot Free ─▶ Open ───▶ ArmTimer { window, at }
//!     └── window open ───────────────▶ joins it; full, due or drained? ─▶ Close { window, reason }
//!                                                                             │
//!   elapse(now) ── due? ─────────────────────────────────────────────────────▶│
//!   drain(now, ahead) ── waiting would gather nothing? ──────────────────────▶│
//!   close_where(..) ── a request must see the effect ────────────────────────▶│
//!                                                                             ▼
//!                                 take(window, plan) ─▶ Plan::execute ─▶ slot Free
//! ```
//!
//! # Invariants
//! I1: at most one window is open per key; keys are compared in full (K8).
//! I2: each admitted operation is emitted exactly once: in `Run`, or in exactly one plan.
//! I3: an open window has an armed timer. At that time `drain` and `elapse` close it or arm the
//!     next one, which is the last: `elapse` closes it then.
//! I4: the driver carries out a `Close` (`take`, execute) before it admits anything else: otherwise
//!     a later write of the key could overtake it. A driver that executes operations in batches
//!     first executes those it holds.
//! I5: while a window is open no write of its key is answered `Run`.
//! I6: a read joins only if its own connection has an operation in the window (K10); any other read
//!     runs at once, concurrent with writes that have no answers yet (C-4 §4.3.1).
//!
//! # Concurrency
//! Owned by one worker.
//!
//! # Limits
//! `windows_max` windows of `batch_max` operations, allocated once. A write that would need one
//! more window runs at once: compaction is for speed only.
//!
//! # References
//! C-4 §4.3, §5.3; K6, K7, K8, K10.

use base::Instant;

use super::ahead::Ahead;
use super::operation::{Compactable, Effect, has_same_key};
use super::plan::Plan;
use super::rules::{CloseReason, InSight, OpenWindow, WindowRules, WindowTimer, WriteStep};

/// The id of a window for as long as it is open; a timer of an older window in the same slot does
/// not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowId {
    slot_index: u32,
    generation: u32,
}

/// An action for the driver; actions are done in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<Op> {
    /// Execute this operation now and answer it.
    Run(Op),
    /// Call `drain` and then `elapse` at this time, if not earlier.
    ArmTimer {
        /// The window that has opened.
        window: WindowId,
        /// The time at which it must be checked.
        at: Instant,
    },
    /// `take` the window and execute its plan before the next `admit`.
    Close {
        /// The window.
        window: WindowId,
        /// The reason.
        reason: CloseReason,
    },
}

/// Counters of the windows since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounters {
    /// Windows opened.
    pub opened_count: u64,
    /// Writes that the store never saw, because a later one of the window replaced them.
    pub writes_compacted_count: u64,
    /// Closed because the deadline was near.
    pub closed_by_deadline_count: u64,
    /// Closed because there was nothing more to gather.
    pub closed_early_count: u64,
    /// Closed because they were full.
    pub closed_full_count: u64,
    /// Closed because another request had to see their effect.
    pub closed_by_barrier_count: u64,
    /// Writes that ran at once because every window was in use.
    pub refused_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open(OpenWindow),
    Closing,
}

#[derive(Debug)]
struct Slot<Op> {
    state: State,
    generation: u32,
    /// The time of the timer, while open.
    armed_at: Instant,
    /// Empty exactly when the slot is free.
    operations: Vec<Op>,
}

/// The windows of one worker.
#[derive(Debug)]
pub struct Windows<Op> {
    rules: WindowRules,
    slots: Vec<Slot<Op>>,
    open_count: usize,
    closing_count: usize,
    counters: WindowCounters,
}

impl<Op: Compactable> Windows<Op> {
    /// Windows that a worker keeps open at once; one per key that is hot enough to queue.
    pub const WINDOWS_MAX: usize = 16;

    /// Makes windows, none of them open. All memory is allocated here.
    pub fn new(rules: WindowRules, windows_max: usize) -> Windows<Op> {
        assert!(rules.timer == WindowTimer::Armed, "I3: without a timer a window may stay open");
        assert!(rules.batch_max >= 2, "a window of one operation compacts nothing");
        assert!(rules.batch_max <= 1 << 16, "all windows' memory is taken at the start");
        assert!(windows_max <= u32::MAX as usize);
        let slot = || Slot {
            state: State::Free,
            generation: 0,
            armed_at: Instant { ns: 0 },
            operations: Vec::with_capacity(rules.batch_max),
        };
        let slots = (0..windows_max).map(|_| slot()).collect();
        let counters = WindowCounters::default();
        Windows { rules, slots, open_count: 0, closing_count: 0, counters }
    }

    /// Decides about one operation that was taken from the queue at `now`; `ahead` are the requests
    /// behind it.
    pub fn admit<Batch, Queued, Seen>(
        &mut self,
        now: Instant,
        operation: Op,
        ahead: Ahead<Batch, Queued>,
        actions: &mut Vec<Action<Op>>,
    ) where
        Batch: Iterator<Item = Seen> + Clone,
        Queued: Iterator<Item = Seen> + Clone,
        Seen: Compactable,
    {
        assert!(self.closing_count == 0, "I4: a closed window was not taken");
        let rules = self.rules;
        let look = |operation: &Op, dependent| {
            ahead.clone().look(operation, dependent, rules.queue_scan_max)
        };
        let found = self.find(&operation);
        let step = match (operation.effect(), found) {
            (Effect::Read, Some((index, _))) if self.slots[index].waits_for(&operation) => {
                WriteStep::Join
            }
            (Effect::Read, _) => WriteStep::RunNow,
            (_, found) => rules.on_write(found.map(|(_, open)| open).as_ref(), |dependent| {
                look(&operation, dependent) == InSight::SameKey
            }),
        };
        match (step, found) {
            (WriteStep::Join, Some((index, _))) => {
                let window = self.join(index, operation);
                let joined = &self.slots[index].operations[window.operation_count - 1];
                let closes = rules.after_join(now, &window, |dependent| look(joined, dependent));
                if let Some(reason) = closes {
                    self.close(index, reason, actions);
                }
            }
            (WriteStep::Open, _) => self.open(now, operation, actions),
            _ => actions.push(Action::Run(operation)),
        }
    }

    /// Closes each window whose time has come. Called between batches, and after `drain` when a
    /// timer fires; costs one comparison while no window is open.
    pub fn elapse(&mut self, now: Instant, actions: &mut Vec<Action<Op>>) {
        let rules = self.rules;
        self.close_if(CloseReason::Deadline, actions, |_, window| rules.on_time(now, window));
        self.arm_again(now, actions);
    }

    /// Closes each window for which waiting would gather nothing. Called when a batch is done and
    /// when a timer fires; `ahead` are the requests that wait now.
    pub fn drain<Batch, Queued, Seen>(
        &mut self,
        now: Instant,
        ahead: Ahead<Batch, Queued>,
        actions: &mut Vec<Action<Op>>,
    ) where
        Batch: Iterator<Item = Seen> + Clone,
        Queued: Iterator<Item = Seen> + Clone,
        Seen: Compactable,
    {
        let rules = self.rules;
        self.close_if(CloseReason::Early, actions, |operations, window| {
            let look =
                |dependent| ahead.clone().look(&operations[0], dependent, rules.queue_scan_max);
            rules.on_round(now, window, look).is_some()
        });
    }

    /// Closes each window with an operation for which another request waits: called before a
    /// request on several keys, MULTI/EXEC, FLUSHALL and the like of the same connection (K10), or
    /// before one that cannot join.
    pub fn close_where(&mut self, waits_for: impl Fn(&Op) -> bool, actions: &mut Vec<Action<Op>>) {
        self.close_if(CloseReason::Barrier, actions, |operations, _| {
            operations.iter().any(&waits_for)
        });
    }

    /// Moves a closed window's operations into `plan` and frees the window.
    pub fn take(&mut self, window: WindowId, plan: &mut Plan<Op>) {
        let slot = &mut self.slots[window.slot_index as usize];
        assert!(slot.generation == window.generation, "I2: the window was taken before");
        assert!(slot.state == State::Closing, "I2: the window is not closed");
        plan.refill(&mut slot.operations);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.closing_count -= 1;
        self.counters.writes_compacted_count += plan.writes_compacted() as u64;
    }

    /// The number of open windows.
    pub fn open_count(&self) -> usize {
        self.open_count
    }

    /// The first time at which a timer fires: a worker may sleep until then.
    pub fn rings_next_at(&self) -> Option<Instant> {
        let open = self.slots.iter().filter(|slot| slot.open_window().is_some());
        open.map(|slot| slot.armed_at).min()
    }

    /// The counters since the start.
    pub fn counters(&self) -> WindowCounters {
        self.counters
    }

    /// The open window of the operation's key.
    #[inline]
    fn find(&self, operation: &Op) -> Option<(usize, OpenWindow)> {
        if self.open_count == 0 {
            return None;
        }
        let mut open = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.open_window().map(|window| (index, window, &slot.operations[0]))
        });
        open.find(|(_, _, first)| has_same_key(*first, operation))
            .map(|(index, window, _)| (index, window))
    }

    fn open(&mut self, now: Instant, operation: Op, actions: &mut Vec<Action<Op>>) {
        let free = self.slots.iter().position(|slot| slot.state == State::Free);
        let Some(index) = free else {
            self.counters.refused_count += 1;
            return actions.push(Action::Run(operation));
        };
        let slot = &mut self.slots[index];
        debug_assert!(slot.operations.is_empty());
        let window = self.rules.open(now);
        slot.operations.push(operation);
        slot.state = State::Open(window);
        slot.armed_at = self.rules.looks_at(&window);
        let id = WindowId { slot_index: index as u32, generation: slot.generation };
        actions.push(Action::ArmTimer { window: id, at: slot.armed_at });
        self.open_count += 1;
        self.counters.opened_count += 1;
    }

    /// Sets the timers that have fired to their windows' last moments (I3).
    fn arm_again(&mut self, now: Instant, actions: &mut Vec<Action<Op>>) {
        if self.open_count == 0 {
            return;
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(window) = slot.open_window() else { continue };
            if slot.armed_at <= now {
                slot.armed_at = self.rules.closes_at(&window);
                let id = WindowId { slot_index: index as u32, generation: slot.generation };
                actions.push(Action::ArmTimer { window: id, at: slot.armed_at });
            }
        }
    }

    fn join(&mut self, index: usize, operation: Op) -> OpenWindow {
        let slot = &mut self.slots[index];
        let State::Open(window) = &mut slot.state else { unreachable!("found as open") };
        self.rules.join(window);
        slot.operations.push(operation);
        debug_assert!(slot.operations.len() == window.operation_count);
        *window
    }

    fn close(&mut self, index: usize, reason: CloseReason, actions: &mut Vec<Action<Op>>) {
        let slot = &mut self.slots[index];
        debug_assert!(matches!(slot.state, State::Open(_)));
        slot.state = State::Closing;
        let window = WindowId { slot_index: index as u32, generation: slot.generation };
        actions.push(Action::Close { window, reason });
        self.open_count -= 1;
        self.closing_count += 1;
        self.counters.count(reason);
    }

    fn close_if(
        &mut self,
        reason: CloseReason,
        actions: &mut Vec<Action<Op>>,
        closes: impl Fn(&[Op], &OpenWindow) -> bool,
    ) {
        if self.open_count == 0 {
            return;
        }
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.open_window().is_some_and(|window| closes(&slot.operations, &window)) {
                self.close(index, reason, actions);
            }
        }
    }

    /// Recounts everything (I1, and what the counts say).
    pub fn validate(&self) {
        let open: Vec<_> = self.slots.iter().filter(|slot| slot.open_window().is_some()).collect();
        let closing_count = self.slots.iter().filter(|slot| slot.state == State::Closing).count();
        assert!(open.len() == self.open_count, "open windows are counted");
        assert!(closing_count == self.closing_count, "closing windows are counted");
        for (index, slot) in open.iter().enumerate() {
            let first = &slot.operations[0];
            assert!(first.effect().is_write(), "a write opens a window");
            assert!(slot.operations.iter().all(|other| has_same_key(first, other)), "one key (K8)");
            assert!(slot.operations.len() < self.rules.batch_max, "a full window closes");
            let others = &open[index + 1..];
            assert!(!others.iter().any(|other| has_same_key(first, &other.operations[0])), "I1");
        }
        let empty = |slot: &Slot<Op>| slot.operations.is_empty();
        assert!(self.slots.iter().all(|slot| empty(slot) == (slot.state == State::Free)));
    }
}

impl<Op: Compactable> Slot<Op> {
    /// Whether the reader's own connection has an operation here (I6).
    fn waits_for(&self, reader: &Op) -> bool {
        let connection = reader.connection();
        self.operations.iter().any(|operation| operation.connection() == connection)
    }
}

impl<Op> Slot<Op> {
    fn open_window(&self) -> Option<OpenWindow> {
        match self.state {
            State::Open(window) => Some(window),
            State::Free | State::Closing => None,
        }
    }
}

impl WindowCounters {
    fn count(&mut self, reason: CloseReason) {
        *match reason {
            CloseReason::Deadline => &mut self.closed_by_deadline_count,
            CloseReason::Early => &mut self.closed_early_count,
            CloseReason::Full => &mut self.closed_full_count,
            CloseReason::Barrier => &mut self.closed_by_barrier_count,
        } += 1;
    }
}

#[cfg(test)]
mod tests;
