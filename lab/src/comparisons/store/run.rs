//! The measured programs: `dovetail bench` runs once per window, peers keep running.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::comparisons::bench_report::{number, read};
use crate::comparisons::store::table::{Items, Peer};

/// Long enough that most items were read three times: S3-FIFO counts as many uses of an item, and a
/// read writes nothing after that.
const WARMUP: &str = "1500ms";

/// The result of one window.
#[derive(Clone, Debug)]
pub struct Window {
    /// Million operations a second of CPU time.
    pub mops: f64,
    /// CPU time over wall time of the thread that got least of its core.
    pub share: f64,
    /// The program's whole report.
    pub report: Value,
}

impl Window {
    fn new(report: Value, rate: &str, share: &str) -> Result<Window> {
        let mops = number(&report, rate)? / 1e6;
        let share = number(&report, share)?;
        Ok(Window { mops, share, report })
    }
}

/// The built programs, and the options shared by all windows.
#[derive(Clone, Debug)]
pub struct Programs {
    pub dovetail: PathBuf,
    pub store_peers: PathBuf,
    pub cpus: [usize; 2],
    pub milliseconds: u64,
}

impl Programs {
    fn pins(&self, thread_count: usize) -> String {
        let cpus = self.cpus.iter().take(thread_count).map(usize::to_string);
        cpus.collect::<Vec<_>>().join(",")
    }

    /// Runs one window of `dovetail bench TARGET`; returns its message if it fails.
    pub fn ours(&self, target: &str, thread_count: usize, words: &[String]) -> Result<Window> {
        let path = std::env::temp_dir().join(format!("lab-store-{}.json", std::process::id()));
        let mut command = Command::new(&self.dovetail);
        command.args(["bench", target]).args(words);
        command.args(["--threads", &thread_count.to_string(), "--pin", &self.pins(thread_count)]);
        command.args(["--duration", &format!("{}ms", self.milliseconds), "--warmup", WARMUP]);
        command.arg("--json").arg(&path).stdin(Stdio::null());
        let output = command.output().context("cannot start dovetail bench")?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "dovetail bench {target}: {}", words.trim());
        let report = read(&path)?;
        let is_right = number(&report, "/mismatches")? == 0.0;
        ensure!(is_right, "dovetail bench {target}: values that were never written were read");
        let refused = report.pointer("/first_error").and_then(Value::as_str);
        ensure!(refused.is_none(), "dovetail bench {target}: {}", refused.unwrap_or_default());
        Window::new(report, "/ops_per_cpu_second", "/client_cpu_share")
    }

    /// A peer that has stored its keys and waits.
    pub fn peer(&self, peer: &Peer, form: &str, items: Items, keys: u64) -> Result<Standing> {
        let keys = keys.to_string();
        let words = ["--peer", peer.name, "--form", form, "--items", items.name(), "--keys", &keys];
        self.standing(peer.is_shared, &words)
    }

    /// The measure of random lines.
    pub fn lines(&self) -> Result<Standing> {
        self.standing(true, &["--peer", "lines"])
    }

    fn standing(&self, is_shared: bool, words: &[&str]) -> Result<Standing> {
        let mut command = Command::new(&self.store_peers);
        command.args(words);
        command.args(["--pin", &self.pins(if is_shared { 2 } else { 1 })]);
        // Huge pages for the peers as well.
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start store-peers")?;
        let stdin = child.stdin.take().context("store-peers has a stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("store-peers has a stdout")?);
        let mut standing = Standing { child, stdin, stdout };
        let line = standing.line()?;
        ensure!(line == "ready", "store-peers says `{line}`");
        Ok(standing)
    }
}

/// A process that keeps its items and waits for commands; waiting takes no CPU time.
pub struct Standing {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Standing {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("store-peers cannot be read")?;
        if line.is_empty() {
            bail!("store-peers ended");
        }
        Ok(line.trim_end().to_owned())
    }

    fn order(&mut self, order: &str) -> Result<Value> {
        writeln!(self.stdin, "{order}").context("store-peers takes no orders any more")?;
        serde_json::from_str(&self.line()?).context("store-peers reported no JSON")
    }

    /// One window of load.
    pub fn window(&mut self, order: &str) -> Result<Window> {
        let report = self.order(order)?;
        // scc::TreeIndex rewrites by removing and inserting: another thread may read in between.
        const MISSES_MAX_RATIO: f64 = 0.001;
        let is_whole =
            number(&report, "/misses")? <= number(&report, "/operations")? * MISSES_MAX_RATIO;
        let is_right = number(&report, "/mismatches")? == 0.0;
        ensure!(is_right && is_whole, "a peer lost or mixed up items: {report}");
        Window::new(report, "/ops_per_cpu_second", "/cpu_share")
    }

    /// Million random lines a second of an array of this many bytes, for each thread.
    pub fn lines(&mut self, bytes: u64, threads: usize, milliseconds: u64) -> Result<Window> {
        let report = self.order(&format!("{bytes} {threads} {milliseconds}"))?;
        Window::new(report, "/lines_per_cpu_second", "/cpu_share")
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
