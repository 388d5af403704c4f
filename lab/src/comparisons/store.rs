//! `lab store`: measures the store in process, and other crates' maps under the same load.
//!
//! ```text
//!  for each item set: peers populate once and wait
//!    for each repetition: for each load: ours, each peer           (interleaved, pinned)
//!  ablations, how cost grows, pauses ─▶ docs/results/store.{md,json}, store-*.svg
//! ```
//!
//! A window in which a thread got less than `--share-min` of its core is discarded and repeated;
//! the report gives their number.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use steps::{Step, target};

use crate::comparisons::conditions::raise_priority;

mod ablations;
mod chart;
mod rates;
mod report;
mod run;
mod sweeps;
mod table;

use run::{Programs, Window};

/// What may be chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Milliseconds of each measured window
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
    /// How often each pair of load and store is measured
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Items of the table
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// About two minutes: a tenth of the keys, short windows, one repetition
    #[arg(long)]
    quick: bool,
    /// The two CPUs; the first one alone where one thread is measured
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    cpus: Vec<usize>,
    /// Least part of its core that a thread must get
    #[arg(long, default_value_t = 0.95)]
    share_min: f64,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

/// One repeated measurement.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The table and the row.
    pub row: String,
    /// The store with its settings, or a peer.
    pub subject: String,
    pub is_peer: bool,
    pub thread_count: usize,
    /// Million operations a CPU-second, one for each repetition.
    pub mops: Vec<f64>,
}

/// A curve of how cost grows.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: &'static str,
    /// x, and CPU time in ns an operation.
    pub points: Vec<(f64, f64)>,
}

/// Curves over one x axis.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Part of the file's name.
    pub name: &'static str,
    pub title: &'static str,
    pub x_title: &'static str,
    pub is_log_x: bool,
    pub curves: Vec<Curve>,
}

/// Each call's time while housekeeping runs.
#[derive(Clone, Debug)]
pub struct Pause {
    /// The load.
    pub what: String,
    /// In the report of the load generator: `calls` or `populate_calls`.
    pub calls: serde_json::Value,
}

/// All results.
#[derive(Debug, Default)]
pub struct Found {
    pub cells: Vec<Cell>,
    pub ablations: Vec<Cell>,
    /// The harness alone, in million operations a CPU-second.
    pub harness: Vec<Cell>,
    /// Working set in bytes and entry length, for each row.
    pub row_sizes: Vec<(String, u64, f64)>,
    /// Million lines a second of each row's working set.
    pub limits: Vec<Cell>,
    pub figures: Vec<Figure>,
    pub pauses: Vec<Pause>,
    pub skipped: Vec<String>,
    pub thrown_away_count: usize,
}

/// The machinery of one run.
pub struct Session {
    programs: Programs,
    args: Args,
    found: Found,
}

/// Attempts at one window before the machine is declared too busy.
const ATTEMPTS_MAX: usize = 8;

impl Session {
    /// Runs a window until every thread had its core; `None` if it cannot be measured here.
    fn undisturbed(
        &mut self,
        what: &str,
        mut measure: impl FnMut(&Programs) -> Result<Window>,
    ) -> Result<Window> {
        for _ in 0..ATTEMPTS_MAX {
            let window = measure(&self.programs)?;
            println!(
                "{what:<60} {:>8.2} Mops per CPU s, share {:.1} %",
                window.mops,
                window.share * 100.0
            );
            if window.share >= self.args.share_min {
                return Ok(window);
            }
            self.found.thrown_away_count += 1;
        }
        bail!("{what}: the machine is too busy to measure on; stop what else runs")
    }

    /// One window of ours; a refusal is noted and skipped.
    fn ours(
        &mut self,
        what: &str,
        thread_count: usize,
        words: &[String],
    ) -> Result<Option<Window>> {
        let found =
            self.undisturbed(what, |programs| programs.ours("embedded:", thread_count, words));
        match found {
            Err(error) if format!("{error:#}").contains("dovetail bench") => {
                println!("{what}: skipped: {error:#}");
                self.found.skipped.push(format!("{what}: {error:#}"));
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

/// Adds a sample to the cell of this row and subject.
fn add_sample(cells: &mut Vec<Cell>, cell: Cell) {
    let is_same = |other: &&mut Cell| {
        other.row == cell.row
            && other.subject == cell.subject
            && other.thread_count == cell.thread_count
    };
    match cells.iter_mut().find(is_same) {
        Some(found) => found.mops.extend(cell.mops),
        None => cells.push(cell),
    }
}

/// Words of a command line.
fn words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// Measures and writes the results.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let mut args = args.clone();
    if args.quick {
        args.keys = args.keys.min(1_000_000);
        args.milliseconds = args.milliseconds.min(250);
        args.repetitions = 1;
    }
    let build = Step::new(
        "build",
        "cargo build --release --locked -p dovetail -p lab --bin dovetail --bin store-peers",
    );
    ensure!(build.run(root), "the binaries do not build");
    raise_priority();
    let target = target(root);
    let dovetail = target.join("release/dovetail");
    let [first, second] = args.cpus[..] else { bail!("--cpus names two CPUs, e.g. 0,1") };
    let programs = Programs {
        store_peers: target.join("release/store-peers"),
        dovetail,
        cpus: [first, second],
        milliseconds: args.milliseconds,
    };
    let mut session = Session { programs, args, found: Found::default() };
    session.measure_rates()?;
    session.measure_ablations()?;
    session.measure_sweeps()?;
    session.measure_pauses()?;
    report::write(root, &session.args, &session.found)
}
