//! The report as one JSON object. Scripts rely on names and units: add fields, never rename them.

use hdrhistogram::Histogram;
use serde::Serialize;
use store::StoreStats;

use crate::error::BenchError;
use crate::plan::Plan;
use crate::summary::{Summary, quantile_us};
use crate::tally::CallTimes;
use crate::target::Target;

#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    ops_per_second: f64,
    ops_per_cpu_second: Option<f64>,
    server_cpu_ns_per_op: Option<f64>,
    latency_us: Latency,
    /// Latencies of values up to 1400 bytes and above, if a run has both.
    latency_small_us: Option<Latency>,
    latency_large_us: Option<Latency>,
    operations: u64,
    requests: u64,
    duration_seconds: f64,
    interrupted: bool,
    hits: u64,
    misses: u64,
    hit_ratio: Option<f64>,
    writes: u64,
    scanned: u64,
    mismatches: u64,
    errors: u64,
    first_error: Option<&'a str>,
    unanswered: u64,
    dropped: u64,
    server_cpu_share: Option<f64>,
    server_pids: &'a [u32],
    client_cpu_share: f64,
    /// The state of the embedded store at the end.
    store: Option<Store>,
    pages: Option<String>,
    /// Only with `--latency every`.
    calls: Option<Calls>,
    populate_calls: Option<Calls>,
    config: Config<'a>,
}

#[derive(Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    p9999: f64,
    max: f64,
    mean: f64,
}

/// Memory that the embedded store uses, and how often it had to make room.
#[derive(Serialize)]
struct Store {
    items: u64,
    entry_bytes: u64,
    log_used_bytes: u64,
    log_bytes: u64,
    index_used_bytes: u64,
    index_bytes: u64,
    evicted: u64,
    expired: u64,
    cleaned_bytes: u64,
}

impl Store {
    fn of(stats: &StoreStats) -> Store {
        Store {
            items: stats.items,
            entry_bytes: stats.entry_bytes,
            log_used_bytes: stats.log_used_bytes,
            log_bytes: stats.log_bytes,
            index_used_bytes: stats.index_used_bytes,
            index_bytes: stats.index_bytes,
            evicted: stats.evicted_by_log + stats.evicted_by_index,
            expired: stats.expired,
            cleaned_bytes: stats.cleaned_bytes,
        }
    }
}

/// Calls into the embedded store, each timed; CPU time excludes time that other processes took.
#[derive(Serialize)]
struct Calls {
    execute_us: CallLatency,
    execute_cpu_us: CallLatency,
    maintain_us: CallLatency,
    maintain_cpu_us: CallLatency,
    /// The control: as much arithmetic without memory, which shows the machine's effect on such
    /// calls.
    control_us: CallLatency,
    control_cpu_us: CallLatency,
}

impl Calls {
    fn of(calls: &CallTimes) -> Calls {
        Calls {
            execute_us: CallLatency::of(&calls.execute_wall_ns),
            execute_cpu_us: CallLatency::of(&calls.execute_cpu_ns),
            maintain_us: CallLatency::of(&calls.maintain_wall_ns),
            maintain_cpu_us: CallLatency::of(&calls.maintain_cpu_ns),
            control_us: CallLatency::of(&calls.control_wall_ns),
            control_cpu_us: CallLatency::of(&calls.control_cpu_ns),
        }
    }
}

#[derive(Serialize)]
struct CallLatency {
    count: u64,
    p50: f64,
    p99: f64,
    p999: f64,
    p9999: f64,
    max: f64,
    /// Calls that took more than 100 us.
    over_100us: u64,
}

impl CallLatency {
    fn of(histogram: &Histogram<u64>) -> CallLatency {
        CallLatency {
            count: histogram.len(),
            p50: quantile_us(histogram, 0.5),
            p99: quantile_us(histogram, 0.99),
            p999: quantile_us(histogram, 0.999),
            p9999: quantile_us(histogram, 0.9999),
            max: quantile_us(histogram, 1.0),
            over_100us: histogram.count_between(100_000, u64::MAX),
        }
    }
}

#[derive(Serialize)]
struct Config<'a> {
    target: String,
    protocol: &'static str,
    workload: &'a str,
    distribution: String,
    keys: u64,
    key_size_bytes: usize,
    value_size: String,
    mget: usize,
    threads: usize,
    large_threads: usize,
    /// Absent for the embedded store.
    connections: Option<usize>,
    pipeline: Option<usize>,
    /// Absent for a server.
    batch: Option<usize>,
    memory_bytes: Option<u64>,
    #[serde(rename = "loop")]
    pacing: &'static str,
    rate: Option<f64>,
    arrivals: Option<String>,
    warmup_seconds: f64,
    seed: u64,
    populated: bool,
}

pub(super) fn encode(plan: &Plan, summary: &Summary) -> Result<String, BenchError> {
    let total = &summary.total;
    let (small, large) = match summary.latency_ns_by_size() {
        Some([small, large]) => (Some(latency(&small)), Some(latency(&large))),
        None => (None, None),
    };
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        ops_per_second: total.ops_per_second,
        ops_per_cpu_second: summary.ops_per_cpu_second,
        server_cpu_ns_per_op: summary.server_cpu_ns_per_op(),
        latency_us: latency(&total.latency_ns),
        latency_small_us: small,
        latency_large_us: large,
        operations: total.operation_count,
        requests: total.request_count,
        duration_seconds: total.wall_seconds(),
        interrupted: summary.was_interrupted,
        hits: total.hit_count,
        misses: total.miss_count,
        hit_ratio: total.hit_ratio(),
        writes: total.write_count,
        scanned: total.scanned_count,
        mismatches: total.mismatch_count,
        errors: total.error_count,
        first_error: total.error_first.as_deref(),
        unanswered: total.unanswered_count,
        dropped: total.dropped_count,
        server_cpu_share: summary.server_cpu_share(),
        server_pids: summary.server_cpu.as_ref().map_or(&[], |cpu| &cpu.pids),
        client_cpu_share: summary.client_cpu_share(),
        store: summary.store.as_ref().map(Store::of),
        pages: summary.pages.map(|pages| pages.to_string()),
        calls: total.calls.as_ref().map(Calls::of),
        populate_calls: total.populate_calls.as_ref().map(Calls::of),
        config: config(plan),
    };
    serde_json::to_string_pretty(&report)
        .map_err(|error| BenchError::Write { path: "the JSON report".into(), source: error.into() })
}

fn latency(latency_ns: &Histogram<u64>) -> Latency {
    Latency {
        p50: quantile_us(latency_ns, 0.5),
        p90: quantile_us(latency_ns, 0.9),
        p99: quantile_us(latency_ns, 0.99),
        p999: quantile_us(latency_ns, 0.999),
        p9999: quantile_us(latency_ns, 0.9999),
        max: latency_ns.max() as f64 / 1e3,
        mean: latency_ns.mean() / 1e3,
    }
}

fn config(plan: &Plan) -> Config<'_> {
    let is_embedded = plan.target.is_in_process();
    let (target, protocol) = match &plan.target {
        Target::Embedded => ("embedded:".to_owned(), "embedded"),
        Target::Null => ("null:".to_owned(), "none"),
        Target::Server { protocol, address } => (address.clone(), protocol.name()),
        Target::Native(target) => (target.to_string(), "native"),
    };
    Config {
        target,
        protocol,
        workload: &plan.workload,
        distribution: plan.draw.popularity.to_string(),
        keys: plan.draw.key_count,
        key_size_bytes: plan.key_format.len_max_bytes(),
        value_size: plan.value_sizes.to_string(),
        mget: plan.mget,
        threads: plan.thread_count,
        large_threads: plan.large_thread_count,
        connections: (!is_embedded).then_some(plan.connection_count),
        pipeline: (!is_embedded).then_some(plan.pipeline),
        batch: is_embedded.then_some(plan.embedded.batch),
        memory_bytes: if is_embedded { plan.embedded.memory_bytes } else { None },
        pacing: if plan.open_loop.is_some() { "open" } else { "closed" },
        rate: plan.open_loop.map(|open| open.per_second),
        arrivals: plan.open_loop.map(|open| open.arrivals.to_string()),
        warmup_seconds: plan.warmup.as_secs_f64(),
        seed: plan.draw.seed,
        populated: plan.populate,
    }
}
