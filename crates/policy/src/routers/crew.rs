//! Static partitioning: one worker owns a partition's writes, and under EREW its reads too.

use base::WorkerId;
use base::sync::Arc;

use super::{Balance, Jbsq, owner_of};
use crate::depths::Depths;
use crate::route::{Access, Busy, Route, RouteRequest, Router};
use crate::size_class::SizePlan;

/// Exclusive reads, exclusive writes: only the owner touches a partition (MICA §4.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Erew;

impl Router for Erew {
    #[inline]
    fn route(&self, request: &RouteRequest, depths: &Depths) -> Route {
        Route::To(owner_of(request.partition, depths))
    }
}

/// Concurrent reads, exclusive writes: reads are balanced, writes go to the owner (MICA §4.1).
#[derive(Clone, Copy, Debug)]
pub struct Crew<B = Jbsq> {
    reads: B,
}

impl Crew<Jbsq> {
    /// Sends reads to the shortest queue below `bound` (C-4 §3).
    pub fn new(bound: u32) -> Crew<Jbsq> {
        Crew { reads: Jbsq::new(bound) }
    }
}

impl<B: Balance> Crew<B> {
    /// Balances reads by `reads`.
    pub fn over(reads: B) -> Crew<B> {
        Crew { reads }
    }
}

impl<B: Balance> Router for Crew<B> {
    #[inline]
    fn route(&self, request: &RouteRequest, depths: &Depths) -> Route {
        match request.access {
            Access::Read => self.reads.route(request, depths),
            Access::Write => Route::To(owner_of(request.partition, depths)),
        }
    }

    #[inline]
    fn follow(&self, request: &RouteRequest, holder: WorkerId, depths: &Depths) -> Route {
        let is_owner = owner_of(request.partition, depths) == holder;
        match request.access {
            Access::Write if !is_owner => Route::Busy(Busy::HeldElsewhere),
            _ => Route::To(holder),
        }
    }

    fn keeps_reads(&self, receiver: WorkerId) -> bool {
        self.reads.keeps_reads(receiver)
    }

    fn set_plan(&mut self, plan: &Arc<SizePlan>) {
        Balance::set_plan(&mut self.reads, plan);
    }
}
