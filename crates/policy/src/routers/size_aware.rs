//! Size-aware sharding: large items have their own workers, so that no small request waits behind
//! one (Minos §3).
//!
//! ```text
//!                       size known and large ──▶ the large worker of its range
//!  request ──┤
//!                       small, or not known yet ──▶ a small worker; if the item is large, it
//!                                                   returns the request, and the dispatcher
//!                                                   routes it again with the size
//! ```
//!
//! A request that goes to a large worker ignores the bound: no other worker may serve it, and a
//! dispatcher that waited for that worker would delay small requests.

use base::WorkerId;
use base::sync::Arc;

use super::{Balance, owner_of};
use crate::depths::Depths;
use crate::route::{Access, RouteRequest};
use crate::size_class::SizePlan;

/// Minos's own rule: GETs are served where they were received, PUTs by their key's owner, unless
/// the owner is a large worker. Then any small worker serves them, which is why Minos's PUTs take a
/// lock.
#[derive(Clone, Debug)]
pub struct SizeAware {
    plan: Arc<SizePlan>,
}

impl SizeAware {
    /// A balance with the plan until the next epoch.
    pub fn new(plan: Arc<SizePlan>) -> SizeAware {
        SizeAware { plan }
    }

    /// The small workers in turn read small requests from a large worker's receive queue.
    #[inline]
    fn small(&self, wanted: WorkerId, request: &RouteRequest) -> WorkerId {
        if self.plan.is_small(wanted) {
            return wanted;
        }
        if self.plan.is_small(request.received_by) {
            return request.received_by;
        }
        WorkerId((request.partition.index() % self.plan.small_workers) as u16)
    }
}

impl Balance for SizeAware {
    #[inline]
    fn pick(&self, request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        large_worker(&self.plan, request).or_else(|| {
            let wanted = match request.access {
                Access::Read => request.received_by,
                Access::Write => owner_of(request.partition, depths),
            };
            Some(self.small(wanted, request))
        })
    }

    fn keeps_reads(&self, receiver: WorkerId) -> bool {
        self.plan.is_small(receiver)
    }

    fn set_plan(&mut self, plan: &Arc<SizePlan>) {
        self.plan = Arc::clone(plan);
    }
}

/// Small requests go to the shortest queue of the small workers, below a bound.
#[derive(Clone, Debug)]
pub struct SizeAwareJbsq {
    bound: u32,
    stays: bool,
    plan: Arc<SizePlan>,
}

impl SizeAwareJbsq {
    /// A balance with the plan until the next epoch.
    ///
    /// # Panics
    /// With a bound of 0, under which nothing is ever served.
    pub fn new(bound: u32, plan: Arc<SizePlan>) -> SizeAwareJbsq {
        assert!(bound > 0, "a bound of 0 serves nothing");
        SizeAwareJbsq { bound, stays: false, plan }
    }

    /// Small requests stay where they were received, as Minos's GETs do, while that worker's depth
    /// is below the bound. For workers that receive and execute: a forwarding costs more than it
    /// gains by moving from a short queue to a shorter one.
    pub fn staying(self) -> SizeAwareJbsq {
        SizeAwareJbsq { stays: true, ..self }
    }
}

impl Balance for SizeAwareJbsq {
    #[inline]
    fn pick(&self, request: &RouteRequest, depths: &Depths) -> Option<WorkerId> {
        if let Some(worker) = large_worker(&self.plan, request) {
            return Some(worker);
        }
        let receiver = request.received_by;
        if self.keeps_reads(receiver) && depths.of(receiver) < self.bound {
            return Some(receiver);
        }
        depths.shortest_of(0..self.plan.small_workers as u16, self.bound)
    }

    /// True for a receiver that executes: it executes its gathered batch before it reaches the
    /// bound.
    fn keeps_reads(&self, receiver: WorkerId) -> bool {
        self.stays && self.plan.is_small(receiver)
    }

    fn set_plan(&mut self, plan: &Arc<SizePlan>) {
        self.plan = Arc::clone(plan);
    }
}

#[inline]
fn large_worker(plan: &SizePlan, request: &RouteRequest) -> Option<WorkerId> {
    plan.core_for(request.size_bytes?, request.partition)
}
