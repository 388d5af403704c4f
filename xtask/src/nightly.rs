//! `cargo xtask nightly`: checks that take too long for each push, or need the nightly toolchain. A
//! part whose tool is missing is skipped with one line that says how to get it.
//!
//! No part depends on another; a failure does not stop the rest.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use steps::programs::succeeds;
use steps::{Report, Step, server_step, target};

use crate::blackbox::{self, Profile};
use crate::{ci, dax, rdma, zookeeper};

/// Crates without system calls, which Miri can run.
const MIRI_CRATES: &str = "-p base -p policy -p wire -p workload";
/// Fuzz bodies of `fuzz/fuzz_targets`.
const FUZZ_TARGETS: [&str; 23] = [
    "acl_files",
    "checkpoints",
    "cluster_texts",
    "data_files",
    "dumps",
    "foreign_configs",
    "foreign_data",
    "globs",
    "memcached_binary",
    "memcached_datagrams",
    "memcached_text",
    "native_client",
    "native_frames",
    "native_memory",
    "numbers",
    "peer_datagrams",
    "peer_messages",
    "policy_events",
    "records",
    "resp_commands",
    "routed_commands",
    "store_requests",
    "windows",
];
/// Cases of each property test.
const PROPTEST_CASES: &str = "5000";

/// The only target of the sanitizers' steps.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// The durations of the parts without an end of their own.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {
    /// For each fuzz target
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    fuzz_seconds: u32,
    /// For the torture of the store, all of whose tests run at once
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    torture_seconds: u32,
    /// Clusters under simulated faults, from seeds that no earlier night had; some 100 a second
    #[arg(long, default_value_t = 200_000, value_name = "SEEDS")]
    cluster_seeds: u64,
    /// For a real cluster that is broken, half of it with disks
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    demo_seconds: u32,
    /// For recorded histories of all presets
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    history_seconds: u32,
    /// For each shape of an attack, with each cap and login: some 1,000 of them, two at a time
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    attack_seconds: u32,
}

/// Runs every part; returns true if none failed.
pub fn run(root: &Path, args: Args) -> bool {
    let mut report = Report::default();
    let mut is_good = true;
    let moved = moved_steps(root, &mut report);
    // This comes after the clients, whose first step builds the binary.
    let clients = routed_clients(root, &mut report)
        .into_iter()
        .chain([attack_step(root, args), crowded_attack_step(root)]);
    let advisories = advisories(&mut report);
    for step in moved.into_iter().chain(steps(root, args)).chain(clients).chain(advisories) {
        is_good &= report.take(&step, root);
    }
    report.finish();
    is_good
}

fn steps(root: &Path, args: Args) -> Vec<Step> {
    let mut steps = vec![
        Step::new("long properties", "cargo test --locked --release -p index -p store -p wire")
            .with("PROPTEST_CASES", PROPTEST_CASES),
        // Not in release: the store's own assertions are half of the test.
        Step::new("torture", "cargo test --locked -p store --test main torture")
            .with("TORTURE_SECONDS", args.torture_seconds.to_string())
            .with("TORTURE_SEED", fresh_seed().to_string()),
        Step::new("histories", "cargo test --locked -p dovetail --test main linearizable")
            .with("HISTORY_SECONDS", args.history_seconds.to_string())
            .with("HISTORY_SEED", fresh_seed().to_string()),
        Step::new(
            "clusters under faults",
            "cargo test --locked --release -p sim --test main cluster",
        )
        .with("CLUSTER_SEEDS", args.cluster_seeds.to_string())
        .with("CLUSTER_FIRST_SEED", fresh_seed().to_string()),
    ];
    steps.extend(["replicated", "fsync"].map(|durability| {
        let (seconds, seed) = (args.demo_seconds / 2, fresh_seed());
        let line = format!("cargo xtask demo-cluster --seconds {seconds}");
        Step::new("a broken cluster", &format!("{line} --durability {durability} --seed {seed}"))
    }));
    steps.extend(miri_steps());
    steps.extend(sanitizer_steps(root));
    steps.extend(fuzz_steps(root, args.fuzz_seconds));
    steps
}

/// Known vulnerabilities in the binary's dependencies, by deny.toml.
fn advisories(report: &mut Report) -> Option<Step> {
    if succeeds("cargo-deny", &["--version"]) {
        return Some(Step::new("advisories", "cargo deny --locked check advisories"));
    }
    report.skip("advisories: cargo install --locked cargo-deny".to_owned());
    None
}

/// The long form of tests that `cargo xtask test` shortens; what this machine lacks is noted.
fn moved_steps(root: &Path, report: &mut Report) -> Vec<Step> {
    let mut steps = ci::second_lane(root);
    for step in [rdma::step(root), dax::step(root), zookeeper::step(root)] {
        match step {
            Ok(step) => steps.push(step),
            Err(reason) => report.skip(reason),
        }
    }
    steps
}

/// All black-box clients against servers that route; what cannot be installed is skipped.
fn routed_clients(root: &Path, report: &mut Report) -> Vec<Step> {
    let mut steps = vec![server_step()];
    let clients = blackbox::prepare(root, Profile::Release);
    clients.skipped.iter().cloned().for_each(|reason| report.skip(reason));
    // Plain servers of a release build, then those that route.
    let all_indexes = |step: Step| step.with("BLACKBOX_INDEXES", "all");
    steps.extend(clients.steps.iter().cloned().map(all_indexes));
    for flags in blackbox::ROUTED {
        steps.extend(clients.steps.iter().cloned().map(|step| step.with(blackbox::SERVE, flags)));
    }
    steps
}

/// Every shape with every cap and login, against a release build.
fn attack_step(root: &Path, args: Args) -> Step {
    attack_by(root, "attack", &format!("--at-once 2 --seconds {}", args.attack_seconds))
}

/// What no ledger books adds up over workers.
fn crowded_attack_step(root: &Path) -> Step {
    attack_by(
        root,
        "attack: 16 workers",
        "--threads 16 --caps 168m,256m --seconds 10 --shapes unlike-clients,half-lengths",
    )
}

fn attack_by(root: &Path, name: &'static str, flags: &str) -> Step {
    let binary = Profile::Release.binary(&target(root)).display().to_string();
    let line = format!("cargo xtask attack {flags}");
    Step::new(name, &line).and(&["--binary", &binary])
}

/// Seeds that no earlier night had.
fn fresh_seed() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(1, |duration| duration.as_secs())
}

fn miri_steps() -> Vec<Step> {
    if !succeeds("cargo", &["+nightly", "miri", "--version"]) {
        println!("skipped: miri; `rustup component add miri rust-src --toolchain nightly`");
        return Vec::new();
    }
    let miri = |name, what: &str| {
        Step::new(name, &format!("cargo +nightly miri test --locked {what}"))
            .with("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-strict-provenance")
            .with("PROPTEST_CASES", "4")
    };
    vec![
        miri("miri", &format!("{MIRI_CRATES} --lib")),
        miri("miri: the store", "-p index -p store --lib"),
        miri("miri: the store's threads", "-p store --test main -- batch torture"),
    ]
}

/// Sanitizes the store's threads, with the standard library instrumented too. Neither sanitizer
/// sees the reads of the tag match, which are inline assembly.
fn sanitizer_steps(root: &Path) -> Vec<Step> {
    let has_source = Command::new("rustc")
        .args(["+nightly", "--print", "sysroot"])
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .is_some_and(|path| Path::new(path.trim()).join("lib/rustlib/src/rust/library").is_dir());
    if !has_source {
        println!("skipped: sanitizers; `rustup component add rust-src --toolchain nightly`");
        return Vec::new();
    }
    let target = target(root);
    let sanitized = |name, sanitizer: &str| {
        let build = format!("-Zbuild-std --target {SANITIZED_TARGET} -p store");
        let line = format!("cargo +nightly test --locked {build} --test main -- torture threads");
        Step::new(name, &line)
            .with("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
            .with("CARGO_TARGET_DIR", target.join(sanitizer).display().to_string())
    };
    vec![
        sanitized("thread sanitizer", "thread"),
        // Mappings live as long as their store: the rest at the end belongs to the runtime.
        sanitized("address sanitizer", "address").with("ASAN_OPTIONS", "detect_leaks=0"),
    ]
}

fn fuzz_steps(root: &Path, fuzz_seconds: u32) -> Vec<Step> {
    if !succeeds("cargo", &["+nightly", "fuzz", "--version"]) {
        println!("skipped: fuzzing; `cargo install cargo-fuzz` and the nightly toolchain");
        return Vec::new();
    }
    let mut steps = Vec::new();
    for target in FUZZ_TARGETS {
        // New inputs stay out of the checked-in corpus; keep the good ones by hand.
        let grown = root.join("target/fuzz-corpus").join(target);
        if let Err(error) = std::fs::create_dir_all(&grown) {
            println!("skipped: fuzzing {target}; cannot create {}: {error}", grown.display());
            continue;
        }
        let run = format!("cargo +nightly fuzz run --features libfuzzer {target}");
        let grown = grown.display();
        let line = format!("{run} {grown} fuzz/corpus/{target} -- -max_total_time={fuzz_seconds}");
        steps.push(Step::new("fuzz", &line));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_named() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        assert_eq!(found, FUZZ_TARGETS);
    }
}
