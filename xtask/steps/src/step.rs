//! Steps: a named and timed command whose tests are counted from its output; and the report of a
//! run.
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

use crate::programs;

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
    /// The name in the summary.
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

    /// The command line that runs this step alone.
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

    /// Runs it outside of a report, as the build of a benchmark; returns true if it succeeded.
    pub fn run(&self, root: &Path) -> bool {
        Report::default().take(self, root)
    }

    fn run_command(&self, root: &Path) -> (bool, Tally) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.variables.iter().cloned());
        command.current_dir(self.directory.as_deref().unwrap_or(root));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        programs::forget_package(&mut command);
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

/// The time of one step.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    wall_seconds: f64,
    cpu_seconds: f64,
}

/// The times and counts of the steps of one run, in order.
#[derive(Debug, Default)]
pub struct Report {
    tally: Tally,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

impl Report {
    /// Runs a step; returns true if it succeeded.
    pub fn take(&mut self, step: &Step, root: &Path) -> bool {
        println!("== {}: {}", step.name, step.shown());
        let (started, cpu_before) = (Instant::now(), children_cpu_seconds());
        let (is_success, mut tally) = step.run_command(root);
        let wall_seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = children_cpu_seconds() - cpu_before;
        self.rows.push(Row { name: step.name, wall_seconds, cpu_seconds });
        if is_success {
            println!("== {}: ok, {wall_seconds:.1} s, {} passed", step.name, tally.passed);
        } else {
            // A step without tests of its own fails as one.
            tally.failed = tally.failed.max(1);
            println!("== {}: FAILED after {wall_seconds:.1} s", step.name);
            println!("== run it again with: {}", step.shown());
        }
        self.tally.add(tally);
        is_success
    }

    /// Runs a step whose requirements this machine may lack: then the reason is noted, and that is
    /// not a failure.
    pub fn take_if(&mut self, step: Result<Step, String>, root: &Path) -> bool {
        match step {
            Ok(step) => self.take(&step, root),
            Err(reason) => {
                self.skip(reason);
                true
            }
        }
    }

    /// Notes a skipped step and the reason.
    pub fn skip(&mut self, reason: String) {
        self.skipped.push(reason);
    }

    /// Prints what was skipped, the steps by their seconds, and the tally as the last line of all,
    /// which machines read.
    pub fn finish(&self) {
        for reason in &self.skipped {
            println!("skipped: {reason}");
        }
        print!("{}", self.table());
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
    }

    /// The steps, slowest first.
    fn table(&self) -> String {
        let mut rows = self.rows.clone();
        rows.sort_by(|a, b| b.wall_seconds.total_cmp(&a.wall_seconds));
        let sum = |of: fn(&Row) -> f64| rows.iter().map(of).sum();
        let (wall_seconds, cpu_seconds) = (sum(|row| row.wall_seconds), sum(|row| row.cpu_seconds));
        rows.push(Row { name: "all", wall_seconds, cpu_seconds });
        let lines = rows.iter().map(|row| {
            let Row { name, wall_seconds, cpu_seconds } = row;
            format!("{wall_seconds:>10.1} {cpu_seconds:>12.1}  {name}\n")
        });
        format!("   seconds  CPU seconds  step\n{}", lines.collect::<String>())
    }
}

/// CPU time of all ended children, and of theirs; 0 if the system does not report it.
fn children_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain spaces; behind it the fields count from the third.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = |field: usize| fields.split_whitespace().nth(field - 3)?.parse::<f64>().ok();
    let (user, system) = (ticks(16).unwrap_or(0.0), ticks(17).unwrap_or(0.0));
    // Linux shows 100 ticks a second, whatever the kernel counts in.
    (user + system) / 100.0
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

/// Parses one line of output: cargo's summary, pytest's summary, or one test of `go test -v`.
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
        for line in ["false", "no-such-program"] {
            let mut report = Report::default();
            assert!(!report.take(&Step::new("sample", line), root.path()));
            assert_eq!(report.tally, Tally { passed: 0, failed: 1 });
        }
    }

    #[test]
    fn the_report_lists_the_slowest_step_first() {
        let row = |name, wall_seconds, cpu_seconds| Row { name, wall_seconds, cpu_seconds };
        let rows = vec![row("format", 1.5, 1.0), row("test", 300.0, 550.25)];
        let report = Report { rows, ..Report::default() };
        let wanted = "   seconds  CPU seconds  step
     300.0        550.2  test
       1.5          1.0  format
     301.5        551.2  all
";
        assert_eq!(report.table(), wanted);
    }

    #[test]
    fn a_step_is_charged_for_the_time_of_its_children() {
        let before = children_cpu_seconds();
        let root = tempfile::tempdir().unwrap();
        let busy =
            Step::new("busy", "sh -c").and(&["i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        let mut report = Report::default();
        assert!(report.take(&busy, root.path()));
        assert!(children_cpu_seconds() > before);
        assert!(report.rows[0].cpu_seconds > 0.0);
    }

    #[test]
    fn a_step_shows_what_to_type() {
        let step = Step::new("loom", "cargo test --lib").with("RUSTFLAGS", "--cfg loom");
        assert_eq!(step.shown(), "RUSTFLAGS='--cfg loom' cargo test --lib");
        let step = Step::new("clients", "pytest").and(&["-k", "not tree"]);
        assert_eq!(step.shown(), "pytest -k 'not tree'");
    }
}
