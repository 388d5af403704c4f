//! Rowan-KV Fig. 8: all remote threads' writes land in one log, in the order of their arrival.

use std::fmt::Write as _;

use super::streams::Place;
use super::sweep::{self, SIZES_BYTES, STREAMS_MAX};
use crate::figure::{Options, Report};
use sim::SimError;

/// §6.2: at most this, without and with local writers.
const PAPER: [(u64, bool, f64); 4] =
    [(64, false, 1.029), (128, false, 1.029), (64, true, 1.056), (128, true, 1.056)];
/// §6.2: million remote writes a second at the peak, alone, and how many times those of one-sided
/// writes to logs of their own, alone and beside local writers.
const PAPER_PEAKS: [(u64, f64, f64, f64); 2] = [(64, 54.5, 1.44, 1.85), (128, 42.2, 1.43, 1.78)];

pub(crate) fn run(options: &Options) -> Result<Report, SimError> {
    let runs = sweep::run_all("rowan-fig8", options, |_| Place::Arrival(0));
    let own_logs = sweep::run_all("rowan-fig8", options, Place::Issue);
    let mut text = String::from(
        "Rowan-KV Fig. 8: the writes of all remote threads land in one log.\n\n\
         | writes | local writers | paper, at most | here, at most |\n|---|---|---|---|\n",
    );
    for (size_bytes, is_local, want) in PAPER {
        let local = if is_local { "18" } else { "none" };
        let worst = sweep::worst(&runs, size_bytes, is_local);
        let _ = writeln!(text, "| {size_bytes} B | {local} | {want:.3} | {worst:.3} |");
    }
    text.push_str(
        "\nPeaks, million remote writes a second, and how many times those of a log for each \
         stream:\n\n\
         | writes | paper | here | paper, to logs of their own | here | paper, beside local \
         writers | here |\n|---|---|---|---|---|---|---|\n",
    );
    for (size_bytes, peak, alone, beside) in PAPER_PEAKS {
        let best = |of: &[sweep::Run], is_local: bool| peak_of(of, size_bytes, is_local);
        let gain = |is_local| best(&runs, is_local) / best(&own_logs, is_local);
        let _ = writeln!(
            text,
            "| {size_bytes} B | {peak} | {:.1} | {alone} | {:.2} | {beside} | {:.2} |",
            best(&runs, false),
            gain(false),
            gain(true),
        );
    }
    let _ = writeln!(
        text,
        "\nThe peaks are over 1 to {STREAMS_MAX} threads with one write each on its way. The \
         paper's own peaks may have had more on their way. The paper's last 2.9 and 5.6 % are not \
         in the model: it has no lines that leave a buffer before their time."
    );
    debug_assert!(SIZES_BYTES.iter().all(|size| PAPER_PEAKS.iter().any(|peak| peak.0 == *size)));
    Ok(Report { table: sweep::table(&runs), charts: sweep::charts(&runs, &PAPER), text })
}

fn peak_of(runs: &[sweep::Run], size_bytes: u64, is_local: bool) -> f64 {
    let alike =
        |run: &&sweep::Run| (run.size_bytes, run.local_writers > 0) == (size_bytes, is_local);
    runs.iter().filter(alike).map(|run| run.outcome.remote_per_us).fold(0.0, f64::max)
}
