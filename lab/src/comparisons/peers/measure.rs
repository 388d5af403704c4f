//! One measurement: the load generator's report, and the share of its core that each side got.
//!
//! The share is run time over run time plus time spent waiting for other processes, from
//! /proc/PID/task/*/schedstat: idle time does not lower it, disturbance does.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::comparisons::bench_report::{number, read};
use crate::comparisons::peers::{Args, Workload};
use crate::comparisons::server::Server;

const POLL: Duration = Duration::from_millis(50);

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Operations a second, by the load generator.
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
    /// The share of the more disturbed side.
    pub fn share_ratio_min(&self) -> f64 {
        self.server_share_ratio.min(self.client_share_ratio)
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
    bench(binary, args, &server.target(), &words).map(|_| ())
}

/// Runs `workload` on `server` once.
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
        ["--poll", workload.poll],
        ["--connections", connections],
        ["--pipeline", pipeline],
        ["--duration", duration],
        ["--server-pid", pid],
    ];
    let mut words = words.concat();
    words.push("--no-populate");
    let before = RunQueue::of(process_id);
    let (report, client) = bench(binary, args, &server.target(), &words)?;
    let server_queue = RunQueue::of(process_id).since(&before);
    let number = |path: &str| number(&report, path);
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
    number(&report, "/ops_per_cpu_second")
}

/// Runs the load generator on its core; returns its report and its time in the run queue.
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
        let now = RunQueue::of(child.id());
        // A process that has just ended has no threads to read.
        if now.run_ns() > queue.run_ns() {
            queue = now;
        }
        std::thread::sleep(POLL);
    };
    ensure!(status.success(), "dovetail bench {target} failed");
    Ok((read(&report)?, queue))
}

fn tempfile_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("dovetail-peers-{}.json", std::process::id()))
}

/// Time on a core and time waiting for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    run_ns: u64,
    wait_ns: u64,
}

impl Times {
    /// One thread's `schedstat`: run time, waiting time, time slices.
    fn read(schedstat: &str) -> Times {
        let mut numbers = schedstat.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        Times { run_ns: numbers.next().unwrap_or(0), wait_ns: numbers.next().unwrap_or(0) }
    }
}

/// The times of each thread of a process, by thread id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RunQueue(BTreeMap<String, Times>);

impl RunQueue {
    fn of(process_id: u32) -> RunQueue {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{process_id}/task")) else {
            return RunQueue::default();
        };
        let read = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((task.file_name().into_string().ok()?, Times::read(&text)))
        };
        RunQueue(tasks.flatten().filter_map(read).collect())
    }

    fn since(mut self, before: &RunQueue) -> RunQueue {
        for (thread, times) in &mut self.0 {
            let earlier = before.0.get(thread).copied().unwrap_or_default();
            times.run_ns = times.run_ns.saturating_sub(earlier.run_ns);
            times.wait_ns = times.wait_ns.saturating_sub(earlier.wait_ns);
        }
        self
    }

    fn run_ns(&self) -> u64 {
        self.0.values().map(|times| times.run_ns).sum()
    }

    /// Run time over run time plus the time that other processes took.
    ///
    /// All threads run on one core, so a thread also waits for its siblings: that part of its
    /// waiting equals their run time, and only the rest was taken by other processes.
    fn share_ratio(&self) -> f64 {
        let run_ns = self.run_ns();
        let taken_ns = |times: &Times| times.wait_ns.saturating_sub(run_ns - times.run_ns);
        let taken_ns = self.0.values().map(taken_ns).max().unwrap_or(0);
        if run_ns == 0 { 1.0 } else { run_ns as f64 / (run_ns + taken_ns) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(threads: &[(&str, &str)]) -> RunQueue {
        RunQueue(threads.iter().map(|(id, text)| (id.to_string(), Times::read(text))).collect())
    }

    #[test]
    fn the_share_is_run_time_over_run_time_and_what_others_took() {
        let before = queue(&[("1", "1000 10 5\n")]);
        let after = queue(&[("1", "1900 110 9\n"), ("2", "0 0 0\n")]);
        assert_eq!(after.clone().since(&before).share_ratio(), 0.9);
        assert_eq!(after.clone().since(&after).share_ratio(), 1.0);
    }

    #[test]
    fn waiting_for_a_sibling_is_not_a_disturbance() {
        assert_eq!(queue(&[("1", "600 400 1"), ("2", "400 600 1")]).share_ratio(), 1.0);
        assert_eq!(queue(&[("1", "600 400 1"), ("2", "300 600 1")]).share_ratio(), 0.9);
    }

    #[test]
    fn this_process_has_run() {
        assert!(RunQueue::of(std::process::id()).run_ns() > 0);
    }
}
