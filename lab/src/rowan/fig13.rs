//! Rowan-KV Fig. 13: throughput by length of entries, copies, workers and DIMMs.

use std::fmt::Write as _;

use super::costs::Scheme;
use super::peaks::{Bench, CLIENTS_MANY};
use super::store::{self, Setup};
use crate::figure::{Axis, Chart, Options, Report, Scale, Series, Style, Table};
use sim::{SimError, parallel};

/// The varied parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Panel {
    EntryBytes,
    Copies,
    Workers,
    Dimms,
}

const PANELS: [(Panel, &str, &[usize]); 4] = [
    (Panel::EntryBytes, "entry_bytes", &[64, 128, 256, 512, 1024]),
    (Panel::Copies, "copies", &[2, 3, 4, 5]),
    (Panel::Workers, "workers", &[8, 16, 24, 32]),
    (Panel::Dimms, "dimms", &[1, 2, 3]),
];

/// The paper's statements in words (§6.4), as rowan to another.
const PAPER: [(Panel, usize, Scheme, f64); 3] = [
    (Panel::EntryBytes, 1024, Scheme::Rpc, 1.27),
    (Panel::EntryBytes, 1024, Scheme::Write, 1.0),
    (Panel::Dimms, 1, Scheme::Write, 1.61),
];

pub(crate) fn run(options: &Options) -> Result<Report, SimError> {
    let bench = Bench::new(options)?;
    let mut points = Vec::new();
    for (panel, _, values) in PANELS {
        for value in values {
            let of = |costs| {
                (panel, *value, changed(bench.setup(costs, 0.5, CLIENTS_MANY), panel, *value))
            };
            points.extend(bench.costs.iter().map(|costs| of(*costs)));
        }
    }
    let outcomes =
        parallel::map("rowan-fig13", options.threads, &points, |(_, _, setup)| store::run(setup));
    let found: Vec<Found> = points
        .iter()
        .zip(&outcomes)
        .map(|((panel, value, setup), outcome)| Found {
            panel: *panel,
            value: *value,
            scheme: setup.scheme,
            mops: outcome.mops,
            amplification: outcome.amplification,
        })
        .collect();
    let charts = PANELS.iter().map(|(panel, name, _)| chart(&bench, &found, *panel, name));
    Ok(Report { table: table(&found), charts: charts.collect(), text: text(&bench, &found) })
}

struct Found {
    panel: Panel,
    value: usize,
    scheme: Scheme,
    mops: f64,
    amplification: f64,
}

fn changed(setup: Setup, panel: Panel, value: usize) -> Setup {
    match panel {
        Panel::EntryBytes => Setup { sizes: vec![value as u64], ..setup },
        Panel::Copies => Setup { copies: value, ..setup },
        Panel::Workers => Setup { workers: value, ..setup },
        Panel::Dimms => Setup { dimms: value, ..setup },
    }
}

fn name(panel: Panel) -> &'static str {
    PANELS.iter().find(|(of, ..)| *of == panel).map_or("", |(_, name, _)| name)
}

fn mops(found: &[Found], panel: Panel, value: usize, scheme: Scheme) -> Option<f64> {
    let is_it = |it: &&Found| (it.panel, it.value, it.scheme) == (panel, value, scheme);
    found.iter().find(is_it).map(|it| it.mops)
}

fn table(found: &[Found]) -> Table {
    let columns = ["changed", "value", "scheme", "mops", "rowan_to_it", "amplification"];
    let row = |it: &Found| {
        let rowan = mops(found, it.panel, it.value, Scheme::Rowan);
        vec![
            name(it.panel).to_owned(),
            it.value.to_string(),
            it.scheme.name().to_owned(),
            format!("{:.1}", it.mops),
            rowan.map_or_else(String::new, |rowan| format!("{:.2}", rowan / it.mops)),
            format!("{:.3}", it.amplification),
        ]
    };
    Table { columns: columns.map(str::to_owned).to_vec(), rows: found.iter().map(row).collect() }
}

fn chart(bench: &Bench, found: &[Found], panel: Panel, name: &str) -> Chart {
    let series = bench.costs.iter().map(|(scheme, _)| {
        let own = found.iter().filter(|it| (it.panel, it.scheme) == (panel, *scheme));
        let points = own.map(|it| (it.value as f64, it.mops)).collect();
        Series { label: scheme.name().to_owned(), style: Style::Line, points }
    });
    let scale = if panel == Panel::EntryBytes { Scale::Log } else { Scale::Linear };
    Chart {
        title: format!("by {}", name.replace('_', " ")),
        x: Axis { label: name.replace('_', " "), scale },
        y: Axis { label: "Mops/s".to_owned(), scale: Scale::Linear },
        series: series.collect(),
    }
}

fn text(bench: &Bench, found: &[Found]) -> String {
    let mut text = format!(
        "Rowan-KV Fig. 13: the most that six servers do, half of the requests PUTs, {} objects but \
         in the first panel. {} The paper's curves have no numbers; its text has these, as rowan \
         to another:\n\n| changed | to | other | paper | here |\n|---|---|---|---|---|\n",
        bench.objects,
        bench.about()
    );
    for (panel, value, other, paper) in PAPER {
        let of = |scheme| mops(found, panel, value, scheme);
        let Some((rowan, other_mops)) = of(Scheme::Rowan).zip(of(other)) else { continue };
        let _ = writeln!(
            text,
            "| {} | {value} | {} | {paper:.2} | {:.2} |",
            name(panel),
            other.name(),
            rowan / other_mops
        );
    }
    text.push_str(
        "\nWith entries of whole lines nothing is amplified, and `write` is as fast as `rowan`. \
         From 512 B on the memory is the limit of all here: 6 GB/s a server is 23.4 Mops/s of 1024 \
         B at three copies, and what arrives in order over the network keeps three DIMMs less busy \
         than workers do, so that `rpc` is ahead where the paper has it 21 % behind. More copies \
         cost `rpc` more CPU time and `write` more amplification. With 8 workers the logs of \
         others still fit the combining buffers, with 16 they begin not to. With one DIMM the \
         memory is the limit, and `write` is further behind than in the paper.\n",
    );
    text
}
