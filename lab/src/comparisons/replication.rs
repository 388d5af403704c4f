//! `lab replication`: measures the cost of a SET on a cluster's servers, by replication scheme.
//!
//! ```text
//!  for each repetition: for each scheme, and Redis: start 3 servers ─▶ warm up
//!      ─▶ for each pipeline: CPU time of all threads ─ redis-benchmark ─ CPU time again ─▶ stop
//!  one shard:    n1 is primary of all, n2 and n3 are backups     what each pays
//!  many shards:  all are both                                    what it costs together
//!  medians and quartiles ─▶ a table; docs/results/replication-costs.csv
//! ```
//!
//! # Invariants
//! B1: CPU time is the kernel's (`schedstat`), so other work on the machine affects it through
//!     caches only. Schemes take turns, so that such effects are the same for all.

mod cluster;
mod report;

use std::path::{Path, PathBuf};

use anyhow::Result;
use steps::server_binary;

use cluster::{Layout, Running};
use report::{Cost, Sample};

/// Flags of `lab replication`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How often each scheme is measured
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// SETs of one measurement with pipelines; a tenth of it one at a time
    #[arg(long, default_value_t = 200_000)]
    requests: u64,
    /// Of rowan, rpc, write, batch, share, redis
    #[arg(long, value_delimiter = ',', default_value = "rowan,rpc,write,batch,share,redis")]
    schemes: Vec<String>,
    /// First of ten ports
    #[arg(long, default_value_t = 28_000)]
    port: u16,
    /// The program; by default it is built, with optimization
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where the costs by role go
    #[arg(long, default_value = "docs/results/replication-costs.csv")]
    output: PathBuf,
}

/// The number of requests in flight on a connection.
const PIPELINES: [u64; 2] = [16, 1];

/// Runs the benchmark.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let binary = args.binary.clone().map_or_else(|| server_binary(root), Ok)?;
    let mut samples = Vec::new();
    for repetition in 1..=args.repetitions {
        for scheme in &args.schemes {
            for layout in [Layout::OnePrimary, Layout::Spread] {
                let (name, one) = (scheme.clone(), measure(&binary, args, scheme, layout)?);
                eprintln!("{repetition}/{} {name} {layout:?}: {}", args.repetitions, words(&one));
                samples.extend(one);
            }
        }
    }
    println!("{}", report::table(&samples));
    std::fs::write(root.join(&args.output), report::csv(&samples))?;
    Ok(())
}

fn words(samples: &[Sample]) -> String {
    let word = |sample: &Sample| format!("P={} {:.2} us", sample.pipeline, sample.total_us());
    samples.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn measure(binary: &Path, args: &Args, scheme: &str, layout: Layout) -> Result<Vec<Sample>> {
    let running = Running::start(binary, scheme, layout, args.port)?;
    running.load(args.requests / 2, PIPELINES[0])?;
    let mut samples = Vec::new();
    for pipeline in PIPELINES {
        let requests = if pipeline == 1 { args.requests / 10 } else { args.requests };
        let before = running.cpu_ns()?;
        running.load(requests, pipeline)?;
        let after = running.cpu_ns()?;
        let costs = before.iter().zip(&after).enumerate().flat_map(|(server, (before, after))| {
            let part = if server == 0 { "primary" } else { "backup" };
            let spent = after.iter().map(move |(role, ns)| {
                let ns = ns.saturating_sub(before.get(role).copied().unwrap_or(0));
                Cost { part, role, us: ns as f64 / 1e3 / requests as f64 }
            });
            spent.collect::<Vec<_>>()
        });
        let (costs, streams) = (costs.collect(), running.streams());
        samples.push(Sample { scheme: scheme.to_owned(), layout, pipeline, costs, streams });
    }
    Ok(samples)
}
