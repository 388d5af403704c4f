//! Item sizes: each worker's counts of them, and the plan that says which sizes are small and which
//! workers serve the large ones.
//!
//! ```text
//!  worker 0: histogram ─┐  each epoch (1 s) with requests
//!  worker 1: histogram ─┼──▶ SizeController ──▶ Sizes::publish ──▶ PlanReader of each half
//!  worker n: histogram ─┘                        plan, number        looks at the number only
//! ```
//!
//! # Invariants
//! I1: a histogram has one writer, its worker (`WorkerCounters::sizes`); the thread that folds the
//!     histograms resets nothing.
//! I2: no thread that serves requests waits for a plan: a reader that finds the publisher at the
//!     lock keeps its present plan and looks again in its next round.
//! I3: a plan is advice. A worker that executes a request by an older plan is right too (decision
//!     0039).
//!
//! # Trade-offs
//! The manager ends an epoch in each second with requests (`monitor`); the first requests after a
//! pause are served by the plan from before it.
//!
//! # References
//! Minos §3; `policy::size_class`.

mod epoch;
mod stored;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use config::Config;
use policy::Policies;
use policy::size_class::{
    PACKET_PAYLOAD_MAX_BYTES, SizeCount, SizeOptions, SizePlan, Threshold, WorkerSizes,
};

use epoch::SizeEpochs;
pub use epoch::{SizeChange, SizeNumbers};
pub use stored::DRAWN_PER_LOOK;
pub use stored::StoredSizes;

/// Replies of at least this size leave by the large worker. Sending a shorter one takes less time
/// than lending a socket.
pub const LENT_BYTES_MIN: usize = 16 << 10;

/// The size state that all threads share, on a server that tells sizes apart.
#[derive(Debug)]
pub struct Sizes {
    /// Plans published so far.
    published_count: AtomicU64,
    plan: Mutex<Arc<SizePlan>>,
    epochs: Mutex<SizeEpochs>,
}

impl Sizes {
    /// Without counts; all of `worker_count` workers are small.
    pub fn new(config: &Config, worker_count: usize) -> Sizes {
        let epochs = SizeEpochs::new(options(config, worker_count));
        Sizes {
            published_count: AtomicU64::new(0),
            plan: Mutex::new(Arc::new(epochs.plan().clone())),
            epochs: Mutex::new(epochs),
        }
    }

    /// The sizes of a server whose dispatch considers sizes, now or if that is tried.
    pub fn for_dispatch(config: &Config, is_routed: bool, executors: usize) -> Option<Sizes> {
        let tried = config.policies_tried();
        let is_on = is_routed && tried.into_iter().any(Policies::tell_sizes);
        is_on.then(|| Sizes::new(config, executors))
    }

    /// The plan in force.
    pub fn plan(&self) -> Arc<SizePlan> {
        Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends an epoch with the counts of `workers`; returns the new plan, if it differs. `is_used`:
    /// the present plan is in force.
    pub fn end_epoch<'w>(
        &self,
        workers: impl Iterator<Item = &'w WorkerSizes>,
        is_used: bool,
    ) -> Option<SizeChange> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let change = epochs.size_epoch(&workers.collect::<Vec<_>>(), is_used)?;
        self.publish(Arc::clone(&change.after));
        Some(change)
    }

    /// Plans for another number of executing threads from now on.
    pub fn set_workers(&self, worker_count: usize) {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        if epochs.plan().worker_count == worker_count {
            return; // Only the policies change.
        }
        epochs.set_workers(worker_count);
        self.publish(Arc::new(epochs.plan().clone()));
    }

    fn publish(&self, plan: Arc<SizePlan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
        // Release: a thread that sees the new number finds the new plan (or a later one) under the
        // lock.
        self.published_count.fetch_add(1, Ordering::Release);
    }
}

/// How many requests were for items of each size, summed over workers.
pub fn sum<'w>(workers: impl Iterator<Item = &'w WorkerSizes>) -> Vec<SizeCount> {
    let mut sums: BTreeMap<u64, SizeCount> = BTreeMap::new();
    for class in workers.flat_map(WorkerSizes::counted) {
        sums.entry(class.size_min_bytes)
            .and_modify(|sum| sum.requests = sum.requests.wrapping_add(class.requests))
            .or_insert(class);
    }
    sums.into_values().collect()
}

/// The plan before anything was counted.
pub fn first_plan(config: &Config, worker_count: usize) -> SizePlan {
    SizeEpochs::new(options(config, worker_count)).plan().clone()
}

/// The paper's settings, except those that the user chose. A threshold below one packet would hand
/// on requests that cost no more than the smallest, so `auto` stays above.
fn options(config: &Config, worker_count: usize) -> SizeOptions {
    SizeOptions {
        threshold: config.size_threshold,
        threshold_min_bytes: match config.size_threshold {
            Threshold::Quantile(_) => PACKET_PAYLOAD_MAX_BYTES,
            Threshold::Static { .. } => 0,
        },
        cost: config.size_cost,
        ..SizeOptions::paper(worker_count)
    }
}

/// One thread's copy of the plan.
#[derive(Debug)]
pub struct PlanReader {
    seen_count: u64,
    plan: Arc<SizePlan>,
}

impl PlanReader {
    /// A reader with the current plan.
    pub fn new(sizes: &Sizes) -> PlanReader {
        let seen_count = sizes.published_count.load(Ordering::Acquire);
        PlanReader { seen_count, plan: sizes.plan() }
    }

    /// The plan at the last look.
    #[inline]
    pub fn plan(&self) -> &Arc<SizePlan> {
        &self.plan
    }

    /// Takes the new plan if there is one; returns whether there was (I2).
    #[inline]
    pub fn renew(&mut self, sizes: &Sizes) -> bool {
        let count = sizes.published_count.load(Ordering::Acquire);
        count != self.seen_count && self.take(sizes, count)
    }

    #[cold]
    fn take(&mut self, sizes: &Sizes, count: u64) -> bool {
        let Ok(plan) = sizes.plan.try_lock() else { return false };
        self.plan = Arc::clone(&plan);
        self.seen_count = count;
        true
    }
}

#[cfg(test)]
mod tests;
