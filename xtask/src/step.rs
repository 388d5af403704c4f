//! Steps: a named command, timed, its tests counted from its output.
//!
//! ```text
//!  == test: cargo test --workspace
//!  ... the command's own output ...
//!  == test: ok, 41.2 s, 312 passed
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Tests that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
}

impl Tally {
    /// Adds what one step counted.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// One command with a name.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the summary calls it.
    pub name: &'static str,
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    directory: Option<PathBuf>,
}

impl Step {
    /// A step of the words of `line`, which may not contain spaces themselves.
    pub fn new(name: &'static str, line: &str) -> Step {
        let mut words = line.split(' ').map(str::to_owned);
        Step {
            name,
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            variables: Vec::new(),
            directory: None,
        }
    }

    /// Adds words, which may contain spaces.
    pub fn and(mut self, words: &[&str]) -> Step {
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Sets an environment variable for the command.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Step {
        self.variables.push((name, value.into()));
        self
    }

    /// Runs the command in `directory` instead of the root.
    pub fn inside(mut self, directory: PathBuf) -> Step {
        self.directory = Some(directory);
        self
    }

    /// What a person types to run this step alone.
    pub fn shown(&self) -> String {
        let mut parts = Vec::new();
        if let Some(directory) = &self.directory {
            parts.push(format!("cd {} &&", directory.display()));
        }
        for (name, value) in &self.variables {
            parts.push(format!("{name}={}", quoted(value)));
        }
        parts.push(self.program.clone());
        parts.extend(self.arguments.iter().map(|argument| quoted(argument)));
        parts.join(" ")
    }

    /// Runs it; `Err` carries the tally of what ran before it failed.
    pub fn run(&self, root: &Path) -> Result<Tally, Tally> {
        println!("== {}: {}", self.name, self.shown());
        let started = Instant::now();
        let (is_success, mut tally) = self.run_command(root);
        let seconds = started.elapsed().as_secs_f64();
        if is_success {
            println!("== {}: ok, {seconds:.1} s, {} passed", self.name, tally.passed);
            return Ok(tally);
        }
        // A step without tests of its own fails as one.
        tally.failed = tally.failed.max(1);
        println!("== {}: FAILED after {seconds:.1} s", self.name);
        println!("== run it again with: {}", self.shown());
        Err(tally)
    }

    fn run_command(&self, root: &Path) -> (bool, Tally) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().cloned());
        command.current_dir(self.directory.as_deref().unwrap_or(root));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("cannot start {}: {error}", self.program);
                return (false, Tally::default());
            }
        };
        let tally = match child.stdout.take() {
            Some(stdout) => copy_and_count(stdout, std::io::stdout()),
            None => Tally::default(),
        };
        (child.wait().is_ok_and(|status| status.success()), tally)
    }
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '*', '$']) { format!("'{word}'") } else { word.to_owned() }
}

fn copy_and_count(from: impl Read, mut to: impl Write) -> Tally {
    let mut tally = Tally::default();
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        // A closed standard output must not end the tests.
        let _ = to.write_all(&line);
        tally.add(tally_of(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    tally
}

/// What one line of output says: cargo's summary, pytest's summary, or one test of `go test -v`.
fn tally_of(line: &str) -> Tally {
    let line = line.trim_end();
    if line.starts_with("test result: ") {
        return Tally { passed: before(line, " passed"), failed: before(line, " failed") };
    }
    // ===== 2 failed, 40 passed, 1 skipped in 3.21s =====
    if line.starts_with("==") && line.ends_with("==") && line.contains(" in ") {
        let failed = before(line, " failed") + before(line, " error");
        return Tally { passed: before(line, " passed"), failed };
    }
    let trimmed = line.trim_start();
    Tally {
        passed: u64::from(trimmed.starts_with("--- PASS: ")),
        failed: u64::from(trimmed.starts_with("--- FAIL: ")),
    }
}

/// The number that stands right before `word`.
fn before(line: &str, word: &str) -> u64 {
    let Some((head, _)) = line.split_once(word) else { return 0 };
    head.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, passed: u64, failed: u64) {
        assert_eq!(tally_of(line), Tally { passed, failed }, "{line}");
    }

    #[test]
    fn summaries_of_cargo_pytest_and_go_are_counted() {
        check("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured", 12, 0);
        check("test result: FAILED. 3 passed; 2 failed; 0 ignored", 3, 2);
        check("======== 40 passed in 3.21s ========", 40, 0);
        check("=== 2 failed, 40 passed, 1 skipped, 1 error in 3.21s (0:00:03) ===", 40, 3);
        check("--- PASS: TestGetSet (0.00s)", 1, 0);
        check("    --- FAIL: TestGetSet/empty (0.00s)", 0, 1);
        check("test settings::a_name_that_passed ... ok", 0, 0);
        check("== test: ok, 41.2 s, 312 passed", 0, 0);
    }

    #[test]
    fn output_is_passed_on_and_counted() {
        let text = "running 5 tests\ntest result: ok. 5 passed; 0 failed;\nlast";
        let mut copy = Vec::new();
        let tally = copy_and_count(text.as_bytes(), &mut copy);
        assert_eq!((tally, copy), (Tally { passed: 5, failed: 0 }, text.as_bytes().to_vec()));
    }

    #[test]
    fn a_step_that_fails_without_tests_counts_as_one_failure() {
        let root = tempfile::tempdir().unwrap();
        let failed = Err(Tally { passed: 0, failed: 1 });
        assert_eq!(Step::new("sample", "false").run(root.path()), failed);
        assert_eq!(Step::new("sample", "no-such-program").run(root.path()), failed);
    }

    #[test]
    fn a_step_shows_what_to_type() {
        let step = Step::new("loom", "cargo test --lib").with("RUSTFLAGS", "--cfg loom");
        assert_eq!(step.shown(), "RUSTFLAGS='--cfg loom' cargo test --lib");
        let step = Step::new("clients", "pytest").and(&["-k", "not tree"]);
        assert_eq!(step.shown(), "pytest -k 'not tree'");
    }
}
