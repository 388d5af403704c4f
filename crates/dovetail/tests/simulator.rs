//! Tests `dovetail plan` and the errors of `sim` from outside.
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::{check_usage, dovetail, text};

fn run(arguments: &[&str]) -> Output {
    dovetail(arguments).output().unwrap()
}

#[test]
fn sim_without_a_model_names_the_models() {
    check_usage(&["sim"], &["cache", "cluster"]);
    check_usage(&["sim", "c4-fig3"], &["c4-fig3"]);
    check_usage(&["sim", "cluster", "--sed", "1"], &["--sed", "--seed", "--faults"]);
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Measured before, so that the test needs no quiet machine.
const COSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/data/costs-default.json");

#[test]
fn a_plan_is_a_table_and_settings_that_serve_accepts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dovetail.toml");
    let arguments = "plan --workload twitter-12 --cores 8 --slo 100us --requests 5k --costs";
    let words: Vec<&str> = arguments.split(' ').chain([COSTS]).collect();
    let output = run(&[&words[..], &["--write", file.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for preset in ["dovetail", "mica-erew", "sho", "minos", "c4-dcrew", "basekv", "mutps-h"] {
        assert!(table.contains(preset), "{preset} is missing:\n{table}");
    }
    assert!(fs::read_to_string(&file).unwrap().contains("threads = 8\n"));
    assert!(run(&["config", "check", file.to_str().unwrap()]).status.success());
    assert_eq!(files(directory.path()), ["dovetail.toml"]);
    // The same without the line that names the file, on another number of threads.
    let again = run(&[&words[..], &["--threads", "3"]].concat());
    assert!(table.starts_with(&text(&again.stdout)), "{table}");
}

#[test]
fn a_trace_can_be_planned_for() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv");
    fs::write(&trace, "0,a,8,92,1,get,0\n0,b,8,92,1,set,0\n").unwrap();
    let arguments = ["plan", "--cores", "4", "--requests", "1k", "--costs", COSTS, "--workload"];
    let output = run(&[&arguments[..], &[trace.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("2 requests of the trace"));
}

#[test]
fn wrong_plans_are_told_what_is_right() {
    let with = |more: &[&'static str]| {
        let mut arguments = vec!["plan", "--costs", COSTS];
        arguments.extend(more);
        arguments
    };
    check_usage(&with(&[]), &["--workload"]);
    check_usage(&with(&["--workload", "nonsense"]), &["`nonsense` is no workload", "ycsb-a"]);
    check_usage(&with(&["--workload", "ycsb-e"]), &["ordered index"]);
    check_usage(&with(&["--workload", "./absent.csv"]), &["./absent.csv"]);
    check_usage(&with(&["--workload", "ycsb-a", "--cores", "0"]), &["1 to 256"]);
    check_usage(&with(&["--workload", "ycsb-a", "--slo", "soon"]), &["`soon` is not a time"]);
    let no_unit = "`5` has no unit: write a unit: 5ms, 5us, 5s";
    check_usage(&with(&["--workload", "ycsb-a", "--slo", "5"]), &[no_unit]);
    check_usage(&with(&["--workload", "ycsb-a", "--slo", "0us"]), &["an SLO of no time"]);
    check_usage(&with(&["--workload", "ycsb-a", "--slop", "1"]), &["--slo, ", "--cores"]);
    check_usage(&["plan", "--workload", "ycsb-a", "--costs", "/dev/null"], &["/dev/null"]);
    // No server listens on port 1: that is no fault of the command line.
    let output = run(&with(&["--workload", "127.0.0.1:1"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("http://127.0.0.1:1/stats"));
}
