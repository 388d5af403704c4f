//! Makes a router from the settings: the one place where a policy's name becomes its type.
//!
//! ```text
//!  Choice { write policy, dispatch, ... } ──open──▶ UseRouter::with(router: impl Router)
//! ```

use base::WorkerId;
use base::sync::Arc;
use thiserror::Error;

use super::{
    AnyWorker, Crew, DCrew, Dispatch, Erew, HandOff, Jbsq, KeyHash, RoundRobin, SizeAware,
    SizeAwareJbsq, Steal, WritePolicy,
};
use crate::route::Router;
use crate::size_class::SizePlan;
use crate::write_table::WriteTable;

/// JBSQ's bound if the dispatch is not JBSQ itself (C-4 §3).
const BOUND_DEFAULT: u32 = 2;

/// The parameters of one dispatcher's router.
pub struct Choice {
    /// Which worker may write a partition.
    pub write_policy: WritePolicy,
    /// Where all other requests go.
    pub dispatch: Dispatch,
    /// The worker that calls the router.
    pub dispatcher: WorkerId,
    /// The number of workers in the depths.
    pub worker_count: usize,
    /// Whether the dispatcher is one of the workers: a request that stays there costs no
    /// forwarding.
    pub executes: bool,
    /// The number of requests that count as one in a bound: a batch between two layers, else 1
    /// (K15).
    pub bound_unit: u32,
    /// The requests that a worker gathers, or a thief reads from a receive queue, at once.
    pub batch: u32,
    /// The longest queue of a partition's writer to which d-CREW still sends writes; `u32::MAX`:
    /// any, as in C-4.
    pub holder_depth_max: u32,
    /// This dispatcher's handle on the write table; used by d-CREW.
    pub table: WriteTable,
    /// The plan until the first epoch ends; used by the size-aware dispatch.
    pub plan: Arc<SizePlan>,
}

/// The error of a write policy and a dispatch that contradict each other.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotTogether {
    /// Workers other than the writer would write.
    #[error("write policy {write_policy} cannot go with dispatch {dispatch}; {instead}")]
    Policies {
        /// The chosen policy.
        write_policy: WritePolicy,
        /// The chosen dispatch.
        dispatch: Dispatch,
        /// A valid alternative.
        instead: &'static str,
    },
    /// No worker is left to execute.
    #[error(
        "dispatch hand-off:{hand_off_workers} leaves none of {worker_count} workers to execute"
    )]
    NoWorkerLeft {
        /// The chosen number.
        hand_off_workers: u16,
        /// The configured number.
        worker_count: usize,
    },
}

/// Code that is generic over the router.
pub trait UseRouter {
    /// Its result.
    type Output;

    /// Continues with the chosen router.
    fn with<R: Router + Send + 'static>(self, router: R) -> Self::Output;
}

impl Choice {
    /// Makes the router and passes it to `user`.
    pub fn open<U: UseRouter>(self, user: U) -> Result<U::Output, NotTogether> {
        match self.write_policy {
            WritePolicy::Erew => self.open_erew(user),
            WritePolicy::Crew => self.open_crew(user),
            WritePolicy::DCrew => self.open_dcrew(user),
            WritePolicy::Crcw => self.open_crcw(user),
        }
    }

    /// Nothing can be balanced, so the dispatch does not matter unless it takes requests from their
    /// owner.
    fn open_erew<U: UseRouter>(self, user: U) -> Result<U::Output, NotTogether> {
        match self.dispatch {
            Dispatch::KeyHash | Dispatch::Any | Dispatch::Jbsq(_) | Dispatch::RoundRobin => {
                Ok(user.with(Erew))
            }
            _ => Err(self.refused("try key-hash")),
        }
    }

    fn open_crew<U: UseRouter>(self, user: U) -> Result<U::Output, NotTogether> {
        match self.dispatch {
            // MICA §4.1: any core reads, and clients choose the core.
            Dispatch::KeyHash | Dispatch::Any => Ok(user.with(Crew::over(AnyWorker))),
            Dispatch::Jbsq(bound) => Ok(user.with(Crew::new(self.bound_of(bound)))),
            Dispatch::RoundRobin => Ok(user.with(Crew::over(RoundRobin::new(self.dispatcher)))),
            Dispatch::Steal => Ok(user.with(Crew::over(Steal::new(self.batch)))),
            Dispatch::SizeAware => Ok(user.with(SizeAware::new(self.plan))),
            Dispatch::HandOff(_) => Err(self.refused("try write policy d-crew or crcw")),
        }
    }

    fn open_dcrew<U: UseRouter>(self, user: U) -> Result<U::Output, NotTogether> {
        let depth_max = self.holder_depth_max;
        match self.dispatch {
            Dispatch::KeyHash => Ok(user.with(DCrew::over(KeyHash, self.table).bounded(depth_max))),
            Dispatch::Any => Ok(user.with(DCrew::over(AnyWorker, self.table).bounded(depth_max))),
            Dispatch::Jbsq(bound) => {
                let dcrew = DCrew::new(self.bound_of(bound), self.table);
                Ok(user.with(dcrew.bounded(depth_max)))
            }
            Dispatch::RoundRobin => {
                let dcrew = DCrew::over(RoundRobin::new(self.dispatcher), self.table);
                Ok(user.with(dcrew.bounded(depth_max)))
            }
            Dispatch::HandOff(workers) => {
                let hand_off = self.hand_off(workers)?;
                Ok(user.with(DCrew::over(hand_off, self.table).bounded(depth_max)))
            }
            Dispatch::SizeAware => {
                Ok(user.with(DCrew::over(self.by_size(), self.table).bounded(depth_max)))
            }
            Dispatch::Steal => Err(self.refused("a stolen write would leave its writer; try any")),
        }
    }

    fn open_crcw<U: UseRouter>(self, user: U) -> Result<U::Output, NotTogether> {
        match self.dispatch {
            Dispatch::KeyHash => Ok(user.with(KeyHash)),
            Dispatch::Any => Ok(user.with(AnyWorker)),
            Dispatch::Jbsq(bound) => Ok(user.with(Jbsq::new(self.bound_of(bound)))),
            Dispatch::RoundRobin => Ok(user.with(RoundRobin::new(self.dispatcher))),
            Dispatch::HandOff(workers) => Ok(user.with(self.hand_off(workers)?)),
            Dispatch::Steal => Ok(user.with(Steal::new(self.batch))),
            Dispatch::SizeAware => Ok(user.with(self.by_size())),
        }
    }

    fn bound_of(&self, units: u32) -> u32 {
        units.saturating_mul(self.bound_unit)
    }

    /// The queue of a worker that executes is the batch that it gathers, so its bound counts
    /// batches.
    fn by_size(&self) -> SizeAwareJbsq {
        let plan = Arc::clone(&self.plan);
        match self.executes {
            true => SizeAwareJbsq::new(BOUND_DEFAULT.saturating_mul(self.batch), plan).staying(),
            false => SizeAwareJbsq::new(self.bound_of(BOUND_DEFAULT), plan),
        }
    }

    fn hand_off(&self, hand_off_workers: u16) -> Result<HandOff, NotTogether> {
        let worker_count = self.worker_count;
        if usize::from(hand_off_workers) >= worker_count {
            return Err(NotTogether::NoWorkerLeft { hand_off_workers, worker_count });
        }
        Ok(HandOff::new(hand_off_workers))
    }

    fn refused(&self, instead: &'static str) -> NotTogether {
        let (write_policy, dispatch) = (self.write_policy, self.dispatch);
        NotTogether::Policies { write_policy, dispatch, instead }
    }
}
