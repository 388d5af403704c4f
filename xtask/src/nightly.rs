//! `cargo xtask nightly`: what takes too long for each push, or needs the nightly toolchain. A part
//! whose tool is missing is skipped in one line that says how to get it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::step::{Step, Tally};

/// Crates without system calls, which Miri can run.
const MIRI_CRATES: &str = "-p base -p policy -p wire -p workload";
/// Fuzz bodies of `fuzz/fuzz_targets`.
const FUZZ_TARGETS: [&str; 5] =
    ["globs", "memcached_text", "numbers", "policy_events", "resp_commands"];
/// Cases of each property test.
const PROPTEST_CASES: &str = "5000";

/// Runs every part; true if none failed. `fuzz_seconds` is for each target.
pub fn run(root: &Path, fuzz_seconds: u32) -> bool {
    let mut tally = Tally::default();
    let mut is_good = true;
    for step in steps(root, fuzz_seconds) {
        match step.run(root) {
            Ok(passed) => tally.add(passed),
            Err(failed) => {
                tally.add(failed);
                is_good = false;
            }
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    is_good
}

fn steps(root: &Path, fuzz_seconds: u32) -> Vec<Step> {
    let mut steps = vec![
        Step::new("long properties", "cargo test --locked --release -p store -p wire")
            .with("PROPTEST_CASES", PROPTEST_CASES),
    ];
    if works("cargo", &["+nightly", "miri", "--version"]) {
        let line = format!("cargo +nightly miri test --locked {MIRI_CRATES} --lib");
        let step = Step::new("miri", &line).with("MIRIFLAGS", "-Zmiri-disable-isolation");
        steps.push(step.with("PROPTEST_CASES", "4"));
    } else {
        println!("skipped: miri; `rustup component add miri rust-src --toolchain nightly`");
    }
    if works("cargo", &["+nightly", "fuzz", "--version"]) {
        for target in FUZZ_TARGETS {
            // New inputs stay out of the checked-in corpus; keep the good ones by hand.
            let grown = root.join("target/fuzz-corpus").join(target);
            if let Err(error) = std::fs::create_dir_all(&grown) {
                println!("skipped: fuzzing {target}; cannot create {}: {error}", grown.display());
                continue;
            }
            let run = format!("cargo +nightly fuzz run --features libfuzzer {target}");
            let grown = grown.display();
            let line =
                format!("{run} {grown} fuzz/corpus/{target} -- -max_total_time={fuzz_seconds}");
            steps.push(Step::new("fuzz", &line));
        }
    } else {
        println!("skipped: fuzzing; `cargo install cargo-fuzz` and the nightly toolchain");
    }
    steps
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
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
