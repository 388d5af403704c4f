//! `cargo xtask demo-cluster`: injects faults into a real cluster under load, and checks the
//! history.
//!
//! ```text
//!  seed ─▶ faults ─▶ crew: servers, managers, ZooKeeper, each in a network namespace
//!                      ▲ SET, GET, INCRBY, DEL, SET PX; MSET, MULTI; memcached's get ... cas
//!  clients ────────────┴─▶ history ─▶ one order that explains every answer? ─▶ exit code
//!                             └─────▶ timeline: SVG, CSV
//! ```
//!
//! # Invariants
//! D1: a fault is injected only into a whole cluster: two faults at once may lose more than the
//!     design promises to keep.
//! D2: a request with an unknown outcome may take effect at any later time, or never.
//! D3: two keys of one write may differ only if that write is unanswered.

mod crew;
mod dice;
mod disks;
mod failover;
mod faults;
mod history;
mod judge;
mod keys;
mod kill_all;
mod load;
pub(crate) mod memcached;
mod pipe;
mod place;
mod quota;
mod reshard;
mod reshard_chart;
mod resp;
mod said;
mod timeline;
mod user;
mod whole;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use steps::{server_binary, target};

use crate::zookeeper;
use crew::{Crew, Plan};
use dice::Dice;
use faults::{Fault, Kind};
use history::History;
use judge::Findings;
use load::Load;
use timeline::Mark;

/// Pause between a whole cluster and the next fault.
const CALM_MS: u64 = 300;

/// Flags of `cargo xtask demo-cluster`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long faults are injected
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Of faults and load; by default another each time
    #[arg(long)]
    seed: Option<u64>,
    /// Kinds of faults; by default all that this machine can make
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    faults: Vec<Kind>,
    /// The config store is a real ZooKeeper; the default where there are Java and Maven
    #[arg(long, conflicts_with = "file")]
    zookeeper: bool,
    /// The config store is a folder
    #[arg(long)]
    file: bool,
    /// Clients at the same time
    #[arg(long, default_value_t = 6)]
    clients: u64,
    /// Servers
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Ranges of slots
    #[arg(long, default_value_t = 16)]
    shards: u16,
    /// When a copy acknowledges: in memory, or on its disk
    #[arg(long, default_value = "replicated", value_parser = ["replicated", "fsync"])]
    durability: String,
    /// How long a server may serve without a word from the manager
    #[arg(long, default_value = "500ms")]
    lease: String,
    /// Writes the timeline there, an SVG, and a CSV beside it
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Instead: kills a primary so often, and prints how long its shards were not served
    #[arg(long, value_name = "N")]
    failover_times: Option<usize>,
    /// For so long no server is killed before, and leases that end are counted
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    calm_seconds: u64,
    /// Instead: kills all servers at once so often, and prints how long until all is served again
    #[arg(long, value_name = "ROUNDS", conflicts_with = "failover_times")]
    kill_all: Option<usize>,
    /// Keys that are written before all servers are killed, and read after that
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
    /// Instead: makes one shard hot, and draws what its move costs
    #[arg(long, requires = "timeline")]
    reshard: bool,
    /// Of a core, for each server, where servers are to be overloaded one by one
    #[arg(long, value_name = "HUNDREDTHS")]
    cpu: Option<u64>,
    /// A program that is ready; by default one is built
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Runs the demo; returns true if the cluster lost nothing and every answer is explained.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().subsec_nanos();
    let seed = args.seed.unwrap_or(u64::from(clock));
    let mut crew = Crew::start(plan(root, args, seed)?)?;
    println!("logs in {}", crew.plan().folder.display());
    let took = whole::wait(&mut crew)?;
    println!("whole after {:.1} s", took.as_secs_f64());
    if let Some(times) = args.failover_times {
        let calm = Duration::from_secs(args.calm_seconds);
        return failover::run(&mut crew, times, seed, calm).map(|()| true);
    }
    if let Some(rounds) = args.kill_all {
        return kill_all::run(&mut crew, rounds, args, seed);
    }
    if let (true, Some(path)) = (args.reshard, &args.timeline) {
        return reshard::run(&mut crew, args.clients, seed, path).map(|()| true);
    }
    println!("seed {seed}; again: {}", again(args, seed));
    let started = Instant::now();
    let times = (started, args.durability == "fsync");
    let load = Load::start(&crew.addresses(), args.clients, seed, times);
    let (marks, complaint) = match break_it(&mut crew, args, seed, started, &load) {
        Ok(marks) => (marks, None),
        Err((marks, error)) => (marks, Some(error)),
    };
    if complaint.is_some() {
        crew.keep_evidence();
    }
    let (history, findings) = load.end(complaint.is_some());
    report(&history, &findings, &marks);
    if let Some(path) = &args.timeline {
        timeline::write(path, &history.windows, &marks)?;
        println!("timeline: {}", path.display());
    }
    let is_good = judge(&findings, &crew.plan().folder)? && complaint.is_none();
    if let Some(error) = &complaint {
        println!("FAILED: {error:#}");
    }
    if !is_good {
        crew.keep_evidence();
        println!("logs in {}; again: {}", crew.plan().folder.display(), again(args, seed));
    }
    Ok(is_good)
}

fn plan(root: &Path, args: &Args, seed: u64) -> Result<Plan> {
    let binary = args.binary.clone().map_or_else(|| server_binary(root), Ok)?;
    let jars = match args.file {
        true => None,
        false => match zookeeper::jars(root) {
            Ok(jars) => Some(jars),
            Err(reason) if args.zookeeper => anyhow::bail!(reason),
            Err(reason) => {
                println!("the config store is a folder: {reason}");
                None
            }
        },
    };
    let folder = target(root).join(format!("demo-cluster/{seed}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (folder, binary) = (folder.canonicalize()?, binary.canonicalize()?);
    let Args { servers, shards, lease, .. } = args.clone();
    let is_durable = args.durability == "fsync";
    let (managers, cpu_hundredths) = (2, args.cpu);
    Ok(Plan { binary, folder, jars, servers, managers, shards, lease, is_durable, cpu_hundredths })
}

fn again(args: &Args, seed: u64) -> String {
    let mut line = format!("cargo xtask demo-cluster --seed {seed} --seconds {}", args.seconds);
    line.push_str(&format!(" --clients {} --lease {}", args.clients, args.lease));
    line.push_str(&format!(" --servers {} --shards {}", args.servers, args.shards));
    line.push_str(&format!(" --durability {}", args.durability));
    for (is_given, flag) in [(args.file, " --file"), (args.zookeeper, " --zookeeper")] {
        line.push_str(if is_given { flag } else { "" });
    }
    if !args.faults.is_empty() {
        let name = |kind: &Kind| {
            let value = clap::ValueEnum::to_possible_value(kind);
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let kinds: Vec<String> = args.faults.iter().map(name).collect();
        line.push_str(&format!(" --faults {}", kinds.join(",")));
    }
    line
}

/// One fault after another, each into a whole cluster (D1).
fn break_it(
    crew: &mut Crew,
    args: &Args,
    seed: u64,
    started: Instant,
    load: &Load,
) -> Result<Vec<Mark>, (Vec<Mark>, anyhow::Error)> {
    let mut dice = Dice::new(seed);
    let all = if args.faults.is_empty() { &faults::ALL[..] } else { &args.faults[..] };
    let kinds: Vec<Kind> = all.iter().copied().filter(|kind| kind.is_possible(crew)).collect();
    let (mut marks, mut minutes) = (Vec::new(), 0);
    while started.elapsed() < Duration::from_secs(args.seconds) {
        std::thread::sleep(Duration::from_millis(CALM_MS + dice.below(CALM_MS)));
        // A lease may have ended meanwhile, because this machine is busy.
        if let Err(error) = whole::wait(crew) {
            return Err((marks, error.context("while nothing was broken")));
        }
        let findings = load.findings();
        if let Some((line, _)) = &findings.violation {
            return Err((marks, anyhow::anyhow!("{line}")));
        }
        if started.elapsed().as_secs() / 60 > minutes {
            minutes = started.elapsed().as_secs() / 60;
            println!(
                "{minutes} min: {} faults, {} answers, {} requests of {} eras judged",
                marks.len(),
                load.answered(),
                findings.requests,
                findings.eras,
            );
        }
        let (before, fault) = (load.answered(), Fault::draw(&mut dice, &kinds, crew));
        let since = |at: Instant| (at - started).as_nanos() as u64;
        let result = fault.inject(crew).and_then(|(began, healed)| {
            let mut mark = Mark {
                name: fault.to_string(),
                began_ns: since(began),
                healed_ns: since(healed),
                whole_ns: since(healed),
            };
            let whole = whole::wait(crew);
            mark.whole_ns = since(Instant::now());
            marks.push(mark);
            whole
        });
        let at = started.elapsed().as_secs_f64();
        match result {
            Ok(whole) => println!(
                "{at:6.1} s  {fault}; whole {:.0} ms after it was healed; {} answers meanwhile",
                whole.as_secs_f64() * 1e3,
                load.answered() - before,
            ),
            Err(error) => return Err((marks, error.context(format!("{at:.1} s: {fault}")))),
        }
    }
    Ok(marks)
}

fn report(history: &History, findings: &Findings, marks: &[Mark]) {
    println!(
        "{} requests answered, {} unknown, {} faults",
        history.answered(),
        history.unknown,
        marks.len()
    );
    for (kind, count) in &history.counts {
        println!("{count:>8} answers to {kind}");
    }
    for (line, count) in &history.refusals {
        println!("{count:>8} x {line}");
    }
    if findings.halves > 0 {
        println!("{} reads saw half of a write that was not answered", findings.halves);
    }
}

fn judge(findings: &Findings, folder: &Path) -> Result<bool> {
    let Findings { eras, requests, undecided, violation, .. } = findings;
    if let Some((line, history)) = violation {
        let path = folder.join("violation.txt");
        std::fs::write(&path, format!("{line}\n{history}"))?;
        println!("VIOLATION: {line}: {}", path.display());
        return Ok(false);
    }
    if *undecided > 0 {
        println!("undecided: the search for an order was given up in {undecided} of {eras} eras");
        return Ok(false);
    }
    println!("linearizable: one order explains every answer of every key; {requests} requests");
    Ok(true)
}
