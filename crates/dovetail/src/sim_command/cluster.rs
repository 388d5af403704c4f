//! `dovetail sim cluster`: runs whole clusters under simulated faults, one run per seed.
//!
//! ```text
//!  sim cluster --seed 7                one seed, one line
//!  sim cluster --seed 1 --seeds 1000   a thousand from 1 on; one line for each that fails
//! ```
//!
//! A failing run is shrunk, and its last line is the command that replays it.

use std::num::NonZeroU64;
use std::time::Instant;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use sim::cluster::Scheme;
use sim::cluster::{FAULT_KINDS, FaultKind, Options, PLANTS, Plant, Report, run, shrink};
use sim::parallel;

use crate::failure::{Failure, print};
use crate::machine::Machine;
use crate::sim_command::{choice, parse_threads};
use crate::usage::one_line;

/// Number of runs between two checks for failures.
const CHUNK_SEEDS: usize = 1_000;

#[derive(Debug, Args)]
struct ClusterArgs {
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// How many seeds
    #[arg(long, value_name = "N", default_value = "1")]
    seeds: NonZeroU64,

    /// Servers, 3 to 9 [default: drawn from the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(3..=9))]
    nodes: Option<u64>,

    /// Shards, 1 to 256, and at least as many keys [default: drawn from the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: Option<u16>,

    /// Clients, 1 to 64 [default: drawn from the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: Option<u64>,

    /// Requests of each client, 1 to 1000 [default: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    requests: Option<u64>,

    /// `all`, `none`, or kinds of the list below with commas
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = parse_faults)]
    faults: Faults,

    /// Keep only the seed's faults at these positions: 0,3,4, or `none`
    #[arg(long, value_name = "LIST", value_parser = parse_positions)]
    only_faults: Option<Positions>,

    /// How entries are sent to backups: rowan, rpc, write, batch, share [default: by the seed]
    #[arg(long, value_name = "SCHEME", value_parser = parse_scheme)]
    replication: Option<Scheme>,

    /// Let some writes belong together, as commands on several keys
    #[arg(long)]
    groups: bool,

    /// Plant this bug, which the run must detect
    #[arg(long, value_name = "BUG", value_parser = choice(PLANTS))]
    plant: Option<Plant>,

    /// One line per event on standard error
    #[arg(long)]
    trace: bool,

    /// Number of seeds that run in parallel [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

/// The kinds that `--faults` names.
#[derive(Clone, Debug)]
struct Faults(Vec<FaultKind>);

/// Positions among the faults of a seed.
#[derive(Clone, Debug)]
struct Positions(Vec<usize>);

/// `sim cluster`.
pub(super) fn command() -> Command {
    ClusterArgs::augment_args(Command::new("cluster"))
        .about("Whole clusters under faults: network, disks, clocks, crashes; checked for losses")
        .after_help(lists())
}

/// The help with the names for `--faults` and `--plant`.
fn lists() -> String {
    let line = |(name, about): (&str, &str)| format!("  {name:10} {about}\n");
    let faults = FAULT_KINDS.iter().map(|(name, kind)| line((name, kind.about())));
    let plants = PLANTS.iter().map(|(name, plant)| line((name, plant.about())));
    let (faults, plants): (String, String) = (faults.collect(), plants.collect());
    format!("Faults:\n{faults}\nBugs to plant:\n{plants}")
}

/// Runs all seeds; fails if any of them did.
pub(super) fn run_all(matches: &ArgMatches) -> Result<(), Failure> {
    let args = ClusterArgs::from_arg_matches(matches)
        .map_err(|error| Failure::Usage(one_line(&error, None)))?;
    let threads = args.threads.unwrap_or_else(|| Machine::detect().core_count.max(1));
    let end = args.seed.saturating_add(args.seeds.get());
    let started = Instant::now();
    let mut total = Total::default();
    let mut first = args.seed;
    while first < end {
        let last = end.min(first + CHUNK_SEEDS as u64);
        let seeds: Vec<u64> = (first..last).collect();
        let what = "clusters under faults";
        for report in parallel::map(what, threads, &seeds, |seed| run(&options(&args, *seed))) {
            total.add(&report);
            if report.failure.is_some() {
                print(&explain(&options(&args, report.seed)))?;
            }
        }
        first = last;
    }
    let per_second = args.seeds.get() as f64 / started.elapsed().as_secs_f64();
    print(&format!("{total}, {per_second:.0} seeds a second\n"))?;
    match total.failed {
        0 => Ok(()),
        failed => Err(Failure::Runtime(format!("sim: {failed} seeds failed"))),
    }
}

fn options(args: &ClusterArgs, seed: u64) -> Options {
    let count = |number: Option<u64>| number.map(|number| number as usize);
    Options {
        seed,
        nodes: count(args.nodes),
        shards: args.shards,
        clients: count(args.clients),
        requests: count(args.requests),
        faults: args.faults.0.clone(),
        only_faults: args.only_faults.clone().map(|kept| kept.0),
        scheme: args.replication,
        has_groups: args.groups,
        plant: args.plant,
        trace: args.trace,
    }
}

/// The failure, and the command that repeats it.
fn explain(options: &Options) -> String {
    let (smaller, report) = shrink(&Options { trace: false, ..options.clone() });
    let failure = report.failure.unwrap_or_default();
    format!("seed {}: {failure}\n  replay: {}\n", options.seed, replay(&smaller))
}

fn parse_scheme(word: &str) -> Result<Scheme, String> {
    let want = || "write rowan, rpc, write, batch or share".to_owned();
    Scheme::of_word(word).ok_or_else(want)
}

fn replay(options: &Options) -> String {
    let mut line = format!("dovetail sim cluster --seed {}", options.seed);
    let number = |name: &str, value: Option<usize>| {
        value.map(|value| format!(" --{name} {value}")).unwrap_or_default()
    };
    line += &number("nodes", options.nodes);
    line += &number("shards", options.shards.map(usize::from));
    line += &number("clients", options.clients);
    line += &number("requests", options.requests);
    let named = FAULT_KINDS.iter().filter(|(_, kind)| options.faults.contains(kind));
    let names: Vec<&str> = named.map(|(name, _)| *name).collect();
    match names.len() {
        0 => line += " --faults none",
        all if all == FAULT_KINDS.len() => {}
        _ => line += &format!(" --faults {}", names.join(",")),
    }
    if let Some(scheme) = options.scheme {
        line += &format!(" --replication {scheme}");
    }
    if options.has_groups {
        line += " --groups";
    }
    if let Some(kept) = &options.only_faults {
        let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
        let list = if kept.is_empty() { "none".to_owned() } else { kept.join(",") };
        line += &format!(" --only-faults {list}");
    }
    if let Some((name, _)) = PLANTS.iter().find(|(_, plant)| Some(*plant) == options.plant) {
        line += &format!(" --plant {name}");
    }
    line
}

fn parse_faults(text: &str) -> Result<Faults, String> {
    let all = || FAULT_KINDS.iter().map(|(_, kind)| *kind).collect();
    match text {
        "all" => return Ok(Faults(all())),
        "none" => return Ok(Faults(Vec::new())),
        _ => {}
    }
    let find = |name: &str| {
        let found = FAULT_KINDS.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let known: Vec<&str> = FAULT_KINDS.iter().map(|(name, _)| *name).collect();
            format!("`{name}` is no fault: write all, none, or some of {}", known.join(","))
        })
    };
    text.split(',').map(find).collect::<Result<_, _>>().map(Faults)
}

fn parse_positions(text: &str) -> Result<Positions, String> {
    let numbers = text.split(',').filter(|_| text != "none").map(str::parse);
    let numbers: Result<Vec<usize>, _> = numbers.collect();
    numbers.map(Positions).map_err(|_| "write positions with commas, e.g. 0,3, or none".to_owned())
}

/// The sums over all seeds.
#[derive(Default)]
struct Total {
    seeds: u64,
    failed: u64,
    undecided: u64,
    beyond: u64,
    requests: u64,
    unanswered: u64,
    faults: u64,
    terms: u64,
    simulated_ns: u64,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.failed += u64::from(report.failure.is_some());
        self.undecided += u64::from(report.is_undecided);
        self.beyond += u64::from(report.is_beyond_promise);
        self.requests += report.request_count as u64;
        self.unanswered += report.unanswered_count as u64;
        self.faults += report.struck_count;
        self.terms += report.term_count;
        self.simulated_ns += report.simulated_ns;
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Total { seeds, failed, undecided, beyond, requests, unanswered, faults, terms, .. } =
            self;
        let simulated_s = self.simulated_ns / 1_000_000_000;
        write!(
            formatter,
            "{seeds} seeds, {failed} failed, {undecided} undecided, {beyond} lost every copy: \
             {faults} faults, {terms} terms, {requests} requests, {unanswered} unanswered, \
             {simulated_s} s simulated"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_names_what_differs_from_the_default() {
        let all = Options::all_faults(7);
        assert_eq!(replay(&all), "dovetail sim cluster --seed 7");
        let smaller = Options {
            clients: Some(2),
            faults: parse_faults("loss,cut").unwrap().0,
            only_faults: Some(vec![1, 3]),
            plant: Some(Plant::Term),
            has_groups: true,
            ..all
        };
        let want = "dovetail sim cluster --seed 7 --clients 2 --faults loss,cut \
                    --groups --only-faults 1,3 --plant term";
        assert_eq!(replay(&smaller), want);
        assert!(parse_faults("loss,fire").unwrap_err().contains("`fire` is no fault"));
    }
}
