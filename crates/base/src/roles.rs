//! Roles of threads: which threads poll connections and which execute, and how that changes while
//! requests flow.
//!
//! ```text
//!  plan 7   D D E E .     dispatchers 2, threads 4 of at most 5    D: polls and sends
//!  plan 8   D D D E E     dispatchers 3, threads 5                 E: executes  .: asleep
//!
//!  a thread   in plan 7 ──sees 8──▶ parked ──all it sent is done──▶ in plan 8 ──▶ settled
//!                  ▲                   │                               │             │
//!                  └── server stops ───┘            hands connections  │             │ drops the
//!                                                   over, acknowledges ┘             │ idle rings
//!                                          the last acknowledgement settles plan 8 ──┘
//! ```
//!
//! A plan is published and never changed. A thread takes a plan up when none of the requests that
//! it sent under an earlier plan is on its way, and acknowledges that once. An executing thread
//! continues to execute the requests sent to it, whatever its role, until all threads have
//! acknowledged: after that no more can arrive.
//!
//! # Invariants
//! I1: a thread sends by the plan that it has taken up, and takes up another only when nothing that
//!     it sent is on its way.
//! I2: a thread acknowledges a publication at most once, after everything that I1 speaks of.
//! I3: a publication is settled when all threads have acknowledged it: then no thread sends, or
//!     will ever send, by an earlier plan.
//! I4: thread 0 polls under every plan, so that connections can always be handed to some thread.
//! I5: a connection on its way to another thread is counted from before it leaves until it has
//!     arrived; none leaves once the server has stopped.
//!
//! # Concurrency
//! [`Member`] belongs to one thread and is pure. [`Publication`] and [`Transit`] are shared: an
//! acknowledgement is a Release, and the check for the last one acquires it (A1); the Transit is a
//! Dekker protocol of two SeqCst fences (T1).
//!
//! # Trade-offs
//! Threads take a plan up one by one, each as soon as it can. Meanwhile two of them may route by
//! different plans, so one partition may have two writers for a moment: routing is for speed, and
//! the store is correct under any route. Stopping all threads until the last one is ready would
//! make all wait for the slowest.
//!
//! # References
//! uTPS §3.3 and §3.5; rule K16; decision 0034.

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence};

/// Which threads execute if some threads poll and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executing {
    /// The threads that do not poll; all, if all poll.
    Others,
    /// The router may name all threads, but does not name those that poll (hand-off).
    All,
}

/// The threads that poll and those that execute, of `0..threads`; the others do neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolePlan {
    /// The plan's number; a server starts with plan 0.
    pub epoch: u64,
    /// The number of threads with a role.
    pub threads: usize,
    /// Threads `0..dispatchers` poll connections, route and reply.
    pub dispatchers: usize,
    /// Threads `first_executor..threads` may be named by a router; its worker 0 is the first of
    /// them.
    pub first_executor: usize,
    /// The number of threads that a router may name.
    pub executors: usize,
}

impl RolePlan {
    /// Makes a plan; none if no thread would poll (I4) or more would poll than there are.
    pub fn new(
        epoch: u64,
        threads: usize,
        dispatchers: usize,
        executing: Executing,
    ) -> Option<RolePlan> {
        if !(1..=threads).contains(&dispatchers) {
            return None;
        }
        let is_one_layer = dispatchers == threads || executing == Executing::All;
        let first_executor = if is_one_layer { 0 } else { dispatchers };
        Some(RolePlan {
            epoch,
            threads,
            dispatchers,
            first_executor,
            executors: threads - first_executor,
        })
    }

    /// Whether a thread polls connections.
    #[inline]
    pub fn is_dispatcher(&self, thread: usize) -> bool {
        thread < self.dispatchers
    }

    /// Whether a router may name a thread.
    #[inline]
    pub fn is_executor(&self, thread: usize) -> bool {
        (self.first_executor..self.threads).contains(&thread)
    }

    /// Whether there is a layer of threads that only execute, apart from those that poll.
    #[inline]
    pub fn has_two_layers(&self) -> bool {
        self.first_executor > 0
    }

    /// The thread that a router names as a worker.
    #[inline]
    pub fn thread_of(&self, worker: usize) -> usize {
        self.first_executor + worker
    }

    /// The numbers of threads that only poll, that do both, and that only execute.
    pub fn role_counts(&self) -> (usize, usize, usize) {
        let both = if self.dispatchers < self.threads { 0 } else { self.threads };
        (self.dispatchers - both, both, self.threads - self.dispatchers)
    }
}

/// A plan that all threads see, and the number of threads that have not taken it up.
#[derive(Debug)]
pub struct Publication {
    plan: RolePlan,
    unacknowledged: AtomicUsize,
}

impl Publication {
    /// A plan that `members` threads have to take up, including idle ones.
    pub fn new(plan: RolePlan, members: usize) -> Publication {
        Publication { plan, unacknowledged: AtomicUsize::new(members) }
    }

    /// The plan.
    #[inline]
    pub fn plan(&self) -> &RolePlan {
        &self.plan
    }

    /// Notes that another thread has taken the plan up (I2); returns whether it was the last.
    pub fn acknowledge(&self) -> bool {
        // AcqRel, A1: the thread that gives the last acknowledgement sees what every thread did
        // before its own.
        self.unacknowledged.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all threads have acknowledged the plan (I3).
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.unacknowledged.load(Ordering::Acquire) == 0 // A1
    }
}

/// Facts that a thread knows about itself and about the publication that it has taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether none of the requests that it sent is on its way.
    pub is_drained: bool,
    /// [`Publication::is_settled`] of the plan that it has taken up.
    pub is_settled: bool,
    /// Whether the server is stopping: roles then stay as they are.
    pub is_stopping: bool,
}

/// A thread's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do nothing until something changes.
    Rest,
    /// Stop sending, and wait for the outstanding requests.
    Park,
    /// Send again: the plan for which it was parked is not taken up.
    GoOn,
    /// Act by this plan from now on, and acknowledge it (I2). A thread that stops polling first
    /// hands its connections over.
    TakeUp(RolePlan),
    /// Drop the ends of rings on which nothing can arrive any more (I3).
    Settle,
}

/// One thread's part in the changes of roles.
#[derive(Debug)]
pub struct Member {
    plan: RolePlan,
    /// The plan to take up, while the thread waits for the requests sent under `plan`.
    next: Option<RolePlan>,
    has_settled: bool,
}

impl Member {
    /// A member that starts with this plan.
    pub fn new(plan: RolePlan) -> Member {
        Member { plan, next: None, has_settled: true }
    }

    /// The plan that it has taken up.
    #[inline]
    pub fn plan(&self) -> &RolePlan {
        &self.plan
    }

    /// Whether [`Member::step`] waits for an event.
    #[inline]
    pub fn is_moving(&self) -> bool {
        self.next.is_some() || !self.has_settled
    }

    /// Whether it waits for its outstanding requests.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.next.is_some()
    }

    /// The next step, towards the latest published plan.
    pub fn step(&mut self, latest: &RolePlan, facts: Facts) -> Step {
        if facts.is_stopping {
            return if self.next.take().is_some() { Step::GoOn } else { Step::Rest };
        }
        let seen = self.next.as_ref().unwrap_or(&self.plan).epoch;
        if latest.epoch > seen && self.next.replace(*latest).is_none() {
            return Step::Park;
        }
        match self.next {
            Some(next) if facts.is_drained => {
                self.next = None;
                self.plan = next;
                self.has_settled = false;
                Step::TakeUp(next) // I1.
            }
            None if !self.has_settled && facts.is_settled => {
                self.has_settled = true;
                Step::Settle
            }
            _ => Step::Rest,
        }
    }
}

/// Connections that are on their way from one thread to another.
///
/// ```text
///  handing over     count one ─ fence ─ has it stopped? ─▶ yes: uncount, keep the connection
///  stopping         say so ─ fence ─ is nothing counted? ─▶ no thread will ever send anything more
/// ```
#[derive(Debug, Default)]
pub struct Transit {
    count: AtomicUsize,
    has_stopped: AtomicBool,
}

impl Transit {
    /// A transit with no connection on its way.
    pub fn new() -> Transit {
        Transit { count: AtomicUsize::new(0), has_stopped: AtomicBool::new(false) }
    }

    /// Called before a connection leaves; false: it has to stay with its thread.
    pub fn try_begin(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // T1: either this sees the stop, or the last look sees the count.
        if self.has_stopped.load(Ordering::Relaxed) {
            self.end();
            return false;
        }
        true
    }

    /// Called before another connection leaves, by a thread that has begun and not ended: until it
    /// ends, no thread that could receive the connection ends.
    pub fn begin_another(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Called when a connection has arrived.
    pub fn end(&self) {
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Stops all further departures.
    pub fn stop(&self) {
        self.has_stopped.store(true, Ordering::Release);
    }

    /// Called after [`Transit::stop`]: whether no connection is on its way, nor will be.
    pub fn is_over(&self) -> bool {
        fence(Ordering::SeqCst); // T1
        self.count.load(Ordering::Acquire) == 0
    }
}
