//! MICA Fig. 13: throughput on many cores, uniform and skewed, EREW, CREW and CREW-T.

use std::fmt::Write as _;

use super::loads::{Population, Skew};
use super::platform::Platform;
use super::run::{Outcome, Setup};
use super::{System, setup, skew_of};
use crate::SimError;
use crate::figure::{Axis, Chart, Figure, Options, Report, Scale, Series, Style, Table};
use crate::parallel;

/// `mica-fig13`.
pub const FIGURE: Figure = Figure {
    name: "mica-fig13",
    about: "throughput of EREW, CREW and CREW-T on 24, 120 and 240 cores, uniform and skewed",
    run,
};

const REQUESTS: u64 = 1_000_000;
const GET_SHARES: [f64; 2] = [0.95, 0.5];

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    platform: Platform,
    system: System,
    is_skewed: bool,
    get_share: f64,
}

/// What the paper says of a bar, in millions of requests a second, and where.
const PAPER: [(usize, System, bool, f64, f64, &str); 12] = [
    (24, System::Erew, false, 0.95, 120.5, "Table 4"),
    (24, System::Erew, true, 0.95, 84.0, "§5.3"),
    (24, System::Crew, true, 0.95, 108.0, "§5.3; our CREW cost is fitted to it"),
    (120, System::Erew, true, 0.95, 130.0, "§6.2"),
    (120, System::Erew, true, 0.5, 130.0, "§6.2"),
    (120, System::Crew, true, 0.5, 280.0 / 1.27, "§6.2, from CREW-T's gain"),
    (120, System::CrewT, true, 0.5, 280.0, "§6.2"),
    (240, System::Erew, false, 0.95, 1200.0, "§6.2"),
    (240, System::Erew, true, 0.95, 140.0, "§6.2"),
    (240, System::Erew, true, 0.5, 140.0, "§6.2"),
    (240, System::Crew, true, 0.5, 420.0 / 1.32, "§6.2, from CREW-T's gain"),
    (240, System::CrewT, true, 0.5, 420.0, "§6.2"),
];

impl Point {
    fn all() -> Vec<Point> {
        let mut points = Vec::new();
        let systems = [
            (System::Erew, false),
            (System::Erew, true),
            (System::Crew, true),
            (System::CrewT, true),
        ];
        for platform in Platform::ALL {
            for (system, is_skewed) in systems {
                // The measured server has no clock of its own for each core.
                if system == System::CrewT && platform == Platform::MEASURED {
                    continue;
                }
                for get_share in GET_SHARES {
                    points.push(Point { platform, system, is_skewed, get_share });
                }
            }
        }
        points
    }

    fn paper(&self) -> Option<(f64, &'static str)> {
        let found = PAPER.iter().find(|(cores, system, is_skewed, get_share, _, _)| {
            (*cores, *system, *is_skewed) == (self.platform.cores, self.system, self.is_skewed)
                && *get_share == self.get_share
        });
        found.map(|entry| (entry.4, entry.5))
    }

    fn label(&self) -> String {
        let keys = if self.is_skewed { "skewed" } else { "uniform" };
        format!("{} {keys} {} % GET", self.system.name(), self.get_share * 100.0)
    }
}

struct Found {
    point: Point,
    setup: Setup,
    outcome: Outcome,
}

impl Found {
    /// Served on the core of the hottest partition.
    fn hot_mrps(&self) -> f64 {
        self.outcome.core_mrps[self.setup.loads.hottest_first()[0]]
    }

    fn hot_batch(&self) -> f64 {
        self.outcome.core_batch[self.setup.loads.hottest_first()[0]]
    }

    /// Served on each other core, on average.
    fn cold_mrps(&self) -> f64 {
        (self.outcome.mrps - self.hot_mrps()) / (self.point.platform.cores - 1) as f64
    }
}

fn run(options: &Options) -> Result<Report, SimError> {
    let (skew, hash_seed) = skew_of(options.fidelity);
    let (skewed, uniform) = (Population::new(skew), Population::new(Skew::Uniform));
    let points = Point::all();
    let requests = options.requests.unwrap_or(REQUESTS);
    let found = parallel::map("mica-fig13", options.threads, &points, |point| {
        let population = if point.is_skewed { &skewed } else { &uniform };
        let setup = setup(point.platform, point.system, point.get_share, population, hash_seed);
        let outcome = setup.saturate(requests, options.seed);
        Found { point: *point, setup, outcome }
    });
    Ok(Report { table: table(&found), charts: charts(&found), text: text(&found, requests) })
}

fn table(found: &[Found]) -> Table {
    let columns = [
        "cores",
        "system",
        "keys",
        "get_pct",
        "mrps",
        "paper_mrps",
        "off_pct",
        "hottest_over_mean",
        "hot_core_mrps",
        "hot_core_batch",
        "cold_core_mrps",
        "latency_p95_us",
    ];
    let row = |found: &Found| {
        let point = found.point;
        let paper = point.paper();
        vec![
            point.platform.cores.to_string(),
            point.system.name().to_owned(),
            if point.is_skewed { "zipf:0.99" } else { "uniform" }.to_owned(),
            format!("{:.0}", point.get_share * 100.0),
            format!("{:.1}", found.outcome.mrps),
            paper.map_or(String::new(), |(mrps, _)| format!("{mrps:.1}")),
            paper.map_or(String::new(), |(mrps, _)| {
                format!("{:+.1}", 100.0 * (found.outcome.mrps / mrps - 1.0))
            }),
            format!("{:.2}", found.setup.loads.hottest_over_mean()),
            format!("{:.2}", found.hot_mrps()),
            format!("{:.1}", found.hot_batch()),
            format!("{:.2}", found.cold_mrps()),
            format!("{:.1}", found.outcome.latency_p95_ns as f64 / 1e3),
        ]
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: found.iter().map(row).collect() }
}

/// One panel for each share of GETs: throughput over cores.
fn charts(found: &[Found]) -> Vec<Chart> {
    GET_SHARES.iter().map(|get_share| chart(found, *get_share)).collect()
}

fn chart(found: &[Found], get_share: f64) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    let of_panel = || found.iter().filter(|found| found.point.get_share == get_share);
    let mut labels: Vec<String> = Vec::new();
    for found in of_panel() {
        let label = found.point.label();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    for label in labels {
        let same = || of_panel().filter(|found| found.point.label() == label);
        let cores = |found: &Found| found.point.platform.cores as f64;
        let ours = same().map(|found| (cores(found), found.outcome.mrps)).collect();
        let paper: Vec<(f64, f64)> = same()
            .filter_map(|found| found.point.paper().map(|(mrps, _)| (cores(found), mrps)))
            .collect();
        series.push(Series { label: label.clone(), style: Style::Line, points: ours });
        if !paper.is_empty() {
            series.push(Series { label, style: Style::Marks, points: paper });
        }
    }
    Chart {
        title: format!("{} % GET", get_share * 100.0),
        x: Axis { label: "cores".to_owned(), scale: Scale::Linear },
        y: Axis { label: "million requests/s".to_owned(), scale: Scale::Log },
        series,
    }
}

fn text(found: &[Found], requests: u64) -> String {
    let probes = found.len();
    let mut text = String::from("# MICA Fig. 13: throughput on 24, 120 and 240 cores\n\n");
    let _ = writeln!(text, "{probes} points, {requests} requests a probe.");
    text
}
