//! Other programs: whether they are there, ports for them, and how long to wait until they listen.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

const START_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs a program without output; a missing program counts as a failure.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Takes from a command's environment what cargo told this program about its own package. A build
/// script that reads such a variable, as ring's does, would run again, and with it the build of all
/// that depends on it.
pub fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Whether the program is in the path.
pub fn is_installed(program: &str) -> bool {
    succeeds("which", &[program])
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until a server that was just started accepts connections.
pub fn wait_until_listening(child: &mut Child, name: &str, port: u16) -> Result<()> {
    let started = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(child.try_wait()?.is_none(), "{name} ended at its start");
        ensure!(started.elapsed() < START_MAX, "{name} does not listen on port {port}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawned(line: &str) -> Child {
        Command::new("sh").args(["-c", line]).stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn missing_programs_and_failures_are_told_from_success() {
        assert!(succeeds("true", &[]) && is_installed("sh"));
        assert!(!succeeds("false", &[]) && !succeeds("no-such-program", &[]));
        assert!(!is_installed("no-such-program"));
    }

    #[test]
    fn a_build_that_is_started_here_learns_nothing_of_this_package() {
        let mut command = Command::new("sh");
        command.args(["-c", "test -z \"$CARGO_PKG_NAME$CARGO_MANIFEST_DIR\""]);
        assert!(!command.status().unwrap().success(), "cargo sets both for tests");
        forget_package(&mut command);
        assert!(command.status().unwrap().success());
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() {
        let mut child = spawned("exit 1");
        let port = free_port().unwrap();
        let error = wait_until_listening(&mut child, "sample", port).unwrap_err();
        assert!(error.to_string().contains("sample ended"), "{error}");
    }

    #[test]
    fn a_port_with_a_listener_ends_the_wait() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut child = spawned("read line");
        wait_until_listening(&mut child, "sample", port).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
