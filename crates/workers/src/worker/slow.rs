//! Where a worker gives the slow log and the commands' clocks their times (`timing`).

use std::time::{Duration, Instant};

use counters::Dialect;
use counters::latency_monitor::Kind;
use host::poller::Poller;
use runtime::core::timing::Batch;
use runtime::engine::Home;

use super::Worker;

impl<E: Home, P: Poller> Worker<E, P> {
    /// Checks behind a gathering whether its batches took too long. Costs one clock read per
    /// gathering, unless the settings call nothing slow. Returns their time, if it was measured.
    pub(super) fn look_at_slowness(&mut self) -> Option<Duration> {
        let shared = &self.core.shared;
        let slow = shared.slow_log().threshold();
        let monitored = shared.latency_monitor().threshold();
        let least = slow.into_iter().chain(monitored).min()?;
        let took = self.time_batches();
        if took >= least {
            self.note_slow_batch(took);
        }
        Some(took)
    }

    /// The time of this gathering's batches, without commands that ran by themselves.
    pub(super) fn time_batches(&mut self) -> Duration {
        let now = Instant::now();
        let took = now.duration_since(self.gathers_since);
        self.gathers_since = now;
        self.core.timing.close_batch(took)
    }

    #[cold]
    fn note_slow_batch(&self, took: Duration) {
        let (core, shared) = (&self.core, &self.core.shared);
        let mut batch = Batch::default();
        for region in &self.regions {
            let connection = core.connections.get(region.slot);
            let is_resp = connection.is_some_and(|open| open.client.protocol == Dialect::Resp);
            if let Some(taken) = region.taken(&self.arena).filter(|_| is_resp) {
                batch.add(region.slot, taken);
            }
        }
        if shared.latency_monitor().threshold().is_some_and(|threshold| took >= threshold) {
            shared.latency_monitor().add(Kind::Batch, core.now, took);
        }
        if shared.slow_log().threshold().is_some_and(|threshold| took >= threshold) {
            batch.log(core, took);
        }
    }

    /// Called at the end of a round that found work.
    pub(super) fn close_timing(&mut self, took: std::time::Duration) {
        let counters = self.core.shared.counters(self.core.worker.index());
        self.core.timing.close_round(counters, took, !E::ROUTES);
    }
}
