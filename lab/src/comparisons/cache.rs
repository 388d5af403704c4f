//! `lab cache`: miss ratios of Dovetail and memcached at equal memory, on the same requests.
//!
//! ```text
//!  for each workload and memory: start one server ─▶ dovetail sim cache --server ADDR ─▶ stop it
//!  misses, items, resident bytes ─▶ docs/results/DATE-cache.{md,json,svg}
//! ```
//!
//! The client looks a key up and stores it on a miss, with the trace's size and TTL. The memory is
//! set by each server's own option (`-m`, `--memory`); its actual use is measured. Nothing is
//! timed, so a busy machine does not matter.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use steps::server_binary;

mod report;
mod server;

use server::{Kind, Running};

/// What may be chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A cache trace to replay beside the generated clusters
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Twitter clusters to generate
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    #[arg(default_value = "4,7,12,19,26,31,45,53")]
    clusters: Vec<u32>,
    /// Requests of each cluster
    #[arg(long, default_value_t = 3_000_000)]
    requests: u64,
    /// MiB that each server is given
    #[arg(long, value_delimiter = ',', value_name = "MIB,...", default_value = "64,256")]
    memory: Vec<u64>,
    /// Policies of ours; `default` is whatever `serve` takes without being told
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "default")]
    eviction: Vec<String>,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

/// The result of one server under one workload with one memory size.
#[derive(Clone, Debug)]
pub struct Row {
    /// `twitter-12`, or the trace's file name.
    pub workload: String,
    /// The memory given to the server.
    pub memory_mib: u64,
    /// Its name in tables.
    pub server: String,
    /// Misses of look-ups.
    pub miss_ratio: f64,
    /// The same by bytes of key and value.
    pub byte_miss_ratio: f64,
    /// Items at the end.
    pub items: f64,
    /// Evicted items.
    pub evictions: u64,
    /// Resident memory at the end.
    pub resident_mib: f64,
}

/// Replays and writes the results.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let binary = binary(root, args)?;
    let kinds: Vec<Kind> = std::iter::once(Kind::Memcached)
        .chain(args.eviction.iter().cloned().map(Kind::Dovetail))
        .filter(|kind| kind.is_installed(&binary))
        .collect();
    ensure!(
        kinds.contains(&Kind::Memcached),
        "memcached is not installed: nothing to compare with"
    );
    let mut rows = Vec::new();
    let mut summaries = Vec::new();
    for workload in workloads(args) {
        for memory_mib in &args.memory {
            for kind in &kinds {
                let (row, summary) = replay(&binary, args, &workload, *memory_mib, kind)?;
                println!(
                    "{} at {memory_mib} MiB, {}: {:.4} missed, {:.0} items, {:.0} MiB resident",
                    row.workload, row.server, row.miss_ratio, row.items, row.resident_mib
                );
                rows.push(row);
                if !summaries.contains(&summary) {
                    summaries.push(summary);
                }
            }
        }
    }
    report::write(root, args, &summaries, &rows)
}

fn binary(root: &Path, args: &Args) -> Result<PathBuf> {
    args.binary.clone().map_or_else(|| server_binary(root), Ok)
}

/// The flags of `dovetail sim cache` for each workload.
fn workloads(args: &Args) -> Vec<Vec<String>> {
    let trace = args.trace.iter();
    let trace = trace.map(|path| vec!["--trace".to_owned(), path.display().to_string()]);
    let clusters = args.clusters.iter().map(|number| {
        let words = ["--workload", &format!("twitter-{number}"), "--requests"];
        words.into_iter().map(str::to_owned).chain([args.requests.to_string()]).collect()
    });
    trace.chain(clusters).collect()
}

/// Runs a new server under a workload; returns its row, and a line about the workload.
fn replay(
    binary: &Path,
    args: &Args,
    workload: &[String],
    memory_mib: u64,
    kind: &Kind,
) -> Result<(Row, String)> {
    let server = Running::start(kind, binary, memory_mib)?;
    let mut command = Command::new(binary);
    command.args(["sim", "cache"]).args(workload);
    command.args(["--policy", "none", "--json", "--server", &server.address()]);
    let output = command.output().context("cannot run `dovetail sim cache`")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "dovetail sim cache: {}", message.trim());
    if !message.is_empty() {
        eprint!("{message}");
    }
    let resident_mib = server.resident_mib()?;
    let json: Value = serde_json::from_slice(&output.stdout).context("its JSON")?;
    let row = &json["rows"][0];
    let number = |name: &str| row[name].as_f64().with_context(|| format!("{name} in {row}"));
    let name = json["trace"].as_str().context("the trace's name")?.to_owned();
    let summary = format!(
        "{name}: {} requests, {} of them look-ups; {} objects of {} MiB in all",
        json["requests"],
        json["look_ups"],
        json["objects"],
        json["working_set_bytes"].as_u64().unwrap_or(0) >> 20
    );
    let row = Row {
        workload: name,
        memory_mib,
        server: kind.name(args.eviction.len() > 1),
        miss_ratio: number("miss_ratio")?,
        byte_miss_ratio: number("byte_miss_ratio")?,
        items: number("objects")?,
        evictions: row["evictions"].as_u64().context("evictions")?,
        resident_mib,
    };
    Ok((row, summary))
}
