//! `dovetail sim point` and `minos-point`: run one point and print one JSON object.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;
use sim::c4::{self, Policy};
use sim::figure::Fidelity;
use sim::minos::{self, Strategy};

use crate::failure::{Failure, print};
use crate::sim_command::{
    FIDELITIES, REQUESTS_MAX, choice, failure, parse_requests, parse_threads,
};
use crate::usage::one_line;

const POLICIES: &[(&str, Policy)] = &[
    ("ideal", Policy::Ideal),
    ("erew", Policy::Erew),
    ("crew", Policy::Crew),
    ("d-crew", Policy::DCrew),
];
const STRATEGIES: &[(&str, Strategy)] = &[
    ("hash", Strategy::Hash),
    ("late", Strategy::Late),
    ("steal", Strategy::Steal),
    ("size-aware", Strategy::SizeAware),
];

/// A flag's value, because clap takes a bare `bool` for one without.
#[derive(Clone, Copy, Debug)]
enum Switch {
    On,
    Off,
}

const SWITCH: &[(&str, Switch)] = &[("on", Switch::On), ("off", Switch::Off)];

/// C-4's model. Its parameters are the defaults.
#[derive(Debug, Args)]
struct C4Args {
    /// Assignment of requests to cores
    #[arg(long, value_name = "NAME", default_value = "d-crew", value_parser = choice(POLICIES))]
    policy: Policy,

    /// Cores
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    workers: usize,

    /// Load as a share of the cores' capacity; 1 is 91.43 million requests a second on 64 cores
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, allow_negative_numbers = true)]
    load: f64,

    /// Share of writes among the requests
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, allow_negative_numbers = true)]
    write_percent: f64,

    /// Exponent of the keys' popularity; 0 is uniform
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0, allow_negative_numbers = true)]
    zipf: f64,

    /// Combine waiting writes of the same key
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = choice(SWITCH))]
    compaction: Switch,

    /// Distinct keys
    #[arg(long, value_name = "N", default_value = "1.6M", value_parser = parse_keys)]
    keys: u64,

    #[command(flatten)]
    run: RunArgs,

    /// Model: the published artifact's, with its streams, or that of a real server
    #[arg(long, value_name = "MODEL", default_value = "honest", value_parser = choice(FIDELITIES))]
    fidelity: Fidelity,
}

/// Minos's model of Fig. 2. Its parameters are the defaults.
#[derive(Debug, Args)]
struct MinosArgs {
    /// Dispatch of requests to cores
    #[arg(long, value_name = "NAME", default_value = "size-aware")]
    #[arg(value_parser = choice(STRATEGIES))]
    strategy: Strategy,

    /// Cores
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true)]
    cores: usize,

    /// Service time of a large request, as a multiple of a small one's; 0.125 % of requests are
    /// large
    #[arg(long, value_name = "SERVICES", default_value_t = 100.0, allow_negative_numbers = true)]
    k: f64,

    /// Load of each core, including large requests; must stay below 1 to be stable
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, allow_negative_numbers = true)]
    rho: f64,

    #[command(flatten)]
    run: RunArgs,
}

/// What every point takes.
#[derive(Debug, Args)]
struct RunArgs {
    /// Number of requests, e.g. 200k, 5M
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_requests)]
    requests: u64,

    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Accepted for uniformity: a point is one run on one thread
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_threads)]
    #[allow(dead_code, reason = "scripts pass it to every command of the simulator")]
    threads: usize,
}

/// `sim point`.
pub(super) fn c4_command() -> Command {
    C4Args::augment_args(Command::new("point")).about("One point of C-4's model, as JSON")
}

/// `sim minos-point`.
pub(super) fn minos_command() -> Command {
    MinosArgs::augment_args(Command::new("minos-point"))
        .about("One point of Minos's model (Fig. 2), as JSON: times in small services")
}

/// Runs the point and prints it.
pub(super) fn run(name: &str, matches: &ArgMatches) -> Result<(), Failure> {
    match name {
        "point" => print_json(&c4::point(&c4_options(matches)?).map_err(failure)?),
        _ => print_json(&minos::point(&minos_options(matches)?).map_err(failure)?),
    }
}

fn c4_options(matches: &ArgMatches) -> Result<c4::PointOptions, Failure> {
    let args = C4Args::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    Ok(c4::PointOptions {
        policy: args.policy,
        workers: args.workers,
        load: args.load,
        write_percent: args.write_percent,
        zipf: args.zipf,
        compaction: matches!(args.compaction, Switch::On),
        keys: args.keys,
        requests: args.run.requests,
        seed: args.run.seed,
        fidelity: args.fidelity,
        ..c4::PointOptions::default()
    })
}

fn minos_options(matches: &ArgMatches) -> Result<minos::PointOptions, Failure> {
    let args = MinosArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    Ok(minos::PointOptions {
        strategy: args.strategy,
        cores: args.cores,
        k: args.k,
        rho: args.rho,
        requests: args.run.requests,
        seed: args.run.seed,
        ..minos::PointOptions::default()
    })
}

fn print_json(result: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(result)
        .map_err(|error| Failure::Runtime(format!("sim: the result is no JSON: {error}")))?;
    print(&format!("{text}\n"))
}

fn parse_keys(text: &str) -> Result<u64, String> {
    super::parse_count(text, 1, REQUESTS_MAX)
}
