//! Where a worker gives the slow log and the commands' clocks their times (`timing`).

use std::time::{Duration, Instant};

use counters::Dialect;
use counters::latency_monitor::Kind;
use host::poller::Poller;
use runtime::core::timing::Batch;
use runtime::engine::Home;

use super::Worker;

/// Checks behind a gathering whether its batches took too long. Costs one clock read per
/// gathering, unless the settings call nothing slow. Returns their time, if it was measured.
pub(super) fn look<E: Home, P: Poller>(worker: &mut Worker<E, P>) -> Option<Duration> {
    let shared = &worker.core.shared;
    let slow = shared.observations().slow_log.threshold();
    let monitored = shared.observations().latency_monitor.threshold();
    let least = slow.into_iter().chain(monitored).min()?;
    let took = time_batches(worker);
    if took >= least {
        note_slow_batch(worker, took);
    }
    Some(took)
}

/// The time of this gathering's batches, without commands that ran by themselves.
pub(super) fn time_batches<E: Home, P: Poller>(worker: &mut Worker<E, P>) -> Duration {
    let now = Instant::now();
    let took = now.duration_since(worker.gathers_since);
    worker.gathers_since = now;
    worker.core.timing.close_batch(took)
}

#[cold]
fn note_slow_batch<E: Home, P: Poller>(worker: &Worker<E, P>, took: Duration) {
    let (core, shared) = (&worker.core, &worker.core.shared);
    let mut batch = Batch::default();
    for (slot, taken) in worker.regions.taken() {
        let connection = core.connections.get(slot);
        if connection.is_some_and(|open| open.client.protocol == Dialect::Resp) {
            batch.add(slot, taken);
        }
    }
    if shared.observations().latency_monitor.threshold().is_some_and(|threshold| took >= threshold)
    {
        shared.observations().latency_monitor.add(Kind::Batch, core.now, took);
    }
    if shared.observations().slow_log.threshold().is_some_and(|threshold| took >= threshold) {
        batch.log(core, took);
    }
}

/// Called at the end of a round that found work.
pub(super) fn close_timing<E: Home, P: Poller>(
    worker: &mut Worker<E, P>,
    took: std::time::Duration,
) {
    let counters = worker.core.shared.counters(worker.core.worker.index());
    worker.core.timing.close_round(counters, took, !E::ROUTES);
}
