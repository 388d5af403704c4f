//! Minos: the effect of large requests on the tail, in queues (Fig. 2) and in a server (Figs 3-10).
//!
//! ```text
//!  point: Poisson, services 1 and K ─▶ queues: hash | late | steal | size-aware ─▶ p99 in services
//!  server: items of §5.3 ─▶ receive queues ─▶ cores ─▶ send queues ─▶ 40 Gb/s ─▶ p99 in µs
//!                                            ▲  SizePlan, each epoch
//!                                            └─ policy::size_class
//! ```
//!
//! # References
//! Minos §2.2 (the queueing model), §5 (platform, workload), §6 (figures).

mod balance;
mod draw;
pub mod fig2;
mod load;
pub mod queues;
mod sensitivity;
pub mod server;

use std::time::Instant;

use policy::size_class::{Cost, SizeController, SizeOptions, SizePlan, WorkerSizes};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::figure::Figure;
use queues::{Job, Jobs};
use sim::SimError;
use sim::latency::Latencies;

/// Every figure of Minos.
pub const FIGURES: &[Figure] = &[
    fig2::FIGURE,
    load::FIG3,
    load::FIG4,
    load::FIG5,
    sensitivity::FIG6,
    sensitivity::FIG7,
    balance::FIG9,
    balance::FIG10,
];

/// The share of large requests (Minos §2.2).
pub const LARGE_SHARE: f64 = 0.00125;

/// The strategies by which requests find a core (Minos §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// nxM/G/1: bound to a core on arrival, by hash.
    Hash,
    /// M/G/n: one queue, bound when a core is idle.
    Late,
    /// nxM/G/1, and idle cores steal.
    Steal,
    /// Minos: small and large requests on disjoint cores, small ones bound on arrival.
    SizeAware,
    /// Ours: small requests to the shortest queue of the small cores, writes by d-CREW.
    SizeAwareDCrew,
}

impl Strategy {
    /// The paper's, in its order, then ours.
    pub const ALL: [Strategy; 5] = [
        Strategy::Hash,
        Strategy::Late,
        Strategy::Steal,
        Strategy::SizeAware,
        Strategy::SizeAwareDCrew,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Hash => "hash",
            Strategy::Late => "late",
            Strategy::Steal => "steal",
            Strategy::SizeAware => "size-aware",
            Strategy::SizeAwareDCrew => "size-aware-d-crew",
        }
    }
}

impl std::str::FromStr for Strategy {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Strategy, SimError> {
        Strategy::ALL.into_iter().find(|strategy| strategy.name() == text).ok_or_else(|| {
            let known = Strategy::ALL.map(Strategy::name).join(", ");
            SimError::BadParameter {
                what: format!("`{text}` is no strategy: write one of {known}"),
            }
        })
    }
}

/// One point of Fig. 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointOptions {
    /// The strategy.
    pub strategy: Strategy,
    /// The number of cores.
    pub cores: usize,
    /// Service time of a large request, in those of a small one.
    pub k: f64,
    /// The share of large requests; 0: small ones only.
    pub large_share: f64,
    /// The share of writes: it matters only to d-CREW (Minos §5.3: 5 or 50 %).
    pub write_share: f64,
    /// Offered load per core, large requests included; below 1 to be stable.
    pub rho: f64,
    /// The number of requests.
    pub requests: u64,
    /// The seed of arrivals, services and hashes.
    pub seed: u64,
}

impl Default for PointOptions {
    fn default() -> PointOptions {
        PointOptions {
            strategy: Strategy::SizeAware,
            cores: 8,
            k: 100.0,
            large_share: LARGE_SHARE,
            write_share: 0.05,
            rho: 0.5,
            requests: 1_000_000,
            seed: 1,
        }
    }
}

/// Latencies in service times of a small request.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct PointResult {
    /// Median of all requests.
    pub p50: f64,
    /// Of all requests.
    pub p99: f64,
    /// Of all requests.
    pub p999: f64,
    /// Of all requests.
    pub mean: f64,
    /// Of the large requests alone; 0 without any.
    pub p99_large: f64,
    /// Cores that served small requests: all of them, unless the strategy is size-aware.
    pub small_cores: usize,
    /// The number of counted requests: all that arrived.
    pub requests: u64,
    /// On this machine.
    pub simulated_requests_per_second: f64,
}

/// Cores of a point; C-4's model takes as many.
const CORES_MAX: usize = 4096;

/// The least load: below it times grow until a service is lost in their rounding.
const LOAD_MIN: f64 = 1e-6;

/// Latencies are counted in thousandths of a small service.
const STEPS: f64 = 1000.0;

/// Simulates one point.
///
/// # Errors
/// When a parameter is out of its range.
pub fn point(options: &PointOptions) -> Result<PointResult, SimError> {
    check(options)?;
    let start = Instant::now();
    let plan = plan_of(options);
    let (mut all, mut large) = (Latencies::default(), Latencies::default());
    let served = |job: &Job, latency: f64| {
        let steps = (latency * STEPS) as u64;
        all.record(steps);
        if job.service > 1.0 {
            large.record(steps);
        }
    };
    let jobs = jobs_of(options);
    match options.strategy {
        Strategy::Hash => queues::early(options.cores, jobs, served),
        Strategy::Late => queues::late(options.cores, jobs, served),
        Strategy::Steal => queues::steal(options.cores, jobs, served),
        Strategy::SizeAware => queues::size_aware(&plan, jobs, served),
        Strategy::SizeAwareDCrew => {
            queues::size_aware_d_crew(&plan, options.write_share, jobs, served);
        }
    }
    let quantile = |of: &Latencies, quantile| of.quantile(quantile) as f64 / STEPS;
    let is_size_aware = matches!(options.strategy, Strategy::SizeAware | Strategy::SizeAwareDCrew);
    Ok(PointResult {
        p50: quantile(&all, 0.5),
        p99: quantile(&all, 0.99),
        p999: quantile(&all, 0.999),
        mean: all.mean() / STEPS,
        p99_large: quantile(&large, 0.99),
        small_cores: if is_size_aware { plan.small_workers } else { options.cores },
        requests: all.count(),
        simulated_requests_per_second: all.count() as f64 / start.elapsed().as_secs_f64(),
    })
}

fn check(options: &PointOptions) -> Result<(), SimError> {
    let bad = |what: String| Err(SimError::BadParameter { what });
    let PointOptions { cores, k, large_share, rho, requests, .. } = *options;
    if !(1..=CORES_MAX).contains(&cores) {
        return bad(format!("{cores} cores cannot be simulated: write 1 to {CORES_MAX}"));
    }
    if !(k.is_finite() && (1.0..=1e9).contains(&k)) {
        return bad(format!("k = {k:?}: a large request takes 1 to 1e9 small services"));
    }
    if !(0.0..=1.0).contains(&large_share) {
        return bad(format!("large share {large_share}: write 0 to 1"));
    }
    if !(0.0..=1.0).contains(&options.write_share) {
        return bad(format!("write share {}: write 0 to 1", options.write_share));
    }
    if !(LOAD_MIN..=10.0).contains(&rho) {
        return bad(format!("rho = {rho:?}: write a load per core above 0, {LOAD_MIN:?} to 10"));
    }
    if requests == 0 {
        return bad("a point needs at least one request".to_owned());
    }
    Ok(())
}

fn jobs_of(options: &PointOptions) -> impl Iterator<Item = Job> {
    let PointOptions { cores, k, large_share, rho, requests, seed, .. } = *options;
    let service_mean = 1.0 + large_share * (k - 1.0);
    let per_time = rho * cores as f64 / service_mean;
    let service = move |unit: f64| if unit < large_share { k } else { 1.0 };
    Jobs::new(SmallRng::seed_from_u64(seed), per_time, service).take(requests as usize)
}

/// The plan of Minos's controller for the workload: a size is a service time, and so is its cost.
fn plan_of(options: &PointOptions) -> SizePlan {
    const COUNTED: u32 = 100_000;
    let sizes = [WorkerSizes::new(1)];
    let large = (f64::from(COUNTED) * options.large_share).round() as u32;
    (large..COUNTED).for_each(|_| sizes[0].record(1));
    (0..large).for_each(|_| sizes[0].record(options.k as u64));
    let settings = SizeOptions { cost: Cost::Bytes, ..SizeOptions::paper(options.cores) };
    SizeController::new(settings).end_epoch(&sizes).clone()
}
