//! Real clients against the real binary: finds or installs what they need, says what it cannot.
//!
//! ```text
//!  tests/blackbox/requirements.txt   pinned Python clients  ─▶ target/blackbox-venv ─▶ pytest
//!  tests/blackbox/go/go.mod          pinned Go clients      ─▶ go test
//!  redis-cli, redis-server, memcached                        ─▶ apt-get, when root
//! ```
//!
//! The tests find the binary in `DOVETAIL_BIN`. What cannot be installed is skipped in one line.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::step::Step;

/// What can be run and what cannot.
#[derive(Debug, Default)]
pub struct Clients {
    /// Ready to run.
    pub steps: Vec<Step>,
    /// Why something is missing, one line each.
    pub skipped: Vec<String>,
}

/// Installs what is missing.
pub fn prepare(root: &Path) -> Clients {
    let mut clients = Clients::default();
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into);
    let binary = target.join("release/dovetail").display().to_string();
    if let Err(reason) = debian_packages() {
        clients.skipped.push(format!("tests that need Debian's tools: {reason}"));
    }
    match python(root, &target) {
        Ok(step) => clients.steps.push(step.with("DOVETAIL_BIN", &binary)),
        Err(reason) => clients.skipped.push(format!("Python clients: {reason}")),
    }
    match go(root) {
        Ok(step) => clients.steps.push(step.with("DOVETAIL_BIN", &binary)),
        Err(reason) => clients.skipped.push(format!("Go clients: {reason}")),
    }
    clients
}

fn debian_packages() -> Result<(), String> {
    let wanted = [
        ("redis-server", "redis-server"),
        ("redis-cli", "redis-tools"),
        ("memcached", "memcached"),
    ];
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(program, _)| !succeeds("which", &[program]))
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

fn python(root: &Path, target: &Path) -> Result<Step, String> {
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
    Ok(Step::new("python clients", &format!("{interpreter} -m pytest -p no:cacheprovider -v ."))
        .inside(tests)
        .with("PYTHONDONTWRITEBYTECODE", "1"))
}

fn go(root: &Path) -> Result<Step, String> {
    let module = root.join("tests/blackbox/go");
    if !module.join("go.mod").is_file() {
        return Err(format!("{} has no go.mod", module.display()));
    }
    if !succeeds("go", &["version"]) {
        return Err("the program `go` is not there".to_owned());
    }
    let mut download = Command::new("go");
    download.args(["mod", "download"]).current_dir(&module).stdout(Stdio::null());
    if !download.status().is_ok_and(|status| status.success()) {
        return Err("go could not download its modules".to_owned());
    }
    Ok(Step::new("go clients", "go test -count=1 -v ./...").inside(module))
}

/// Runs quietly; a program that is not there does not succeed.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
