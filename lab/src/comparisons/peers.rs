//! `lab peers`: measures Dovetail, Redis and memcached side by side, one core each side.
//!
//! ```text
//!  core 0  one server runs, the others are stopped      core 1  dovetail bench
//!
//!  for each repetition: for each workload: for each server: measure      (interleaved)
//!  medians, spread, ratio to the best peer ─▶ docs/results/DATE-peers.{md,json,svg}, README table
//! ```
//!
//! Interleaving spreads the disturbance of a shared machine over all servers alike. A run in which
//! either side waited for its core for more than a twentieth of its time is discarded.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use steps::{Step, server_binary, target};

use crate::comparisons::conditions::raise_priority;
use crate::comparisons::server::Server;

mod measure;
pub mod report;
pub mod servers;

use measure::{Sample, embedded_ops_per_cpu_second, measure};
use report::{Embedded, Row, Run};
use servers::{Contestant, Kind};

/// What may be chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seconds of each measured window
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often each pair of server and workload is measured
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Keys of the networked workloads
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Keys of the store in process
    #[arg(long, default_value_t = 10_000_000)]
    embedded_keys: u64,
    /// Core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of the load generator
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Least part of its core that a side must get while it wants it
    #[arg(long, default_value_t = 0.95)]
    share_min: f64,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

/// A load for every server.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name in tables.
    name: &'static str,
    /// `--workload` of the load generator.
    operation: &'static str,
    connection_count: u32,
    pipeline: u32,
    /// How the client waits.
    poll: &'static str,
}

impl Workload {
    /// A server that never sleeps is measured where its client does not sleep either.
    fn suits(&self, contestant: &Contestant) -> bool {
        !contestant.is_polling || self.poll == "spin"
    }
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "GET, 4 x 32",
        operation: "get",
        connection_count: 4,
        pipeline: 32,
        poll: "auto",
    },
    Workload {
        name: "GET, 50 x 1",
        operation: "get",
        connection_count: 50,
        pipeline: 1,
        poll: "auto",
    },
    Workload {
        name: "SET, 4 x 32",
        operation: "set",
        connection_count: 4,
        pipeline: 32,
        poll: "auto",
    },
    Workload {
        name: "GET, 1 x 1, client polls",
        operation: "get",
        connection_count: 1,
        pipeline: 1,
        poll: "spin",
    },
];

/// Attempts at one measurement before the run is given up because the machine is too busy.
const ATTEMPTS_MAX: usize = 8;

/// Measures and writes the results.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let binary = server_binary(root)?;
    let build_bare = "cargo build --release --locked -p bench --example bare_server";
    ensure!(Step::new("build", build_bare).run(root), "the bare server does not build");
    raise_priority();
    let bare_binary = target(root).join("release/examples/bare_server");
    let mut servers = Contestant::start_all(&binary, &bare_binary, args.server_core)?;
    for server in servers.iter_mut().filter(|server| server.kind != Kind::Bare) {
        println!("populating {}", server.name());
        server.server.running(|server| measure::populate(&binary, args, server))?;
    }
    let mut rows: Vec<Row> = WORKLOADS
        .iter()
        .flat_map(|workload| {
            let suited = servers.iter().filter(|server| workload.suits(server));
            suited.map(|server| Row::new(workload.name, server.name(), server.kind))
        })
        .collect();
    for repetition in 1..=args.repetitions {
        for workload in &WORKLOADS {
            let suited = servers.iter_mut().filter(|server| workload.suits(server));
            for server in suited.map(|contestant| &mut contestant.server) {
                let sample = server
                    .running(|server| measure_until_undisturbed(&binary, args, server, workload))?;
                println!("{repetition}: {:<12} {:<22} {sample}", workload.name, server.name);
                let is_row = |row: &&mut Row| row.is_of(workload.name, server.name);
                let row = rows.iter_mut().find(is_row).context("every pair has a row")?;
                row.samples.push(sample);
            }
        }
    }
    let versions = servers.iter().map(Contestant::version).collect();
    drop(servers);
    let embedded = measure_embedded(&binary, args)?;
    let run = Run::describe(root, args, versions, rows, embedded)?;
    report::write(root, &args.output, &run)
}

fn measure_until_undisturbed(
    binary: &Path,
    args: &Args,
    server: &Server,
    workload: &Workload,
) -> Result<Sample> {
    for _ in 0..ATTEMPTS_MAX {
        let sample = measure(binary, args, server, workload)?;
        if sample.share_ratio_min() >= args.share_min {
            return Ok(sample);
        }
        println!("thrown away, a side got too little of its core: {sample}");
    }
    bail!("{}: the machine is too busy to measure on; stop what else runs", server.name)
}

/// The store in process, requests one at a time and in batches.
fn measure_embedded(binary: &Path, args: &Args) -> Result<Vec<Embedded>> {
    let mut found: Vec<Embedded> = [1, 32].map(Embedded::new).into();
    for repetition in 1..=args.repetitions {
        for row in &mut found {
            let ops = embedded_ops_per_cpu_second(binary, args, row.batch)?;
            println!(
                "{repetition}: embedded, batch {:<2} {:.1} Mops per CPU s",
                row.batch,
                ops / 1e6
            );
            row.ops_per_cpu_second.push(ops);
        }
    }
    Ok(found)
}
