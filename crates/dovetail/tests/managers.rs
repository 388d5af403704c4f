//! Tests `dovetail cm` and `dovetail cluster` from outside, with a config store in a directory.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::dovetail;

const PATIENCE: Duration = Duration::from_secs(60);

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
    fn start(config_store: &str, more: &[&str]) -> Manager {
        let mut arguments = vec!["cm", "--config-store", config_store, "--log-format", "json"];
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(more);
        Manager::run(&arguments)
    }

    /// Any of the programs that log.
    fn run(arguments: &[&str]) -> Manager {
        let mut child = dovetail(arguments).stderr(Stdio::piped()).spawn().unwrap();
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

    /// Waits for a log line with these words.
    fn until_part(&self, want: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect(want);
            let text = line["msg"].as_str().unwrap_or_default();
            if text.contains(want) {
                return text.to_owned();
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

fn config_store() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/config_store", folder.path().display());
    (folder, url)
}

#[test]
fn a_second_manager_stands_by_and_leads_when_the_first_is_killed() {
    let (_folder, url) = config_store();
    let first = Manager::start(&url, &["--first-nodes", "1"]);
    first.until("leading");
    let mut second = Manager::start(&url, &[]);
    second.until("standing by");
    first.signal(Signal::KILL);
    second.until("leading");
    let status = run(&["cluster", "status", "--config-store", &url]);
    check_error(&status, 1, "the cluster waits for its first 1 nodes: 0 are here");
    second.signal(Signal::TERM);
    assert_eq!(second.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_manager_that_is_told_to_end_hands_over_at_once() {
    let (_folder, url) = config_store();
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
    let (_folder, url) = config_store();
    let first = Manager::start(&url, &["--copies", "2", "--lease", "50ms"]);
    let line = first.until("cluster");
    assert_eq!((&line["copies"], &line["lease"]), (&Value::from(2), &Value::from("50ms")));
    let refused = run(&["cm", "--config-store", &url, "--copies", "3", "--log", "off"]);
    check_error(&refused, 2, "--copies 3 contradicts the cluster, which has 2");
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    check_error(
        &run(&["cm", "--config-store", "a:1"]),
        2,
        "zk://HOST:PORT,HOST:PORT/PATH or file:///DIR",
    );
    let (_folder, url) = config_store();
    let anywhere = run(&["cm", "--config-store", &url, "--listen", "0.0.0.0:0"]);
    check_error(&anywhere, 2, "write --advertise HOST:PORT");
    let few = run(&["cm", "--config-store", &url, "--min-copies", "9", "--log", "off"]);
    check_error(&few, 2, "min-copies = 9 is wrong");
    let no_manager = run(&["cluster", "status", "--config-store", &url, "--timeout", "1s"]);
    check_error(&no_manager, 1, "start `dovetail cm` with it");
}

/// What a release with another format of the links says first.
const HELLO_OF_ANOTHER: &[u8] = b"DTLK\x09\x00 and what only that format knows";

#[test]
fn a_peer_of_another_release_is_one_line_for_the_manager_and_told_ours() {
    let (_folder, url) = config_store();
    let manager = Manager::start(&url, &[]);
    let at = manager.until("ready")["listen"].as_str().unwrap().to_owned();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(HELLO_OF_ANOTHER).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"DTLK\x01\x00", "so that it can say the same");
    manager.until_part("it speaks format 9 of the cluster's links, this release speaks 1");
    let status = run(&["cluster", "status", "--config-store", &url]);
    check_error(&status, 1, "0 are here");
}

#[test]
fn a_manager_of_another_release_is_one_line_for_the_server_and_so_is_a_datagram() {
    let (_folder, url) = config_store();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap().to_string();
    let manager = Manager::start(&url, &["--advertise", &at]);
    manager.until("leading");
    // Ends with the test.
    std::thread::spawn(move || {
        for mut stream in other.incoming().map_while(Result::ok) {
            let mut hello = [0; 6];
            if stream.read_exact(&mut hello).is_ok() {
                let _ = stream.write_all(HELLO_OF_ANOTHER);
            }
        }
    });
    // An address of its own: elsewhere a connection of another test may have taken the port by now.
    let peer = UdpSocket::bind("127.0.0.77:0").unwrap().local_addr().unwrap().to_string();
    let server = Manager::run(
        &[
            ["serve", "--cluster", &url, "--peer", &peer, "--log-format", "json"].as_slice(),
            &["--resp", "127.0.0.1:0", "--memcached", "off", "--native", "off", "--admin", "off"],
            &["--memory", "64MiB", "--threads", "1"],
        ]
        .concat(),
    );
    server.until_part("it speaks format 9 of the cluster's links, this release speaks 1");
    let mut datagram = [0; 128];
    datagram[..4].copy_from_slice(b"DTP\x09");
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&datagram, &peer).unwrap();
    server.until_part("a peer's datagram has format 9, this release speaks 1");
}
