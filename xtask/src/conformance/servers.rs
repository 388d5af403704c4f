//! The servers: ours and the originals, on free ports, stopped at the end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use steps::{programs, server_binary};

const HOST: &str = "127.0.0.1";
/// Both take values of that length.
const VALUE_MAX: &str = "33554432";

/// The addresses of both servers for one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub ours: u16,
    pub theirs: u16,
}

/// Servers that receive the same commands.
pub struct Pair {
    pub resp: Ports,
    pub memcached: Ports,
    /// The processes, which end when they are dropped.
    _children: Vec<Running>,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // What has ended already need not be ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether there is something to compare with.
pub fn has_reference(program: &str) -> bool {
    programs::succeeds(program, &["--version"])
}

/// The server under test: the named one, or a release build.
pub fn binary(root: &Path, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_path_buf());
    }
    server_binary(root)
}

impl Pair {
    pub fn start(binary: &Path, flags: &str) -> Result<Pair> {
        let (ours, first) = start_ours(binary, flags)?;
        let mut pair = Pair {
            resp: Ports { ours: ours[0], theirs: 0 },
            memcached: Ports { ours: ours[1], theirs: 0 },
            _children: vec![first],
        };
        if has_reference("redis-server") {
            let (port, child) = start_redis()?;
            pair.resp.theirs = port;
            pair._children.push(child);
        }
        if has_reference("memcached") {
            let (port, child) = start_memcached()?;
            pair.memcached.theirs = port;
            pair._children.push(child);
        }
        Ok(pair)
    }
}

/// The ports of RESP and memcached.
fn start_ours(binary: &Path, flags: &str) -> Result<([u16; 2], Running)> {
    let any_port = format!("{HOST}:0");
    let mut command = Command::new(binary);
    command.args(["serve", "--resp", &any_port, "--memcached", &any_port, "--native", "off"]);
    command.args(["--admin", "off", "--memory", "512MiB", "--log-format", "json"]);
    command.args(["--max-item-size", VALUE_MAX]);
    if !flags.contains("--threads") {
        command.args(["--threads", "1"]);
    }
    command.args(flags.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
    let mut running = Running(child);
    let stderr = running.0.stderr.take().context("the server has no log")?;
    let mut lines = BufReader::new(stderr).lines();
    let mut seen = String::new();
    for line in &mut lines {
        let line = line?;
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if fields["msg"] == "ready" {
            let port_of = |name: &str| -> Option<u16> {
                fields[name].as_str()?.rsplit(':').next()?.parse().ok()
            };
            let ports = port_of("resp").zip(port_of("memcached"));
            // A harness that stopped reading its log would stop the server.
            std::thread::spawn(move || lines.for_each(drop));
            let (resp, memcached) = ports.context("the server did not say its ports")?;
            return Ok(([resp, memcached], running));
        }
        seen += &line;
        seen.push('\n');
    }
    bail!("{} ended at its start:\n{seen}", binary.display());
}

fn start_redis() -> Result<(u16, Running)> {
    let port = programs::free_port()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", HOST, "--save", "", "--databases", "1"]);
    command.args(["--appendonly", "no", "--proto-max-bulk-len", VALUE_MAX, "--hz", "100"]);
    Ok((port, start_theirs(command, port)?))
}

fn start_memcached() -> Result<(u16, Running)> {
    let port = programs::free_port()?;
    let mut command = Command::new("memcached");
    command.args(["-l", HOST, "-p", &port.to_string(), "-m", "512", "-I", "32m", "-u", "root"]);
    // Threads that move items in the background hold them for a moment, and a held number is
    // counted in a copy: whether a shortened one is padded would be chance.
    command.args(["-o", "no_lru_maintainer"]);
    Ok((port, start_theirs(command, port)?))
}

fn start_theirs(mut command: Command, port: u16) -> Result<Running> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().with_context(|| format!("cannot start {name}"))?);
    programs::wait_until_listening(&mut running.0, &name, port)?;
    Ok(running)
}
