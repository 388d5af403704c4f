//! The end of an epoch: the workers' counts become a plan, and the plan a line of reason.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use policy::size_class::{SizeController, SizeOptions, SizePlan, WorkerSizes};

/// Makes plans from histograms: the pure controller and its last decision.
#[derive(Debug)]
pub struct SizeEpochs {
    controller: SizeController,
    plan: Arc<SizePlan>,
    /// Whether the last epoch wanted more or fewer small workers, and did not get them.
    wanted_before: Ordering,
}

impl SizeEpochs {
    /// Before the first epoch.
    pub fn new(options: SizeOptions) -> SizeEpochs {
        let controller = SizeController::new(options);
        let plan = Arc::new(controller.plan().clone());
        SizeEpochs { controller, plan, wanted_before: Ordering::Equal }
    }

    /// Plans the same sizes for another number of workers.
    pub fn set_workers(&mut self, worker_count: usize) {
        self.plan = Arc::new(self.controller.set_workers(worker_count).clone());
        self.wanted_before = Ordering::Equal;
    }

    /// The plan in force.
    pub fn plan(&self) -> &SizePlan {
        &self.plan
    }

    /// Ends an epoch: the new plan with its reason, if it differs from the one in force.
    ///
    /// A worker changes its part only when two epochs in a row want that, so a load that swings
    /// from second to second moves no worker. The first plan, and one that is not in force, needs
    /// only one.
    pub fn size_epoch(&mut self, workers: &[&WorkerSizes], is_used: bool) -> Option<SizeChange> {
        let wanted = self.controller.end_epoch(workers);
        if *wanted == *self.plan {
            self.wanted_before = Ordering::Equal;
            return None;
        }
        let side = wanted.small_workers.cmp(&self.plan.small_workers);
        let is_first = self.plan.threshold_bytes == u64::MAX; // There was no plan before.
        let is_lasting = side == self.wanted_before;
        self.wanted_before = side;
        if is_used && side != Ordering::Equal && !is_lasting && !is_first {
            return None;
        }
        self.wanted_before = Ordering::Equal;
        let after = Arc::new(wanted.clone());
        let before = std::mem::replace(&mut self.plan, Arc::clone(&after));
        Some(SizeChange { before, after, small_share: self.controller.small_share() })
    }
}

/// A plan that replaces another.
#[derive(Clone, Debug)]
pub struct SizeChange {
    /// The plan until now.
    pub before: Arc<SizePlan>,
    /// The plan from now on.
    pub after: Arc<SizePlan>,
    /// The share of small requests in the total cost.
    pub small_share: f64,
}

impl SizeChange {
    /// Whether a worker has another part than before, and not only the threshold changed.
    pub fn moves_workers(&self) -> bool {
        self.before.small_workers != self.after.small_workers
    }
}

/// The reason, as one line.
impl fmt::Display for SizeChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SizePlan { threshold_bytes, small_workers, worker_count, .. } = *self.after;
        write!(
            formatter,
            "small items are up to {threshold_bytes} bytes and {:.1} % of the cost: \
             {small_workers} of {worker_count} workers serve them",
            self.small_share * 100.0,
        )?;
        match self.after.standby {
            Some(worker) => {
                write!(formatter, ", worker {} is on standby for large ones", worker.index())
            }
            None => Ok(()),
        }
    }
}

/// A plan in numbers, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeNumbers {
    /// The largest size that is small.
    pub threshold_bytes: u64,
    /// Workers that serve small requests.
    pub small_workers: usize,
    /// Workers that serve large ones only.
    pub large_workers: usize,
}

impl SizeNumbers {
    /// Where requests are not told apart by size.
    pub fn all_small(worker_count: usize) -> SizeNumbers {
        SizeNumbers { threshold_bytes: u64::MAX, small_workers: worker_count, large_workers: 0 }
    }
}

impl From<&SizePlan> for SizeNumbers {
    fn from(plan: &SizePlan) -> SizeNumbers {
        SizeNumbers {
            threshold_bytes: plan.threshold_bytes,
            small_workers: plan.small_workers,
            large_workers: plan.large_workers(),
        }
    }
}
