//! Rules of purity: names that a crate must not mention, and crates it must not depend on.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tidy::{Problem, Repository};

/// Crates that may use `unsafe`: the structures of memory, the system, and the boundaries to C
/// (decisions 0027, 0028). All others forbid it.
const UNSAFE_CRATES: [&str; 10] = [
    "base",
    "index",
    "store",
    "landing",
    "landing-rdma",
    "client-c",
    "host",
    "dispatch",
    "replication",
    "workers",
];

/// The floors of a server (decision 0104).
const SERVER_CRATES: [&str; 15] = [
    "host",
    "counters",
    "budget",
    "config",
    "commands",
    "sessions",
    "dispatch",
    "replication",
    "runtime",
    "observe",
    "control",
    "handlers",
    "native",
    "workers",
    "server",
];

/// Crates on the data path, which no runtime may enter.
const DATA_PATH_CRATES: [&str; 6] = ["base", "wire", "workload", "policy", "index", "store"];

/// All rules about words in sources.
pub fn check_sources(repository: &Repository) -> Vec<Problem> {
    [forbids_unsafe, policy_is_pure, runtime_stays_in_admin, presets_stay_settings]
        .iter()
        .flat_map(|rule| rule(repository))
        .collect()
}

fn forbids_unsafe(repository: &Repository) -> Vec<Problem> {
    let is_head = |path: &str| {
        let inner = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
        inner.is_some_and(|(name, file)| {
            ["src/lib.rs", "src/main.rs"].contains(&file) && !UNSAFE_CRATES.contains(&name)
        })
    };
    repository
        .named(is_head)
        .filter(|(_, text)| !text.contains("#![forbid(unsafe_code)]"))
        .map(|(path, _)| Problem::of(path, "write `#![forbid(unsafe_code)]`"))
        .collect()
}

/// Policy, cluster and the quorum's member have no clock, thread, socket or file: their inputs come
/// as arguments.
fn policy_is_pure(repository: &Repository) -> Vec<Problem> {
    const WORDS: [&str; 5] = ["std::thread", "std::time", "std::net", "std::fs", "SystemTime"];
    let pure = ["crates/policy/src/", "crates/cluster/src/", "crates/config-store-quorum/src/"];
    let is_pure = |path: &str| pure.iter().any(|folder| path.starts_with(folder));
    forbidden_words(repository, is_pure, &WORDS)
}

/// The workers own their threads; the runtime of the admin port stays in its module.
fn runtime_stays_in_admin(repository: &Repository) -> Vec<Problem> {
    const WORDS: [&str; 3] = ["tokio::", "axum::", "hyper::"];
    let is_worker = |path: &str| {
        let inner = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        inner.is_some_and(|(name, file)| {
            SERVER_CRATES.contains(&name) && !(name == "observe" && file.starts_with("admin"))
        })
    };
    forbidden_words(repository, is_worker, &WORDS)
}

/// A preset is a set of settings: code that acts on them cannot ask which one is on.
fn presets_stay_settings(repository: &Repository) -> Vec<Problem> {
    const WORDS: [&str; 2] = ["preset", "Preset"];
    let below = ["store", "index", "policy", "wire", "landing", "base"];
    let crates = || below.iter().chain(&SERVER_CRATES);
    let is_below =
        |path: &str| crates().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    forbidden_words(repository, is_below, &WORDS)
}

fn forbidden_words(
    repository: &Repository,
    is_covered: impl Fn(&str) -> bool,
    words: &[&str],
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in repository.named(|path| path.ends_with(".rs") && is_covered(path)) {
        for (index, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in words.iter().filter(|word| code.contains(**word)) {
                problems.push(Problem::at(path, index + 1, format!("{word} has no place here")));
            }
        }
    }
    problems
}

/// No crate of the data path depends on tokio, not even through another.
pub fn check_dependencies(root: &Path) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for name in DATA_PATH_CRATES {
        let output = Command::new("cargo")
            .args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--package"])
            .arg(name)
            .current_dir(root)
            .output()
            .context("cannot start cargo tree")?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "cargo tree --package {name} failed: {words}");
        problems.extend(runtime_in_tree(name, &String::from_utf8_lossy(&output.stdout)));
    }
    Ok(problems)
}

fn runtime_in_tree(name: &str, tree: &str) -> Option<Problem> {
    let is_runtime = |line: &str| line.split(' ').next().is_some_and(|package| package == "tokio");
    let message = "depends on tokio: the data path owns its threads";
    tree.lines().any(is_runtime).then(|| Problem::of(&format!("crates/{name}"), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::expect;

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_is_found() {
        expect(
            forbids_unsafe,
            "crates/wire/src/lib.rs",
            "//! Wire.\n",
            &["crates/wire/src/lib.rs"],
        );
        let good = "//! Wire.\n#![forbid(unsafe_code)]\n";
        expect(forbids_unsafe, "crates/wire/src/lib.rs", good, &[]);
        expect(forbids_unsafe, "crates/store/src/lib.rs", "//! Store.\n", &[]);
        expect(forbids_unsafe, "crates/client-c/src/lib.rs", "//! For C.\n", &[]);
        let new = "crates/anew/src/main.rs";
        expect(forbids_unsafe, new, "//! Not on any list.\n", &[new]);
        expect(forbids_unsafe, "crates/wire/src/resp.rs", "//! Not a crate's head.\n", &[]);
    }

    #[test]
    fn a_clock_in_policy_is_found() {
        let path = "crates/policy/src/a.rs";
        expect(policy_is_pure, path, "use std::time::Instant;\n", &["a.rs:1: std::time"]);
        expect(policy_is_pure, path, "// std::time would break replay.\n", &[]);
        expect(policy_is_pure, "crates/server/src/a.rs", "use std::time::Instant;\n", &[]);
    }

    #[test]
    fn a_runtime_among_the_workers_is_found() {
        let text = "fn f() { tokio::spawn(async {}); }\n";
        expect(runtime_stays_in_admin, "crates/workers/src/worker.rs", text, &["tokio::"]);
        expect(runtime_stays_in_admin, "crates/observe/src/admin/routes.rs", text, &[]);
    }

    #[test]
    fn tokio_below_the_data_path_is_found() {
        assert!(runtime_in_tree("store", "store v0.1.0\nbase v0.1.0\ntokio v1.54.1\n").is_some());
        assert!(runtime_in_tree("store", "store v0.1.0\ntokio-like v1.0.0\n").is_none());
    }

    #[test]
    fn a_server_that_asks_for_the_preset_is_found() {
        let path = "crates/workers/src/worker.rs";
        let asks = "if config.preset == \"hkh\" {";
        expect(presets_stay_settings, path, asks, &["preset has no place here"]);
        expect(presets_stay_settings, path, "// As the presets say.", &[]);
        expect(presets_stay_settings, "crates/dovetail/src/settings.rs", asks, &[]);
    }
}
