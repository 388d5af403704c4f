//! Helping: idle large workers take small requests, one at a time (Minos §6.1's alternative
//! design).
//!
//! ```text
//!  small workers   0 [a][b][c]   1 [d]   2 [ ]          large workers   3 idle   4 busy
//!                        │ waits, is small, and anyone may execute it       ▲
//!                        └──────────────────── one ─────────────────────────┘
//! ```
//!
//! # Invariants
//! I1: no dispatcher gives a small request to a large worker; a large worker without large requests
//!     takes it. So no small request waits behind a large one, and an arriving large one waits for
//!     at most one small one.
//! I2: only requests that any worker may execute are taken: reads, and under CRCW writes whose size
//!     is known. A write of a partition is executed by the worker that the write policy has chosen.
//!
//! # References
//! Minos §6.1; decision 0048.

use std::fmt;

use base::WorkerId;

use super::{Dispatch, WritePolicy};
use crate::route::{Access, RouteRequest};
use crate::size_class::{SizeClass, SizePlan};

/// Whether idle large workers take small requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeHelp {
    /// As the paper evaluates it: large workers serve only large requests.
    Off,
    /// They take one at a time, when they have no large requests.
    #[default]
    On,
}

impl fmt::Display for LargeHelp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            LargeHelp::Off => "off",
            LargeHelp::On => "on",
        })
    }
}

/// Which requests may be taken, by which workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helping {
    takes_writes: bool,
}

impl Helping {
    /// `None`: no worker helps.
    pub fn new(help: LargeHelp, write_policy: WritePolicy, dispatch: Dispatch) -> Option<Helping> {
        let is_on = help == LargeHelp::On && dispatch == Dispatch::SizeAware;
        is_on.then_some(Helping { takes_writes: write_policy == WritePolicy::Crcw })
    }

    /// Whether a waiting request may be taken (I2). A read of unknown size may turn out to be
    /// large, which is a large worker's own work.
    #[inline]
    pub fn may_be_taken(&self, request: &RouteRequest, plan: &SizePlan) -> bool {
        let is_small = |size_bytes| plan.class_of(size_bytes) == SizeClass::Small;
        match (request.access, request.size_bytes) {
            (Access::Read, size) => size.is_none_or(is_small),
            (Access::Write, Some(size_bytes)) => self.takes_writes && is_small(size_bytes),
            (Access::Write, None) => false,
        }
    }

    /// Whether `worker` may take a request now. `holds_large`: it has large requests waiting, or
    /// parts of large replies, behind which a small one would wait. A standby worker counts as
    /// small.
    #[inline]
    pub fn may_take(&self, plan: &SizePlan, worker: WorkerId, holds_large: bool) -> bool {
        !plan.is_small(worker) && worker.index() < plan.worker_count && !holds_large
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use base::PartitionId;

    use super::*;
    use crate::size_class::LargeRange;

    fn plan() -> SizePlan {
        let large = LargeRange { size_max_bytes: u64::MAX, first: WorkerId(3), workers: 1 };
        SizePlan {
            threshold_bytes: 1000,
            worker_count: 4,
            small_workers: 3,
            large: vec![large],
            standby: None,
        }
    }

    fn helping(write_policy: WritePolicy) -> Helping {
        Helping::new(LargeHelp::On, write_policy, Dispatch::SizeAware).expect("it is on")
    }

    #[track_caller]
    fn check(write_policy: WritePolicy, access: Access, size_bytes: Option<u64>, want: bool) {
        let (partition, received_by) = (PartitionId(1), WorkerId(0));
        let request = RouteRequest { partition, access, size_bytes, received_by };
        assert_eq!(helping(write_policy).may_be_taken(&request, &plan()), want);
    }

    #[test]
    fn only_what_anyone_may_execute_is_taken() {
        for write_policy in [WritePolicy::Crew, WritePolicy::DCrew, WritePolicy::Crcw] {
            check(write_policy, Access::Read, None, true);
            check(write_policy, Access::Read, Some(1000), true);
            check(write_policy, Access::Read, Some(1001), false);
            check(write_policy, Access::Write, None, false);
            check(write_policy, Access::Write, Some(1001), false);
            check(write_policy, Access::Write, Some(8), write_policy == WritePolicy::Crcw);
        }
    }

    #[test]
    fn only_large_workers_without_large_requests_take() {
        let (helping, plan) = (helping(WritePolicy::DCrew), plan());
        assert!(helping.may_take(&plan, WorkerId(3), false));
        assert!(!helping.may_take(&plan, WorkerId(3), true), "it holds large ones");
        assert!(!helping.may_take(&plan, WorkerId(2), false), "it is small");
        assert!(!helping.may_take(&plan, WorkerId(4), false), "the plan is for four");
        let all_small = SizePlan::all_small(4, 1000);
        assert!(
            !helping.may_take(&all_small, WorkerId(3), false),
            "a worker that stands by is small"
        );
    }

    #[test]
    fn no_worker_helps_where_sizes_do_not_matter_or_help_is_off() {
        let by_size = Helping::new(LargeHelp::Off, WritePolicy::Crcw, Dispatch::SizeAware);
        assert_eq!(by_size, None);
        assert_eq!(Helping::new(LargeHelp::On, WritePolicy::Crcw, Dispatch::Steal), None);
    }
}
