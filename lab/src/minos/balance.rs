//! Minos Figs 9 and 10: work per core, and a workload that changes.

use std::fmt::Write as _;

use workload::profile::Minos;

use super::draw::{bars, columns, line, linear, log, marks, row};
use super::load::MODEL;
use super::server::{CORES, MinosVariant, Outcome, Setup, System, run};
use crate::figure::{Axis, Chart, Figure, Options, Report, Scale, Table};
use sim::SimError;
use sim::parallel;

/// `minos-fig9`.
pub const FIG9: Figure = Figure {
    name: "minos-fig9",
    about: "requests and packets by core: small and large cores do the same work",
    run: run_fig9,
};

/// `minos-fig10`.
pub const FIG10: Figure = Figure {
    name: "minos-fig10",
    about: "p99 and large cores over time, while the share of large requests changes",
    run: run_fig10,
};

const REQUESTS_FIG9: u64 = 2_000_000;

/// Low, medium and high load by large requests (§6.5), each at about 80 % of the wire.
const LOADS_FIG9: [(f64, f64); 3] = [(0.0625, 5.8), (0.25, 3.9), (0.75, 1.7)];

fn run_fig9(options: &Options) -> Result<Report, SimError> {
    let requests = options.requests.unwrap_or(REQUESTS_FIG9);
    let outcomes = parallel::map("minos-fig9", options.threads, &LOADS_FIG9, |(percent, mops)| {
        let workload = Minos { large_requests_pct: *percent, ..Minos::default() };
        let system = System::Minos(MinosVariant::Paper);
        let setup = Setup::steady(system, workload, *mops, requests);
        run(&Setup { seed: options.seed, ..setup })
    });
    let shares = |counts: &[u64]| -> Vec<f64> {
        let sum = counts.iter().sum::<u64>() as f64;
        counts.iter().map(|count| *count as f64 / sum * 100.0).collect()
    };
    let chart = |title: &str, of: fn(&Outcome) -> &[u64]| {
        let mut series = Vec::new();
        for ((percent, _), outcome) in LOADS_FIG9.iter().zip(&outcomes) {
            let points = shares(of(outcome)).into_iter().enumerate();
            let points = points.map(|(core, share)| (core as f64, share)).collect();
            series.push(bars(&format!("{percent} % large"), points));
        }
        Chart {
            title: title.to_owned(),
            x: Axis { label: "core".to_owned(), scale: Scale::Names(&CORE_NAMES) },
            y: log(&format!("{title}, % of all")),
            series,
        }
    };
    let mut packets = chart("packets", |outcome| &outcome.core_packets);
    let equal: Vec<(f64, f64)> = (0..CORES).map(|core| (core as f64, EQUAL_PERCENT)).collect();
    packets.series.push(marks("paper: roughly the same", &equal));
    let mut rows = Vec::new();
    for ((percent, mops), outcome) in LOADS_FIG9.iter().zip(&outcomes) {
        let by_core = shares(&outcome.core_requests).into_iter().zip(shares(&outcome.core_packets));
        for (core, (requests, packets)) in by_core.enumerate() {
            rows.push(row(&[&core.to_string()], &[*percent, *mops, requests, packets]));
        }
    }
    let names = ["core", "large_percent", "offered_mops", "requests_percent", "packets_percent"];
    let table = Table { columns: columns(&names), rows };
    let charts = vec![chart("requests", |outcome| &outcome.core_requests), packets];
    Ok(Report { table, charts, text: text_fig9(&outcomes, requests) })
}

const CORE_NAMES: [&str; CORES] = ["0", "1", "2", "3", "4", "5", "6", "7"];
/// A core's share if all do the same.
const EQUAL_PERCENT: f64 = 100.0 / CORES as f64;

fn text_fig9(outcomes: &[Outcome], requests: u64) -> String {
    let mut text = format!(
        "{MODEL}\n\n{requests} requests a workload, at about 80 % of the wire. The paper: \"all \
         cores process roughly the same number of packets\" (marks: an equal share), while small \
         cores process more requests and large ones fewer the larger their sizes.\n\n\
         | large, % | large cores | most packets of a core over fewest |\n| --- | --- | --- |\n"
    );
    for ((percent, _), outcome) in LOADS_FIG9.iter().zip(outcomes) {
        let (least, most) = (outcome.core_packets.iter().min(), outcome.core_packets.iter().max());
        let factor = most.map_or(0, |most| *most) as f64 / least.map_or(1, |least| *least) as f64;
        let large = outcome.windows.last().map_or(0, |window| window.large_cores);
        let _ = writeln!(text, "| {percent} | {large} | {factor:.2} |");
    }
    text.push_str(
        "\nThe shares are as equal as whole cores allow: the number of small cores is rounded up, \
         so large cores carry about a third more packets than small ones. With all cores small \
         (0.0625 %) the standby core serves every large request, and small ones between them.\n",
    );
    text
}

/// §6.6: every 20 s one step up to 0.75 % and back.
const PHASES_PERCENT: [f64; 7] = [0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125];
/// Of 1 s each.
const EPOCHS_PER_PHASE: usize = 20;
const REQUESTS_PER_EPOCH: u64 = 60_000;
/// The paper's 2.25 Mops would need 42 Gb/s in the heaviest phase, by the sizes of its Table 1.
const MOPS_FIG10: f64 = 1.85;
const SYSTEMS_FIG10: [(&str, System); 2] =
    [("HKH+WS", System::HkhStealing), ("Minos", System::Minos(MinosVariant::Paper))];

fn run_fig10(options: &Options) -> Result<Report, SimError> {
    let epochs = (PHASES_PERCENT.len() * EPOCHS_PER_PHASE) as u64;
    let requests = options.requests.unwrap_or(REQUESTS_PER_EPOCH * epochs);
    let outcomes = parallel::map("minos-fig10", options.threads, &SYSTEMS_FIG10, |(_, system)| {
        let phase = |percent| Minos { large_requests_pct: percent, ..Minos::default() };
        let setup = Setup::steady(*system, Minos::default(), MOPS_FIG10, requests);
        run(&Setup {
            phases: PHASES_PERCENT.map(phase).into(),
            epochs: EPOCHS_PER_PHASE,
            seed: options.seed,
            ..setup
        })
    });
    let p99 = |outcome: &Outcome| -> Vec<(f64, f64)> {
        let windows = outcome.windows.iter().enumerate();
        windows.map(|(epoch, window)| (epoch as f64, window.p99_ns as f64 / 1000.0)).collect()
    };
    let (stealing, minos) = (&outcomes[0], &outcomes[1]);
    let cores = minos.windows.iter().enumerate();
    let cores = cores.map(|(epoch, window)| (epoch as f64, window.large_cores as f64)).collect();
    let latency = Chart {
        title: "0.125 % large to 0.75 % and back".to_owned(),
        x: linear("epoch (the paper's seconds)"),
        y: log("p99, µs"),
        series: SYSTEMS_FIG10
            .iter()
            .zip(&outcomes)
            .map(|((name, _), outcome)| line(name, p99(outcome)))
            .collect(),
    };
    let large_cores = Chart {
        title: "Minos".to_owned(),
        x: linear("epoch (the paper's seconds)"),
        y: linear("large cores"),
        series: vec![line("large cores", cores)],
    };
    let rows = minos.windows.iter().zip(&stealing.windows).enumerate();
    let rows = rows.map(|(epoch, (mine, theirs))| {
        let percent = PHASES_PERCENT[(epoch / EPOCHS_PER_PHASE).min(PHASES_PERCENT.len() - 1)];
        let p99s = [mine.p99_ns, theirs.p99_ns].map(|ns| ns as f64 / 1000.0);
        row(&[&epoch.to_string()], &[percent, p99s[0], p99s[1], mine.large_cores as f64])
    });
    let names = ["epoch", "large_percent", "minos_p99_us", "hkh_ws_p99_us", "minos_large_cores"];
    let table = Table { columns: columns(&names), rows: rows.collect() };
    let text = text_fig10(minos, stealing, requests / epochs);
    Ok(Report { table, charts: vec![latency, large_cores], text })
}

fn text_fig10(minos: &Outcome, stealing: &Outcome, requests_per_epoch: u64) -> String {
    let mut text = format!(
        "{MODEL}\n\n{MOPS_FIG10} Mops; an epoch stands for the paper's second and has \
         {requests_per_epoch} requests here, so that a backlog has less time to grow than it would \
         in a whole second; the controller looks once an epoch, as it does once a second.\n\n\
         | phase | large, % | median p99 of Minos, µs | of HKH+WS, µs | times lower | large cores \
         |\n\
         | --- | --- | --- | --- | --- | --- |\n"
    );
    let windows =
        minos.windows.chunks(EPOCHS_PER_PHASE).zip(stealing.windows.chunks(EPOCHS_PER_PHASE));
    for ((phase, percent), (mine, theirs)) in PHASES_PERCENT.iter().enumerate().zip(windows) {
        let median_us = |windows: &[super::server::Window]| {
            let mut p99s: Vec<u64> = windows.iter().map(|window| window.p99_ns).collect();
            p99s.sort_unstable();
            p99s[p99s.len() / 2] as f64 / 1000.0
        };
        let (mine_us, theirs_us) = (median_us(mine), median_us(theirs));
        let cores = mine.last().map_or(0, |window| window.large_cores);
        let _ = writeln!(
            text,
            "| {phase} | {percent} | {mine_us:.1} | {theirs_us:.1} | {:.0} | {cores} |",
            theirs_us / mine_us
        );
    }
    text.push_str(
        "\nThe paper: latencies up to two orders of magnitude lower than HKH+WS, large cores \
         following the load from 1 to 4 and back. It runs at 2.25 Mops; by the sizes of its Table \
         1 that is 42 Gb/s in the heaviest phase, more than its card has, so we run at 1.85 Mops, \
         87 % of the wire there.\n",
    );
    text
}
