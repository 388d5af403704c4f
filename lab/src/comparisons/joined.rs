//! `lab joined`: measures overload and mixes of sizes, beside Redis and memcached.
//!
//! ```text
//!  for each part, for each repetition, for each server (the others are stopped):
//!    closed loop ─▶ its peak ─▶ open loop at shares of that peak ─▶ goodput, p50, p99, p99.9
//! ```
//!
//! | part | load | what it shows |
//! |---|---|---|
//! | overload | 80 to 200 % of the peak, clients that give up | goodput, p99 of what was taken |
//! | sizes | Minos's mix, with and without the large values | p99 of small requests (Minos §6.1) |
//! | large | small requests, with and without twenty values of 10 MB a second | p99.9 of these |
//!
//! In the parts about sizes all servers get the same rate, half of the first one's peak, and the
//! load generator reads large values on a thread and connections apart, at the lowest priority.
//!
//! Every server runs on the same core with as many threads, the load generator on another core.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use steps::server_binary;

pub mod costs;
pub mod presets;
mod report;
mod runs;

use report::Row;
use runs::{Client, Load, start_all};

/// What may be chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seconds of each measured window
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// How often each row is measured
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Processors of the servers
    #[arg(long, default_value = "0")]
    server_cpus: String,
    /// Processors of the load generator
    #[arg(long, default_value = "1")]
    client_cpus: String,
    /// Threads of each server in the parts about sizes
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Only these parts, of overload, sizes and large
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

/// One part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Overload,
    Sizes,
    Large,
}

const PARTS: [(Part, &str); 3] =
    [(Part::Overload, "overload"), (Part::Sizes, "sizes"), (Part::Large, "large")];

/// The shares of the peak for the part about overload.
const OVERLOAD_SHARES: [f64; 4] = [0.8, 1.0, 1.2, 2.0];
/// The share of the peak for the parts about the tail.
const TAIL_SHARE: f64 = 0.5;

/// Measures and writes the results.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    for name in &args.only {
        let is_known = PARTS.iter().any(|(_, known)| known == name);
        ensure!(is_known, "--only {name}: the parts are overload, sizes and large");
    }
    let binary = server_binary(root)?;
    let mut rows = Vec::new();
    for (part, name) in PARTS {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            rows.extend(measure_part(&binary, args, part)?);
        }
    }
    report::write(root, args, &rows)
}

fn measure_part(binary: &Path, args: &Args, part: Part) -> Result<Vec<Row>> {
    let client = Client { binary, cpus: &args.client_cpus, seconds: args.seconds };
    let threads = if part == Part::Overload { 1 } else { args.threads };
    let mut subjects = start_all(binary, &args.server_cpus, part, threads)?;
    let load = Load::of(part);
    for subject in &mut subjects {
        println!("populating {}", subject.name);
        subject.running(|subject| client.populate(subject, &load))?;
    }
    let shares: &[f64] = if part == Part::Overload { &OVERLOAD_SHARES } else { &[TAIL_SHARE] };
    let mut rows: Vec<Row> = subjects
        .iter()
        .flat_map(|subject| shares.iter().map(|share| Row::new(part, subject.name, *share)))
        .collect();
    for repetition in 1..=args.repetitions {
        let mut common_peak = None;
        for subject in &mut subjects {
            let own_peak = subject.running(|subject| client.peak(subject, &load))?;
            let peak = match part {
                Part::Overload => own_peak,
                Part::Sizes | Part::Large => *common_peak.get_or_insert(own_peak),
            };
            for share in shares {
                let sample = subject
                    .running(|subject| client.open(subject, &load, own_peak, peak * share))?;
                println!("{repetition}: {:<28} {share:>4} of the peak: {sample}", subject.name);
                let is_row = |row: &&mut Row| row.is_of(subject.name, *share);
                let row = rows.iter_mut().find(is_row).context("every pair has a row")?;
                row.samples.push(sample);
            }
        }
    }
    Ok(rows)
}
