//! One server for one replay: started on a free port, killed at the end.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use steps::programs;

/// Which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As the distribution packages it.
    Memcached,
    /// Ours, with this `--eviction`.
    Dovetail(String),
}

impl Kind {
    /// In tables; the policy only where there are several.
    pub fn name(&self, names_policy: bool) -> String {
        match self {
            Kind::Memcached => "memcached".to_owned(),
            Kind::Dovetail(eviction) if names_policy => format!("dovetail, {eviction}"),
            Kind::Dovetail(_) => "dovetail".to_owned(),
        }
    }

    /// Whether its program can be started.
    pub fn is_installed(&self, binary: &Path) -> bool {
        match self {
            Kind::Memcached => programs::is_installed("memcached"),
            Kind::Dovetail(_) => programs::succeeds(&binary.display().to_string(), &["--version"]),
        }
    }

    fn command(&self, binary: &Path, port: u16, memory_mib: u64) -> Command {
        let (program, line, eviction) = match self {
            Kind::Memcached => (
                Path::new("memcached"),
                format!("-t 1 -m {memory_mib} -l 127.0.0.1 -U 0 -u nobody -p {port}"),
                None,
            ),
            Kind::Dovetail(eviction) => (
                binary,
                format!(
                    "serve -q --memcached 127.0.0.1:{port} --resp off --native off --admin off \
                     --threads 1 --pin off --memory {memory_mib}MiB"
                ),
                Some(eviction).filter(|eviction| *eviction != "default"),
            ),
        };
        let mut command = Command::new(program);
        command.args(line.split_whitespace());
        if let Some(eviction) = eviction {
            command.args(["--eviction", eviction]);
        }
        command
    }
}

/// A running server.
pub struct Running {
    child: Child,
    port: u16,
}

impl Running {
    /// Starts it and waits until it listens.
    pub fn start(kind: &Kind, binary: &Path, memory_mib: u64) -> Result<Running> {
        let port = programs::free_port()?;
        let mut command = kind.command(binary, port, memory_mib);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {kind:?}"))?;
        let mut server = Running { child, port };
        programs::wait_until_listening(&mut server.child, &format!("{kind:?}"), port)?;
        Ok(server)
    }

    /// HOST:PORT.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Resident memory now.
    pub fn resident_mib(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).context("the server is gone")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.context("no VmRSS in the server's status")? / 1024.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
