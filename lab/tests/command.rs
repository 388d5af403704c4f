//! Tests the program from outside: figures as files, points as JSON, errors.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A figure that is cheap at few requests, to stand for all of them.
const FIGURE: &str = "minos-fig2";

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    lab(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Status 2, nothing on standard output, a message that holds each of `wants`.
#[track_caller]
fn check_usage(arguments: &[&str], wants: &[&str]) {
    let output = run(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert_eq!(text(&output.stdout), "", "{message}");
    for want in wants {
        assert!(message.contains(want), "found `{message}`, want `{want}`");
    }
}

/// The object on the last line of standard output.
#[track_caller]
fn point(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap()
}

/// What the seed decides: all but the speed of the simulation.
fn without_speed(mut point: Value) -> Value {
    point.as_object_mut().unwrap().remove("simulated_requests_per_second").unwrap();
    point
}

#[test]
fn help_and_list_name_every_figure() {
    let list = text(&run(&["list"]).stdout);
    let help = text(&run(&["--help"]).stdout);
    assert!(list.lines().count() > 0);
    for line in list.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(help.contains(name), "{name}");
    }
    assert!(list.contains(FIGURE) && help.contains("--fidelity"));
}

#[test]
fn comparisons_are_listed_and_have_flags_of_their_own() {
    let help = text(&run(&["--help"]).stdout);
    let names =
        ["peers", "cache", "store", "joined", "presets", "costs", "cold-start", "replication"];
    for name in names {
        assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
        let own = text(&run(&[name, "--help"]).stdout);
        assert!(own.contains("--repetitions") || name == "cache", "{name}: {own}");
    }
    check_usage(&["peers", "--speed", "9"], &["--speed"]);
}

#[test]
fn the_list_of_figures_in_the_documentation_is_complete() {
    let page = include_str!("../../docs/figures.md");
    let list = text(&run(&["list"]).stdout);
    for line in list.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(page.contains(&format!("\n| `{name}` |")), "docs/figures.md has no row for {name}");
    }
    assert_eq!(page.matches("\n| `").count(), list.lines().count(), "a row without a figure");
}

#[test]
fn a_wrong_figure_is_told_all_figures() {
    let list = text(&run(&["list"]).stdout);
    let names: Vec<&str> =
        list.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    check_usage(&["c4-fig99"], &names);
    check_usage(&[], &["<FIGURE>"]);
}

#[test]
fn a_wrong_flag_is_told_the_nearest_one() {
    check_usage(&[FIGURE, "--sed", "1"], &["--sed", "--seed"]);
    check_usage(&["point", "--worker", "1"], &["--worker", "--workers"]);
    check_usage(&["minos-point", "--rh", "1"], &["--rh", "--rho"]);
}

#[test]
fn values_out_of_range_are_told_the_range() {
    check_usage(&[FIGURE, "--requests", "0"], &["--requests", "from 1 to"]);
    check_usage(&[FIGURE, "--requests", "99999999G"], &["--requests"]);
    check_usage(&[FIGURE, "--threads", "0"], &["--threads"]);
    check_usage(&[FIGURE, "--fidelity", "exact"], &["honest, artifact"]);
    let wrong = [
        ["--policy", "best", "ideal, erew, crew, d-crew"],
        ["--compaction", "maybe", "on, off"],
        ["--workers", "0", "1 to 4096"],
        ["--load", "0", "above 0"],
        ["--load", "-1", "above 0"],
        ["--load", "NaN", "above 0"],
        ["--load", "1e-300", "1e-6 to 10"],
        ["--write-percent", "101", "0 to 100"],
        ["--zipf", "-0.5", "0 to"],
        ["--keys", "0", "from 1"],
        ["--requests", "1e9", "--requests"],
    ];
    for [flag, value, want] in wrong {
        check_usage(&["point", flag, value], &[want]);
    }
    let wrong = [
        ["--strategy", "best", "hash, late, steal, size-aware"],
        ["--cores", "0", "1 to"],
        ["--cores", "65535", "1 to 4096"],
        ["--k", "0.5", "1 to"],
        ["--rho", "-1", "above 0"],
        ["--rho", "1e-300", "1e-6 to 10"],
        ["--requests", "0", "from 1"],
    ];
    for [flag, value, want] in wrong {
        check_usage(&["minos-point", flag, value], &[want]);
    }
}

#[test]
fn a_point_of_c4_is_one_object_that_only_the_seed_decides() {
    const KEYS: [&str; 11] = [
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "p999_ns",
        "throughput_rps",
        "ewt_avg",
        "ewt_max",
        "windows",
        "writes_compacted",
        "requests",
        "simulated_requests_per_second",
    ];
    let arguments = ["point", "--policy", "d-crew", "--requests", "20k", "--load", "0.9"];
    let with = |more: &[&str]| point(&[&arguments[..], more].concat());
    let first = with(&["--seed", "1", "--threads", "1"]);
    let found: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert!(KEYS.iter().all(|key| found.iter().any(|found| found == key)), "{found:?}");
    assert!(first["p99_ns"].as_f64().unwrap() > first["p50_ns"].as_f64().unwrap());
    assert_eq!(first["requests"], 20_000);
    let first = without_speed(first);
    assert_eq!(first, without_speed(with(&["--seed", "1", "--threads", "4"])));
    assert_ne!(first, without_speed(with(&["--seed", "2"])));
}

#[test]
fn compaction_gathers_the_writes_of_a_hot_key() {
    let arguments = "point --policy crew --zipf 1.4 --write-percent 50 --load 0.3 \
                     --keys 100k --requests 20k --compaction";
    let with = |switch: &str| {
        let words: Vec<&str> = arguments.split_whitespace().chain([switch]).collect();
        point(&words)["writes_compacted"].as_u64().unwrap()
    };
    assert!(with("on") > 0);
    assert_eq!(with("off"), 0);
}

#[test]
fn a_point_of_minos_is_one_object_in_services() {
    let arguments = ["minos-point", "--requests", "50k", "--k", "100", "--strategy"];
    let p99 = |strategy: &str| {
        let point = point(&[&arguments[..], &[strategy]].concat());
        assert!(point["p50"].is_number() && point["p999"].is_number(), "{point}");
        point["p99"].as_f64().unwrap()
    };
    // Minos §2.2: a small request is served in 1, behind a large one it waits up to 100.
    let (hash, size_aware) = (p99("hash"), p99("size-aware"));
    assert!(size_aware >= 1.0 && hash > 3.0 * size_aware, "{hash} {size_aware}");
    let again = || without_speed(point(&[&arguments[..], &["late", "--seed", "9"]].concat()));
    assert_eq!(again(), again());
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_figure_is_three_files_that_only_the_seed_decides() {
    let directory = tempfile::tempdir().unwrap();
    let draw = |name: &str, more: &[&str]| {
        let out = directory.path().join(name);
        let arguments = [FIGURE, "--requests", "200", "--out", out.to_str().unwrap()];
        let output = run(&[&arguments[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let names = ["csv", "md", "svg"].map(|extension| format!("{FIGURE}.{extension}"));
        assert_eq!(files(&out), names);
        names.map(|name| fs::read_to_string(out.join(name)).unwrap())
    };
    let first = draw("first", &["--threads", "1"]);
    assert!(first[0].lines().count() > 2 && first[0].contains(','));
    assert!(first[1].contains(&format!("-- {FIGURE}")) && first[1].contains("--requests 200"));
    assert!(first[2].starts_with("<svg") && first[2].contains("</text>"));
    assert_eq!(first, draw("deep/again", &["--threads", "3", "--seed", "1"]));
    assert_ne!(first[0], draw("other", &["--seed", "2"])[0]);
}

#[test]
fn a_place_that_cannot_be_written_is_found_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let occupied = directory.path().join("file");
    fs::write(&occupied, "kept").unwrap();
    // So many requests would take hours.
    let arguments = [FIGURE, "--requests", "9G", "--out", occupied.to_str().unwrap()];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.lines().count() == 1 && message.contains("file"), "{message}");
}

#[test]
fn a_signal_ends_a_run_at_once_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let arguments = [FIGURE, "--requests", "9G", "--out", out.to_str().unwrap()];
    let mut child = lab(&arguments).spawn().unwrap();
    // The directory is made before the run begins.
    while !out.exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // Not the interrupt of a terminal: tests that run in the background ignore it, and so does all
    // that they start.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(15), "{status}");
    let left: Vec<String> =
        files(&out).into_iter().filter(|name| !name.ends_with(".partial")).collect();
    assert!(left.is_empty(), "{left:?}");
}
