//! Runs the model over a range of loads: the code that the figures share.

use policy::window::WindowRules;

use crate::c4_hot::machine::{ItemSize, Machine};
use crate::c4_hot::model::{self, RunOptions, RunResult};
use crate::figure::{Axis, Chart, Options, Scale, Series, Style, Table};
use sim::parallel;

/// Requests of a point: the hot item gets 1 % of them as writes.
const REQUESTS: u64 = 300_000;

/// The treatment of writes with a queued write of the same key behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compaction {
    Off,
    /// A window stays open until its deadline: C-4's server.
    Deadline,
    /// A window closes once its key is drained: ours.
    Early,
}

impl Compaction {
    pub(crate) const ALL: [Compaction; 3] =
        [Compaction::Off, Compaction::Deadline, Compaction::Early];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Compaction::Off => "baseline",
            Compaction::Deadline => "compaction, to the deadline",
            Compaction::Early => "compaction, closing early",
        }
    }

    fn windows(self, machine: &Machine) -> Option<WindowRules> {
        match self {
            Compaction::Off => None,
            Compaction::Deadline => Some(machine.deadline_windows()),
            Compaction::Early => Some(machine.early_windows()),
        }
    }
}

/// A skewed workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) zipf: f64,
    pub(crate) write_share_ratio: f64,
}

/// C-4's Figs 11 and 12, Table 2.
pub(crate) const SKEWED_READS: Workload = Workload { zipf: 1.25, write_share_ratio: 0.05 };
/// C-4's Fig. 13.
pub(crate) const SKEWED_WRITES: Workload = Workload { zipf: 0.99, write_share_ratio: 0.5 };

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) machine: Machine,
    pub(crate) size: ItemSize,
    pub(crate) workload: Workload,
    pub(crate) compaction: Compaction,
    pub(crate) load_mrps: f64,
}

/// The result of a run.
pub(crate) struct Run {
    pub(crate) point: Point,
    pub(crate) result: RunResult,
}

impl Run {
    pub(crate) fn p99_ns(&self) -> f64 {
        self.result.latencies.quantile(0.99) as f64
    }

    pub(crate) fn hot_service_ns(&self) -> f64 {
        self.result.cores[self.result.hot_core].service_mean_ns()
    }
}

/// Runs all points; each one's randomness follows from the seed and its place in the list.
pub(crate) fn run_all(what: &'static str, options: &Options, points: &[Point]) -> Vec<Run> {
    let numbered: Vec<(u64, Point)> = (0..).zip(points.iter().copied()).collect();
    parallel::map(what, options.threads, &numbered, |(index, point)| {
        let seed = workload::scramble::mix(options.seed ^ workload::scramble::mix(*index));
        let result = model::run(&RunOptions {
            machine: point.machine,
            zipf: point.workload.zipf,
            key_count: point.size.key_count(),
            write_share_ratio: point.workload.write_share_ratio,
            load_mrps: point.load_mrps,
            windows: point.compaction.windows(&point.machine),
            requests: options.requests.unwrap_or(REQUESTS),
            seed,
        });
        Run { point: *point, result }
    })
}

/// Every kind of compaction at every load.
pub(crate) fn grid(
    machine: Machine,
    size: ItemSize,
    workload: Workload,
    loads_mrps: &[f64],
) -> Vec<Point> {
    let point = |compaction, load_mrps| Point { machine, size, workload, compaction, load_mrps };
    let of_one = |compaction| loads_mrps.iter().map(move |&load_mrps| point(compaction, load_mrps));
    Compaction::ALL.into_iter().flat_map(of_one).collect()
}

/// The highest load such that it and all below have their 99th percentile within `slo_ns`.
pub(crate) fn load_max<'a>(runs: impl Iterator<Item = &'a Run>, slo_ns: f64) -> Option<&'a Run> {
    let mut ascending: Vec<&Run> = runs.collect();
    ascending.sort_by(|left, right| left.point.load_mrps.total_cmp(&right.point.load_mrps));
    ascending.into_iter().take_while(|run| run.p99_ns() <= slo_ns).last()
}

/// The runs of one machine and one kind of compaction.
pub(crate) fn of<'a>(
    runs: &'a [Run],
    machine: &'a str,
    compaction: Compaction,
) -> impl Iterator<Item = &'a Run> {
    let is_wanted =
        move |run: &&Run| run.point.machine.name == machine && run.point.compaction == compaction;
    runs.iter().filter(is_wanted)
}

/// One line for each kind of compaction, and the paper's marks behind the first two.
pub(crate) fn chart(
    title: &str,
    y: Axis,
    runs: &[Run],
    machine: &str,
    value: impl Fn(&Run) -> f64,
    marks: &[(Compaction, Vec<(f64, f64)>)],
) -> Chart {
    let mut series = Vec::new();
    for compaction in Compaction::ALL {
        let points = of(runs, machine, compaction).map(|run| (run.point.load_mrps, value(run)));
        let label = compaction.name().to_owned();
        let points = points.collect();
        series.push(Series { label: label.clone(), style: Style::Line, points });
        for (_, points) in marks.iter().filter(|(marked, _)| *marked == compaction) {
            let label = label.clone();
            series.push(Series { label, style: Style::Marks, points: points.clone() });
        }
    }
    let x = Axis { label: "offered load, MRPS".to_owned(), scale: Scale::Linear };
    Chart { title: title.to_owned(), x, y, series }
}

/// Every run as a row.
pub(crate) fn table(runs: &[Run]) -> Table {
    let columns = [
        "machine",
        "item_bytes",
        "policy",
        "load_mrps",
        "latency_ns_p99",
        "hot_service_ns_mean",
        "hot_mrps",
        "hot_busy_pct",
        "others_service_ns_mean",
        "window_writes_mean",
        "retries_pct",
    ];
    let row = |run: &Run| {
        let hot = &run.result.cores[run.result.hot_core];
        let retries = run.result.retry_count as f64 / run.result.latencies.count() as f64;
        vec![
            run.point.machine.name.to_owned(),
            run.point.size.name.to_owned(),
            run.point.compaction.name().to_owned(),
            format!("{:.1}", run.point.load_mrps),
            format!("{:.0}", run.p99_ns()),
            format!("{:.0}", run.hot_service_ns()),
            format!("{:.2}", hot.mrps()),
            format!("{:.0}", hot.busy_pct()),
            format!("{:.0}", run.result.others_service_mean_ns()),
            format!("{:.1}", run.result.window_length_mean),
            format!("{:.2}", retries * 100.0),
        ]
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: runs.iter().map(row).collect() }
}

/// A load in words; a curve that meets no objective says so.
pub(crate) fn mrps(run: Option<&Run>) -> String {
    run.map_or("no load".to_owned(), |run| format!("{:.0} MRPS", run.point.load_mrps))
}

/// A linear axis.
pub(crate) fn linear(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Linear }
}

/// A logarithmic axis.
pub(crate) fn log(label: &str) -> Axis {
    Axis { label: label.to_owned(), scale: Scale::Log }
}
