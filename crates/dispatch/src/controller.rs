//! The trait of controllers: the manager asks one now and then, and it may decide something.

use std::time::Duration;

use base::Instant;
use counters::WorkerCounters;

/// Makes decisions, every few seconds or every window of some milliseconds.
///
/// It lives on the manager's thread and publishes its decisions itself: to `Shared`, or to state
/// that it shares.
pub trait Controller: Send {
    /// Its name in the decision log.
    fn name(&self) -> &'static str;

    /// Time until the next tick. On an idle server it is asked later.
    fn period(&self) -> Duration;

    /// Whether it is to be asked now, though it is not due, because another controller waits for
    /// it.
    fn is_urgent(&self, observed: &Observed) -> bool {
        let _ = observed;
        false
    }

    /// Looks, decides, publishes; returns its change, if it made one.
    fn tick(&mut self, now: Instant, observed: &Observed) -> Option<Decision>;

    /// The server is idle from now on: no controller is asked until there are requests again.
    fn rest(&mut self) {}
}

/// The figures that the manager reads at each look; all of them only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Requests that the store has executed, over all workers.
    pub request_count: u64,
    /// By worker: time in rounds that found work.
    pub busy_ns: Vec<u64>,
    /// Requests whose latency was sampled; none without `--slo`.
    pub latency_samples: u64,
    /// Of these, those that took longer than the objective.
    pub latency_over: u64,
    /// Whether some threads only poll now, and others only execute.
    pub has_two_layers: bool,
}

impl Observed {
    /// Reads the workers' counters into the same memory.
    pub fn observe<'a>(&mut self, workers: impl Iterator<Item = &'a WorkerCounters>) {
        (self.request_count, self.latency_samples, self.latency_over) = (0, 0, 0);
        self.busy_ns.clear();
        for worker in workers {
            self.request_count += worker.batch_requests.get();
            self.busy_ns.push(worker.busy_ns.get());
            let (samples, over) = worker.latency.samples_and_over();
            self.latency_samples += samples;
            self.latency_over += over;
        }
    }
}

/// A change, or an observation worth a note.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The changed things, as the label `what` of `dovetail_tuner_changes_total`; empty for a note.
    pub what: Vec<&'static str>,
    /// The values before and after, for people.
    pub change: String,
    /// The reason, for people.
    pub reason: String,
    /// The figures behind the decision; names end in their unit.
    pub inputs: Vec<(&'static str, f64)>,
}
