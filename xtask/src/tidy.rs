//! `cargo xtask tidy`: checks the rules of style that the compiler and clippy do not know.
//!
//! ```text
//!  git ls-files ─▶ Repository ─▶ sources    head line, sizes, width, names, globs, unsafe, TO-DOs
//!                             ├▶ manifests  arrows between crates, reasons, lints
//!                             ├▶ modules    circles of imports within a crate
//!                             ├▶ purity     what a crate must not mention or depend on
//!                             ├▶ documents  decisions, formats, links, commands of the README
//!                             ├▶ citations  rules, decisions and sections of papers that are cited
//!                             ├▶ words      pronouns for machines, in documents and strings
//!                             └▶ supply     licences, sources, bans, copies, what nothing uses
//! ```
//!
//! Each rule is a function of the repository's text, so that its test can pass it a bad sample.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

mod budgets;
mod citations;
mod documents;
mod manifests;
mod modules;
mod purity;
mod sizes;
mod sources;
mod supply;
mod words;

/// The text files of the repository by their path from the root.
#[derive(Debug, Default)]
pub struct Repository {
    files: BTreeMap<String, String>,
}

/// One breach of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    place: String,
    message: String,
}

impl Problem {
    fn at(path: &str, line: usize, message: impl Into<String>) -> Problem {
        Problem { place: format!("{path}:{line}"), message: message.into() }
    }

    fn of(path: &str, message: impl Into<String>) -> Problem {
        Problem { place: path.to_owned(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.message)
    }
}

/// Checks everything and prints the problems; returns true if there are none.
pub fn run(root: &Path) -> Result<bool> {
    let repository = Repository::load(root)?;
    let mut problems = check(&repository);
    problems.extend(purity::check_dependencies(root)?);
    problems.extend(supply::check_resolved(root, &repository)?);
    for problem in &problems {
        println!("tidy: {problem}");
    }
    println!("tidy: {} files, {} problems", repository.files.len(), problems.len());
    Ok(problems.is_empty())
}

fn check(repository: &Repository) -> Vec<Problem> {
    let mut problems = sources::check(repository);
    problems.extend(sizes::check(repository));
    problems.extend(manifests::check(repository));
    problems.extend(modules::check(repository));
    problems.extend(purity::check_sources(repository));
    problems.extend(documents::check(repository));
    problems.extend(citations::check(repository));
    problems.extend(words::check(repository));
    problems.extend(supply::check(repository));
    problems
}

impl Repository {
    /// The files that git tracks or would add; files that are not text are left out.
    fn load(root: &Path) -> Result<Repository> {
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(root)
            .output()
            .context("cannot start git")?;
        ensure!(output.status.success(), "git ls-files failed: is this a clone?");
        let names = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
        let files = names
            .split_terminator('\0')
            .filter_map(|name| {
                Some((name.to_owned(), std::fs::read_to_string(root.join(name)).ok()?))
            })
            .collect();
        Ok(Repository { files })
    }

    /// The Rust files, in order.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named(|path| path.ends_with(".rs"))
    }

    fn named(&self, is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| is_wanted(path))
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

/// Whether a Rust file contains only tests.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/")
}

#[cfg(test)]
mod testing {
    //! Samples for the rules' tests.

    use super::{Problem, Repository};

    /// A repository of these files.
    pub fn repository(files: &[(&str, &str)]) -> Repository {
        let owned = |(path, text): &(&str, &str)| (path.to_string(), text.to_string());
        Repository { files: files.iter().map(owned).collect() }
    }

    /// The rule must find `want` in this one file, or nothing when `want` is empty.
    #[track_caller]
    pub fn expect(rule: fn(&Repository) -> Vec<Problem>, path: &str, text: &str, want: &[&str]) {
        expect_all(rule, &[(path, text)], want);
    }

    /// As [`expect`], for several files.
    #[track_caller]
    pub fn expect_all(
        rule: fn(&Repository) -> Vec<Problem>,
        files: &[(&str, &str)],
        want: &[&str],
    ) {
        let found: Vec<String> = rule(&repository(files)).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), want.len(), "{found:?}");
        for (found, want) in found.iter().zip(want) {
            assert!(found.contains(want), "found `{found}`, want `{want}`");
        }
    }
}
