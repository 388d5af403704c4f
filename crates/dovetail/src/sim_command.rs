//! `dovetail sim`: what a simulation says of a cache or of a cluster.
//!
//! ```text
//!  sim cache --trace FILE     miss ratios of a cache trace, as a table or JSON
//!  sim cluster --seed S       a whole cluster under faults, checked for losses
//! ```
//!
//! The papers' figures are drawn by another program: `cargo run -p lab --release -- list`.

mod cache;
mod cluster;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Command};
use sim::SimError;

use crate::failure::Failure;

/// The upper limit of requests: more would take too long.
const REQUESTS_MAX: u64 = 10_000_000_000;
const THREADS_MAX: u64 = 1024;

/// The subcommand.
pub fn command() -> Command {
    Command::new("sim")
        .about("Simulate a cache on a trace, or a cluster under faults")
        .disable_help_subcommand(true)
        .subcommand(cache::command())
        .subcommand(cluster::command())
}

/// Runs what the command line names.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("cache", matches)) => cache::run(matches),
        Some((_, matches)) => cluster::run_all(matches),
        None => Err(Failure::Usage(
            "sim: write `cache` or `cluster`; figures are `cargo run -p lab --release -- list`"
                .to_owned(),
        )),
    }
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

fn parse_requests(text: &str) -> Result<u64, String> {
    base::parse_count_in(text, 1..=REQUESTS_MAX)
}

/// The number of threads to use.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    base::parse_count_in(text, 1..=THREADS_MAX).map(|count| count as usize)
}
