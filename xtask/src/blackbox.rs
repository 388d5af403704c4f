//! Runs real clients against the real binary: finds or installs them, and reports those that it
//! cannot.
//!
//! ```text
//!  tests/blackbox/requirements.txt   pinned Python clients  ─▶ target/blackbox-venv ─▶ pytest
//!  tests/blackbox/go/go.mod          pinned Go clients      ─▶ go test
//!  redis-cli, redis-server, memcached, chromium              ─▶ apt-get, when root
//! ```
//!
//! The tests find the binary in `DOVETAIL_BIN`, and in `BLACKBOX_SERVE` the flags for all their
//! servers: the answers must be the same however the server divides its work. A client that cannot
//! be installed is skipped with one line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use steps::{Report, Step, programs, server_step, target};

/// Servers that route: two layers, owners of keys, changing writers, and the tightest useful bound.
/// A short pass uses the first.
pub const ROUTED: [&str; 3] = [
    "--threads 3 --cr-threads 1",
    "--threads 3 --write-policy erew --dispatch key-hash",
    "--threads 3 --write-policy d-crew --dispatch jbsq:2",
];

/// Tests of a short pass: the commands of both protocols, pipelines, and malformed input, once and
/// not with each index.
const SHORT_PASS: [&str; 7] = [
    "-k",
    "not tree",
    "python/test_strings.py",
    "python/test_keys.py",
    "python/test_pipelines.py",
    "python/test_memcached.py",
    "python/test_malformed.py",
];

/// Flags of `cargo xtask blackbox`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Flags that every server of the tests gets, in the place of the tests' own
    #[arg(long, default_value = "", value_name = "FLAGS", allow_hyphen_values = true)]
    serve: String,
}

/// Builds the binary and runs all clients against it; returns true if no test failed.
pub fn run(root: &Path, args: &Args) -> bool {
    let mut report = Report::default();
    let mut is_good = report.take(&server_step(), root);
    if is_good {
        let clients = prepare(root, Profile::Release);
        clients.skipped.into_iter().for_each(|reason| report.skip(reason));
        // Each step runs, whatever the results of the others.
        for step in clients.steps.into_iter().map(|step| step.with(SERVE, &args.serve)) {
            is_good &= report.take(&step, root);
        }
    }
    report.finish();
    is_good
}

/// The variable with the flags of the tests' servers.
pub const SERVE: &str = "BLACKBOX_SERVE";

/// The binary to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The binary of the tests, with assertions: nothing is built for the clients alone.
    Dev,
    /// The release binary.
    Release,
}

impl Profile {
    /// Where cargo puts the binary.
    pub fn binary(self, target: &Path) -> PathBuf {
        target.join(match self {
            Profile::Dev => "debug/dovetail",
            Profile::Release => "release/dovetail",
        })
    }
}

/// The clients that can run, and the missing ones.
#[derive(Debug, Default)]
pub struct Clients {
    /// Ready to run.
    pub steps: Vec<Step>,
    /// Some of the same steps against a server that routes.
    pub short_pass: Option<Step>,
    /// The reasons for missing clients, one line each.
    pub skipped: Vec<String>,
}

/// Installs what is missing.
pub fn prepare(root: &Path, profile: Profile) -> Clients {
    let mut clients = Clients::default();
    let target = target(root);
    let binary = profile.binary(&target).display().to_string();
    let servers = [
        ("redis-server", "redis-server"),
        ("redis-cli", "redis-tools"),
        ("memcached", "memcached"),
    ];
    if let Err(reason) = debian_packages(&servers) {
        clients.skipped.push(format!("tests that need Debian's tools: {reason}"));
    }
    if let Err(reason) = debian_packages(&[("chromium", "chromium")]) {
        clients.skipped.push(format!("the page in a browser: {reason}"));
    }
    match python(root, &target) {
        Ok(interpreter) => {
            let pytest = |name, tests: &[&str]| {
                // More than there are cores: most of a test waits for its server.
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let parallel = cores + cores.div_ceil(2);
                let line =
                    format!("{interpreter} -B -m pytest -p no:cacheprovider -v -n {parallel}");
                let step = Step::new(name, &line).and(tests).with("DOVETAIL_BIN", &binary);
                step.inside(root.join("tests/blackbox"))
            };
            clients.steps.push(pytest("python clients", &["."]));
            let short = pytest("python clients, two layers", &SHORT_PASS);
            clients.short_pass = Some(short.with(SERVE, ROUTED[0]));
        }
        Err(reason) => clients.skipped.push(format!("Python clients: {reason}")),
    }
    match go(root) {
        Ok(step) => clients.steps.push(step.with("DOVETAIL_BIN", &binary)),
        Err(reason) => clients.skipped.push(format!("Go clients: {reason}")),
    }
    clients
}

/// Programs, and the packages that have them.
fn debian_packages(wanted: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(program, _)| !programs::is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !succeeds("sh", &["-c", "test $(id -u) = 0 && command -v apt-get"]) {
        return Err(format!("not root; install {names}"));
    }
    println!("== installing {names}");
    // The lists may be stale; an update that fails shows in the install.
    succeeds("apt-get", &["update", "-qq"]);
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(&missing);
    if succeeds("apt-get", &arguments) {
        Ok(())
    } else {
        Err(format!("apt-get could not install {names}"))
    }
}

/// The Python interpreter with the clients.
fn python(root: &Path, target: &Path) -> Result<String, String> {
    let tests = root.join("tests/blackbox");
    let requirements = tests.join("requirements.txt");
    if !requirements.is_file() {
        return Err(format!("{} is not there", requirements.display()));
    }
    let venv = target.join("blackbox-venv");
    let interpreter = venv.join("bin/python").display().to_string();
    if !succeeds(&interpreter, &["-c", "import pip"])
        && !succeeds("python3", &["-m", "venv", &venv.display().to_string()])
    {
        return Err("python3 -m venv failed; install python3-venv".to_owned());
    }
    println!("== installing {}", requirements.display());
    let file = requirements.display().to_string();
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", &file];
    if !succeeds(&interpreter, &install) {
        return Err("pip could not install tests/blackbox/requirements.txt".to_owned());
    }
    Ok(interpreter)
}

fn go(root: &Path) -> Result<Step, String> {
    let module = root.join("tests/blackbox/go");
    if !module.join("go.mod").is_file() {
        return Err(format!("{} has no go.mod", module.display()));
    }
    if !programs::succeeds("go", &["version"]) {
        return Err("the program `go` is not there".to_owned());
    }
    let mut download = Command::new("go");
    download.args(["mod", "download"]).current_dir(&module).stdout(Stdio::null());
    if !download.status().is_ok_and(|status| status.success()) {
        return Err("go could not download its modules".to_owned());
    }
    Ok(Step::new("go clients", "go test -count=1 -v ./...").inside(module))
}

/// Runs an installation, whose errors are shown; a missing program counts as a failure.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
