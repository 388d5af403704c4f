//! The servers: all run on one core, and each is stopped (SIGSTOP) while another is measured.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const START_MAX: Duration = Duration::from_secs(10);

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

/// A running server.
pub struct Server {
    /// In tables.
    pub name: &'static str,
    /// The target for the load generator.
    pub target: String,
    /// The role of the server.
    pub kind: Kind,
    /// Whether it never sleeps.
    pub is_polling: bool,
    program: String,
    child: Child,
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

impl Server {
    /// Starts every installed server, each stopped once it listens.
    pub fn start_all(binary: &Path, bare_binary: &Path, core: usize) -> Result<Vec<Server>> {
        let mut servers = Vec::new();
        for plan in plans(binary, bare_binary) {
            if find_program(&plan.program) {
                servers.push(Server::start(plan, core)?);
            } else {
                println!("skipped: {} is not installed", plan.name);
            }
        }
        ensure!(servers.iter().any(|server| server.kind == Kind::Peer), "no peer is installed");
        Ok(servers)
    }

    fn start(plan: Plan, core: usize) -> Result<Server> {
        let port = free_port()?;
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), &plan.program]);
        // Split at single spaces: two in a row are an empty argument.
        let arguments = plan.arguments.replace("PORT", &port.to_string());
        command.args(arguments.split(' '));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {}", plan.name))?;
        let server = Server {
            name: plan.name,
            target: format!("{}://127.0.0.1:{port}", plan.scheme),
            kind: plan.kind,
            is_polling: plan.arguments.ends_with("busy"),
            program: plan.program,
            child,
        };
        let started = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        while TcpStream::connect(address).is_err() {
            ensure!(started.elapsed() < START_MAX, "{} does not listen", server.name);
            std::thread::sleep(Duration::from_millis(20));
        }
        server.signal("STOP")?;
        Ok(server)
    }

    /// taskset replaces itself, so this is the server's own id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Lets the server run while `measure` does.
    pub fn running<T>(&mut self, measure: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        self.signal("CONT")?;
        let result = measure(self);
        self.signal("STOP")?;
        result
    }

    /// The program's own version.
    pub fn version(&self) -> (String, String) {
        let output = Command::new(&self.program).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let line = text.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        (self.name.to_owned(), line)
    }

    fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.process_id().to_string()])
            .status();
        ensure!(status.is_ok_and(|status| status.success()), "{} is not there any more", self.name);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // KILL reaches a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the program is in the path.
pub fn find_program(program: &str) -> bool {
    let mut which = Command::new("which");
    which.arg(program).stdout(Stdio::null()).stderr(Stdio::null());
    which.status().is_ok_and(|status| status.success())
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
