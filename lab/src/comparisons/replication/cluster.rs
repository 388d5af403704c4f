//! Three servers under one scheme, or one Redis with two replicas, and the load on them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The placement of primaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// The first server is primary of all shards.
    OnePrimary,
    /// Each server is primary of a third.
    Spread,
}

/// CPU time in ns by role.
pub type Spent = BTreeMap<&'static str, u64>;

/// The servers; their processes end when this is dropped.
pub struct Running {
    /// The first one is the primary, where there is one.
    servers: Vec<Child>,
    others: Vec<Child>,
    port: u16,
    /// Of the primary of all, if there is one.
    only_port: Option<u16>,
    is_redis: bool,
    folder: std::path::PathBuf,
}

impl Running {
    /// Starts the servers, and waits until all shards are served with all copies.
    pub fn start(binary: &Path, scheme: &str, layout: Layout, port: u16) -> Result<Running> {
        let folder = std::env::temp_dir().join(format!("replication-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let is_redis = scheme == "redis";
        let (servers, others) = (Vec::new(), Vec::new());
        let only_port = is_redis.then_some(port);
        let mut running = Running { servers, others, port, only_port, is_redis, folder };
        match is_redis {
            true => running.start_redis()?,
            false => running.start_dovetail(binary, scheme, layout)?,
        }
        Ok(running)
    }

    fn start_dovetail(&mut self, binary: &Path, scheme: &str, layout: Layout) -> Result<()> {
        let config_store = format!("file://{}", self.folder.display());
        let at = |offset: u16| format!("127.0.0.1:{}", self.port + offset);
        let shards = if layout == Layout::OnePrimary { "1" } else { "64" };
        let mut manager = Command::new(binary);
        manager.args(["cm", "--config-store", &config_store, "--listen", &at(9), "--lease", "2s"]);
        manager.args(["--shards", shards, "--rebalance", "off", "--replication", scheme]);
        self.others.push(spawn(manager)?);
        for index in 0..3 {
            let mut server = Command::new(binary);
            server.args(["serve", "--cluster", &config_store, "--resp", &at(index)]);
            server.args(["--admin", &at(3 + index), "--peer", &at(6 + index)]);
            server.args(["--memcached", "off", "--native", "off", "--memory", "256MiB"]);
            server.args(["--threads", "1", "--poll", "block"]);
            self.servers.push(spawn(server)?);
        }
        let wanted = if layout == Layout::OnePrimary { 1 } else { 64 };
        self.until("the cluster is whole", |it| {
            let sum = |role: &str| {
                let name = format!("dovetail_shards{{role=\"{role}\"}}");
                (0..3).filter_map(|index| it.metric(index, &name)).sum::<u64>()
            };
            sum("primary") == wanted && sum("backup") == 2 * wanted
        })?;
        if layout == Layout::Spread {
            return Ok(());
        }
        let name = "dovetail_shards{role=\"primary\"}";
        let is_primary = |index: &u16| self.metric(*index, name).is_some_and(|count| count > 0);
        let primary = (0..3).find(is_primary).context("one of them is the primary")?;
        self.servers.swap(0, usize::from(primary));
        self.only_port = Some(self.port + primary);
        Ok(())
    }

    fn start_redis(&mut self) -> Result<()> {
        for index in 0..3 {
            let mut server = Command::new("redis-server");
            server.args(["--port", &(self.port + index).to_string(), "--save", ""]);
            server.args(["--appendonly", "no", "--dir", &self.folder.display().to_string()]);
            if index > 0 {
                server.args(["--replicaof", "127.0.0.1", &self.port.to_string()]);
            }
            self.servers.push(spawn(server)?);
        }
        self.await_replicas()
    }

    /// Redis answers before its replicas have a write.
    fn await_replicas(&self) -> Result<()> {
        self.until("the replicas have all that the master has", |it| {
            let told = it.ask(it.port, "INFO replication\r\n", "repl_backlog_histlen");
            told.is_some_and(|text| synced_count(&text) == 2)
        })
    }

    fn until(&self, what: &str, is_so: impl Fn(&Running) -> bool) -> Result<()> {
        let started = Instant::now();
        while !is_so(self) {
            ensure!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Reads a server's log, up to a line with that word.
    fn ask(&self, port: u16, request: &str, last: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        for line in BufReader::new(stream).lines() {
            let line = line.ok()?;
            text += &line;
            text.push('\n');
            if line.contains(last) {
                break;
            }
        }
        Some(text)
    }

    /// A number of a server's `/metrics`.
    fn metric(&self, index: u16, name: &str) -> Option<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port + 3 + index)).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    /// The number of logs in which others' writes land, of all servers.
    pub fn streams(&self) -> u64 {
        if self.is_redis {
            return 0;
        }
        // It is updated every half second.
        std::thread::sleep(Duration::from_millis(700));
        (0..3).filter_map(|at| self.metric(at, "dovetail_replication_write_streams")).sum()
    }

    /// Sends this many SETs of 64 bytes.
    pub fn load(&self, requests: u64, pipeline: u64) -> Result<()> {
        let mut bench = Command::new("redis-benchmark");
        if self.only_port.is_none() {
            bench.arg("--cluster");
        }
        let port = self.only_port.unwrap_or(self.port);
        bench.args(["-p", &port.to_string(), "-t", "set", "-d", "64", "-r", "100000"]);
        bench.args(["-c", "50", "-P", &pipeline.to_string(), "-n", &requests.to_string(), "-q"]);
        let output = bench.output().context("redis-benchmark is not there")?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || said.contains("Error") {
            bail!("redis-benchmark: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
        if self.is_redis { self.await_replicas() } else { Ok(()) }
    }

    /// The CPU time of each server so far.
    pub fn cpu_ns(&self) -> Result<Vec<Spent>> {
        self.servers.iter().map(|server| spent(server.id())).collect()
    }
}

/// Replicas that a Redis master's `INFO replication` says to be online and where it is itself: the
/// first copy takes seconds, and until it is there nothing is replicated.
fn synced_count(told: &str) -> usize {
    let offset = told.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    let Some(offset) = offset else { return 0 };
    let at = format!("offset={}", offset.trim());
    let is_synced = |line: &&str| {
        let fields: Vec<&str> = line.trim().split(',').collect();
        fields.contains(&"state=online") && fields.contains(&at.as_str())
    };
    told.lines().filter(|line| line.starts_with("slave")).filter(is_synced).count()
}

fn spawn(mut command: Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("{:?} does not start", command.get_program()))
}

fn spent(pid: u32) -> Result<Spent> {
    let mut spent = Spent::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name));
        let (Ok(name), Ok(times)) = (read("comm"), read("schedstat")) else { continue };
        let role = match name.trim() {
            "control" => "control",
            name if name.starts_with("worker-") || name == "redis-server" => "worker",
            _ => "other",
        };
        let ns = times.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
        *spent.entry(role).or_default() += ns.unwrap_or(0);
    }
    Ok(spent)
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.servers.iter_mut().chain(&mut self.others) {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::synced_count;

    #[test]
    fn replicas_count_once_they_are_where_the_master_is() {
        let told = |states: [&str; 2]| {
            let slave = |(index, state)| {
                format!("slave{index}:ip=127.0.0.1,port=1,state={state},lag=0\r\n")
            };
            let slaves: String = states.into_iter().enumerate().map(slave).collect();
            format!("role:master\r\n{slaves}master_repl_offset:1400\r\n")
        };
        assert_eq!(synced_count(&told(["online,offset=1400", "online,offset=1400"])), 2);
        assert_eq!(synced_count(&told(["online,offset=140", "wait_bgsave,offset=1400"])), 0);
        assert_eq!(synced_count("role:master\r\n"), 0);
    }
}
