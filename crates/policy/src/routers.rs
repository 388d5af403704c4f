//! The routers: a write policy says which worker may write a partition, and a balance spreads all
//! other requests.
//!
//! ```text
//!  write policy            may be balanced          balance
//!  ─────────────────────   ──────────────────────   ─────────────────────────────────────────
//!  Erew                    nothing                  KeyHash       the owner, whichever may
//!  Crew<B>                 reads                ──▶ AnyWorker     stays where it was received
//!  DCrew<B>                reads, and writes of     RoundRobin    the next one
//!                          partitions that no       ShortestQueue without a bound
//!                          worker writes        ──▶ Jbsq          with a bound
//!  B alone (CRCW)          everything           ──▶ HandOff       an idle worker, late
//!                                                   Steal         stays, or an idle one takes it
//!                                                   SizeAware     by key, large ones apart
//!                                                   SizeAwareJbsq shortest small one, large apart
//!
//!  the joint default of `lab joint`: DCrew<SizeAwareJbsq>; small requests stay with a receiver
//!  that executes. A server begins with AnyWorker, and its tuner tries others (decision 0112)
//! ```
//!
//! A request that is not balanced has one possible worker and ignores the bound, since no other
//! worker can take it (the writes of C-4's model in §3 do so too).
//!
//! # Invariants
//! I1: under `Erew`, `Crew` and `DCrew` no partition has writes outstanding with two workers.
//! I2: a balance keeps no state per request, so a write policy need not ask it for each one.
//! I3: of equal workers the lowest index is chosen.
//!
//! # References
//! MICA §4.1 (EREW, CREW), C-4 §3.1 and §4.2 (d-CREW, JBSQ), Minos §3 and §5.2 (size-aware, SHO,
//! HKH+WS), uTPS §3.3 (round robin).

mod choice;
mod crew;
mod dcrew;
mod hand_off;
mod help;
mod queues;
mod settings;
mod size_aware;
mod steal;

#[cfg(all(test, not(loom)))]
mod tests;

pub use choice::{Choice, NotTogether, UseRouter};
pub use crew::{Crew, Erew};
pub use dcrew::DCrew;
pub use hand_off::HandOff;
pub use help::{Helping, LargeHelp};
pub use queues::{AnyWorker, Jbsq, KeyHash, RoundRobin, ShortestQueue};
pub use settings::{BadSetting, Dispatch, Policies, WritePolicy};
pub use size_aware::{SizeAware, SizeAwareJbsq};
pub use steal::{Queue, Steal, Take};

use base::sync::Arc;
use base::{PartitionId, WorkerId};

use crate::depths::Depths;
use crate::route::{Busy, Route, RouteRequest, Router};
use crate::size_class::SizePlan;

/// Picks a worker for a request that any worker may serve.
pub trait Balance {
    /// The worker; `None`: each that may serve it has reached the bound.
    fn pick(&self, request: &RouteRequest, depths: &Depths) -> Option<WorkerId>;

    /// The worker that [`Balance::pick`] would return, without counting the call.
    fn would_pick(&self, request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        self.pick(request, depths)
    }

    /// As [`Router::keeps_reads`].
    fn keeps_reads(&self, _receiver: WorkerId) -> bool {
        false
    }

    /// Sets the plan of a new epoch of sizes.
    fn set_plan(&mut self, _plan: &Arc<SizePlan>) {}
}

/// Concurrent reads, concurrent writes: everything is balanced.
impl<B: Balance> Router for B {
    #[inline]
    fn route(&self, request: &RouteRequest, depths: &Depths) -> Route {
        match self.pick(request, depths) {
            Some(worker) => Route::To(worker),
            None => Route::Busy(Busy::QueuesFull),
        }
    }

    fn keeps_reads(&self, receiver: WorkerId) -> bool {
        Balance::keeps_reads(self, receiver)
    }

    fn set_plan(&mut self, plan: &Arc<SizePlan>) {
        Balance::set_plan(self, plan);
    }
}

/// The worker that owns a partition (MICA §4.1).
#[inline]
pub fn owner_of(partition: PartitionId, depths: &Depths) -> WorkerId {
    WorkerId((partition.0 % depths.worker_count() as u32) as u16)
}
