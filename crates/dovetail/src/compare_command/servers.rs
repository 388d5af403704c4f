//! The servers of a comparison: child processes on free ports. Dropping the handle ends the
//! process.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Contender;
use crate::failure::Failure;

/// Time limit until a server answers.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval between two checks of that.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The path of this program.
pub fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::Runtime(format!("the path of this program: {error}")))
}

/// One server.
#[derive(Debug)]
pub struct Running {
    name: String,
    address: SocketAddr,
    child: Child,
}

impl Running {
    /// Starts a server and waits until it takes connections.
    pub fn start(contender: &Contender) -> Result<Running, Failure> {
        let Contender { name, preset, flags } = contender;
        let fail = |what: String| Failure::Runtime(format!("--compare {name}: {what}"));
        let address = free_address().map_err(|error| fail(format!("no free port: {error}")))?;
        let mut command = Command::new(own_program()?);
        command.args(["serve", "-q", "--preset", preset, "--resp", &address.to_string()]);
        command.args(["--memcached", "off", "--native", "off", "--admin", "off"]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| fail(format!("cannot be started: {error}")))?;
        let mut running = Running { name: name.clone(), address, child };
        let give_up_at = Instant::now() + START_TIME_MAX;
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = running.child.try_wait() {
                let line = running.last_words();
                return Err(match status.code() {
                    Some(2) => Failure::Usage(format!("--compare {name}: {line}")),
                    _ => fail(line),
                });
            }
            if Instant::now() > give_up_at {
                return Err(fail(format!("takes no connections on {address}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(running)
    }

    /// Its name in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The target of the load.
    pub fn target(&self) -> String {
        format!("resp://{}", self.address)
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last message of a server that has ended.
    fn last_words(&mut self) -> String {
        let words =
            self.child.stderr.take().and_then(|errors| std::io::read_to_string(errors).ok());
        let words = words.unwrap_or_default();
        let line = words.lines().last().unwrap_or("it ended without a word");
        line.strip_prefix("dovetail: ").unwrap_or(line).to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
