//! The servers: all run on one core, and each is stopped (SIGSTOP) while another is measured.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use steps::programs;

use crate::comparisons::server::Server;

/// The role of a server in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Dovetail.
    Ours,
    /// Another store.
    Peer,
    /// A server without a store: the cost of sockets and minimal parsing alone.
    Bare,
}

/// A running server of the comparison.
pub struct Contestant {
    /// The process.
    pub server: Server,
    /// The role of the server.
    pub kind: Kind,
    /// Whether it never sleeps.
    pub is_polling: bool,
    program: String,
}

/// A server's name, its protocol and its command line; `PORT` stands for the port.
struct Plan {
    name: &'static str,
    scheme: &'static str,
    kind: Kind,
    program: String,
    arguments: &'static str,
}

/// Peers tuned as their own documents advise; the packages of the distribution.
fn plans(binary: &Path, bare_binary: &Path) -> Vec<Plan> {
    let ours = |name, scheme, arguments| Plan {
        name,
        scheme,
        kind: Kind::Ours,
        program: binary.display().to_string(),
        arguments,
    };
    let bare = |name, arguments| Plan {
        name,
        scheme: "resp",
        kind: Kind::Bare,
        program: bare_binary.display().to_string(),
        arguments,
    };
    let peer = |name: &'static str, scheme, arguments| Plan {
        name,
        scheme,
        kind: Kind::Peer,
        program: name.to_owned(),
        arguments,
    };
    const REDIS: &str = "--port PORT --bind 127.0.0.1 --save  --appendonly no --loglevel warning";
    vec![
        ours(
            "dovetail, RESP, auto",
            "resp",
            "serve -q --resp 127.0.0.1:PORT --memcached off --native off --admin off \
             --threads 1 --pin off --memory 1GiB --poll auto",
        ),
        ours(
            "dovetail, RESP, block",
            "resp",
            "serve -q --resp 127.0.0.1:PORT --memcached off --native off --admin off \
             --threads 1 --pin off --memory 1GiB --poll block",
        ),
        ours(
            "dovetail, memcached",
            "memcached",
            "serve -q --memcached 127.0.0.1:PORT --resp off --native off --admin off \
             --threads 1 --pin off --memory 1GiB --poll auto",
        ),
        ours(
            "dovetail, RESP, busy",
            "resp",
            "serve -q --resp 127.0.0.1:PORT --memcached off --native off --admin off \
             --threads 1 --pin off --memory 1GiB --poll busy",
        ),
        bare("no store, auto", "127.0.0.1:PORT auto"),
        bare("no store, block", "127.0.0.1:PORT block"),
        bare("no store, busy", "127.0.0.1:PORT busy"),
        peer("redis-server", "resp", REDIS),
        peer("valkey-server", "resp", REDIS),
        peer(
            "memcached",
            "memcached",
            "-t 1 -R 1000 -m 4096 -o hashpower=23 -l 127.0.0.1 -U 0 -u nobody -p PORT",
        ),
    ]
}

impl Contestant {
    /// Starts every installed server, each stopped once it listens.
    pub fn start_all(binary: &Path, bare_binary: &Path, core: usize) -> Result<Vec<Contestant>> {
        let mut contestants = Vec::new();
        for plan in plans(binary, bare_binary) {
            if programs::is_installed(&plan.program) {
                contestants.push(Contestant::start(plan, core)?);
            } else {
                println!("skipped: {} is not installed", plan.name);
            }
        }
        ensure!(contestants.iter().any(|it| it.kind == Kind::Peer), "no peer is installed");
        Ok(contestants)
    }

    fn start(plan: Plan, core: usize) -> Result<Contestant> {
        let Plan { name, scheme, kind, program, arguments } = plan;
        let server = Server::start(name, scheme, &program, arguments, &core.to_string())?;
        Ok(Contestant { server, kind, is_polling: arguments.ends_with("busy"), program })
    }

    /// The name in tables.
    pub fn name(&self) -> &'static str {
        self.server.name
    }

    /// The program's own version.
    pub fn version(&self) -> (String, String) {
        let output = Command::new(&self.program).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let line = text.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        (self.name().to_owned(), line)
    }
}
