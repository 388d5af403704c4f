//! Rowan-KV Fig. 11 and Table 2: the latency of a remote write, and the throughput with other item
//! sizes.

use std::fmt::Write as _;

use super::costs::{SCHEMES, Scheme};
use super::peaks::{Bench, CLIENTS_MANY, OBJECTS, sizes_of};
use super::store::{self, Outcome, Setup};
use crate::figure::{Axis, Chart, Options, Report, Scale, Series, Style, Table};
use sim::{SimError, parallel};

/// Clients of each worker: near the peak of both.
const CLIENTS_NEAR_PEAK: usize = 8;
/// §6.3: medians and 99th percentiles in microseconds.
const PAPER: [(Scheme, f64, Option<f64>); 2] =
    [(Scheme::Rowan, 6.6, None), (Scheme::Write, 11.5, Some(24.0))];
const SHARES: [f64; 13] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];

/// Million operations a second, half of them PUTs; in the order of [`SCHEMES`].
const TABLE_2: [(&str, [f64; 5]); 2] =
    [("up2x", [73.9, 61.5, 56.2, 70.3, 56.0]), ("udb", [62.5, 50.4, 49.9, 57.1, 50.6])];

pub(crate) fn run(options: &Options) -> Result<Report, SimError> {
    let bench = Bench::new(options)?;
    let measured = |scheme: Scheme| PAPER.iter().any(|(of, ..)| *of == scheme);
    let points: Vec<Setup> = bench
        .costs
        .iter()
        .filter(|(scheme, _)| measured(*scheme))
        .map(|costs| bench.setup(*costs, 0.5, CLIENTS_NEAR_PEAK))
        .collect();
    let outcomes = parallel::map("rowan-fig11", options.threads, &points, store::run);
    let us = |outcome: &Outcome, share| outcome.persistence.quantile(share) as f64 / 1e3;
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    let mut text = format!(
        "Rowan-KV Fig. 11: from when a primary sends an entry until it is acknowledged, near the \
         peak, half of the requests PUTs, {} objects. The medians are fitted.\n\n\
         | scheme | median, paper | here | p99, paper | here |\n|---|---|---|---|---|\n",
        bench.objects
    );
    for (setup, outcome) in points.iter().zip(&outcomes) {
        let name = setup.scheme.name().to_owned();
        for share in SHARES {
            let cells = [name.clone(), format!("{share}"), format!("{:.2}", us(outcome, share))];
            rows.push(cells.to_vec());
        }
        let points = SHARES.map(|share| (us(outcome, share), share)).to_vec();
        series.push(Series { label: name.clone(), style: Style::Line, points });
        for (_, median, p99) in PAPER.iter().filter(|(of, ..)| *of == setup.scheme) {
            let p99_text = p99.map_or_else(|| "-".to_owned(), |p99| p99.to_string());
            let (p50_us, p99_us) = (us(outcome, 0.5), us(outcome, 0.99));
            let _ =
                writeln!(text, "| {name} | {median} | {p50_us:.1} | {p99_text} | {p99_us:.1} |");
            let points = [Some((*median, 0.5)), p99.map(|p99| (p99, 0.99))];
            let points = points.into_iter().flatten().collect();
            series.push(Series { label: name.clone(), style: Style::Marks, points });
        }
    }
    let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
    let title = "remote persistence".to_owned();
    let chart = Chart { title, x: axis("us"), y: axis("share of writes"), series };
    let columns = ["scheme", "share", "us"].map(str::to_owned).to_vec();
    Ok(Report { table: Table { columns, rows }, charts: vec![chart], text })
}

/// Table 2, and ZippyDB's objects beside it.
pub(crate) fn run_table2(options: &Options) -> Result<Report, SimError> {
    let bench = Bench::new(options)?;
    let mut points = Vec::new();
    for objects in OBJECTS {
        let sizes = sizes_of(objects)?;
        let setup = |costs| Setup { sizes: sizes.clone(), ..bench.setup(costs, 0.5, CLIENTS_MANY) };
        points.extend(bench.costs.iter().map(|costs| (objects, setup(*costs))));
    }
    let outcomes =
        parallel::map("rowan-table2", options.threads, &points, |(_, setup)| store::run(setup));
    let paper = |objects: &str, scheme: Scheme| {
        let row = TABLE_2.iter().find(|(name, _)| *name == objects)?;
        Some(row.1[scheme as usize])
    };
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (index, objects) in OBJECTS.iter().enumerate() {
        let found = points.iter().zip(&outcomes).filter(|((of, _), _)| of == objects);
        let found: Vec<(Scheme, f64)> =
            found.map(|((_, setup), outcome)| (setup.scheme, outcome.mops)).collect();
        let rowan = found.iter().find(|(scheme, _)| *scheme == Scheme::Rowan).map(|(_, it)| *it);
        for (scheme, mops) in &found {
            let in_paper = paper(objects, *scheme);
            let rowan_in_paper = paper(objects, Scheme::Rowan);
            let ratio = rowan.map_or_else(String::new, |rowan| format!("{:.2}", rowan / mops));
            let paper_ratio = in_paper.zip(rowan_in_paper).map(|(other, own)| own / other);
            let show = |value: Option<f64>, digits: usize| {
                value.map_or_else(String::new, |value| format!("{value:.digits$}"))
            };
            rows.push(vec![
                (*objects).to_owned(),
                scheme.name().to_owned(),
                format!("{mops:.1}"),
                show(in_paper, 1),
                ratio,
                show(paper_ratio, 2),
            ]);
        }
        let at = |scheme: Scheme| scheme as usize as f64;
        let points = found.iter().map(|(scheme, mops)| (at(*scheme), *mops)).collect();
        let label = (*objects).to_owned();
        series.push(Series { label: label.clone(), style: Style::Bars, points });
        let marks =
            SCHEMES.iter().filter_map(|(_, of)| Some((at(*of), paper(OBJECTS[index], *of)?)));
        series.push(Series { label, style: Style::Marks, points: marks.collect() });
    }
    let columns = ["objects", "scheme", "mops", "paper_mops", "rowan_to_it", "paper_rowan_to_it"];
    let table = Table { columns: columns.map(str::to_owned).to_vec(), rows };
    let axis = |label: &str, scale| Axis { label: label.to_owned(), scale };
    const NAMES: &[&str] = &["rowan", "rpc", "write", "batch", "share"];
    let chart = Chart {
        title: "half of the requests PUTs".to_owned(),
        x: axis("replication scheme", Scale::Names(NAMES)),
        y: axis("Mops/s", Scale::Linear),
        series,
    };
    let text = format!(
        "Rowan-KV Table 2: throughput by objects: ZippyDB's of 90.8 B, UP2X's of 57.25 B, UDB's of \
         153.8 B. {} A request costs the same CPU time here whatever its length, so that UDB's and \
         UP2X's differ by what their memory does alone.",
        bench.about()
    );
    Ok(Report { table, charts: vec![chart], text })
}
