//! `dovetail cm` and `dovetail cluster` from outside, with a register in a folder.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn dovetail(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DOVETAIL_")) {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    dovetail(arguments).output().unwrap()
}

/// The exit status and the one line on standard error.
#[track_caller]
fn check_error(output: &Output, want_status: i32, want: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(want_status), "{message}");
    let is_one_line = message.ends_with('\n') && message.trim_end().lines().count() == 1;
    assert!(is_one_line && message.contains(want), "{message}");
}

/// Ended with its handle.
struct Manager {
    child: Child,
    lines: Receiver<Value>,
}

impl Manager {
    fn start(register: &str, more: &[&str]) -> Manager {
        let mut arguments = vec!["cm", "--register", register, "--listen", "127.0.0.1:0"];
        arguments.extend(["--log-format", "json"]);
        arguments.extend(more);
        let mut child = dovetail(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (told, lines) = channel();
        // Ends with the process.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = told.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        Manager { child, lines }
    }

    /// Waits for a log line that says this.
    fn until(&self, want: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect(want);
            if line["msg"] == want {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn register() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/register", folder.path().display());
    (folder, url)
}

#[test]
fn a_second_manager_stands_by_and_leads_when_the_first_is_killed() {
    let (_folder, url) = register();
    let first = Manager::start(&url, &["--first-nodes", "1"]);
    first.until("leading");
    let mut second = Manager::start(&url, &[]);
    second.until("standing by");
    first.signal(Signal::KILL);
    second.until("leading");
    let status = run(&["cluster", "status", "--register", &url]);
    check_error(&status, 1, "the cluster waits for its first 1 nodes: 0 are here");
    second.signal(Signal::TERM);
    assert_eq!(second.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_manager_that_is_told_to_end_hands_over_at_once() {
    let (_folder, url) = register();
    let mut first = Manager::start(&url, &[]);
    first.until("leading");
    let second = Manager::start(&url, &[]);
    second.until("standing by");
    first.signal(Signal::INT);
    assert_eq!(first.child.wait().unwrap().code(), Some(0));
    second.until("leading");
}

#[test]
fn a_flag_that_contradicts_the_cluster_is_refused() {
    let (_folder, url) = register();
    let first = Manager::start(&url, &["--copies", "2", "--lease", "50ms"]);
    let line = first.until("cluster");
    assert_eq!((&line["copies"], &line["lease"]), (&Value::from(2), &Value::from("50ms")));
    let refused = run(&["cm", "--register", &url, "--copies", "3", "--log", "off"]);
    check_error(&refused, 2, "--copies 3 contradicts the cluster, which has 2");
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    check_error(&run(&["cm", "--register", "a:1"]), 2, "write zk://HOST:PORT,HOST:PORT/PATH or");
    let (_folder, url) = register();
    let anywhere = run(&["cm", "--register", &url, "--listen", "0.0.0.0:0"]);
    check_error(&anywhere, 2, "write --advertise HOST:PORT");
    let few = run(&["cm", "--register", &url, "--min-copies", "9", "--log", "off"]);
    check_error(&few, 2, "min-copies = 9 is wrong");
    let nobody = run(&["cluster", "status", "--register", &url, "--timeout", "1s"]);
    check_error(&nobody, 1, "start `dovetail cm` with it");
}
