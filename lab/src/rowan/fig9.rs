//! Rowan-KV Fig. 9: median latency against throughput, and the tail at 50 million a second.

use std::fmt::Write as _;

use super::costs::Scheme;
use super::peaks::{Bench, CLIENTS, Curve, MIXES, get_median_us, p99_us, put_median_us};
use super::store::{self, Outcome};
use crate::figure::{Axis, Chart, Options, Report, Scale, Series, Style, Table};
use sim::{SimError, parallel};

/// One scheme's curves, by mix.
type Curves = Vec<(Scheme, Vec<Curve>)>;

/// Rowan-KV against the others: throughput (§6.3), then how much longer their median PUT takes at
/// their peak, each for all and for half of them PUTs.
const PAPER: [(Scheme, [f64; 2], [Option<f64>; 2]); 4] = [
    (Scheme::Rpc, [1.37, 1.22], [Some(1.61), Some(1.77)]),
    (Scheme::Write, [1.61, 1.39], [Some(2.1), Some(2.06)]),
    (Scheme::Batch, [1.19, 1.13], [None, None]),
    (Scheme::Share, [1.53, 1.32], [None, None]),
];
/// 99th percentile at 50 million a second, half of them PUTs, against Rowan-KV's 20.5 us.
const PAPER_TAILS: [(Scheme, f64); 4] =
    [(Scheme::Rpc, 1.26), (Scheme::Write, 2.11), (Scheme::Batch, 1.53), (Scheme::Share, 1.87)];
/// Where that was measured.
const TAIL_MOPS: f64 = 50.0;
const TAIL_MIX: usize = 1;

pub(crate) fn run(options: &Options) -> Result<Report, SimError> {
    let bench = Bench::new(options)?;
    let mut points = Vec::new();
    for scheme in &bench.costs {
        for (_, put_share) in MIXES {
            points.extend(CLIENTS.map(|clients| bench.setup(*scheme, put_share, clients)));
        }
    }
    let outcomes = parallel::map("rowan-fig9", options.threads, &points, store::run);
    let mut outcomes = outcomes.into_iter();
    let mut curve = || Curve(outcomes.by_ref().take(CLIENTS.len()).collect());
    let curves: Curves = bench
        .costs
        .iter()
        .map(|(scheme, _)| (*scheme, MIXES.iter().map(|_| curve()).collect()))
        .collect();
    Ok(Report { table: table(&curves), charts: charts(&curves), text: text(&bench, &curves) })
}

fn table(curves: &Curves) -> Table {
    let columns = [
        "mix",
        "scheme",
        "clients",
        "mops",
        "put_p50_us",
        "put_p99_us",
        "get_p50_us",
        "get_p99_us",
        "all_p99_us",
        "amplification",
    ];
    let mut rows = Vec::new();
    for (mix, (name, _)) in MIXES.iter().enumerate() {
        for (scheme, of) in curves {
            for (clients, outcome) in CLIENTS.iter().zip(&of[mix].0) {
                let us = |latency: u64| format!("{:.1}", latency as f64 / 1e3);
                rows.push(vec![
                    (*name).to_owned(),
                    scheme.name().to_owned(),
                    (clients * store::WORKERS * store::SERVERS).to_string(),
                    format!("{:.1}", outcome.mops),
                    us(outcome.put.quantile(0.5)),
                    us(outcome.put.quantile(0.99)),
                    us(outcome.get.quantile(0.5)),
                    us(outcome.get.quantile(0.99)),
                    format!("{:.1}", p99_us(outcome)),
                    format!("{:.3}", outcome.amplification),
                ]);
            }
        }
    }
    Table { columns: columns.map(str::to_owned).to_vec(), rows }
}

/// As the paper's (a) to (f): PUTs and GETs of each mix that has them.
fn charts(curves: &Curves) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (mix, (name, put_share)) in MIXES.iter().enumerate() {
        if *put_share > 0.0 {
            charts.push(chart(curves, mix, format!("YCSB {name}, PUT"), put_median_us));
        }
        if *put_share < 1.0 {
            charts.push(chart(curves, mix, format!("YCSB {name}, GET"), get_median_us));
        }
    }
    charts
}

fn chart(curves: &Curves, mix: usize, title: String, us: fn(&Outcome) -> f64) -> Chart {
    let series = curves.iter().map(|(scheme, of)| {
        // Beyond, latency says how many clients there are.
        let shown = of[mix].0.iter().take(CLIENTS.len() - 1);
        let points = shown.map(|outcome| (outcome.mops, us(outcome))).collect();
        Series { label: scheme.name().to_owned(), style: Style::Line, points }
    });
    let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear };
    Chart { title, x: axis("Mops/s"), y: axis("median, us"), series: series.collect() }
}

fn text(bench: &Bench, curves: &Curves) -> String {
    let mut text = format!(
        "Rowan-KV Fig. 9 by a model of its six servers, {} objects. {} \"At the peak\" is with the \
         least number of clients that get nine tenths of the most.\n\n\
         | rowan to | mix | throughput, paper | here | median PUT at its peak, paper | here |\n\
         |---|---|---|---|---|---|\n",
        bench.objects,
        bench.about()
    );
    let find = |scheme| curves.iter().find(|(of, _)| *of == scheme).map(|(_, of)| of);
    let Some(rowan) = find(Scheme::Rowan) else { return text };
    for (scheme, throughputs, latencies) in PAPER {
        let Some(other) = find(scheme) else { continue };
        for mix in 0..2 {
            let Some(peak) = other[mix].peak() else { continue };
            let ours_us = rowan[mix].at(peak.mops, put_median_us).unwrap_or(f64::NAN);
            let paper = latencies[mix].map_or_else(|| "-".to_owned(), |ratio| format!("{ratio}"));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.2} | {paper} | {:.2} |",
                scheme.name(),
                MIXES[mix].0,
                throughputs[mix],
                rowan[mix].most_mops() / other[mix].most_mops(),
                put_median_us(peak) / ours_us,
            );
        }
    }
    text.push_str(&tails(rowan, curves));
    text.push_str(LEFT_OUT);
    text
}

/// The tail, and reads alone.
fn tails(rowan: &[Curve], curves: &Curves) -> String {
    let find = |scheme| curves.iter().find(|(of, _)| *of == scheme).map(|(_, of)| of);
    let tail_us = |of: &[Curve]| of[TAIL_MIX].at(TAIL_MOPS, p99_us);
    let Some(ours_us) = tail_us(rowan) else { return String::new() };
    let mut text = format!(
        "\n99th percentile of all requests at {TAIL_MOPS} Mops/s, half of them PUTs: rowan \
         {ours_us:.1} us (the paper 20.5)"
    );
    for (scheme, paper) in PAPER_TAILS {
        let Some(us) = find(scheme).and_then(|of| tail_us(of)) else { continue };
        let _ = write!(text, "; {} {:.2}x ({paper}x)", scheme.name(), us / ours_us);
    }
    text.push_str(". Schemes without a point do not get so far here.\n");
    if let Some(rpc) = find(Scheme::Rpc) {
        let _ = writeln!(
            text,
            "\nReads alone: rpc {:.2} times rowan (the paper 1.05); 5 % PUTs: {:.2} (about 1).",
            rpc[3].most_mops() / rowan[3].most_mops(),
            rpc[2].most_mops() / rowan[2].most_mops(),
        );
    }
    text
}

const LEFT_OUT: &str = "
Where the model differs, and why:

- `batch` gains nothing here: a worker has an entry for the same backup every few microseconds, so \
that most batches end after 5 us with one. The paper sees 1.35 times `write`, and does not say how \
its workers get that many together.
- Medians of `write` at its peak are longer here than in the paper: a worker that waits for its \
own log does nothing else meanwhile.
- Tails of `rpc` are longer: workers take what comes first, and a closed loop of clients makes \
bursts.
- Skewed and uniform keys are alike here, for hashes spread keys over servers and caches are not \
modelled. The paper's uniform throughput is 6.6 % (50 % PUTs) and 15.5 % (5 %) lower, by cache \
misses alone: 67.9 and 108.2 Mops/s.
- Clover and HermesKV are not modelled: neither has a log of its own on each server, which is what \
this model is of. Clover's clients write memory themselves and wait for metadata; HermesKV \
broadcasts invalidations in DRAM.
";
