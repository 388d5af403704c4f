//! C-4's queueing model: 64 cores behind one load balancer, versions and retries, compaction.
//!
//! ```text
//!  arrivals ─+1 ns─▶ balancer ─+30 ns─▶ core's queue ─▶ T_kvs ─▶ T_fixed ─▶ latency counted
//!                     ▲   │ policy::Router, policy::Depths         │
//!                     └───┴───────────── completion, +30 ns ───────┘
//! ```
//!
//! The crate `policy` makes the decisions (route, pin, open and close a window).
//! [`Fidelity::Artifact`] reproduces what the published artifact does and no server would: a stale
//! view of completions, one service stream for all cores, dropped latencies. `docs/design/sim.md`
//! lists it.
//!
//! # References
//! C-4 §3, appendix A; the artifact's parameters are [`PointOptions::default`].

mod artifact;
mod grid;
mod keys;
mod model;
mod search;
mod streams;
mod versions;

pub use grid::FIGURES;

use crate::figure::Fidelity;
use sim::SimError;
use sim::latency::Latencies;

/// The policy by which requests find their core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Any core serves any key: JBSQ(2) (C-4 §3.1), or the shortest queue without a bound if
    /// `balance` says so.
    Ideal,
    /// The key's owner serves reads and writes.
    Erew,
    /// The owner writes, any core reads.
    Crew,
    /// A write goes to the core that holds the partition's entry, else to any core.
    DCrew,
}

/// The choice of a core for balanced requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Join the bounded shortest queue: wait while all hold this many.
    Bounded(u32),
    /// Join the shortest queue.
    Unbounded,
}

/// One point: a policy under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointOptions {
    /// The policy.
    pub policy: Policy,
    /// JBSQ(2) in C-4.
    pub balance: Balance,
    /// Cores, 1 to 4096.
    pub workers: usize,
    /// Load as a share of the mean service rate of all cores, above 0.
    pub load: f64,
    /// Percentage of writes, 0 to 100.
    pub write_percent: f64,
    /// Exponent of the keys' popularity; 0 is uniform.
    pub zipf: f64,
    /// Whether dependent writes are compacted.
    pub compaction: bool,
    /// Distinct keys.
    pub keys: u64,
    /// Requests that arrive.
    pub requests: u64,
    /// Seed of our own streams; the artifact's streams have their own.
    pub seed: u64,
    /// The model.
    pub fidelity: Fidelity,
}

impl Default for PointOptions {
    /// C-4's parameters, at 90 % load and 50 % writes.
    fn default() -> PointOptions {
        PointOptions {
            policy: Policy::DCrew,
            balance: Balance::Bounded(2),
            workers: 64,
            load: 0.9,
            write_percent: 50.0,
            zipf: 0.0,
            compaction: false,
            keys: 1_600_000,
            requests: 1_000_000,
            seed: 1,
            fidelity: Fidelity::Honest,
        }
    }
}

/// The result of a point. Times run from generation to the end of service.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct PointResult {
    /// Median latency.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Completed requests a second of simulated time.
    pub throughput_rps: f64,
    /// Mean number of entries of the write table, at each dispatch.
    pub ewt_avg: f64,
    /// The highest number of entries.
    pub ewt_max: u64,
    /// Compaction windows opened.
    pub windows: u64,
    /// Writes that windows saved: joined, and not the last.
    pub writes_compacted: u64,
    /// Requests whose latency was counted.
    pub requests: u64,
    /// Completed requests a second of real time; the only figure that does not depend on the seed
    /// alone.
    pub simulated_requests_per_second: f64,
    /// Late requests that the artifact's histogram does not contain; always 0 in the honest model.
    pub dropped: u64,
    /// All latencies that were counted.
    #[serde(skip)]
    pub latencies: Latencies,
}

impl PointResult {
    /// p99 with the dropped requests counted as late; `None` if it is among them.
    pub fn p99_of_all_ns(&self) -> Option<u64> {
        self.latencies.quantile_beside(0.99, self.dropped)
    }
}

/// Runs one point.
///
/// # Errors
/// When an option is out of its range.
pub fn point(options: &PointOptions) -> Result<PointResult, SimError> {
    check(options)?;
    Ok(model::run(options))
}

/// The least load: below it times grow until a service is lost in their rounding.
const LOAD_MIN: f64 = 1e-6;

fn check(options: &PointOptions) -> Result<(), SimError> {
    let bad = |what: String| Err(SimError::BadParameter { what });
    if !(1..=4096).contains(&options.workers) {
        return bad(format!("{} workers is out of range: give 1 to 4096", options.workers));
    }
    if !(LOAD_MIN..=10.0).contains(&options.load) {
        let load = options.load;
        return bad(format!("load {load:?} is out of range: give above 0, {LOAD_MIN:?} to 10"));
    }
    if !(0.0..=100.0).contains(&options.write_percent) {
        return bad(format!("{} % writes is out of range: give 0 to 100", options.write_percent));
    }
    if !(0.0..=20.0).contains(&options.zipf) {
        return bad(format!("zipf {} is out of range: give 0 to 20", options.zipf));
    }
    if options.keys == 0 || options.keys > 1 << 40 {
        return bad(format!("{} keys is out of range: give 1 to 2^40", options.keys));
    }
    if options.requests == 0 || options.requests > 1 << 40 {
        return bad(format!("{} requests is out of range: give 1 to 2^40", options.requests));
    }
    if options.fidelity == Fidelity::Artifact && options.keys > artifact::KEYS_MAX {
        return bad(format!(
            "{} keys is out of range: the artifact's model takes 1 to {}",
            options.keys,
            artifact::KEYS_MAX
        ));
    }
    Ok(())
}
