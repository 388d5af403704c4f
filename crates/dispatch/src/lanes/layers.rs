//! Layers: which threads receive and which execute, and their routers, from the settings.
//!
//! ```text
//!  thread                       0      1      2      3
//!  run to completion            D E    D E    D E    D E     D: polls connections, routes, replies
//!  --cr-threads 1               D        E      E      E     E: executes
//!  --dispatch hand-off:2        D      D        E      E
//!  router's worker              0      1      2      3       (with --cr-threads 1: -, 0, 1, 2)
//! ```

use base::WorkerId;
use base::ring::Entry;
use base::roles::{Executing, RolePlan};
use base::sync::Arc;
use budget::memory::ForwardingMemory;
use config::StartError;
use config::{Config, Tuning};
use policy::routers::{Choice, UseRouter};
use policy::{Dispatch, Policies, Router, WritePolicy, WriteTable};
use policy::{Helping, LargeHelp};

use super::fabric::Stealing;
use super::request_slot::{REQUEST_SLOTS, RequestSlots};
use super::roles::RolesError;
use crate::sizes;

/// Entries of the write table for each worker that executes: enough for a thousand partitions with
/// outstanding writes before one new write in 900 finds its set full.
const TABLE_ENTRIES_PER_EXECUTOR: usize = 4096;

/// A dispatcher's router.
pub type Decider = Box<dyn Router + Send>;

/// Under `--cr-threads auto`, from this number of threads on they can be divided into two layers
/// while the server runs. On fewer, two layers hardly ever pay (K17), and no request pays for the
/// question.
const MOVABLE_THREADS_MIN: usize = 4;

/// Writes of a held partition are balanced while their writer has more than so many batches of one
/// dispatcher: one that it works on, and one that waits.
const HOLDER_BATCHES_MAX: u32 = 2;

/// Bytes of one entry of the write table.
const ENTRY_BYTES: u64 = 8;

/// Bytes of one ring between a dispatcher and an executor.
const RING_BYTES: u64 = REQUEST_SLOTS as u64 * size_of::<Entry>() as u64;

/// The settings about roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// The server starts with these roles.
    pub start: RolePlan,
    /// The number of threads; no further thread can ever have a role.
    pub thread_max: usize,
    /// Whether workers have the state that routing needs.
    pub is_routed: bool,
    dispatch: Dispatch,
}

impl Layers {
    /// The layers that the settings configure, or why they are impossible.
    pub fn new(config: &Config) -> Result<Layers, StartError> {
        let threads = config.threads;
        let dispatchers = match (config.cr_threads, config.policies.dispatch) {
            (None, Dispatch::HandOff(workers)) => usize::from(workers).min(threads),
            (Some(given), Dispatch::HandOff(workers)) if given != usize::from(workers) => {
                return Err(StartError::HandOffThreads { given, workers });
            }
            (None, _) => threads,
            (Some(given), _) => given,
        };
        let Some(start) =
            RolePlan::new(0, threads, dispatchers, executing(config.policies.dispatch))
        else {
            let (given, most) = (dispatchers as u64, threads as u64);
            return Err(StartError::OutOfRange { setting: "cr-threads", given, least: 1, most });
        };
        let threads_min = if config.tuning == Tuning::On { 2 } else { MOVABLE_THREADS_MIN };
        let may_divide = config.cr_threads.is_none() && threads >= threads_min;
        let mut layers = Layers {
            start,
            thread_max: threads,
            is_routed: may_divide,
            dispatch: config.policies.dispatch,
        };
        layers.is_routed |= layers.may_route(&start, config);
        // Contradictory settings are refused even where one thread makes them meaningless.
        layers.deciders(&start, config, config.policies)?;
        Ok(layers)
    }

    /// The plan for another division of the threads.
    pub fn plan(
        &self,
        epoch: u64,
        threads: usize,
        dispatchers: usize,
    ) -> Result<RolePlan, RolesError> {
        if let Dispatch::HandOff(workers) = self.dispatch {
            return Err(RolesError::HandOff { workers });
        }
        if !(1..=self.thread_max).contains(&threads) {
            return Err(RolesError::Threads { most: self.thread_max });
        }
        RolePlan::new(epoch, threads, dispatchers, executing(self.dispatch))
            .ok_or(RolesError::Dispatchers { most: threads })
    }

    /// The memory between the workers under any plan, without the bytes that request slots' buffers
    /// keep, and the largest number of request slots.
    pub fn forwarding_memory(&self, config: &Config) -> ForwardingMemory {
        if !self.is_routed {
            return ForwardingMemory::default();
        }
        let threads = self.thread_max as u64;
        let dispatchers =
            if self.has_fixed_dispatchers() { self.start.dispatchers as u64 } else { threads };
        let polls_with_all = RolePlan { dispatchers: self.thread_max, ..self.start };
        let pairs = if self.has_fixed_dispatchers() {
            dispatchers * (threads - dispatchers)
        } else if self.may_route(&polls_with_all, config) {
            threads * threads
        } else {
            (threads / 2) * threads.div_ceil(2)
        };
        let offers = if self.has_help(config) { threads } else { 0 };
        // While a plan is taken up, the table of another may still exist.
        let table_bytes = 2 * threads * TABLE_ENTRIES_PER_EXECUTOR as u64 * ENTRY_BYTES;
        ForwardingMemory {
            fixed_bytes: dispatchers * RequestSlots::BYTES
                + (pairs + offers) * RING_BYTES
                + table_bytes,
            request_slot_count: dispatchers * REQUEST_SLOTS as u64,
        }
    }

    /// Whether idle workers take requests that wait for others.
    pub fn stealing(&self) -> Stealing {
        if self.dispatch == Dispatch::Steal { Stealing::On } else { Stealing::Off }
    }

    /// Whether idle large workers may take requests that wait for small workers, under any of the
    /// policies.
    pub fn has_help(&self, config: &Config) -> bool {
        let tried = config.policies_tried();
        tried.into_iter().any(|policies| helping(config.large_help, policies).is_some())
    }

    /// Threads that may ever poll.
    pub fn listening_count(&self) -> usize {
        if self.has_fixed_dispatchers() { self.start.dispatchers } else { self.thread_max }
    }

    /// Whether the dispatch fixes the threads that poll.
    pub fn has_fixed_dispatchers(&self) -> bool {
        matches!(self.dispatch, Dispatch::HandOff(_))
    }

    /// Whether, under that plan and policies, requests go to workers other than the receiving one.
    pub fn is_routing(&self, plan: &RolePlan, config: &Config, policies: Policies) -> bool {
        // In a cluster writes go through the control thread, as through a ring.
        config.cluster.is_some()
            || plan.dispatchers < plan.threads
            || (plan.threads > 1 && !policies.stay())
    }

    /// The same under any of the policies that may be in force.
    fn may_route(&self, plan: &RolePlan, config: &Config) -> bool {
        let tried = config.policies_tried();
        tried.into_iter().any(|policies| self.is_routing(plan, config, policies))
    }

    /// Entries of the write table under that plan; `None`: no dispatcher uses one under any of the
    /// policies.
    pub fn table_entries(&self, plan: &RolePlan, config: &Config) -> Option<usize> {
        let has_table = config.policies_tried().into_iter().any(|policies| {
            policies.write_policy == WritePolicy::DCrew && self.is_routing(plan, config, policies)
        });
        has_table.then(|| WriteTable::capacity(plan.executors * TABLE_ENTRIES_PER_EXECUTOR))
    }

    /// A router for each dispatcher, over one write table. Another plan has another table, because
    /// its workers have other numbers.
    pub fn deciders(
        &self,
        plan: &RolePlan,
        config: &Config,
        policies: Policies,
    ) -> Result<Vec<Decider>, StartError> {
        // Under two layers a depth bound counts batches, otherwise requests (K15).
        let bound_unit = if plan.has_two_layers() { config.batch as u32 } else { 1 };
        let table = WriteTable::new(plan.executors * TABLE_ENTRIES_PER_EXECUTOR);
        let sizes = Arc::new(sizes::first_plan(config, plan.executors));
        let decider = |dispatcher: usize| {
            let choice = Choice {
                write_policy: policies.write_policy,
                dispatch: policies.dispatch,
                dispatcher: WorkerId((dispatcher % plan.executors) as u16),
                worker_count: plan.executors,
                batch: config.batch as u32,
                executes: !plan.has_two_layers(),
                bound_unit,
                holder_depth_max: HOLDER_BATCHES_MAX * config.batch as u32,
                table: table.for_another_dispatcher(),
                plan: Arc::clone(&sizes),
            };
            Ok(choice.open(AsDecider)?)
        };
        (0..plan.dispatchers).map(decider).collect()
    }
}

/// Which requests that wait for small workers idle large workers may take.
pub fn helping(large_help: LargeHelp, policies: Policies) -> Option<Helping> {
    Helping::new(large_help, policies.write_policy, policies.dispatch)
}

/// Threads that poll execute nothing under hand-off, and nothing under two layers.
fn executing(dispatch: Dispatch) -> Executing {
    match dispatch {
        Dispatch::HandOff(_) => Executing::All,
        _ => Executing::Others,
    }
}

/// One copy of a worker's code for all routers: a copy for each of fourteen routers would make the
/// server that many times as large, to save an indirect call per request (decision 0032).
struct AsDecider;

impl UseRouter for AsDecider {
    type Output = Decider;

    fn with<R: Router + Send + 'static>(self, router: R) -> Decider {
        Box::new(router)
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
            policies: Policies::new(write_policy.parse().unwrap(), dispatch.parse().unwrap()),
            ..Config::default()
        }
    }

    /// Dispatchers, first executor, executors, routed or not.
    #[track_caller]
    fn check(config: &Config, want: (usize, usize, usize, bool)) {
        let layers = Layers::new(config).unwrap();
        let RolePlan { dispatchers, first_executor, executors, .. } = layers.start;
        assert_eq!((dispatchers, first_executor, executors, layers.is_routed), want);
        assert_eq!(
            layers.deciders(&layers.start, config, config.policies).unwrap().len(),
            dispatchers
        );
    }

    #[track_caller]
    fn check_refused(config: &Config, want: &str) {
        assert_eq!(Layers::new(config).unwrap_err().to_string(), want);
    }

    #[test]
    fn roles_follow_from_the_settings() {
        check(&config(3, None, "crcw any"), (3, 0, 3, false));
        check(&config(4, None, "crcw any"), (4, 0, 4, true));
        check(&config(4, Some(4), "crcw any"), (4, 0, 4, false));
        check(&config(4, Some(1), "crcw any"), (1, 1, 3, true));
        check(&config(4, Some(1), "d-crew jbsq:2"), (1, 1, 3, true));
        check(&config(4, None, "erew key-hash"), (4, 0, 4, true));
        let asked = Config { tuning: Tuning::On, ..config(2, None, "crcw any") };
        assert!(Layers::new(&asked).unwrap().is_routed, "the tuner may divide two threads");
        check(&config(1, None, "erew key-hash"), (1, 0, 1, false));
        check(&config(4, None, "crcw hand-off:1"), (1, 0, 4, true));
        check(&config(4, Some(2), "d-crew hand-off:2"), (2, 0, 4, true));
        check(&config(4, None, "d-crew size-aware"), (4, 0, 4, true));
        check(&config(4, Some(1), "crew size-aware"), (1, 1, 3, true));
        check(&config(3, None, "crew steal"), (3, 0, 3, true));
        check(&config(1, None, "crew steal"), (1, 0, 1, false));
    }

    #[test]
    fn run_to_completion_routes_only_what_the_policy_moves() {
        for (policies, cr_threads, want) in
            [("crcw any", None, false), ("crcw any", Some(1), true), ("erew any", None, true)]
        {
            let config = config(4, cr_threads, policies);
            let layers = Layers::new(&config).unwrap();
            assert_eq!(
                layers.is_routing(&layers.start, &config, config.policies),
                want,
                "{policies}"
            );
        }
    }

    #[track_caller]
    fn check_memory(config: &Config, want_kib: u64, want_request_slots: u64) {
        let memory = Layers::new(config).unwrap().forwarding_memory(config);
        let request_slots_kib =
            want_request_slots * size_of::<super::super::request_slot::RequestSlot>() as u64 / 1024;
        assert_eq!(memory.fixed_bytes / 1024, want_kib + request_slots_kib);
        assert_eq!(memory.request_slot_count, want_request_slots);
    }

    #[test]
    fn memory_is_that_of_the_worst_plan() {
        check_memory(&config(3, None, "crcw any"), 0, 0);
        check_memory(&config(4, None, "crcw any"), 4 * 16 + 8 * 32, 4096);
        check_memory(&config(4, None, "erew any"), 16 * 16 + 8 * 32, 4096);
        check_memory(&config(4, Some(1), "crcw any"), 4 * 16 + 8 * 32, 4096);
        check_memory(&config(4, None, "crcw hand-off:1"), 3 * 16 + 8 * 32, 1024);
        let unhelped = LargeHelp::Off;
        let by_size = Config { large_help: unhelped, ..config(4, None, "d-crew size-aware") };
        check_memory(&by_size, 16 * 16 + 8 * 32, 4096);
        let helped = Config { large_help: LargeHelp::On, ..by_size };
        check_memory(&helped, (16 + 4) * 16 + 8 * 32, 4096);
    }

    #[track_caller]
    fn check_plan(config: &Config, threads: usize, dispatchers: usize, want: Result<usize, &str>) {
        let plan = Layers::new(config).unwrap().plan(1, threads, dispatchers);
        let found = plan.map(|plan| plan.executors).map_err(|error| error.to_string());
        assert_eq!(found, want.map_err(str::to_owned));
    }

    #[test]
    fn roles_stay_within_what_was_started() {
        let four = config(4, None, "crcw any");
        check_plan(&four, 4, 1, Ok(3));
        check_plan(&four, 2, 2, Ok(2));
        let want = "threads must be 1 to 4, as many as the server was started with";
        check_plan(&four, 5, 1, Err(want));
        check_plan(&four, 0, 0, Err(want));
        check_plan(&four, 2, 3, Err("cr-threads must be auto or 1 to 2, the number of threads"));
        let want = "--dispatch hand-off:1 fixes which threads poll; start with another dispatch";
        check_plan(&config(4, None, "crcw hand-off:1"), 3, 1, Err(want));
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
            "--dispatch hand-off:2 leaves none of 2 threads to execute: give --threads 3 or more",
        );
        check_refused(
            &config(2, None, "erew steal"),
            "write policy erew cannot go with dispatch steal; try key-hash",
        );
        check_refused(
            &config(1, None, "crew hand-off:1"),
            "write policy crew cannot go with dispatch hand-off:1; try write policy d-crew or crcw",
        );
    }
}
