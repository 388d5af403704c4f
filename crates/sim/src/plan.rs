//! Capacity planning: the load that each preset carries of a workload, on a number of cores, under
//! an SLO.
//!
//! ```text
//!  Workload (name, trace, /stats) ─┐
//!  CostTable (the store, measured) ┼─▶ Jobs ─▶ each preset: search the load ─▶ rows, best first
//!  cores, SLO ─────────────────────┘            └─ server: policy's own routers and windows
//! ```
//!
//! Every preset gets the same requests, arrivals and service times, so that any difference comes
//! from the preset.
//!
//! # Invariants
//! I1: one seed gives one plan, on any number of threads.
//! I2: a load counts as served only if the 99th percentile of all requests is within the SLO and
//!     all work is done within 2 % of the run's length after the last arrival: a run of
//!     milliseconds does not show a slow overload in its latencies.
//!
//! # Limits
//! Not in the model: the network card and its bandwidth, cores that share a cache or a memory
//! channel, misses of a store that does not hold every key. Requests arrive one by one, at random.
//! A measured service time is that of a request in a full batch.

mod jobs;
mod presets;
mod server;
mod workload;

pub use jobs::Item;
pub use presets::{NOT_SIMULATED, PRESETS, Preset, find};
pub use workload::{KEYS_MAX, Workload};

use policy::routers::Dispatch;

use crate::SimError;
use crate::measure::{CORES_MAX, CostTable, LineTransfer};
use crate::parallel;
use jobs::Jobs;
use presets::{SetUp, Setting};
use server::Costs;

/// The parameters of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// Cores of the planned server: all of them workers or hand-off cores.
    pub cores: usize,
    /// The SLO on the 99th percentile of all requests; `None`: ten times the mean service time.
    pub slo_ns: Option<f64>,
    /// The cost of a request besides the store: receive, parse, reply.
    pub request_ns: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of presets that run in parallel.
    pub threads: usize,
}

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The presets, best first.
    pub rows: Vec<Row>,
    /// The SLO on the 99th percentile.
    pub slo_ns: f64,
    /// The mean cost of a request without waiting, forwardings and line transfers.
    pub service_mean_ns: f64,
    /// The load at which [`Row::p99_common_ns`] is taken: this share of the best preset's load.
    pub common_rps: f64,
}

/// The result of one preset.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The preset.
    pub preset: &'static str,
    /// The best of its variants.
    pub dispatch: Dispatch,
    /// Cores that only receive, serve hot reads and reply; 0: all do everything.
    pub dispatchers: usize,
    /// The highest load within the SLO; 0 when there is none.
    pub throughput_rps: f64,
    /// The 99th percentile at that load.
    pub p99_ns: u64,
    /// The 99th percentile at a load common to all presets; `None`: more work than its busiest core
    /// has time for.
    pub p99_common_ns: Option<u64>,
}

/// What a request costs a worker besides the store, with 32 requests in flight on a connection: a
/// GET of this project's server takes 228 ns (docs/results/2026-11-21-peers.md), of which the store
/// has the smallest part.
pub const REQUEST_NS_DEFAULT: f64 = 200.0;

impl Plan {
    /// The best row; among those that the search cannot tell apart, the one with the least latency
    /// at the common load. `None` when no row meets the SLO.
    pub fn recommended(&self) -> Option<&Row> {
        let most_rps = self.rows.first().map(|row| row.throughput_rps).filter(|rps| *rps > 0.0)?;
        let alike =
            self.rows.iter().filter(|row| row.throughput_rps >= most_rps * (1.0 - ALIKE_SHARE));
        alike.min_by_key(|row| row.p99_common_ns.unwrap_or(u64::MAX))
    }
}

/// Throughputs that differ by less than this share of the best one count as equal.
const ALIKE_SHARE: f64 = 0.01;
/// Steps of the search: each halves what is not known, so that 0.4 % of capacity is left.
const SEARCH_STEPS: u32 = 8;
/// The share of the best throughput at which all are compared.
const COMMON_SHARE: f64 = 0.7;
/// The time to add a write to a window and to answer it, of this store
/// (docs/results/compaction.md); C-4 §5.3 has 100.
const JOIN_NS: f64 = 35.0;
/// The cost of sending a request from one layer to the other: copying it, routing it, the rings,
/// taking the reply back. It is an estimate for a server of two layers at batches of 20, not a
/// measurement.
const LAYER_FORWARDING_NS: f64 = 60.0;
/// Requests of 16 bytes that travel in one line from core to core (μTPS §3.4).
const REQUESTS_PER_LINE: f64 = 4.0;
/// Of the SLO when none is given (C-4 §3.1).
const SLO_RATIO: f64 = 10.0;

/// Simulates every preset.
///
/// # Errors
/// When an option is out of its range.
pub fn plan(
    workload: &Workload,
    costs: &CostTable,
    options: &PlanOptions,
) -> Result<Plan, SimError> {
    options.check()?;
    if workload.items.is_empty() {
        return Err(refused("a workload needs at least one request"));
    }
    let jobs = Jobs::draw(&workload.items, costs, options.seed);
    let service_mean_ns = options.request_ns + jobs.store_mean_ns();
    let slo_ns = options.slo_ns.unwrap_or(SLO_RATIO * service_mean_ns);
    // If one core was measured, the cost of moving lines is unknown and left out.
    let lines = costs.line_transfer().unwrap_or(LineTransfer::OFF);
    let setting = Setting {
        cores: options.cores,
        costs: Costs {
            request_ns: options.request_ns,
            forwarding_ns: lines.transfer_ns / REQUESTS_PER_LINE,
            layer_forwarding_ns: LAYER_FORWARDING_NS,
            join_ns: JOIN_NS,
            lines,
        },
        slo_ns,
    };
    let capacity = options.cores as f64 / service_mean_ns;
    let found = parallel::map("plan", options.threads, PRESETS, |preset| {
        let set_ups = preset.set_ups(&jobs, &setting);
        let found = set_ups.into_iter().map(|set_up| search(&jobs, set_up, slo_ns, capacity));
        found.collect::<Result<Vec<Found>, SimError>>().map(best)
    });
    let found = found.into_iter().collect::<Result<Vec<Option<Found>>, SimError>>()?;
    let found: Vec<(&Preset, Found)> =
        PRESETS.iter().zip(found).filter_map(|(preset, found)| Some((preset, found?))).collect();
    let best_rate = found.iter().map(|(_, found)| found.rate).fold(0.0, f64::max);
    let common = if best_rate > 0.0 { best_rate * COMMON_SHARE } else { capacity / 2.0 };
    let rows = parallel::map("plan", options.threads, &found, |(preset, found)| {
        let outcome = found.set_up.run(&jobs, common).map_err(refused)?;
        Ok(Row {
            preset: preset.name,
            dispatch: found.set_up.dispatch,
            dispatchers: found.set_up.dispatchers(),
            throughput_rps: found.rate * 1e9,
            p99_ns: found.p99_ns,
            p99_common_ns: outcome.is_sustained.then(|| outcome.latencies.quantile(0.99)),
        })
    });
    let mut rows = rows.into_iter().collect::<Result<Vec<Row>, SimError>>()?;
    // A stable sort: among equals the joint default comes first, then the order of the presets.
    rows.sort_by(|left, right| right.throughput_rps.total_cmp(&left.throughput_rps));
    Ok(Plan { rows, slo_ns, service_mean_ns, common_rps: common * 1e9 })
}

impl PlanOptions {
    /// Checks what [`plan`] would refuse, before there is a workload.
    ///
    /// # Errors
    /// When an option is out of its range.
    pub fn check(&self) -> Result<(), SimError> {
        if !(1..=CORES_MAX).contains(&self.cores) {
            return Err(refused(format!("{} cores: write 1 to {CORES_MAX}", self.cores)));
        }
        if self.slo_ns.is_some_and(|slo_ns| slo_ns.is_nan() || slo_ns <= 0.0) {
            return Err(refused("an SLO of no time: write e.g. 100us"));
        }
        if !(self.request_ns.is_finite() && self.request_ns >= 0.0) {
            return Err(refused(format!("a request cannot cost {} ns", self.request_ns)));
        }
        Ok(())
    }
}

/// The highest load that a preset serves.
struct Found {
    set_up: SetUp,
    /// Requests a nanosecond.
    rate: f64,
    p99_ns: u64,
}

/// Of equals the first; `None` where the cores are too few for the preset.
fn best(found: Vec<Found>) -> Option<Found> {
    found.into_iter().reduce(|best, other| if other.rate > best.rate { other } else { best })
}

/// Halves the range of loads between none and the capacity of the cores.
fn search(jobs: &Jobs, set_up: SetUp, slo_ns: f64, capacity: f64) -> Result<Found, SimError> {
    let (mut low, mut high) = (0.0, capacity);
    let mut p99_ns = 0;
    for _ in 0..SEARCH_STEPS {
        let rate = (low + high) / 2.0;
        let outcome = set_up.run(jobs, rate).map_err(refused)?;
        let found_ns = outcome.latencies.quantile(0.99);
        if found_ns as f64 <= slo_ns && outcome.is_sustained {
            (low, p99_ns) = (rate, found_ns);
        } else {
            high = rate;
        }
    }
    Ok(Found { set_up, rate: low, p99_ns })
}

fn refused(error: impl ToString) -> SimError {
    SimError::BadParameter { what: error.to_string() }
}

#[cfg(test)]
mod tests;
