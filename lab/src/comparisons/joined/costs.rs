//! `lab costs`: measures the cost per request of routing, of the forwarding between
//! two layers, of batches and of windows, in CPU time of the server.
//!
//! ```text
//!  for each table, for each repetition, for each set of flags (the other servers are stopped):
//!    closed loop, 4 connections of 32 requests ─▶ CPU time of the server's threads a request
//! ```
//!
//! All threads of a server share one processor, so that the time one thread spends waiting for
//! another is counted. A row that repeats the first one shows the difference between equal servers.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use steps::server_binary;

use super::runs::Client;
use crate::comparisons::bench_report::number;
use crate::comparisons::conditions::{commit, date, machine, write_page};
use crate::comparisons::server::Server;
use crate::comparisons::statistics::Spread;

/// What may be chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Milliseconds of each measured window
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
    /// How often each row is measured
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Processor of the servers
    #[arg(long, default_value = "0")]
    server_cpus: String,
    /// Processor of the load generator
    #[arg(long, default_value = "1")]
    client_cpus: String,
    /// Only tables whose title begins so
    #[arg(long, default_value = "")]
    only: String,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

/// Servers that differ in their flags, under one kind of load.
struct Table {
    title: &'static str,
    about: &'static str,
    /// The options of the load that are the same in all columns, ...
    items: &'static str,
    /// ... and those that differ: a heading, and words of `dovetail bench`.
    loads: &'static [(&'static str, &'static str)],
    /// A name and flags; the first is the reference.
    servers: &'static [(&'static str, &'static str)],
}

const FLAGS: &str = "serve -q --resp 127.0.0.1:PORT --memcached off --native off --admin off \
                     --pin off --memory 512m --tuner off --hot-set off";
const CONNECTIONS: &str = "--connections 4 --pipeline 32";
const SMALL: &str = "--keys 100k --key-size 16 --value-size 64 --distribution uniform";
const HOT: &str = "--keys 100k --ratio 50:50";

const TABLES: &[Table] = &[
    Table {
        title: "Routing, the write table and sizes",
        about: "Two threads that receive and execute. By size, small requests stay with their \
                receiver, so what is paid is being asked, the write table's pins, and counting \
                sizes. The goal is 40 ns for all three.",
        items: SMALL,
        loads: &[
            ("GET", "--ratio 100:0"),
            ("95:5", "--ratio 95:5"),
            ("50:50", "--ratio 50:50"),
            ("SET", "--ratio 0:100"),
        ],
        servers: &[
            ("crcw any", "--threads 2 --cr-threads 2 --write-policy crcw --dispatch any"),
            (
                "crcw size-aware",
                "--threads 2 --cr-threads 2 --write-policy crcw --dispatch size-aware",
            ),
            ("d-crew any", "--threads 2 --cr-threads 2 --write-policy d-crew --dispatch any"),
            (
                "d-crew size-aware",
                "--threads 2 --cr-threads 2 --write-policy d-crew --dispatch size-aware",
            ),
            ("crcw any, again", "--threads 2 --cr-threads 2 --write-policy crcw --dispatch any"),
        ],
    },
    Table {
        title: "The forwarding and its batch",
        about: "One thread that polls and one that executes (uTPS §3.3, Fig. 12), against one \
                thread that does both. The goal is 60 ns at batch 20.",
        items: SMALL,
        loads: &[("GET", "--ratio 100:0"), ("50:50", "--ratio 50:50")],
        servers: &[
            ("one thread", "--threads 1"),
            ("1 + 1, batch 1", "--threads 2 --cr-threads 1 --batch 1"),
            ("1 + 1, batch 2", "--threads 2 --cr-threads 1 --batch 2"),
            ("1 + 1, batch 4", "--threads 2 --cr-threads 1 --batch 4"),
            ("1 + 1, batch 8", "--threads 2 --cr-threads 1 --batch 8"),
            ("1 + 1, batch 16", "--threads 2 --cr-threads 1 --batch 16"),
            ("1 + 1, batch 20", "--threads 2 --cr-threads 1 --batch 20"),
            ("1 + 1, batch 32", "--threads 2 --cr-threads 1 --batch 32"),
            ("one thread, batch 1", "--threads 1 --batch 1"),
            ("one thread, batch 8", "--threads 1 --batch 8"),
            ("one thread, again", "--threads 1"),
        ],
    },
    Table {
        title: "Windows on a hot key",
        about: "Half writes, one thread that polls and one that executes, d-CREW. `short` puts \
                writes of any length together, from two on, as C-4 does; `auto` only where it was \
                found to pay.",
        items: HOT,
        loads: &[
            ("8/8, 0.99", "--key-size 8 --value-size 8 --distribution zipf:0.99"),
            ("8/8, 1.25", "--key-size 8 --value-size 8 --distribution zipf:1.25"),
            ("16/128, 0.99", "--key-size 16 --value-size 128 --distribution zipf:0.99"),
            ("16/128, 1.25", "--key-size 16 --value-size 128 --distribution zipf:1.25"),
            ("16/512, 0.99", "--key-size 16 --value-size 512 --distribution zipf:0.99"),
            ("16/512, 1.25", "--key-size 16 --value-size 512 --distribution zipf:1.25"),
        ],
        servers: &[
            ("off", "--threads 2 --cr-threads 1 --write-policy d-crew --compaction off"),
            ("auto", "--threads 2 --cr-threads 1 --write-policy d-crew --compaction auto"),
            (
                "short",
                "--threads 2 --cr-threads 1 --write-policy d-crew --compaction on \
                 --compact-short on",
            ),
            ("off, again", "--threads 2 --cr-threads 1 --write-policy d-crew --compaction off"),
        ],
    },
];

/// Nanoseconds a request: by load, by server, by repetition.
type Samples = Vec<Vec<Vec<f64>>>;

/// Measures and writes `costs.md`.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let binary = server_binary(root)?;
    let chosen: Vec<&Table> =
        TABLES.iter().filter(|table| table.title.starts_with(&args.only)).collect();
    ensure!(!chosen.is_empty(), "--only {}: no table's title begins so", args.only);
    let mut out = String::from("# What each joint costs a request\n");
    for table in chosen {
        let samples = measure(&binary, args, table)?;
        // Writing to a string cannot fail.
        let (title, about) = (table.title, table.about);
        let _ = write!(out, "\n## {title}\n\n{about}\n\n{}", text(table, &samples));
    }
    let _ = write!(
        out,
        "\nNanoseconds of the server's processor a request, system calls included: medians of {} \
         windows of {} ms (least to most), the difference to the first row's median behind them. \
         Four connections of 32 requests. {}; commit {}; {}; servers on processor {}, the load \
         generator on {}, servers by turns, the others stopped; `cargo run -p lab --release -- \
         costs --milliseconds {} --repetitions {}`.\n",
        args.repetitions,
        args.milliseconds,
        machine(root)?,
        commit(root)?,
        date(root)?,
        args.server_cpus,
        args.client_cpus,
        args.milliseconds,
        args.repetitions,
    );
    write_page(&root.join(&args.output), "costs.md", &out)
}

fn measure(binary: &Path, args: &Args, table: &Table) -> Result<Samples> {
    let client = Client { binary, cpus: &args.client_cpus, seconds: 1 };
    let program = binary.display().to_string();
    let start = |(name, flags): &(&'static str, &str)| {
        let flags = format!("{FLAGS} {flags}");
        Server::start(name, "resp", &program, &flags, &args.server_cpus)
    };
    let mut samples = vec![vec![Vec::new(); table.servers.len()]; table.loads.len()];
    for (load, samples) in table.loads.iter().zip(&mut samples) {
        let mut subjects = table.servers.iter().map(start).collect::<Result<Vec<Server>>>()?;
        let items = format!("{} {}", table.items, load.1);
        for subject in &mut subjects {
            let once = format!("{CONNECTIONS} --duration 50ms --warmup 0");
            subject.running(|subject| client.bench(subject, &items, &once))?;
        }
        let window = format!(
            "{CONNECTIONS} --no-populate --warmup 100ms --duration {}ms",
            args.milliseconds
        );
        for repetition in 1..=args.repetitions {
            for (subject, samples) in subjects.iter_mut().zip(samples.iter_mut()) {
                let report = subject.running(|subject| client.bench(subject, &items, &window))?;
                let cost_ns = number(&report, "/server_cpu_ns_per_op")?;
                println!("{repetition}: {:<14} {:<28} {cost_ns:.0} ns", load.0, subject.name);
                samples.push(cost_ns);
            }
        }
    }
    Ok(samples)
}

fn text(table: &Table, samples: &Samples) -> String {
    let mut out = String::from("| server |");
    for (heading, _) in table.loads {
        let _ = write!(out, " {heading} |");
    }
    let _ = write!(out, "\n|---|{}\n", "---|".repeat(table.loads.len()));
    for (at, (name, _)) in table.servers.iter().enumerate() {
        let _ = write!(out, "| {name} |");
        for by_server in samples {
            let first = Spread::of(by_server[0].clone()).median;
            let Spread { median, min, max } = Spread::of(by_server[at].clone());
            let more = median - first;
            let _ = write!(out, " {median:.0} ({min:.0} to {max:.0}) {more:+.0} |");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_told_beside_its_difference_to_the_first() {
        let table = Table {
            title: "t",
            about: "",
            items: "",
            loads: &[("GET", "")],
            servers: &[("one", ""), ("two", "")],
        };
        let samples = vec![vec![vec![100.0, 110.0, 90.0], vec![150.0, 120.0, 130.0]]];
        let want = "| server | GET |\n|---|---|\n| one | 100 (90 to 110) +0 |\n\
                    | two | 130 (120 to 150) +30 |\n";
        assert_eq!(text(&table, &samples), want);
    }
}
