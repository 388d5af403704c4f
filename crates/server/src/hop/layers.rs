//! Which threads receive, which execute, and who decides: from the settings.
//!
//! ```text
//!  thread                       0      1      2      3
//!  run to completion            F B    F B    F B    F B     F: polls connections, routes, replies
//!  --cr-threads 1               F        B      B      B     B: executes
//!  --dispatch hand-off:2        F      F        B      B
//!  router's worker              0      1      2      3       (with --cr-threads 1: -, 0, 1, 2)
//! ```

use base::WorkerId;
use base::sync::Arc;
use policy::routers::{Choice, NotTogether, UseRouter};
use policy::size_class::SizePlan;
use policy::{Dispatch, Router, WritePolicy, WriteTable};

use crate::config::Config;
use crate::error::StartError;

/// Entries of the write table for each worker that executes: enough for a thousand partitions with
/// writes outstanding before one new write in 900 finds its set full.
const TABLE_ENTRIES_PER_BACK: usize = 4096;

/// Nothing routes by size yet: every item is small.
const SIZE_THRESHOLD_BYTES: u64 = u64::MAX;

/// A front's way to decide.
pub type Decider = Box<dyn Router + Send>;

/// The roles of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// Threads `0..fronts` poll connections.
    pub fronts: usize,
    /// Threads `first_back..threads` may be named by a router; its worker 0 is the first of them.
    pub first_back: usize,
    /// How many these are.
    pub backs: usize,
    /// Whether requests go anywhere but to the worker that received them.
    pub is_routed: bool,
}

impl Layers {
    /// As configured, or why that cannot be.
    pub fn new(config: &Config) -> Result<Layers, StartError> {
        let threads = config.threads;
        let fronts = match (config.cr_threads, config.dispatch) {
            (None, Dispatch::HandOff(workers)) => usize::from(workers).min(threads),
            (Some(given), Dispatch::HandOff(workers)) if given != usize::from(workers) => {
                return Err(StartError::HandOffThreads { given, workers });
            }
            (None, _) => threads,
            (Some(given), _) => given,
        };
        if !(1..=threads).contains(&fronts) {
            let (given, most) = (fronts as u64, threads as u64);
            return Err(StartError::OutOfRange { setting: "cr-threads", given, least: 1, most });
        }
        let is_hand_off = matches!(config.dispatch, Dispatch::HandOff(_));
        let first_back = if fronts == threads || is_hand_off { 0 } else { fronts };
        let stays = (config.write_policy, config.dispatch) == (WritePolicy::Crcw, Dispatch::Any);
        let layers = Layers {
            fronts,
            first_back,
            backs: threads - first_back,
            is_routed: fronts < threads || (threads > 1 && !stays),
        };
        if matches!(config.dispatch, Dispatch::Steal | Dispatch::SizeAware) {
            return Err(StartError::DispatchNotBuilt { dispatch: config.dispatch });
        }
        // What contradicts itself is refused even where one thread makes it meaningless.
        layers.deciders(config)?;
        Ok(layers)
    }

    /// Whether there is a layer of threads that only execute.
    pub fn has_two(&self) -> bool {
        self.first_back > 0
    }

    /// Threads that only poll, that do both, that only execute.
    pub fn roles(&self) -> (usize, usize, usize) {
        let threads = self.first_back + self.backs;
        let both = if self.fronts < threads { 0 } else { threads };
        (self.fronts - both, both, threads - self.fronts)
    }

    /// A router for each front, over one write table.
    pub fn deciders(&self, config: &Config) -> Result<Vec<Decider>, StartError> {
        // A bound counts batches between two layers, and requests between equals (K15).
        let bound_unit = if self.has_two() { config.batch as u32 } else { 1 };
        let table = WriteTable::new(self.backs * TABLE_ENTRIES_PER_BACK);
        let plan = Arc::new(SizePlan::all_small(self.backs, SIZE_THRESHOLD_BYTES));
        let decider = |front: usize| {
            let choice = Choice {
                write_policy: config.write_policy,
                dispatch: config.dispatch,
                dispatcher: WorkerId((front % self.backs) as u16),
                worker_count: self.backs,
                batch: config.batch as u32,
                bound_unit,
                table: table.for_another_dispatcher(),
                plan: Arc::clone(&plan),
            };
            Ok(choice.open(AsDecider)?)
        };
        (0..self.fronts).map(decider).collect()
    }
}

/// One worker's code for all routers: a copy for each of fourteen routers would make the server
/// that many times as large, to save an indirect call a request (decision 0032).
struct AsDecider;

impl UseRouter for AsDecider {
    type Output = Decider;

    fn with<R: Router + Send + 'static>(self, router: R) -> Decider {
        Box::new(router)
    }
}

impl From<NotTogether> for StartError {
    fn from(reason: NotTogether) -> StartError {
        StartError::Policies { reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(threads: usize, cr_threads: Option<usize>, policies: &str) -> Config {
        let (write_policy, dispatch) = policies.split_once(' ').unwrap();
        Config {
            threads,
            cr_threads,
            write_policy: write_policy.parse().unwrap(),
            dispatch: dispatch.parse().unwrap(),
            ..Config::default()
        }
    }

    /// Fronts, first back, backs, routed or not.
    #[track_caller]
    fn check(config: &Config, want: (usize, usize, usize, bool)) {
        let layers = Layers::new(config).unwrap();
        let Layers { fronts, first_back, backs, is_routed } = layers;
        assert_eq!((fronts, first_back, backs, is_routed), want);
        assert_eq!(layers.deciders(config).unwrap().len(), fronts);
    }

    #[track_caller]
    fn check_refused(config: &Config, want: &str) {
        assert_eq!(Layers::new(config).unwrap_err().to_string(), want);
    }

    #[test]
    fn roles_follow_from_the_settings() {
        check(&config(4, None, "crcw any"), (4, 0, 4, false));
        check(&config(4, Some(4), "crcw any"), (4, 0, 4, false));
        check(&config(4, Some(1), "crcw any"), (1, 1, 3, true));
        check(&config(4, Some(1), "d-crew jbsq:2"), (1, 1, 3, true));
        check(&config(4, None, "erew key-hash"), (4, 0, 4, true));
        check(&config(1, None, "erew key-hash"), (1, 0, 1, false));
        check(&config(4, None, "crcw hand-off:1"), (1, 0, 4, true));
        check(&config(4, Some(2), "d-crew hand-off:2"), (2, 0, 4, true));
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        check_refused(
            &config(2, Some(3), "crcw any"),
            "--cr-threads 3 is out of range: give 1 to 2",
        );
        check_refused(
            &config(4, Some(2), "crcw hand-off:1"),
            "--cr-threads 2 contradicts --dispatch hand-off:1: give --cr-threads auto or 1",
        );
        check_refused(
            &config(2, None, "crcw hand-off:2"),
            "dispatch hand-off:2 leaves none of 2 workers to execute",
        );
        check_refused(
            &config(2, None, "crcw steal"),
            "--dispatch steal is not built yet: give any, key-hash, round-robin, jbsq:N or \
             hand-off:N",
        );
        check_refused(
            &config(1, None, "crew hand-off:1"),
            "write policy crew cannot go with dispatch hand-off:1; try write policy d-crew or crcw",
        );
    }
}
