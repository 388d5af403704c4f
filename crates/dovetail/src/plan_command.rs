//! `dovetail plan`: predicts the load each preset can serve of a workload, and recommends settings.
//!
//! ```text
//!  --workload twitter-12 | trace.csv | HOST:PORT ─┐
//!  --costs FILE, or this machine's store measured ┼─▶ sim::plan ─▶ table ─▶ recommended TOML
//!  --cores, --slo ────────────────────────────────┘
//! ```
//!
//! The TOML contains the settings that `serve` accepts today; the others are comments.

mod output;
mod source;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::units::parse_duration;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use sim::SimError;
use sim::measure::{CostTable, store_costs};
use sim::plan::{PlanOptions, plan};

use crate::failure::{Failure, print};
use crate::machine::Machine;
use crate::sim_command::parse_threads;
use crate::usage::one_line;

/// What `dovetail plan` takes.
#[derive(Debug, Args)]
struct PlanArgs {
    /// The workload: a name (ycsb-a, minos, twitter-12, ...), a trace file in Twitter's format, or
    /// the admin address of a running server, e.g. http://127.0.0.1:8379
    #[arg(long, value_name = "NAME|FILE|ADDR")]
    workload: String,

    /// Number of cores of the planned server, all for its workers [default: this machine's]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    cores: Option<usize>,

    /// Bound on the 99th percentile of latencies [default: 10 times the mean service time]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    slo: Option<Duration>,

    /// Service times saved earlier by --save-costs; without it, this machine is measured, which
    /// takes about 15 s
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,

    /// Save the measured service times to this file, for --costs
    #[arg(long, value_name = "FILE", conflicts_with = "costs")]
    save_costs: Option<PathBuf>,

    /// Cost of a request outside the store: receiving, parsing, replying
    #[arg(long, value_name = "TIME", default_value = "200ns", value_parser = parse_duration)]
    request_cost: Duration,

    /// Exponent of the keys' popularity if the workload is a server, which does not report it; 0 is
    /// uniform
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.99, allow_negative_numbers = true)]
    zipf: f64,

    /// Requests of each simulated run
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse_requests)]
    requests: usize,

    /// Seed of the random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Number of presets that are simulated in parallel; the result does not depend on it [default:
    /// this machine's cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    /// Also write the recommended settings to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The subcommand.
pub fn command() -> Command {
    PlanArgs::augment_args(Command::new("plan"))
        .about("Simulate a workload under every preset and recommend settings")
}

/// Makes the plan, prints it, and writes the requested files.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let args = PlanArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    if !(0.0..=20.0).contains(&args.zipf) {
        return Err(Failure::Usage(format!("plan: --zipf {}: write 0 to 20", args.zipf)));
    }
    let core_count = Machine::detect().core_count;
    let options = PlanOptions {
        cores: args.cores.unwrap_or(core_count),
        slo_ns: args.slo.map(|slo| slo.as_secs_f64() * 1e9),
        request_ns: args.request_cost.as_secs_f64() * 1e9,
        seed: args.seed,
        threads: args.threads.unwrap_or(core_count),
    };
    // Checks the whole command line before 15 seconds of measuring.
    options.check().map_err(failure)?;
    for path in [&args.write, &args.save_costs].into_iter().flatten() {
        output::check_file(path)?;
    }
    let workload = source::read(&args.workload, args.requests, args.seed, args.zipf)?;
    let costs = match &args.costs {
        Some(path) => CostTable::read(path).map_err(failure)?,
        None => measured()?,
    };
    if let Some(path) = &args.save_costs {
        let text = serde_json::to_string(costs.file())
            .map_err(|error| Failure::Runtime(format!("plan: no JSON: {error}")))?;
        output::write_file(path, &format!("{text}\n"))?;
    }
    let found = plan(&workload, &costs, &options).map_err(failure)?;
    print(&output::table(&found, &workload, &costs, &options))?;
    let Some(recommended) = found.recommended() else {
        return Err(Failure::Runtime(format!(
            "plan: no preset keeps the 99th percentile within {}: the mean service alone takes {}",
            output::time(found.slo_ns),
            output::time(found.service_mean_ns)
        )));
    };
    let settings = output::settings(recommended, &options, &args.workload);
    print(&format!("\n{settings}"))?;
    if let Some(path) = &args.write {
        output::write_file(path, &settings)?;
        print(&format!("\nwritten to {}\n", path.display()))?;
    }
    Ok(())
}

/// Measures this machine, with a bar on a terminal.
fn measured() -> Result<CostTable, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = output::date(since.as_secs());
    sim::measure::measure("dovetail plan", &date, None, store_costs::Sizes::All).map_err(failure)
}

fn failure(error: SimError) -> Failure {
    match error.exit_code() {
        2 => Failure::Usage(format!("plan: {error}")),
        _ => Failure::Runtime(format!("plan: {error}")),
    }
}

/// Below 1000 a 99th percentile has too few samples; above ten million memory runs out.
fn parse_requests(text: &str) -> Result<usize, String> {
    base::parse_count_in(text, 1000..=10_000_000).map(|count| count as usize)
}
