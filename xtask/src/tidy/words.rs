//! Rules for words: a thread, a socket or a client is named by a noun.
//!
//! ```text
//!  *.rs, *.py   strings, comments, and names, each part of them
//!  *.md         all lines, but for decisions and the change log, which stay as they were written
//! ```

use crate::tidy::{Problem, Repository};

const REFUSED: [&str; 4] = ["who", "whoever", "whom", "nobody"];

/// The allowed uses of the words, by text that the line contains.
const EXCEPTIONS: [&str; 3] = [
    // The Unix user, in command lines of memcached.
    "-u nobody",
    // A user of Redis, in tests.
    "\"nobody\"",
    "SETUSER nobody",
];

/// All rules of this module.
pub fn check(repository: &Repository) -> Vec<Problem> {
    [documents, code].iter().flat_map(|rule| rule(repository)).collect()
}

fn documents(repository: &Repository) -> Vec<Problem> {
    let is_living = |path: &str| {
        let is_decision = path.starts_with("docs/decisions/") && !path.ends_with("README.md");
        path.ends_with(".md") && !is_decision && path != "CHANGELOG.md"
    };
    let lines = |(path, text): (&str, &str)| problems_in(path, text.lines());
    repository.named(is_living).flat_map(lines).collect()
}

fn code(repository: &Repository) -> Vec<Problem> {
    let is_code = |path: &str| {
        let is_source = path.ends_with(".rs") || path.ends_with(".py");
        is_source && path != "xtask/src/tidy/words.rs"
    };
    let lines = |(path, text): (&str, &str)| problems_in(path, text.lines());
    repository.named(is_code).flat_map(lines).collect()
}

fn problems_in<'t>(path: &str, lines: impl Iterator<Item = &'t str>) -> Vec<Problem> {
    let is_allowed = |line: &str| EXCEPTIONS.iter().any(|words| line.contains(words));
    let mut problems = Vec::new();
    for (index, line) in lines.enumerate().filter(|(_, line)| !is_allowed(line)) {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric());
        let lowered = words.map(str::to_ascii_lowercase);
        for word in lowered.filter(|word| REFUSED.contains(&word.as_str())) {
            let message = format!("`{word}`: name the thread, client, socket or node by a noun");
            problems.push(Problem::at(path, index + 1, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{code, documents};
    use crate::tidy::testing::expect;

    #[test]
    fn documents_name_nouns() {
        expect(documents, "docs/cluster.md", "# Cluster\nThe leader sends.\n", &[]);
        expect(documents, "docs/cluster.md", "# Cluster\nWhoever leads, sends.\n", &["md:2: `who"]);
        expect(documents, "docs/decisions/0001-a.md", "Nobody asks.\n", &[]);
        expect(documents, "docs/decisions/README.md", "Nobody asks.\n", &["`nobody`"]);
    }

    #[test]
    fn strings_and_names_name_nouns() {
        let path = "crates/server/src/lib.rs";
        expect(code, path, "let url = \"redis://whoami\"; // the client asks\n", &[]);
        expect(code, path, "//! The thread\n// whoever asks\n", &["lib.rs:2: `whoever`"]);
        expect(code, path, "panic!(\"nobody asks\");\n", &["lib.rs:1: `nobody`"]);
        expect(code, path, "enum Found { Nobody }\n", &["`nobody`"]);
        expect(code, path, "fn one_who_waits() {}\n", &["`who`"]);
        expect(code, "xtask/src/peers.rs", "let line = \"-m 64 -u nobody\";\n", &[]);
    }
}
