//! The controller's step in each epoch: merge the workers' histograms, find the threshold, divide
//! the workers.
//!
//! # Worked example
//! Minos's default workload on 8 workers: of 800 requests one is large and takes 171 packets; all
//! others take one. The threshold is the 99th percentile of sizes, about 1400 bytes. Small requests
//! cost 799 of 970 packets, 82 %; ceil(8 x 0.82) = 7 workers are small, one is large. With six
//! times as many large requests the small share is 44 %: 4 and 4, and the four large workers divide
//! the sizes so that each has a quarter of the packets.

use std::borrow::Borrow;

use base::WorkerId;

use super::cost::Cost;
use super::histogram::{CLASS_COUNT, WorkerSizes, class_of, size_max_of, size_middle_of};
use super::{LargeRange, SizePlan};

/// The rule for the largest small size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// At this share of all requests by size (Minos: 0.99).
    Quantile(f64),
    /// This size, whatever the requests are (Minos §6.2).
    Static {
        /// The largest size that is small.
        bytes: u64,
    },
}

/// The controller's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeOptions {
    /// The number of workers, small and large.
    pub worker_count: usize,
    /// The rule for the largest small size.
    pub threshold: Threshold,
    /// The minimum of a threshold computed from a quantile: a request that costs no more than the
    /// smallest gains nothing from a worker of its own (0: the paper has no minimum).
    pub threshold_min_bytes: u64,
    /// The cost of a request.
    pub cost: Cost,
    /// The new epoch's weight against all earlier ones, above 0 and at most 1 (Minos: 0.9).
    pub new_weight: f64,
    /// Large workers beyond those that the shares give: the paper's alternative of §6.1, for
    /// drivers whose large workers steal small requests one at a time.
    pub extra_large_workers: usize,
}

impl SizeOptions {
    /// The paper's settings.
    pub fn paper(worker_count: usize) -> SizeOptions {
        SizeOptions {
            worker_count,
            threshold: Threshold::Quantile(0.99),
            threshold_min_bytes: 0,
            cost: Cost::default(),
            new_weight: 0.9,
            extra_large_workers: 0,
        }
    }
}

/// Makes a plan per epoch from the workers' counts.
#[derive(Debug)]
pub struct SizeController {
    options: SizeOptions,
    /// Each worker's counts as of the last epoch.
    seen: Vec<Vec<u32>>,
    news: Vec<u64>,
    /// The moving average of counts; `None` before the first epoch with requests.
    smooth: Option<Vec<f64>>,
    /// The small requests' share of the cost, under the plan in force.
    small_share: f64,
    plan: SizePlan,
}

impl SizeController {
    /// All workers small, all sizes small (or up to the static threshold), until an epoch has
    /// ended.
    ///
    /// # Panics
    /// Without workers, and with a weight out of its range.
    pub fn new(options: SizeOptions) -> SizeController {
        assert!(options.new_weight > 0.0 && options.new_weight <= 1.0, "a weight is in (0, 1]");
        let threshold_bytes = match options.threshold {
            Threshold::Quantile(_) => u64::MAX,
            Threshold::Static { bytes } => bytes,
        };
        SizeController {
            seen: Vec::new(),
            news: vec![0; CLASS_COUNT],
            smooth: None,
            small_share: 1.0,
            plan: SizePlan::all_small(options.worker_count, threshold_bytes),
            options,
        }
    }

    /// The plan in force.
    pub fn plan(&self) -> &SizePlan {
        &self.plan
    }

    /// Makes the plan for another number of workers, from the counts so far.
    ///
    /// # Panics
    /// Without workers.
    pub fn set_workers(&mut self, worker_count: usize) -> &SizePlan {
        self.options.worker_count = worker_count;
        self.plan = match &self.smooth {
            Some(_) => self.make_plan(),
            None => SizePlan::all_small(worker_count, self.plan.threshold_bytes),
        };
        &self.plan
    }

    /// The small requests' share of all cost when the plan in force was made.
    pub fn small_share(&self) -> f64 {
        self.small_share
    }

    /// Ends an epoch and makes the plan for the next one. `workers` must be the same each time. An
    /// epoch without requests leaves the plan unchanged.
    pub fn end_epoch<W: Borrow<WorkerSizes>>(&mut self, workers: &[W]) -> &SizePlan {
        self.seen.resize_with(workers.len(), || vec![0; CLASS_COUNT]);
        self.news.fill(0);
        for (worker, seen) in workers.iter().zip(&mut self.seen) {
            worker.borrow().add_news(seen, &mut self.news);
        }
        if self.news.iter().any(|count| *count > 0) {
            self.smooth_in_news();
            self.plan = self.make_plan();
        }
        &self.plan
    }

    /// `H = 0.9 x new + 0.1 x old` (Minos §3). The first epoch has no old one.
    fn smooth_in_news(&mut self) {
        let weight = self.options.new_weight;
        match &mut self.smooth {
            None => self.smooth = Some(self.news.iter().map(|count| *count as f64).collect()),
            Some(smooth) => {
                for (old, new) in smooth.iter_mut().zip(&self.news) {
                    *old = weight * *new as f64 + (1.0 - weight) * *old;
                }
            }
        }
    }

    fn make_plan(&mut self) -> SizePlan {
        let counts = self.smooth.as_deref().unwrap_or(&[]);
        let threshold_bytes = match self.options.threshold {
            Threshold::Quantile(quantile) => {
                let found_bytes = size_max_of(class_at(counts, quantile));
                found_bytes.max(self.options.threshold_min_bytes)
            }
            Threshold::Static { bytes } => bytes,
        };
        let costs: Vec<f64> = counts
            .iter()
            .enumerate()
            .map(|(class, count)| count * self.options.cost.of(size_middle_of(class)) as f64)
            .collect();
        // A static threshold inside a class counts that class as small.
        let (small, large) = costs.split_at((class_of(threshold_bytes) + 1).min(costs.len()));
        let (small_cost, large_cost): (f64, f64) = (small.iter().sum(), large.iter().sum());
        let small_share = small_cost / (small_cost + large_cost);
        let small_workers = self.small_workers(small_share);
        let first_class = costs.len() - large.len();
        self.small_share = small_share;
        let worker_count = self.options.worker_count;
        if small_workers == worker_count {
            return SizePlan::all_small(worker_count, threshold_bytes);
        }
        let large = equal_cost_ranges(large, first_class, small_workers, worker_count);
        SizePlan { threshold_bytes, worker_count, small_workers, large, standby: None }
    }

    /// `ceil(workers x small share of cost)`, minus the extra large ones, and at least one.
    fn small_workers(&self, small_share: f64) -> usize {
        let worker_count = self.options.worker_count;
        // The sums are floats: a share of exactly 7/8 must not round up to 8 workers.
        let small_workers = (worker_count as f64 * small_share - 1e-9).ceil() as usize;
        let extra = if small_share < 1.0 { self.options.extra_large_workers } else { 0 };
        small_workers.saturating_sub(extra).clamp(1, worker_count)
    }
}

/// The class that holds the `quantile` of all counts.
fn class_at(counts: &[f64], quantile: f64) -> usize {
    let rank = quantile * counts.iter().sum::<f64>();
    let mut seen = 0.0;
    let mut last = 0;
    for (class, count) in counts.iter().enumerate() {
        if *count > 0.0 {
            seen += count;
            last = class;
            if seen >= rank {
                break;
            }
        }
    }
    last
}

/// Cuts the large classes into ranges of equal cost, one per large worker, where the classes allow
/// it.
///
/// A class goes to the worker in whose share its middle lies. Workers into whose share no middle
/// falls (because a class before or after is larger than a share) help the range with the highest
/// cost per worker.
fn equal_cost_ranges(
    costs: &[f64],
    first_class: usize,
    first_worker: usize,
    worker_count: usize,
) -> Vec<LargeRange> {
    let large_workers = worker_count - first_worker;
    let target = costs.iter().sum::<f64>() / large_workers as f64;
    let mut before = 0.0;
    let mut ranges: Vec<Range> = Vec::new();
    for (position, cost) in costs.iter().enumerate().filter(|(_, cost)| **cost > 0.0) {
        let share = (((before + cost / 2.0) / target) as usize).min(large_workers - 1);
        before += cost;
        let size_max_bytes = size_max_of(first_class + position);
        match ranges.last_mut() {
            Some(range) if range.share == share => {
                range.size_max_bytes = size_max_bytes;
                range.cost += cost;
            }
            _ => ranges.push(Range { share, size_max_bytes, cost: *cost, workers: 1 }),
        }
    }
    if ranges.is_empty() {
        // There were no large requests: all large workers share any that come.
        ranges.push(Range { share: 0, size_max_bytes: u64::MAX, cost: 1.0, workers: 1 });
    }
    for _ in ranges.len()..large_workers {
        let neediest = ranges.iter_mut().reduce(|most, range| {
            if range.cost_per_worker() > most.cost_per_worker() { range } else { most }
        });
        neediest.expect("there is a range").workers += 1;
    }
    with_workers(&ranges, first_worker)
}

struct Range {
    share: usize,
    size_max_bytes: u64,
    cost: f64,
    workers: usize,
}

impl Range {
    fn cost_per_worker(&self) -> f64 {
        self.cost / self.workers as f64
    }
}

fn with_workers(ranges: &[Range], first_worker: usize) -> Vec<LargeRange> {
    let mut next_worker = first_worker;
    let mut found = Vec::with_capacity(ranges.len());
    for range in ranges {
        found.push(LargeRange {
            size_max_bytes: range.size_max_bytes,
            first: WorkerId(next_worker as u16),
            workers: range.workers,
        });
        next_worker += range.workers;
    }
    if let Some(last) = found.last_mut() {
        last.size_max_bytes = u64::MAX;
    }
    found
}
