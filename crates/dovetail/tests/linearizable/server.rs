//! The real binary as a child process, which ends when its handle is dropped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Watchdog, dovetail};

/// What every server is started with; any of it may be given again.
const FIXED: &str = "serve --resp 0 --memcached 0 --native 0 --admin off --threads 3 --memory 1GiB";

/// The names of all presets that are built, as the binary prints them.
pub fn presets() -> Vec<String> {
    let output = dovetail(&["serve", "--preset", "none of these"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    let (_, list) = message.split_once("write one of ").expect("the error lists the presets");
    list.trim().split(", ").map(str::to_owned).collect()
}

/// A running server.
pub struct Server {
    child: Child,
    pub resp: SocketAddr,
    pub memcached: SocketAddr,
    /// If it was asked for.
    pub admin: Option<SocketAddr>,
    /// Targets of native clients: over UDP and in shared memory.
    pub native: [String; 2],
    _folder: tempfile::TempDir,
}

/// Why there is none.
#[derive(Debug)]
pub enum NotStarted {
    /// The settings contradict one another, in these words.
    Refused(String),
    Failed(String),
}

impl Server {
    /// Starts one with further flags.
    pub fn start(flags: &str) -> Result<Server, NotStarted> {
        let folder = tempfile::tempdir().unwrap();
        let shm = folder.path().join("d.sock").display().to_string();
        let mut words: Vec<&str> = FIXED.split_whitespace().collect();
        // A flag may be given once, so a further one takes its place.
        for pair in flags.split_whitespace().collect::<Vec<_>>().chunks(2) {
            if let Some(at) = words.iter().position(|word| *word == pair[0]) {
                words.drain(at..at + 2);
            }
            words.extend(pair);
        }
        words.extend(["--shm", &shm]);
        let mut child = dovetail(&words).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        let ready = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            seen.push_str(&line);
            seen.push('\n');
            (value["msg"] == "ready").then_some(value)
        });
        let Some(ready) = ready else {
            return Err(match child.wait().unwrap().code() {
                Some(2) => NotStarted::Refused(seen),
                _ => NotStarted::Failed(seen),
            });
        };
        // A full pipe would stop the server.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address = |name: &str| ready[name].as_str().unwrap().to_owned();
        Ok(Server {
            child,
            resp: address("resp").parse().unwrap(),
            memcached: address("memcached").parse().unwrap(),
            admin: ready["admin"].as_str().and_then(|address| address.parse().ok()),
            native: [format!("native://{}", address("native")), format!("shm:{shm}")],
            _folder: folder,
        })
    }

    /// Ends it in good order, or says how it ended instead.
    pub fn stop(mut self) -> Result<(), String> {
        if let Some(status) = self.child.try_wait().unwrap() {
            return Err(format!("the server has ended with {status}"));
        }
        let _watchdog = Watchdog::over(&self.child);
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        let message = || format!("told to end, the server ended with {status}");
        if status.success() { Ok(()) } else { Err(message()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
