//! The servers, the loads, and one run of the load generator.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use steps::programs;

use super::Part;
use crate::comparisons::bench_report::{number, read};
use crate::comparisons::server::Server;

const LARGE_VALUE: &str = "10000000";
/// Reads of it a second, and the connections that these take turns on.
const LARGE_RATE: &str = "20";
/// Minos's mix: with the large values of up to 500 KB, and the same without. The keys differ in
/// length, so that a server can have both.
const MIX: &str = "--workload minos --keys 400k";
const MIX_OF_SMALL: &str =
    "--workload minos --keys 400k --key-size 9 --value-size 1-13:40,14-1400:60";

/// Starts each server whose program is installed.
pub fn start_all(binary: &Path, cpus: &str, part: Part, threads: usize) -> Result<Vec<Server>> {
    const OURS: &str = "serve -q --resp 127.0.0.1:PORT --memcached off --native off \
                        --admin off --pin off --memory 2g --max-item-size 16m --threads N";
    const REDIS: &str = "--port PORT --bind 127.0.0.1 --save  --appendonly no --loglevel warning";
    const MEMCACHED: &str = "-R 1000 -m 4096 -o hashpower=20 -I 16m -l 127.0.0.1 -U 0 \
                             -u nobody -p PORT -t N";
    let binary = binary.display().to_string();
    let ours = |flags: &str| format!("{OURS} {flags}");
    let plans: Vec<(&str, &str, &str, String)> = match part {
        Part::Overload => vec![
            ("dovetail", "resp", &binary, ours("--dispatch any --write-policy crcw")),
            ("redis-server", "resp", "redis-server", REDIS.to_owned()),
            ("memcached", "memcached", "memcached", MEMCACHED.to_owned()),
        ],
        Part::Sizes | Part::Large => {
            let mut plans = match threads {
                1 => vec![("dovetail", "resp", &*binary, ours(""))],
                _ => vec![
                    ("dovetail, size-aware", "resp", &*binary, {
                        ours("--dispatch size-aware --write-policy crcw")
                    }),
                    ("dovetail, any worker", "resp", &*binary, {
                        ours("--dispatch any --write-policy crcw")
                    }),
                ],
            };
            let io_threads = format!("{REDIS} --io-threads 2");
            plans.extend([
                ("redis-server, one thread", "resp", "redis-server", REDIS.to_owned()),
                ("redis-server, io-threads", "resp", "redis-server", io_threads),
                ("memcached", "memcached", "memcached", MEMCACHED.to_owned()),
            ]);
            plans
        }
    };
    let mut subjects = Vec::new();
    for (name, scheme, program, arguments) in plans {
        if !programs::is_installed(program) {
            println!("skipped: {name} is not installed");
            continue;
        }
        let arguments = arguments.replace(" N", &format!(" {threads}"));
        // Split at single spaces: none at the end, or there is an empty argument.
        let arguments = arguments.trim_end();
        subjects.push(Server::start(name, scheme, program, arguments, cpus)?);
    }
    Ok(subjects)
}

/// The load of a part on each server.
pub struct Load {
    part: Part,
    /// Keys, sizes and operations.
    items: &'static str,
    connections: &'static str,
    pipeline: &'static str,
}

impl Load {
    /// Requests of one connection wait behind each other's replies, so the parts about sizes have
    /// one request at a time on each of many connections.
    pub fn of(part: Part) -> Load {
        let small = "--workload get --ratio 95:5 --distribution zipf:0.99 --keys 100k \
                     --key-size 16 --value-size 64";
        match part {
            Part::Overload => Load { part, items: small, connections: "32", pipeline: "8" },
            Part::Sizes => Load { part, items: MIX, connections: "64", pipeline: "1" },
            Part::Large => Load { part, items: small, connections: "64", pipeline: "1" },
        }
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The peak of the closed loop before it.
    pub peak_per_second: f64,
    pub offered_per_second: f64,
    /// Operations answered in the window.
    pub answered_per_second: f64,
    pub dropped: f64,
    /// Latencies of small values, if a load has both.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// The same of the load without the large values, where a part has them.
    pub without: Option<Tail>,
    /// Latencies of large values, if a load has both.
    pub large_p99_us: Option<f64>,
}

/// Latencies of small values.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    pub p99_us: f64,
    pub p999_us: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.0} of {:.0}/s answered, {:.0} dropped, p50 {:.0} us p99 {:.0} us p99.9 {:.0} us",
            self.answered_per_second,
            self.offered_per_second,
            self.dropped,
            self.p50_us,
            self.p99_us,
            self.p999_us,
        )?;
        match self.without {
            None => Ok(()),
            Some(Tail { p99_us, p999_us }) => {
                write!(formatter, "; without the large p99 {p99_us:.0} us p99.9 {p999_us:.0} us")
            }
        }
    }
}

/// The load generator.
pub struct Client<'a> {
    pub binary: &'a Path,
    pub cpus: &'a str,
    pub seconds: u64,
}

impl Client<'_> {
    /// Stores every key once, and what else the part has.
    pub fn populate(&self, subject: &Server, load: &Load) -> Result<()> {
        self.bench(subject, load.items, "--duration 200ms --warmup 0 --connections 8")?;
        let words = "--duration 200ms --warmup 0 --connections 1";
        match load.part {
            Part::Overload => {}
            Part::Sizes => _ = self.bench(subject, MIX_OF_SMALL, words)?,
            Part::Large => _ = self.bench(subject, &large_items(), words)?,
        }
        Ok(())
    }

    /// Requests a second in a closed loop.
    pub fn peak(&self, subject: &Server, load: &Load) -> Result<f64> {
        let words = format!("{} --no-populate", self.shape(load));
        let report = self.bench(subject, load.items, &words)?;
        number(&report, "/ops_per_second")
    }

    /// Sends this many requests a second whether they are answered or not.
    pub fn open(&self, subject: &Server, load: &Load, peak: f64, offered: f64) -> Result<Sample> {
        let rate = offered as u64;
        let when_full = if load.part == Part::Overload { "drop" } else { "wait" };
        let words =
            format!("{} --no-populate --rate {rate} --when-full {when_full}", self.shape(load));
        let (report, without) = match load.part {
            Part::Overload => (self.bench(subject, load.items, &words)?, None),
            Part::Sizes => {
                let mixed = format!("{words} --large-threads 1");
                let report = self.bench(subject, load.items, &mixed)?;
                (report, Some(self.bench(subject, MIX_OF_SMALL, &words)?))
            }
            Part::Large => {
                let mut reader = self.large_reader(subject)?;
                let report = self.bench(subject, load.items, &words);
                let _ = reader.kill();
                let _ = reader.wait();
                (report?, Some(self.bench(subject, load.items, &words)?))
            }
        };
        let without = without.as_ref().map(tail).transpose()?;
        let Tail { p99_us, p999_us } = tail(&report)?;
        Ok(Sample {
            peak_per_second: peak,
            offered_per_second: rate as f64,
            answered_per_second: number(&report, "/ops_per_second")?,
            dropped: number(&report, "/dropped")?,
            p50_us: number(&report, &format!("{}/p50", small(&report)))?,
            p99_us,
            p999_us,
            without,
            large_p99_us: report.pointer("/latency_large_us/p99").and_then(Value::as_f64),
        })
    }

    fn shape(&self, load: &Load) -> String {
        let Load { connections, pipeline, .. } = load;
        // A client that spins leaves nothing to the readers of large values on its core.
        let poll = if load.part == Part::Overload { "auto" } else { "block" };
        let seconds = self.seconds;
        format!(
            "--connections {connections} --pipeline {pipeline} --poll {poll} --duration {seconds}s"
        )
    }

    /// Reads large values, on connections apart from the other client.
    fn large_reader(&self, subject: &Server) -> Result<Child> {
        let mut command = Command::new("nice");
        command.args(["-n", "19", "taskset", "-c", self.cpus]).arg(self.binary);
        command.args(["bench", &subject.target()]).args(large_items().split_whitespace());
        let seconds = self.seconds + 2;
        command.args(["--no-populate", "--connections", LARGE_RATE, "--rate", LARGE_RATE]);
        command.args(["--arrivals", "constant", "--warmup", "0", "--poll", "block"]);
        command.args(["--duration", &format!("{seconds}s")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().context("cannot start the reader of large values")
    }

    pub fn bench(&self, subject: &Server, items: &str, words: &str) -> Result<Value> {
        let report = std::env::temp_dir().join(format!("joined-{}.json", std::process::id()));
        // Above the readers of large values, where that is allowed.
        let mut command = Command::new("nice");
        command
            .args(["-n", "-19", "taskset", "-c", self.cpus])
            .arg(self.binary)
            .args(["bench", &subject.target()]);
        command.args(items.split_whitespace()).args(words.split_whitespace());
        command.arg("--json").arg(&report).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.status().context("cannot start dovetail bench")?;
        ensure!(status.success(), "dovetail bench {} failed", subject.target());
        read(&report)
    }
}

/// Keys longer than the small ones', so that the two sets do not meet.
fn large_items() -> String {
    format!("--workload get --keys 4 --key-size 24 --value-size {LARGE_VALUE}")
}

/// Where a report has the latencies of small values.
fn small(report: &Value) -> &'static str {
    match report.pointer("/latency_small_us") {
        Some(Value::Object(_)) => "/latency_small_us",
        _ => "/latency_us",
    }
}

fn tail(report: &Value) -> Result<Tail> {
    let field = |name: &str| number(report, &format!("{}/{name}", small(report)));
    Ok(Tail { p99_us: field("p99")?, p999_us: field("p999")? })
}
