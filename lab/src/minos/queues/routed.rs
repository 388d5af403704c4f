//! One dispatcher and a router of `policy`, as in the server: d-CREW over the size plan.
//!
//! ```text
//!  arrivals ─▶ waiting, in order ─▶ Router::route ─▶ queue of a core ─▶ finish ─▶ Router::finish
//!                   ▲                    │ busy: until a completion
//!                   └────────────────────┘
//! ```

use std::collections::VecDeque;

use base::sync::Arc;
use base::{PartitionId, WorkerId};
use policy::routers::{DCrew, SizeAwareJbsq};
use policy::size_class::SizePlan;
use policy::{Access, Depths, Route, RouteRequest, Router, WriteTable};

use super::{Job, earliest};

/// Outstanding requests of a core (C-4 §3).
const BOUND: u32 = 2;
/// Partitions of C-4 §6.
const PARTITION_BITS: u32 = 20;

/// Minos with d-CREW: small requests go to the shortest queue of the small cores, writes of a
/// partition that is being written follow its writer, large ones go where the size plan says.
/// Of the hashes, those whose low bits are below `write_share` write.
pub fn size_aware_d_crew(
    plan: &SizePlan,
    write_share: f64,
    jobs: impl Iterator<Item = Job>,
    mut served: impl FnMut(&Job, f64),
) {
    let cores = plan.worker_count;
    let balance = SizeAwareJbsq::new(BOUND, Arc::new(plan.clone()));
    // Eight entries for each write that may be outstanding (the table's advice).
    let table = WriteTable::new(8 * BOUND as usize * cores);
    let mut state = Routed {
        router: DCrew::over(balance, table),
        depths: Depths::new(cores),
        finish_at: vec![f64::INFINITY; cores],
        queues: vec![VecDeque::new(); cores],
        waiting: VecDeque::new(),
        write_below: (write_share * f64::from(WRITE_UNITS)) as u32,
    };
    for job in jobs {
        state.complete_until(job.at, &mut served);
        state.waiting.push_back(job);
        state.dispatch(job.at);
    }
    state.complete_until(f64::MAX, &mut served);
}

/// The low bits of a hash that decide whether a job writes; its partition are the high ones.
const WRITE_UNITS: u32 = 1 << (32 - PARTITION_BITS);

struct Routed<R> {
    router: R,
    depths: Depths,
    /// Infinite: idle.
    finish_at: Vec<f64>,
    /// Of each core, the job in service first.
    queues: Vec<VecDeque<Job>>,
    waiting: VecDeque<Job>,
    write_below: u32,
}

impl<R: Router> Routed<R> {
    fn request_of(&self, job: &Job) -> RouteRequest {
        let writes = job.hash % WRITE_UNITS < self.write_below;
        RouteRequest {
            partition: PartitionId(job.hash >> (32 - PARTITION_BITS)),
            access: if writes { Access::Write } else { Access::Read },
            size_bytes: Some(job.service as u64),
            received_by: WorkerId(0),
        }
    }

    /// In order of arrival, until the router wants a completion first.
    fn dispatch(&mut self, now: f64) {
        while let Some(job) = self.waiting.front().copied() {
            let Route::To(worker) = self.router.route(&self.request_of(&job), &self.depths) else {
                return;
            };
            self.waiting.pop_front();
            self.depths.add(worker);
            let queue = &mut self.queues[worker.index()];
            queue.push_back(job);
            if queue.len() == 1 {
                self.finish_at[worker.index()] = now + job.service;
            }
        }
    }

    fn complete_until(&mut self, now: f64, served: &mut impl FnMut(&Job, f64)) {
        loop {
            let core = earliest(&self.finish_at);
            let at = self.finish_at[core];
            if at > now {
                return;
            }
            if let Some(job) = self.queues[core].pop_front() {
                served(&job, at - job.at);
                let worker = WorkerId(core as u16);
                self.router.finish(&self.request_of(&job), worker);
                self.depths.remove(worker);
            }
            let next = self.queues[core].front();
            self.finish_at[core] = next.map_or(f64::INFINITY, |job| at + job.service);
            self.dispatch(at);
        }
    }
}
