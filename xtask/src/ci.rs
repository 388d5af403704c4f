//! `cargo xtask ci` and `test`: the steps in order, and the tally as the last line.

use std::path::Path;

use steps::{FEATURES, Report, Step, target};

use crate::blackbox::{self, Profile};

/// The extent of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The steps that need only the toolchain.
    Workspace,
    /// Those, and real clients against the real binary.
    WithClients,
}

/// Runs the steps up to the first failure; returns true if none failed.
pub fn run(root: &Path, scope: Scope) -> bool {
    let mut report = Report::default();
    let is_good = workspace_steps(root).iter().all(|step| report.take(step, root))
        && (scope == Scope::Workspace || run_clients(root, &mut report));
    report.finish();
    is_good
}

/// Real clients against the binary of the tests.
fn run_clients(root: &Path, report: &mut Report) -> bool {
    let clients = blackbox::prepare(root, Profile::Dev);
    clients.skipped.into_iter().for_each(|reason| report.skip(reason));
    let last = [conformance_step(root), attack_step(root)];
    let mut steps = clients.steps.iter().chain(&clients.short_pass).chain(&last);
    steps.all(|step| report.take(step, root))
}

/// Tests AF_XDP alone; returns true if it conforms, or if this machine cannot test it.
pub fn run_xdp(root: &Path) -> bool {
    let mut report = Report::default();
    let is_good = report.take(&xdp_step(), root);
    report.finish();
    is_good
}

/// One build for all tests.
fn tests() -> String {
    format!("cargo test --locked --workspace --features {FEATURES}")
}

/// Most tests wait for sockets and for other threads.
fn test_threads() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * cores).to_string()
}

/// Runs between network namespaces, without capture: a test that needs root or iproute2 says so.
pub fn xdp_step() -> Step {
    Step::new("AF_XDP", &format!("{} --test main xdp -- --nocapture", tests()))
}

/// A short run beside redis-server; says so if that is missing.
fn conformance_step(root: &Path) -> Step {
    let binary = Profile::Dev.binary(&target(root)).display().to_string();
    let line = "cargo xtask conformance --commands 6000";
    Step::new("conformance", line).and(&["--binary", &binary])
}

/// Every shape once, at the smallest cap.
fn attack_step(root: &Path) -> Step {
    let binary = Profile::Dev.binary(&target(root)).display().to_string();
    let line = "cargo xtask attack --quick";
    Step::new("attack", line).and(&["--binary", &binary])
}

/// Cheap steps first, so that a slip is seen early; tests before lints, so that they always run.
fn workspace_steps(root: &Path) -> Vec<Step> {
    // Every figure at a few hundred requests a point: seconds, by the binary of the tests.
    let figures = target(root).join("figures-smoke").display().to_string();
    let lab = Profile::Dev.binary(&target(root)).with_file_name("lab").display().to_string();
    let every_figure = format!("{lab} all --requests 500 --out {figures}");
    vec![
        Step::new("format", "cargo fmt --all --check"),
        Step::new("tidy", "cargo xtask tidy"),
        Step::new("test", &tests()).with("RUST_TEST_THREADS", test_threads()),
        Step::new("simulator smoke", &every_figure),
        // One pass: AF_XDP only adds code.
        Step::new(
            "clippy",
            &format!(
                "cargo clippy --locked --workspace --all-targets --features {FEATURES} \
                 -- -D warnings"
            ),
        ),
        loom_step(root, "loom of the crates without a store", LOOM_SHORT),
        // The other loom tests are at least compiled.
        under_loom(root, "check of loom tests", "check --release -p index -p store --tests"),
    ]
}

/// The crates that the first lane model-checks.
const LOOM_SHORT: &str = "-p base -p policy -p landing";
/// The crates that `nightly` model-checks.
const LOOM_ALL: &str = "-p base -p policy -p landing -p index -p store";

/// The checks that take too long for each change, or need more than the toolchain: a short form of
/// each is among the steps above.
pub fn second_lane(root: &Path) -> Vec<Step> {
    vec![
        loom_step(root, "loom", LOOM_ALL),
        Step::new(
            "clippy without AF_XDP",
            "cargo clippy --locked --workspace --all-targets -- -D warnings",
        ),
        Step::new("documentation", "cargo doc --locked --workspace --no-deps")
            .with("RUSTDOCFLAGS", "-D warnings"),
        Step::new("the C header", "cargo test --locked -p client-c --features header --test main"),
        xdp_step(),
        Step::new("conformance", "cargo xtask conformance"),
    ]
}

/// Loom breaks tokio, so only the crates that build on `base::sync` see the flag.
fn loom_step(root: &Path, name: &'static str, packages: &str) -> Step {
    under_loom(root, name, &format!("test --release {packages} --lib"))
}

fn under_loom(root: &Path, name: &'static str, command: &str) -> Step {
    Step::new(name, &format!("cargo --locked {command}"))
        .with("RUSTFLAGS", "--cfg loom")
        // Link-time optimisation would cost more time than it saves here.
        .with("CARGO_PROFILE_RELEASE_LTO", "off")
        .with("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        // Another configuration in the same directory would rebuild everything twice.
        .with("CARGO_TARGET_DIR", target(root).join("loom").display().to_string())
}
