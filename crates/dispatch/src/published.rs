//! The state that the manager publishes: metrics, INFO and the admin pages read it.

mod decision_log;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use host::resctrl::CacheWays;
use policy::taxonomy::Observed as Load;
use policy::tuner::{Configuration, Measurement, SLO_OVER_RATIO_MAX, TunerCounters};
use serde_json::{Value, json};

use crate::sizes::StoredSizes;

pub use decision_log::{DecisionLog, Entry};

/// The cache ways of the memory-resident threads.
pub type SharedWays = Arc<Mutex<CacheWays>>;

/// The state that the manager shows to other threads.
#[derive(Debug, Default)]
pub struct Published {
    /// Recent decisions.
    pub decision_log: DecisionLog,
    /// The recent workload, in C-4's taxonomy.
    pub workload: Shown<Workload>,
    /// The state of the tuner.
    pub tuner: Shown<TunerView>,
    /// The sizes of stored items.
    pub stored_sizes: StoredSizes,
    /// Whether requests were answered in time recently.
    pub slo: Shown<Lately>,
    /// The ways of the memory-resident threads and of all; set once, if the machine has them.
    pub ways: OnceLock<SharedWays>,
}

impl Published {
    /// The number of ways of the memory-resident threads, and of the others.
    pub fn ways(&self) -> Option<(u32, u32)> {
        let ways = self.ways.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some((ways.ways(), ways.ways_max()))
    }
}

/// A value that the manager writes and any thread may read; `None`: there is nothing to show.
#[derive(Debug)]
pub struct Shown<T>(Mutex<Option<T>>);

impl<T> Default for Shown<T> {
    fn default() -> Shown<T> {
        Shown(Mutex::new(None))
    }
}

impl<T: Copy> Shown<T> {
    /// The present value.
    pub fn get(&self) -> Option<T> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces it.
    pub fn set(&self, value: Option<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// The workload of the last second with requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Counts and popularity.
    pub load: Load,
}

impl Workload {
    /// As `/stats` shows it.
    pub fn json(&self) -> Value {
        let region = self.load.region();
        let seen = self.load.popularity;
        json!({
            "region": region.to_string(),
            "suits": region.recommendation().to_string(),
            "reads": self.load.read_count,
            "writes": self.load.write_count,
            "write_ratio": self.load.write_ratio(),
            "hottest_share_ratio": seen.map(|seen| seen.hottest_share_ratio),
            "zipf_exponent": seen.and_then(|seen| seen.zipf_exponent),
        })
    }
}

/// The last second; for one without samples only the objective and the throughput are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lately {
    /// The objective.
    pub target_ns: u64,
    /// Sampled requests.
    pub samples: u64,
    /// The fraction that took longer than the objective.
    pub over_ratio: f64,
    /// The time within which half were answered; `None`: nothing was sampled.
    pub latency_ns_p50: Option<u64>,
    /// The time within which 99 of 100 were answered.
    pub latency_ns_p99: Option<u64>,
    /// All executed requests.
    pub throughput_rps: f64,
    /// Those among them that were in time, estimated from the samples.
    pub goodput_rps: f64,
}

impl Lately {
    /// Whether 99 of 100 were in time.
    pub fn is_kept(&self) -> bool {
        self.over_ratio <= SLO_OVER_RATIO_MAX
    }

    /// As `/stats` shows it.
    pub fn json(&self) -> Value {
        json!({
            "is_kept": self.is_kept(),
            "samples": self.samples,
            "over_ratio": self.over_ratio,
            "latency_ns_p50": self.latency_ns_p50,
            "latency_ns_p99": self.latency_ns_p99,
            "throughput_rps": self.throughput_rps,
            "goodput_rps": self.goodput_rps,
        })
    }
}

/// The tuner at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerView {
    /// Its present activity.
    pub state: &'static str,
    /// The positions of the knobs.
    pub configuration: Configuration,
    /// Events since the start.
    pub counters: TunerCounters,
    /// The last window's measurement.
    pub measurement: Measurement,
}

impl TunerView {
    /// As `/stats` shows it.
    pub fn json(&self) -> Value {
        let Configuration { policies, mr_thread_count, cached_item_count, mr_way_count } =
            self.configuration;
        json!({
            "state": self.state,
            "policies": policies.to_string(),
            "mr_threads": mr_thread_count,
            "hot_set_items": cached_item_count,
            "mr_ways": mr_way_count,
            "throughput_rps": self.measurement.throughput_rps,
            "busy_ratio": self.measurement.busy_ratio,
            "hot_share_ratio": self.measurement.hot_share_ratio,
            "over_slo_ratio": self.measurement.over_slo_ratio,
            "searches_total": self.counters.search_count,
            "restarts_total": self.counters.restart_count,
            "adopted_total": self.counters.adopted_count,
            "search_windows_total": self.counters.search_window_count,
        })
    }
}
