//! One measurement: the load generator's report, and how much of its core each side got.
//!
//! The share is run time over run time plus time spent waiting in the run queue, from
//! /proc/PID/task/*/schedstat: an idle server loses none of it, a disturbed one does.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::peers::servers::Server;
use crate::peers::{Args, Workload};

const SHARE_MIN: f64 = 0.95;
const POLL: Duration = Duration::from_millis(50);

/// What one run found.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Of the load generator.
    pub ops_per_second: f64,
    /// CPU time of all threads of the server, per operation.
    pub server_cpu_ns_per_op: f64,
    /// From intended send to reply.
    pub latency_us_p50: f64,
    /// The same.
    pub latency_us_p99: f64,
    /// Of its core, while it wanted it.
    pub server_share_ratio: f64,
    /// Of its core, while it wanted it.
    pub client_share_ratio: f64,
}

impl Sample {
    /// Whether both sides had their cores to themselves.
    pub fn is_undisturbed(&self) -> bool {
        self.server_share_ratio >= SHARE_MIN && self.client_share_ratio >= SHARE_MIN
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:>8.0} ops/s {:>6.0} ns/op p50 {:>6.0} us p99 {:>6.0} us, share {:.1} % and {:.1} %",
            self.ops_per_second,
            self.server_cpu_ns_per_op,
            self.latency_us_p50,
            self.latency_us_p99,
            self.server_share_ratio * 100.0,
            self.client_share_ratio * 100.0,
        )
    }
}

/// Stores every key once.
pub fn populate(binary: &Path, args: &Args, server: &Server) -> Result<()> {
    let keys = args.keys.to_string();
    let words = ["--workload", "get", "--keys", &keys, "--value-size", "64", "--duration", "1s"];
    bench(binary, args, &server.target, &words).map(|_| ())
}

/// Puts `server` under `workload` once.
pub fn measure(binary: &Path, args: &Args, server: &Server, workload: &Workload) -> Result<Sample> {
    let process_id = server.process_id();
    let numbers = [
        args.keys.to_string(),
        workload.connection_count.to_string(),
        workload.pipeline.to_string(),
        format!("{}s", args.seconds),
        process_id.to_string(),
    ];
    let [keys, connections, pipeline, duration, pid] = numbers.each_ref().map(String::as_str);
    let words = [
        ["--workload", workload.operation],
        ["--distribution", "zipf:0.99"],
        ["--keys", keys],
        ["--key-size", "16"],
        ["--value-size", "64"],
        ["--threads", "1"],
        ["--connections", connections],
        ["--pipeline", pipeline],
        ["--duration", duration],
        ["--server-pid", pid],
    ];
    let mut words = words.concat();
    words.push("--no-populate");
    let before = RunQueue::of(process_id);
    let (report, client) = bench(binary, args, &server.target, &words)?;
    let server_queue = RunQueue::of(process_id).since(before);
    let number = |path: &str| {
        let found = report.pointer(path).and_then(Value::as_f64);
        found.with_context(|| format!("the report of dovetail bench has no {path}"))
    };
    Ok(Sample {
        ops_per_second: number("/ops_per_second")?,
        server_cpu_ns_per_op: number("/server_cpu_ns_per_op")?,
        latency_us_p50: number("/latency_us/p50")?,
        latency_us_p99: number("/latency_us/p99")?,
        server_share_ratio: server_queue.share_ratio(),
        client_share_ratio: client.share_ratio(),
    })
}

/// GETs of 8-byte keys and values on the store in process, per second of CPU time.
pub fn embedded_ops_per_cpu_second(binary: &Path, args: &Args, batch: u32) -> Result<f64> {
    let numbers = [args.embedded_keys.to_string(), batch.to_string(), format!("{}s", args.seconds)];
    let [keys, batch, duration] = numbers.each_ref().map(String::as_str);
    let words = [
        ["--workload", "get"],
        ["--distribution", "uniform"],
        ["--keys", keys],
        ["--key-size", "8"],
        ["--value-size", "8"],
        ["--threads", "1"],
        ["--batch", batch],
        ["--duration", duration],
    ];
    let (report, _) = bench(binary, args, "embedded:", &words.concat())?;
    let found = report.pointer("/ops_per_cpu_second").and_then(Value::as_f64);
    found.context("the report of dovetail bench has no /ops_per_cpu_second")
}

/// Runs the load generator on its core; its report and its time in the run queue.
fn bench(binary: &Path, args: &Args, target: &str, words: &[&str]) -> Result<(Value, RunQueue)> {
    let report = tempfile_path();
    let mut command = Command::new("taskset");
    command.args(["-c", &args.client_core.to_string()]).arg(binary).args(["bench", target]);
    command.args(words).arg("--json").arg(&report);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().context("cannot start dovetail bench")?;
    let mut queue = RunQueue::default();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        queue = queue.max(RunQueue::of(child.id()));
        std::thread::sleep(POLL);
    };
    ensure!(status.success(), "dovetail bench {target} failed");
    let text = std::fs::read_to_string(&report).context("dovetail bench wrote no report")?;
    let _ = std::fs::remove_file(&report);
    Ok((serde_json::from_str(&text).context("the report is not JSON")?, queue))
}

fn tempfile_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("dovetail-peers-{}.json", std::process::id()))
}

/// Time on a core and time waiting for one, of all threads of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RunQueue {
    run_ns: u64,
    wait_ns: u64,
}

impl RunQueue {
    fn of(process_id: u32) -> RunQueue {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{process_id}/task")) else {
            return RunQueue::default();
        };
        let texts = tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
        texts.fold(RunQueue::default(), |sum, text| sum.plus(&text))
    }

    /// Adds one thread's `schedstat`: run time, waiting time, time slices.
    fn plus(self, schedstat: &str) -> RunQueue {
        let mut numbers = schedstat.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        RunQueue {
            run_ns: self.run_ns + numbers.next().unwrap_or(0),
            wait_ns: self.wait_ns + numbers.next().unwrap_or(0),
        }
    }

    fn since(self, before: RunQueue) -> RunQueue {
        RunQueue {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
        }
    }

    fn share_ratio(self) -> f64 {
        let wanted_ns = self.run_ns + self.wait_ns;
        if wanted_ns == 0 { 1.0 } else { self.run_ns as f64 / wanted_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_run_time_over_wanted_time() {
        let before = RunQueue::default().plus("1000 10 5\n");
        let after = before.plus("900 100 5\n").plus("0 0 0\n");
        assert_eq!(after.since(before).share_ratio(), 0.9);
        assert_eq!(before.since(before).share_ratio(), 1.0);
    }

    #[test]
    fn this_process_has_run() {
        assert!(RunQueue::of(std::process::id()).run_ns > 0);
    }
}
