//! What the manager sets up at the start: cache ways, and what is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, TestServer, config};
use server::{Cat, Config, Pin, Tuning};

/// A directory that looks like resctrl on a machine with eight ways.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let group = format!("dovetail-{}", std::process::id());
    for (name, text) in [
        ("info/L3/cbm_mask", "ff"),
        ("schemata", "L3:0=ff"),
        ("tasks", ""),
        (&format!("{group}/schemata"), ""),
        (&format!("{group}/tasks"), ""),
    ] {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn two_layers(cat: Cat, root: &Path) -> Config {
    let resctrl_root = root.to_owned();
    Config { threads: 2, cr_threads: Some(1), cat, resctrl_root, ..config() }
}

#[test]
fn the_memory_resident_thread_gets_its_ways_at_the_start() {
    let root = machine();
    let _server = TestServer::with(two_layers(Cat::Ways(3), root.path()));
    let group = root.path().join(format!("dovetail-{}", std::process::id()));
    let schemata = fs::read_to_string(group.join("schemata")).unwrap();
    assert!(schemata.starts_with("L3:0=7\n"), "{schemata}");
    let task = fs::read_to_string(group.join("tasks")).unwrap();
    let name = fs::read_to_string(format!("/proc/self/task/{}/comm", task.trim())).unwrap();
    assert_eq!(name.trim(), "worker-1");
}

#[track_caller]
fn check_refused(config: Config, want: &str) {
    let error = TestServer::try_with(config).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(want), "{error}");
}

#[test]
fn what_cannot_be_had_is_refused_in_one_line() {
    let none = tempfile::tempdir().unwrap();
    check_refused(two_layers(Cat::On, none.path()), "--cat on: ");
    check_refused(two_layers(Cat::Ways(9), machine().path()), "9 ways are out of range: this");
    let pinned = Config { pin: Pin::On, threads: 200, ..config() };
    check_refused(pinned, "--pin on needs a core for each of 200 threads");
    let fixed = Config { tuning: Tuning::On, ..two_layers(Cat::Off, none.path()) };
    check_refused(fixed, "--tuner on: --cr-threads 1 leaves it nothing to turn");
}

#[test]
fn a_machine_without_ways_starts_under_auto() {
    let none = tempfile::tempdir().unwrap();
    let server = TestServer::with(two_layers(Cat::Auto, none.path()));
    server.resp().ask("PING\r\n", "+PONG\r\n");
}

/// Reads and writes in deep pipelines, on connections and threads of its own, until it is dropped.
struct Clients {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(server: &TestServer) -> Clients {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |number: usize| {
            let (mut client, is_over) = (server.resp(), Arc::clone(&is_over));
            let key = format!("key:{number}");
            let asks = format!("SET {key} 1\r\n{}", format!("GET {key}\r\n").repeat(200));
            let answers = format!("+OK\r\n{}", "$1\r\n1\r\n".repeat(200));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.ask(&asks, &answers);
                }
            })
        };
        let threads = (0..4).map(client).collect();
        Clients { is_over, threads }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Two threads on whatever the machine has, with their clients beside them: more is asked than is
/// served, the tuner sees that and tries two layers and hot sets while every request is answered,
/// and then says what it found. How long that takes is not a test's to say.
#[test]
fn a_saturated_server_is_tuned_while_it_serves() {
    let server = TestServer::with(Config { tuning: Tuning::On, ..config() });
    let shared = Arc::clone(server.server().shared());
    let epoch_before = shared.roles().plan().epoch;
    let ended = |change: &str| change.ends_with(" stay") || change.starts_with("from ");
    let clients = Clients::start(&server);
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        let entries = shared.control().decision_log.entries().into_iter();
        let told: Vec<String> = entries
            .filter(|entry| entry.controller == "tuner")
            .map(|entry| entry.decision.change)
            .collect();
        if told.iter().any(|change| ended(change)) {
            break told;
        }
        assert!(Instant::now() < deadline, "no search ended: {told:?}");
        std::thread::park_timeout(Duration::from_millis(20));
    };
    assert_eq!(told[0], "a search begins");
    assert!(shared.roles().plan().epoch >= epoch_before + 2, "it tried two layers");
    drop(clients);
    // Searches that began meanwhile may have left their last try; what is answered is right in any.
    server.resp().ask("GET key:0\r\n", "$1\r\n1\r\n");
}
