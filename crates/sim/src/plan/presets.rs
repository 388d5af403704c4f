//! The presets for a single machine, as shapes of a simulated server.

use base::WorkerId;
use base::sync::Arc;
use policy::routers::{Choice, Dispatch, NotTogether, Steal, UseRouter, WritePolicy};
use policy::size_class::{SizeController, SizeOptions, SizePlan, WorkerSizes};
use policy::window::WindowRules;
use policy::{Helping, LargeHelp};
use policy::{Router, WriteTable};

use crate::plan::jobs::Jobs;
use crate::plan::server::{self, Costs, Outcome, Shape};

/// C-4's bound on balanced queues (C-4 §3).
const JBSQ: Dispatch = Dispatch::Jbsq(2);
/// Entries of the write table for each worker: C-4 §5.2 provides two, in a table without sets; in
/// sets of eight it takes sixteen for a full one to be rare (decision 0015).
const ENTRIES_PER_WORKER: usize = 16;
/// Hand-off workers that are tried (Minos §5.2).
const HAND_OFF_WORKERS_MAX: u16 = 3;
/// Dispatchers are tried by such parts of all cores.
const SPLIT_PARTS: usize = 8;
/// Requests that a worker takes at once.
const BATCH: u32 = 32;
/// The longest time that a window gathers: it is full by then.
const SLO_RATIO_MAX: f64 = 100.0;

/// One preset.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name for `--preset`.
    pub name: &'static str,
    /// The write policy.
    pub write_policy: WritePolicy,
    /// The balance for requests that the write policy leaves open.
    pub dispatch: Dispatch,
    /// Whether dependent writes are compacted.
    pub is_compacting: bool,
    /// The receiving cores.
    pub layers: Layers,
    /// Whether idle large cores take small requests.
    pub large_help: LargeHelp,
}

/// Whether some cores only receive, serve hot reads and reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Every core does everything.
    RunToCompletion,
    /// The number that suits the load best.
    Two,
    /// The better of both, as a tuner with that choice would find.
    Tuned,
}

const fn preset(
    name: &'static str,
    write_policy: WritePolicy,
    dispatch: Dispatch,
    is_compacting: bool,
) -> Preset {
    Preset {
        name,
        write_policy,
        dispatch,
        is_compacting,
        layers: Layers::RunToCompletion,
        large_help: LargeHelp::Off,
    }
}

/// The joint default first. The presets of several machines wait for the cluster.
pub const PRESETS: &[Preset] = &[
    Preset {
        layers: Layers::Tuned,
        large_help: LargeHelp::On,
        ..preset("dovetail", WritePolicy::DCrew, Dispatch::SizeAware, true)
    },
    preset("mica-erew", WritePolicy::Erew, Dispatch::KeyHash, false),
    preset("mica-crew", WritePolicy::Crew, Dispatch::KeyHash, false),
    preset("hkh", WritePolicy::Crew, Dispatch::KeyHash, false),
    preset("sho", WritePolicy::Crcw, Dispatch::HandOff(1), false),
    preset("hkh-ws", WritePolicy::Crew, Dispatch::Steal, false),
    preset("minos", WritePolicy::Crew, Dispatch::SizeAware, false),
    preset("c4-erew", WritePolicy::Erew, Dispatch::KeyHash, false),
    preset("c4-crew", WritePolicy::Crew, JBSQ, false),
    preset("c4-dcrew", WritePolicy::DCrew, JBSQ, false),
    preset("c4-comp", WritePolicy::Crew, JBSQ, true),
    preset("c4", WritePolicy::DCrew, JBSQ, true),
    preset("basekv", WritePolicy::Crcw, Dispatch::Any, false),
    preset("erpckv", WritePolicy::Erew, Dispatch::KeyHash, false),
    Preset {
        layers: Layers::Two,
        ..preset("mutps-h", WritePolicy::Crcw, Dispatch::RoundRobin, false)
    },
];

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Presets of one machine that are not simulated, and why.
pub const NOT_SIMULATED: &[(&str, &str)] =
    &[("mutps-t", "the table of measured costs has no rows of the ordered index")];

/// The parameters of a preset's run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Dispatchers and workers together.
    pub cores: usize,
    pub costs: Costs,
    pub slo_ns: f64,
}

impl Preset {
    /// Every variant of the preset for this workload: the best one counts.
    pub(super) fn set_ups(&self, jobs: &Jobs, setting: &Setting) -> Vec<SetUp> {
        let service_ns = setting.costs.request_ns + jobs.store_mean_ns();
        let slo_ratio = (setting.slo_ns / service_ns).clamp(2.0, SLO_RATIO_MAX);
        let rules = WindowRules::honest(service_ns.max(1.0) as u64, slo_ratio as u64);
        let set_up = |dispatch: Dispatch, dispatchers: usize| {
            let workers = setting.cores - dispatchers;
            let plan = Arc::new(size_plan(jobs, workers));
            let helping = Helping::new(self.large_help, self.write_policy, dispatch);
            SetUp {
                write_policy: self.write_policy,
                dispatch,
                plan: Arc::clone(&plan),
                shape: Shape {
                    workers,
                    dispatchers,
                    hand_off_workers: match dispatch {
                        Dispatch::HandOff(workers) => usize::from(workers),
                        _ => 0,
                    },
                    stealing: (dispatch == Dispatch::Steal).then(|| Steal::new(BATCH)),
                    helping: helping.map(|helping| (helping, plan)),
                    windows: self.is_compacting.then_some(rules),
                    costs: setting.costs,
                },
            }
        };
        if let Dispatch::HandOff(_) = self.dispatch {
            let most = HAND_OFF_WORKERS_MAX.min(setting.cores as u16 - 1);
            return (1..=most).map(|workers| set_up(Dispatch::HandOff(workers), 0)).collect();
        }
        let one_layer = (self.layers != Layers::Two).then_some(0);
        let splits = match self.layers {
            Layers::RunToCompletion => Vec::new(),
            Layers::Two | Layers::Tuned => splits(setting.cores),
        };
        let dispatchers = one_layer.into_iter().chain(splits);
        dispatchers.map(|dispatchers| set_up(self.dispatch, dispatchers)).collect()
    }
}

/// The possible numbers of dispatchers for this many cores: up to seven of the splits that a tuner
/// could try.
fn splits(cores: usize) -> Vec<usize> {
    let mut dispatchers: Vec<usize> = (1..SPLIT_PARTS)
        .map(|part| (cores * part).div_ceil(SPLIT_PARTS))
        .filter(|dispatchers| (1..cores).contains(dispatchers))
        .collect();
    dispatchers.dedup();
    dispatchers
}

/// A preset on a machine.
#[derive(Clone, Debug)]
pub(super) struct SetUp {
    write_policy: WritePolicy,
    pub dispatch: Dispatch,
    plan: Arc<SizePlan>,
    shape: Shape,
}

impl SetUp {
    /// Cores that only receive and reply.
    pub(super) fn dispatchers(&self) -> usize {
        self.shape.dispatchers
    }

    /// Offers all jobs at `rate` requests a nanosecond.
    pub(super) fn run(&self, jobs: &Jobs, rate: f64) -> Result<Outcome, NotTogether> {
        let workers = self.shape.workers;
        let entry_count = (workers * ENTRIES_PER_WORKER).next_power_of_two().max(64);
        let choice = Choice {
            write_policy: self.write_policy,
            dispatch: self.dispatch,
            dispatcher: WorkerId(0),
            worker_count: workers,
            batch: BATCH,
            // Requests come from a dispatcher that is not one of the workers.
            executes: false,
            // Between two layers a bound counts batches (K15).
            bound_unit: if self.shape.dispatchers > 0 { BATCH } else { 1 },
            holder_depth_max: u32::MAX,
            table: WriteTable::new(entry_count),
            plan: Arc::clone(&self.plan),
        };
        choice.open(Run { jobs, shape: &self.shape, rate })
    }
}

struct Run<'a> {
    jobs: &'a Jobs,
    shape: &'a Shape,
    rate: f64,
}

impl UseRouter for Run<'_> {
    type Output = Outcome;

    fn with<R: Router + Send + 'static>(self, router: R) -> Outcome {
        server::run(self.jobs, self.shape, router, self.rate)
    }
}

/// The plan of Minos's controller for the workload's sizes.
fn size_plan(jobs: &Jobs, workers: usize) -> SizePlan {
    // Every request is counted.
    let sizes = [WorkerSizes::new(1)];
    jobs.all().iter().for_each(|job| sizes[0].record(job.size_bytes));
    SizeController::new(SizeOptions::paper(workers)).end_epoch(&sizes).clone()
}
