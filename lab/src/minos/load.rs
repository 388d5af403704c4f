//! Minos Figs 3, 4 and 5: latency against load, for read-mostly and write-intensive requests.

use std::fmt::Write as _;

use workload::profile::Minos;

use super::draw::{columns, line, linear, log, marks, row};
use super::server::{MinosVariant, Outcome, Setup, System, run};
use crate::figure::{Chart, Figure, Options, Report, Series, Table};
use sim::SimError;
use sim::parallel;

/// `minos-fig3`.
pub const FIG3: Figure = Figure {
    name: "minos-fig3",
    about: "p99 against throughput, 95 % GET: HKH, HKH+WS, SHO, Minos",
    run: |options| load_figure("minos-fig3", options, Minos::default(), &PAPER_FIG3),
};

/// `minos-fig4`.
pub const FIG4: Figure = Figure {
    name: "minos-fig4",
    about: "p99 of large requests: what Minos makes them pay",
    run: run_fig4,
};

/// `minos-fig5`.
pub const FIG5: Figure = Figure {
    name: "minos-fig5",
    about: "p99 against throughput, 50 % GET: HKH, HKH+WS, SHO, Minos",
    run: |options| {
        let workload = Minos { get_pct: 50, ..Minos::default() };
        load_figure("minos-fig5", options, workload, &PAPER_FIG5)
    },
};

/// Each point's requests.
const REQUESTS: u64 = 400_000;
/// Large requests are few: Fig. 4 needs more.
const REQUESTS_FIG4: u64 = 600_000;

/// A system and what charts call it.
pub(super) type Named = (&'static str, System);

const MINOS: Named = ("Minos", System::Minos(MinosVariant::Paper));
const SAMPLING: Named = ("Minos, 1 in 16 counted", System::Minos(MinosVariant::Sampling(16)));
const LARGE_STEAL: Named =
    ("Minos, one more large core, stealing", System::Minos(MinosVariant::LargeSteal));
const STEALING: Named = ("HKH+WS", System::HkhStealing);

/// In the order of the legends; `SHO` stands for the best number of hand-off cores.
pub(super) const SYSTEMS: [Named; 6] = [
    ("HKH", System::Hkh),
    STEALING,
    ("SHO 1", System::Sho(1)),
    ("SHO 2", System::Sho(2)),
    ("SHO 3", System::Sho(3)),
    MINOS,
];

/// What the paper's text says about a figure: `(system, Mops, p99 in µs)`.
type PaperPoints = [(&'static str, f64, f64)];

/// Where charts put a peak whose latency the paper does not print.
const PEAK_US: f64 = 1000.0;

/// §6.1: Minos does 5.6 Mops under 50 µs, 2.4 times HKH+WS, and 1.75 times under 100 µs (taken at
/// its peak); peaks 6.2 Mops, SHO's 10 % less.
const PAPER_FIG3: [(&str, f64, f64); 7] = [
    ("Minos", 5.6, 50.0),
    ("HKH+WS", 5.6 / 2.4, 50.0),
    ("HKH+WS", 6.2 / 1.75, 100.0),
    ("Minos", 6.2, PEAK_US),
    ("HKH", 6.2, PEAK_US),
    ("HKH+WS", 6.2, PEAK_US),
    ("SHO 1", 6.2 * 0.9, PEAK_US),
];

/// §6.2: Minos saturates at 6.3 Mops, 10 % below HKH and HKH+WS, which it matches without
/// profiling.
const PAPER_FIG5: [(&str, f64, f64); 4] = [
    ("Minos", 6.3, PEAK_US),
    ("HKH", 7.0, PEAK_US),
    ("HKH+WS", 7.0, PEAK_US),
    ("Minos, 1 in 16 counted", 7.0, PEAK_US),
];

struct Point {
    name: &'static str,
    offered_mops: f64,
    outcome: Outcome,
}

impl Point {
    fn p99_us(&self) -> f64 {
        self.outcome.all.quantile(0.99) as f64 / 1000.0
    }

    fn p99_large_us(&self) -> f64 {
        self.outcome.large.quantile(0.99) as f64 / 1000.0
    }
}

fn points(
    name: &'static str,
    options: &Options,
    systems: &[Named],
    workload: Minos,
    requests: u64,
) -> Vec<Point> {
    let loads = [0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.3, 6.6, 7.0];
    let asked: Vec<(Named, f64)> =
        systems.iter().flat_map(|system| loads.map(|load| (*system, load))).collect();
    parallel::map(name, options.threads, &asked, |((name, system), offered_mops)| {
        let setup = Setup::steady(*system, workload, *offered_mops, requests);
        // A second of the paper has six million sizes to sample from; a run here is too short to
        // sample anew each epoch, so it keeps what it learnt before the run.
        let is_sampling = matches!(system, System::Minos(MinosVariant::Sampling(_)));
        let epochs = if is_sampling { 1 } else { setup.epochs };
        let outcome = run(&Setup { seed: options.seed, epochs, ..setup });
        Point { name, offered_mops: *offered_mops, outcome }
    })
}

fn table(points: &[Point]) -> Table {
    let names = [
        "system",
        "sustained",
        "offered_mops",
        "answered_mops",
        "p50_us",
        "p99_us",
        "p999_us",
        "p99_large_us",
        "link_share",
    ];
    let rows = points.iter().map(|point| {
        let Outcome { all, answered_mops, link_share, .. } = &point.outcome;
        let us = |quantile| all.quantile(quantile) as f64 / 1000.0;
        let sustained = if point.outcome.is_sustained() { "yes" } else { "no" };
        let numbers = [point.offered_mops, *answered_mops, us(0.5), us(0.99), us(0.999)];
        let large = [point.p99_large_us(), *link_share];
        row(&[point.name, sustained], &[&numbers[..], &large[..]].concat())
    });
    Table { columns: columns(&names), rows: rows.collect() }
}

/// Only what the server kept up with, as in the paper.
fn curve(points: &[Point], name: &str, of: impl Fn(&Point) -> f64) -> Series {
    let mine = points.iter().filter(|point| point.name == name && point.outcome.is_sustained());
    line(name, mine.map(|point| (point.outcome.answered_mops, of(point))).collect())
}

fn load_figure(
    name: &'static str,
    options: &Options,
    workload: Minos,
    paper: &PaperPoints,
) -> Result<Report, SimError> {
    let systems = [&SYSTEMS[..], &[SAMPLING, LARGE_STEAL]].concat();
    let requests = options.requests.unwrap_or(REQUESTS);
    let points = points(name, options, &systems, workload, requests);
    let mut series = Vec::new();
    for (name, _) in &systems {
        series.push(curve(&points, name, Point::p99_us));
        let theirs = paper.iter().filter(|(system, ..)| system == name);
        let theirs: Vec<(f64, f64)> = theirs.map(|(_, mops, us)| (*mops, *us)).collect();
        if !theirs.is_empty() {
            series.push(marks(name, &theirs));
        }
    }
    let chart = Chart {
        title: format!("{} % GET, 0.125 % large up to 500 KB", workload.get_pct),
        x: linear("throughput, Mops"),
        y: log("p99, µs"),
        series,
    };
    let text = load_text(&points, &systems, workload, requests, paper);
    Ok(Report { table: table(&points), charts: vec![chart], text })
}

/// The highest sustained throughput with a p99 of at most `slo_us`.
fn throughput_under(points: &[Point], name: &str, slo_us: f64) -> f64 {
    let good = points.iter().filter(|point| {
        point.name == name && point.outcome.is_sustained() && point.p99_us() <= slo_us
    });
    good.map(|point| point.outcome.answered_mops).fold(0.0, f64::max)
}

/// What every figure of the server model has to say first.
pub(super) const MODEL: &str = "The server model of `minos/server.rs`: 8 cores, 40 Gb/s towards \
the clients with a send queue per core, the workload of Minos §5.3, open loop. Costs are \
calibrated on the paper's peaks (see the module), latencies under load are not fitted; \
`--fidelity` makes no difference. Minos's threshold, core counts and size ranges come from the \
policy that the server runs. The paper publishes its curves as pictures only: marks are the \
numbers that its text prints.";

fn load_text(
    points: &[Point],
    systems: &[Named],
    workload: Minos,
    requests: u64,
    paper: &PaperPoints,
) -> String {
    let mut text = format!(
        "{MODEL}\n\n{} % GET; {requests} requests a point, the first tenth not counted; \
         only points with no growing backlog are drawn. Marks at 1 ms are peaks, whose latency the \
         paper does not print.\n\n\
         | system | Mops under 50 µs | under 100 µs | sustained | paper |\n\
         | --- | --- | --- | --- | --- |\n",
        workload.get_pct
    );
    for (name, _) in systems {
        let under = |slo_us| throughput_under(points, name, slo_us);
        let _ = write!(
            text,
            "| {name} | {:.2} | {:.2} | {:.2} |",
            under(50.0),
            under(100.0),
            under(f64::INFINITY)
        );
        for (_, mops, us) in paper.iter().filter(|(system, ..)| system == name) {
            let what = if *us == PEAK_US { "peak".to_owned() } else { format!("under {us} µs") };
            let _ = write!(text, " {mops:.2} {what};");
        }
        text.push_str(" |\n");
    }
    text.push_str(
        "\nWhat makes the tails of HKH+WS and SHO is not the cores but the send queues: a small \
         reply that its core makes after a large one stands behind up to 340 packets on the wire, \
         and no stealing takes it out of there. The grid of loads is coarse (0.3 to 0.5 Mops). The \
         wire is full at 6.6 Mops of 95 % GET where the paper peaks at 6.2 with the card 93 % \
         utilised; without lost packets our peaks come out that much higher. A large core that \
         steals small requests (§6.1's alternative) takes one only while its send queue is empty: \
         otherwise the small reply waits behind the large one's packets, and the p99 is that of \
         HKH+WS.\n",
    );
    text
}

/// §6.1: "up to a factor of 2 for the 99th percentile latency of large requests before the system
/// goes into saturation"; drawn near the peak.
const PAPER_FIG4_FACTOR: (f64, f64) = (6.0, 2.0);

fn run_fig4(options: &Options) -> Result<Report, SimError> {
    let systems = [STEALING, MINOS, LARGE_STEAL];
    let requests = options.requests.unwrap_or(REQUESTS_FIG4);
    let points = points("minos-fig4", options, &systems, Minos::default(), requests);
    let ratio = |name: &str| -> Vec<(f64, f64)> {
        let of = |name: &str| -> Vec<&Point> {
            points.iter().filter(|point| point.name == name).collect()
        };
        let pairs = of(name).into_iter().zip(of(STEALING.0));
        let kept_up = pairs
            .filter(|(mine, beside)| mine.outcome.is_sustained() && beside.outcome.is_sustained());
        kept_up
            .map(|(mine, beside)| (mine.offered_mops, mine.p99_large_us() / beside.p99_large_us()))
            .collect()
    };
    let latency = Chart {
        title: "large requests".to_owned(),
        x: linear("throughput, Mops"),
        y: log("p99 of large requests, µs"),
        series: systems.map(|(name, _)| curve(&points, name, Point::p99_large_us)).into(),
    };
    let penalty = Chart {
        title: "beside HKH+WS".to_owned(),
        x: linear("throughput, Mops"),
        y: linear("p99 of large requests over HKH+WS's"),
        series: vec![
            line(MINOS.0, ratio(MINOS.0)),
            marks(MINOS.0, &[PAPER_FIG4_FACTOR]),
            line(LARGE_STEAL.0, ratio(LARGE_STEAL.0)),
        ],
    };
    let worst = |name: &str| ratio(name).iter().map(|point| point.1).fold(0.0, f64::max);
    let text = format!(
        "{MODEL}\n\nThe price of the small requests' tail: one core for what is 17.6 % of the \
         packets. {requests} requests a point, an eighth of a percent of them large. At its worst, \
         while both keep up, Minos's large requests have {:.2} times the p99 of HKH+WS's (paper: \
         up to 2, the mark, at high load); with one more large core that steals single small \
         requests (§6.1's alternative) {:.2} times. In our model a second large \
         core does not help: two cut the sizes between them, so the largest wait for each other, \
         and the wire, which all systems share, is most of a large reply's time under load.\n",
        worst(MINOS.0),
        worst(LARGE_STEAL.0),
    );
    Ok(Report { table: table(&points), charts: vec![latency, penalty], text })
}
