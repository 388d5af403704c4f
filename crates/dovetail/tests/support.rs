//! What several modules begin with: the binary, and what it says.

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The binary without settings from the environment.
pub fn dovetail(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DOVETAIL_")) {
        command.env_remove(name);
    }
    command
}

/// Kills a process that is still there when its time is over.
pub struct Watchdog(#[allow(dead_code, reason = "dropping it is the signal")] Sender<()>);

impl Watchdog {
    pub fn over(child: &Child) -> Watchdog {
        let (alive, ended) = channel::<()>();
        let process = Pid::from_child(child);
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(30)) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(process, Signal::KILL);
            }
        });
        Watchdog(alive)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// One line on standard error that holds `want`, nothing on standard output.
#[track_caller]
pub fn check_error(output: &Output, want_status: i32, want: &str) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(want_status), "{message}");
    assert!(message.starts_with("dovetail: ") && message.ends_with('\n'), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains(want), "found `{message}`, want `{want}`");
    assert_eq!(text(&output.stdout), "");
}

/// An error of the command line that holds each of `wants`.
#[track_caller]
pub fn check_usage(arguments: &[&str], wants: &[&str]) {
    let output = dovetail(arguments).output().unwrap();
    for want in wants {
        check_error(&output, 2, want);
    }
}
