//! A server on the data directory, the time of its start, and the plain read of the file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use steps::programs::free_port;

const START_MAX: Duration = Duration::from_secs(300);
/// The unit of `utime` and `stime` in /proc/PID/stat.
const TICK_SECONDS: f64 = 0.01;

/// The settings shared by all servers.
pub struct Files {
    pub binary: PathBuf,
    pub directory: PathBuf,
    pub memory_bytes: u64,
}

/// The cost of reading part of the file once.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub seconds: f64,
    pub cpu_seconds: f64,
}

impl Files {
    /// Reads this many bytes of the log, from its start, a MiB at a time.
    pub fn read(&self, len_bytes: u64) -> Result<Reading> {
        let file = File::open(self.directory.join("log"))?;
        let (began, cpu_before) = (Instant::now(), own_cpu_seconds()?);
        let (mut file, mut buffer) = (file.take(len_bytes), vec![0; 1 << 20]);
        while file.read(&mut buffer)? > 0 {}
        let cpu_seconds = own_cpu_seconds()? - cpu_before;
        Ok(Reading { seconds: began.elapsed().as_secs_f64(), cpu_seconds })
    }

    /// Drops the log from the page cache.
    pub fn drop_from_cache(&self) -> Result<()> {
        let mut command = Command::new("dd");
        command.arg(format!("of={}", self.directory.join("log").display()));
        command.args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]);
        ensure!(command.status()?.success(), "dd cannot drop the log from the page cache");
        Ok(())
    }
}

/// CPU time of the calling thread.
fn own_cpu_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

/// The cost of a start.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Time from the fork to the first answer.
    pub seconds: f64,
    /// CPU time of all threads, including ended ones.
    pub cpu_seconds: f64,
    /// The server's own report of its recovery.
    pub recovery_seconds: f64,
    pub entries: u64,
    pub bytes: u64,
    /// Items that a checkpoint named.
    pub from_checkpoint: u64,
}

/// A running server.
pub struct Server {
    child: Child,
    pub port: u16,
    pub start: Start,
    /// Open as long as the server is.
    _log: BufReader<ChildStderr>,
}

impl Server {
    pub fn start(files: &Files, flags: &str) -> Result<Server> {
        let port = free_port()?;
        let began = Instant::now();
        let mut child = Command::new(&files.binary)
            .args(["serve", "--mode", "store", "--memcached", "off", "--native", "off"])
            .args(["--admin", "off", "--pin", "off", "--log-format", "json"])
            .arg(format!("--resp=127.0.0.1:{port}"))
            .arg(format!("--memory={}", files.memory_bytes))
            .arg(format!("--data-dir={}", files.directory.display()))
            .args(flags.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let mut log = BufReader::new(child.stderr.take().context("no log")?);
        let mut start = recovered(&mut log)?;
        while !answers(port) {
            ensure!(began.elapsed() < START_MAX, "the server does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        start.seconds = began.elapsed().as_secs_f64();
        start.cpu_seconds = cpu_seconds_of(child.id())?;
        Ok(Server { child, port, start, _log: log })
    }

    /// Ends it in order.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        ensure!(Command::new("kill").arg(pid).status()?.success(), "the server is not there");
        ensure!(self.child.wait()?.success(), "the server did not end well");
        Ok(())
    }

    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| &answer == b"+PONG\r\n")
}

fn cpu_seconds_of(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name in brackets: state is the first word, utime the twelfth.
    let words: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    Ok((ticks(12) + ticks(13)) as f64 * TICK_SECONDS)
}

/// Reads the log up to the line about the recovery.
fn recovered(log: &mut impl BufRead) -> Result<Start> {
    let (mut line, mut all) = (String::new(), String::new());
    while log.read_line(&mut line)? > 0 {
        if let Some(start) = parse(&line) {
            return Ok(start);
        }
        all.push_str(&std::mem::take(&mut line));
    }
    anyhow::bail!("the server did not start: {all}")
}

fn parse(line: &str) -> Option<Start> {
    let fields: serde_json::Value = serde_json::from_str(line).ok()?;
    if fields.get("msg")?.as_str()? != "recovered" {
        return None;
    }
    let number = |name: &str| fields.get(name).and_then(serde_json::Value::as_u64);
    Some(Start {
        recovery_seconds: number("ms")? as f64 / 1e3,
        entries: number("entries")?,
        bytes: number("bytes")?,
        from_checkpoint: number("from_checkpoint").unwrap_or(0),
        ..Start::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_recovery_is_read() {
        let line = r#"{"msg":"recovered","entries":3,"bytes":96,"ms":1500}"#;
        let start = parse(line).unwrap();
        assert_eq!((start.entries, start.bytes, start.recovery_seconds), (3, 96, 1.5));
        assert!(parse(r#"{"msg":"ready"}"#).is_none());
    }
}
