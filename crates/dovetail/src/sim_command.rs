//! `dovetail sim`: writes a paper's figure to files, or prints one point as JSON.
//!
//! ```text
//!  sim c4-fig3 --out DIR      DIR/c4-fig3.csv, .svg, .md
//!  sim all --out DIR          every figure, one after the other
//!  sim list                   names and what they show
//!  sim point, minos-point     one JSON object on the last line of standard output
//!  sim cluster --seed S       a whole cluster under faults, checked for losses
//!  sim cache --trace FILE     miss ratios of a cache trace, as a table or JSON
//! ```
//!
//! Ctrl-C ends the process at once; the files of a figure appear only when they are complete.

mod cache;
mod cluster;
mod point;

use std::path::PathBuf;
use std::time::Instant;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use sim::SimError;
use sim::figure::{Fidelity, Figure, Options};
use sim::figures;

use crate::failure::{Failure, print};
use crate::machine::Machine;
use crate::usage::one_line;

/// The upper limit of requests: more would take too long.
const REQUESTS_MAX: u64 = 10_000_000_000;
const THREADS_MAX: u64 = 1024;

const FIDELITIES: &[(&str, Fidelity)] =
    &[("honest", Fidelity::Honest), ("artifact", Fidelity::Artifact)];

/// What `dovetail sim FIGURE` takes.
#[derive(Debug, Args)]
struct FigureArgs {
    /// A figure from the list below, `all`, or `list`
    #[arg(value_name = "FIGURE")]
    figure: Option<String>,

    /// Directory for FIGURE.csv, FIGURE.svg and FIGURE.md; it is created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,

    /// Requests of each point, e.g. 200k, 5M [default: the figure's own]
    #[arg(long, value_name = "N", value_parser = parse_requests)]
    requests: Option<u64>,

    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Model: the published artifact's, with its streams, or that of a real server
    #[arg(long, value_name = "MODEL", default_value = "honest", value_parser = choice(FIDELITIES))]
    fidelity: Fidelity,

    /// Number of points that run in parallel; the result does not depend on it [default: the
    /// machine's cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// CPU costs as scheme,role,us_per_put, for rowan-fig9, 11, 13, table2 [default: the paper's]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,

    /// zippydb, up2x or udb, for rowan-fig9, 11 and 13 [default: zippydb]
    #[arg(long, value_name = "NAME")]
    objects: Option<String>,
}

/// The subcommand, with the figures in its help.
pub fn command() -> Command {
    let list = format!("Figures:\n{}", list());
    FigureArgs::augment_args(Command::new("sim"))
        .about("Simulate a paper's figure on many cores, one point, or a cache on a trace")
        .after_help(list)
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .subcommand(point::c4_command())
        .subcommand(point::minos_command())
        .subcommand(cache::command())
        .subcommand(cluster::command())
}

/// Runs what the command line names.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("cache", matches)) => return cache::run(matches),
        Some(("cluster", matches)) => return cluster::run_all(matches),
        Some((name, matches)) => return point::run(name, matches),
        None => {}
    }
    let args = FigureArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let options = Options {
        requests: args.requests,
        seed: args.seed,
        fidelity: args.fidelity,
        threads: args.threads.unwrap_or_else(|| Machine::detect().core_count.max(1)),
        costs: args.costs,
        objects: args.objects,
    };
    match args.figure.as_deref() {
        Some("list") => print(&list()),
        Some("all") => figures::all().try_for_each(|figure| draw(figure, &options, &args.out)),
        Some(name) => draw(figures::find(name).map_err(failure)?, &options, &args.out),
        None => Err(Failure::Usage(format!(
            "sim: write a figure, `all`, `list`, `point`, `minos-point`, `cache` or \
             `cluster`; \
             the figures are {}",
            names()
        ))),
    }
}

/// Runs one figure, and prints its path and the time it took.
fn draw(figure: &Figure, options: &Options, out: &std::path::Path) -> Result<(), Failure> {
    figure.prepare(out).map_err(failure)?;
    let started = Instant::now();
    let report = (figure.run)(options).map_err(failure)?;
    let paths = figure.write(&report, options, out).map_err(failure)?;
    let seconds = started.elapsed().as_secs_f64();
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    print(&format!("{} ({seconds:.1} s): {}\n", figure.name, paths.join(" ")))
}

fn names() -> String {
    figures::all().map(|figure| figure.name).collect::<Vec<_>>().join(", ")
}

fn list() -> String {
    figures::all().map(|figure| format!("  {:12} {}\n", figure.name, figure.about)).collect()
}

fn failure(error: SimError) -> Failure {
    match error.exit_code() {
        2 => Failure::Usage(format!("sim: {error}")),
        _ => Failure::Runtime(format!("sim: {error}")),
    }
}

/// Turns a name into its value.
fn choice<T: Copy + Send + Sync + 'static>(
    named: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = named.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(move |text| {
        let found = named.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or("no such name")
    })
}

/// Digits with `k`, `M` or `G` (decimal), between the bounds.
pub fn parse_count(text: &str, low: u64, high: u64) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1e3),
        Some((end, 'm' | 'M')) => (&text[..end], 1e6),
        Some((end, 'g' | 'G')) => (&text[..end], 1e9),
        _ => (text, 1.0),
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let count = number.parse::<f64>().ok().filter(|_| is_number).map(|number| number * factor);
    match count {
        Some(count) if count.fract() == 0.0 && (low as f64..=high as f64).contains(&count) => {
            Ok(count as u64)
        }
        _ => Err(format!("write a count from {low} to {high}, e.g. 1000000 or 1M")),
    }
}

fn parse_requests(text: &str) -> Result<u64, String> {
    parse_count(text, 1, REQUESTS_MAX)
}

/// The number of threads to use.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    parse_count(text, 1, THREADS_MAX).map(|count| count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_decimal_units_and_keep_to_their_bounds() {
        for (text, want) in [("1", 1), ("200k", 200_000), ("5M", 5_000_000), ("1.5k", 1500)] {
            assert_eq!(parse_requests(text), Ok(want), "{text}");
        }
        for text in ["0", "-1", "", "k", "1e9", "1.5", "99G", "0x10", "nan", "inf"] {
            assert!(parse_requests(text).is_err(), "{text}");
        }
        assert!(parse_threads("1025").is_err());
    }
}
