//! What the manager sets up at the start: cache ways, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;

use server::{Cat, Config, Pin, Tuning};
use support::{TestServer, config};

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
