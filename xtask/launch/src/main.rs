//! `cargo xtask`: builds the program `xtask` with the dependencies of the tests, then becomes it.
//!
//! ```text
//!  cargo xtask test ─▶ launch ─▶ cargo build --workspace --bin xtask ─▶ xtask test
//! ```
//!
//! `cargo run --package xtask` would resolve the features of xtask's dependencies for xtask alone,
//! and the tests would build some thirty of them again with more: a minute from an empty target.
#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use steps::programs::forget_package;

fn main() -> ExitCode {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    match build(&root) {
        Ok(true) => {}
        // Cargo has said why.
        Ok(false) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cargo does not start: {error}");
            return ExitCode::FAILURE;
        }
    }
    let program = root.join(steps::target(&root)).join("debug/xtask");
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    eprintln!("xtask: {} does not start: {error}", program.display());
    ExitCode::FAILURE
}

/// Returns true if it builds.
fn build(root: &Path) -> std::io::Result<bool> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--bin", "xtask"]);
    cargo.args(["--features", steps::FEATURES]).current_dir(root);
    // Whatever cargo is configured to build for and into, this program is found.
    cargo.arg("--target-dir").arg(steps::target(root)).env_remove("CARGO_BUILD_TARGET");
    forget_package(&mut cargo);
    cargo.status().map(|status| status.success())
}
