//! Figs 9 and 10: p99 over load, from the queueing model that the artifact contains beside the
//! paper's cycle-level simulation.

use super::super::search::{FULL_LOAD_RPS, SLO_NS, load};
use super::super::{Balance, PointOptions, PointResult, Policy, point};
use crate::figure::{Axis, Chart, Options, Report, Scale, Series, Style, Table};
use sim::{SimError, parallel};

const REQUESTS_DEFAULT: u64 = 400_000;
const LOAD_COUNT: usize = 16;

const POLICIES: [(Policy, &str); 4] = [
    (Policy::Erew, "EREW"),
    (Policy::Crew, "CREW"),
    (Policy::DCrew, "d-CREW"),
    (Policy::Ideal, "Ideal"),
];

/// Throughput under SLO in millions a second, by the paper's cycle-level simulation (C-4 §7.1).
const PAPER_50: [(&str, f64); 3] = [("EREW", 76.0), ("CREW", 91.0), ("d-CREW", 91.0)];
const PAPER_85: [(&str, f64); 3] = [("EREW", 76.0), ("CREW", 83.0), ("d-CREW", 87.0)];
/// Entries of the write table at 90 million a second, mean (C-4 §7.1.1).
const PAPER_ENTRIES: [(f64, f64); 2] = [(50.0, 30.0), (85.0, 52.0)];

pub fn fig9(options: &Options) -> Result<Report, SimError> {
    run(options, "c4-fig9", &[50.0])
}

pub fn fig10(options: &Options) -> Result<Report, SimError> {
    run(options, "c4-fig10", &[50.0, 85.0])
}

struct Point {
    write_percent: f64,
    label: &'static str,
    load: f64,
    result: PointResult,
}

fn run(options: &Options, name: &'static str, shares: &[f64]) -> Result<Report, SimError> {
    let requests = options.requests.unwrap_or(REQUESTS_DEFAULT);
    let mut asked = Vec::new();
    for share in shares {
        for (policy, label) in POLICIES {
            for index in 0..LOAD_COUNT {
                // Ideal has no writes to keep apart.
                let write_percent = if policy == Policy::Ideal { 0.0 } else { *share };
                let point = PointOptions {
                    policy,
                    balance: Balance::Bounded(2),
                    load: load(index, LOAD_COUNT),
                    write_percent,
                    requests,
                    seed: options.seed,
                    fidelity: options.fidelity,
                    ..PointOptions::default()
                };
                asked.push((*share, label, point));
            }
        }
    }
    let results = parallel::map(name, options.threads, &asked, |(.., options)| point(options));
    let mut points = Vec::new();
    for ((write_percent, label, options), result) in asked.into_iter().zip(results) {
        points.push(Point { write_percent, label, load: options.load, result: result? });
    }
    Ok(Report {
        table: table(&points),
        charts: shares.iter().map(|share| chart(&points, *share)).collect(),
        text: text(&points, shares, requests),
    })
}

fn table(points: &[Point]) -> Table {
    let columns = ["wr_frac", "policy", "load", "mrps", "p50_ns", "p99_ns", "ewt_avg", "ewt_max"];
    let row = |point: &Point| {
        vec![
            point.write_percent.to_string(),
            point.label.to_owned(),
            format!("{:.6}", point.load),
            format!("{:.3}", point.load * FULL_LOAD_RPS / 1e6),
            point.result.p50_ns.to_string(),
            point.result.p99_ns.to_string(),
            format!("{:.1}", point.result.ewt_avg),
            point.result.ewt_max.to_string(),
        ]
    };
    Table { columns: columns.map(String::from).into(), rows: points.iter().map(row).collect() }
}

fn paper(share: f64) -> [(&'static str, f64); 3] {
    if share == 85.0 { PAPER_85 } else { PAPER_50 }
}

fn curve<'a>(points: &'a [Point], share: f64, label: &'a str) -> impl Iterator<Item = &'a Point> {
    points.iter().filter(move |point| point.write_percent == share && point.label == label)
}

fn chart(points: &[Point], share: f64) -> Chart {
    let mut series = Vec::new();
    for (_, label) in POLICIES {
        let line = curve(points, share, label)
            .map(|point| (point.load * FULL_LOAD_RPS / 1e6, point.result.p99_ns as f64 / 1000.0));
        series.push(Series { label: label.into(), style: Style::Line, points: line.collect() });
        if let Some((_, mrps)) = paper(share).into_iter().find(|row| row.0 == label) {
            let points = vec![(mrps, SLO_NS as f64 / 1000.0)];
            series.push(Series { label: label.into(), style: Style::Marks, points });
        }
    }
    Chart {
        title: format!("{share} % writes, uniform keys"),
        x: Axis { label: "load (million requests/s)".into(), scale: Scale::Linear },
        y: Axis { label: "p99 latency (us)".into(), scale: Scale::Log },
        series,
    }
}

/// The highest load whose p99 keeps the SLO, in millions a second.
fn under_slo_mrps(points: &[Point], share: f64, label: &str) -> f64 {
    let kept = curve(points, share, label).take_while(|point| point.result.p99_ns <= SLO_NS);
    kept.last().map_or(0.0, |point| point.load * FULL_LOAD_RPS / 1e6)
}

fn text(points: &[Point], shares: &[f64], requests: u64) -> String {
    let mut lines = String::new();
    for share in shares {
        for (label, mrps) in paper(*share) {
            let ours = under_slo_mrps(points, *share, label);
            lines.push_str(&format!(
                "\n- {share} % writes, {label}: {ours:.1} MRPS under SLO, {mrps:.0} in the paper."
            ));
        }
        let is_below = |point: &&Point| point.load * FULL_LOAD_RPS / 1e6 <= 90.0;
        let near_90 = curve(points, *share, "d-CREW").filter(is_below).last();
        let theirs = PAPER_ENTRIES.into_iter().find(|row| row.0 == *share);
        if let (Some(point), Some((_, mean))) = (near_90, theirs) {
            lines.push_str(&format!(
                "\n- {share} % writes: {:.0} entries of the write table on average at {:.1} MRPS, \
                 at most {}; the paper says {mean:.0} at 90 MRPS. Here an entry lives from the \
                 dispatch to the acknowledged completion.",
                point.result.ewt_avg,
                point.load * FULL_LOAD_RPS / 1e6,
                point.result.ewt_max,
            ));
        }
    }
    format!(
        "64 cores, 16 loads of {requests} requests. The paper's figure comes from a cycle-level \
         simulation of the whole system, so its marks (throughput under the SLO of 7 us) are of \
         another model; loads here step by 5.8 MRPS.\n{lines}"
    )
}
