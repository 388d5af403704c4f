//! Tests `dovetail sim cache` from outside: trace files, tables, JSON, pictures, one-line errors.
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{self, dovetail, text};

fn run(arguments: &[&str]) -> Output {
    dovetail(&["sim", "cache"]).args(arguments).output().unwrap()
}

#[track_caller]
fn check_usage(arguments: &[&str], wants: &[&str]) {
    support::check_usage(&[&["sim", "cache"][..], arguments].concat(), wants);
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap()
}

/// The miss ratio of a policy.
#[track_caller]
fn miss_ratio(json: &Value, engine: &str, policy: &str) -> f64 {
    let rows = json["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["engine"] == engine && row["policy"] == policy);
    row.unwrap()["miss_ratio"].as_f64().unwrap()
}

/// A loop over 400 keys and beside it one key after every second request.
fn trace() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("loop.csv");
    let lines = (0..6000_u64).map(|index| {
        let key = if index % 3 == 2 { 999 } else { index % 400 };
        format!("1,{index},2a,4096,{key}\n")
    });
    fs::write(&path, format!("version,time,op,size,lbn\n{}", lines.collect::<String>())).unwrap();
    (directory, path)
}

#[test]
fn a_trace_gives_a_row_for_every_policy_and_size() {
    let (directory, path) = trace();
    let [csv, svg] = ["out.csv", "out.svg"].map(|name| directory.path().join(name));
    let words = ["--trace", path.to_str().unwrap(), "--size", "100obj,50%obj,4MiB"];
    let files = ["--csv", csv.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let output = run(&[&words[..], &files].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.starts_with("loop.csv: 6000 requests, 6000 of them look-ups, "), "{table}");
    for want in ["store   fifo", "exact   belady", "lru-approx", "clock", "100obj", "50%obj"] {
        assert!(table.contains(want), "{want} is missing:\n{table}");
    }
    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), table.lines().count() - 1);
    assert!(csv.starts_with("engine,policy,size,miss_ratio,byte_miss_ratio,objects_held,"));
    assert!(fs::read_to_string(svg).unwrap().contains("miss ratio"));

    let found = json(&words[..2]);
    assert_eq!(found["requests"], 6000);
    let belady = miss_ratio(&found, "exact", "belady");
    for policy in ["lru", "fifo", "clock", "s3-fifo"] {
        assert!(miss_ratio(&found, "exact", policy) >= belady, "{policy}");
    }
}

#[test]
fn one_trace_gives_one_result_on_any_number_of_threads() {
    let (_directory, path) = trace();
    let words = ["--trace", path.to_str().unwrap(), "--size", "120obj", "--policy", "lru,s3fifo"];
    let found = ["1", "5"].map(|threads| json(&[&words[..], &["--threads", threads]].concat()));
    assert_eq!(found[0], found[1]);
}

#[test]
fn a_policy_of_both_engines_can_be_asked_of_one() {
    let (_directory, path) = trace();
    let with = |policy: &str| {
        let words = ["--trace", path.to_str().unwrap(), "--size", "120obj", "--policy", policy];
        json(&words)["rows"].as_array().unwrap().len()
    };
    assert_eq!((with("fifo"), with("store:fifo"), with("exact:fifo,belady")), (2, 1, 2));
}

#[test]
fn a_binary_trace_gives_what_its_text_gives() {
    let (directory, path) = trace();
    let mut records = Vec::new();
    for line in fs::read_to_string(&path).unwrap().lines().skip(1) {
        let fields: Vec<u64> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let [_, time, size, key] = fields[..] else { panic!("{line}") };
        records.extend_from_slice(&(time as u32).to_le_bytes());
        records.extend_from_slice(&key.to_le_bytes());
        records.extend_from_slice(&(size as u32).to_le_bytes());
        records.extend_from_slice(&(-1_i64).to_le_bytes());
    }
    let binary = directory.path().join("loop.oracleGeneral.bin");
    fs::write(&binary, records).unwrap();
    let rows = |path: &PathBuf, more: &[&str]| {
        let words = ["--trace", path.to_str().unwrap(), "--size", "1MiB", "--policy", "exact:fifo"];
        json(&[&words[..], more].concat())["rows"].clone()
    };
    let want = rows(&path, &["--columns", "time=2,size=4,key=5"]);
    assert_eq!(rows(&binary, &[]), want);
    assert_eq!(rows(&binary, &["--format", "oracle-general"]), want);
}

#[test]
fn a_generated_cluster_is_replayed_and_only_the_seed_decides() {
    let words = ["--workload", "twitter-19", "--requests", "20k", "--size", "50obj"];
    let found = json(&words);
    assert_eq!(found["requests"], 20_000);
    assert_eq!(found, json(&words));
    assert_ne!(found, json(&[&words[..], &["--seed", "2"]].concat()));
}

#[test]
fn a_server_is_replayed_at_like_a_policy() {
    let (_directory, path) = trace();
    let mut server = Command::new(env!("CARGO_BIN_EXE_dovetail"));
    server
        .args(["serve", "--resp", "off", "--native", "off", "--admin", "off", "--memory", "64MiB"]);
    server.args(["--memcached", "127.0.0.1:0", "--threads", "1", "--pin", "off"]);
    let mut server =
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let addresses = lines.map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once("127.0.0.1:").filter(|_| line.contains("ready"))?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("127.0.0.1:{digits}"))
    });
    let address = addresses.expect("the server says where it listens");
    let found =
        json(&["--trace", path.to_str().unwrap(), "--policy", "none", "--server", &address]);
    server.kill().unwrap();
    server.wait().unwrap();
    // Everything fits: each of the 401 keys is missed once.
    let row = &found["rows"][0];
    assert_eq!((&row["engine"], &row["objects"]), (&"server".into(), &401.0.into()), "{row}");
    assert_eq!(miss_ratio(&found, "server", &address), 401.0 / 6000.0);
    check_gone(&path, &address);
}

/// No server listens there any more: status 1, since the command line was right.
#[track_caller]
fn check_gone(path: &std::path::Path, address: &str) {
    let words = ["--trace", path.to_str().unwrap(), "--policy", "none", "--server", address];
    let output = run(&words);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains("cannot connect to"), "{message}");
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let (directory, path) = trace();
    let good = path.to_str().unwrap();
    check_usage(&[], &["--trace"]);
    check_usage(&["--trace", "./absent.csv"], &["./absent.csv", "No such file"]);
    check_usage(&["--trace", good, "--workload", "twitter-1"], &["cannot be used with"]);
    check_usage(&["--workload", "ycsb-a"], &["`ycsb-a` is no cluster", "twitter-54"]);
    check_usage(&["--workload", "twitter-5"], &["cluster 5"]);
    check_usage(&["--trace", good, "--policy", "best"], &["`best` is no policy", "belady"]);
    check_usage(&["--trace", good, "--size", "some"], &["`some` is no cache size"]);
    check_usage(&["--trace", good, "--size", "64KiB", "--policy", "store:fifo"], &["the store"]);
    check_usage(&["--trace", good, "--format", "xml"], &["csv or oracle-general"]);
    check_usage(&["--trace", good, "--columns", "colour=1"], &["`colour=1` is no column"]);
    check_usage(&["--trace", good, "--columns", "key=9"], &["loop.csv", "line 2: 5 fields"]);
    check_usage(&["--trace", good, "--requests", "0"], &["--requests"]);
    check_usage(&["--trace", good, "--polcy", "lru"], &["--policy", "--size", "--columns"]);
    let bad = directory.path().join("bad.csv");
    for (content, want) in [
        ("time,key\n1,2\nx,3\n", "line 3: `x` is no time"),
        ("time,size\n1,2\n", "no column for key"),
        ("", "no requests in it"),
    ] {
        fs::write(&bad, content).unwrap();
        check_usage(&["--trace", bad.to_str().unwrap()], &["bad.csv", want]);
    }
    let output = run(&["--trace", good, "--size", "9obj", "--svg", "/nonexistent/x.svg"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr).lines().count(), 1);
}
