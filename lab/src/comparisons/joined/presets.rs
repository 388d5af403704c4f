//! `lab presets`: measures the default beside every preset, on a mix of the papers' workloads.
//!
//! ```text
//!  for each workload, for each repetition, for each preset (the other servers are stopped):
//!    closed loop ─▶ requests a second, p99, CPU time of the server a request
//!  ratios to the default, each from one repetition: what the machine does hits all of them alike
//! ```
//!
//! All threads of a server share one processor, so this shows the cost of each design where it
//! cannot gain from cores; `lab joint` shows the rest. The table has the default twice:
//! the difference between its two rows is the smallest that means anything.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

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
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Processor of the servers
    #[arg(long, default_value = "0")]
    server_cpus: String,
    /// Processor of the load generator
    #[arg(long, default_value = "1")]
    client_cpus: String,
    /// Only workloads whose name begins so
    #[arg(long, default_value = "")]
    only: String,
    /// Where the results go
    #[arg(long, default_value = "docs/results")]
    output: PathBuf,
}

const FLAGS: &str = "serve -q --resp 127.0.0.1:PORT --memcached off --native off --admin off \
                     --pin off --memory 1g --mode cache";
const CONNECTIONS: &str = "--connections 32 --pipeline 4";

/// A heading and words of `dovetail bench`.
const WORKLOADS: &[(&str, &str)] = &[
    ("MICA 16/64, 95:5", "--key-size 16 --value-size 64 --distribution zipf:0.99 --ratio 95:5"),
    ("MICA 16/64, 50:50", "--key-size 16 --value-size 64 --distribution uniform --ratio 50:50"),
    ("C-4 16/512, 5 %", "--key-size 16 --value-size 512 --distribution zipf:1.25 --ratio 95:5"),
    ("C-4 16/512, 50 %", "--key-size 16 --value-size 512 --distribution zipf:1.25 --ratio 50:50"),
    ("Minos", "--workload minos"),
    ("YCSB A", "--workload ycsb-a"),
    ("YCSB B", "--workload ycsb-b"),
    ("YCSB C", "--workload ycsb-c"),
    ("ETC", "--workload etc"),
    ("Twitter 12", "--workload twitter-12"),
    ("Twitter 19", "--workload twitter-19"),
    ("Twitter 31", "--workload twitter-31"),
    ("ZippyDB", "--workload zippydb"),
];

/// The number of keys of every workload, so that the store is filled in a second or two.
const KEYS: &str = "--keys 200k";

/// A name and flags; the first is the reference.
const SERVERS: &[(&str, &str)] = &[
    ("dovetail", "--threads 2"),
    ("dovetail, again", "--threads 2"),
    ("dovetail, one thread", "--threads 1"),
    ("dovetail, d-crew by size", "--threads 2 --write-policy d-crew --dispatch size-aware"),
    ("mica-erew", "--preset mica-erew --threads 2"),
    ("mica-crew", "--preset mica-crew --threads 2"),
    ("hkh", "--preset hkh --threads 2"),
    ("sho", "--preset sho --threads 2"),
    ("hkh-ws", "--preset hkh-ws --threads 2"),
    ("minos", "--preset minos --threads 2"),
    ("c4-erew", "--preset c4-erew --threads 2"),
    ("c4-crew", "--preset c4-crew --threads 2"),
    ("c4-dcrew", "--preset c4-dcrew --threads 2"),
    ("c4-comp", "--preset c4-comp --threads 2"),
    ("c4", "--preset c4 --threads 2"),
    ("basekv", "--preset basekv --threads 2"),
    ("erpckv", "--preset erpckv --threads 2"),
    ("mutps-h", "--preset mutps-h --threads 2"),
    ("mutps-t", "--preset mutps-t --threads 2"),
];

/// The smallest loss to report: two rows of one server differ by this much.
const EQUAL_RATIO: f64 = 0.99;

/// Most windows without an answer.
const WINDOWS_MAX: usize = 5;

/// One window.
#[derive(Clone, Copy, Debug)]
struct Window {
    per_second: f64,
    p99_us: f64,
    cpu_ns: f64,
}

type Field = fn(&Window) -> f64;

/// By workload, by server, by repetition.
type Samples = Vec<Vec<Vec<Window>>>;

/// Measures and writes `presets.md`.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    let binary = server_binary(root)?;
    let chosen: Vec<&(&str, &str)> =
        WORKLOADS.iter().filter(|(name, _)| name.starts_with(&args.only)).collect();
    ensure!(!chosen.is_empty(), "--only {}: no workload's name begins so", args.only);
    let mut samples = Vec::new();
    for workload in &chosen {
        samples.push(measure(&binary, args, workload)?);
    }
    let names: Vec<&str> = chosen.iter().map(|(name, _)| *name).collect();
    let mut out = page(&names, &samples);
    let _ = write!(
        out,
        "\nMedians of {} windows of {} ms (least to most). 200,000 keys, 32 connections of 4 \
         requests. {}; commit {}; {}; servers on processor {}, the load generator on {}, servers \
         by turns, the others stopped; `cargo run -p lab --release -- presets \
         --only {:?} --milliseconds {} --repetitions {}`.\n",
        args.repetitions,
        args.milliseconds,
        machine(root)?,
        commit(root)?,
        date(root)?,
        args.server_cpus,
        args.client_cpus,
        args.only,
        args.milliseconds,
        args.repetitions,
    );
    write_page(&root.join(&args.output), "presets.md", &out)
}

fn measure(
    binary: &Path,
    args: &Args,
    (heading, words): &(&str, &str),
) -> Result<Vec<Vec<Window>>> {
    let client = Client { binary, cpus: &args.client_cpus, seconds: 1 };
    let program = binary.display().to_string();
    let items = format!("{words} {KEYS}");
    let mut subjects = Vec::new();
    for (name, flags) in SERVERS {
        // Split at single spaces: none at the end, or there is an empty argument.
        let flags = format!("{FLAGS} {flags}");
        let mut subject =
            Server::start(name, "resp", &program, flags.trim_end(), &args.server_cpus)?;
        let once = format!("{CONNECTIONS} --duration 50ms --warmup 0");
        subject.running(|subject| client.bench(subject, &items, &once))?;
        subjects.push(subject);
    }
    let window =
        format!("{CONNECTIONS} --no-populate --warmup 100ms --duration {}ms", args.milliseconds);
    let mut samples = vec![Vec::new(); SERVERS.len()];
    for repetition in 1..=args.repetitions {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            let window = measured(&client, subject, &items, &window)?;
            println!(
                "{repetition}: {heading:<18} {:<28} {:>9.0}/s p99 {:>6.0} us {:>5.0} ns",
                subject.name, window.per_second, window.p99_us, window.cpu_ns
            );
            samples.push(window);
        }
    }
    Ok(samples)
}

/// Repeats a window in which another process had the processors.
fn measured(client: &Client<'_>, subject: &mut Server, items: &str, words: &str) -> Result<Window> {
    for _ in 0..WINDOWS_MAX {
        let report = subject.running(|subject| client.bench(subject, items, words))?;
        if number(&report, "/ops_per_second")? == 0.0 {
            continue;
        }
        return Ok(Window {
            per_second: number(&report, "/ops_per_second")?,
            p99_us: number(&report, "/latency_us/p99")?,
            cpu_ns: number(&report, "/server_cpu_ns_per_op")?,
        });
    }
    bail!("{} answered nothing in {WINDOWS_MAX} windows", subject.name)
}

fn page(workloads: &[&str], samples: &Samples) -> String {
    let mut out = String::from(
        "# The default beside every preset\n\n\
         Here every design runs on one processor, beside one for the load: what is compared is \
         what each costs, not what it gains from cores (that is simulated: figures/joint.md). All \
         have two threads, the same memory and evict when it is full. The default runs to \
         completion here; its second row is the same server again, so a difference as large as \
         theirs means nothing.\n\n",
    );
    losses(&mut out, workloads, samples);
    let columns: [(&str, Field); 3] = [
        ("Throughput, of the default's", |window| window.per_second),
        ("p99 latency, of the default's", |window| window.p99_us),
        ("Server CPU time a request, of the default's", |window| window.cpu_ns),
    ];
    for (title, field) in columns {
        let _ = write!(out, "\n## {title}\n\n| server |");
        for workload in workloads {
            let _ = write!(out, " {workload} |");
        }
        let _ = write!(out, "\n|---|{}\n", "---|".repeat(workloads.len()));
        for (at, (name, _)) in SERVERS.iter().enumerate() {
            let _ = write!(out, "| {name} |");
            for by_server in samples {
                let Spread { median, min, max } = ratios(by_server, at, field);
                let _ = write!(out, " {median:.2} ({min:.2} to {max:.2}) |");
            }
            out.push('\n');
        }
    }
    out
}

/// Each repetition's ratio to the default's.
fn ratios(by_server: &[Vec<Window>], at: usize, field: Field) -> Spread {
    let pairs = by_server[at].iter().zip(&by_server[0]);
    Spread::of(pairs.map(|(own, default)| field(own) / field(default)).collect())
}

/// The cases in which a preset serves more than the default.
fn losses(out: &mut String, workloads: &[&str], samples: &Samples) {
    let mut kept = 0;
    let mut lines = String::new();
    for (workload, by_server) in workloads.iter().zip(samples) {
        // The rows that are not presets show how far equal servers differ, and other requested
        // settings.
        let presets = SERVERS.iter().enumerate().filter(|(_, (name, _))| !name.starts_with("dov"));
        let best = presets
            .map(|(at, (name, _))| (ratios(by_server, at, |window| window.per_second), *name))
            .max_by(|left, right| left.0.median.total_cmp(&right.0.median));
        let Some((Spread { median, min, max }, name)) = best else { continue };
        if median * EQUAL_RATIO <= 1.0 {
            kept += 1;
            continue;
        }
        let again = ratios(by_server, 1, |window| window.per_second).median;
        let _ = writeln!(
            lines,
            "- {workload}: {name} serves {median:.2} ({min:.2} to {max:.2}) of it; the default's \
             second row {again:.2}."
        );
    }
    let of = workloads.len();
    let _ = writeln!(out, "Of {of} workloads the default is the best or within 1 % in {kept}.");
    if !lines.is_empty() {
        let _ = write!(out, "It loses:\n\n{lines}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal servers, and one preset that serves more by `percent`.
    fn samples(percent: f64) -> Samples {
        let window = |per_second| Window { per_second, p99_us: 10.0, cpu_ns: 100.0 };
        let mut by_server = vec![vec![window(100.0), window(200.0)]; SERVERS.len()];
        let better = 1.0 + percent / 100.0;
        by_server[6] = vec![window(100.0 * better), window(200.0 * better)];
        vec![by_server]
    }

    #[test]
    fn a_preset_that_serves_more_is_named_with_how_much() {
        let text = page(&["YCSB A"], &samples(10.0));
        assert!(text.contains("within 1 % in 0.\nIt loses:\n"), "{text}");
        assert!(text.contains("- YCSB A: hkh serves 1.10 (1.10 to 1.10) of it"), "{text}");
        assert!(text.contains("| hkh | 1.10 (1.10 to 1.10) |"), "{text}");
    }

    #[test]
    fn ratios_are_of_one_repetition_each() {
        let text = page(&["YCSB A"], &samples(0.5));
        assert!(text.contains("Of 1 workloads the default is the best or within 1 % in 1."));
        assert!(!text.contains("It loses"), "{text}");
        assert!(text.contains("| minos | 1.00 (1.00 to 1.00) |"), "{text}");
    }
}
