//! `cargo xtask ci` and `test`: the steps in order, and the tally as the last line.

use std::path::Path;

use crate::step::{Step, Tally};
use crate::{blackbox, dax, rdma, zookeeper};

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What needs nothing but the toolchain.
    Workspace,
    /// Also real clients against the real binary.
    WithClients,
}

/// Runs the steps up to the first that fails; true if none did.
pub fn run(root: &Path, scope: Scope) -> bool {
    let mut tally = Tally::default();
    let mut steps = workspace_steps(root);
    let mut skipped = Vec::new();
    if scope == Scope::WithClients {
        steps.push(xdp_step());
        match rdma::missing(root) {
            Some(reason) => skipped.push(reason),
            None => steps.push(rdma_step()),
        }
        match dax::missing(root) {
            Some(reason) => skipped.push(reason),
            None => steps.push(dax_step()),
        }
        match zookeeper::step(root) {
            Ok(step) => steps.push(step),
            Err(reason) => skipped.push(reason),
        }
        steps.push(blackbox::binary_step());
    }
    let mut is_good = steps.iter().all(|step| take(step, root, &mut tally));
    if is_good && scope == Scope::WithClients {
        let clients = blackbox::prepare(root);
        skipped.extend(clients.skipped);
        let mut steps = clients.steps.iter().chain(&clients.short_pass);
        is_good = steps.all(|step| take(step, root, &mut tally))
            && take(&conformance_step(), root, &mut tally);
    }
    for reason in skipped {
        println!("skipped: {reason}");
    }
    // The last line of all; machines read it.
    println!("{} passed, {} failed", tally.passed, tally.failed);
    is_good
}

/// AF_XDP alone; true if it conforms, or if this machine cannot say.
pub fn run_xdp(root: &Path) -> bool {
    let mut tally = Tally::default();
    let is_good = take(&xdp_step(), root, &mut tally);
    println!("{} passed, {} failed", tally.passed, tally.failed);
    is_good
}

/// One build for all tests: of a part of the workspace, or with other features, cargo would build
/// most of it anew (12 of 33 minutes).
const TESTS: &str =
    "cargo test --locked --workspace --features landing/xdp,server/xdp,dovetail/xdp";

/// Between network namespaces. All tests have run before, and with them these: again, because who
/// is not root or lacks iproute2 is to see what they say, hence no capture.
fn xdp_step() -> Step {
    let line = format!("{TESTS} --test conformance --test xdp -- --nocapture");
    Step::new("AF_XDP", &line)
}

/// In an emulated machine, whose tests are counted as if they were here.
fn rdma_step() -> Step {
    Step::new("RDMA over soft-RoCE", "cargo run --quiet --locked --package xtask -- test-rdma")
}

fn dax_step() -> Step {
    Step::new("persistent memory", "cargo run --quiet --locked --package xtask -- test-dax")
}

/// A short run beside redis-server; says so where that is missing.
fn conformance_step() -> Step {
    let line = "cargo run --quiet --locked --package xtask -- conformance --commands 25000";
    Step::new("conformance", line)
}

fn take(step: &Step, root: &Path, tally: &mut Tally) -> bool {
    let result = step.run(root);
    tally.add(result.unwrap_or_else(|failed| failed));
    result.is_ok()
}

/// Cheap steps first, so that a slip is seen early; tests before lints, so that they always run.
fn workspace_steps(root: &Path) -> Vec<Step> {
    // Another configuration in the same directory would rebuild everything twice.
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into);
    let loom_target = target.join("loom").display().to_string();
    // Every figure at a few hundred requests a point: seconds, by the binary of the tests.
    let figures = target.join("figures-smoke").display().to_string();
    let binary = target.join("debug/dovetail").display().to_string();
    let every_figure = format!("{binary} sim all --requests 500 --out {figures}");
    vec![
        Step::new("format", "cargo fmt --all --check"),
        Step::new("tidy", "cargo run --quiet --locked --package xtask -- tidy"),
        Step::new("test", TESTS),
        Step::new("simulator smoke", &every_figure),
        Step::new("clippy", "cargo clippy --locked --workspace --all-targets -- -D warnings"),
        Step::new(
            "clippy of AF_XDP",
            "cargo clippy --locked -p landing -p server -p dovetail --all-targets \
             --features landing/xdp,server/xdp,dovetail/xdp -- -D warnings",
        ),
        // Loom breaks tokio, so only the crates that build on `base::sync` see the flag.
        Step::new(
            "loom",
            "cargo test --locked --release -p base -p store -p policy -p landing --lib",
        )
        .with("RUSTFLAGS", "--cfg loom")
        // What a release gains by being linked as a whole is lost on waiting for it.
        .with("CARGO_PROFILE_RELEASE_LTO", "off")
        .with("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .with("CARGO_TARGET_DIR", loom_target),
        Step::new("documentation", "cargo doc --locked --workspace --no-deps")
            .with("RUSTDOCFLAGS", "-D warnings"),
    ]
}
