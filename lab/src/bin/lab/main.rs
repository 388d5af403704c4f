//! The program of the lab: writes a paper's figure to files, prints one point as JSON, or compares
//! Dovetail with its peers on this machine.
//!
//! ```text
//!  c4-fig3 --out DIR      DIR/c4-fig3.csv, .svg, .md
//!  all --out DIR          every figure, one after the other
//!  list                   names and what they show
//!  point, minos-point     one JSON object on the last line of standard output
//!  peers, cache, store    measurements beside other servers and maps, into docs/results
//!  joined, presets, costs, cold-start, replication
//! ```
//!
//! Ctrl-C ends the process at once; the files of a figure appear only when they are complete.
#![forbid(unsafe_code)]

mod point;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use lab::comparisons::Comparison;
use lab::figure::{Fidelity, Figure, Options};
use lab::figures::{self, UnknownFigure};
use sim::SimError;

/// The upper limit of requests: more would take too long.
const REQUESTS_MAX: u64 = 10_000_000_000;
const THREADS_MAX: u64 = 1024;

const FIDELITIES: &[(&str, Fidelity)] =
    &[("honest", Fidelity::Honest), ("artifact", Fidelity::Artifact)];

/// Draw a paper's figure on many simulated cores, simulate one point, or compare with peers
#[derive(Debug, Parser)]
#[command(name = "lab", args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct FigureArgs {
    #[command(subcommand)]
    task: Option<Task>,

    /// A figure from the list below, `all`, or `list`
    #[arg(value_name = "FIGURE", required = true)]
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

#[derive(Debug, Subcommand)]
enum Task {
    /// One point of C-4's model, as JSON
    Point(point::C4Args),
    /// One point of Minos's model (Fig. 2), as JSON: times in small services
    MinosPoint(point::MinosArgs),
    #[command(flatten)]
    Comparison(Comparison),
}

fn main() -> ExitCode {
    let command = FigureArgs::command().after_help(format!("Figures:\n{}", list()));
    let matches = command.get_matches();
    let ran = FigureArgs::from_arg_matches(&matches).map_err(anyhow::Error::from).and_then(run);
    let Err(error) = ran else { return ExitCode::SUCCESS };
    // Standard error may be closed; the status still tells.
    let _ = writeln!(std::io::stderr(), "lab: {error:#}");
    let status = match error.downcast_ref::<SimError>() {
        Some(error) => error.exit_code(),
        None => {
            if error.is::<UnknownFigure>() {
                2
            } else {
                1
            }
        }
    };
    ExitCode::from(status)
}

fn run(args: FigureArgs) -> anyhow::Result<()> {
    match &args.task {
        Some(Task::Point(args)) => return args.run(),
        Some(Task::MinosPoint(args)) => return args.run(),
        Some(Task::Comparison(comparison)) => return comparison.run(),
        None => {}
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        requests: args.requests,
        seed: args.seed,
        fidelity: args.fidelity,
        threads: args.threads.unwrap_or_else(cores),
        costs: args.costs,
        objects: args.objects,
    };
    match args.figure.as_deref().unwrap_or_default() {
        "list" => print(&list()),
        "all" => figures::all().try_for_each(|figure| draw(figure, &options, &args.out)),
        name => draw(figures::find(name)?, &options, &args.out),
    }
}

/// Runs one figure, and prints its path and the time it took.
fn draw(figure: &Figure, options: &Options, out: &Path) -> anyhow::Result<()> {
    figure.prepare(out)?;
    let started = Instant::now();
    let report = (figure.run)(options)?;
    let paths = figure.write(&report, options, out)?;
    let seconds = started.elapsed().as_secs_f64();
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    print(&format!("{} ({seconds:.1} s): {}\n", figure.name, paths.join(" ")))
}

fn list() -> String {
    figures::all().map(|figure| format!("  {:12} {}\n", figure.name, figure.about)).collect()
}

/// Prints to standard output; a closed pipe is not a failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
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

fn parse_requests(text: &str) -> Result<u64, String> {
    base::parse_count_in(text, 1..=REQUESTS_MAX)
}

fn parse_keys(text: &str) -> Result<u64, String> {
    base::parse_count_in(text, 1..=REQUESTS_MAX)
}

fn parse_threads(text: &str) -> Result<usize, String> {
    base::parse_count_in(text, 1..=THREADS_MAX).map(|count| count as usize)
}
